//! Switches of a real pane.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kael_runner::claude::marked;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::pane::{FLAGS, InPane, WORDS};
use crate::support::subject::Subject;
use crate::support::wait_until;

#[test]
fn a_confirmed_rebuild_switches_the_pane_to_the_clean_session() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    let old = fs_bytes(&setup, &setup.first);
    let pane = setup.tmux(&["display-message", "-p", "-t", "=cc:0.0", "#{pane_id}"]);
    let done = setup.companion.json(&["request", "--reason", "slow", "--confirm", "REBUILD"]);
    assert_eq!(done["operation"]["status"], "activated", "{done:#}");
    let new = done["operation"]["new_session_id"].as_str().unwrap();
    assert_eq!(setup.session(), new);
    assert_eq!(setup.companion.session(), new, "the pointer says so, too");
    assert_eq!(setup.pane_pid().to_string(), done["operation"]["cas_pane_pid_after"].as_str().unwrap());
    assert_ne!(done["operation"]["cas_pane_pid"], done["operation"]["cas_pane_pid_after"]);
    assert_eq!(pane, setup.tmux(&["display-message", "-p", "-t", "=cc:0.0", "#{pane_id}"]), "the pane stays");
    assert_eq!(setup.arguments()[1..], [&["--resume", new][..], &FLAGS].concat());
    let work = fs::canonicalize(setup.companion.world.sandbox.work()).unwrap();
    assert_eq!(setup.note()["cwd"].as_str().unwrap(), work.to_str().unwrap());
    assert!(fs_bytes(&setup, &setup.first).starts_with(&old), "the old transcript is not touched");
    assert_eq!(setup.tmux(&["show-options", "-p", "-t", &pane, "remain-on-exit"]), "", "as it was before");
    setup.wait_for_prompt();
    setup.say("and warm");
    let requests = setup.companion.world.stub.main_requests();
    let sent = requests.iter().rev().find(|request| request.last_human().contains("and warm")).unwrap();
    let words = sent.view().join("\n");
    for said in WORDS.iter().chain(&["Noted: green.", "The shed holds ropes."]) {
        assert!(words.contains(said), "{said} is not in {words}");
    }
    assert!(!words.contains("seq 1 4000"), "{words}");
}

fn fs_bytes(setup: &InPane, session: &str) -> Vec<u8> {
    fs::read(setup.companion.world.sandbox.transcript(session)).unwrap()
}

/// With `rebuild = "auto"` a turn's end is all that it takes.
const AUTO: &str = "rebuild = \"auto\"\ncontext_budget_tokens = 1";

#[test]
fn the_stop_hook_starts_a_rebuild_that_outlives_the_process_it_ends() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.configure(&FLAGS, AUTO);
    let old = setup.note()["pid"].clone();
    setup.type_in("and warm");
    let done = setup.wait_for("activated");
    assert_eq!(done["requested_by"], "runner", "{done:#}");
    assert_eq!(setup.session(), done["new_session_id"].as_str().unwrap());
    assert_ne!(setup.note()["pid"], old);
    // The next turn's end is the sign that words reach the new session.
    setup.configure(&FLAGS, "rebuild = \"off\"");
    setup.wait_for_prompt();
    setup.say("still there?");
    wait_until("words have reached the new session", || {
        setup.operation()["inbound_confirmed"]["tmux"].is_string()
    });
    assert!(setup.log().contains("the session was rebuilt"), "{}", setup.log());
}

#[test]
fn a_question_is_left_to_a_human_who_says_yes() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.configure(&FLAGS, "rebuild = \"ask\"\ncontext_budget_tokens = 1");
    setup.say("and warm");
    let asked = setup.wait_for("pending");
    assert_eq!(setup.session(), setup.first);
    let done = setup.companion.json(&["confirm", "--yes"]);
    assert_eq!(done["operation"]["operation_id"], asked["operation_id"]);
    assert_eq!(setup.session(), done["operation"]["new_session_id"].as_str().unwrap());
    let back = setup.companion.json(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(back["operation"]["status"], "rolled_back", "{back:#}");
    assert_eq!(setup.session(), setup.first);
    assert_eq!(setup.companion.session(), setup.first);
}

/// The process in the pane, after whatever went wrong: alive, on the session of before.
fn runs_on(setup: &InPane, session: &str) {
    wait_until("claude runs in the pane", || setup.session() == session && setup.is_idle());
    assert_eq!(setup.companion.session(), session);
    assert_eq!(setup.note()["pid"].as_u64(), Some(u64::from(setup.pane_pid())));
}

#[test]
fn a_new_session_that_does_not_start_is_given_up_for_the_old_one() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.companion.world.sandbox.write("only", &setup.first);
    let error = setup.companion.refused(&["request", "--confirm", "REBUILD"], 3);
    assert!(error.contains("the old session runs on") && error.contains("status 7"), "{error}");
    runs_on(&setup, &setup.first);
    let operation = setup.operation();
    assert_eq!(operation["status"], "rolled_back");
    let new = operation["new_session_id"].as_str().unwrap();
    assert!(!setup.companion.world.sandbox.transcript(new).exists(), "the candidate is taken out again");
    // When it starts again, it works.
    fs::remove_file(setup.companion.world.sandbox.path("only")).unwrap();
    assert_eq!(
        setup.companion.json(&["request", "--confirm", "REBUILD"])["operation"]["status"],
        "activated"
    );
}

#[test]
fn a_pane_that_somebody_has_replaced_is_a_conflict_and_left_alone() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.companion.json(&["request"]);
    setup.companion.json(&["prepare"]);
    let line = setup.claude_line(&setup.first, "--resume");
    setup.tmux(&["respawn-pane", "-k", "-t", "=cc:0.0", "/bin/sh", "-c", &format!("exec {line}")]);
    setup.wait_for_prompt();
    let theirs = setup.pane_pid();
    wait_until("the CLI has written its note", || setup.is_idle());
    let error = setup.companion.refused(&["confirm", "--yes"], 4);
    assert!(error.contains("session conflict") && error.contains("do not retry"), "{error}");
    assert_eq!(setup.pane_pid(), theirs, "it was not touched");
    assert_eq!(setup.session(), setup.first);
    assert_eq!(setup.operation()["status"], "failed");
}

#[test]
fn a_pane_that_does_not_run_claude_is_refused() {
    let Some(setup) = InPane::new(Subject::StandIn, "") else { return };
    setup.tmux(&["new-session", "-d", "-s", "cc", "/bin/sh", "-c", "exec sleep 600"]);
    let sleep = setup.pane_pid();
    let doctor = setup.companion.run(&["doctor"]);
    assert!(doctor.lines.join("\n").contains("runs sleep 600, not claude"), "{doctor:?}");
    // A name that only begins alike is another pane.
    let config = setup.companion.world.sandbox.path("config.toml");
    let text = fs::read_to_string(&config).unwrap().replace("cc:0.0", "c:0.0");
    fs::write(&config, text).unwrap();
    let doctor = setup.companion.run(&["doctor"]);
    assert!(doctor.lines.join("\n").contains("no tmux pane that is exactly c:0.0"), "{doctor:?}");
    assert_eq!(setup.pane_pid(), sleep);
}

/// A companion whose channel flag was lost is deaf.
#[test]
fn doctor_names_the_options_that_a_switch_would_lose() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    let flags = |what: &str| {
        let doctor = setup.companion.run(&["doctor", "--json"]);
        let value: Value = serde_json::from_str(&doctor.lines.join("")).unwrap();
        let check =
            value["checks"].as_array().unwrap().iter().find(|check| check["name"] == what).unwrap().clone();
        (doctor.code(), check)
    };
    let (_, check) = flags("flags");
    assert_eq!(check["status"], "pass", "{check:#}");
    setup.configure(&FLAGS[2..], "rebuild = \"off\"");
    let (code, check) = flags("flags");
    assert_eq!((code, &check["status"]), (1, &Value::from("fail")));
    assert!(
        check["detail"].as_str().unwrap().ends_with("started with: --permission-mode default"),
        "{check:#}"
    );
    assert!(check["remedy"].as_str().unwrap().contains("add it to resume_command"));
    assert_eq!(flags("hook").1["status"], "pass");
    setup.companion.run(&["hook", "uninstall"]).expect_code(0);
    assert_eq!(flags("hook").1["status"], "fail");
    let fixed = setup.companion.run(&["doctor", "--fix"]);
    assert!(fixed.lines[0].starts_with("fixed the Stop hook is in"), "{fixed:?}");
    assert_eq!(flags("hook").1["status"], "pass");
    assert_eq!(flags("tmux").1["status"], "pass");
}

/// What a pane's program was given: its arguments and its folder.
#[test]
fn arguments_reach_the_program_letter_by_letter() {
    let Some(setup) = InPane::new(Subject::StandIn, "") else { return };
    let sandbox = &setup.companion.world.sandbox;
    let work = sandbox.path("wo rk #{pane_pid} it's $HOME;");
    fs::create_dir(&work).unwrap();
    let program = setup.companion.world.subject.program(sandbox);
    let seen = sandbox.path("seen");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit 1\n{{ pwd; for a; do printf '%s\\0' \"$a\"; done; }} > {seen:?}\nwhile :; do sleep 1; done\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let nasty = [
        "two words",
        "it's",
        "\"q\"",
        "$HOME",
        "`id`",
        "$(id)",
        "a\nb",
        "灯 🏮",
        "--",
        "-x",
        ";",
        "a;",
        "\\;",
        "&",
        "*",
        "",
        "\\",
        "~",
        "#{pane_pid}",
        "#(touch pwned)",
        "!",
        "%1",
        "\t",
        "trailing;",
    ];
    let pane = kael_core::switch::TmuxPane::new(
        Some(sandbox.path("tmux.sock")),
        "cc:0.0",
        &[&[program.to_str().unwrap(), "--resume", "{session_id}"][..], &nasty].concat().map_owned(),
        work.clone(),
    );
    setup.tmux(&["new-session", "-d", "-s", "cc", "/bin/sh", "-c", "sleep 0.1"]);
    setup.tmux(&["set-option", "-p", "-t", "=cc:0.0", "remain-on-exit", "on"]);
    wait_until("the pane is dead", || setup.tmux(&["list-panes", "-t", "cc", "-F", "#{pane_dead}"]) == "1");
    let session = kael_core::ids::SessionId::generate();
    kael_core::switch::SessionProcess::start(&pane, session).unwrap();
    wait_until("the program has seen its arguments", || {
        fs::read_to_string(&seen).is_ok_and(|text| text.ends_with("trailing;\0"))
    });
    let text = fs::read_to_string(&seen).unwrap();
    let (folder, arguments) = text.split_once('\n').unwrap();
    assert_eq!(folder, work.to_str().unwrap());
    let got: Vec<&str> = arguments.strip_suffix('\0').unwrap().split('\0').collect();
    assert_eq!(got[2..], nasty);
    assert_eq!(got[1], session.to_string());
    assert!(!work.join("pwned").exists() && !sandbox.work().join("pwned").exists());
}

trait Owned {
    fn map_owned(&self) -> Vec<String>;
}

impl Owned for Vec<&str> {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

/// Those that switch, without their guards.
fn doers(setup: &InPane) -> Vec<i32> {
    let guards = setup.workers("--guard");
    setup.workers("--operate").into_iter().filter(|pid| !guards.contains(pid)).collect()
}

fn kill(pids: &[i32]) {
    for pid in pids {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).ok();
    }
}

/// Whatever the moment: in the end a session runs in the pane, the one that the pointer names, and the operation
/// has come to an end.
#[test]
fn a_killed_worker_leaves_a_session_running() {
    for pause in [0, 40, 150, 600, 1200] {
        let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
        setup.configure(&FLAGS, AUTO);
        setup.type_in("and warm");
        wait_until("the switch has begun", || setup.operation()["status"] == "activating");
        std::thread::sleep(std::time::Duration::from_millis(pause));
        kill(&doers(&setup));
        let mut last = Value::Null;
        wait_until(&format!("the guard has ended it (killed after {pause} ms)"), || {
            last = setup.operation();
            ["activated", "rolled_back"].contains(&last["status"].as_str().unwrap())
        });
        let session = setup.companion.session();
        let wanted = if last["status"] == "activated" {
            last["new_session_id"].as_str().unwrap()
        } else {
            &setup.first
        };
        assert_eq!(session, wanted, "{last:#}");
        runs_on(&setup, wanted);
    }
}

#[test]
fn when_worker_and_guard_are_both_killed_the_next_command_brings_the_session_back() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.configure(&FLAGS, AUTO);
    let old = setup.note()["pid"].as_u64().unwrap();
    setup.type_in("and warm");
    wait_until("the old process has ended", || fs::metadata(format!("/proc/{old}")).is_err());
    kill(&setup.workers("--operate"));
    wait_until("they are gone", || setup.workers("").is_empty());
    let fixed = setup.companion.run(&["doctor", "--fix"]);
    let status = setup.operation()["status"].clone();
    assert!(
        ["activated", "rolled_back"].contains(&status.as_str().unwrap()),
        "{status}: {:#?}\n{}",
        fixed.lines,
        fixed.stderr
    );
    runs_on(&setup, &setup.companion.session());
}

#[test]
fn a_pane_that_is_killed_during_the_switch_ends_the_operation() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    setup.configure(&FLAGS, AUTO);
    setup.tmux(&["new-session", "-d", "-s", "other"]);
    setup.type_in("and warm");
    wait_until("the switch has begun", || setup.operation()["status"] == "activating");
    setup.tmux(&["kill-session", "-t", "=cc"]);
    let operation = setup.wait_for("failed");
    let error = operation["error"].as_str().unwrap();
    assert!(error.contains("no tmux pane that is exactly cc:0.0"), "{error}");
    wait_until("the pointer names the old session again", || setup.companion.session() == setup.first);
}

/// Typed into a shell, as most people do: the shell's set-up counts again, and the shell is there in the end.
#[test]
fn claude_in_a_shell_is_started_in_that_shell_again() {
    let Some(subject) = Subject::newest_real() else { return };
    let Some(setup) = InPane::new(subject, "rebuild = \"off\"") else { return };
    let sandbox = &setup.companion.world.sandbox;
    sandbox.write("home/.bashrc", "export FROM_THE_SHELL=yes\nPS1='ready> '\n");
    setup.tmux(&["new-session", "-d", "-s", "cc", "-x", "120", "-y", "40", "/bin/bash", "-i"]);
    wait_until("the shell is ready", || setup.screen().contains("ready>"));
    let line = setup.claude_line(&setup.first, "--session-id");
    setup.tmux(&["send-keys", "-t", "cc", "-l", &line]);
    setup.tmux(&["send-keys", "-t", "cc", "Enter"]);
    setup.wait_for_prompt();
    setup.teach();
    for words in WORDS {
        setup.say(words);
    }
    setup.companion.json(&["request", "--confirm", "REBUILD"]);
    setup.wait_for_prompt();
    let pid = setup.note()["pid"].as_u64().unwrap();
    assert_ne!(pid, u64::from(setup.pane_pid()), "the shell is around it");
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(environment.contains("FROM_THE_SHELL=yes"));
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::TERM).unwrap();
    wait_until("the shell is back", || setup.screen().trim_end().ends_with("ready>"));
}

/// The hook of another claude with the same settings, and one inside a turn of ours, change nothing.
#[test]
fn a_hook_answers_at_once_and_only_the_panes_own_counts() {
    let Some(setup) = InPane::new(Subject::StandIn, AUTO) else { return };
    let sandbox = &setup.companion.world.sandbox;
    let told = |text: &str| {
        let mut command = setup.companion.command(&["hook-stop"]);
        let mut running = crate::support::process::Running::spawn(&mut command);
        running.write(text);
        running.wait(crate::support::PATIENCE).expect_code(0)
    };
    let other = format!(
        r#"{{"session_id":"{}","transcript_path":"{}/x.jsonl","hook_event_name":"Stop"}}"#,
        setup.first,
        sandbox.work().display()
    );
    for text in ["", "{", "[]", "{\"session_id\":\"../../etc\"}", &other] {
        let outcome = told(text);
        let answer: Value = serde_json::from_str(&outcome.lines.join("\n")).unwrap();
        assert_eq!(answer["suppressOutput"], true, "{text}: {answer}");
    }
    assert!(!sandbox.state().join("worker.log").exists(), "no worker was started");
    let mut command = setup.companion.command(&["hook-stop"]);
    command.env(marked::MARKER, "11111111-2222-4333-8444-555555555555");
    let outcome = crate::support::process::Running::spawn(&mut command).wait(crate::support::PATIENCE);
    assert_eq!(outcome.expect_code(0).lines.join(""), "{\"suppressOutput\":true}");
    sandbox.write("config.toml", "activation = \"nonsense\"");
    let answer: Value = serde_json::from_str(&told("{}").lines.join("\n")).unwrap();
    assert!(answer["systemMessage"].as_str().unwrap().contains("activation"), "{answer}");
}

#[test]
fn a_drill_in_tmux_passes_and_leaves_nothing_and_never_touches_the_live_pane() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    let sandbox = &setup.companion.world.sandbox;
    let plugins = r#"{"enabledPlugins": {"telegram@claude-plugins-official": true}}"#;
    sandbox.write("home/.claude/settings.json", plugins);
    let (pid, bytes) = (setup.pane_pid(), fs_bytes(&setup, &setup.first));
    let mut left: Vec<_> = listed(sandbox.work()).collect();
    left.extend(listed(sandbox.home().join(".claude/projects")));
    super::remembers_code_words(&setup.companion.world.stub);
    let mut command = setup.companion.command(&["drill"]);
    for (name, value) in setup.command().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let drill = crate::support::process::Running::spawn(&mut command)
        .wait(crate::support::PATIENCE * 3)
        .expect_code(0);
    let text = drill.lines.join("\n");
    assert!(text.contains("both code words were known") && text.contains("the drill has passed"), "{text}");
    assert!(
        drill.stderr.contains("telegram@claude-plugins-official") && drill.stderr.contains("409"),
        "{drill:?}"
    );
    let mut after: Vec<_> = listed(sandbox.work()).collect();
    after.extend(listed(sandbox.home().join(".claude/projects")));
    assert_eq!(left, after, "nothing of it is left");
    assert_eq!(setup.pane_pid(), pid);
    assert_eq!(fs_bytes(&setup, &setup.first), bytes);
    assert_eq!(setup.session(), setup.first);
}

fn listed(folder: std::path::PathBuf) -> impl Iterator<Item = std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names.into_iter()
}
