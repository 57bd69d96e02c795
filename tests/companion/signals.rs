//! Signals that the CLI gets from elsewhere, at every moment of a turn: the message is in the conversation once and is
//! answered, a tool takes effect once, and nothing of the CLI's own making comes between.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal, kill_process};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// When the signal comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeTheAnswer,
    DuringTheAnswer,
    DuringACall,
    InsideATool,
    AfterItsTools,
    AfterTheAnswer,
}

const MOMENTS: [Moment; 6] = [
    Moment::BeforeTheAnswer,
    Moment::DuringTheAnswer,
    Moment::DuringACall,
    Moment::InsideATool,
    Moment::AfterItsTools,
    Moment::AfterTheAnswer,
];

const SIGNALS: [(&str, Signal); 3] = [("TERM", Signal::TERM), ("KILL", Signal::KILL), ("INT", Signal::INT)];

fn cli_of(runner: &Running) -> Option<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", runner.pid().as_raw_nonzero())).ok()?;
    let lists =
        tasks.flatten().map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let pids: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().find_map(Pid::from_raw)
}

/// The first request of a message gets `first`, with the gate; what comes later is answered.
fn script(companion: &Companion, words: &str, moment: Moment, gate: &Gate) {
    let (needle, gate, asked) = (words.to_owned(), gate.clone(), Arc::new(AtomicUsize::new(0)));
    let call = format!("echo '{words}' >> effects; echo DONE");
    companion.world.stub.on(move |request| {
        if !request.body["messages"].to_string().contains(&needle) {
            return None;
        }
        let n = asked.fetch_add(1, Ordering::SeqCst);
        let tool = |command: &str| {
            Reply::text("I work.")
                .and_tool("Bash", serde_json::json!({"command": command, "description": "w"}))
        };
        Some(match (moment, n) {
            (Moment::BeforeTheAnswer, 0) => Reply::text("Never.").gate(&gate),
            (Moment::DuringTheAnswer, 0) => {
                Reply::text("Never whole, and long enough.").pause_after(4, &gate)
            }
            (Moment::DuringACall, 0) => tool(&call).pause_after(9, &gate),
            (Moment::InsideATool, 0) => tool(&format!("echo '{needle}' >> effects; sleep 30")),
            (Moment::AfterItsTools, 0) => tool(&call),
            (Moment::AfterItsTools, 1) => Reply::text("Never.").gate(&gate),
            _ => Reply::text("Answered."),
        })
    });
}

fn one(companion: &Companion, runner: &Running, words: &str, moment: Moment, signal: Signal) {
    let gate = Gate::new();
    companion.world.stub.clear_rules();
    script(companion, words, moment, &gate);
    companion.run(&["send", "--key", words, words]).expect_code(0);
    let effects = companion.world.sandbox.work().join("effects");
    let done =
        || fs::read_to_string(&effects).unwrap_or_default().lines().filter(|line| *line == words).count();
    let transcript = companion.world.sandbox.transcript(&companion.session());
    let written = |text: &str| fs::read_to_string(&transcript).unwrap_or_default().contains(text);
    match moment {
        Moment::InsideATool => {
            wait_until("the tool is at work", || done() == 1);
            // Its row comes some time after the tool has begun (measured: up to 75 ms).
            wait_until("its row is written", || written(&format!("echo '{words}'")));
        }
        Moment::AfterTheAnswer => wait_until("the answer is written", || written("Answered.")),
        Moment::AfterItsTools => {
            gate.wait_reached(PATIENCE);
            wait_until("the result is written", || written("DONE"));
        }
        _ => gate.wait_reached(PATIENCE),
    }
    if let Some(cli) = cli_of(runner) {
        // Where it has just ended by itself, that is as good.
        kill_process(cli, signal).ok();
    }
    let reply = companion.run(&["send", "--wait", "--key", words, "x"]).expect_code(0);
    gate.open();
    assert_eq!(reply.lines.last().map(String::as_str), Some("Answered."), "{words}: {reply:?}");
    let last = companion.world.stub.last_main();
    let heard = last.texts(Role::User).iter().filter(|text| text.contains(words)).count();
    assert_eq!(heard, 1, "{words}: {:#?}", last.view());
    for made_up in ["No response requested", "Continue from where you left off", "[Request interrupted"] {
        assert_eq!(last.occurrences(made_up), 0, "{words}: {made_up}: {:#?}", last.view());
    }
    let wanted = usize::from(matches!(moment, Moment::InsideATool | Moment::AfterItsTools));
    assert_eq!(done(), wanted, "{words}: the tool took effect once");
    let tail: Vec<String> = last.view().into_iter().rev().take(4).collect();
    eprintln!(
        "  {words}: {:?}",
        tail.iter().rev().map(|t| t.chars().take(90).collect::<String>()).collect::<Vec<_>>()
    );
}

fn every(subject: Subject) {
    eprintln!("on {subject:?}");
    let companion = Companion::new(subject, "", "rebuild = \"off\"\nmax_attempts = 100\nbreaker = 100");
    let runner = companion.start();
    companion.say("seed");
    for (name, signal) in SIGNALS {
        for moment in MOMENTS {
            one(&companion, &runner, &format!("{name} {moment:?}"), moment, signal);
        }
    }
    companion.world.stub.clear_rules();
    companion.say("the end of the list");
    let heard = companion.world.stub.last_main().texts(Role::User);
    for (name, _) in SIGNALS {
        for moment in MOMENTS {
            let words = format!("{name} {moment:?}");
            assert_eq!(heard.iter().filter(|text| text.contains(&words)).count(), 1, "{words}: {heard:#?}");
        }
    }
    companion.stop(runner);
}

#[test]
fn every_signal_at_every_moment_on_the_stand_in() {
    every(Subject::StandIn);
}

#[test]
fn every_signal_at_every_moment_on_the_newest_cli() {
    if let Some(subject) = Subject::real("2.1.332") {
        every(subject);
    }
}

#[test]
fn every_signal_at_every_moment_on_the_oldest_cli() {
    if let Some(subject) = Subject::real("2.1.199") {
        every(subject);
    }
}
