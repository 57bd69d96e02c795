//! Ten rebuilds in a row, with new turns in between.

use serde_json::json;

use super::*;

#[test]
fn ten_generations_give_the_same_words_one_stamp_a_turn_and_one_snapshot() {
    let mut script = Script::new();
    script.user(
        json!([{"type": "text", "text": "<system-reminder>\nThe bot likes kites.\n</system-reminder>"},
               {"type": "text", "text": "  the first words 风筝 "}]),
        json!({}),
    );
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("kite.txt"), false);
    script.says("the first answer");
    let mut ask = Ask::new();
    ask.settings.stamp_turns = true;
    ask.settings.freeze_startup_snapshot = true;
    let mut bytes = script.bytes().to_vec();
    let mut expected =
        vec!["the bot's snapshot".to_owned(), "the first words".to_owned(), "the first answer".to_owned()];
    for generation in 1..=10_u64 {
        ask.new_session = format!("ca0d1da7-0000-4000-8000-0000000001{generation:02}").parse().unwrap();
        let rebuilt = ask.rebuild(&Fixture::of(&bytes));
        rebuilt.proved();
        assert_eq!(rebuilt.plan.blocked_reason(), "");
        assert_eq!(rebuilt.plan.generation(), generation);
        let said = rebuilt.said();
        assert_eq!(said.len(), expected.len(), "{said:?}");
        let stamps = said.iter().filter(|text| text.contains("[发生时间: ")).count();
        assert_eq!(stamps as u64, generation, "one a turn: {said:?}");
        assert_eq!(said.iter().filter(|text| text.contains("续窗启动快照")).count(), 1);
        assert!(said[1].ends_with("]\n  the first words 风筝 "), "{}", said[1]);
        // Every turn says where it came from, and in which generation.
        let mut shown = Vec::new();
        let source = Fixture::of(&bytes);
        let plan = ask.plan(&source.path);
        show(&plan, &source.path, Show::Carried, &mut |item| {
            shown.push(item);
            true
        })
        .unwrap();
        assert_eq!(shown[1].source.as_deref(), Some(crate::fixture::uuid(1).as_str()));
        assert_eq!(shown[1].generation, Some(generation));
        assert_eq!(shown.last().unwrap().generation, Some(1));
        // A new turn in the rebuilt session, with noise of its own.
        let mut next = Script::new();
        next.raw(&rebuilt.bytes).on(rebuilt.file.last_uuid.as_deref().unwrap());
        for _ in 0..generation {
            next.skip(4);
        }
        next.human(&format!("question {generation} أين"));
        next.calls("Bash", json!({"command": "ls"}));
        next.result("Bash", json!("x"), false);
        next.says(&format!("answer {generation}"));
        expected.extend([String::new(), String::new()]);
        bytes = next.bytes().to_vec();
    }
}

#[test]
fn what_has_no_time_gets_none_in_any_generation() {
    let mut script = Script::new();
    script.line(&json!({"type": "user", "message": {"role": "user", "content": "no time 风"}}));
    script.line(&json!({"type": "assistant", "message": {"role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "none"}]}}));
    let mut ask = Ask::new();
    ask.settings.stamp_turns = true;
    let first = ask.rebuild(&script.file());
    first.proved();
    assert_eq!(first.said(), ["H=no time 风", "A:none"]);
    ask.new_session = "ca0d1da7-0000-4000-8000-000000000003".parse().unwrap();
    let again = ask.rebuild(&Fixture::of(&first.bytes));
    again.proved();
    assert_eq!(again.said(), first.said());
}
