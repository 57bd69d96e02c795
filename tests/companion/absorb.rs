//! `absorb = true`: what is said while a tool is at work goes to the running turn, and is in the conversation once,
//! whatever happens to the CLI meanwhile.

use std::fs;

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

const FIRST: &str = "count the boats";
const SECOND: &str = "and the kites, @/etc/hostname";

fn on_each(scenario: impl Fn(&Companion)) {
    let subjects = [Some(Subject::StandIn), Subject::real("2.1.332"), Subject::real("2.1.199")];
    for subject in subjects.into_iter().flatten() {
        eprintln!("on {subject:?}");
        scenario(&companion(subject));
    }
}

fn companion(subject: Subject) -> Companion {
    let companion = Companion::new(subject, "", "rebuild = \"off\"\nabsorb = true");
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text("the note says", Reply::text("It is done."));
    companion.run(&["send", "hello"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    companion
}

/// A call that works until the file `go` is there.
fn counting() -> Reply {
    Reply::bash("echo once >> effects; while [ ! -e go ]; do sleep 0.02; done; echo COUNTED")
}

/// Everything that the request says, in whatever role: 2.1.199 gives what was absorbed the role `system`.
fn said(companion: &Companion, words: &str) -> usize {
    companion.world.stub.last_main().body["messages"].to_string().matches(words).count()
}

fn assert_once(companion: &Companion) {
    for words in [FIRST, "and the kites"] {
        assert_eq!(said(companion, words), 1, "{words}: {:#?}", companion.world.stub.last_main().view());
    }
    let last = companion.world.stub.last_main();
    for synthetic in ["No response requested", "Continue from where you left off"] {
        assert_eq!(last.occurrences(synthetic), 0, "{synthetic}");
    }
    let hostname = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let (asked, file) = (last.body["messages"].to_string(), hostname.trim());
    assert!(file.is_empty() || !asked.contains(&format!("\\t{file}")), "the file that was named was read");
    let effects = fs::read_to_string(companion.world.sandbox.work().join("effects")).unwrap_or_default();
    assert_eq!(effects.lines().count(), 1, "the tool ran once");
}

/// A runner at whose tool the second message has arrived.
fn given(companion: &Companion, runner: Running) -> Running {
    companion.run(&["send", "--key", "first", FIRST]).expect_code(0);
    let effects = companion.world.sandbox.work().join("effects");
    wait_until("the tool is at work", || effects.exists());
    companion.run(&["send", "--key", "second", SECOND]).expect_code(0);
    runner
        .wait_stderr("the message to be given", PATIENCE, |line| line.contains("given to the running turn"));
    runner
}

fn go(companion: &Companion) {
    companion.world.sandbox.write("work/go", "");
}

fn kill(companion: &Companion, runner: Running) {
    runner.signal(Signal::KILL);
    runner.wait(PATIENCE);
    for pid in companion.world.sandbox.survivors() {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
    }
}

fn reply(companion: &Companion, key: &str) -> Vec<String> {
    companion.run(&["send", "--wait", "--key", key, "x"]).expect_code(0).lines
}

#[test]
fn what_is_said_while_a_tool_works_is_taken_into_the_turn() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on(|request| {
            let body = request.body["messages"].to_string();
            (body.contains(FIRST) && !body.contains("COUNTED")).then(counting)
        });
        let before = stub.main_requests().len();
        stub.on(|request| {
            let body = request.body["messages"].to_string();
            let both = request.ends_with_results() || body.contains("and the kites");
            (both && body.contains("COUNTED\"") && !body.contains("hello again"))
                .then(|| Reply::text("Three boats and two kites."))
        });
        let runner = given(companion, companion.start());
        go(companion);
        assert_eq!(reply(companion, "second"), ["Three boats and two kites."]);
        assert_eq!(reply(companion, "first"), ["Three boats and two kites."]);
        assert_eq!(stub.main_requests().len() - before, 2, "one turn: the call, and the answer to both");
        assert_once(companion);
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        assert_once(companion);
        assert_eq!(companion.json(&["status"])["messages"]["answered"], 4);
        companion.stop(runner);
        // A rebuild carries what was said, too, as the inbox knows it.
        let plan = companion.run(&["plan", "--json", "--candidate", "clean.jsonl"]);
        let plan: Value = serde_json::from_str(&plan.lines.join("")).unwrap();
        let clean = fs::read_to_string(companion.world.sandbox.work().join("clean.jsonl"))
            .unwrap_or_else(|error| panic!("{error}: {plan:#}"));
        assert_eq!((clean.matches(FIRST).count(), clean.matches("and the kites").count()), (1, 1));
    });
}

#[test]
fn a_session_in_which_several_were_said_while_a_tool_worked_can_be_rebuilt() {
    on_each(|companion| {
        companion
            .configure("stable_file_seconds = 0.2", "rebuild = \"off\"\nabsorb = true\nmin_gain_percent = 1");
        let stub = &companion.world.stub;
        stub.on_tool_turn(
            FIRST,
            Reply::bash("echo once >> effects; while [ ! -e go ]; do sleep 0.02; done; seq 1 4000"),
            Reply::text("Three boats."),
        );
        stub.on_text("kites", Reply::text("Heard."));
        let runner = companion.start();
        companion.run(&["send", "--key", "first", FIRST]).expect_code(0);
        let effects = companion.world.sandbox.work().join("effects");
        wait_until("the tool is at work", || effects.exists());
        for words in ["red kites", "blue kites", "green kites"] {
            // The key stands in the envelope, too.
            companion.run(&["send", "--key", &words[..3], words]).expect_code(0);
        }
        runner.wait_stderr("one to be given", PATIENCE, |line| line.contains("given to the running turn"));
        go(companion);
        companion.wait_for_status("all are answered", |status| status["messages"]["answered"] == 5);
        let before = companion.session();
        companion.json(&["request", "--confirm", "REBUILD"]);
        companion.wait_for_status("the rebuild is done", |status| {
            let status = status["operation"]["status"].as_str().unwrap_or_default();
            matches!(status, "activated" | "failed")
        });
        assert_ne!(companion.session(), before, "{:#}", companion.json(&["status"])["operation"]);
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        for words in [FIRST, "red kites", "blue kites", "green kites"] {
            assert_eq!(said(companion, words), 1, "{words}");
        }
        companion.stop(runner);
    });
}

#[test]
fn a_kill_before_it_is_taken_in_leaves_it_waiting() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_tool_turn(FIRST, counting(), Reply::text("Never."));
        stub.on_text("Whether it took effect is unknown", Reply::text("I looked: three boats."));
        stub.on_text("and the kites", Reply::text("Two kites."));
        let runner = given(companion, companion.start());
        // Rows are written some time after the tool has begun (measured: up to 75 ms).
        std::thread::sleep(std::time::Duration::from_millis(500));
        kill(companion, runner);
        let runner = companion.start();
        assert_eq!(reply(companion, "first"), ["I looked: three boats."]);
        assert_eq!(reply(companion, "second"), ["Two kites."]);
        assert_once(companion);
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        assert_once(companion);
        companion.stop(runner);
    });
}

#[test]
fn a_kill_after_it_is_taken_in_and_before_the_answer_asks_it_again_once() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let gate = Gate::new();
        stub.on_text("and the kites", Reply::text("Two kites."));
        stub.on_text("after the tools above had finished", Reply::text("Three boats."));
        let held = gate.clone();
        stub.on(move |request| {
            let body = request.body["messages"].to_string();
            if !body.contains(FIRST) || body.contains("[kael-runner]") {
                return None;
            }
            Some(if body.contains("COUNTED\"") { Reply::text("Never.").gate(&held) } else { counting() })
        });
        let runner = given(companion, companion.start());
        go(companion);
        gate.wait_reached(PATIENCE);
        assert_eq!(said(companion, "and the kites"), 1, "it was taken in");
        // The CLI's requests run ahead of its file.
        let transcript = companion.world.sandbox.transcript(&companion.session());
        wait_until("its row is written", || {
            fs::read_to_string(&transcript).is_ok_and(|text| text.contains("\"queued_command\""))
        });
        kill(companion, runner);
        let runner = companion.start();
        assert_eq!(reply(companion, "first"), ["Three boats."]);
        // 2.1.199 cannot go on behind it: there it is asked again, by itself. Elsewhere one answer is to both.
        let alone = companion.world.subject.version() == "2.1.199";
        let wanted = if alone { "Two kites." } else { "Three boats." };
        assert_eq!(reply(companion, "second"), [wanted]);
        assert_once(companion);
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        assert_once(companion);
        gate.open();
        companion.stop(runner);
    });
}

#[test]
fn the_runner_alone_dies_and_finds_what_the_cli_has_answered() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on(|request| {
            let body = request.body["messages"].to_string();
            let call = body.contains(FIRST) && !body.contains("COUNTED\"");
            let both = body.contains("COUNTED\"") && !body.contains("hello again");
            match (call, both) {
                (true, _) => Some(counting()),
                (_, true) => Some(Reply::text("Three boats and two kites.")),
                _ => None,
            }
        });
        let runner = given(companion, companion.start());
        runner.signal(Signal::KILL);
        let opener = companion.world.sandbox.path("work/go");
        let late = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            fs::write(opener, "").unwrap();
        });
        runner.wait(PATIENCE);
        let runner = companion.start();
        late.join().unwrap();
        assert_eq!(reply(companion, "second"), ["Three boats and two kites."]);
        assert_eq!(reply(companion, "first"), ["Three boats and two kites."]);
        assert_once(companion);
        companion.stop(runner);
    });
}

/// On the stand-in alone: the real CLI cannot be made to look away at will. That a line which comes too late is a turn of
/// its own there, too, the conformance suite shows.
fn late(reply_to_first: Reply) -> (Companion, Running) {
    let companion = companion(Subject::StandIn);
    let stub = &companion.world.stub;
    stub.on_text("and the kites", Reply::text("Two kites."));
    stub.on_tool_turn(FIRST, counting(), reply_to_first);
    let runner = Running::spawn(companion.command(&["run"]).env("KAEL_STANDIN_QUIRKS", "no-absorb"));
    let runner = given(&companion, runner);
    go(&companion);
    (companion, runner)
}

#[test]
fn what_comes_too_late_for_the_turn_is_one_of_its_own_in_the_same_process() {
    let (companion, runner) = late(Reply::text("Three boats."));
    assert_eq!(reply(&companion, "first"), ["Three boats."]);
    assert_eq!(reply(&companion, "second"), ["Two kites."]);
    assert_eq!(companion.world.stub.main_requests().len(), 4, "hello, the call, two answers");
    assert_once(&companion);
    let usage = companion.json(&["usage"]);
    let turns: u64 = usage["days"].as_array().unwrap().iter().map(|day| day["turns"].as_u64().unwrap()).sum();
    assert_eq!(turns, 3, "{usage:#}");
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    assert_once(&companion);
    companion.stop(runner);
}

#[test]
fn a_turn_that_fails_while_something_was_added_to_it_loses_neither() {
    let (companion, runner) = late(Reply::error(500, "api_error", "an internal error"));
    companion.world.stub.on_text("after the tools above had finished", Reply::text("Three boats."));
    // Where the CLI is faster than our signal, it has gone on from the failure, and one answer is to both.
    let first = reply(&companion, "first");
    assert!(first == ["Three boats."] || first == ["Two kites."], "{first:?}");
    assert_eq!(reply(&companion, "second"), ["Two kites."]);
    assert_once(&companion);
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    assert_once(&companion);
    companion.stop(runner);
}

#[test]
fn without_absorb_it_waits_for_its_own_turn() {
    let companion = companion(Subject::StandIn);
    companion.configure("", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    stub.on_text("and the kites", Reply::text("Two kites."));
    stub.on_tool_turn(FIRST, counting(), Reply::text("Three boats."));
    let runner = companion.start();
    companion.run(&["send", "--key", "first", FIRST]).expect_code(0);
    let effects = companion.world.sandbox.work().join("effects");
    wait_until("the tool is at work", || effects.exists());
    companion.run(&["send", "--key", "second", SECOND]).expect_code(0);
    go(&companion);
    assert_eq!(reply(&companion, "first"), ["Three boats."]);
    assert_eq!(reply(&companion, "second"), ["Two kites."]);
    let human = stub.last_main().texts(Role::User);
    assert!(human.last().unwrap().contains("<channel"), "{human:#?}");
    companion.stop(runner);
}
