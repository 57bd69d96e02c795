//! Stamps, the open tail, the owner's limits, the snapshot, and what speaks against a rebuild.

use serde_json::json;

use super::*;

fn turns(count: usize) -> Script {
    let mut script = Script::new();
    for turn in 0..count {
        script.human(&format!("question {turn} 风筝"));
        script.says(&format!("answer {turn}"));
    }
    script
}

#[test]
fn a_turns_first_human_message_is_stamped_once() {
    let mut script = Script::new();
    script.human("one");
    script.human("two");
    script.says("yes");
    script.user(
        json!("[发生时间: 2026-01-01T00:00:00.000Z]\nby the original tool"),
        json!({"promptSource": "sdk"}),
    );
    script.says("ok");
    let mut ask = Ask::new();
    ask.settings.stamp_turns = true;
    let stamped = [
        "H=[发生时间: 2026-09-21T14:13:22.000Z]\none",
        "H=two",
        "A:yes",
        "H=[发生时间: 2026-01-01T00:00:00.000Z]\nby the original tool",
        "A:ok",
    ];
    let fixture = script.file();
    let first = ask.rebuild(&fixture);
    first.proved();
    assert_eq!(first.said(), stamped);
    // A rebuild of the candidate strips what it recorded and stamps again.
    let again = Fixture::of(&first.bytes);
    let second = ask.rebuild(&again);
    second.proved();
    assert_eq!(second.said(), stamped);
    ask.settings.stamp_turns = false;
    let bare = ask.rebuild(&again);
    bare.proved();
    assert_eq!(bare.said()[0], "H=one");
}

#[test]
fn times_strictly_increase_and_the_sources_time_is_kept() {
    let mut script = Script::new();
    let same = json!({"promptSource": "sdk", "timestamp": "2026-05-05T05:05:05.005Z"});
    script.user(json!("a"), same.clone());
    script.user(json!("b"), same);
    script.user(json!("c"), json!({"promptSource": "sdk", "timestamp": "yesterday"}));
    script.says("d");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    let times: Vec<_> = rebuilt.rows().iter().map(|row| row["timestamp"].clone()).collect();
    assert_eq!(
        times[..3],
        ["2026-05-05T05:05:05.005Z", "2026-05-05T05:05:05.006Z", "2026-05-05T05:05:05.007Z"]
    );
    assert_eq!(rebuilt.rows()[1]["kael"]["time"], "2026-05-05T05:05:05.005Z");
    assert_eq!(rebuilt.rows()[2]["kael"]["time"], "yesterday");
}

#[test]
fn an_unanswered_message_is_history_with_a_marker() {
    let mut script = turns(1);
    script.human("are you there?");
    script.api_error(500);
    let fixture = script.file();
    let ask = Ask::new();
    let first = ask.rebuild(&fixture);
    first.proved();
    assert_eq!(first.said()[2..], ["H=are you there?", "A:[unanswered before the rebuild]"]);
    assert_eq!((first.plan.stats.selected_turns, first.plan.stats.open_tail_turns), (2, 1));
    let again = Fixture::of(&first.bytes);
    let second = ask.rebuild(&again);
    second.proved();
    assert_eq!(second.said(), first.said(), "one marker, not two");
    assert_eq!(second.plan.stats.open_tail_turns, 1);
}

#[test]
fn a_message_that_is_sent_again_is_not_carried() {
    let mut script = turns(1);
    script.human("typed elsewhere");
    let ours = script.human("from the inbox");
    let mut ask = Ask::new();
    ask.own.human.insert(ours.clone());
    ask.own.resend.insert(ours.clone());
    ask.evidence.sent.push(SentEvidence { row_uuid: ours.clone(), text_sha256: vec!["00".repeat(32)] });
    let rebuilt = ask.rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said()[2..], ["H=typed elsewhere", "A:[unanswered before the rebuild]"]);
    assert_eq!(rebuilt.plan.open_tail_resend, std::slice::from_ref(&ours));

    // Alone in the tail it leaves no marker behind.
    let mut script = turns(1);
    let ours = script.human("from the inbox");
    ask.own.resend = [ours.clone()].into();
    let rebuilt = ask.rebuild(&script.file());
    assert_eq!(rebuilt.said().len(), 2);
    assert_eq!(rebuilt.plan.stats.open_tail_turns, 0);

    // Answered in the meantime it is part of the conversation.
    script.says("it was answered");
    let rebuilt = ask.rebuild(&script.file());
    assert_eq!(rebuilt.said()[2..], ["H=from the inbox", "A:it was answered"]);
}

#[test]
fn the_open_tail_can_be_left_out_but_never_the_inboxs() {
    let mut script = turns(1);
    script.human("typed elsewhere");
    let ours = script.human("from the inbox");
    let mut ask = Ask::new();
    ask.settings.include_open_tail = false;
    ask.own.human.insert(ours);
    let rebuilt = ask.rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said()[2..], ["H=from the inbox", "A:[unanswered before the rebuild]"]);
    assert!(
        rebuilt
            .plan
            .drops
            .iter()
            .any(|d| d.rule == crate::transcript::Rule::OpenTailExcluded && d.count == 1)
    );
}

#[test]
fn the_oldest_turns_go_first_and_twelve_stay() {
    let script = turns(20);
    let mut ask = Ask::new();
    ask.settings.carry_max_tokens = 250;
    let rebuilt = ask.rebuild(&script.file());
    rebuilt.proved();
    let stats = rebuilt.plan.stats;
    assert_eq!((stats.source_turns, stats.selected_turns, stats.dropped_oldest_turns), (20, 15, 5));
    assert!(stats.estimated_tokens <= 250);
    assert_eq!(rebuilt.said()[0], "H=question 5 风筝");
    assert!(
        rebuilt.plan.drops.iter().any(|d| d.rule == crate::transcript::Rule::DroppedOldest && d.count == 10)
    );

    ask.settings.carry_max_tokens = 10;
    let plan = ask.plan(&script.file().path);
    assert_eq!(plan.stats.selected_turns, 12);
    assert_eq!(plan.blocked.iter().map(|b| b.kind).collect::<Vec<_>>(), [BlockKind::Overflow]);

    ask.settings.carry_overflow = CarryOverflow::Block;
    let plan = ask.plan(&script.file().path);
    assert_eq!((plan.stats.selected_turns, plan.blocked[0].kind), (20, BlockKind::Overflow));
    assert!(!plan.is_hard_blocked());
}

#[test]
fn long_items_are_cut_once_and_say_so() {
    let mut script = Script::new();
    script.human(&"风".repeat(700));
    script.says("short");
    let mut ask = Ask::new();
    ask.settings.max_event_chars = 500;
    let first = ask.rebuild(&script.file());
    first.proved();
    let cut = format!("H={}[... 200 characters cut by max_event_chars ...]", "风".repeat(500));
    assert_eq!(first.said()[0], cut);
    let second = ask.rebuild(&Fixture::of(&first.bytes));
    second.proved();
    assert_eq!(second.said()[0], cut);
}

#[test]
fn the_startup_snapshot_is_carried_once() {
    let mut script = Script::new();
    script.user(
        json!([{"type": "text", "text": "<system-reminder>\nThe bot likes kites.\n</system-reminder>"},
               {"type": "text", "text": "hello"}]),
        json!({}),
    );
    script.says("hi");
    let fixture = script.file();
    assert_eq!(carried(&script), ["H:hello", "A:hi"]);
    let mut ask = Ask::new();
    ask.settings.freeze_startup_snapshot = true;
    ask.settings.stamp_turns = true;
    let first = ask.rebuild(&fixture);
    first.proved();
    assert!(first.plan.stats.startup_frozen);
    let said = [
        "H:[续窗启动快照 · 冻结于 2026-09-21T14:13:22.000Z]\n<system-reminder>\nThe bot likes kites.\n</system-reminder>",
        "H:[发生时间: 2026-09-21T14:13:22.000Z]\nhello",
        "A:hi",
    ];
    assert_eq!(first.said(), said);
    let second = ask.rebuild(&Fixture::of(&first.bytes));
    second.proved();
    assert_eq!(second.said(), said);
}

#[test]
fn everyday_words_trip_the_poison_pattern_and_the_message_says_so() {
    let mut script = turns(2);
    script.human("what is our AUP, and what does the aup say?");
    script.says("ask a lawyer");
    let plan = Ask::new().plan(&script.file().path);
    assert_eq!(plan.stats.poison_score, 2);
    assert!(!plan.is_hard_blocked());
    insta::assert_snapshot!(plan.blocked_reason(), @r#"the poison pattern matches 2 times in the last ten turns ("AUP" in line 5, "aup" in line 5). An everyday word, or talk about the pattern itself, trips it too: narrow poison_pattern (now "(?i)(AUP|Acceptable Use|policy violation|policy blocked|refusal loop|毒上下文|中毒|拒绝循环)"), or confirm in spite of it: `kael-runner request`, then `kael-runner confirm`"#);
    let mut old = Script::new();
    old.human("policy blocked, policy blocked");
    old.says("what?");
    for turn in 0..10 {
        old.human(&format!("question {turn}"));
        old.says("answer");
    }
    assert_eq!(Ask::new().plan(&old.file().path).stats.poison_score, 0, "only the last ten turns count");
}

#[test]
fn gain_is_weighed_in_tokens_of_the_context() {
    let mut script = Script::new();
    script.human("hello");
    script.says("hi");
    let fixture = script.file();
    let mut ask = Ask::new();
    ask.settings.min_gain_percent = 20;
    let plan = ask.plan(&fixture.path);
    assert_eq!((plan.gain.measured_tokens, plan.gain.overhead_tokens), (Some(20_022), 20_011));
    assert_eq!(plan.blocked[0].kind, BlockKind::Gain);
    ask.settings.fixed_overhead_tokens = 1000;
    let plan = ask.plan(&fixture.path);
    assert_eq!((plan.gain.percent, plan.blocked.len()), (Some(94), 0));
    ask.settings.context_window = 1400;
    let plan = ask.plan(&fixture.path);
    assert_eq!(plan.blocked[0].kind, BlockKind::Window);
}

#[test]
fn nothing_said_is_no_session() {
    let mut script = Script::new();
    script.attachment(json!({"type": "date", "date": "2026-11-30"}));
    assert_eq!(blocked(&script), [(BlockKind::NothingSaid, None)]);
    assert_eq!(blocked(&Script::new()), [(BlockKind::NothingSaid, None)]);
}

#[test]
fn a_plan_prints_the_originals_fields() {
    let script = turns(1);
    let fixture = script.file();
    let plan = Ask::new().plan(&fixture.path);
    let dirty = plan.ledger.to_json(&fixture.path, 524_288, &[]);
    let json = plan.to_json(&fixture.path, &dirty);
    for field in [
        "ok",
        "source_path",
        "source_sha256",
        "source_session_id",
        "stats",
        "dirty",
        "blocked_reason",
        "note",
    ] {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["ok"], true);
    insta::assert_json_snapshot!(json["stats"], @r#"
    {
      "dropped_oldest_turns": 0,
      "estimated_tokens": 16,
      "open_tail_turns": 0,
      "poison_score": 0,
      "selected_turns": 1,
      "source_turns": 1,
      "startup_frozen": false
    }
    "#);
}
