//! Sessions, ids, flags and streams.

use std::time::Duration;

use kael_runner::standin::context::Role;
use serde_json::{Value, json};

use super::{fresh, view};
use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::invocation::World;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::transcript::{self, outline};
use crate::support::{PATIENCE, wait_until};

pub(super) fn says_which_version_it_is(world: &World) {
    let mut command = world.claude();
    command.arg("--version");
    let outcome = Running::spawn(&mut command).wait(PATIENCE).expect_code(0);
    let (version, maker) = outcome.lines[0].split_once(' ').unwrap();
    assert_eq!(version, world.subject.version());
    let expected = if world.subject == Subject::StandIn { "(kael stand-in)" } else { "(Claude Code)" };
    assert_eq!(maker, expected);
}

pub(super) fn a_new_session_takes_our_id_and_our_uuid(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.stub.on_text("灯笼", Reply::text("好的 🏮"));
    let outcome = world.begin(&session, &uuid, "灯笼是绿色的").expect_code(0);

    let result = outcome.result();
    assert_eq!(result["session_id"], json!(session));
    assert_eq!(result["result"], "好的 🏮");
    assert_eq!((&result["is_error"], &result["subtype"]), (&json!(false), &json!("success")));
    assert!(result["usage"]["output_tokens"].as_u64().unwrap() > 0, "{result}");

    let replay = outcome.of_type("user").remove(0);
    assert_eq!((&replay["uuid"], &replay["isReplay"]), (&json!(uuid), &json!(true)));
    assert_eq!(view(world), ["U:灯笼是绿色的"]);

    let path = world.sandbox.transcript(&session);
    assert_eq!(outline(&path), ["U:灯笼是绿色的", "A:好的 🏮"]);
    let row = transcript::row(&path, &uuid).unwrap();
    assert_eq!((&row["parentUuid"], &row["sessionId"]), (&Value::Null, &json!(session)));
    assert_eq!(row["version"], json!(world.subject.version()));
    assert_eq!(row["promptSource"], "sdk");
    assert!(transcript::rows(&path).iter().any(|r| r["type"] == "last-prompt"), "no bookkeeping at the end");
}

pub(super) fn a_resumed_session_grows_in_place(world: &World) {
    let session = fresh();
    world.stub.on_text("kite", Reply::text("noted"));
    world.begin(&session, &fresh(), "my kite is blue").expect_code(0);
    let path = world.sandbox.transcript(&session);
    let before = std::fs::read(&path).unwrap();
    world.stub.on_text("boat", Reply::text("also noted"));
    world.resume(&session, &fresh(), "my boat is red").expect_code(0);

    assert_eq!(view(world), ["U:my kite is blue", "A:noted", "U:my boat is red"]);
    assert!(std::fs::read(&path).unwrap().starts_with(&before), "the file was not appended to");
    assert_eq!(
        std::fs::read_dir(world.sandbox.project_dir())
            .unwrap()
            .flatten()
            .filter(|f| f.path().is_file())
            .count(),
        1
    );
    let requests = world.stub.main_requests();
    assert!(requests[1].tokens() > requests[0].tokens(), "figures grow with the conversation");
}

pub(super) fn a_known_uuid_is_swallowed(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &uuid, "the first and only").expect_code(0);
    let path = world.sandbox.transcript(&session);
    let rows = outline(&path);
    let outcome = world.resume(&session, &uuid, "the first and only").expect_code(0);
    assert!(outcome.of_type("result").is_empty(), "{outcome:?}");
    assert_eq!(outcome.of_type("user")[0]["isReplay"], json!(true));
    assert_eq!(world.stub.main_requests().len(), 1);
    assert_eq!(outline(&path), rows);
}

pub(super) fn an_unknown_id_is_refused(world: &World) {
    let session = fresh();
    let outcome = world.resume(&session, &fresh(), "anyone there").expect_code(1);
    let wanted = format!("No conversation found with session ID: {session}");
    assert!(outcome.stderr.contains(&wanted), "{outcome:?}");
    let result = outcome.result();
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("error_during_execution"), &json!(true)));
    assert_eq!(result["errors"], json!([wanted]));
    assert!(world.stub.main_requests().is_empty());
}

pub(super) fn an_id_in_use_is_refused(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "one").expect_code(0);
    let outcome = world.begin(&session, &fresh(), "two").expect_code(1);
    assert!(
        outcome.stderr.contains(&format!("Error: Session ID {session} is already in use.")),
        "{outcome:?}"
    );
    assert_eq!(world.stub.main_requests().len(), 1);
}

pub(super) fn an_unknown_flag_is_refused(world: &World) {
    let outcome = world.invoke().args(["--frobnicate"]).send(&fresh(), "x").run().expect_code(1);
    assert!(outcome.stderr.contains("error: unknown option '--frobnicate'"), "{outcome:?}");
    let both = world.invoke().args(["--resume", &fresh(), "--session-id", &fresh()]).run().expect_code(1);
    assert!(
        both.stderr.contains("--session-id with --continue or --resume also needs --fork-session"),
        "{both:?}"
    );
}

pub(super) fn two_lines_are_two_turns(world: &World) {
    let session = fresh();
    let outcome =
        world.invoke().args(["--session-id", &session]).send(&fresh(), "one").send(&fresh(), "two").run();
    assert_eq!(outcome.expect_code(0).of_type("result").len(), 2);
    assert_eq!(world.stub.last_main().texts(Role::User), ["one", "two"]);
}

pub(super) fn a_fork_takes_a_new_id_and_the_same_rows(world: &World) {
    let (session, fork, uuid) = (fresh(), fresh(), fresh());
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &uuid, "seed").expect_code(0);
    let before = std::fs::read(world.sandbox.transcript(&session)).unwrap();
    let forked = world.invoke().args(["--resume", &session, "--fork-session", "--session-id", &fork]);
    forked.send(&fresh(), "on another line").run().expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:on another line"]);
    assert_eq!(std::fs::read(world.sandbox.transcript(&session)).unwrap(), before);
    let row = transcript::row(&world.sandbox.transcript(&fork), &uuid).unwrap();
    assert_eq!(row["sessionId"], json!(fork));
}

pub(super) fn plain_text_works(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    let mut command = world.claude();
    command.args(["-p", "--session-id", &session]);
    let mut running = Running::spawn(&mut command);
    running.write("seed\n").close();
    let outcome = running.wait(PATIENCE).expect_code(0);
    assert_eq!(outcome.lines, ["seeded"]);
}

pub(super) fn partial_messages_are_streamed(world: &World) {
    let session = fresh();
    world.stub.on_text("stream", Reply::text("a reply in four pieces"));
    let gate = Gate::new();
    world.stub.on_text("stream", Reply::text("a reply in four pieces").pause_after(4, &gate));
    let streaming = world.invoke().args(["--session-id", &session, "--include-partial-messages"]);
    let running = streaming.send(&fresh(), "stream it").spawn();
    let is_delta = |line: &str| line.contains("\"stream_event\"") && line.contains("text_delta");
    running.wait_line("delta before the end of the message", PATIENCE, is_delta);
    gate.open();
    let outcome = running.wait(PATIENCE).expect_code(0);
    let events: Vec<Value> = outcome.of_type("stream_event").iter().map(|l| l["event"].clone()).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds.last(), Some(&"message_stop"));
    let text: String = events.iter().filter_map(|e| e["delta"]["text"].as_str()).collect();
    assert_eq!(text, "a reply in four pieces");
}

const INTERRUPT: &str =
    "{\"type\":\"control_request\",\"request_id\":\"r\",\"request\":{\"subtype\":\"interrupt\"}}\n";

/// What a human saw before they stopped the turn stays in the conversation.
pub(super) fn an_interrupt_keeps_what_was_said(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let gate = Gate::new();
    world.stub.on_text("stream", Reply::text("a reply in four pieces").pause_after(4, &gate));
    world.stub.on_text("go on", Reply::text("gone on"));
    let uuid = fresh();
    let streaming = world.invoke().args(["--resume", &session, "--include-partial-messages"]);
    let mut running = streaming.send(&uuid, "stream it").spawn();
    let piece = "\"text_delta\"";
    running.wait_line("a delta", PATIENCE, |line| line.contains(piece));
    // What is on its way may still arrive; nothing more comes.
    std::thread::sleep(Duration::from_millis(300));
    running.write(INTERRUPT);
    running.wait_line("the result", PATIENCE, |line| line.contains("\"type\":\"result\""));
    let outcome = running.wait(PATIENCE).expect_code(1);
    gate.open();
    assert_eq!(outcome.result()["subtype"], "error_during_execution");
    let events = outcome.of_type("stream_event");
    let said: String = events.iter().filter_map(|line| line["event"]["delta"]["text"].as_str()).collect();
    let rows = outline(&world.sandbox.transcript(&session));
    let tail = ["U:stream it".to_owned(), format!("A:{said}"), "U:[Request interrupted by user]".to_owned()];
    assert_eq!(rows[rows.len() - 3..], tail, "{rows:#?}");
    world.resume(&session, &fresh(), "go on").expect_code(0);
    assert_eq!(world.stub.last_main().occurrences(&said), 1);
}

pub(super) fn an_interrupt_ends_the_tool_and_leaves_its_result(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.once(Reply::bash("tail -f /dev/null"));
    let mut running = world.invoke().args(["--resume", &session]).send(&fresh(), "use it").spawn();
    running.wait_line("the call", PATIENCE, |line| line.contains("\"tool_use\""));
    std::thread::sleep(Duration::from_millis(700));
    running.write(INTERRUPT);
    running.wait_line("the result", PATIENCE, |line| line.contains("\"type\":\"result\""));
    running.wait(PATIENCE).expect_code(1);
    let rows = outline(&world.sandbox.transcript(&session));
    let tail =
        ["U:use it", "A:<tool_use>", "U:<tool_result>", "U:[Request interrupted by user for tool use]"];
    assert_eq!(rows[rows.len() - 4..], tail, "{rows:#?}");
    wait_until("the tool to end", || world.sandbox.survivors().is_empty());
}

/// Streaming is between the CLI and us: the API is asked the same.
pub(super) fn streaming_changes_no_request(world: &World) {
    let asked = |flags: &[&str]| {
        let session = fresh();
        let begun = world.invoke().args(["--session-id", &session]).args(flags.iter().copied());
        begun.send(&fresh(), "the lamp is green").run().expect_code(0);
        let resumed = world.invoke().args(["--resume", &session]).args(flags.iter().copied());
        resumed.send(&fresh(), "and warm").run().expect_code(0);
        let request = world.stub.last_main();
        let mut body = request.body.clone();
        body["metadata"] = Value::Null;
        body.to_string().replace(&session, "SESSION")
    };
    assert_eq!(asked(&[]), asked(&["--include-partial-messages"]));
}

/// The rule of the folder names, seen from outside: what is there after a turn.
pub(super) fn transcripts_go_where_the_folder_says(world: &World) {
    let long = "d".repeat(90);
    let root = std::fs::canonicalize(world.sandbox.path("")).unwrap();
    let encode = |text: &str| text.replace(['/', '.', '_'], "-");
    let root_name = encode(root.to_str().unwrap());
    let projects = world.sandbox.home().join(".claude/projects");
    for (folder, name) in [
        ("a.b_c d".to_owned(), Some(format!("{root_name}-a-b-c-d"))),
        ("灯笼-🏮".to_owned(), Some(format!("{root_name}------"))),
        // Above 200 units the rest becomes a hash; both subjects have to agree on it.
        (format!("{long}/{long}/{long}"), None),
    ] {
        let path = world.sandbox.path(&folder);
        std::fs::create_dir_all(&path).unwrap();
        let session = fresh();
        world
            .invoke()
            .in_folder(&path)
            .args(["--session-id", &session])
            .send(&fresh(), "here")
            .run()
            .expect_code(0);
        let name = name.unwrap_or_else(|| long_name(path.to_str().unwrap()));
        assert!(
            projects.join(&name).join(format!("{session}.jsonl")).is_file(),
            "no transcript under {name}"
        );
    }
    let session = fresh();
    let config = world.sandbox.path("elsewhere");
    let moved =
        world.invoke().env("CLAUDE_CONFIG_DIR", config.to_str().unwrap()).args(["--session-id", &session]);
    moved.send(&fresh(), "here").run().expect_code(0);
    let work = encode(std::fs::canonicalize(world.sandbox.work()).unwrap().to_str().unwrap());
    assert!(config.join("projects").join(work).join(format!("{session}.jsonl")).is_file());
}

/// 200 units and a Java string hash in base 36, for an ASCII path (facts 2).
fn long_name(path: &str) -> String {
    let hash = path.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
    let mut number = hash.unsigned_abs();
    let mut digits = String::new();
    while number > 0 {
        digits.insert(0, char::from_digit(number % 36, 36).unwrap());
        number /= 36;
    }
    let name: String =
        path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(200).collect();
    format!("{name}-{digits}")
}

pub(super) fn an_appended_system_prompt_is_frozen(world: &World) {
    let session = fresh();
    let begin = world.invoke().args(["--session-id", &session, "--append-system-prompt", "LAMP GREEN"]);
    begin.send(&fresh(), "one").run().expect_code(0);
    assert!(world.stub.last_main().body["system"].to_string().contains("LAMP GREEN"));
    let again = world.invoke().args(["--resume", &session, "--append-system-prompt", "LAMP RED"]);
    again.send(&fresh(), "two").run().expect_code(0);
    let system = world.stub.last_main().body["system"].to_string();
    assert!(system.contains("LAMP GREEN") && !system.contains("LAMP RED"), "{system}");
}

pub(super) fn max_turns_end_a_turn(world: &World) {
    let session = fresh();
    world.stub.on_tool_turn("look", Reply::bash("true"), Reply::text("never said"));
    let outcome =
        world.invoke().args(["--session-id", &session, "--max-turns", "1"]).send(&fresh(), "look").run();
    let result = outcome.expect_code(1).result();
    assert_eq!(
        (&result["subtype"], &result["terminal_reason"]),
        (&json!("error_max_turns"), &json!("max_turns"))
    );
    assert_eq!(result["errors"], json!(["Reached maximum number of turns (1)"]));
    assert!(result.get("result").is_none(), "{result}");
}
