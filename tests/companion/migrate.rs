//! Coming from the original: its configuration, its names, its operations, and the list that its installations passed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// A setup as the original left it: its configuration, a session that lives in a pane, an old operation.
struct Setup {
    companion: Companion,
    config: PathBuf,
    tmux: PathBuf,
    operation: &'static str,
}

impl Setup {
    fn new(subject: Subject) -> Self {
        let companion = Companion::new(subject, "", "");
        let sandbox = &companion.world.sandbox;
        sandbox.write("work/CLAUDE.md", "Speak kindly of kites.\n");
        companion.world.stub.on_text("kite", Reply::text("A red one."));
        companion.world.stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("It holds ropes."));
        for words in ["my kite is a red one", "look into the shed"] {
            companion.run(&["send", words]).expect_code(0);
            companion.run(&["run", "--until-idle"]).expect_code(0);
        }
        let tmux = sandbox.path("tmux.socket");
        let operation = "06e2ceb9-657e-4f88-b7cd-4cfe0aae2f2f";
        let program = companion.world.subject.program(sandbox);
        let text = format!(
            "claude_workdir = {:?}\nstate_dir = {:?}\ntmux_target = \"cc:0.0\"\ntmux_socket = {tmux:?}\n\
             resume_command = [{program:?}, \"--resume\", \"{{session_id}}\"]\ntarget_tokens = 1000\n",
            sandbox.work(),
            sandbox.path("old-state"),
        );
        let config = sandbox.write("original.toml", text);
        let old = json!({
            "operation_id": operation, "status": "activated", "reasons": ["manual request"],
            "requested_at": "2026-08-14T16:39:02.123456Z", "created_at": "2026-08-14T16:39:02.123456Z",
            "updated_at": "2026-08-14T16:39:12Z", "source_session_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "source_path": "/p/a.jsonl", "source_mtime": 1.5, "new_session_id": "01890a5d-ac96-774b-bcce-b302099a8058",
            "candidate_path": "/p/b.jsonl", "candidate_sha256": "ab", "cas_pane_pid": "2999165",
            "cas_pane_pid_after": "3002492", "tmux_command": "tmux respawn-pane",
        });
        sandbox.write(&format!("old-state/operations/{operation}.json"), old.to_string());
        let setup = Self { companion, config, tmux, operation };
        let started = setup.tmux(&["new-session", "-d", "-s", "cc", "sleep 600"]).status().unwrap();
        assert!(started.success());
        setup
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = self.companion.world.sandbox.command("tmux");
        command.arg("-f").arg("/dev/null").arg("-S").arg(&self.tmux).args(arguments);
        command
    }

    /// Called by one of the original's names.
    fn original(&self, link: &Path, arguments: &[&str]) -> Outcome {
        let mut command = self.companion.world.sandbox.command(link);
        Running::spawn(command.env("KAEL_REBUILD_CONFIG", &self.config).args(arguments)).wait(PATIENCE)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]).status().ok();
    }
}

fn value(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.lines.join("")).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// Everything below a folder, with its content.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&entry.path()));
        } else {
            all.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn the_original_s_acceptance_list_holds_on_the_newest_cli() {
    let Some(subject) = Subject::newest_real() else { return };
    let setup = Setup::new(subject);
    let sandbox = &setup.companion.world.sandbox;
    let state = sandbox.path("old-state");
    let before = tree(&state);
    let config = setup.config.to_str().unwrap();
    let checked = setup.companion.json(&["migrate", "--check", config]);
    assert_eq!(checked["operations"], 1);
    let names: Vec<&str> =
        checked["acceptance"].as_array().unwrap().iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "project_dir_exists",
            "transcript_count > 0",
            "target alive, with pid",
            "claude_binary absolute",
            "source_session_id set",
            "blocked_reason empty",
            "selected_turns == source_turns",
            "dropped_oldest_turns == 0",
            "startup_frozen",
            "noise_ratio plausible",
            "should_rebuild plausible",
        ]
    );
    for line in checked["acceptance"].as_array().unwrap() {
        assert_eq!(line["ok"], true, "{line}");
    }
    assert_eq!(checked["ok"], true);
    let differs = checked["differs"].to_string();
    assert!(differs.contains("target_tokens") && differs.contains("consent"), "{differs}");
    assert_eq!(tree(&state), before, "a check changes nothing");

    // The same by the original's own commands.
    let into = sandbox.path("names");
    fs::create_dir(&into).unwrap();
    let made = setup.companion.json(&["migrate", "--into", into.to_str().unwrap()]);
    assert_eq!(made["links"].as_array().unwrap().len(), 2);
    let link = into.join("kael-thread-rebuild");
    let doctor = value(&setup.original(&link, &["doctor"]));
    assert_eq!((&doctor["project_dir_exists"], &doctor["tmux_target_alive"]), (&json!(true), &json!(true)));
    assert!(
        doctor["transcript_count"].as_u64().unwrap() > 0 && doctor["tmux_pane_pid"].is_u64(),
        "{doctor:#}"
    );
    assert!(Path::new(doctor["claude_binary"].as_str().unwrap()).is_absolute());
    let transcript = sandbox.transcript(&setup.companion.session());
    let plan = value(&setup.original(&link, &["plan", "--transcript", transcript.to_str().unwrap()]));
    let stats = &plan["stats"];
    assert!(plan["source_session_id"].is_string() && plan["blocked_reason"] == "", "{plan:#}");
    assert_eq!(
        (&stats["selected_turns"], &stats["dropped_oldest_turns"]),
        (&stats["source_turns"], &json!(0))
    );
    assert_eq!(stats["startup_frozen"], true, "the original's default");
    let ratio = plan["dirty"]["noise_ratio"].as_f64().unwrap();
    assert!((0.1..1.0).contains(&ratio), "{ratio}");
    assert!(plan["dirty"]["should_rebuild"].is_boolean());

    // Its operations, and its MCP server.
    let status = value(&setup.original(&link, &["status", "--operation", setup.operation]));
    assert_eq!(status["operation"]["status"], "activated");
    assert_eq!(status["operation"]["tmux_command"], "tmux respawn-pane", "what we do not know is kept");
    let latest = value(&setup.original(&link, &["status"]));
    assert_eq!(
        (&latest["ok"], &latest["operation"]["operation_id"]),
        (&json!(true), &json!(setup.operation))
    );
    let mut server = Running::spawn(
        sandbox.command(into.join("kael-thread-rebuild-mcp")).env("KAEL_REBUILD_CONFIG", &setup.config),
    );
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    server.write(format!("{hello}\n"));
    let answer = server.wait_line("its name", PATIENCE, |line| line.contains("serverInfo"));
    assert!(answer.contains("kael-thread-rebuild"), "{answer}");
    server.wait(PATIENCE).expect_code(0);
}

#[test]
fn what_fails_the_list_is_named() {
    let setup = Setup::new(Subject::StandIn);
    setup.tmux(&["kill-server"]).status().unwrap();
    wait_until("the server has gone", || !setup.tmux(&["ls"]).output().unwrap().status.success());
    setup
        .companion
        .world
        .sandbox
        .write("old-state/operations/06e2ceb9-657e-4f88-b7cd-4cfe0aae2f20.json", "{");
    let run =
        setup.companion.run(&["migrate", "--check", setup.config.to_str().unwrap(), "--json"]).expect_code(1);
    let checked = value(&run);
    let failed: Vec<&str> = checked["acceptance"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["ok"] == false)
        .filter_map(|line| line["name"].as_str())
        .collect();
    assert!(failed.contains(&"target alive, with pid"), "{failed:?}");
    assert_eq!((&checked["ok"], checked["unreadable"].as_array().unwrap().len()), (&json!(false), 1));
    assert!(!setup.companion.world.sandbox.path("old-state/queue.sqlite").exists());
    let bad = setup.companion.world.sandbox.write("bad.toml", "tmux_tagret = \"x\"\n");
    let error = setup.companion.refused(&["migrate", "--check", bad.to_str().unwrap()], 5);
    assert!(error.contains("did you mean `tmux_target`?"), "{error}");
}

#[test]
fn links_take_the_place_of_nothing_unasked() {
    let companion = Companion::new(Subject::StandIn, "", "");
    let into = companion.world.sandbox.path("names");
    fs::create_dir(&into).unwrap();
    let theirs = companion.world.sandbox.write("names/kael-thread-rebuild-mcp", "#!/usr/bin/python3\n");
    let folder = into.to_str().unwrap();
    let refused = companion.refused(&["migrate", "--into", folder], 3);
    assert!(refused.contains("is there already") && refused.contains("--replace"), "{refused}");
    assert!(!into.join("kael-thread-rebuild").exists());
    let made = companion.json(&["migrate", "--into", folder, "--replace"]);
    let aside = made["links"][1]["aside"].as_str().unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "#!/usr/bin/python3\n");
    assert!(fs::symlink_metadata(theirs).unwrap().is_symlink());
    let again = companion.json(&["migrate", "--into", folder]);
    assert!(again["links"].as_array().unwrap().iter().all(|link| link["made"] == false), "{again:#}");
}

/// What people's scripts read: the operation itself, `{ok, operation}`, and one form of error.
#[test]
fn its_commands_print_what_they_printed() {
    let companion = Companion::new(Subject::StandIn, "stable_file_seconds = 0.2", "min_gain_percent = 1");
    companion.world.stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("It holds ropes."));
    companion.run(&["send", "look into the shed"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let sandbox = &companion.world.sandbox;
    companion.json(&["migrate", "--into", sandbox.path("bin").to_str().unwrap()]);
    let run = |arguments: &[&str]| {
        let mut command = sandbox.command(sandbox.path("bin/kael-thread-rebuild"));
        command.env("KAEL_REBUILD_CONFIG", sandbox.path("config.toml")).args(arguments);
        Running::spawn(&mut command).wait(PATIENCE)
    };
    let before = companion.session();
    let asked = value(&run(&["request", "--reason", "slow"]).expect_code(0));
    let id = asked["operation_id"].as_str().unwrap().to_owned();
    assert_eq!((&asked["status"], &asked["reasons"]), (&json!("pending"), &json!(["slow"])));
    let cancelled = value(&run(&["cancel", "--operation", &id, "--confirm", "CANCEL"]).expect_code(0));
    assert_eq!((&cancelled["operation_id"], &cancelled["status"]), (&json!(id), &json!("cancelled")));

    let asked = value(&run(&["request", "--reason", "slow", "--confirm", "REBUILD"]).expect_code(0));
    let id = asked["operation_id"].as_str().unwrap().to_owned();
    let transcript = sandbox.transcript(&before);
    let prepared =
        run(&["prepare", "--operation", &id, "--transcript", transcript.to_str().unwrap()]).expect_code(0);
    assert_eq!(value(&prepared)["status"], "verifying");
    let activated = value(&run(&["activate", "--operation", &id]).expect_code(0));
    assert_eq!(
        (&activated["status"], &activated["source_session_id"]),
        (&json!("activated"), &json!(before))
    );
    let status = value(&run(&["status", "--operation", &id]).expect_code(0));
    assert_eq!((&status["ok"], &status["operation"]["status"]), (&json!(true), &json!("activated")));
    let back = run(&["rollback-request", "--operation", &id, "--confirm", "ROLLBACK"]).expect_code(0);
    assert_eq!(value(&back)["status"], "rolled_back");

    for wrong in
        [&["rollback-request", "--operation", &id, "--confirm", "ROLLBACK"][..], &["status", "--nonsense"]]
    {
        let error = run(wrong).expect_code(1);
        let said: Value = serde_json::from_str(error.stderr.trim()).unwrap();
        assert_eq!(said["ok"], false, "{said}");
        assert!(said["error"].is_string() && error.lines.is_empty());
    }
}
