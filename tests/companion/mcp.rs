//! The MCP server: its protocol, what its tools register, and the model's own use of it in a real turn.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::mcp::Client;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

const NOISE: &str = "NOISE-OF-A-TOOL";

/// A companion whose session is dirty after two turns; no runner lives.
fn dirty(subject: Subject, runner: &str) -> Companion {
    let settings = format!("rebuild = \"off\"\nmin_gain_percent = 1\n{runner}");
    let companion = Companion::new(subject, "stable_file_seconds = 0.2", &settings);
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    let call = Reply::bash(&format!("seq -f '{NOISE} %g' 1 4000"));
    stub.on_tool_turn("shed", call, Reply::text("The shed holds ropes."));
    for words in ["hello there", "look into the shed"] {
        companion.run(&["send", words]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    companion
}

fn fresh() -> Companion {
    Companion::new(Subject::StandIn, "", "")
}

fn id(answer: &Value) -> String {
    answer["operation"]["operation_id"].as_str().unwrap().to_owned()
}

fn wish() -> Value {
    json!({ "reason": "it is slow", "confirmation": "REBUILD" })
}

#[test]
fn it_says_what_it_is_and_answers_whatever_it_is_asked() {
    let companion = fresh();
    let mut client = Client::start(&companion);
    // New CLIs ask this first; without the metadata of that protocol the answer is an error.
    assert!(client.call("server/discover", &json!({}))["error"]["code"].is_i64());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.call("server/discover", &json!({ "_meta": meta }));
    assert!(found["result"]["supportedVersions"].as_array().is_some_and(|all| !all.is_empty()), "{found:#}");
    let about = client.initialize();
    assert_eq!(about["serverInfo"]["name"], "kael-thread-rebuild");
    assert_eq!(about["capabilities"], json!({ "tools": {} }));
    let instructions = about["instructions"].as_str().unwrap();
    assert!(instructions.contains("Answer the human first"), "{instructions}");
    assert_eq!(client.call("ping", &json!({}))["result"], json!({}));
    assert_eq!(client.call("kites/fly", &json!({}))["error"]["code"], -32601);
    assert_eq!(client.call("resources/read", &json!({ "uri": "x" }))["error"]["code"], -32601);
    let unknown = client.call("tools/call", &json!({ "name": "thread_rebuild_now", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("thread_rebuild_rollback_request"));
    client.end();
}

#[test]
fn seven_tools_are_listed_with_schemas_and_hints() {
    let companion = fresh();
    let mut client = Client::connect(&companion);
    let tools = client.call("tools/list", &json!({}))["result"]["tools"].clone();
    let mut table = String::new();
    for tool in tools.as_array().unwrap() {
        let hint = |name: &str| tool["annotations"][name].as_bool().unwrap();
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
        assert_eq!(tool["outputSchema"]["type"], "object");
        assert!(tool["description"].as_str().unwrap().len() > 60);
        let names = |schema: &str, key: &str| -> String {
            let all: Vec<&str> = match &tool[schema][key] {
                Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                Value::Object(fields) => fields.keys().map(String::as_str).collect(),
                _ => Vec::new(),
            };
            all.join(",")
        };
        table.push_str(&format!(
            "{} takes({}) must({}) gives({}){}{}{}\n",
            tool["name"].as_str().unwrap(),
            names("inputSchema", "properties"),
            names("inputSchema", "required"),
            names("outputSchema", "required"),
            if hint("readOnlyHint") { " read-only" } else { "" },
            if hint("destructiveHint") { " destructive" } else { "" },
            if hint("idempotentHint") { " idempotent" } else { "" },
        ));
    }
    insta::assert_snapshot!(table);
    client.end();
}

#[test]
fn mistakes_are_told_with_what_to_do_and_nothing_is_registered() {
    let companion = fresh();
    let mut client = Client::connect(&companion);
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";
    let mut told = String::new();
    for (name, arguments) in [
        ("dirty", json!({})),
        ("dirty", json!({ "transcript_path": "/etc/passwd" })),
        ("plan", json!({ "path": "x" })),
        ("doctor", json!({ "verbose": true })),
        ("request", json!({ "reason": "slow" })),
        ("request", json!({ "reason": "slow", "confirmation": "rebuild" })),
        ("request", json!({ "reason": 7, "confirmation": "REBUILD" })),
        ("request", json!({ "reason": " ", "confirmation": "REBUILD" })),
        ("status", json!({ "operation_id": "the last one" })),
        ("cancel", json!({ "operation_id": nobody, "confirmation": "REBUILD" })),
        ("rollback_request", json!({ "operation_id": nobody, "confirmation": "" })),
    ] {
        told.push_str(&format!("{name}: {}\n", client.refused(name, &arguments)));
    }
    let project = companion.world.sandbox.project_dir();
    insta::assert_snapshot!(told.replace(project.to_str().unwrap(), "PROJECT"));
    for name in ["cancel", "rollback_request"] {
        let word = if name == "cancel" { "CANCEL" } else { "ROLLBACK" };
        let arguments = json!({ "operation_id": nobody, "confirmation": word });
        assert!(client.refused(name, &arguments).contains("there is no operation"));
    }
    assert_eq!(client.done("status", &json!({}))["operation"], Value::Null);
    client.end();
}

#[test]
fn it_ends_on_sigint() {
    let companion = fresh();
    let client = Client::connect(&companion);
    // Its input stays open.
    let pid = client.running.pid();
    client.running.signal(Signal::INT);
    wait_until("the server ends", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    client.end();
}

#[test]
fn a_model_reads_the_same_figures_as_a_person() {
    let companion = dirty(Subject::StandIn, "");
    let mut client = Client::connect(&companion);
    let measured = client.done("dirty", &json!({}));
    assert_eq!(measured, companion.json(&["dirty"]));
    let transcript = companion.world.sandbox.transcript(&companion.session());
    let plan = client.done("plan", &json!({ "transcript_path": transcript }));
    assert_eq!((&plan["ok"], &plan["blocked_reason"]), (&json!(true), &json!("")));
    assert_eq!(plan["stats"], companion.json(&["plan"])["stats"]);
    let doctor = client.done("doctor", &json!({}));
    assert_eq!(doctor["checks"], companion.json(&["doctor"])["checks"]);
    client.end();
}

#[test]
fn a_request_only_registers_a_human_s_yes_rebuilds_and_another_goes_back() {
    let companion = dirty(Subject::StandIn, "consent = \"human\"");
    let before = companion.session();
    let runner = companion.start();
    let mut client = Client::connect(&companion);

    let asked = client.done("request", &wish());
    let operation = id(&asked);
    assert_eq!(asked["operation"]["status"], "pending");
    assert_eq!(asked["operation"]["waits_for_human"], true);
    assert!(asked["next"].as_str().unwrap().contains(&format!("kael-runner confirm {operation}")));
    assert_eq!(
        id(&client.done("request", &json!({ "reason": "still slow", "confirmation": "REBUILD" }))),
        operation
    );
    runner.wait_stderr("the question to the human", PATIENCE, |line| {
        line.contains("a rebuild is asked for by")
    });
    let seen = client.done("status", &json!({ "operation_id": operation }));
    assert_eq!(seen["operation"]["reasons"], json!(["it is slow", "still slow"]));
    assert_eq!(companion.session(), before, "nothing is switched without a yes");

    let cancelled = client.done("cancel", &json!({ "operation_id": operation, "confirmation": "CANCEL" }));
    assert_eq!(cancelled["operation"]["status"], "cancelled");
    assert!(companion.refused(&["confirm", "--yes"], 3).contains("no operation that is pending"));

    let operation = id(&client.done("request", &wish()));
    let answer = companion.json(&["confirm", &operation, "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    let rebuilt = companion.session();
    assert_ne!(rebuilt, before);

    let back = json!({ "operation_id": operation, "confirmation": "ROLLBACK" });
    for _ in 0..2 {
        let asked = client.done("rollback_request", &back);
        assert_eq!(asked["operation"]["status"], "rollback_pending");
        assert_eq!(
            asked["operation"]["waits_for_human"], true,
            "the yes to the rebuild is none to the rollback"
        );
    }
    runner.wait_stderr("the second question", PATIENCE, |line| line.contains("is wanted back"));
    assert_eq!(companion.session(), rebuilt);
    let kept = client.done("cancel", &json!({ "operation_id": operation, "confirmation": "CANCEL" }));
    assert_eq!(kept["operation"]["status"], "activated");
    client.done("rollback_request", &back);
    let answer = companion.json(&["confirm", "--yes"]);
    assert_eq!(answer["operation"]["status"], "rolled_back", "{answer:#}");
    assert_eq!(companion.session(), before);
    assert!(client.refused("rollback_request", &back).contains("What to do"));
    client.end();
    companion.stop(runner);
}

#[test]
fn a_rollback_that_would_leave_words_behind_is_refused_in_spite_of_a_yes() {
    let companion = dirty(Subject::StandIn, "");
    let operation = id(&companion.json(&["request", "--confirm", "REBUILD"]));
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let rebuilt = companion.session();
    companion.run(&["send", "hello again"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let mut client = Client::connect(&companion);
    client.done("rollback_request", &json!({ "operation_id": operation, "confirmation": "ROLLBACK" }));
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(
        client.done("status", &json!({}))["operation"]["status"],
        "rollback_pending",
        "no runner runs it"
    );
    assert!(companion.refused(&["confirm", "--yes"], 3).contains("would leave those words behind"));
    assert_eq!(client.done("status", &json!({}))["operation"]["status"], "activated");
    assert_eq!(companion.session(), rebuilt);
    client.end();
}

#[test]
fn a_question_about_a_rollback_runs_out_from_when_it_was_asked() {
    let companion = dirty(Subject::StandIn, "ask_expires = \"2s\"");
    let operation = id(&companion.json(&["request", "--confirm", "REBUILD"]));
    companion.run(&["run", "--until-idle"]).expect_code(0);
    std::thread::sleep(Duration::from_secs(2));
    let runner = companion.start();
    let mut client = Client::connect(&companion);
    client.done("rollback_request", &json!({ "operation_id": operation, "confirmation": "ROLLBACK" }));
    assert_eq!(companion.json(&["status"])["operation"]["status"], "rollback_pending");
    companion.wait_for_status("the question is withdrawn", |s| s["operation"]["status"] == "activated");
    client.end();
    companion.stop(runner);
}

#[test]
fn where_the_word_is_enough_an_idle_runner_takes_it_at_once() {
    let companion = dirty(Subject::StandIn, "consent = \"word\"");
    let before = companion.session();
    let runner = companion.start();
    let mut client = Client::connect(&companion);
    let started = std::time::Instant::now();
    let asked = client.done("request", &wish());
    assert_eq!(asked["operation"]["waits_for_human"], false);
    companion.wait_for_status("the rebuild", |s| s["operation"]["status"] == "activated");
    // The runner looks by itself every thirty seconds: it was woken.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_ne!(companion.session(), before);
    let operation = client.done("status", &json!({}));
    client.done("rollback_request", &json!({ "operation_id": id(&operation), "confirmation": "ROLLBACK" }));
    companion.wait_for_status("the rollback", |s| s["operation"]["status"] == "rolled_back");
    assert_eq!(companion.session(), before);
    client.end();
    companion.stop(runner);
}

/// The runner must not stumble over an operation that may not run yet.
#[test]
fn a_word_given_in_a_turn_that_is_cut_off_waits_until_that_turn_is_answered() {
    let companion = dirty(Subject::StandIn, "consent = \"word\"");
    let before = companion.session();
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_tool_turn("attic", Reply::bash("echo a drum"), Reply::text("A drum.").gate(&gate));
    let runner = companion.start();
    companion.run(&["send", "--key", "k", "look into the attic"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    let mut client = Client::connect(&companion);
    client.done("request", &wish());
    let spared = [runner.pid(), client.running.pid()];
    let survivors = companion.world.sandbox.survivors();
    for pid in
        survivors.into_iter().filter_map(rustix::process::Pid::from_raw).filter(|pid| !spared.contains(pid))
    {
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
    stub.clear_rules();
    companion.wait_for_status("the rebuild", |s| s["operation"]["status"] == "activated");
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 3, "the turn was answered first");
    assert_ne!(companion.session(), before);
    client.end();
    companion.stop(runner);
}

#[test]
fn a_word_given_while_it_counted_does_not_count_any_more_when_a_human_decides() {
    let companion = dirty(Subject::StandIn, "consent = \"word\"");
    let before = companion.session();
    let mut client = Client::connect(&companion);
    let operation = id(&client.done("request", &wish()));
    client.end();
    companion.configure("", "rebuild = \"off\"\nmin_gain_percent = 1\nconsent = \"human\"");
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.session(), before);
    let mut client = Client::connect(&companion);
    let seen = client.done("status", &json!({}));
    assert_eq!((id(&seen), &seen["operation"]["waits_for_human"]), (operation, &json!(true)));
    client.end();
}

/// A model's whole way on the real CLI: it measures, asks, is told what happens; a human says yes while nothing runs; the
/// next request is clean.
fn a_model_asks(subject: Subject, mentions: bool) {
    let companion = dirty(subject, "consent = \"human\"");
    if mentions {
        let path = companion.world.sandbox.path("config.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("max_retries = 0", "max_retries = 0\nmentions = true")).unwrap();
    }
    let before = companion.session();
    let stub = &companion.world.stub;
    let tool = |name: &str, input: Value| {
        Reply::empty().and_tool(&format!("mcp__kael-thread-rebuild__thread_rebuild_{name}"), input)
    };
    stub.on_tool_turn("how full", tool("dirty", json!({})), Reply::text("Rather full."));
    stub.on_tool_turn("please rebuild", tool("request", wish()), Reply::text("I have asked for it."));
    let runner = companion.start();
    assert_eq!(companion.say("how full are you?"), "Rather full.");
    let asked = stub.last_main();
    let names = asked.body["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str());
    let offered = names.filter(|name| name.starts_with("mcp__kael-thread-rebuild__")).count();
    assert_eq!(offered, 7, "none of them has to be searched for first");
    assert_eq!(
        asked.occurrences("conversation_turns"),
        1,
        "the result of the tool is in the request: {:#?}",
        asked.view()
    );
    assert_eq!(companion.say("then please rebuild"), "I have asked for it.");
    assert_eq!(stub.last_main().body["tools"], asked.body["tools"], "the prompt cache holds");
    assert!(stub.last_main().body.to_string().contains("It is registered, and nothing more"));
    let status = companion.json(&["status"]);
    assert_eq!(status["operation"]["status"], "pending", "{status:#}");
    assert_eq!(companion.session(), before);

    let answer = companion.json(&["confirm", "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    assert_ne!(companion.session(), before);
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    let clean = stub.last_main();
    assert_eq!((clean.occurrences(NOISE), clean.occurrences("conversation_turns")), (0, 0));
    assert_eq!(clean.occurrences("then please rebuild"), 1);
    companion.stop(runner);
    // With attachments disabled the CLI tells the model nothing but the tools' own descriptions.
    let told = stub.main_requests().iter().any(|r| r.occurrences("Nothing happens to the session while") > 0);
    assert_eq!(told, mentions);
    let left = companion.world.sandbox.survivors();
    assert!(left.is_empty(), "no server outlives its invocation: {left:?}");
}

#[test]
fn a_model_asks_and_a_human_decides_on_the_newest_cli() {
    for mentions in [false, true] {
        if let Some(subject) = Subject::real("2.1.332") {
            a_model_asks(subject, mentions);
        }
    }
}

#[test]
fn a_model_asks_and_a_human_decides_on_the_oldest_cli() {
    for mentions in [false, true] {
        if let Some(subject) = Subject::real("2.1.199") {
            a_model_asks(subject, mentions);
        }
    }
}

/// Where the word decides, the writing tools stay denied until the owner allows them by name.
#[test]
fn where_the_word_decides_writing_is_denied_unless_the_owner_allows_it() {
    let Some(subject) = Subject::newest_real() else { return };
    let companion = dirty(subject, "consent = \"word\"");
    let stub = &companion.world.stub;
    let call = Reply::empty().and_tool("mcp__kael-thread-rebuild__thread_rebuild_request", wish());
    stub.on_tool_turn("please rebuild", call, Reply::text("I could not."));
    companion.run(&["send", "please rebuild"]).expect_code(0);
    Running::spawn(&mut companion.command(&["run", "--until-idle"])).wait(PATIENCE).expect_code(0);
    assert_eq!(companion.json(&["status"])["operation"], Value::Null, "the tool was denied");
    assert!(stub.last_main().body.to_string().contains("haven't granted"), "{:#?}", stub.last_main().view());

    let path = companion.world.sandbox.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let allowed = "\"Bash\", \"mcp__kael-thread-rebuild__thread_rebuild_request\"";
    std::fs::write(&path, text.replace("\"Bash\"", allowed)).unwrap();
    let before = companion.session();
    companion.run(&["send", "please rebuild"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.json(&["status"])["operation"]["status"], "activated", "the word was enough");
    assert_ne!(companion.session(), before);
}
