//! Wordings that are the runtime's in one place and a human's in another (DESIGN 4).

use serde_json::json;

use super::*;

const PLAN: &str = "Implement the following plan:\n\n1. fold the paper\n2. 飞";

#[test]
fn a_plan_fed_back_is_the_models_own() {
    let mut marked = Script::new();
    marked.human("make a plan");
    marked.says("here it is");
    marked.user(json!(PLAN), json!({"planContent": "1. fold the paper\n2. 飞"}));
    marked.says("flying");
    assert_eq!(carried(&marked), ["H=make a plan", "A:here it is", "A:flying"]);

    let mut shown = Script::new();
    shown.human("make a plan");
    shown.calls("ExitPlanMode", json!({"plan": "1. fold the paper\n2. 飞"}));
    shown.result("ExitPlanMode", json!("User has approved your plan."), false);
    shown.user(json!(PLAN), json!({}));
    shown.says("flying");
    assert_eq!(carried(&shown), ["H=make a plan", "A:1. fold the paper\n2. 飞", "A:flying"]);

    let mut closed = Script::new();
    closed.user(
        json!(format!("{PLAN}\n\nIf you need specific details from before exiting plan mode (like exact code), read the full transcript at: /home/u/x.jsonl")),
        json!({}),
    );
    closed.says("flying");
    assert_eq!(carried(&closed), ["A:flying"]);
}

#[test]
fn a_human_who_pastes_a_plan_keeps_it() {
    let mut script = Script::new();
    script.user(json!(PLAN), json!({}));
    script.says("flying");
    // The same plan shown later does not make it one that was fed back.
    script.calls("ExitPlanMode", json!({"plan": "1. fold the paper\n2. 飞"}));
    script.result("ExitPlanMode", json!("ok"), false);
    script.says("done");
    assert_eq!(carried(&script)[..2], [format!("H={PLAN}"), "A:flying".to_owned()]);

    let mut vouched = Script::new();
    vouched.calls("ExitPlanMode", json!({"plan": "1. fold the paper\n2. 飞"}));
    vouched.result("ExitPlanMode", json!("ok"), false);
    vouched.user(json!(PLAN), json!({"promptSource": "typed"}));
    vouched.says("flying");
    assert_eq!(carried(&vouched)[1], format!("H={PLAN}"));
}

#[test]
fn a_hook_that_stops_a_prompt_says_so_in_its_answers_place() {
    let mut script = Script::new();
    script.user(json!("deploy it"), json!({}));
    script.attachment(json!({"type": "hook_success", "content": "x"}));
    script.user(json!("Operation stopped by hook: not on a Friday"), json!({}));
    script.user(json!("then tomorrow"), json!({}));
    script.says("ok");
    assert_eq!(carried(&script), ["H=deploy it", "H=then tomorrow", "A:ok"]);
    assert!(Ask::new().plan(&script.file().path).drops.iter().any(|d| d.rule.name() == "hook_stop"));
}

#[test]
fn a_human_who_pastes_a_hooks_message_keeps_it() {
    let pasted = "Operation stopped by hook: what does that mean?";
    let mut after_an_answer = Script::new();
    after_an_answer.user(json!("deploy it"), json!({}));
    after_an_answer.says("I tried");
    after_an_answer.user(json!(pasted), json!({}));
    after_an_answer.says("a hook said no");
    assert_eq!(carried(&after_an_answer)[2], format!("H={pasted}"));

    let mut answered = Script::new();
    answered.user(json!("see below"), json!({}));
    answered.user(json!(pasted), json!({}));
    answered.says("a hook said no");
    assert_eq!(carried(&answered)[1], format!("H={pasted}"));

    let mut typed = Script::new();
    typed.user(json!("see below"), json!({}));
    typed.user(json!(pasted), json!({"permissionMode": "default"}));
    typed.user(json!("well?"), json!({}));
    typed.says("a hook said no");
    assert_eq!(carried(&typed)[1], format!("H={pasted}"));
}

#[test]
fn output_without_its_end_is_output_where_a_command_stands_above_it() {
    let cut = "<local-command-stdout>a very long listing that was cut in the midd";
    let quoting = "<local-command-stdout>see </local-command-stdout> in the docs of the tool";
    for output in [cut, quoting] {
        let mut script = Script::new();
        script.user(json!("<command-name>/context</command-name><command-args></command-args>"), json!({}));
        script.user(json!(output), json!({}));
        script.user(json!("thanks"), json!({}));
        script.says("welcome");
        assert_eq!(carried(&script), ["H=thanks", "A:welcome"], "{output}");
        let mut pasted = Script::new();
        pasted.user(json!("what is this?"), json!({}));
        pasted.user(json!(output), json!({}));
        pasted.says("output of a command");
        assert_eq!(carried(&pasted)[1], format!("H={output}"));
    }
}
