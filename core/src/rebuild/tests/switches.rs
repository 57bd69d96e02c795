//! Every rule switched off in turn: the plan or the proof must notice. The table is printed with
//! `cargo test -p kael-core switches -- --nocapture`; what it cannot show is in `NOT_PROVABLE`.

use serde_json::json;

use super::*;
use crate::fixture::uuid;
use crate::transcript::judge::switched_off;
use crate::transcript::{ItemKind, Rule};

/// A transcript with something for every rule in it.
fn everything() -> (Script, Ask) {
    let mut script = Script::new();
    let mut ask = Ask::new();
    script.queue("enqueue", Some("the first question of all")).queue("dequeue", None);
    script.human("the first question of all");
    script.attachment(json!({"type": "hook_success", "stdout": "many words of a hook"}));
    script.model(
        json!([{"type": "thinking", "thinking": "a long secret thought", "signature": "x"}]),
        json!("tool_use"),
        json!({}),
    );
    script.calls("Bash", json!({"command": "ls the whole folder"}));
    script.result("Bash", json!("the output of a tool"), false);
    script.row(json!({"type": "user", "isSidechain": true, "message": {"role": "user", "content": "a subagent's task"}}));
    script.row(json!({"type": "system", "subtype": "informational", "content": "the runtime informs"}));
    script.user(json!("Stop hook feedback:\nsay more please"), json!({"isMeta": true}));
    script.says(" the first answer, 风筝 ");
    script.user(
        json!([{"type": "text", "text": "<ide_opened_file>The user opened a file</ide_opened_file>"},
               {"type": "text", "text": "what is in here?"},
               {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a2l0ZQ=="}}]),
        json!({}),
    );
    script.model(json!([{"type": "text", "text": " \n"}]), json!("end_turn"), json!({}));
    script.says("a kite");
    script.user(
        json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a2l0ZQ=="}}]),
        json!({"promptSource": "sdk"}),
    );
    script.says("another kite");
    script.user(json!("<command-name>/cost</command-name><command-args></command-args>"), json!({}));
    script.user(json!("<local-command-stdout>Total cost: not much at all</local-command-stdout>"), json!({}));
    script
        .user(json!("<command-name>/greet</command-name><command-args>Mina, 你好</command-args>"), json!({}));
    script.says("hello Mina");
    script.user(json!("<task-notification>a task is done now</task-notification>"), json!({}));
    script.user(json!("<teammate-message id=\"a\">a colleague says hello</teammate-message>"), json!({}));
    script.says("noted");
    script.user(json!("deploy it on Friday"), json!({}));
    script.user(json!("Operation stopped by hook: not on a Friday"), json!({}));
    script.interrupt();
    script.user(json!("then plan it"), json!({}));
    script.calls("ExitPlanMode", json!({"plan": "1. fold the paper\n2. 飞"}));
    script.result("ExitPlanMode", json!("ok"), false);
    script.user(json!("Implement the following plan:\n\n1. fold the paper\n2. 飞"), json!({}));
    script.calls("mcp__a-companion__reply", json!({"text": "spoken to the chat"}));
    script.result("mcp__a-companion__reply", json!("ok"), false);
    script.calls("Write", json!({"content": "a whole file"}));
    script.result(
        "Write",
        json!("The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nwith a pencil"),
        true,
    );
    script.calls("AskUserQuestion", json!({}));
    script.user(
        json!([{"type": "tool_result", "tool_use_id": "toolu_AskUserQuestion", "content": "answered"}]),
        json!({"toolUseResult": {"answers": {"Colour?": "red like the old one"}}}),
    );
    script.attachment(
        json!({"type": "queued_command", "prompt": "steer to the left", "commandMode": "prompt"}),
    );
    script.queue("enqueue", Some("absorbed without a row")).queue("remove", None);
    script.says("done");
    script.synthetic("No response requested.");
    script.api_error(500);
    script.user(json!("words of the scheduler"), json!({"turnOrigin": "scheduled"}));
    let note = script.human("[kael-runner] the process ended");
    let failed = script.human("an attempt that failed");
    ask.own.notes.insert(note);
    ask.own.abandoned.insert(failed);
    script.says("so be it");
    script
        .root()
        .row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": uuid(48)}));
    script.user(json!("This session is being continued from before"), json!({"isCompactSummary": true}));
    script.user(
        json!("<channel source=\"telegram\" chat_id=\"1\">\n你好，还在吗？\n</channel>"),
        json!({"isMeta": true}),
    );
    script.says("at the very end");
    script.last_prompt("the last words", "x");
    script.line(&json!({"type": "cost-state", "totalCostUSD": 1}));
    (script, ask)
}

/// What notices; empty when nothing does.
fn noticed(script: &Script, ask: &Ask) -> String {
    let fixture = script.file();
    let plan = ask.plan(&fixture.path);
    if plan.is_hard_blocked() {
        return format!("plan: {}", plan.blocked_reason());
    }
    match ask.rebuild(&fixture).proof {
        Ok(_) => String::new(),
        Err(failure) => failure.to_string(),
    }
}

/// Rules whose loss the proof cannot show, and why.
const NOT_PROVABLE: &[(Rule, &str)] = &[];

#[test]
fn a_rule_that_is_switched_off_is_noticed() {
    let (mut script, mut ask) = everything();
    // The copy of a prompt is one of the proof's witnesses, not part of the question.
    let bytes =
        String::from_utf8(script.bytes().to_vec()).unwrap().replace("the last words", "deploy it on Friday");
    script = Script::new();
    script.raw(bytes.as_bytes());
    ask.settings.off_chain = crate::transcript::OffChain::Drop;
    assert_eq!(noticed(&script, &ask), "", "all rules on");
    let mut table = Vec::new();
    let met: Vec<Rule> = ask.plan(&script.file().path).drops.iter().map(|drop| drop.rule).collect();
    for rule in met {
        switched_off::RULE.set(Some(rule));
        let what = noticed(&script, &ask);
        switched_off::RULE.set(None);
        table.push((format!("{} drops nothing", rule.name()), what, rule));
    }
    for kind in [
        ItemKind::Words,
        ItemKind::Command,
        ItemKind::Answer,
        ItemKind::Refusal,
        ItemKind::Plan,
        ItemKind::ToolMessage,
        ItemKind::Queued,
        ItemKind::Image,
    ] {
        switched_off::KIND.set(Some(kind));
        let what = noticed(&script, &ask);
        switched_off::KIND.set(None);
        table.push((format!("{kind:?} is not seen"), what, Rule::Spoken));
    }
    let mut silent = Vec::new();
    for (name, what, rule) in &table {
        println!("{name:<34} {}", if what.is_empty() { "-" } else { what });
        // What holds no words at all cannot be leaked: there is nothing to take for them.
        let wordless = matches!(rule, Rule::Bookkeeping | Rule::QueueCopy | Rule::SystemRow);
        if what.is_empty() && !wordless && !NOT_PROVABLE.iter().any(|(known, _)| known == rule) {
            silent.push(name.clone());
        }
    }
    assert_eq!(silent, Vec::<String>::new());
    assert!(table.len() > 25, "{}", table.len());
}

/// A step of finding the conversation, and a transcript that needs it.
type Step = (&'static str, fn(&mut Script));

#[test]
fn a_step_that_is_left_out_is_noticed() {
    let steps: &[Step] = &[
        ("last-prompt", |script| {
            let answer = script.says("yes");
            script.human("the other branch of it");
            let tip = script.says("blue");
            script.on(&answer).human("the other branch of it");
            script.next_message().says("white");
            script.last_prompt("the other branch of it", &tip);
        }),
        ("stitch", |script| {
            script.says("yes");
            script.on(&uuid(77)).human("after the gap");
            script.says("here");
        }),
        ("compaction", |script| {
            let kept = script.says("yes");
            script
                .root()
                .row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": kept}));
            script.user(json!("This session is being continued"), json!({"isCompactSummary": true}));
            script.human("after the compaction");
            script.says("here");
        }),
        ("parallel", |script| {
            let first = script.calls("A", json!({}));
            script.model(json!([{"type": "text", "text": "and the other"}]), json!("tool_use"), json!({}));
            script.on(&first).result("A", json!("a"), false);
            script.says("done");
        }),
        ("queued", |script| {
            script.queue("enqueue", Some("absorbed without a row")).queue("remove", None);
            script.says("done");
        }),
        ("forks", |script| {
            let answer = script.says("yes");
            script.human("words of the lost branch");
            script.on(&answer).human("words of the live branch");
            script.says("here");
        }),
    ];
    for (step, write) in steps {
        let mut script = Script::new();
        script.human("the first question of all");
        write(&mut script);
        let ask = Ask::new();
        let on = noticed(&script, &ask);
        // A fork is noticed by the plan while the step is on.
        assert!(on.is_empty() || *step == "forks", "{step}: {on}");
        switched_off::STEP.set(Some(step));
        let what = noticed(&script, &ask);
        switched_off::STEP.set(None);
        println!("{step:<34} {what}");
        assert!(!what.is_empty(), "{step}");
    }
    let mut gone = Script::new();
    gone.row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": uuid(99)}));
    gone.user(json!("This session is being continued"), json!({"isCompactSummary": true}));
    gone.human("go on, please");
    gone.says("here");
    assert_eq!(noticed(&gone, &Ask::new()), "");
    switched_off::STEP.set(Some("summary"));
    let what = noticed(&gone, &Ask::new());
    switched_off::STEP.set(None);
    println!("{:<34} {what}", "summary");
    assert!(!what.is_empty(), "summary");
}
