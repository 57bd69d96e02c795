//! Turns with tools.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{fresh, view};
use crate::stubs::gate::Gate;
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
        // Read in the middle of an exec it would be empty.
        wait_until("the tool to be traced to its invocation", || {
            let environ = std::fs::read(tool.join("environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == b"KAEL_INVOCATION=made-up")
        });
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

pub(super) fn the_brain_drives_whole_turns(world: &World) {
    let session = fresh();
    world.sandbox.write("work/big.txt", "output of a tool\n".repeat(1500));
    world.begin(&session, &fresh(), "my kite is called Blau").expect_code(0);
    world.resume(&session, &fresh(), "TOOL: cat big.txt\nTOOL: wc -l big.txt").expect_code(0);
    let asked = world.resume(&session, &fresh(), "what was the first thing I said?").expect_code(0);
    assert_eq!(asked.result()["result"], "The first thing you said was: \"my kite is called Blau\"");
    let requests = world.stub.main_requests();
    assert_eq!(requests.len(), 4, "one request a turn, two for the turn with tools");
    let grown = requests[3].tokens() - requests[0].tokens();
    assert!(grown > 5_000, "25 KB of tool output are only {grown} tokens");
    let usage = &asked.result()["usage"];
    let read: u64 = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .iter()
        .map(|key| usage[*key].as_u64().unwrap())
        .sum();
    assert_eq!(read, requests[3].tokens(), "the figures of the result are those of the request");
}

fn line(uuid: &str, text: &str) -> String {
    let content = json!([{"type": "text", "text": text}]);
    let line = json!({"type": "user", "message": {"role": "user", "content": content},
        "parent_tool_use_id": null, "session_id": "", "uuid": uuid});
    format!("{line}\n")
}

pub(super) fn a_message_said_while_a_tool_works_is_absorbed(world: &World) {
    let (session, uuid, text) =
        (fresh(), fresh(), "<channel source=\"send\">\nhurry, @secret.txt\n</channel>");
    world.sandbox.write("work/secret.txt", "the secret word is plum\n");
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let call = Reply::bash("touch works; while [ ! -e go ]; do sleep 0.02; done; echo RESULT");
    world.stub.on(move |request| {
        let asked = request.body["messages"].to_string();
        asked
            .contains("work slowly")
            .then(|| if asked.contains("RESULT\"") { Reply::text("done") } else { call.clone() })
    });
    let mut running = world
        .invoke()
        .args(["--resume", &session])
        .env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1")
        .send(&fresh(), "work slowly")
        .spawn();
    wait_until("the tool to work", || world.sandbox.path("work/works").exists());
    running.write(line(&uuid, text));
    // Nothing says that it was read; what is read late is a turn of its own.
    std::thread::sleep(Duration::from_millis(300));
    world.sandbox.write("work/go", "");
    running.wait_line("its replay", PATIENCE, |line| line.contains("isReplay") && line.contains(&uuid));
    let outcome = running.wait(PATIENCE).expect_code(0);
    assert_eq!(outcome.result()["result"], "done");
    let request = world.stub.last_main().body["messages"].to_string();
    assert_eq!(request.matches("hurry, @secret.txt").count(), 1);
    assert!(!request.contains("the secret word is plum"), "the file that was named was read");
    let path = world.sandbox.transcript(&session);
    assert!(transcript::row(&path, &uuid).is_none(), "it has no row of its own");
    let rows = transcript::rows(&path);
    let queued: Vec<&Value> = rows.iter().filter(|r| r["attachment"]["type"] == "queued_command").collect();
    assert_eq!((queued.len(), &queued[0]["attachment"]["source_uuid"]), (1, &json!(uuid)));
    assert_eq!(queued[0]["attachment"]["prompt"], json!([{"type": "text", "text": text}]));

    // The uuid of an absorbed message is not known again: a second time would double it.
    world.stub.clear_rules();
    let outcome = world.resume(&session, &uuid, "once more").expect_code(0);
    assert_eq!(outcome.of_type("result").len(), 1, "{outcome:?}");
}

pub(super) fn a_message_said_too_late_is_a_turn_of_its_own(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    let gate = Gate::new();
    world.stub.on_text("slow", Reply::text("at last").gate(&gate));
    world.stub.on_text("hurry", Reply::text("yes"));
    let mut running = world.invoke().args(["--session-id", &session]).send(&fresh(), "slow one").spawn();
    gate.wait_reached(PATIENCE);
    running.write(line(&uuid, "hurry"));
    std::thread::sleep(Duration::from_millis(300));
    gate.open();
    running.wait_line("its replay", PATIENCE, |line| line.contains("isReplay") && line.contains(&uuid));
    let outcome = running.wait(PATIENCE).expect_code(0);
    assert_eq!(outcome.of_type("result").len(), 2, "{outcome:?}");
    assert_eq!(view(world), ["U:slow one", "A:at last", "U:hurry"]);
    assert!(transcript::row(&world.sandbox.transcript(&session), &uuid).is_some());
}
