//! The server registered for a `claude` that somebody else starts, on the real CLI.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

/// The companion's CLI, as a person calls it in the companion's folder.
fn claude(companion: &Companion, arguments: &[&str]) -> Command {
    let mut command = companion.world.claude();
    command.args(arguments);
    command
}

fn ask(companion: &Companion, words: &str) -> Value {
    let flags = ["-p", "--output-format", "json"];
    let mut running = Running::spawn(&mut claude(companion, &flags));
    running.write(words);
    running.wait(PATIENCE).expect_code(0).result()
}

fn registered(companion: &Companion) -> String {
    let out = Running::spawn(&mut claude(companion, &["mcp", "get", "kael-thread-rebuild"])).wait(PATIENCE);
    format!("{}\n{}", out.lines.join("\n"), out.stderr)
}

fn goes_in_and_out(subject: Subject) {
    let companion = Companion::new(subject, "", "");
    let settings = companion.world.sandbox.work().join(".claude/settings.local.json");
    let text = "{\n  \"model\": \"opus\",\n  \"permissions\": {\n    \"allow\": [\"Bash(git log)\"]\n  },\n  \"env\": {\"A\": \"1\"}\n}\n";
    companion.world.sandbox.write("work/.claude/settings.local.json", text);

    let done = companion.json(&["mcp", "install"]);
    assert_eq!((&done["registered"], &done["allow_list"]), (&json!(true), &json!(true)));
    let seen = registered(&companion);
    assert!(seen.contains("Connected") && seen.contains("Local config"), "{seen}");
    let after = fs::read_to_string(&settings).unwrap();
    assert!(after.contains("Bash(git log)") && after.contains("\"env\": {\"A\": \"1\"}"));
    assert_eq!(after.matches("mcp__kael-thread-rebuild__").count(), 4, "{after}");
    for writing in ["_request", "_cancel", "_rollback_request"] {
        assert!(!after.contains(&format!("thread_rebuild{writing}\"")), "{after}");
    }
    assert_eq!(fs::read_to_string(settings.with_extension("json.kael-backup")).unwrap(), text);

    // Twice is once, byte for byte.
    let config = companion.world.sandbox.home().join(".claude.json");
    let servers = |path: &std::path::Path| {
        let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        value["projects"].as_object().unwrap().values().next().unwrap()["mcpServers"].clone()
    };
    let before = servers(&config);
    let again = companion.json(&["mcp", "install"]);
    assert_eq!((&again["registered"], &again["allow_list"]), (&json!(false), &json!(false)));
    assert_eq!((servers(&config), fs::read_to_string(&settings).unwrap()), (before, after));

    // Seven tools; the reading ones without asking, the writing ones not.
    // As the human has done who opened `claude` there: 2.1.199 reads a folder's allow list only then.
    let mut value: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    for project in value["projects"].as_object_mut().unwrap().values_mut() {
        project["hasTrustDialogAccepted"] = json!(true);
    }
    fs::write(&config, value.to_string()).unwrap();
    let stub = &companion.world.stub;
    let tool = |name: &str, input: Value| {
        Reply::empty().and_tool(&format!("mcp__kael-thread-rebuild__thread_rebuild_{name}"), input)
    };
    stub.on_tool_turn("how is it", tool("doctor", json!({})), Reply::text("Fine."));
    let wish = json!({ "reason": "slow", "confirmation": "REBUILD" });
    stub.on_tool_turn("rebuild it", tool("request", wish), Reply::text("I could not."));
    assert_eq!(ask(&companion, "how is it?")["result"], "Fine.");
    let asked = stub.last_main();
    let said = asked.body.to_string();
    assert!(said.contains("claude_binary"), "the tool was run: {said}");
    assert_eq!(ask(&companion, "rebuild it")["result"], "I could not.");
    assert!(stub.last_main().body.to_string().contains("haven't granted"), "{:#?}", stub.last_main().view());
    let listed: Vec<Value> =
        stub.main_requests().iter().map(|request| request.body["tools"].clone()).collect();
    let offered = listed.iter().map(|tools| {
        let names = tools.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str());
        names.filter(|name| name.starts_with("mcp__kael-thread-rebuild__")).count()
    });
    let mentioned =
        stub.last_main().body.to_string().matches("mcp__kael-thread-rebuild__thread_rebuild_").count();
    assert!(
        offered.clone().any(|count| count == 7) || mentioned >= 7,
        "{:?}, {mentioned}",
        offered.collect::<Vec<_>>()
    );

    let gone = companion.json(&["mcp", "uninstall"]);
    assert_eq!((&gone["registered"], &gone["allow_list"]), (&json!(true), &json!(true)));
    assert!(registered(&companion).contains("No MCP server"), "{}", registered(&companion));
    assert!(!fs::read_to_string(&settings).unwrap().contains("kael-thread-rebuild"));
    let again = companion.json(&["mcp", "uninstall"]);
    assert_eq!((&again["registered"], &again["allow_list"]), (&json!(false), &json!(false)));
}

#[test]
fn the_server_goes_in_and_out_of_the_newest_cli() {
    if let Some(subject) = Subject::real("2.1.332") {
        goes_in_and_out(subject);
    }
}

#[test]
fn the_server_goes_in_and_out_of_the_oldest_cli() {
    if let Some(subject) = Subject::real("2.1.199") {
        goes_in_and_out(subject);
    }
}

/// Nothing is registered where the settings cannot be understood.
#[test]
fn settings_that_are_not_understood_are_left_alone() {
    let Some(subject) = Subject::newest_real() else { return };
    let companion = Companion::new(subject, "", "");
    let path = companion.world.sandbox.write("work/.claude/settings.local.json", "{\"permissions\": 7}");
    assert!(companion.refused(&["mcp", "install"], 3).contains("permissions is not an object"));
    assert_eq!(fs::read_to_string(path).unwrap(), "{\"permissions\": 7}");
    assert!(registered(&companion).contains("No MCP server"));
    let inside = Running::spawn(
        companion.command(&["mcp", "install"]).env("KAEL_INVOCATION", uuid::Uuid::new_v4().to_string()),
    );
    assert!(inside.wait(PATIENCE).expect_code(3).stderr.contains("from inside a turn"));
}
