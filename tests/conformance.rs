//! The conformance suite: every scenario runs on the stand-in and on the real CLI, against the same
//! stub, and asserts on what the API received and on the rows that were written. Where the two pinned
//! versions differ the scenario says so.

use std::time::Duration;

use kael_runner::standin::context::Role;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::invocation::World;
use crate::support::subject::Subject;
use crate::support::transcript::{self, Candidate};
use crate::support::wait_until;

/// Makes a test of every scenario for every subject it names.
macro_rules! scenarios {
    ($($module:ident: $subject:expr => [$($name:ident),* $(,)?];)*) => {$(
        mod $module {
            use super::*;
            $(#[test]
            fn $name() {
                let subject: Option<Subject> = $subject;
                if let Some(subject) = subject {
                    super::$name(&World::new(subject));
                }
            })*
        }
    )*};
}

scenarios! {
    stand_in: Some(Subject::StandIn) => [
        says_which_version_it_is, a_new_session_takes_our_id_and_our_uuid, a_resumed_session_grows_in_place,
        a_known_uuid_is_swallowed, an_unknown_id_is_refused, an_id_in_use_is_refused, an_unknown_flag_is_refused,
        an_api_error_is_left_out_of_the_next_request, every_api_error_has_its_exit_and_row,
        a_killed_turn_is_resumed_clean, a_killed_turn_without_resume_gets_a_synthetic_answer,
        an_api_error_is_cut_off_by_resuming_before_it, sigterm_ends_with_143,
        a_minimal_candidate_resumes_block_for_block, a_message_of_two_blocks_stays_two_blocks,
        mentions_are_off_by_environment, a_command_in_an_envelope_is_words, a_bare_clear_is_a_command,
        a_tool_turn_leaves_its_rows, parallel_tools_reach_the_api_in_order, a_tool_that_is_not_allowed_is_denied,
        a_kill_inside_a_tool_runs_it_again, finished_tools_are_kept_by_a_resume_with_our_words,
        resuming_at_a_tool_call_loses_its_result, the_last_row_of_the_file_decides_the_branch,
        last_prompt_decides_the_branch, a_torn_tail_is_ignored, partial_messages_are_streamed,
        a_cut_stream_is_asked_for_again, a_refused_connection_is_an_error, two_lines_are_two_turns,
        a_fork_takes_a_new_id_and_the_same_rows, plain_text_works,
    ];
    real_newest: Subject::newest_real() => [
        says_which_version_it_is, a_new_session_takes_our_id_and_our_uuid, a_resumed_session_grows_in_place,
        a_known_uuid_is_swallowed, an_unknown_id_is_refused, an_id_in_use_is_refused, an_unknown_flag_is_refused,
        an_api_error_is_left_out_of_the_next_request, every_api_error_has_its_exit_and_row,
        a_killed_turn_is_resumed_clean, a_killed_turn_without_resume_gets_a_synthetic_answer,
        an_api_error_is_cut_off_by_resuming_before_it, sigterm_ends_with_143,
        a_minimal_candidate_resumes_block_for_block, a_message_of_two_blocks_stays_two_blocks,
        mentions_are_off_by_environment, a_command_in_an_envelope_is_words, a_bare_clear_is_a_command,
        a_tool_turn_leaves_its_rows, parallel_tools_reach_the_api_in_order, a_tool_that_is_not_allowed_is_denied,
        a_kill_inside_a_tool_runs_it_again, finished_tools_are_kept_by_a_resume_with_our_words,
        resuming_at_a_tool_call_loses_its_result, the_last_row_of_the_file_decides_the_branch,
        last_prompt_decides_the_branch, a_torn_tail_is_ignored, partial_messages_are_streamed,
        a_cut_stream_is_asked_for_again, a_refused_connection_is_an_error, two_lines_are_two_turns,
        a_fork_takes_a_new_id_and_the_same_rows, plain_text_works,
    ];
    real_2_1_199: Subject::real("2.1.199") => [
        says_which_version_it_is, a_new_session_takes_our_id_and_our_uuid, a_resumed_session_grows_in_place,
        a_known_uuid_is_swallowed, an_api_error_is_left_out_of_the_next_request, a_killed_turn_is_resumed_clean,
        an_api_error_is_cut_off_by_resuming_before_it, sigterm_ends_with_143,
        a_minimal_candidate_resumes_block_for_block, a_message_of_two_blocks_stays_two_blocks,
        mentions_are_off_by_environment, a_command_in_an_envelope_is_words, a_tool_turn_leaves_its_rows,
        parallel_tools_reach_the_api_in_order, the_last_row_of_the_file_decides_the_branch,
        last_prompt_decides_the_branch,
    ];
}

fn fresh() -> String {
    Uuid::new_v4().to_string()
}

fn view(world: &World) -> Vec<String> {
    world.stub.last_main().view()
}

fn stays_unsaid(world: &World, texts: &[&str]) {
    let request = world.stub.last_main();
    for text in texts {
        assert_eq!(request.occurrences(text), 0, "{text:?} reached the API: {:#?}", request.view());
    }
}

fn says_which_version_it_is(world: &World) {
    let mut command = world.claude();
    command.arg("--version");
    let outcome = crate::support::process::Running::spawn(&mut command).wait(PATIENCE).expect_code(0);
    let (version, maker) = outcome.lines[0].split_once(' ').unwrap();
    assert_eq!(version, world.subject.version());
    let expected = if world.subject == Subject::StandIn { "(kael stand-in)" } else { "(Claude Code)" };
    assert_eq!(maker, expected);
}

fn a_new_session_takes_our_id_and_our_uuid(world: &World) {
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
    assert_eq!(transcript::outline(&path), ["U:灯笼是绿色的", "A:好的 🏮"]);
    let row = transcript::row(&path, &uuid).unwrap();
    assert_eq!((&row["parentUuid"], &row["sessionId"]), (&Value::Null, &json!(session)));
    assert_eq!(row["version"], json!(world.subject.version()));
    assert_eq!(row["promptSource"], "sdk");
    assert!(transcript::rows(&path).iter().any(|r| r["type"] == "last-prompt"), "no bookkeeping at the end");
}

fn a_resumed_session_grows_in_place(world: &World) {
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

fn a_known_uuid_is_swallowed(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &uuid, "the first and only").expect_code(0);
    let path = world.sandbox.transcript(&session);
    let rows = transcript::outline(&path);
    let outcome = world.resume(&session, &uuid, "the first and only").expect_code(0);
    assert!(outcome.of_type("result").is_empty(), "{outcome:?}");
    assert_eq!(outcome.of_type("user")[0]["isReplay"], json!(true));
    assert_eq!(world.stub.main_requests().len(), 1);
    assert_eq!(transcript::outline(&path), rows);
}

fn an_unknown_id_is_refused(world: &World) {
    let session = fresh();
    let outcome = world.resume(&session, &fresh(), "anyone there").expect_code(1);
    let wanted = format!("No conversation found with session ID: {session}");
    assert!(outcome.stderr.contains(&wanted), "{outcome:?}");
    let result = outcome.result();
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("error_during_execution"), &json!(true)));
    assert_eq!(result["errors"], json!([wanted]));
    assert!(world.stub.main_requests().is_empty());
}

fn an_id_in_use_is_refused(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "one").expect_code(0);
    let outcome = world.begin(&session, &fresh(), "two").expect_code(1);
    assert!(
        outcome.stderr.contains(&format!("Error: Session ID {session} is already in use.")),
        "{outcome:?}"
    );
    assert_eq!(world.stub.main_requests().len(), 1);
}

fn an_unknown_flag_is_refused(world: &World) {
    let outcome = world.invoke().args(["--frobnicate"]).send(&fresh(), "x").run().expect_code(1);
    assert!(outcome.stderr.contains("error: unknown option '--frobnicate'"), "{outcome:?}");
    let both = world.invoke().args(["--resume", &fresh(), "--session-id", &fresh()]).run().expect_code(1);
    assert!(
        both.stderr.contains("--session-id with --continue or --resume also needs --fork-session"),
        "{both:?}"
    );
}

fn an_api_error_is_left_out_of_the_next_request(world: &World) {
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

fn every_api_error_has_its_exit_and_row(world: &World) {
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
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.wait(PATIENCE).code(), -9);
    gate.open();
}

fn a_killed_turn_is_resumed_clean(world: &World) {
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

fn a_killed_turn_without_resume_gets_a_synthetic_answer(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    world.begin(&session, &fresh(), "seed").expect_code(0);
    kill_while_asking(world, &session, &fresh());
    world.resume(&session, &fresh(), "next").expect_code(0);
    assert_eq!(view(world), ["U:seed", "A:seeded", "U:ask", "A:No response requested.", "U:next"]);
    let outline = transcript::outline(&world.sandbox.transcript(&session));
    assert!(outline.contains(&"A~No response requested.".to_owned()), "{outline:#?}");
}

fn an_api_error_is_cut_off_by_resuming_before_it(world: &World) {
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

fn sigterm_ends_with_143(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let gate = Gate::new();
    world.stub.on_text("ask", Reply::text("too late").gate(&gate));
    let running = world.invoke().args(["--resume", &session]).send(&uuid, "ask").spawn();
    gate.wait_reached(PATIENCE);
    running.signal(rustix::process::Signal::TERM);
    let outcome = running.wait(PATIENCE).expect_code(143);
    gate.open();
    assert!(outcome.of_type("result").is_empty(), "{outcome:?}");
    let path = world.sandbox.transcript(&session);
    assert!(transcript::row(&path, &uuid).is_some(), "the message was not written before the request");
    assert_eq!(transcript::outline(&path).last().unwrap(), "U:ask");
}

fn a_minimal_candidate_resumes_block_for_block(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    let path = world.sandbox.transcript(&session);
    Candidate::new(&session)
        .user(&["שלום, the kite is blue"])
        .assistant(&["noted", "and a second block"])
        .user(&["two", "blocks 🪁"])
        .assistant(&["好"])
        .write(&path);
    let candidate = std::fs::read(&path).unwrap();
    world.resume(&session, &uuid, "what now").expect_code(0);
    assert_eq!(
        view(world),
        [
            "U:שלום, the kite is blue",
            "A:noted",
            "A:and a second block",
            "U:two",
            "U:blocks 🪁",
            "A:好",
            "U:what now"
        ]
    );
    let after = std::fs::read(&path).unwrap();
    assert!(after.starts_with(&candidate), "rows of a candidate, with fields of ours, stay as they were");
    let last = Candidate::new(&session);
    drop(last);
    let rows = transcript::rows(&path);
    assert_eq!(transcript::row(&path, &uuid).unwrap()["parentUuid"], rows[3]["uuid"]);
}

fn a_message_of_two_blocks_stays_two_blocks(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    let outcome =
        world.invoke().args(["--session-id", &session]).send_blocks(&uuid, &["one kite", "two boats"]).run();
    outcome.expect_code(0);
    assert_eq!(view(world), ["U:one kite", "U:two boats"]);
    let row = transcript::row(&world.sandbox.transcript(&session), &uuid).unwrap();
    assert_eq!(
        row["message"]["content"],
        json!([{"type": "text", "text": "one kite"}, {"type": "text", "text": "two boats"}])
    );
    let enqueued = transcript::rows(&world.sandbox.transcript(&session));
    let enqueued = enqueued.iter().find(|r| r["operation"] == "enqueue").unwrap();
    assert!(enqueued["content"].is_null(), "blocks are not copied into the queue row: {enqueued}");
}

fn mentions_are_off_by_environment(world: &World) {
    world.sandbox.write("work/note.txt", "the secret word is plum\n");
    let session = fresh();
    world.begin(&session, &fresh(), "look @note.txt please").expect_code(0);
    assert_eq!(world.stub.last_main().occurrences("the secret word is plum"), 1);

    let (session, text) =
        (fresh(), "<channel source=\"send\" user=\"Wen\">\nlook @note.txt please\n</channel>");
    let quiet = world.invoke().env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1").args(["--session-id", &session]);
    quiet.send(&fresh(), text).run().expect_code(0);
    assert_eq!(view(world), [format!("U:{text}")]);
    stays_unsaid(world, &["the secret word is plum"]);
}

fn a_command_in_an_envelope_is_words(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let text = "<channel source=\"send\" user=\"Wen\" message_id=\"k1\">\n/clear\n</channel>";
    let outcome = world.resume(&session, &fresh(), text).expect_code(0);
    assert_eq!(outcome.result()["session_id"], json!(session));
    assert_eq!(world.stub.last_main().last_human(), text);
}

fn a_bare_clear_is_a_command(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let outcome = world.resume(&session, &uuid, "/clear").expect_code(0);
    let result = outcome.result();
    assert_ne!(result["session_id"], json!(session));
    assert_eq!(result["result"], "");
    assert_eq!(world.stub.main_requests().len(), 1);
    assert!(transcript::row(&world.sandbox.transcript(&session), &uuid).is_none());
}

fn a_tool_turn_leaves_its_rows(world: &World) {
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

fn parallel_tools_reach_the_api_in_order(world: &World) {
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

fn a_tool_that_is_not_allowed_is_denied(world: &World) {
    let session = fresh();
    world.stub.on_tool_turn("touch", Reply::bash("touch ran"), Reply::text("I could not."));
    let mut command = world.claude();
    command.args(["-p", "--session-id", &session, "--output-format", "json", "touch it"]);
    let outcome = crate::support::process::Running::spawn(&mut command).wait(PATIENCE).expect_code(0);
    let result: Value = serde_json::from_str(&outcome.lines[0]).unwrap();
    assert_eq!(result["permission_denials"][0]["tool_name"], "Bash");
    assert_eq!(result["permission_denials"][0]["tool_input"]["command"], "touch ran");
    assert!(!world.sandbox.path("work/ran").exists());
}

/// Kills the CLI while its tool runs, and the tool with it.
fn kill_inside_tool(world: &World, session: &str, uuid: &str) {
    let pipe = world.sandbox.path("work/count");
    let running = world.invoke().args(["--resume", session]).send(uuid, "count once").spawn();
    wait_until("the tool to run", || std::fs::read_to_string(&pipe).is_ok_and(|t| t == "x\n"));
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.wait(PATIENCE).code(), -9);
}

fn a_kill_inside_a_tool_runs_it_again(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let wait = "echo x >> count; while [ ! -e go ]; do sleep 0.05; done";
    world.stub.on_tool_turn("count", Reply::bash(wait), Reply::text("counted"));
    kill_inside_tool(world, &session, &uuid);
    std::fs::write(world.sandbox.path("work/go"), "").unwrap();
    let again =
        world.invoke().resume_interrupted().args(["--resume", &session]).send(&uuid, "count once").run();
    assert_eq!(again.expect_code(0).result()["result"], "counted");
    assert_eq!(std::fs::read_to_string(world.sandbox.path("work/count")).unwrap(), "x\nx\n");
}

fn finished_tools_are_kept_by_a_resume_with_our_words(world: &World) {
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
fn resuming_at_a_tool_call_loses_its_result(world: &World) {
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

fn branches(world: &World, session: &str) -> (String, std::path::PathBuf) {
    let path = world.sandbox.transcript(session);
    Candidate::new(session)
        .user(&["root"])
        .assistant(&["ok"])
        .user(&["left"])
        .assistant(&["left it is"])
        .write(&path);
    let rows = transcript::rows(&path);
    let mut extra = String::new();
    let mut parent = rows[1]["uuid"].clone();
    for row in &rows[2..] {
        let mut row = row.clone();
        row["uuid"] = json!(fresh());
        row["parentUuid"] = parent;
        let right = row["message"].to_string().replace("left", "right");
        row["message"] = serde_json::from_str(&right).unwrap();
        parent = row["uuid"].clone();
        extra.push_str(&format!("{row}\n"));
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(extra.as_bytes());
    std::fs::write(&path, bytes).unwrap();
    (rows[3]["uuid"].as_str().unwrap().to_owned(), path)
}

fn the_last_row_of_the_file_decides_the_branch(world: &World) {
    let session = fresh();
    branches(world, &session);
    world.resume(&session, &fresh(), "where am I").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:right", "A:right it is", "U:where am I"]);
}

fn last_prompt_decides_the_branch(world: &World) {
    let session = fresh();
    let (left, path) = branches(world, &session);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let row = json!({"type": "last-prompt", "lastPrompt": "left", "leafUuid": left, "sessionId": session});
    text.insert_str(0, &format!("{row}\n"));
    std::fs::write(&path, text).unwrap();
    world.resume(&session, &fresh(), "where am I").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:left", "A:left it is", "U:where am I"]);
}

fn a_torn_tail_is_ignored(world: &World) {
    let session = fresh();
    let path = world.sandbox.transcript(&session);
    Candidate::new(&session).user(&["root"]).assistant(&["ok"]).write(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(b"{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"to\xe7\x81");
    std::fs::write(&path, bytes).unwrap();
    let uuid = fresh();
    world.resume(&session, &uuid, "go on").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:go on"]);
    assert!(transcript::row(&path, &uuid).is_some(), "the next rows begin on a line of their own");
}

fn partial_messages_are_streamed(world: &World) {
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

fn a_cut_stream_is_asked_for_again(world: &World) {
    let session = fresh();
    world.stub.on(|request| {
        let reply = Reply::text("whole this time");
        Some(if request.body["stream"] == json!(true) { reply.cut_after(3) } else { reply })
    });
    let outcome = world.begin(&session, &fresh(), "say it").expect_code(0);
    assert_eq!(outcome.result()["result"], "whole this time");
    assert_eq!(transcript::outline(&world.sandbox.transcript(&session)), ["U:say it", "A:whole this time"]);
}

fn a_refused_connection_is_an_error(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    world.stub.refuse();
    let result = world.resume(&session, &fresh(), "ask").expect_code(1).result();
    assert_eq!((&result["is_error"], &result["api_error_status"]), (&json!(true), &Value::Null));
    world.stub.listen();
    world.resume(&session, &fresh(), "ask").expect_code(0);
}

fn two_lines_are_two_turns(world: &World) {
    let session = fresh();
    let outcome =
        world.invoke().args(["--session-id", &session]).send(&fresh(), "one").send(&fresh(), "two").run();
    assert_eq!(outcome.expect_code(0).of_type("result").len(), 2);
    assert_eq!(world.stub.last_main().texts(Role::User), ["one", "two"]);
}

fn a_fork_takes_a_new_id_and_the_same_rows(world: &World) {
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

fn plain_text_works(world: &World) {
    let session = fresh();
    world.stub.on_text("seed", Reply::text("seeded"));
    let mut command = world.claude();
    command.args(["-p", "--session-id", &session]);
    let mut running = crate::support::process::Running::spawn(&mut command);
    running.write("seed\n").close();
    let outcome = running.wait(PATIENCE).expect_code(0);
    assert_eq!(outcome.lines, ["seeded"]);
    assert!(outcome.took < Duration::from_secs(30));
}
