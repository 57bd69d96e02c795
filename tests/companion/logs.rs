//! What is logged and shown: turns and messages by number, in three forms, and never what was said or a secret.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// What must stand nowhere but in the conversation's own files.
const SPOKEN: [&str; 4] =
    ["a purple wombat", "die lila Wolke", "紫色的云彩飘过", "the answer is a turquoise teapot"];
const KEY: &str = "sk-ant-made-up";

fn subjects() -> Vec<Subject> {
    let mut all = vec![Subject::StandIn];
    all.extend(Subject::newest_real());
    all
}

fn no_leak(text: &str, from: &str) {
    for words in SPOKEN.into_iter().chain([KEY]) {
        assert!(!text.contains(words), "{words:?} in {from}:\n{text}");
    }
}

/// Files of the state folder that are no part of the conversation.
fn logs_below(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            logs_below(&path, found);
        } else if !name.ends_with(".jsonl") && !name.starts_with("queue.sqlite") && path.is_file() {
            found.push(path);
        }
    }
}

#[test]
fn no_log_output_or_operation_file_holds_a_spoken_word_or_a_secret() {
    for subject in subjects() {
        for format in ["text", "json", "journald"] {
            eprintln!("on {subject:?} with {format}");
            let companion = Companion::new(
                subject.clone(),
                "dirty_budget_bytes = 20000",
                "rebuild = \"auto\"\nmin_gain_percent = 1\nmax_attempts = 2",
            );
            let stub = &companion.world.stub;
            stub.on_tool_turn("wombat", Reply::bash("seq 1 5000"), Reply::text(SPOKEN[3]));
            stub.on_text_times(
                "Wolke",
                1,
                Reply::error(529, "overloaded_error", "die lila Wolke is overloaded"),
            );
            stub.on(|request| {
                request
                    .texts(kael_runner::standin::context::Role::User)
                    .join(" ")
                    .contains("紫色")
                    .then(|| Reply::error(400, "invalid_request_error", "紫色的云彩飘过 sk-ant-made-up"))
            });
            let mut command = companion.command(&["run", "--log", format]);
            let runner = Running::spawn(command.env("KAEL_LOG", "trace"));
            companion.wait_for_status("the runner lives", |status| status["runner"]["lives"] == true);
            // What a session holds after its first turn makes no rebuild due.
            companion.say("good morning");
            let mut outputs = Vec::new();
            for words in &SPOKEN[..3] {
                let outcome = companion.run(&["send", "--wait", words]);
                outputs.push(outcome.stderr);
            }
            for arguments in [
                &["status"][..],
                &["status", "--json"],
                &["usage"],
                &["dirty"],
                &["plan"],
                &["doctor"],
                &["pointer", "history"],
            ] {
                let outcome = companion.run(arguments);
                outputs.push(format!("{}\n{}", outcome.lines.join("\n"), outcome.stderr));
            }
            runner.signal(Signal::TERM);
            let log = runner.wait(PATIENCE).expect_code(0).stderr;
            assert!(log.contains("dead letter") && log.contains("the turn is running"), "{log}");
            match format {
                "json" => {
                    for line in log.lines() {
                        let line: Value =
                            serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
                        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
                    }
                    assert!(log.contains("\"turn\":2"), "{log}");
                }
                "journald" => assert!(
                    log.lines().all(|line| line.starts_with('<')) && log.contains("<3>dead letter"),
                    "{log}"
                ),
                _ => assert!(log.contains("turn=2"), "{log}"),
            }
            no_leak(&log, "the log");
            outputs.iter().for_each(|output| no_leak(output, "an output"));
            let mut files = Vec::new();
            logs_below(&companion.world.sandbox.state(), &mut files);
            assert!(files.iter().any(|path| path.to_string_lossy().contains("operations")), "{files:?}");
            for path in files {
                no_leak(
                    &String::from_utf8_lossy(&std::fs::read(&path).unwrap()),
                    &path.display().to_string(),
                );
            }
        }
    }
}

#[test]
fn what_a_dying_program_repeats_of_the_conversation_is_not_told() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nmax_attempts = 1");
    let path = companion.world.sandbox.path("bin/claude");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "#!/bin/sh\ncat >&2\necho \"key $ANTHROPIC_API_KEY\" >&2\nexit 9\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    companion.run(&["send", "--key", "k", SPOKEN[0]]).expect_code(0);
    let log = companion.run(&["run", "--until-idle"]).expect_code(0).stderr;
    assert!(log.contains("exit status: 9") && log.contains("[secret]"), "{log}");
    no_leak(&log, "the log");
    no_leak(&companion.run(&["status", "--json"]).lines.join("\n"), "status");
    no_leak(&companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(1).stderr, "send");
}

#[test]
fn words_are_logged_only_where_the_owner_says_so() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nlog_content = true");
    companion.world.stub.on_text("wombat", Reply::text(SPOKEN[3]));
    companion.run(&["send", SPOKEN[0]]).expect_code(0);
    let log = companion.run(&["run", "--until-idle"]).expect_code(0).stderr;
    assert!(log.contains(SPOKEN[0]) && log.contains(SPOKEN[3]), "{log}");
    assert!(!log.contains(KEY));
}

#[test]
fn status_is_watched() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let watching = Running::spawn(&mut companion.command(&["status", "--watch", "--json"]));
    watching.wait_line("the first status", PATIENCE, |line| line.contains("\"lives\":false"));
    companion.run(&["send", "hello"]).expect_code(0);
    watching.wait_line("the message", PATIENCE, |line| line.contains("\"queued\":1"));
    companion.run(&["run", "--until-idle"]).expect_code(0);
    watching.wait_line("the answer", PATIENCE, |line| line.contains("\"answered\":1"));
    watching.signal(Signal::INT);
    watching.wait(PATIENCE);
}

#[test]
fn a_hangup_reads_the_own_companion_out_of_several() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let path = companion.world.sandbox.path("config.toml");
    let alone = std::fs::read_to_string(&path).unwrap();
    let state = companion.world.sandbox.state();
    let alone = alone.replace(&format!("state_dir = {state:?}\n"), "");
    let elsewhere = companion.world.sandbox.path("elsewhere");
    let with = |logs: bool| {
        format!(
            "{alone}\n[[companion]]\nname = \"two\"\nstate_dir = {elsewhere:?}\n\n[[companion]]\nname = \"one\"\n\
             state_dir = {state:?}\n[companion.runner]\nlog_content = {logs}\n"
        )
    };
    std::fs::write(&path, with(false)).unwrap();
    let runner = Running::spawn(&mut companion.command(&["--companion", "one", "run"]));
    let named = |arguments: &[&str]| companion.run(&[&["--companion", "one"], arguments].concat());
    wait_until("the runner lives", || named(&["status", "--json"]).lines.join("").contains("\"lives\":true"));
    named(&["send", "--wait", "a silent heron"]).expect_code(0);
    std::fs::write(&path, with(true)).unwrap();
    runner.signal(Signal::HUP);
    runner.wait_stderr("it to be read", PATIENCE, |line| line.contains("the configuration is read again"));
    named(&["send", "--wait", "a purple wombat"]).expect_code(0);
    // Its own part is gone: it goes on as it was.
    std::fs::write(&path, with(true).replace("\"one\"", "\"three\"")).unwrap();
    runner.signal(Signal::HUP);
    runner
        .wait_stderr("it to be missed", PATIENCE, |line| line.contains("the companion \"one\" is not in it"));
    std::fs::write(&path, with(true)).unwrap();
    named(&["send", "--wait", "a green newt"]).expect_code(0);
    runner.signal(Signal::TERM);
    let log = runner.wait(PATIENCE).expect_code(0).stderr;
    assert!(!log.contains("a silent heron"), "{log}");
    assert!(log.contains("a purple wombat") && log.contains("a green newt"), "{log}");
}

#[test]
fn a_hangup_reloads_what_can_be_and_says_what_cannot() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nmax_attempts = 1");
    let runner = companion.start();
    companion.say("hello");
    let path = companion.world.sandbox.path("config.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    let elsewhere = companion.world.sandbox.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let changed = good.replace("rebuild = \"off\"", "rebuild = \"off\"\nlog_content = true").replace(
        &format!("claude_workdir = {:?}", companion.world.sandbox.work()),
        &format!("claude_workdir = {elsewhere:?}"),
    );
    std::fs::write(&path, &changed).unwrap();
    runner.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::write(&path, &good).unwrap();
    companion.say("a purple wombat");
    std::fs::write(&path, "nonsense = ").unwrap();
    runner.signal(Signal::HUP);
    std::thread::sleep(std::time::Duration::from_millis(500));
    std::fs::write(&path, &good).unwrap();
    companion.say("hello again");
    wait_until("the runner still lives", || companion.json(&["status"])["runner"]["lives"] == true);
    runner.signal(Signal::TERM);
    let log = runner.wait(PATIENCE).expect_code(0).stderr;
    assert!(log.contains("the configuration is read again") && log.contains("claude_workdir"), "{log}");
    assert!(log.contains("the configuration stays as it was"), "{log}");
    assert!(log.contains("a purple wombat"), "log_content was taken over: {log}");
}
