//! What is carried and what is not, one rule of DESIGN 4 after the other.

use serde_json::json;

use super::*;
use crate::fixture::uuid;

#[test]
fn plain_rows_are_carried_as_they_stand() {
    let mut script = Script::new();
    script.human("  风筝 是什么颜色？\n\n");
    script.model(
        json!([{"type": "text", "text": "\tRed 🪁 "}, {"type": "text", "text": "أحمر"}]),
        json!("end_turn"),
        json!({}),
    );
    script.user(
        json!([{"type": "text", "text": "one"}, {"type": "text", "text": "二"}]),
        json!({"promptSource": "sdk"}),
    );
    script.says("ok \u{0} \u{c}");
    assert_eq!(
        carried(&script),
        ["H=  风筝 是什么颜色？\n\n", "A:\tRed 🪁 |أحمر", "H:one|二", "A:ok \u{0} \u{c}"]
    );
}

#[test]
fn a_candidate_row_has_what_every_version_needs_and_nothing_else() {
    let mut script = Script::new();
    script.human("hello");
    script.says("hi");
    let rebuilt = Ask::new().rebuild(&script.file());
    insta::assert_snapshot!(String::from_utf8(rebuilt.bytes).unwrap(), @r#"
    {"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"hello"},"uuid":"b09f92e6-d7f5-5c4c-add3-8dcf0004193d","timestamp":"2026-09-21T14:13:22.000Z","sessionId":"ca0d1da7-0000-4000-8000-000000000002","kael":{"operation":null,"source":"00000000-0000-4000-8000-000000000001","stamp":0,"generation":1}}
    {"parentUuid":"b09f92e6-d7f5-5c4c-add3-8dcf0004193d","isSidechain":false,"type":"assistant","message":{"role":"assistant","model":"claude-test-1","content":[{"type":"text","text":"hi"}]},"uuid":"2f5a5096-c57e-512e-a555-3a04bf118067","timestamp":"2026-09-21T14:13:23.000Z","sessionId":"ca0d1da7-0000-4000-8000-000000000002","kael":{"operation":null,"source":"00000000-0000-4000-8000-000000000002","stamp":0,"generation":1}}
    "#);
}

#[test]
fn noise_between_words_is_dropped_and_listed() {
    let mut script = Script::new();
    script.attachment(json!({"type": "hook_success", "content": "", "stdout": "many words of a hook"}));
    script.human("list the kites");
    script.attachment(json!({"type": "environment", "snapshot": {"workingDirectory": "/srv/bot"}}));
    script.model(
        json!([{"type": "thinking", "thinking": "secret musing about wind", "signature": "c2ln"}]),
        json!("tool_use"),
        json!({}),
    );
    script.model(json!([{"type": "text", "text": "looking"}]), json!("tool_use"), json!({}));
    script.calls("Bash", json!({"command": "ls the whole folder"}));
    script.result("Bash", json!("kite.txt and a lot more"), false);
    script.user(json!("Stop hook feedback:\nsay more please"), json!({"isMeta": true}));
    script.row(json!({"type": "user", "isSidechain": true, "message": {"role": "user", "content": "a subagent's task"}}));
    script.row(json!({"type": "system", "subtype": "stop_hook_summary", "hookInfos": [{"command": "a long command"}]}));
    script.says("one kite");
    script.line(&json!({"type": "cost-state", "totalCostUSD": 1}));
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said(), ["H=list the kites", "A:looking", "A:one kite"]);
    let drops: Vec<_> =
        rebuilt.plan.drops.iter().map(|d| (d.rule.name(), d.count, d.lines.clone())).collect();
    assert_eq!(
        drops,
        [
            ("tool_result", 2, vec![7]),
            ("tool_use", 1, vec![6]),
            ("thinking", 1, vec![4]),
            ("meta", 1, vec![8]),
            ("sidechain", 1, vec![9]),
            ("system", 1, vec![10]),
            ("attachment", 2, vec![1, 3]),
            ("bookkeeping", 1, vec![12]),
        ]
    );
}

#[test]
fn words_beside_a_tool_result_are_a_humans() {
    let mut script = Script::new();
    script.human("go");
    script.calls("Bash", json!({}));
    script.user(
        json!([{"type": "tool_result", "tool_use_id": "toolu_Bash", "content": "out"},
               {"type": "text", "text": "and hurry, 快点"}]),
        json!({"toolUseResult": "out"}),
    );
    script.says("done");
    assert_eq!(carried(&script), ["H=go", "H:and hurry, 快点", "A:done"]);
}

#[test]
fn a_reason_for_a_refusal_and_answers_to_questions_are_words() {
    let mut script = Script::new();
    script.human("write it");
    script.calls("Write", json!({}));
    script.result(
        "Write",
        json!("The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, the user said:\n不要写, use \"pencil\""),
        true,
    );
    script.calls("AskUserQuestion", json!({"questions": []}));
    script.user(
        json!([{"type": "tool_result", "tool_use_id": "toolu_AskUserQuestion",
                "content": "User has answered your questions: \"Colour?\"=\"red like the old one\"."}]),
        json!({"toolUseResult": {"questions": [], "answers": {"Colour?": "red like the old one"}}}),
    );
    script.says("ok");
    assert_eq!(
        carried(&script),
        ["H=write it", "H:不要写, use \"pencil\"", "H:red like the old one", "A:ok"]
    );
}

#[test]
fn a_tools_output_that_looks_like_a_refusal_is_none() {
    let mut script = Script::new();
    script.human("grep it");
    script.calls("Bash", json!({}));
    script.result("Bash", json!("log: the user said:\nsomething long enough"), false);
    script.says("found");
    assert_eq!(carried(&script), ["H=grep it", "A:found"]);
}

#[test]
fn commands_are_carried_with_their_arguments_and_bare_ones_are_not() {
    let mut script = Script::new();
    script.user(
        json!("<command-message>greet</command-message>\n<command-name>/greet</command-name>\n<command-args>Mina and 风</command-args>"),
        json!({}),
    );
    script.user(
        json!([{"type": "text", "text": "Greet the person named in the arguments: Mina and 风"}]),
        json!({"isMeta": true}),
    );
    script.says("hello Mina");
    script.user(json!("<command-name>/cost</command-name>\n<command-message>cost</command-message>\n<command-args></command-args>"), json!({}));
    script.user(json!("<local-command-stdout>Total cost: $1 and more</local-command-stdout>"), json!({}));
    script.human("thanks");
    script.says("welcome");
    assert_eq!(carried(&script), ["H=/greet Mina and 风", "A:hello Mina", "H=thanks", "A:welcome"]);
}

#[test]
fn provenance_outranks_what_a_text_looks_like() {
    let mut script = Script::new();
    script.human("<command-name>/x</command-name> is the tag I want to ask about");
    script.says("it is");
    script.user(json!("Please do the scheduled thing for me"), json!({"turnOrigin": "scheduled"}));
    script.user(json!("A peer writes something here"), json!({"origin": {"kind": "peer"}}));
    script.user(json!("[MESSAGE FROM NON-USER SOURCE]\nwords"), json!({"promptSource": "system"}));
    script.user(
        json!("<channel source=\"telegram\" user=\"mina\">\n你好\n</channel>"),
        json!({"isMeta": true, "origin": {"kind": "channel", "server": "telegram"}}),
    );
    script.says("你好");
    let said = carried(&script);
    assert_eq!(
        said,
        [
            "H=<command-name>/x</command-name> is the tag I want to ask about",
            "A:it is",
            "H=<channel source=\"telegram\" user=\"mina\">\n你好\n</channel>",
            "A:你好",
        ]
    );
}

#[test]
fn the_inbox_has_the_last_word() {
    let mut script = Script::new();
    let ours = script.user(json!("<system-reminder>I typed this whole thing</system-reminder>"), json!({}));
    script.says("I see");
    let note = script.human("[kael-runner] the process ended while Bash ran; check before repeating");
    script.says("checked");
    let failed = script.human("a message that failed the first time");
    let mut ask = Ask::new();
    ask.own.human.insert(ours);
    ask.own.notes.insert(note);
    ask.own.abandoned.insert(failed);
    assert_eq!(
        carried_with(&script, &ask),
        ["H=<system-reminder>I typed this whole thing</system-reminder>", "A:I see", "A:checked"]
    );
}

#[test]
fn runtime_blocks_go_as_a_whole_and_words_are_never_cut() {
    let mut script = Script::new();
    script.user(
        json!([{"type": "text", "text": "<ide_opened_file>The user opened kite.txt</ide_opened_file>"},
               {"type": "text", "text": "what is a <system-reminder>?"}]),
        json!({}),
    );
    script.says("a tag");
    script.user(json!("<system-reminder>\nToday is a Monday in spring\n</system-reminder>"), json!({}));
    script.user(json!("<system-reminder>x</system-reminder> is what I saw"), json!({}));
    script.says("yes");
    assert_eq!(
        carried(&script),
        [
            "H:what is a <system-reminder>?",
            "A:a tag",
            "H=<system-reminder>x</system-reminder> is what I saw",
            "A:yes"
        ]
    );
}

#[test]
fn an_image_leaves_a_marker_only_where_no_words_stand() {
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a2l0ZQ=="}});
    let mut script = Script::new();
    script.user(json!([{"type": "text", "text": "see this"}, image]), json!({"promptSource": "sdk"}));
    script.says("nice");
    script.user(json!([image]), json!({"promptSource": "sdk"}));
    script.says("again");
    script.calls("Read", json!({}));
    script.result("Read", json!([image]), false);
    script.says("opened");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    let marker = "H:[image: image/png, 4 bytes, sha256 8e8c7d42b456c9e4ec52e545b201fffc003ace9b7a32a44ac646b4679f99b00b]";
    assert_eq!(rebuilt.said(), ["H:see this", "A:nice", marker, "A:again", "A:opened"]);
    assert_eq!(
        (rebuilt.plan.ledger.preview_image_count, rebuilt.plan.ledger.original_image_view_count),
        (2, 1)
    );
}

#[test]
fn answers_the_cli_made_up_are_none() {
    let mut script = Script::new();
    script.human("ask");
    script.synthetic("No response requested.");
    script.human("again");
    script.api_error(500);
    script.human("and again");
    script.model(json!([{"type": "text", "text": " \n"}]), json!("end_turn"), json!({}));
    script.says("here");
    assert_eq!(carried(&script), ["H=ask", "H=again", "H=and again", "A:here"]);
}

#[test]
fn interrupts_are_the_runtimes_and_partial_words_stay() {
    let mut script = Script::new();
    script.human("count");
    script.model(
        json!([{"type": "text", "text": "one two thr"}]),
        json!(null),
        json!({"isAbortedMidStream": true}),
    );
    script.interrupt();
    script.human("go on");
    script.says("three");
    assert_eq!(carried(&script), ["H=count", "A:one two thr", "H=go on", "A:three"]);
}

#[test]
fn messages_absorbed_mid_turn_are_words_once() {
    let mut script = Script::new();
    script.queue("enqueue", Some("list")).queue("dequeue", None);
    script.human("list");
    script.calls("Bash", json!({}));
    script.queue("enqueue", Some("steer words"));
    script.result("Bash", json!("x"), false);
    script.queue("remove", None);
    script.attachment(json!({"type": "queued_command", "prompt": "steer words", "commandMode": "prompt"}));
    script.attachment(json!({"type": "queued_command", "prompt": "<task-notification>a</task-notification>",
                             "commandMode": "task-notification"}));
    script.says("done");
    script.last_prompt("list", &uuid(6));
    assert_eq!(carried(&script), ["H=list", "H=steer words", "A:done"]);
}

#[test]
fn plans_and_messages_sent_by_tools_are_the_assistants() {
    let mut script = Script::new();
    script.human("plan");
    script.calls("ExitPlanMode", json!({"plan": "1. fold the paper\n2. 飞"}));
    script.result("ExitPlanMode", json!("The user doesn't want to proceed with this tool use."), true);
    script.calls("mcp__my-companion__reply", json!({"chat_id": "1", "text": "sent to the chat"}));
    script.result("mcp__my-companion__reply", json!("ok"), false);
    script.calls("mcp__x-telegram-y__reply", json!({"text": "never sent to anybody"}));
    script.result("mcp__x-telegram-y__reply", json!("no such chat"), true);
    script.calls("mcp__chan__reply", json!({"text": "not a tool that speaks here"}));
    script.result("mcp__chan__reply", json!("ok"), false);
    script.says("done");
    assert_eq!(carried(&script), ["H=plan", "A:1. fold the paper\n2. 飞", "A:sent to the chat", "A:done"]);
}

#[test]
fn words_that_a_compaction_replaced_come_back() {
    let mut script = Script::new();
    script.human("seed one kite");
    script.says("one");
    let kept = script.human("after big");
    script.root().row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": kept}));
    script.user(json!("This session is being continued from before"), json!({"isCompactSummary": true}));
    script.says("here");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said(), ["H=seed one kite", "A:one", "H=after big", "A:here"]);
    assert_eq!(rebuilt.plan.compactions, 1);
}

#[test]
fn a_summary_is_carried_only_where_its_words_are_gone() {
    let mut script = Script::new();
    script.row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": uuid(99)}));
    script.user(json!("This session is being continued"), json!({"isCompactSummary": true}));
    script.human("go on");
    script.says("here");
    assert_eq!(
        carried(&script),
        [
            "H=[summary by the CLI; the words are not in this file]\nThis session is being continued",
            "H=go on",
            "A:here",
        ]
    );
}

#[test]
fn a_missing_parent_is_stitched_and_counted() {
    let mut script = Script::new();
    script.human("before");
    script.says("yes");
    script.on(&uuid(77)).human("after");
    script.says("here");
    let plan = Ask::new().plan(&script.file().path);
    assert_eq!(plan.stitched, [3]);
    assert_eq!(carried(&script), ["H=before", "A:yes", "H=after", "A:here"]);
}

#[test]
fn a_row_before_its_parent_keeps_its_place_in_the_conversation() {
    let mut early = Script::new();
    early.human("first");
    let mut late = early.clone();
    late.says("second");
    let second = late.bytes()[early.bytes().len()..].to_vec();
    let mut whole = late.clone();
    whole.human("third");
    whole.says("fourth");
    let rest = whole.bytes()[late.bytes().len()..].to_vec();
    let mut mixed = Script::new();
    mixed.raw(early.bytes());
    let third_end = rest.iter().position(|b| *b == b'\n').unwrap() + 1;
    mixed.raw(&rest[..third_end]).raw(&second).raw(&rest[third_end..]);
    assert_eq!(carried(&mixed), ["H=first", "A:second", "H=third", "A:fourth"]);
}
