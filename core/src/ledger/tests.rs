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
    let mut torn = script.clone();
    torn.raw(b"{\"type\":\"us");
    assert!(full_again(&torn), "a torn tail");
    let mut changed = Script::new();
    changed.raw(&script.bytes().iter().map(|b| if *b == b'r' { b'R' } else { *b }).collect::<Vec<_>>());
    assert!(full_again(&changed), "a changed prefix");
    let mut shorter = Script::new();
    shorter.raw(&script.bytes()[..script.bytes().len() / 2]);
    assert!(full_again(&shorter), "a shorter file");
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
