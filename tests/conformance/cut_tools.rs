//! Turns that broke inside or after a tool, and every way to go on with them.

use rustix::process::Signal;
use serde_json::json;

use super::{fresh, stays_unsaid, view};
use crate::stubs::reply::Reply;
use crate::support::invocation::World;
use crate::support::transcript;
use crate::support::{PATIENCE, wait_until};

/// Kills the CLI while its tool runs, when that many others have finished.
fn kill_inside_tool(world: &World, session: &str, uuid: &str, finished: usize) {
    let pipe = world.sandbox.path("work/count");
    let running = world.invoke().args(["--resume", session]).send(uuid, "count once").spawn();
    wait_until("the tool to run", || std::fs::read_to_string(&pipe).is_ok_and(|t| t == "x\n"));
    let path = world.sandbox.transcript(session);
    // The real CLI writes behind its own back: a tool can run before its call is in the file.
    wait_until("the rows of the turn so far", || {
        let outline = transcript::outline(&path);
        let count = |wanted: &str| outline.iter().filter(|block| *block == wanted).count();
        count("U:<tool_result>") == finished && count("A:<tool_use>") == finished + 1
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

/// Calls that only read may run side by side; the slower first one then writes the last row.
pub(super) fn results_out_of_order_are_kept_too(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::empty()
        .and_tool("Bash", json!({"command": "find /usr/share -name no-such-file-anywhere"}))
        .and_tool("Bash", json!({"command": "echo two"}));
    world.stub.on_tool_turn("look", call, Reply::error(500, "api_error", "made up"));
    world.resume(&session, &fresh(), "look twice").expect_code(1);
    let path = world.sandbox.transcript(&session);
    let last = transcript::last_result(&path);
    world.stub.clear_rules();
    let again = world.invoke().args(["--resume", &session, "--resume-session-at", &last]);
    again.send(&fresh(), "a note").run().expect_code(0);
    assert_eq!(
        &view(world)[2..],
        ["U:look twice", "A:<Bash>", "A:<Bash>", "U:<result>", "U:<result>", "U:a note"]
    );
    stays_unsaid(world, &["Tool result missing", "No response requested."]);
}

/// Killed inside the second of two calls: what the first gave back is kept, the other is marked, and the
/// runtime adds no words (2.1.199 leaves the open call out).
pub(super) fn a_call_cut_off_is_marked_by_resuming_at_the_last_result(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::empty()
        .and_tool("Bash", json!({"command": "echo result one"}))
        .and_tool("Bash", json!({"command": "echo x >> count; sleep 60"}));
    world.stub.on_tool_turn("count", call, Reply::text("never said"));
    kill_inside_tool(world, &session, &fresh(), 1);
    let result = transcript::last_result(&world.sandbox.transcript(&session));
    let again = world.invoke().args(["--resume", &session, "--resume-session-at", &result]);
    again.send(&fresh(), "a note").run().expect_code(0);
    let request = world.stub.last_main();
    let marked = request.occurrences("[Tool result missing due to internal error]");
    let seen = view(world);
    if world.subject.version() == "2.1.199" {
        assert_eq!(&seen[2..], ["U:count once", "A:<Bash>", "U:<result>", "U:a note"]);
        assert_eq!(marked, 0);
    } else {
        assert_eq!(
            &seen[2..],
            ["U:count once", "A:<Bash>", "A:<Bash>", "U:<result>", "U:<result>", "U:a note"]
        );
        assert_eq!(marked, 1);
    }
    assert!(request.body.to_string().contains("\"content\":\"result one\""), "the finished result was lost");
    assert_eq!(std::fs::read_to_string(world.sandbox.path("work/count")).unwrap(), "x\n");
}

/// Killed inside the only call: resuming at the call itself marks it. 2.1.199 does not find that row any
/// more; there the branch has to begin at the human's own row.
pub(super) fn a_lone_call_cut_off_is_marked_by_resuming_at_it(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.on_tool_turn("count", Reply::bash("echo x >> count; sleep 60"), Reply::text("never said"));
    kill_inside_tool(world, &session, &uuid, 0);
    world.stub.clear_rules();
    let call = transcript::last_real_assistant(&world.sandbox.transcript(&session));
    let resume_at = |row: &str| {
        let again = world.invoke().args(["--resume", &session, "--resume-session-at", row]);
        again.send(&fresh(), "a note").run()
    };
    if world.subject.version() == "2.1.199" {
        resume_at(&call).expect_code(1);
        resume_at(&uuid).expect_code(0);
        assert_eq!(&view(world)[2..], ["U:count once\n", "U:a note"]);
    } else {
        resume_at(&call).expect_code(0);
        assert_eq!(&view(world)[2..], ["U:count once", "A:<Bash>", "U:<result>", "U:a note"]);
        assert_eq!(world.stub.last_main().occurrences("[Tool result missing due to internal error]"), 1);
    }
    stays_unsaid(world, &["No response requested."]);
}
