//! What the human is told about each way of ending badly, what is tried again, and what it counts as. On the real CLI
//! of both versions and on the stand-in.

use kael_core::clock::{Clock, SystemClock};
use kael_runner::standin::context::Role;
use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;

fn subjects() -> Vec<Subject> {
    let mut all = vec![Subject::StandIn];
    all.extend(reals());
    all
}

fn reals() -> Vec<Subject> {
    ["2.1.332", "2.1.199"].into_iter().filter_map(Subject::real).collect()
}

fn companion(subject: Subject, runner: &str) -> Companion {
    eprintln!("on {subject:?}");
    let companion = Companion::new(subject, "", &format!("rebuild = \"off\"\n{runner}"));
    companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
    companion
}

/// The human texts of the last request that hold these words.
fn heard(companion: &Companion, words: &str) -> usize {
    companion.world.stub.last_main().texts(Role::User).iter().filter(|text| text.contains(words)).count()
}

/// Nothing that nobody said is in the last request.
fn nothing_made_up(companion: &Companion) {
    let last = companion.world.stub.last_main();
    for words in ["No response requested", "API Error", "Continue from where"] {
        assert_eq!(last.occurrences(words), 0, "{words:?} in {:#?}", last.view());
    }
}

fn last_outcome(companion: &Companion) -> (String, bool) {
    let last = &companion.json(&["status"])["last_outcome"];
    (last["outcome"].as_str().unwrap_or_default().to_owned(), last["charged"] == true)
}

/// A companion whose CLI has a subscription's login instead of a key.
fn with_subscription(companion: &Companion) {
    let path = companion.world.sandbox.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace(
        "ANTHROPIC_API_KEY = \"sk-ant-made-up\"",
        "CLAUDE_CODE_OAUTH_TOKEN = \"sk-ant-oat01-made-up\"",
    );
    std::fs::write(path, text).unwrap();
}

#[test]
fn weather_is_waited_out_and_counts_for_nothing() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 1");
        let stub = &companion.world.stub;
        let runner = companion.start();
        companion.say("hello");
        stub.on_text_times("overloaded", 1, Reply::error(529, "overloaded_error", "Overloaded"));
        stub.on_text_times("overloaded", 1, Reply::error(429, "rate_limit_error", "Too many requests"));
        companion.say("you are overloaded");
        assert_eq!(heard(&companion, "you are overloaded"), 1);
        nothing_made_up(&companion);
        stub.refuse();
        companion.run(&["send", "--key", "k", "are you there?"]).expect_code(0);
        let status = companion.wait_for_status("the retry is planned", |s| s["next_retry"]["why"] == "pause");
        assert_eq!(status["last_outcome"]["outcome"], "network", "{status:#}");
        assert_eq!(
            (&status["last_outcome"]["charged"], &status["turn"]["charged"]),
            (&json!(false), &json!(0))
        );
        let text = companion.run(&["status"]).expect_code(0).lines.join("\n");
        assert!(text.contains("retry      at ") && text.contains("could not be reached"), "{text}");
        stub.listen();
        companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
        assert_eq!(heard(&companion, "are you there?"), 1);
        assert!(companion.json(&["status"])["next_retry"].is_null());
        assert_eq!(last_outcome(&companion), ("answered".to_owned(), false));
        companion.stop(runner);
    }
}

#[test]
fn a_usage_limit_is_slept_out_until_it_resets() {
    for subject in reals() {
        let companion = companion(subject, "");
        with_subscription(&companion);
        let stub = &companion.world.stub;
        let runner = companion.start();
        companion.say("hello");
        // Five seconds from the refusal on, whenever the CLI gets to it.
        let reset = std::sync::Arc::new(std::sync::Mutex::new(None));
        let told = std::sync::Arc::clone(&reset);
        stub.on(move |request| {
            let mut told = told.lock().unwrap();
            if told.is_some() || !request.last_human().contains("limit") {
                return None;
            }
            let at = SystemClock.now().as_millis() / 1000 + 5;
            *told = Some(at);
            Some(
                Reply::error(429, "rate_limit_error", "made up")
                    .header("anthropic-ratelimit-unified-status", "rejected")
                    .header("anthropic-ratelimit-unified-reset", &at.to_string())
                    .header("anthropic-ratelimit-unified-representative-claim", "five_hour"),
            )
        });
        let reply = companion.run(&["send", "--wait", "what about the limit"]).expect_code(0);
        assert_eq!(
            reply.stderr.matches("usage limit is reached; it resets at").count(),
            1,
            "{}",
            reply.stderr
        );
        assert!(SystemClock.now().as_millis() / 1000 >= reset.lock().unwrap().unwrap());
        assert_eq!(heard(&companion, "what about the limit"), 1);
        nothing_made_up(&companion);
        companion.stop(runner);
    }
}

#[test]
fn a_refused_login_holds_the_queue_and_retry_goes_on() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 1");
        let stub = &companion.world.stub;
        let runner = companion.start();
        companion.say("hello");
        stub.on_text("expired", Reply::error(401, "authentication_error", "OAuth token has expired"));
        let failed = companion.run(&["send", "--wait", "--key", "k", "the login is expired"]).expect_code(1);
        assert!(failed.stderr.contains("log in again"), "{}", failed.stderr);
        let status = companion.wait_for_status("a probe is planned", |s| s["next_retry"]["why"] == "probe");
        assert_eq!((&status["hold"]["until"], &status["turn"]["charged"]), (&json!("probe"), &json!(0)));
        stub.clear_rules();
        stub.on_text("expired", Reply::text("Welcome back."));
        companion.json(&["retry"]);
        let reply = companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
        assert_eq!(reply.lines, ["Welcome back."]);
        assert_eq!(heard(&companion, "the login is expired"), 1);
        nothing_made_up(&companion);
        companion.stop(runner);
    }
}

#[test]
fn what_only_the_owner_can_mend_holds() {
    for subject in subjects() {
        let companion = companion(subject, "");
        let runner = companion.start();
        companion.say("hello");
        companion.world.stub.on_text("model", Reply::error(404, "not_found_error", "model: made-up"));
        let failed = companion.run(&["send", "--wait", "which model"]).expect_code(1);
        assert!(failed.stderr.contains("correct --model"), "{}", failed.stderr);
        let status = companion.json(&["status"]);
        assert_eq!(status["hold"]["until"], "human");
        assert_eq!(status["last_outcome"]["outcome"], "model");
        companion.stop(runner);
    }
}

/// A turn that ended with what was said, marked: the reply, the note, the outcome's word.
fn marked(companion: &Companion, words: &str, replies: &[&str], note: &str, outcome: &str) {
    let said = companion.run(&["send", "--wait", "--key", words, words]).expect_code(0);
    assert_eq!(said.lines.join("\n"), replies.join("\n\n"), "{said:?}");
    assert!(said.stderr.contains(&format!("note: {note}")), "{}", said.stderr);
    assert_eq!(last_outcome(companion), (outcome.to_owned(), false));
    let again = companion.json(&["send", "--wait", "--key", words, "x"]);
    assert!(again["mark"].as_str().unwrap().starts_with(note), "{again:#}");
}

#[test]
fn what_was_said_before_a_limit_of_the_owner_is_delivered_and_marked() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 1");
        let path = companion.world.sandbox.path("config.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"Bash\"]", "\"Bash\", \"--max-turns\", \"1\"]")).unwrap();
        let runner = companion.start();
        companion.say("hello");
        companion
            .world
            .stub
            .on_text("work", Reply::bash("echo done > side-effect").and_text("I look into it."));
        let look = json!({"command": "echo done >> side-effect", "description": "work"});
        companion.world.stub.on_text("work", Reply::text("I look into it.").and_tool("Bash", look));
        marked(&companion, "work on it", &["I look into it."], "ended by --max-turns", "max_turns");
        companion.say("hello again");
        assert_eq!(heard(&companion, "work on it"), 1);
        companion.stop(runner);
    }
}

/// With this in the CLI's arguments.
fn with_arguments(companion: &Companion, arguments: &str) {
    let path = companion.world.sandbox.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"Bash\"]", &format!("\"Bash\", {arguments}]"))).unwrap();
}

#[test]
fn after_an_end_behind_a_tool_the_conversation_goes_on_without_words_of_the_cli() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 1");
        with_arguments(&companion, "\"--max-turns\", \"1\"");
        let stub = &companion.world.stub;
        let look = json!({"command": "echo done >> side-effect; echo THE-RESULT", "description": "work"});
        stub.on_text("work", Reply::text("I look into it.").and_tool("Bash", look));
        let runner = companion.start();
        companion.say("hello");
        marked(&companion, "work on it", &["I look into it."], "ended by --max-turns", "max_turns");
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        nothing_made_up(&companion);
        assert_eq!((heard(&companion, "work on it"), heard(&companion, "hello again")), (1, 1));
        assert!(
            stub.last_main().occurrences("THE-RESULT") > 0,
            "what the tool did stays: {:#?}",
            stub.last_main().view()
        );
        let effects = std::fs::read_to_string(companion.world.sandbox.work().join("side-effect")).unwrap();
        assert_eq!(effects.lines().count(), 1);
        companion.stop(runner);
    }
}

#[test]
fn after_an_end_within_a_tool_the_conversation_goes_on_without_words_of_the_cli() {
    for subject in reals() {
        let companion = companion(subject, "max_attempts = 1");
        with_arguments(&companion, "\"--max-budget-usd\", \"0.000001\"");
        let stub = &companion.world.stub;
        let look = json!({"command": "echo done >> side-effect", "description": "work"});
        let usage = json!({"input_tokens": 100_000, "output_tokens": 1000, "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0});
        stub.on_text("work", Reply::text("I look into it.").and_tool("Bash", look).usage(usage));
        let runner = companion.start();
        companion.run(&["send", "--wait", "hello"]).expect_code(0);
        marked(&companion, "work on it", &["I look into it."], "ended by --max-budget-usd", "budget");
        companion.run(&["send", "--wait", "hello again"]).expect_code(0);
        nothing_made_up(&companion);
        assert_eq!((heard(&companion, "work on it"), heard(&companion, "hello again")), (1, 1));
        companion.stop(runner);
    }
}

#[test]
fn a_refusal_and_a_denied_tool_are_marked_and_the_conversation_goes_on() {
    for subject in reals() {
        let companion = companion(subject, "max_attempts = 1");
        let stub = &companion.world.stub;
        let runner = companion.start();
        companion.say("hello");
        let write = json!({"file_path": "/nowhere/x", "content": "x"});
        stub.on_tool_turn("write it", Reply::empty().and_tool("Write", write), Reply::text("I may not."));
        marked(&companion, "write it down", &["I may not."], "not allowed to use Write", "denied");
        for (words, reply, note, outcome) in [
            (
                "the forbidden",
                Reply::empty().stop_reason("refusal"),
                "the model refuses to answer",
                "refusal",
            ),
            ("say nothing", Reply::empty(), "the model said nothing", "empty"),
        ] {
            stub.on(move |request| {
                let all = request.texts(Role::User).join(" ");
                (all.contains(words) && !all.contains("hello again")).then(|| reply.clone())
            });
            marked(&companion, words, &[], note, outcome);
            stub.clear_rules();
        }
        stub.on_text("hello", Reply::text("Hello yourself."));
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        companion.stop(runner);
    }
}

/// Sends and gives the error that `send --wait` ends with.
fn dead(companion: &Companion, words: &str) -> String {
    companion.run(&["send", "--wait", words]).expect_code(1).stderr
}

#[test]
fn a_message_that_always_fails_becomes_a_dead_letter_and_the_next_one_goes_on() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 2");
        let stub = &companion.world.stub;
        let runner = companion.start();
        companion.say("hello");
        stub.on(|request| {
            let all = request.texts(Role::User).join(" ");
            all.contains("poison").then(|| Reply::error(400, "invalid_request_error", "nonsense"))
        });
        let told = dead(&companion, "this is poison");
        assert!(told.contains("was given up") && told.contains("failed 2 times"), "{told}");
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        assert_eq!(heard(&companion, "poison"), 0, "what is dead is out of the conversation");
        nothing_made_up(&companion);
        let status = companion.json(&["status"]);
        assert_eq!((&status["messages"]["dead"], &status["messages"]["answered"]), (&json!(1), &json!(2)));
        assert!(status["hold"].is_null());
        companion.stop(runner);
    }
}

#[test]
fn a_dead_first_message_does_not_stay_in_the_conversation_either() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 1");
        let runner = companion.start();
        companion.world.stub.on_text("poison", Reply::error(400, "invalid_request_error", "nonsense"));
        dead(&companion, "this is poison");
        assert_eq!(companion.say("hello"), "Hello yourself.");
        assert_eq!(companion.world.stub.last_main().texts(Role::User).len(), 1);
        companion.stop(runner);
    }
}

#[test]
fn a_batch_that_fails_twice_is_split_and_only_the_one_to_blame_dies() {
    for subject in subjects() {
        let companion = companion(subject, "max_attempts = 3");
        let stub = &companion.world.stub;
        companion.run(&["send", "hello"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        stub.on(|request| {
            let all = request.texts(Role::User).join(" ");
            all.contains("poison").then(|| Reply::error(400, "invalid_request_error", "nonsense"))
        });
        for words in ["hello one", "this is poison", "hello three"] {
            companion.run(&["send", "--key", words, words]).expect_code(0);
        }
        companion.run(&["run", "--until-idle"]).expect_code(0);
        let counts = &companion.json(&["status"])["messages"];
        assert_eq!((&counts["answered"], &counts["dead"]), (&json!(3), &json!(1)), "{counts}");
        let request = stub.last_main();
        assert_eq!(heard(&companion, "poison"), 0, "{:#?}", request.view());
        for words in ["hello one", "hello three"] {
            assert_eq!(heard(&companion, words), 1, "{:#?}", request.view());
        }
        nothing_made_up(&companion);
    }
}

#[test]
fn three_different_messages_failing_alike_hold_the_queue() {
    let companion = companion(Subject::StandIn, "max_attempts = 1");
    let runner = companion.start();
    companion.say("hello");
    companion.world.stub.on(|_| Some(Reply::error(400, "invalid_request_error", "nonsense")));
    assert!(dead(&companion, "the first").contains("was given up"));
    assert!(dead(&companion, "the second").contains("was given up"));
    let told = dead(&companion, "the third");
    assert!(
        told.contains("3 different messages have failed alike") && told.contains("queue is held"),
        "{told}"
    );
    let status = companion.json(&["status"]);
    assert_eq!((&status["messages"]["dead"], &status["messages"]["delivering"]), (&json!(2), &json!(1)));
    companion.world.stub.clear_rules();
    companion.json(&["retry"]);
    companion.wait_for_status("the third is answered", |s| s["messages"]["answered"] == 2);
    companion.stop(runner);
}

/// Makes the API refuse requests with tool results in their history.
fn refuse_history(companion: &Companion, status: u16, kind: &'static str, message: &'static str) {
    companion.world.stub.on(move |request| {
        (request.view().iter().any(|line| line.contains("<Bash>")) && request.last_human().contains("after"))
            .then(|| Reply::error(status, kind, message))
    });
}

fn with_a_tool_turn(subject: Subject, emergency: &str) -> Companion {
    let companion = companion(subject, emergency);
    companion.world.stub.on_tool_turn(
        "shed",
        Reply::bash("seq 1 3000"),
        Reply::text("The shed holds ropes."),
    );
    companion
}

#[test]
fn a_conversation_that_is_too_long_is_rebuilt_in_an_emergency_and_the_message_answered() {
    for subject in subjects() {
        let companion = with_a_tool_turn(subject, "emergency = \"auto\"");
        let runner = companion.start();
        companion.say("look into the shed");
        let before = companion.session();
        refuse_history(
            &companion,
            400,
            "invalid_request_error",
            "prompt is too long: 250000 tokens > 200000 maximum",
        );
        companion.world.stub.on_text("nothing", Reply::brain());
        companion.say("and after that?");
        assert_ne!(companion.session(), before, "the session was rebuilt");
        let saved = companion.json(&["usage"])["saved"][0].clone();
        assert!(saved["level_before"].as_u64() > saved["context_after"].as_u64(), "{saved:#}");
        assert!(saved["tokens"].as_u64().unwrap() > 0, "{saved:#}");
        assert_eq!(heard(&companion, "and after that?"), 1);
        assert_eq!(heard(&companion, "look into the shed"), 1);
        nothing_made_up(&companion);
        companion.stop(runner);
    }
}

#[test]
fn a_broken_history_asks_for_a_rebuild_and_a_yes_gets_the_message_answered() {
    for subject in reals() {
        let companion = with_a_tool_turn(subject, "emergency = \"ask\"");
        let runner = companion.start();
        companion.say("look into the shed");
        let before = companion.session();
        refuse_history(
            &companion,
            400,
            "invalid_request_error",
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
        );
        let told = dead(&companion, "and after that?");
        assert!(told.contains("A rebuild mends it") && told.contains("kael-runner confirm"), "{told}");
        assert_eq!(companion.session(), before, "nothing is switched without a yes");
        companion.json(&["confirm", "--yes"]);
        companion.wait_for_status("the message is answered", |s| s["messages"]["answered"] == 2);
        assert_ne!(companion.session(), before);
        assert_eq!(heard(&companion, "and after that?"), 1);
        companion.stop(runner);
    }
}

#[test]
fn when_a_rebuild_does_not_help_the_queue_is_held_after_one() {
    let companion = with_a_tool_turn(Subject::StandIn, "emergency = \"auto\"");
    let runner = companion.start();
    companion.say("look into the shed");
    companion.world.stub.on_text(
        "after",
        Reply::error(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
    );
    let told = dead(&companion, "and after that?");
    assert!(told.contains("also after the rebuild"), "{told}");
    let operations = companion.history().iter().filter(|(_, _, by_operation)| *by_operation).count();
    assert_eq!(operations, 1);
    companion.stop(runner);
}

#[test]
fn a_missing_program_is_looked_for_again_and_then_held() {
    let companion = companion(Subject::StandIn, "max_attempts = 3");
    let program = companion.world.sandbox.path("bin/claude");
    let aside = companion.world.sandbox.path("bin/aside");
    let runner = companion.start();
    companion.say("hello");
    // An updater takes it away for a moment.
    std::fs::rename(&program, &aside).unwrap();
    companion.run(&["send", "--key", "k", "hello again"]).expect_code(0);
    companion.wait_for_status("it is missed", |s| !s["next_retry"].is_null());
    std::fs::rename(&aside, &program).unwrap();
    companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
    std::fs::rename(&program, &aside).unwrap();
    let told = dead(&companion, "hello a third time");
    assert!(told.contains("there is no executable file") && told.contains("kael-runner retry"), "{told}");
    assert_eq!(companion.json(&["status"])["turn"]["charged"], 0);
    std::fs::rename(&aside, &program).unwrap();
    companion.json(&["retry"]);
    companion.wait_for_status("it goes on", |s| s["messages"]["answered"] == 3);
    companion.stop(runner);
}

#[test]
fn a_missing_server_of_tools_is_told_beside_the_answer() {
    for subject in reals() {
        let companion = companion(subject, "");
        let path = companion.world.sandbox.path("config.toml");
        let servers = r#"'{"mcpServers":{"gone":{"command":"/nowhere/server","args":[]}}}'"#;
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"Bash\"]", &format!("\"Bash\", \"--mcp-config\", {servers}]")))
            .unwrap();
        let runner = companion.start();
        marked(&companion, "hello", &["Hello yourself."], "without the MCP servers gone", "answered");
        companion.stop(runner);
    }
}

#[test]
fn usage_is_kept_by_day_and_session() {
    for subject in subjects() {
        let companion = companion(subject, "");
        let runner = companion.start();
        companion.say("hello");
        companion.say("hello again");
        companion.stop(runner);
        let usage: Value = companion.json(&["usage"]);
        let days = usage["days"].as_array().unwrap();
        assert_eq!(days.len(), 1, "{usage:#}");
        assert_eq!((&days[0]["turns"], &days[0]["session"]), (&json!(2), &json!(companion.session())));
        for field in ["input", "cache_read", "cache_creation", "output", "context", "level"] {
            assert!(days[0][field].as_f64().unwrap() > 0.0, "{field}: {usage:#}");
        }
        let text = companion.run(&["usage"]).expect_code(0).lines.join("\n");
        assert!(text.contains("2 turns"), "{text}");
    }
}

#[test]
fn a_program_that_is_replaced_while_it_runs_finishes_and_the_next_turn_runs_the_new_one() {
    for subject in subjects() {
        let companion = companion(subject, "");
        let sandbox = &companion.world.sandbox;
        let program = sandbox.path("bin/claude");
        let real = std::fs::canonicalize(&program).unwrap();
        // The stand-in goes by its name.
        let stand_in = if companion.world.subject == Subject::StandIn { "stand-in-claude " } else { "" };
        let ran = sandbox.path("ran");
        let script =
            format!("#!/bin/sh\ntouch {}\nexec {} {stand_in}\"$@\"\n", ran.display(), real.display());
        let next = sandbox.write("bin/next", script);
        std::fs::set_permissions(&next, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let gate = crate::stubs::gate::Gate::new();
        companion.world.stub.on_text("slow", Reply::text("At last.").gate(&gate));
        let runner = companion.start();
        companion.run(&["send", "--key", "k", "a slow one"]).expect_code(0);
        gate.wait_reached(crate::support::PATIENCE);
        std::fs::rename(&next, &program).unwrap();
        gate.open();
        let reply = companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
        assert_eq!(reply.lines, ["At last."]);
        assert!(!ran.exists());
        assert_eq!(companion.say("hello"), "Hello yourself.");
        assert!(ran.exists());
        companion.stop(runner);
    }
}
