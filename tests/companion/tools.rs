//! A turn that is cut short after or inside its tools goes on; no tool runs twice.

use std::fs;

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal};

use crate::stubs::reply::Reply;
use crate::stubs::request::Request;
use crate::support::companion::Companion;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

fn on_each(scenario: impl Fn(&Companion)) {
    let subjects = [Some(Subject::StandIn), Subject::real("2.1.332"), Subject::real("2.1.199")];
    for subject in subjects.into_iter().flatten() {
        eprintln!("on {subject:?}");
        let companion = Companion::new(subject, "", "rebuild = \"off\"");
        companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
        companion.run(&["send", "hello"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        scenario(&companion);
    }
}

/// What the tool did, a line each time.
fn effects(companion: &Companion) -> usize {
    fs::read_to_string(companion.world.sandbox.work().join("effects")).unwrap_or_default().lines().count()
}

fn assert_gone_on(last: &Request, words: &str, note: &str) {
    let human = last.texts(Role::User);
    assert_eq!(human.iter().filter(|text| text.contains(words)).count(), 1, "{human:#?}");
    assert_eq!(human.iter().filter(|text| text.contains("[kael-runner]")).count(), 1, "{human:#?}");
    assert!(human.iter().any(|text| text.contains(note)), "{human:#?}");
    for synthetic in ["No response requested", "Continue from where you left off"] {
        assert_eq!(last.occurrences(synthetic), 0, "{synthetic}");
    }
}

#[test]
fn finished_tools_are_not_repeated_and_their_results_are_kept() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let call = Reply::bash("echo once >> effects; echo THE-RESULT");
        stub.on_tool_turn("do it", call, Reply::error(500, "api_error", "an internal error"));
        stub.on_text("after the tools above had finished", Reply::text("It is done."));
        let runner = companion.start();
        assert_eq!(companion.say("do it"), "It is done.");
        assert_eq!(effects(companion), 1);
        let last = stub.last_main();
        assert_gone_on(&last, "do it", "Their results stand");
        assert!(last.occurrences("THE-RESULT") > 0, "the result is in the context");
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        companion.stop(runner);
        // The note is ours: a rebuild carries the words and not the note.
        let plan = companion.run(&["plan", "--json", "--candidate", "clean.jsonl"]);
        let plan: serde_json::Value = serde_json::from_str(&plan.lines.join("")).unwrap();
        assert_eq!(plan["stats"]["source_turns"], 3, "{plan:#}");
        let clean = fs::read_to_string(companion.world.sandbox.work().join("clean.jsonl")).unwrap();
        assert!(!clean.contains("[kael-runner]") && clean.contains("It is done.") && clean.contains("do it"));
    });
}

#[test]
fn a_tool_that_was_cut_short_is_not_run_again_by_us_and_the_model_is_told() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_tool_turn(
            "do it slowly",
            Reply::bash("echo once >> effects; sleep 60"),
            Reply::text("Never."),
        );
        stub.on_text("Whether it took effect is unknown", Reply::text("I looked: it had been done."));
        let runner = companion.start();
        companion.run(&["send", "--key", "slow", "do it slowly"]).expect_code(0);
        wait_until("the tool is at work", || effects(companion) == 1);
        // Rows are written some time after the tool has begun (measured: up to 75 ms).
        std::thread::sleep(std::time::Duration::from_millis(500));
        runner.signal(Signal::KILL);
        runner.wait(PATIENCE);
        for pid in companion.world.sandbox.survivors() {
            rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
        }
        let runner = companion.start();
        let reply = companion.run(&["send", "--wait", "--key", "slow", "do it slowly"]).expect_code(0);
        assert_eq!(reply.lines, ["I looked: it had been done."]);
        assert_eq!(effects(companion), 1, "the tool ran once");
        assert_gone_on(&stub.last_main(), "do it slowly", "the tool Bash ran");
        companion.stop(runner);
    });
}

#[test]
fn with_interrupted_tool_ask_a_human_decides() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\ninterrupted_tool = \"ask\"");
    let stub = &companion.world.stub;
    stub.on_tool_turn("do it slowly", Reply::bash("echo once >> effects; sleep 60"), Reply::text("Never."));
    stub.on_text("the next thing", Reply::text("On we go."));
    let runner = companion.start();
    companion.run(&["send", "--key", "slow", "do it slowly"]).expect_code(0);
    wait_until("the tool is at work", || effects(&companion) == 1);
    runner.signal(Signal::KILL);
    runner.wait(PATIENCE);
    let runner = companion.start();
    let error = companion.run(&["send", "--wait", "--key", "slow", "x"]).expect_code(1).stderr;
    assert!(error.contains("while Bash ran") && error.contains("kael-runner skip"), "{error}");
    companion.json(&["skip"]);
    assert_eq!(companion.say("the next thing"), "On we go.");
    assert_eq!(effects(&companion), 1);
    companion.stop(runner);
}

/// The children of a process, the dead ones that nobody waited for included.
fn children(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let lists =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn what_a_tool_leaves_behind_is_ended_also_without_a_trace_of_where_it_came_from() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        // In a session of its own, with an empty environment, as the child of a process that has ended; the second one
        // takes no notice of a polite request.
        let leave = "for how in 'exec sleep 600' 'trap \"\" TERM; while :; do sleep 1; done'; do
            env -i PATH=\"$PATH\" setsid sh -c \"echo \\$\\$ >> left; $how\" > /dev/null 2>&1 < /dev/null &
        done; while [ $(wc -l < left) -lt 2 ]; do sleep 0.02; done; echo LEFT";
        stub.on_tool_turn(
            "leave something",
            Reply::bash(&format!("touch left; {leave}")),
            Reply::text("Left."),
        );
        let runner = companion.start();
        assert_eq!(companion.say("leave something"), "Left.");
        let left = fs::read_to_string(companion.world.sandbox.work().join("left")).unwrap();
        assert_eq!(left.lines().count(), 2);
        for pid in left.lines() {
            let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert_eq!(command, "", "process {pid} lives on");
        }
        assert_eq!(children(runner.pid()), Vec::<String>::new(), "a child is left, dead or alive");
        companion.stop(runner);
    });
}
