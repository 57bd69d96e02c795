//! Receipts on transcripts in the shapes of facts 1, 3, 5 and 6.

use serde_json::json;

use super::*;
use crate::fixture::{Script, uuid};

fn of(script: &Script, row: &str) -> Receipt {
    read(&script.file().path, 0, row).unwrap()
}

/// A session with one answered turn; returns the uuid of its answer.
fn seeded() -> (Script, String) {
    let mut script = Script::new();
    script.human("风筝是什么颜色？");
    let answer = script.says("红的。");
    (script, answer)
}

#[test]
fn without_file_or_row_the_message_is_absent() {
    assert_eq!(read(Path::new("/nonexistent/x.jsonl"), 0, &uuid(1)).unwrap().after, After::Absent);
    let (script, _) = seeded();
    let receipt = of(&script, "ffffffff-0000-4000-8000-000000000000");
    assert_eq!((receipt.after, receipt.row_line), (After::Absent, None));
}

#[test]
fn a_finished_message_is_an_answer() {
    let (mut script, before) = seeded();
    let ours = script.human("and the string?");
    script.model(
        json!([{"type": "thinking", "thinking": "hm", "signature": "x"}]),
        json!("end_turn"),
        json!({}),
    );
    script.model(json!([{"type": "text", "text": "White."}]), json!("end_turn"), json!({}));
    script.line(&json!({"type": "mode", "mode": "normal"}));
    let receipt = of(&script, &ours);
    assert_eq!(receipt.after, After::Answered);
    assert_eq!(
        receipt.replies,
        [ReplyPart { message_id: "msg_0002".to_owned(), block_index: 1, text: "White.".to_owned() }]
    );
    assert_eq!(receipt.last_assistant_before, Some(before));
    assert_eq!(receipt.chain_root, Some(uuid(1)));
    assert_eq!(receipt.usage.map(|usage| usage.total()), Some(20_022));
    assert_eq!((receipt.on_live_chain, receipt.row_line), (true, Some(3)));
}

#[test]
fn what_follows_an_answer_belongs_to_the_next_message() {
    let (mut script, _) = seeded();
    let ours = script.human("one");
    script.says("1");
    script.human("two");
    let receipt = of(&script, &ours);
    assert_eq!((receipt.after, receipt.replies.len()), (After::Answered, 1));
}

#[test]
fn a_killed_turn_has_nothing_after_its_row() {
    let (mut script, before) = seeded();
    let ours = script.human("ask");
    script.attachment(json!({"type": "date", "date": "2026-11-30"}));
    assert_eq!(of(&script, &ours).after, After::Nothing);
    // The next start leaves a synthetic answer; it is none.
    script.synthetic("No response requested.");
    let receipt = of(&script, &ours);
    assert_eq!((receipt.after, receipt.last_assistant_before), (After::Nothing, Some(before)));
    assert!(receipt.replies.is_empty());
}

#[test]
fn thinking_alone_is_nothing() {
    let (mut script, _) = seeded();
    let ours = script.human("ask");
    script.model(json!([{"type": "thinking", "thinking": "hm", "signature": "x"}]), json!(null), json!({}));
    assert_eq!(of(&script, &ours).after, After::Nothing);
}

#[test]
fn an_api_error_is_not_a_reply() {
    let (mut script, _) = seeded();
    let ours = script.human("ask");
    script.api_error(529);
    let receipt = of(&script, &ours);
    assert_eq!(
        receipt.after,
        After::ApiErrorOnly { status: Some(529), text: "API Error: 529 try again".to_owned() }
    );
    assert!(receipt.replies.is_empty());
    assert_eq!(receipt.api_error.map(|error| error.status), Some(Some(529)));
}

#[test]
fn an_interrupt_keeps_the_words_before_it() {
    let (mut script, _) = seeded();
    let ours = script.human("ask");
    script.interrupt();
    assert_eq!(of(&script, &ours).after, After::Interrupted);

    let (mut script, _) = seeded();
    let ours = script.human("count");
    script.model(
        json!([{"type": "text", "text": "one two thr"}]),
        json!(null),
        json!({"isAbortedMidStream": true}),
    );
    let receipt = of(&script, &ours);
    assert_eq!((receipt.after, receipt.interrupted), (After::AnsweredPartly, false));
    script.interrupt();
    let receipt = of(&script, &ours);
    assert_eq!((receipt.after, receipt.interrupted), (After::Interrupted, true));
    assert_eq!(receipt.replies.len(), 1);
}

#[test]
fn tools_are_never_taken_for_nothing() {
    let (mut script, _) = seeded();
    let ours = script.human("list");
    let call = script.calls("Bash", json!({"command": "ls"}));
    assert_eq!(of(&script, &ours).after, After::ToolOpen { row: call.clone(), tool: "Bash".to_owned() });
    let mut interrupted = script.clone();
    interrupted.interrupt();
    assert_eq!(of(&interrupted, &ours).after, After::ToolOpen { row: call.clone(), tool: "Bash".to_owned() });
    let mut made_up = script.clone();
    made_up.result("Bash", json!("[Tool call interrupted: the session ended before ...]"), true);
    assert!(matches!(of(&made_up, &ours).after, After::ToolOpen { .. }));

    script.result("Bash", json!("kite.txt"), false);
    assert_eq!(of(&script, &ours).after, After::ToolsFinished { last_tool_use_row: call.clone() });
    script.api_error(500);
    assert_eq!(of(&script, &ours).after, After::ToolsFinished { last_tool_use_row: call });
}

#[test]
fn parallel_results_hang_beside_the_chain() {
    let (mut script, _) = seeded();
    let ours = script.human("both");
    let first = script.calls("A", json!({}));
    let second = script.calls("B", json!({}));
    script.on(&first).result("A", json!("a"), false);
    assert_eq!(of(&script, &ours).after, After::ToolOpen { row: second.clone(), tool: "B".to_owned() });
    script.on(&second).result("B", json!("b"), false);
    assert_eq!(of(&script, &ours).after, After::ToolsFinished { last_tool_use_row: second });
}

#[test]
fn a_note_of_ours_continues_the_turn() {
    let (mut script, _) = seeded();
    let ours = script.human("list");
    let call = script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("kite.txt"), false);
    script.api_error(500);
    script.on(&call).human("[kael-runner] the process ended; go on");
    script.says("There is a kite.");
    let receipt = of(&script, &ours);
    assert_eq!((receipt.after, receipt.replies.len()), (After::Answered, 1));
    assert!(receipt.on_live_chain);
}

#[test]
fn a_rewound_message_is_not_on_the_live_chain() {
    let (mut script, answer) = seeded();
    let first = script.human("ask");
    script.api_error(500);
    let second = script.on(&answer).human("ask");
    script.says("yes");
    let lost = of(&script, &first);
    assert!(!lost.on_live_chain);
    assert!(matches!(lost.after, After::ApiErrorOnly { .. }));
    let live = of(&script, &second);
    assert_eq!(
        (live.on_live_chain, live.after, live.last_assistant_before),
        (true, After::Answered, Some(answer))
    );
}

#[test]
fn another_writers_branch_takes_the_turn_out_of_context() {
    let (mut script, answer) = seeded();
    let ours = script.human("mine");
    let mine = script.says("yes");
    script.on(&answer).human("theirs");
    let theirs = script.says("no");
    assert!(!of(&script, &ours).on_live_chain);
    assert_eq!(of(&script, &ours).after, After::Answered);
    // A last-prompt decides, wherever it stands.
    script.last_prompt("mine", &mine);
    assert!(of(&script, &ours).on_live_chain);
    script.last_prompt("theirs", &theirs);
    assert!(!of(&script, &ours).on_live_chain);
}

#[test]
fn an_absorbed_message_is_found_by_the_uuid_that_was_sent() {
    let (mut script, _) = seeded();
    script.human("list");
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("kite.txt"), false);
    script.attachment(json!({"type": "queued_command", "prompt": [{"type": "text", "text": "hurry"}],
                             "source_uuid": "sent-7", "commandMode": "prompt"}));
    script.says("Done, in a hurry.");
    let receipt = of(&script, "sent-7");
    assert_eq!((receipt.after, receipt.replies.len()), (After::Answered, 1));
}

#[test]
fn a_merged_message_is_found_by_its_own_uuid() {
    let (mut script, _) = seeded();
    script.user(json!("q1\nq2"), json!({"promptSource": "sdk", "mergedSendUuids": ["sent-1"]}));
    script.says("both");
    assert_eq!(of(&script, "sent-1").after, After::Answered);
}

#[test]
fn our_mark_in_a_candidate_counts_as_the_row() {
    let mut script = Script::new();
    script.user(json!("ask"), json!({"kael": {"operation": null, "source": "sent-9", "stamp": 0}}));
    script.model(
        json!([{"type": "text", "text": "yes"}]),
        json!(null),
        json!({"kael": {"source": "a", "stamp": 0}}),
    );
    let receipt = of(&script, "sent-9");
    assert_eq!((receipt.after, receipt.on_live_chain, receipt.replies.len()), (After::Answered, true, 1));

    let mut open = Script::new();
    open.user(json!("ask"), json!({"kael": {"operation": null, "source": "sent-9", "stamp": 0}}));
    open.model(
        json!([{"type": "text", "text": "[unanswered before the rebuild]"}]),
        json!(null),
        json!({"kael": {"source": "sent-9#open_tail", "stamp": 0, "kind": "open_tail"}}),
    );
    let receipt = of(&open, "sent-9");
    assert_eq!((receipt.after, receipt.replies.len()), (After::Nothing, 0));
}

#[test]
fn a_row_kept_by_a_compaction_is_still_live() {
    let (mut script, _) = seeded();
    let ours = script.human("after big");
    script.root().row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": ours,
                             "content": "Conversation compacted"}));
    script.user(json!("This session is being continued ..."), json!({"isCompactSummary": true}));
    script.says("here");
    assert!(of(&script, &ours).on_live_chain);
    assert!(!of(&script, &uuid(1)).on_live_chain, "older rows are gone from the context");
}
