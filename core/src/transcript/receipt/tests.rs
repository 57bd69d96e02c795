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
    assert_eq!(receipt.near_root, Some(uuid(1)));
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
    let open = After::ToolOpen { row: call.clone(), tool: "Bash".to_owned(), last_result_row: None };
    assert_eq!(of(&script, &ours).after, open);
    let mut interrupted = script.clone();
    interrupted.interrupt();
    assert_eq!(of(&interrupted, &ours).after, open);
    let mut made_up = script.clone();
    made_up.result("Bash", json!("[Tool call interrupted: the session ended before ...]"), true);
    assert!(matches!(of(&made_up, &ours).after, After::ToolOpen { .. }));

    let result = script.result("Bash", json!("kite.txt"), false);
    let finished = After::ToolsFinished { last_result_row: result };
    assert_eq!(of(&script, &ours).after, finished);
    script.api_error(500);
    assert_eq!(of(&script, &ours).after, finished);
}

#[test]
fn parallel_results_hang_beside_the_chain() {
    let (mut script, _) = seeded();
    let ours = script.human("both");
    let first = script.calls("A", json!({}));
    let second = script.calls("B", json!({}));
    let done = script.on(&first).result("A", json!("a"), false);
    let open = After::ToolOpen { row: second.clone(), tool: "B".to_owned(), last_result_row: Some(done) };
    assert_eq!(of(&script, &ours).after, open);
    let last = script.on(&second).result("B", json!("b"), false);
    assert_eq!(of(&script, &ours).after, After::ToolsFinished { last_result_row: last });
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
    assert!(receipt.absorbed && receipt.on_live_chain);
    assert_eq!((receipt.after, receipt.replies.len()), (After::Answered, 1));
}

#[test]
fn a_turn_that_took_a_message_in_goes_on_behind_it() {
    let (mut script, _) = seeded();
    let ours = script.human("list");
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("kite.txt"), false);
    let queued = json!({"type": "queued_command", "prompt": [{"type": "text", "text": "hurry"}],
                        "source_uuid": "sent-7", "commandMode": "prompt"});
    script.attachment(queued);
    let receipt = of(&script, &ours);
    assert!(matches!(receipt.after, After::ToolsFinished { .. }) && receipt.absorbed_row.is_some());
    script.calls("Read", json!({"file_path": "kite.txt"}));
    script.result("Read", json!("red"), false);
    assert_eq!(of(&script, &ours).absorbed_row, None, "it stands in front of the last result");
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

/// Reads as a supervisor does: from the size that the file had before the invocation. What the part
/// says must be what the whole file says, but for the line where that is not counted.
fn near(script: &Script, from: usize, row: &str) -> Receipt {
    let fixture = script.file();
    let near = read(&fixture.path, from as u64, row).unwrap();
    let whole = read(&fixture.path, 0, row).unwrap();
    assert_eq!(near.chain_root(&fixture.path).unwrap(), whole.chain_root(&fixture.path).unwrap());
    let row_line = near.row_line.or(whole.row_line);
    let near_root = near.near_root.clone().or_else(|| whole.near_root.clone());
    assert_eq!(Receipt { row_line, near_root, ..near.clone() }, whole);
    near
}

/// A conversation much longer than what is read in front of an invocation.
fn long() -> Script {
    let mut script = Script::new();
    for turn in 0..60 {
        let ours = script.human(&format!("question {turn}"));
        script.calls("Bash", json!({"command": "ls"}));
        script.result("Bash", json!("x".repeat(20_000)), false);
        script.says("answer");
        script.last_prompt("question", &ours);
    }
    script
}

#[test]
fn a_turn_is_read_from_its_own_rows() {
    let mut script = long();
    let from = script.bytes().len();
    assert!(from as u64 > 2 * REACH);
    let ours = script.human("and now?");
    script.says("now");
    assert_eq!(near(&script, from, &ours).after, After::Answered);
    assert_eq!(near(&script, from, &ours).near_root, None, "the beginning was not read");
    script.last_prompt("and now?", &ours);
    let receipt = near(&script, from, &ours);
    assert_eq!((receipt.after, receipt.on_live_chain, receipt.row_line), (After::Answered, true, None));
    assert!(receipt.last_assistant_before.is_some());
}

#[test]
fn what_is_not_near_is_looked_for_farther_away() {
    let from = long().bytes().len();
    // An earlier message was sent again and swallowed: its row stands far in front.
    let mut script = long();
    script.line(&json!({"type": "mode", "mode": "normal"}));
    assert_eq!(near(&script, from, &uuid(5)).after, After::Answered);
    // Nothing of it anywhere.
    assert_eq!(near(&script, from, "nowhere").after, After::Absent);
    // A rewind far back: the row before it is not near.
    let mut script = long();
    let ours = script.on(&uuid(4)).human("again from there");
    let receipt = near(&script, from, &ours);
    assert_eq!((receipt.after, receipt.last_assistant_before), (After::Nothing, Some(uuid(4))));
    assert_eq!(receipt.row_line, Some(301));
    // The last-prompt leads back to a branch that begins far away.
    script.last_prompt("x", &uuid(8));
    assert!(!near(&script, from, &ours).on_live_chain);
}
