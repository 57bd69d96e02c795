//! Kills at random moments of a turn: of the runner, of the CLI, of both. Whatever dies, every message is in the
//! conversation once and is answered.

use std::time::Duration;

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::dice::Dice;
use crate::support::subject::Subject;

fn kill_all(pids: impl IntoIterator<Item = i32>) {
    for pid in pids.into_iter().filter_map(Pid::from_raw) {
        // Gone already is as good.
        kill_process(pid, Signal::KILL).ok();
    }
}

fn kills(subject: Subject, times: u64, longest: Duration) {
    let companion = Companion::new(subject, "", "rebuild = \"off\"\nmax_attempts = 50\nbreaker = 50");
    let mut dice = Dice::thrown();
    let mut runner = companion.start();
    for n in 0..times {
        let words = format!("thing number {n} of the list");
        companion.run(&["send", "--key", &n.to_string(), &words]).expect_code(0);
        std::thread::sleep(Duration::from_micros(dice.below(longest.as_micros() as u64)));
        let own = runner.pid().as_raw_nonzero().get();
        let others: Vec<i32> =
            companion.world.sandbox.survivors().into_iter().filter(|pid| *pid != own).collect();
        match dice.below(3) {
            0 => {
                runner.signal(Signal::KILL);
                runner.wait(PATIENCE);
                runner = companion.start();
            }
            1 => kill_all(others),
            _ => {
                runner.signal(Signal::KILL);
                kill_all(others);
                runner.wait(PATIENCE);
                runner = companion.start();
            }
        }
        let reply = companion.run(&["send", "--wait", "--key", &n.to_string(), &words]).expect_code(0);
        assert!(!reply.lines.is_empty(), "message {n} has a reply");
    }
    companion.say("the end of the list");
    let last = companion.world.stub.last_main();
    let heard = last.texts(Role::User);
    for n in 0..times {
        let words = format!("thing number {n} of the list");
        let count: usize = heard.iter().filter(|text| text.contains(&words)).count();
        assert_eq!(count, 1, "{words:?} stands {count} times in {heard:#?}");
    }
    assert_eq!(companion.json(&["status"])["messages"]["answered"], times + 1);
    companion.stop(runner);
}

fn times() -> u64 {
    if std::env::var_os("KAEL_TEST_FULL").is_some() { 300 } else { 20 }
}

#[test]
fn kills_on_the_stand_in() {
    kills(Subject::StandIn, times(), Duration::from_millis(60));
}

#[test]
fn kills_on_the_real_cli() {
    if let Some(subject) = Subject::newest_real() {
        kills(subject, times(), Duration::from_millis(900));
    }
}
