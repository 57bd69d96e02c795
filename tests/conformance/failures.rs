//! What is left after an error, a kill or a broken connection, and how a turn goes on.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{fresh, stays_unsaid, view};
use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::invocation::World;
use crate::support::transcript;
use crate::support::{PATIENCE, wait_until};

pub(super) fn an_api_error_is_left_out_of_the_next_request(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.on_text("ask", Reply::error(500, "api_error", "made up"));
    let outcome = world.resume(&session, &fresh(), "ask").expect_code(1);
    let result = outcome.result();
    assert_eq!((&result["is_error"], &result["subtype"]), (&json!(true), &json!("success")));
    assert_eq!(result["api_error_status"], 500);

    world.stub.clear_rules();
    world.resume(&session, &fresh(), "ask again").expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask\n", "U:ask again"]);
    stays_unsaid(world, &["API Error", "No response requested."]);
    let outline = transcript::outline(&world.sandbox.transcript(&session));
    assert!(outline[3].starts_with("A!API Error: 500"), "{outline:#?}");
}

pub(super) fn every_api_error_has_its_exit_and_row(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    for (status, kind, error, text) in [
        (400, "invalid_request_error", "unknown", "API Error: 400 made up"),
        (
            401,
            "authentication_error",
            "authentication_failed",
            "Failed to authenticate. API Error: 401 made up",
        ),
        (404, "not_found_error", "model_not_found", "There's an issue with the selected model"),
        (429, "rate_limit_error", "rate_limit", "API Error: Request rejected (429) · made up"),
        (529, "overloaded_error", "server_error", "API Error: 529 made up."),
    ] {
        let uuid = fresh();
        world.stub.clear_rules();
        world.stub.on(move |_| Some(Reply::error(status, kind, "made up")));
        let outcome = world.resume(&session, &uuid, "ask").expect_code(1);
        let result = outcome.result();
        assert_eq!(result["api_error_status"], status);
        assert_eq!(result["terminal_reason"], "api_error");
        assert!(result["result"].as_str().unwrap().starts_with(text), "{result}");
        let rows = transcript::rows(&world.sandbox.transcript(&session));
        let row = rows.iter().rfind(|r| r["isApiErrorMessage"] == true).unwrap();
        assert_eq!(row["message"]["model"], "<synthetic>");
        assert_eq!((&row["error"], &row["apiErrorStatus"]), (&json!(error), &json!(status)), "{row}");
    }
}

/// Kills the CLI while the API still thinks about `ask`.
fn kill_while_asking(world: &World, session: &str, uuid: &str) {
    let gate = Gate::new();
    world.stub.on_text_times("ask", 1, Reply::text("too late").gate(&gate));
    let running = world.invoke().args(["--resume", session]).send(uuid, "ask").spawn();
    gate.wait_reached(PATIENCE);
    // The real CLI writes behind its own back: the request can be out before the row is in the file.
    let path = world.sandbox.transcript(session);
    wait_until("the row of the message", || transcript::row(&path, uuid).is_some());
    running.signal(Signal::KILL);
    assert_eq!(running.wait(PATIENCE).code(), -9);
    gate.open();
}

pub(super) fn a_killed_turn_is_resumed_clean(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    kill_while_asking(world, &session, &uuid);
    world.stub.on_text("ask", Reply::text("answered"));
    let outcome = world.invoke().resume_interrupted().args(["--resume", &session]).send(&uuid, "ask").run();
    let outcome = outcome.expect_code(0);
    assert_eq!(outcome.result()["result"], "answered");
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask"]);
    let path = world.sandbox.transcript(&session);
    assert_eq!(transcript::outline(&path), ["U:seed", "A:seeded", "U:ask", "A:answered"]);
    assert_eq!(transcript::row(&path, &uuid).unwrap()["message"]["content"], "ask");
}

pub(super) fn a_killed_turn_without_resume_gets_a_synthetic_answer(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    kill_while_asking(world, &session, &fresh());
    world.resume(&session, &fresh(), "next").expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask", "A:No response requested.", "U:next"]);
    let outline = transcript::outline(&world.sandbox.transcript(&session));
    assert!(outline.contains(&"A~No response requested.".to_owned()), "{outline:#?}");
}

pub(super) fn an_api_error_is_cut_off_by_resuming_before_it(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let path = world.sandbox.transcript(&session);
    let good = transcript::last_real_assistant(&path);
    world.stub.on_text("ask", Reply::error(500, "api_error", "made up"));
    world.resume(&session, &fresh(), "ask").expect_code(1);
    world.stub.clear_rules();
    world.stub.on_text("ask", Reply::text("answered"));
    let again = world.invoke().args(["--resume", &session, "--resume-session-at", &good]);
    again.send(&fresh(), "ask").run().expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask"]);
    world.resume(&session, &fresh(), "and on").expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask", "A:answered", "U:and on"]);

    let nowhere = fresh();
    let outcome = world.invoke().args(["--resume", &session, "--resume-session-at", &nowhere]);
    let outcome = outcome.send(&fresh(), "x").run().expect_code(1);
    let wanted = format!("No message found with message.uuid of: {nowhere}");
    assert!(outcome.stderr.contains(&wanted), "{outcome:?}");
}

pub(super) fn sigterm_ends_with_143(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let gate = Gate::new();
    world.stub.on_text("ask", Reply::text("too late").gate(&gate));
    let running = world.invoke().args(["--resume", &session]).send(&uuid, "ask").spawn();
    gate.wait_reached(PATIENCE);
    running.signal(Signal::TERM);
    let outcome = running.wait(PATIENCE).expect_code(143);
    gate.open();
    assert!(outcome.of_type("result").is_empty(), "{outcome:?}");
    let path = world.sandbox.transcript(&session);
    assert!(transcript::row(&path, &uuid).is_some(), "the message was not written before the request");
    assert_eq!(transcript::outline(&path).last().unwrap(), "U:ask");
}

pub(super) fn a_cut_stream_is_asked_for_again(world: &World) {
    let session = fresh();
    world.stub.on(|request| {
        let reply = Reply::text("whole this time");
        Some(if request.body["stream"] == json!(true) { reply.cut_after(3) } else { reply })
    });
    let outcome = world.begin(&session, &fresh(), "say it").expect_code(0);
    assert_eq!(outcome.result()["result"], "whole this time");
    assert_eq!(transcript::outline(&world.sandbox.transcript(&session)), ["U:say it", "A:whole this time"]);
}

pub(super) fn a_refused_connection_is_an_error(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.refuse();
    let result = world.resume(&session, &fresh(), "ask").expect_code(1).result();
    assert_eq!((&result["is_error"], &result["api_error_status"]), (&json!(true), &Value::Null));
    world.stub.listen();
    world.resume(&session, &fresh(), "ask").expect_code(0);
}

pub(super) fn an_interrupted_turn_needs_no_message_to_go_on(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    kill_while_asking(world, &session, &fresh());
    world.stub.on_text("ask", Reply::text("answered"));
    let outcome = world.invoke().resume_interrupted().args(["--resume", &session]).run().expect_code(0);
    assert_eq!(outcome.result()["result"], "answered");
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask"]);
    // Nothing is open now: the same again does nothing.
    let outcome = world.invoke().resume_interrupted().args(["--resume", &session]).run().expect_code(0);
    assert!(outcome.of_type("result").is_empty(), "{outcome:?}");
}

pub(super) fn retries_are_bounded_and_announced(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.on_text("ask", Reply::error(500, "api_error", "made up"));
    let asked = world.stub.main_requests().len();
    let outcome = world.invoke().env("CLAUDE_CODE_MAX_RETRIES", "2").args(["--resume", &session]);
    let outcome = outcome.send(&fresh(), "ask").run().expect_code(1);
    assert_eq!(world.stub.main_requests().len() - asked, 3);
    let retries: Vec<Value> =
        outcome.of_type("system").into_iter().filter(|line| line["subtype"] == "api_retry").collect();
    assert_eq!(retries.len(), 2, "{outcome:?}");
    assert_eq!((&retries[1]["attempt"], &retries[1]["max_retries"]), (&json!(2), &json!(2)));
    assert_eq!(retries[0]["error_status"], 500);

    world.stub.clear_rules();
    world.stub.on_text_times("again", 1, Reply::error(529, "overloaded_error", "made up"));
    let outcome = world.invoke().env("CLAUDE_CODE_MAX_RETRIES", "2").args(["--resume", &session]);
    outcome.send(&fresh(), "again").run().expect_code(0);
}
