//! Queued messages: those that no row shows are speech, once, at their place (DESIGN 4, facts 11).

use serde_json::json;

use super::*;

#[test]
fn an_absorbed_message_without_a_row_is_said_where_it_was_taken_in() {
    let mut script = Script::new();
    script.human("list");
    script.queue("enqueue", Some("  and hurry, 快点 🪁\n"));
    script.calls("Bash", json!({}));
    script.result("Bash", json!("x"), false);
    script.queue("remove", None);
    script.says("done");
    script.human("thanks");
    script.says("welcome");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.plan.blocked_reason(), "");
    assert_eq!(rebuilt.said(), ["H=list", "H=  and hurry, 快点 🪁\n", "A:done", "H=thanks", "A:welcome"]);
    let again = Ask::new().rebuild(&Fixture::of(&rebuilt.bytes));
    again.proved();
    assert_eq!(again.said(), rebuilt.said());
    assert_eq!(again.file.manifest[1].source_uuid, rebuilt.file.manifest[1].source_uuid);
}

#[test]
fn a_message_that_still_waits_is_part_of_the_open_tail() {
    let mut script = Script::new();
    script.human("list");
    script.says("done");
    script.queue("enqueue", Some("مرحبا، هل أنت هنا؟"));
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(
        rebuilt.said(),
        ["H=list", "A:done", "H=مرحبا، هل أنت هنا؟", "A:[unanswered before the rebuild]"]
    );
    assert_eq!(rebuilt.plan.stats.open_tail_turns, 1);
    let mut ask = Ask::new();
    ask.settings.include_open_tail = false;
    let without = ask.rebuild(&script.file());
    without.proved();
    assert_eq!(without.said(), ["H=list", "A:done"]);
}

#[test]
fn what_was_pulled_back_and_what_no_human_queued_is_not_said() {
    let mut script = Script::new();
    script.human("list");
    script.queue("enqueue", Some("words somebody took back")).queue("popAll", None);
    script.queue("enqueue", Some("{\"task_id\":\"a\",\"status\":\"a finished task\"}")).queue("remove", None);
    script.queue("enqueue", Some("<task-notification>a task is done</task-notification>"));
    script.queue("enqueue", Some("/cost")).queue("remove", Some("/cost"));
    script.says("done");
    let plan = Ask::new().plan(&script.file().path);
    assert_eq!((plan.blocked_reason(), plan.items.len()), (String::new(), 2));
}

#[test]
fn two_equal_messages_are_two_and_one_sent_again_is_one() {
    let mut twice = Script::new();
    twice.queue("enqueue", Some("again")).queue("dequeue", None);
    twice.human("again");
    twice.says("one");
    twice.queue("enqueue", Some("again")).queue("remove", None);
    twice.says("two");
    assert_eq!(carried(&twice), ["H=again", "A:one", "H=again", "A:two"]);

    let mut absorbed_twice = Script::new();
    absorbed_twice.human("go");
    for _ in 0..2 {
        absorbed_twice.queue("enqueue", Some("faster")).queue("remove", None);
    }
    absorbed_twice.attachment(json!({"type": "queued_command", "prompt": "faster", "commandMode": "prompt"}));
    absorbed_twice.says("ok");
    assert_eq!(carried(&absorbed_twice), ["H=go", "H=faster", "H=faster", "A:ok"]);

    let mut retried = Script::new();
    retried.queue("enqueue", Some("ask")).queue("dequeue", None);
    retried.queue("enqueue", Some("ask")).queue("dequeue", None);
    retried.human("ask");
    retried.says("answer");
    assert_eq!(carried(&retried), ["H=ask", "A:answer"]);
}

#[test]
fn rows_that_the_cli_rewrote_still_go_with_their_message() {
    let mut script = Script::new();
    script.human("first");
    script.queue("enqueue", Some("q1")).queue("enqueue", Some("q2 二"));
    script.says("one");
    script.queue("dequeue", None).queue("dequeue", None);
    script.user(json!("q1\nq2 二"), json!({"promptSource": "sdk", "mergedSendUuids": ["x"]}));
    script.says("both");
    script.queue("enqueue", Some("/greet Mina")).queue("dequeue", None);
    script.user(
        json!("<command-message>greet</command-message>\n<command-name>/greet</command-name>\n<command-args>Mina</command-args>"),
        json!({}),
    );
    script.says("hello");
    script.queue("enqueue", Some("[Pasted text #1]")).queue("dequeue", None);
    script.human("the pasted text itself");
    script.says("read");
    let plan = Ask::new().plan(&script.file().path);
    let items: Vec<_> = plan.items.iter().map(|item| item.line).collect();
    assert_eq!((plan.blocked_reason(), items.len()), (String::new(), 8), "{items:?}");
}

#[test]
fn a_message_whose_process_died_keeps_its_place() {
    let mut script = Script::new();
    script.human("first");
    script.queue("enqueue", Some("queued and never taken"));
    script.api_error(500);
    script.human("next day");
    script.says("hello");
    assert_eq!(carried(&script), ["H=first", "H=queued and never taken", "H=next day", "A:hello"]);

    let mut dequeued = Script::new();
    dequeued.human("first");
    dequeued.says("one");
    dequeued.queue("enqueue", Some("dequeued and never begun")).queue("dequeue", None);
    dequeued.queue("enqueue", Some("next day")).queue("dequeue", None);
    dequeued.human("next day");
    dequeued.says("hello");
    assert_eq!(
        carried(&dequeued),
        ["H=first", "A:one", "H=dequeued and never begun", "H=next day", "A:hello"]
    );
}

#[test]
fn a_message_absorbed_on_a_lost_branch_is_a_fork_to_decide() {
    let mut script = Script::new();
    let seed = script.human("seed");
    script.queue("enqueue", Some("words of the lost branch")).queue("remove", None);
    script.says("one");
    script.queue("enqueue", Some("absorbed there")).queue("remove", None);
    script.on(&seed).human("other");
    script.next_message().says("two");
    assert_eq!(blocked(&script), [(BlockKind::Fork, Some(4))]);
    let mut ask = Ask::new();
    ask.settings.off_chain = crate::transcript::OffChain::Carry;
    assert_eq!(
        carried_with(&script, &ask),
        ["H=seed", "H=words of the lost branch", "A:one", "H=absorbed there", "H=other", "A:two"]
    );
}

#[test]
fn an_absorbed_message_without_words_blocks() {
    let mut script = Script::new();
    script.human("list");
    script.queue("enqueue", None).queue("remove", None);
    script.says("done");
    assert_eq!(blocked(&script), [(BlockKind::QueuedWords, Some(2))]);
    let mut shown = Script::new();
    shown.human("list");
    shown.queue("enqueue", None).queue("remove", None);
    shown.attachment(json!({"type": "queued_command", "prompt": [{"type": "text", "text": "hurry"}],
                            "commandMode": "prompt"}));
    shown.says("done");
    assert_eq!(carried(&shown), ["H=list", "H:hurry", "A:done"]);
    // 2.1.199 writes the row first.
    let mut early = Script::new();
    early.human("list");
    early.queue("enqueue", None);
    early.attachment(json!({"type": "queued_command", "prompt": [{"type": "text", "text": "hurry"}],
                            "commandMode": "prompt"}));
    early.queue("remove", None);
    early.says("done");
    assert_eq!(carried(&early), ["H=list", "H:hurry", "A:done"]);
    let mut another = early;
    another.queue("enqueue", None).queue("remove", None);
    another.says("and done");
    assert_eq!(blocked(&another), [(BlockKind::QueuedWords, Some(6))], "one row is one message");
    let mut ask = Ask::new();
    ask.rules.accept_unknown = vec!["queue-operation/wordless".to_owned()];
    assert_eq!(carried_with(&script, &ask), ["H=list", "A:done"]);
}
