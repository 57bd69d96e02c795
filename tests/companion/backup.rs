//! A whole companion in one file, and back out of it elsewhere.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;

fn lived(subject: Subject) -> Companion {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    let stub = &companion.world.stub;
    stub.on_text("kite", Reply::text("A red one."));
    stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("It holds ropes."));
    for words in ["my kite is a red one", "look into the shed"] {
        companion.run(&["send", words]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    companion
}

fn pack(companion: &Companion) -> std::path::PathBuf {
    let file = companion.world.sandbox.path("companion.backup");
    let packed = companion.json(&["backup", file.to_str().unwrap()]);
    assert_eq!(packed["left_out"], serde_json::json!(["claude.env.ANTHROPIC_API_KEY"]));
    file
}

/// A command on another machine: another home, and nothing of the first one.
fn there(companion: &Companion, arguments: &[&str]) -> Command {
    let sandbox = &companion.world.sandbox;
    let mut command = sandbox.runner();
    fs::create_dir_all(sandbox.path("there/home")).unwrap();
    command
        .env("HOME", sandbox.path("there/home"))
        .env("ANTHROPIC_API_KEY", "sk-ant-made-up")
        .arg("--config")
        .arg(sandbox.path("there/companion.toml"))
        .args(arguments);
    command
}

fn run_there(companion: &Companion, arguments: &[&str]) -> Outcome {
    Running::spawn(&mut there(companion, arguments)).wait(PATIENCE)
}

fn json_there(companion: &Companion, arguments: &[&str]) -> Value {
    let outcome = run_there(companion, &[arguments, &["--json"]].concat()).expect_code(0);
    serde_json::from_str(&outcome.lines.join("\n")).unwrap()
}

fn restore(companion: &Companion, file: &Path) -> Value {
    let work = companion.world.sandbox.path("there/a new folder");
    json_there(companion, &["restore", file.to_str().unwrap(), "--dir", work.to_str().unwrap()])
}

fn it_answers_elsewhere(subject: Subject) {
    let companion = lived(subject);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.json(&["confirm", "--yes"]);
    let session = companion.session();
    let file = pack(&companion);
    let restored = restore(&companion, &file);
    assert_eq!(restored["session"], session.as_str());
    let project = Path::new(restored["project_dir"].as_str().unwrap());
    assert!(project.ends_with("a-new-folder") || project.to_str().unwrap().ends_with("-there-a-new-folder"));
    assert!(project.join(format!("{session}.jsonl")).is_file());
    let text = fs::read_to_string(companion.world.sandbox.path("there/companion.toml")).unwrap();
    assert!(!text.contains("sk-ant") && !text.contains(companion.world.sandbox.state().to_str().unwrap()));

    assert_eq!(json_there(&companion, &["pointer", "show"])["session"], session.as_str());
    run_there(&companion, &["send", "what about the kite?"]).expect_code(0);
    run_there(&companion, &["run", "--until-idle"]).expect_code(0);
    let asked = companion.world.stub.last_main();
    assert_eq!(asked.occurrences("my kite is a red one"), 1, "{:#?}", asked.view());
    assert_eq!(json_there(&companion, &["status"])["messages"]["answered"], 3);
    // The way back is there, too: every place that the operation names is the new one.
    let before = json_there(&companion, &["status"])["operation"]["source_session_id"].clone();
    let path = project.join(format!("{}.jsonl", before.as_str().unwrap()));
    assert!(path.is_file());
    let error = run_there(&companion, &["rollback-request", "--confirm", "ROLLBACK"]).expect_code(3).stderr;
    assert!(error.contains("has gone on since"), "{error}");
    // The first machine's companion is as it was.
    assert_eq!(companion.session(), session);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 2);
}

#[test]
fn a_restored_companion_answers_on_the_stand_in() {
    it_answers_elsewhere(Subject::StandIn);
}

#[test]
fn a_restored_companion_answers_on_the_newest_cli() {
    if let Some(subject) = Subject::newest_real() {
        it_answers_elsewhere(subject);
    }
}

#[test]
fn a_prepared_operation_can_be_switched_after_the_move() {
    let companion = lived(Subject::StandIn);
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.json(&["prepare"]);
    let file = pack(&companion);
    restore(&companion, &file);
    let activated = json_there(&companion, &["activate"]);
    assert_eq!(activated["operation"]["status"], "activated", "{activated:#}");
    let back = json_there(&companion, &["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(back["operation"]["status"], "rolled_back");
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let companion = lived(Subject::StandIn);
    let file = pack(&companion);
    let name = file.to_str().unwrap();
    assert!(companion.refused(&["backup", name], 3).contains("is there already"));
    let runner = companion.start();
    let other = companion.world.sandbox.path("other");
    assert!(companion.refused(&["backup", other.to_str().unwrap()], 6).contains("stop that one first"));
    companion.stop(runner);
    assert!(!other.exists());

    let work = companion.world.sandbox.path("there/a new folder");
    let work = work.to_str().unwrap();
    let again = ["restore", name, "--dir", work];
    companion.world.sandbox.write("there/companion.toml", "# mine\n");
    assert!(run_there(&companion, &again).expect_code(3).stderr.contains("companion.toml is there already"));
    fs::remove_file(companion.world.sandbox.path("there/companion.toml")).unwrap();
    let restored = restore(&companion, &file);
    let state = restored["state_dir"].as_str().unwrap();
    // The same again only finishes what is finished.
    run_there(&companion, &again).expect_code(0);
    run_there(&companion, &["send", "one more"]).expect_code(0);
    fs::remove_file(Path::new(state).join("restored.json")).unwrap();
    let refused = run_there(&companion, &again).expect_code(3).stderr;
    assert!(refused.contains("is there already: move it away, or name another with --state"), "{refused}");
    assert_eq!(json_there(&companion, &["status"])["messages"]["queued"], 1);
}

#[test]
fn a_damaged_archive_changes_nothing() {
    let companion = lived(Subject::StandIn);
    let file = pack(&companion);
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    for (name, bytes) in [("cut", &whole[..whole.len() - 30]), ("flipped", &flipped[..]), ("text", b"hello")]
    {
        let bad = companion.world.sandbox.write(&format!("{name}.backup"), bytes);
        let work = companion.world.sandbox.path("there/a new folder");
        let error =
            run_there(&companion, &["restore", bad.to_str().unwrap(), "--dir", work.to_str().unwrap()])
                .expect_code(1)
                .stderr;
        assert!(error.contains("nothing was changed"), "{name}: {error}");
        assert!(!companion.world.sandbox.path("there/companion.toml").exists(), "{name}");
        assert!(!work.exists(), "{name}");
    }
}

/// Killed again and again at later and later moments, until it gets through by itself.
#[test]
fn a_restore_that_is_killed_is_finished_by_the_next_one() {
    let companion = lived(Subject::StandIn);
    let session = companion.session();
    let file = pack(&companion);
    let work = companion.world.sandbox.path("there/a new folder");
    let arguments = ["restore", file.to_str().unwrap(), "--dir", work.to_str().unwrap()];
    let mut kills = 0;
    for delay in (0..).map(|n| Duration::from_millis(2 * n)) {
        let running = Running::spawn(&mut there(&companion, &arguments));
        std::thread::sleep(delay);
        running.signal(Signal::KILL);
        match running.wait(PATIENCE).code() {
            0 => break,
            -9 => kills += 1,
            other => panic!("exit code {other} after {kills} kills"),
        }
    }
    assert!(kills > 0);
    run_there(&companion, &arguments).expect_code(0);
    assert_eq!(json_there(&companion, &["pointer", "show"])["session"], session.as_str());
    run_there(&companion, &["send", "what about the kite?"]).expect_code(0);
    run_there(&companion, &["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.world.stub.last_main().occurrences("my kite is a red one"), 1);
    let state = companion.world.sandbox.path("there/home/.local/state/kael-runner");
    let left: Vec<_> = fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "nothing else is left: {left:?}");
}

#[test]
fn a_backup_that_is_killed_leaves_no_archive_and_the_companion_as_it_was() {
    let companion = lived(Subject::StandIn);
    let file = companion.world.sandbox.path("companion.backup");
    let mut kills = 0;
    for delay in (0..).map(|n| Duration::from_millis(2 * n)) {
        let running = Running::spawn(&mut companion.command(&["backup", file.to_str().unwrap()]));
        std::thread::sleep(delay);
        running.signal(Signal::KILL);
        match running.wait(PATIENCE).code() {
            0 => break,
            -9 if file.exists() => break,
            -9 => kills += 1,
            other => panic!("exit code {other} after {kills} kills"),
        }
    }
    assert!(kills > 0);
    // What has the name is whole.
    restore(&companion, &file);
    companion.run(&["send", "what about the kite?"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
}
