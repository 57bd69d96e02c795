//! Operations by hand, as in setups without a living runner, and what refuses them.

use std::fs;
use std::io::Write;

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::transcript::rows;
use crate::support::{PATIENCE, masked};

/// A companion with a dirty session and no living runner.
fn dirty(subject: Subject) -> Companion {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("The shed holds ropes."));
    for words in ["hello there", "look into the shed"] {
        companion.run(&["send", words]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    companion
}

fn current_transcript(companion: &Companion) -> std::path::PathBuf {
    companion.world.sandbox.transcript(&companion.session())
}

fn append(path: &std::path::Path, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn request_prepare_activate_and_rollback_by_hand() {
    let companion = dirty(Subject::StandIn);
    let before = companion.session();
    let asked = companion.json(&["request", "--reason", "slow", "--confirm", "REBUILD"]);
    assert_eq!(asked["operation"]["status"], "pending");
    let again = companion.json(&["request", "--reason", "still slow"]);
    assert_eq!(
        again["operation"]["operation_id"], asked["operation"]["operation_id"],
        "a second request joins"
    );
    let prepared = companion.json(&["prepare"]);
    assert_eq!(prepared["operation"]["status"], "verifying", "{prepared:#}");
    assert_eq!(companion.session(), before, "preparing switches nothing");
    let activated = companion.json(&["activate"]);
    assert_eq!(activated["operation"]["status"], "activated");
    let after = companion.session();
    assert_eq!(activated["operation"]["new_session_id"], after.as_str());
    let clean = rows(&companion.world.sandbox.transcript(&after));
    assert_eq!(clean.len(), 4, "two turns, two rows each");
    let rolled = companion.json(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(rolled["operation"]["status"], "rolled_back");
    assert_eq!(companion.session(), before);
    assert!(
        companion
            .refused(&["rollback-request", "--confirm", "ROLLBACK"], 3)
            .contains("no operation that is activated")
    );
}

#[test]
fn nothing_is_switched_without_a_yes() {
    let companion = dirty(Subject::StandIn);
    let before = companion.session();
    companion.json(&["request"]);
    companion.json(&["prepare"]);
    assert!(companion.refused(&["activate"], 3).contains("not confirmed yet; nothing was switched"));
    assert_eq!(companion.session(), before);
    assert!(companion.refused(&["confirm"], 2).contains("say --yes"), "no terminal to ask at");
    assert!(companion.refused(&["request", "--confirm", "rebuild"], 2).contains("must be exactly REBUILD"));
    assert!(companion.refused(&["cancel", "--confirm", "yes"], 2).contains("must be exactly CANCEL"));
    let confirmed = companion.json(&["confirm", "--yes"]);
    assert_eq!(confirmed["operation"]["status"], "activated", "a yes to what is prepared");
    companion.json(&["request"]);
    companion.run(&["prepare"]);
}

#[test]
fn a_request_can_be_taken_back_and_a_yes_without_one_is_refused() {
    let companion = dirty(Subject::StandIn);
    assert!(companion.refused(&["confirm", "--yes"], 3).contains("there is no operation that is pending"));
    companion.json(&["request", "--reason", "perhaps"]);
    let cancelled = companion.json(&["cancel", "--confirm", "CANCEL"]);
    assert_eq!(cancelled["operation"]["status"], "cancelled");
    assert!(companion.refused(&["prepare"], 3).contains("there is no operation that is pending"));
}

#[test]
fn a_source_that_is_written_to_after_preparing_is_not_switched() {
    let companion = dirty(Subject::StandIn);
    let before = companion.session();
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.json(&["prepare"]);
    let row = r#"{"type":"user","message":{"role":"user","content":"a foreign word"},"uuid":"f0000000-0000-4000-8000-000000000001","parentUuid":null,"timestamp":"2026-11-30T16:00:00.000Z"}"#;
    append(&current_transcript(&companion), &format!("{row}\n"));
    let error = companion.refused(&["activate"], 3);
    assert!(
        error.contains("changed since it was frozen") && error.contains("bytes were appended"),
        "{error}"
    );
    assert_eq!(companion.session(), before);
    let project = companion.world.sandbox.project_dir();
    assert_eq!(
        fs::read_dir(project)
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "jsonl"))
            .count(),
        1
    );
}

#[test]
fn a_pointer_changed_by_somebody_else_is_a_conflict_until_a_human_clears_it() {
    let companion = dirty(Subject::StandIn);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.json(&["prepare"]);
    let foreign = "11111111-2222-4333-8444-555555555555";
    let pointer = companion.world.sandbox.state().join("resume_session");
    fs::write(&pointer, format!("{foreign}\n")).unwrap();
    let error = companion.refused(&["activate"], 4);
    assert!(
        error.contains("session conflict") && error.contains(foreign) && error.contains("do not retry"),
        "{error}"
    );
    assert_eq!(companion.session(), foreign, "the foreign value stays");
    let status = companion.run(&["status"]).expect_code(0).lines.join("\n");
    assert!(status.contains("find out who changed the session"), "{status}");
    companion.json(&["clear"]);
    assert!(companion.json(&["status"])["session_conflict"].is_null());
    assert!(companion.refused(&["clear"], 3).contains("no session conflict"));
}

#[test]
fn a_rollback_is_refused_when_the_conversation_has_gone_on() {
    let companion = dirty(Subject::StandIn);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let rebuilt = companion.session();
    companion.run(&["send", "hello again"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let error = companion.refused(&["rollback-request", "--confirm", "ROLLBACK"], 3);
    assert!(error.contains("has gone on") && error.contains("pointer set"), "{error}");
    assert_eq!(companion.session(), rebuilt);
    assert_eq!(companion.json(&["status"])["operation"]["status"], "activated");
}

#[test]
fn the_first_turn_after_a_switch_is_watched() {
    let companion = dirty(Subject::StandIn);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    companion.run(&["send", "hello again"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let operation = &companion.json(&["status"])["operation"];
    let first = &operation["verification"]["first_turn"];
    assert_eq!(first["reaches_root"], true, "{operation:#}");
    let (measured, estimated) =
        (first["measured_tokens"].as_u64().unwrap(), first["estimated_tokens"].as_u64().unwrap());
    assert!(measured * 2 >= estimated && measured <= estimated * 2, "{measured} against {estimated}");
    assert!(operation["inbound_confirmed"]["send"].is_string());
}

#[test]
fn a_first_turn_without_the_carried_history_holds_the_queue() {
    let companion = dirty(Subject::StandIn);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    // Somebody cuts the beginning off the rebuilt session; the CLI loads the rest without a word.
    let path = current_transcript(&companion);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.split_inclusive('\n').skip(2).collect::<String>()).unwrap();
    // With its copy the damage would be seen before the turn.
    fs::remove_dir_all(companion.world.sandbox.state().join("kept")).unwrap();
    companion.run(&["send", "hello again"]).expect_code(0);
    let outcome = companion.run(&["run", "--until-idle"]).expect_code(1);
    assert!(outcome.stderr.contains("without the carried history in front of it"), "{}", outcome.stderr);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 3, "the reply itself is not lost");
}

#[test]
fn what_is_not_understood_blocks_the_rebuild_and_names_the_row() {
    let companion = dirty(Subject::StandIn);
    let path = current_transcript(&companion);
    let last = rows(&path).into_iter().rev().find(|row| row["uuid"].is_string()).unwrap();
    let row = serde_json::json!({
        "type": "utterance", "words": "a shape nobody has seen", "uuid": "f0000000-0000-4000-8000-000000000002",
        "parentUuid": last["uuid"], "timestamp": "2026-11-30T16:00:00.000Z",
    });
    append(&path, &format!("{row}\n"));
    let line = fs::read_to_string(&path).unwrap().lines().count();
    let outcome = companion.run(&["plan"]).expect_code(3);
    let text = outcome.lines.join("\n");
    assert!(
        text.contains("BLOCKED") && text.contains(&format!("line {line}")) && text.contains("utterance"),
        "{text}"
    );
    let plan = companion.run(&["plan", "--json", "--candidate", "blocked.jsonl"]).expect_code(3);
    let plan: serde_json::Value = serde_json::from_str(&plan.lines.join("")).unwrap();
    assert_eq!(plan["ok"], false);
    assert!(
        plan["candidate_path"].is_null() && !companion.world.sandbox.work().join("blocked.jsonl").exists()
    );
    companion.json(&["request", "--confirm", "REBUILD"]);
    let error = companion.refused(&["prepare"], 3);
    assert!(error.contains("utterance"), "{error}");
}

#[test]
fn an_idle_runner_sleeps() {
    let companion = dirty(Subject::StandIn);
    let runner = companion.start();
    let pid = runner.pid().as_raw_nonzero();
    let wakes = || {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.rsplit('\t').next().unwrap().trim().parse::<u64>().unwrap()
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = wakes();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(wakes(), before, "nothing polls while nothing happens");
    assert_eq!(companion.say("hello once more"), "Hello yourself.");
    companion.stop(runner);
}

#[test]
fn a_candidate_file_is_a_session_that_the_cli_resumes() {
    for subject in
        [Some(Subject::StandIn), Subject::real("2.1.332"), Subject::real("2.1.199")].into_iter().flatten()
    {
        let companion = dirty(subject);
        let session = "22222222-3333-4444-8555-666666666666";
        let path = companion.world.sandbox.transcript(session);
        let plan = companion.json(&["plan", "--candidate", path.to_str().unwrap()]);
        assert_eq!(plan["stats"]["selected_turns"], plan["stats"]["source_turns"], "{plan:#}");
        companion.json(&["pointer", "set", session]);
        companion.run(&["send", "hello from the candidate"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        let view = companion.world.stub.last_main().view();
        let spoken: Vec<&str> = view.iter().map(|block| block.trim_end()).collect();
        assert_eq!(spoken.len(), 5, "{view:#?}");
        assert_eq!((spoken[1], spoken[3]), ("A:Hello yourself.", "A:The shed holds ropes."));
        assert!(spoken[0].contains("hello there") && spoken[2].contains("look into the shed"));
        assert!(spoken[4].contains("hello from the candidate"));
    }
}

#[test]
fn called_by_the_originals_name_it_answers_as_the_original() {
    let companion = dirty(Subject::StandIn);
    let link = companion.world.sandbox.path("bin/kael-thread-rebuild");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kael-runner"), &link).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = companion.world.sandbox.command(&link);
        command.env("KAEL_REBUILD_CONFIG", companion.world.sandbox.path("config.toml")).args(arguments);
        Running::spawn(&mut command).wait(PATIENCE)
    };
    let doctor: serde_json::Value = serde_json::from_str(&run(&["doctor"]).lines.join("")).unwrap();
    for field in [
        "ok",
        "project_dir",
        "project_dir_exists",
        "transcript_count",
        "state_dir",
        "claude_workdir",
        "expected_project_dirname",
        "actual_project_dirname",
        "workdir_matches_project",
        "claude_binary",
        "tmux_target",
        "tmux_available",
        "tmux_target_alive",
        "tmux_pane_command",
        "tmux_pane_pid",
        "active_operation",
    ] {
        assert!(doctor.get(field).is_some(), "{field} is missing in {doctor:#}");
    }
    let dirty: serde_json::Value =
        serde_json::from_str(&run(&["dirty"]).expect_code(0).lines.join("")).unwrap();
    for field in [
        "total_bytes",
        "categories",
        "preview_image_count",
        "original_image_view_count",
        "conversation_bytes",
        "conversation_turns",
        "noise_ratio",
        "dirty_budget_bytes",
        "should_rebuild",
        "reasons",
        "source_path",
    ] {
        assert!(dirty.get(field).is_some(), "{field} is missing in {dirty:#}");
    }
    let plan: serde_json::Value = serde_json::from_str(&run(&["plan"]).lines.join("")).unwrap();
    for field in [
        "ok",
        "source_path",
        "source_sha256",
        "source_session_id",
        "stats",
        "dirty",
        "blocked_reason",
        "note",
    ] {
        assert!(plan.get(field).is_some(), "{field} is missing in {plan:#}");
    }
    let error = run(&["cancel", "--operation", "x", "--confirm", "no"]).expect_code(1).stderr;
    let error: serde_json::Value = serde_json::from_str(error.trim()).unwrap();
    assert_eq!(error["ok"], false);
    assert!(error["error"].is_string());
}

#[test]
fn with_rebuild_off_nothing_is_asked_or_done() {
    let companion =
        Companion::new(Subject::StandIn, "dirty_budget_bytes = 1", "rebuild = \"off\"\nmin_gain_percent = 0");
    companion.world.stub.on_tool_turn(
        "shed",
        Reply::bash("seq 1 4000"),
        Reply::text("The shed holds ropes."),
    );
    for _ in 0..2 {
        companion.run(&["send", "look into the shed"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    assert_eq!(companion.json(&["dirty"])["should_rebuild"], true, "it is due");
    assert!(companion.json(&["status"])["operation"].is_null());
    assert_eq!(companion.history().len(), 1);
}

#[test]
fn systemd_is_told_when_the_runner_is_ready_and_when_it_leaves() {
    let companion = dirty(Subject::StandIn);
    let path = companion.world.sandbox.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let runner = Running::spawn(companion.command(&["run"]).env("NOTIFY_SOCKET", &path));
    let next = || {
        let mut buffer = [0; 512];
        let read = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..read]).trim().to_owned()
    };
    assert_eq!(next(), "READY=1");
    companion.stop(runner);
    let mut last = String::new();
    while last != "STOPPING=1" {
        last = next();
        assert!(
            ["STATUS=", "WATCHDOG=1", "STOPPING=1"].iter().any(|known| last.starts_with(known)),
            "{last}"
        );
    }
}

/// Every path of a JSON value, without the values: what scripts rely on.
fn shape(value: &serde_json::Value, at: &str, out: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                shape(inner, &format!("{at}.{key}"), out);
            }
        }
        serde_json::Value::Array(items) if !items.is_empty() => {
            for inner in items {
                shape(inner, &format!("{at}[]"), out);
            }
        }
        _ => {
            out.insert(at.to_owned());
        }
    }
}

#[test]
fn what_scripts_read() {
    let companion = dirty(Subject::StandIn);
    let mut all = Vec::new();
    let mut see = |arguments: &[&str]| {
        let mut paths = std::collections::BTreeSet::new();
        shape(&companion.json(arguments), "", &mut paths);
        all.push(format!(
            "{}\n  {}",
            arguments.join(" "),
            paths.into_iter().collect::<Vec<_>>().join("\n  ")
        ));
    };
    see(&["doctor"]);
    see(&["dirty"]);
    see(&["plan"]);
    see(&["request", "--confirm", "REBUILD"]);
    see(&["prepare"]);
    see(&["activate"]);
    see(&["status"]);
    see(&["pointer", "show"]);
    see(&["pointer", "history"]);
    see(&["rollback-request", "--confirm", "ROLLBACK"]);
    see(&["request"]);
    see(&["cancel", "--confirm", "CANCEL"]);
    see(&["pause"]);
    see(&["continue"]);
    see(&["retry"]);
    see(&["send", "--key", "k", "hello"]);
    insta::assert_snapshot!("json", all.join("\n"));
}

#[test]
fn what_people_read() {
    let companion = dirty(Subject::StandIn);
    let seen = |arguments: &[&str]| masked(&companion, &companion.run(arguments).lines.join("\n"));
    insta::assert_snapshot!("status", seen(&["status"]));
    insta::assert_snapshot!("doctor", seen(&["doctor"]));
    insta::assert_snapshot!("dirty", seen(&["dirty"]));
    insta::assert_snapshot!("plan", seen(&["plan"]));
    insta::assert_snapshot!("pointer_history", seen(&["pointer", "history"]));
    companion.json(&["request", "--reason", "slow", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let id = companion.json(&["status"])["operation"]["operation_id"].as_str().unwrap().to_owned();
    insta::assert_snapshot!("status_operation", seen(&["status", "--operation", &id]));
}

#[test]
fn what_people_read_when_it_does_not_work() {
    let companion = dirty(Subject::StandIn);
    let seen = |arguments: &[&str]| {
        let outcome = companion.run(arguments);
        masked(&companion, &format!("{} -> {}", outcome.code(), outcome.stderr.trim()))
    };
    let mut all = Vec::new();
    for arguments in [
        &["plan", "--transcript", "/etc/hostname"][..],
        &["plan", "--transcript", "missing.jsonl"],
        &["dirty", "--companion", "other"],
        &["status", "--operation", "not-an-id"],
        &["status", "--operation", "01890a5d-ac96-774b-bcce-b302099a8057"],
        &["pointer", "set", "not-an-id"],
        &["pointer", "set", "01890a5d-ac96-774b-bcce-b302099a8057"],
        &["skip"],
        &["retry"],
        &["send", "--wait", "--timeout", "-1", "x"],
    ] {
        all.push(format!("{}\n    {}", arguments.join(" "), seen(arguments)));
    }
    companion.world.sandbox.write("config.toml", "activation = \"pointer\"\nclaude_workdr = \"/x\"\n");
    all.push(format!("a wrong configuration\n    {}", seen(&["status"])));
    companion.world.sandbox.write("config.toml", "claude_workdir = \".\"\n");
    all.push(format!("another activation\n    {}", seen(&["run"])));
    insta::assert_snapshot!("errors", all.join("\n"));
}
