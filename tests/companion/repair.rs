//! A version of the CLI that was never measured: a turn that is cut short goes on in a repaired copy of the session. The
//! program says that it is another version and is the known one else, so that what it makes of the copy is seen.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal, kill_process};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::transcript::outline;
use crate::support::{PATIENCE, wait_until};

fn on_each(scenario: impl Fn(&Companion)) {
    let subjects = [Some(Subject::StandIn), Subject::real("2.1.332"), Subject::real("2.1.199")];
    for subject in subjects.into_iter().flatten() {
        eprintln!("on {subject:?}, called 9.9.9");
        let companion = Companion::new(subject, "", "rebuild = \"off\"");
        let program = companion.world.sandbox.path("bin/claude");
        let real = fs::read_link(&program).unwrap();
        let real = match companion.world.subject {
            Subject::StandIn => format!("{} stand-in-claude", real.display()),
            Subject::Real { .. } => real.display().to_string(),
        };
        fs::remove_file(&program).unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '9.9.9 (new)'; exit; }}\nexec {real} \"$@\"\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
        companion.run(&["send", "hello"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        scenario(&companion);
    }
}

fn kill(companion: &Companion, runner: Running) {
    runner.signal(Signal::KILL);
    runner.wait(PATIENCE);
    for pid in companion.world.sandbox.survivors() {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
    }
}

/// The message once, nothing that the CLI made up, and the pointer on a repaired session.
fn assert_mended(companion: &Companion, words: &str, before: &str) {
    let last = companion.world.stub.last_main();
    let heard = last.texts(Role::User);
    assert_eq!(heard.iter().filter(|text| text.contains(words)).count(), 1, "{:#?}", last.view());
    for synthetic in ["No response requested", "Continue from where you left off", "Tool result missing"] {
        assert_eq!(last.occurrences(synthetic), 0, "{synthetic}: {:#?}", last.view());
    }
    assert_ne!(companion.session(), before);
    let operation = &companion.json(&["status"])["operation"];
    assert_eq!(
        (&operation["kind"], &operation["status"]),
        (&"repair".into(), &"activated".into()),
        "{operation:#}"
    );
    assert!(companion.history().last().unwrap().2, "the history names the operation");
    assert!(companion.json(&["status"])["hold"].is_null());
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    let heard = companion.world.stub.last_main().texts(Role::User);
    assert_eq!(heard.iter().filter(|text| text.contains(words)).count(), 1, "once in the next one, too");
}

#[test]
fn an_api_error_is_cut_off() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let before = companion.session();
        let old = companion.world.sandbox.transcript(&before);
        stub.on_text("cloudy", Reply::text("It will clear up."));
        stub.on_text_times("cloudy", 1, Reply::error(500, "api_error", "an internal error"));
        let runner = companion.start();
        assert_eq!(companion.say("it is cloudy"), "It will clear up.");
        assert_mended(companion, "it is cloudy", &before);
        let words = fs::read_to_string(old).unwrap();
        assert!(words.contains("it is cloudy"), "the old transcript is left as it was");
        companion.stop(runner);
    });
}

#[test]
fn a_kill_before_the_answer_is_cut_off() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let (gate, before) = (Gate::new(), companion.session());
        stub.on_text("slow", Reply::text("At last."));
        stub.on_text_times("slow", 1, Reply::text("Never seen.").gate(&gate));
        let runner = companion.start();
        companion.run(&["send", "--key", "k", "a slow one"]).expect_code(0);
        gate.wait_reached(PATIENCE);
        let transcript = companion.world.sandbox.transcript(&before);
        // The request may be ahead of the file.
        wait_until("the message's row is written", || {
            outline(&transcript).iter().any(|row| row.starts_with("U:") && row.contains("a slow one"))
        });
        kill(companion, runner);
        let runner = companion.start();
        assert_eq!(companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0).lines, ["At last."]);
        assert_mended(companion, "a slow one", &before);
        gate.open();
        companion.stop(runner);
    });
}

#[test]
fn what_tools_have_done_is_kept() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let before = companion.session();
        let call = Reply::bash("echo once >> effects; echo THE-RESULT");
        stub.on_tool_turn("do it", call, Reply::error(500, "api_error", "an internal error"));
        stub.on_text("What its tools did stands above", Reply::text("It is done."));
        let runner = companion.start();
        assert_eq!(companion.say("do it"), "It is done.");
        assert!(stub.last_main().occurrences("THE-RESULT") > 0, "{:#?}", stub.last_main().view());
        assert_mended(companion, "do it", &before);
        let effects = fs::read_to_string(companion.world.sandbox.work().join("effects")).unwrap();
        assert_eq!(effects.lines().count(), 1);
        companion.stop(runner);
    });
}

#[test]
fn a_tool_that_was_cut_short_gets_a_result_that_says_so() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let before = companion.session();
        let call = Reply::bash("echo once >> effects; sleep 60");
        stub.on_tool_turn("do it slowly", call, Reply::text("Never."));
        stub.on_text("What its tools did stands above", Reply::text("I looked: it had been done."));
        let runner = companion.start();
        companion.run(&["send", "--key", "k", "do it slowly"]).expect_code(0);
        let effects = companion.world.sandbox.work().join("effects");
        wait_until("the tool is at work", || effects.exists());
        let transcript = companion.world.sandbox.transcript(&before);
        wait_until("its row is written", || {
            fs::read_to_string(&transcript).is_ok_and(|text| text.contains("echo once"))
        });
        kill(companion, runner);
        let runner = companion.start();
        let reply = companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
        assert_eq!(reply.lines, ["I looked: it had been done."]);
        assert!(stub.last_main().occurrences("Whether it took effect is unknown") > 0);
        assert_mended(companion, "do it slowly", &before);
        assert_eq!(fs::read_to_string(effects).unwrap().lines().count(), 1);
        companion.stop(runner);
        // The rows of ours are nobody's words.
        let plan = companion.run(&["plan", "--json", "--candidate", "clean.jsonl"]);
        let clean = fs::read_to_string(companion.world.sandbox.work().join("clean.jsonl"))
            .unwrap_or_else(|error| panic!("{error}: {plan:?}"));
        assert!(!clean.contains("Whether it took effect") && !clean.contains("[kael-runner]"), "{clean}");
        assert!(clean.contains("do it slowly") && clean.contains("I looked"));
    });
}

#[test]
fn a_repair_asks_nobody_and_withdraws_only_a_question_of_our_own() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let program = companion.world.sandbox.path("bin/claude");
    let real = fs::read_link(&program).unwrap();
    fs::remove_file(&program).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '9.9.9 (new)'; exit; }}\nexec {} stand-in-claude \"$@\"\n",
        real.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    companion.run(&["send", "hello"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    companion.run(&["request", "--reason", "slow"]).expect_code(0);
    stub.on_text_times("cloudy", 1, Reply::error(500, "api_error", "an internal error"));
    companion.run(&["send", "it is cloudy"]).expect_code(0);
    let held = companion.run(&["run", "--until-idle"]).expect_code(1).stderr;
    assert!(held.contains("say yes or no to it first"), "{held}");
    companion.json(&["cancel", "--confirm", "CANCEL"]);
    companion.json(&["retry"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 2);
}
