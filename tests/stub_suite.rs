//! The stub itself: what tests rely on when they read it.

use std::time::{Duration, Instant};

use kael_runner::standin::context::Role;
use serde_json::{Value, json};

use crate::stubs::messages_api::Stub;
use crate::stubs::reply::Reply;
use crate::support::sandbox::Sandbox;
use crate::support::{PATIENCE, wait_until};

fn post(stub: &Stub, body: &Value) -> (u16, String) {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
    let mut response = agent
        .post(format!("{}/v1/messages?beta=true", stub.url()))
        .header("content-type", "application/json")
        .header("x-claude-code-session-id", "s-1")
        .send(body.to_string())
        .unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap_or_default())
}

fn ask(text: &str, stream: bool) -> Value {
    json!({"model": "m", "system": "s", "tools": [{"name": "Bash"}], "stream": stream,
        "messages": [{"role": "user", "content": text}]})
}

#[test]
fn streams_the_events_of_a_message_in_order() {
    let stub = Stub::start();
    stub.once(
        Reply::empty()
            .and_thinking("hm")
            .and_tool("Bash", json!({"command": "true"}))
            .usage(json!({"input_tokens": 7, "output_tokens": 9})),
    );
    let (status, stream) = post(&stub, &ask("go", true));
    assert_eq!(status, 200);
    let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let mut short = names.clone();
    short.dedup();
    insta::assert_snapshot!(short.join(" "), @"message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop");
    assert!(stream.contains(r#""stop_reason":"tool_use""#) && stream.contains(r#""input_tokens":7"#));
    assert_eq!(stub.last_main().session(), Some("s-1"));
}

#[test]
fn rules_are_asked_newest_first_and_the_brain_answers_the_rest() {
    let stub = Stub::start();
    stub.on_text("kite", Reply::text("older rule"));
    stub.on_text_times(
        "kite",
        1,
        Reply::error(429, "rate_limit_error", "slow down").header("retry-after", "2"),
    );
    assert_eq!(post(&stub, &ask("a kite", false)).0, 429);
    assert!(post(&stub, &ask("a kite", false)).1.contains("older rule"));
    assert!(post(&stub, &ask("a boat", false)).1.contains("Noted as number 1: a boat"));
    assert_eq!(stub.main_requests().len(), 3);
    assert_eq!(stub.last_main().texts(Role::User), ["a boat"]);
}

#[test]
fn delays_hangs_and_broken_streams() {
    let stub = Stub::start();
    stub.once(Reply::text("late").delay(Duration::from_millis(80)));
    let asked = Instant::now();
    post(&stub, &ask("x", false));
    assert!(asked.elapsed() >= Duration::from_millis(80));
    assert!(stub.last_main().at >= asked);

    stub.once(Reply::error_event("overloaded_error"));
    assert!(post(&stub, &ask("x", true)).1.contains("event: error"));
    stub.once(Reply::text("never whole").cut_after(2));
    assert_eq!(post(&stub, &ask("x", true)).1, "", "a cut stream cannot be read to its end");
    stub.once(Reply::text("cut by the limit").stop_reason("max_tokens"));
    assert!(post(&stub, &ask("x", false)).1.contains("max_tokens"));

    stub.once(Reply::hang());
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| {
            let agent: ureq::Agent = ureq::Agent::config_builder()
                .timeout_global(Some(Duration::from_millis(300)))
                .proxy(None)
                .build()
                .into();
            agent.post(format!("{}/v1/messages", stub.url())).send(ask("x", false).to_string()).is_err()
        });
        stub.wait_main(5, PATIENCE);
        assert!(hanging.join().unwrap(), "a hanging request was answered");
    });
}

#[test]
fn side_calls_are_no_conversation() {
    let stub = Stub::start();
    stub.once(Reply::text("for the conversation"));
    let side = json!({"model": "m", "messages": [{"role": "user", "content": "a title please"}]});
    assert!(post(&stub, &side).1.contains("a title please"), "side calls get a summary and use up no rule");
    assert_eq!((stub.requests().len(), stub.main_requests().len()), (1, 0));
    assert!(post(&stub, &ask("x", false)).1.contains("for the conversation"));
    assert_eq!(stub.last_main().index, 1, "positions count everything received");
}

#[test]
fn a_sandbox_ends_what_runs_in_it() {
    let sandbox = Sandbox::new();
    let mut child = sandbox.command("/bin/sh").args(["-c", "setsid sleep 600 & exit 0"]).spawn().unwrap();
    child.wait().unwrap();
    let mut orphan = 0;
    wait_until("the orphan to run", || {
        orphan = sandbox.survivors().first().copied().unwrap_or_default();
        orphan != 0
    });
    drop(sandbox);
    let path = format!("/proc/{orphan}/cmdline");
    wait_until("the orphan to end", || std::fs::read(&path).map_or(true, |line| line.is_empty()));
    let runner = Sandbox::new();
    assert!(runner.state().is_dir());
    assert!(runner.runner().arg("stand-in-claude").arg("--version").output().unwrap().status.success());
}
