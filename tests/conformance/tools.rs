//! Turns with tools, whole and broken.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{fresh, stays_unsaid, view};
use crate::stubs::reply::Reply;
use crate::support::invocation::World;
use crate::support::process::Running;
use crate::support::transcript;
use crate::support::{PATIENCE, wait_until};

pub(super) fn a_tool_turn_leaves_its_rows(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.stub.on_tool_turn(
        "look",
        Reply::empty()
            .and_thinking("hm")
            .and_text("I look.")
            .and_tool("Bash", json!({"command": "echo out $((40+2)); exit 3"})),
        Reply::text("I looked."),
    );
    let outcome = world.begin(&session, &uuid, "look around").expect_code(0);
    assert_eq!(outcome.result()["result"], "I looked.");
    assert_eq!(view(world), ["U:look around", "A:<thinking>", "A:I look.", "A:<Bash>", "U:<result>"]);
    let path = world.sandbox.transcript(&session);
    assert_eq!(
        transcript::outline(&path),
        ["U:look around", "A:<thinking>", "A:I look.", "A:<tool_use>", "U:<tool_result>", "A:I looked."]
    );
    let rows = transcript::rows(&path);
    let call = rows.iter().find(|r| r["message"]["content"][0]["type"] == "tool_use").unwrap();
    let result = rows.iter().find(|r| r["message"]["content"][0]["type"] == "tool_result").unwrap();
    assert_eq!(result["parentUuid"], call["uuid"]);
    assert_eq!(result["sourceToolAssistantUUID"], call["uuid"]);
    let block = &result["message"]["content"][0];
    assert_eq!(block["content"], "Exit code 3\nout 42");
    assert_eq!(block["is_error"], json!(true));
    assert_eq!(block["tool_use_id"], call["message"]["content"][0]["id"]);
    assert!(!result["toolUseResult"].is_null());
    assert_eq!(call["message"]["stop_reason"], "tool_use");
    let ids: Vec<&Value> =
        rows.iter().filter(|r| r["type"] == "assistant").map(|r| &r["message"]["id"]).collect();
    assert_eq!((ids[0], ids[1]), (ids[1], ids[2]), "one message over three rows");
    assert_ne!(ids[2], ids[3]);
}

pub(super) fn parallel_tools_reach_the_api_in_order(world: &World) {
    let session = fresh();
    let call = Reply::empty()
        .and_tool("Bash", json!({"command": "echo first"}))
        .and_tool("Bash", json!({"command": "echo second"}));
    world.stub.on_tool_turn("look", call, Reply::text("I looked."));
    world.begin(&session, &fresh(), "look twice").expect_code(0);
    world.resume(&session, &fresh(), "next").expect_code(0);
    assert_eq!(
        view(world),
        ["U:look twice", "A:<Bash>", "A:<Bash>", "U:<result>", "U:<result>", "A:I looked.", "U:next"]
    );
    let request = world.stub.last_main();
    assert_eq!((request.occurrences("\"first\""), request.occurrences("echo second")), (0, 1));
    assert!(request.body.to_string().contains("\"content\":\"first\""), "a result beside the chain was lost");
}

pub(super) fn a_tool_that_is_not_allowed_is_denied(world: &World) {
    let session = fresh();
    world.stub.on_tool_turn("touch", Reply::bash("touch ran"), Reply::text("I could not."));
    let mut command = world.claude();
    command.args(["-p", "--session-id", &session, "--output-format", "json", "touch it"]);
    let outcome = Running::spawn(&mut command).wait(PATIENCE).expect_code(0);
    let result: Value = serde_json::from_str(&outcome.lines[0]).unwrap();
    assert_eq!(result["permission_denials"][0]["tool_name"], "Bash");
    assert_eq!(result["permission_denials"][0]["tool_input"]["command"], "touch ran");
    assert!(!world.sandbox.path("work/ran").exists());
}

/// Kills the CLI while its tool runs, when that many others have finished.
fn kill_inside_tool(world: &World, session: &str, uuid: &str, finished: usize) {
    let pipe = world.sandbox.path("work/count");
    let running = world.invoke().args(["--resume", session]).send(uuid, "count once").spawn();
    wait_until("the tool to run", || std::fs::read_to_string(&pipe).is_ok_and(|t| t == "x\n"));
    let path = world.sandbox.transcript(session);
    wait_until("earlier results to be written", || {
        transcript::outline(&path).iter().filter(|block| *block == "U:<tool_result>").count() == finished
    });
    running.signal(Signal::KILL);
    assert_eq!(running.wait(PATIENCE).code(), -9);
}

pub(super) fn a_kill_inside_a_tool_runs_it_again(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let wait = "echo x >> count; while [ ! -e go ]; do sleep 0.05; done";
    world.stub.on_tool_turn("count", Reply::bash(wait), Reply::text("counted"));
    kill_inside_tool(world, &session, &uuid, 0);
    std::fs::write(world.sandbox.path("work/go"), "").unwrap();
    let again =
        world.invoke().resume_interrupted().args(["--resume", &session]).send(&uuid, "count once").run();
    assert_eq!(again.expect_code(0).result()["result"], "counted");
    assert_eq!(std::fs::read_to_string(world.sandbox.path("work/count")).unwrap(), "x\nx\n");
}

pub(super) fn finished_tools_are_kept_by_a_resume_with_our_words(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::bash("echo x >> count");
    world.stub.on_tool_turn("count", call, Reply::error(500, "api_error", "made up"));
    world.resume(&session, &uuid, "count once").expect_code(1);
    world.stub.clear_rules();
    world.stub.on_text("the line was lost", Reply::text("counted"));
    let again = world.invoke().resume_interrupted().args(["--resume", &session]);
    let again =
        again.env("CLAUDE_CODE_RESUME_PROMPT", "the line was lost, go on").send(&uuid, "count once").run();
    assert_eq!(again.expect_code(0).result()["result"], "counted");
    let seen = view(world);
    assert_eq!(&seen[2..], ["U:count once", "A:<Bash>", "U:<result>", "U:the line was lost, go on"]);
    stays_unsaid(world, &["Tool result missing", "No response requested."]);
    assert_eq!(std::fs::read_to_string(world.sandbox.path("work/count")).unwrap(), "x\n");
    let outline = transcript::outline(&world.sandbox.transcript(&session));
    assert!(outline.contains(&"M:the line was lost, go on".to_owned()), "{outline:#?}");
}

/// The opposite of what one would wish: a branch at the call leaves its result on the other branch.
pub(super) fn resuming_at_a_tool_call_loses_its_result(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.on_tool_turn("count", Reply::bash("echo counted"), Reply::error(500, "api_error", "made up"));
    world.resume(&session, &fresh(), "count once").expect_code(1);
    let call = transcript::last_real_assistant(&world.sandbox.transcript(&session));
    world.stub.clear_rules();
    let again = world.invoke().args(["--resume", &session, "--resume-session-at", &call]);
    again.send(&fresh(), "a note").run().expect_code(0);
    assert_eq!(&view(world)[2..], ["U:count once", "A:<Bash>", "U:<result>", "U:a note"]);
    assert_eq!(world.stub.last_main().occurrences("[Tool result missing due to internal error]"), 1);
}

/// On both versions, whether the turn was killed or failed: nothing lost, nothing repeated, nothing said
/// by the runtime.
pub(super) fn finished_tools_are_kept_by_resuming_at_the_last_result(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::empty()
        .and_tool("Bash", json!({"command": "echo x >> count; echo result one"}))
        .and_tool("Bash", json!({"command": "echo x >> count; echo result two"}));
    world.stub.on_tool_turn("count", call, Reply::error(500, "api_error", "made up"));
    world.resume(&session, &fresh(), "count twice").expect_code(1);
    let result = transcript::last_result(&world.sandbox.transcript(&session));
    world.stub.clear_rules();
    let again = world.invoke().args(["--resume", &session, "--resume-session-at", &result]);
    again.send(&fresh(), "a note").run().expect_code(0);
    assert_eq!(
        &view(world)[2..],
        ["U:count twice", "A:<Bash>", "A:<Bash>", "U:<result>", "U:<result>", "U:a note"]
    );
    stays_unsaid(world, &["Tool result missing", "No response requested.", "API Error"]);
    let request = world.stub.last_main();
    for output in ["result one", "result two"] {
        let block = format!("\"content\":\"{output}\"");
        assert!(request.body.to_string().contains(&block), "{output} was lost");
    }
    assert_eq!(std::fs::read_to_string(world.sandbox.path("work/count")).unwrap(), "x\nx\n");
}

pub(super) fn a_message_after_a_kill_inside_a_tool_tells_of_the_unknown_outcome(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::empty()
        .and_tool("Bash", json!({"command": "echo result one"}))
        .and_tool("Bash", json!({"command": "echo x >> count; sleep 60"}));
    world.stub.on_tool_turn("count", call, Reply::text("never said"));
    kill_inside_tool(world, &session, &fresh(), 1);
    world.resume(&session, &fresh(), "next").expect_code(0);
    assert_eq!(
        &view(world)[2..],
        [
            "U:count once",
            "A:<Bash>",
            "A:<Bash>",
            "U:<result>",
            "U:<result>",
            "A:No response requested.",
            "U:next"
        ]
    );
    let request = world.stub.last_main();
    assert_eq!(request.occurrences("so its outcome is unknown"), 1);
    assert!(request.body.to_string().contains("\"content\":\"result one\""), "the finished result was lost");
}

pub(super) fn a_sigterm_ends_the_tool_and_a_sigkill_does_not(world: &World) {
    for (signal, survives) in [(Signal::TERM, false), (Signal::KILL, true)] {
        let session = fresh();
        world.begin(&session, &fresh(), "seed").expect_code(0);
        world.stub.clear_rules();
        world.stub.on_tool_turn(
            "wait",
            Reply::bash("echo $$ > pid; exec sleep 60"),
            Reply::text("never said"),
        );
        let pid = world.sandbox.path("work/pid");
        let running = world
            .invoke()
            .args(["--resume", &session])
            .env("KAEL_INVOCATION", "made-up")
            .send(&fresh(), "wait for it")
            .spawn();
        wait_until("the tool to run", || {
            std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
        });
        let tool = PathBuf::from(format!("/proc/{}", std::fs::read_to_string(&pid).unwrap().trim()));
        let environ = std::fs::read(tool.join("environ")).unwrap();
        let marked = environ.split(|byte| *byte == 0).any(|variable| variable == b"KAEL_INVOCATION=made-up");
        assert!(marked, "a tool cannot be traced to its invocation");
        running.signal(signal);
        running.wait(PATIENCE);
        let alive = || std::fs::read(tool.join("cmdline")).is_ok_and(|line| !line.is_empty());
        if survives {
            std::thread::sleep(Duration::from_millis(300));
            assert!(alive(), "the tool's shell is in a session of its own");
        } else {
            wait_until("the tool to end with the CLI", || !alive());
        }
        std::fs::remove_file(&pid).unwrap();
    }
}
