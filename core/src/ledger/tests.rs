//! Ledgers of small transcripts, whole and continued.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixture::{Fixture, Script, uuid};
use crate::transcript::{Category, ExtractRules, OwnRows};

fn full(fixture: &Fixture) -> LedgerReport {
    measure(&fixture.path, &ExtractRules::default(), &OwnRows::default(), None).unwrap()
}

fn go_on(fixture: &Fixture, state: &LedgerState) -> LedgerReport {
    measure(&fixture.path, &ExtractRules::default(), &OwnRows::default(), Some(state)).unwrap()
}

fn sum(report: &LedgerReport) -> u64 {
    report.total_bytes
        + report.conversation_bytes
        + report.bookkeeping.values().sum::<u64>()
        + report.damage_bytes
}

fn small() -> Script {
    let mut script = Script::new();
    script.queue("enqueue", Some("风筝")).queue("dequeue", None);
    script.human("风筝");
    script.attachment(json!({"type": "date", "date": "2026-11-30"}));
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("out"), false);
    script.says("red");
    script
}

#[test]
fn every_byte_has_one_account() {
    let report = full(&small().file());
    assert_eq!(sum(&report), report.file_size);
    assert_eq!(report.file_size, small().bytes().len() as u64);
    let figures = (
        report.conversation_bytes,
        report.conversation_turns,
        &report.categories,
        &report.bookkeeping,
        report.context_bytes,
    );
    insta::assert_debug_snapshot!(figures, @r#"
    (
        9,
        1,
        {
            ToolResult: 87,
            ToolUse: 76,
            Attachment: 35,
        },
        {
            "envelope": 1933,
            "queue-operation": 219,
        },
        193,
    )
    "#);
}

#[test]
fn the_noise_ratio_has_four_digits() {
    let ratio = |noise, speech| {
        LedgerReport { total_bytes: noise, conversation_bytes: speech, ..LedgerReport::default() }
            .noise_ratio()
    };
    assert_eq!(ratio(0, 0).to_string(), "0");
    assert_eq!(ratio(1, 2).to_string(), "0.3333");
    assert_eq!(ratio(2, 1).to_string(), "0.6667");
    assert_eq!(ratio(7, 0).to_string(), "1");
    assert_eq!(ratio(u64::MAX / 2, 1).to_string(), "1");
}

#[test]
fn the_water_level_is_the_last_usage_on_the_main_chain() {
    let mut script = small();
    script.row(json!({"type": "assistant", "isSidechain": true, "message": {
        "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 999_999}}}));
    script.synthetic("No response requested.");
    assert_eq!(full(&script.file()).water_level.map(|usage| usage.total()), Some(20_022));
    assert_eq!(full(&Script::new().file()).water_level, None);
}

#[test]
fn what_was_appended_is_counted_on_top() {
    let mut script = small();
    let first = full(&script.file());
    assert!(first.full_scan);
    script.human("more");
    script.says("and more");
    script.last_prompt("more", &uuid(7));
    let fixture = script.file();
    let continued = go_on(&fixture, &first.state);
    assert!(!continued.full_scan);
    let whole = full(&fixture);
    assert_eq!(LedgerReport { full_scan: true, ..continued.clone() }, whole);
    let kept: LedgerState = serde_json::from_str(&serde_json::to_string(&continued.state).unwrap()).unwrap();
    assert_eq!(kept, continued.state);
    assert!(!go_on(&fixture, &kept).full_scan, "nothing new costs nothing");
}

#[test]
fn what_changes_the_past_is_read_again() {
    let script = small();
    let state = full(&script.file()).state;
    let full_again = |script: &Script| go_on(&script.file(), &state).full_scan;

    let mut rewound = script.clone();
    rewound.on(&uuid(77)).human("elsewhere");
    assert!(full_again(&rewound), "a row that hangs on an unknown one");
    let mut compacted = script.clone();
    compacted.root().row(json!({"type": "system", "subtype": "compact_boundary"}));
    assert!(full_again(&compacted), "a compaction");
    let mut led = script.clone();
    led.last_prompt("x", &uuid(99));
    assert!(full_again(&led), "a last-prompt elsewhere");
    let mut changed = Script::new();
    changed.raw(&script.bytes().iter().map(|b| if *b == b'r' { b'R' } else { *b }).collect::<Vec<_>>());
    assert!(full_again(&changed), "a changed prefix");
    let mut shorter = Script::new();
    shorter.raw(&script.bytes()[..script.bytes().len() / 2]);
    assert!(full_again(&shorter), "a shorter file");
}

/// Continuing from the state of a part gives what reading the whole gives.
fn continued(first: &Script, whole: &Script) -> LedgerReport {
    let continued = go_on(&whole.file(), &full(&first.file()).state);
    assert!(!continued.full_scan);
    let state = LedgerState::default();
    let read = LedgerReport { state: state.clone(), ..full(&whole.file()) };
    assert_eq!(LedgerReport { full_scan: true, state, ..continued.clone() }, read);
    continued
}

#[test]
fn a_torn_tail_is_read_again_when_it_is_complete() {
    let mut torn = small();
    torn.raw(b"{\"type\":\"us");
    let report = continued(&small(), &torn);
    assert_eq!(report.damage_bytes, 11);
    let mut mended = torn.clone();
    mended.raw(b"\n");
    mended.human("after the crash");
    assert_eq!(continued(&torn, &mended).damage_bytes, 12);
    // A last row without its newline is whole already, and counted once.
    let mut open = small();
    open.human("still writing");
    let open = Fixture::of(&open.bytes()[..open.bytes().len() - 1]);
    let state = full(&open).state;
    let mut more = small();
    more.human("still writing");
    more.says("done");
    let next = go_on(&more.file(), &state);
    assert!(!next.full_scan);
    assert_eq!(next.conversation_bytes, full(&more.file()).conversation_bytes);
}

#[test]
fn a_message_sent_by_a_tool_may_succeed_in_a_later_measurement() {
    let mut called = Script::new();
    called.human("hello");
    called.calls("mcp__a-companion__reply", json!({"text": "spoken to a chat"}));
    let mut sent = called.clone();
    sent.result("mcp__a-companion__reply", json!("ok"), false);
    assert_eq!(continued(&called, &sent).conversation_bytes, 5 + 16);
    let mut refused = called.clone();
    refused.result("mcp__a-companion__reply", json!("no such chat"), true);
    assert_eq!(continued(&called, &refused).conversation_bytes, 5);
}

#[test]
fn a_queued_message_is_speech_where_no_row_shows_it() {
    let mut waiting = small();
    waiting.queue("enqueue", Some("and hurry, 快点"));
    let bytes = full(&small().file()).conversation_bytes;
    assert_eq!(continued(&small(), &waiting).conversation_bytes, bytes + 17);
    let mut taken = waiting.clone();
    taken.queue("dequeue", None);
    taken.human("and hurry, 快点");
    assert_eq!(continued(&waiting, &taken).conversation_bytes, bytes + 17, "once");
}

#[test]
fn of_two_writers_the_one_that_is_resumed_gives_the_level() {
    let usage = |tokens: u64| {
        json!({"message": {"role": "assistant", "model": "m", "content": [
        {"type": "text", "text": "yes"}], "usage": {"input_tokens": tokens}}})
    };
    let mut script = small();
    script.human("seed");
    let seed = script.says("yes");
    let mut both = script.clone();
    both.human("mine");
    let mine = both.model(json!([]), json!("end_turn"), usage(70_000));
    both.on(&seed).human("theirs");
    let theirs = both.model(json!([]), json!("end_turn"), usage(30_000));
    let level = |script: &Script, both: &Script| continued(script, both).water_level.map(|u| u.total());
    assert_eq!(level(&script, &both), Some(30_000), "the last row in the file");
    both.last_prompt("mine", &mine);
    assert_eq!(level(&script, &both), Some(70_000), "a last-prompt decides");
    both.last_prompt("theirs", &theirs);
    assert_eq!(level(&script, &both), Some(30_000));
    let before = both.clone();
    both.on(&theirs).human("and on");
    both.on(&mine).human("late row of the other writer");
    let report = go_on(&both.file(), &full(&before.file()).state);
    assert_eq!(report.water_level.map(|usage| usage.total()), Some(30_000), "the other branch is not near");
}

#[test]
fn a_tools_message_counts_once_it_was_sent() {
    let mut script = Script::new();
    script.human("hello");
    script.calls("mcp__a-companion__reply", json!({"text": "spoken to a chat"}));
    let open = full(&script.file());
    script.result("mcp__a-companion__reply", json!("ok"), false);
    let sent = full(&script.file());
    assert_eq!(open.conversation_bytes, 5);
    assert_eq!(sent.conversation_bytes, 5 + 16);
    assert_eq!(sent.categories[&Category::ToolUse] + 16, open.categories[&Category::ToolUse]);
    assert_eq!(sum(&sent), sent.file_size);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_hold_for_any_bytes(bytes in prop::collection::vec(prop_oneof![
        any::<u8>(), Just(b'\n'), Just(b'{'), Just(b'}'), Just(b'"'), Just(0_u8),
    ], 0..300)) {
        let report = full(&Fixture::of(&bytes));
        prop_assert_eq!(sum(&report), bytes.len() as u64);
    }

    #[test]
    fn continuing_gives_what_a_full_scan_gives(turns in 1_usize..6, cut in 0_usize..6, odd in any::<bool>()) {
        let mut script = Script::new();
        let mut state = None;
        for turn in 0..turns {
            script.human(&format!("question {turn}"));
            script.calls("Bash", json!({"command": "ls"}));
            script.result("Bash", json!("风筝 ".repeat(turn)), odd);
            script.says("answer");
            if turn == cut {
                state = Some(full(&script.file()).state);
            }
        }
        let fixture = script.file();
        let whole = full(&fixture);
        if let Some(state) = state {
            let continued = go_on(&fixture, &state);
            prop_assert!(!continued.full_scan);
            prop_assert_eq!(LedgerReport { full_scan: true, ..continued }, whole);
        }
    }
}
