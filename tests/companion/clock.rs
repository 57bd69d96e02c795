//! Pauses to the second, on a clock that only the test moves: the supervisor in this process, the stand-in as its CLI.

use std::sync::Arc;
use std::time::Duration;

use kael_core::clock::{Clock, ManualClock, Timestamp};
use kael_core::config::{self, Lookup};
use kael_runner::doorbell;
use kael_runner::supervisor::Supervisor;
use serde_json::Value;

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;

const START: &str = "2026-11-30T14:00:00.000Z";

/// A companion whose runner lives in this process.
struct Timed {
    companion: Companion,
    clock: Arc<ManualClock>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Timed {
    fn start(runner: &str) -> Self {
        let companion = Companion::new(Subject::StandIn, "", &format!("rebuild = \"off\"\n{runner}"));
        companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
        let path = companion.world.sandbox.path("config.toml");
        let home = companion.world.sandbox.home();
        // The last table is that of the CLI's environment.
        let text = format!("{}HOME = {home:?}\n", std::fs::read_to_string(&path).unwrap());
        std::fs::write(&path, text).unwrap();
        let lookup = Lookup {
            explicit: Some(path.clone()),
            env: &|name| (name == "HOME").then(|| home.clone().into()),
            cwd: companion.world.sandbox.work(),
            called_as_original: false,
        };
        let config =
            config::parse(&std::fs::read_to_string(&path).unwrap(), &path, &lookup).unwrap().remove(0);
        let clock = Arc::new(ManualClock::starting_at(START.parse().unwrap()));
        let (end, ended) = tokio::sync::oneshot::channel();
        let for_runner = Arc::clone(&clock);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut companion = kael_runner::companion::Companion::new(config);
                companion.clock = for_runner;
                let supervisor = Supervisor::start(companion, false).unwrap();
                tokio::select! {
                    result = supervisor.run() => result.unwrap(),
                    _ = ended => {}
                }
            });
        });
        let timed = Self { companion, clock, end: Some(end), thread: Some(thread) };
        timed.companion.wait_for_status("the runner lives", |status| status["runner"]["lives"] == true);
        timed
    }

    fn send(&self, words: &str) {
        self.companion.run(&["send", "--key", words, words]).expect_code(0);
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        doorbell::ring(&self.companion.world.sandbox.state());
    }

    fn asked(&self) -> usize {
        self.companion.world.stub.main_requests().len()
    }

    /// Waits until something waits for that reason, and gives how long from now on.
    fn waits(&self, why: &str, requests: usize) -> Duration {
        let status = self.companion.wait_for_status(&format!("a wait for {why}"), |status| {
            status["next_retry"]["why"] == why
                && self.asked() == requests
                && at(&status["next_retry"]["at"]) > self.clock.now()
        });
        at(&status["next_retry"]["at"]).since(self.clock.now())
    }

    /// Lets almost all of it pass, sees that nothing was tried, then the rest.
    fn sleep(&self, pause: Duration) {
        let before = self.asked();
        self.pass(pause - Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.asked(), before, "tried before its time");
        self.pass(Duration::from_millis(1));
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end.send(()).unwrap_or_default();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the supervisor panicked");
        }
    }
}

fn at(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn between(pause: Duration, seconds: u64) {
    let wanted = Duration::from_secs(seconds);
    assert!(
        pause >= wanted && pause <= wanted.mul_f64(1.2),
        "{pause:?} where {seconds} s and up to a fifth were due"
    );
}

#[test]
fn failures_are_repeated_after_growing_pauses_and_the_breaker_makes_them_long() {
    let timed = Timed::start("breaker = 3");
    let stub = &timed.companion.world.stub;
    stub.on_text("storm", Reply::error(529, "overloaded_error", "Overloaded"));
    timed.send("a storm");
    for (requests, why, seconds) in
        [(1, "pause", 1), (2, "pause", 2), (3, "breaker", 300), (4, "breaker", 600), (5, "breaker", 1200)]
    {
        let pause = timed.waits(why, requests);
        between(pause, seconds);
        timed.sleep(pause);
    }
    // Another message does not get round it.
    timed.waits("breaker", 6);
    timed.send("hello");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(timed.asked(), 6);
    stub.on_text("storm", Reply::text("It is over."));
    timed.pass(Duration::from_secs(3600));
    let status = timed.companion.wait_for_status("both are answered", |s| s["messages"]["answered"] == 2);
    assert!(status["next_retry"].is_null(), "{status:#}");
    // The next failure begins with a short pause again.
    stub.on_text_times("again", 1, Reply::error(529, "overloaded_error", "Overloaded"));
    timed.send("and again");
    let pause = timed.waits("pause", timed.asked().max(9));
    between(pause, 1);
}

#[test]
fn a_human_ends_a_wait_at_once() {
    let timed = Timed::start("breaker = 1");
    timed.companion.world.stub.on_text_times("storm", 1, Reply::error(529, "overloaded_error", "Overloaded"));
    timed.send("a storm");
    between(timed.waits("breaker", 1), 300);
    timed.companion.json(&["retry"]);
    timed.companion.wait_for_status("it is answered", |s| s["messages"]["answered"] == 1);
}

#[test]
fn a_refused_login_is_tried_slowly_in_a_session_and_a_folder_of_its_own() {
    let timed = Timed::start("");
    let stub = &timed.companion.world.stub;
    timed.send("hello");
    timed.companion.wait_for_status("the first answer", |s| s["messages"]["answered"] == 1);
    let session = timed.companion.session();
    stub.on(|_| Some(Reply::error(401, "authentication_error", "expired")));
    timed.send("hello again");
    let mut pause = timed.waits("probe", 2);
    for (requests, seconds) in [(3, 60), (4, 120), (5, 240)] {
        between(pause, seconds);
        timed.sleep(pause);
        timed.companion.world.stub.wait_main(requests, crate::support::PATIENCE);
        let status = timed.companion.wait_for_status("the next probe is planned", |status| {
            status["next_retry"]["why"] == "probe" && at(&status["next_retry"]["at"]) > timed.clock.now()
        });
        pause = at(&status["next_retry"]["at"]).since(timed.clock.now());
    }
    let probe = stub.last_main();
    assert_eq!(probe.occurrences("hello"), 0, "the conversation is not tried with: {:#?}", probe.view());
    assert_ne!(probe.session(), Some(session.as_str()));
    stub.clear_rules();
    stub.on_text("hello", Reply::text("Hello yourself."));
    timed.sleep(pause);
    let status = timed.companion.wait_for_status("the queue goes on", |s| s["messages"]["answered"] == 2);
    assert!(status["hold"].is_null() && status["next_retry"].is_null(), "{status:#}");
    assert_eq!(timed.companion.session(), session);
}
