//! A long time of random faults: kills of runner and CLI, refusals and cuts of the API, a CLI that hangs or lies, rebuilds
//! in between. At its end every word that the generator said stands in the conversation once and in order, every message
//! has its answer, no tool ran twice, and nothing is stuck.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use kael_runner::standin::context::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::dice::Dice;
use crate::support::process::Running;
use crate::support::subject::Subject;

/// What was said, and what was done to those who had to answer it.
struct Soak {
    companion: Companion,
    dice: Dice,
    runner: Option<Running>,
    said: Vec<String>,
    faults: std::collections::BTreeMap<&'static str, u64>,
}

/// Kinds of trouble that the CLI's wrapper makes by chance, one of so many starts.
const QUIRKS: [&str; 6] =
    ["hang-after-result", "no-result", "half-result", "exit-three", "leave-child", "no-absorb"];

impl Soak {
    fn new(faulty_api: bool, faulty_cli: bool) -> Self {
        let companion = Companion::new(Subject::StandIn, "stable_file_seconds = 0.05", RUNNER);
        let mut dice = Dice::thrown();
        if faulty_cli {
            let program = companion.world.subject.program(&companion.world.sandbox);
            let real = fs::read_link(&program).unwrap();
            fs::remove_file(&program).unwrap();
            let cases: String =
                QUIRKS.iter().enumerate().map(|(n, quirk)| format!("{n}) q={quirk};; ")).collect();
            let script = format!(
                "#!/bin/sh\n[ \"$1\" = --version ] || case $(($(od -An -N2 -tu2 /dev/urandom) % 60)) in {cases}esac\n\
                 export KAEL_STANDIN_QUIRKS=$q\nexec {} stand-in-claude \"$@\"\n",
                real.display()
            );
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let stub = &companion.world.stub;
        stub.on(|request| {
            let human = request.last_human();
            let (_, number) = human.split_once("work on thing ")?;
            let number: String = number.chars().take_while(char::is_ascii_digit).collect();
            let call = format!("echo {number} >> effects; seq 1 4000; sleep 0.0{}", number.len());
            (!request.ends_with_results()).then(|| Reply::bash(&call))
        });
        if faulty_api {
            let mut dice = dice.another();
            stub.on(move |_| match dice.below(40) {
                0 => Some(Reply::error(529, "overloaded_error", "made up")),
                1 => Some(Reply::error(500, "api_error", "made up")),
                2 => Some(Reply::error(429, "rate_limit_error", "made up")),
                3 => Some(Reply::brain().cut_after(3)),
                4 => Some(Reply::brain().delay(Duration::from_millis(400))),
                5 => Some(Reply::error_event("overloaded_error")),
                _ => None,
            });
        }
        Self { companion, dice, runner: None, said: Vec::new(), faults: std::collections::BTreeMap::new() }
    }

    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    fn run(&mut self) {
        if self.runner.is_none() {
            self.runner = Some(self.companion.start());
        }
    }

    fn say(&mut self) {
        let n = self.said.len();
        let words = match self.dice.below(4) {
            0 => format!("work on thing {n}, would you"),
            1 => format!("第{n}句：今天的风筝是蓝色的 🪁"),
            _ => format!("this is thing {n} of many"),
        };
        self.companion.run(&["send", "--key", &n.to_string(), &words]).expect_code(0);
        self.said.push(words);
    }

    fn others(&self) -> Vec<i32> {
        let own = self.runner.as_ref().map(|runner| runner.pid().as_raw_nonzero().get());
        self.companion.world.sandbox.survivors().into_iter().filter(|pid| Some(*pid) != own).collect()
    }

    fn trouble(&mut self) {
        std::thread::sleep(Duration::from_micros(self.dice.below(120_000)));
        match self.dice.below(12) {
            0 | 1 => {
                self.count("runner killed");
                self.end(Signal::KILL, false);
            }
            2 | 3 => {
                self.count("CLI killed");
                kill_all(self.others());
            }
            4 | 5 => {
                self.count("runner and CLI killed");
                self.end(Signal::KILL, true);
            }
            6 => {
                self.count("runner told to stop");
                self.end(Signal::TERM, false);
            }
            7 => {
                self.count("connection refused");
                self.companion.world.stub.refuse();
                std::thread::sleep(Duration::from_millis(self.dice.below(400)));
                self.companion.world.stub.listen();
            }
            8 => {
                self.count("hangup");
                if let Some(runner) = &self.runner {
                    runner.signal(Signal::HUP);
                }
            }
            _ => {}
        }
        if self.dice.one_in(3) {
            // A human who is tired of waiting: pauses between attempts grow.
            self.companion.run(&["retry"]);
        }
    }

    fn end(&mut self, signal: Signal, cli: bool) {
        let Some(runner) = self.runner.take() else { return };
        let others = self.others();
        // It may have ended on its own signal.
        kill_process(runner.pid(), signal).ok();
        if cli {
            kill_all(others);
        }
        runner.wait(PATIENCE);
        self.run();
    }

    fn rebuild(&mut self) {
        self.count("rebuild wished");
        let mut wish = self.companion.command(&["request", "--confirm", "REBUILD", "--reason", "the soak"]);
        let wish = Running::spawn(&mut wish);
        if self.dice.one_in(2) {
            std::thread::sleep(Duration::from_micros(self.dice.below(150_000)));
            self.count("runner killed near a rebuild");
            self.end(Signal::KILL, false);
        }
        // Refused is as good: what was wished comes to its end, or was not begun.
        drop(wish.wait(PATIENCE));
    }

    fn settle(&mut self) {
        self.run();
        let until = Instant::now() + Duration::from_secs(600);
        loop {
            let status = self.companion.json(&["status"]);
            let counts = &status["messages"];
            if counts["answered"].as_u64() == Some(self.said.len() as u64) {
                return;
            }
            assert!(Instant::now() < until, "stuck: {status:#}");
            assert!(counts["dead"].is_null(), "given up: {status:#}");
            if !status["hold"].is_null() || !status["next_retry"].is_null() {
                self.companion.run(&["retry"]);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The conversation against the generator's words.
    fn check(&mut self) {
        self.settle();
        let last = loop {
            // The API may refuse this one, too.
            let words = format!("a look back, number {}", self.said.len());
            self.said.push(words.clone());
            let key = (self.said.len() - 1).to_string();
            self.companion.run(&["send", "--key", &key, &words]).expect_code(0);
            self.settle();
            let last = self.companion.world.stub.last_main();
            if last.texts(Role::User).iter().any(|text| text.contains(&words)) {
                break last;
            }
        };
        let heard: Vec<String> = last.texts(Role::User);
        let mut words = Vec::new();
        // Of what was absorbed, several messages stand in one text.
        for envelope in heard.iter().flat_map(|text| text.split("<channel source=").skip(1)) {
            let inside = envelope.split_once(">\n").map_or("", |(_, inside)| inside);
            let inside = inside.split("\n</channel>").next().unwrap_or_default();
            words.push(inside.to_owned());
        }
        assert_eq!(words.len(), self.said.len(), "{:#?}", differing(&words, &self.said));
        assert_eq!(digest(&words), digest(&self.said), "{:#?}", differing(&words, &self.said));
        let effects =
            fs::read_to_string(self.companion.world.sandbox.work().join("effects")).unwrap_or_default();
        let mut lines: Vec<&str> = effects.lines().collect();
        let all = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), all, "a tool ran twice");
        let status = self.companion.json(&["status"]);
        let operations = operations(&self.companion);
        let active = operations.iter().filter(|status| {
            !matches!(status.as_str(), "activated" | "failed" | "cancelled" | "rolled_back")
        });
        assert_eq!(active.count(), 0, "{status:#}");
        eprintln!(
            "{} messages, {} operations ({} activated), {} tools; {:?}",
            self.said.len(),
            operations.len(),
            operations.iter().filter(|status| *status == "activated").count(),
            all,
            self.faults
        );
    }
}

const RUNNER: &str = "rebuild = \"off\"\nmin_gain_percent = 1\nmax_attempts = 1000\nbreaker = 1000\nabsorb = true\n\
                      idle_timeout = \"40s\"";

fn kill_all(pids: impl IntoIterator<Item = i32>) {
    for pid in pids.into_iter().filter_map(Pid::from_raw) {
        // Gone already is as good.
        kill_process(pid, Signal::KILL).ok();
    }
}

fn digest(words: &[String]) -> String {
    let mut hasher = Sha256::new();
    for text in words {
        hasher.update(text.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first place where they differ.
fn differing<'a>(heard: &'a [String], said: &'a [String]) -> Vec<Value> {
    let at =
        heard.iter().zip(said).position(|(heard, said)| heard != said).unwrap_or(heard.len().min(said.len()));
    let around = |list: &'a [String]| list.iter().skip(at.saturating_sub(2)).take(5).collect::<Vec<_>>();
    vec![json!({ "at": at, "heard": around(heard), "said": around(said) })]
}

fn operations(companion: &Companion) -> Vec<String> {
    let folder = companion.world.sandbox.state().join("operations");
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|entry| serde_json::from_slice::<Value>(&fs::read(entry.path()).ok()?).ok())
        .filter_map(|operation| operation["status"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn ten_generations_under_random_kills_lose_no_word() {
    let mut soak = Soak::new(false, false);
    soak.run();
    let mut generations = 0;
    while generations < 10 {
        for _ in 0..3 {
            soak.say();
            if soak.dice.one_in(2) {
                soak.trouble();
            }
        }
        soak.said.push(format!("work on thing {}", soak.said.len()));
        let n = soak.said.len() - 1;
        let words = soak.said[n].clone();
        soak.companion.run(&["send", "--key", &n.to_string(), &words]).expect_code(0);
        soak.settle();
        soak.rebuild();
        eprintln!("generation {generations}, {} messages", soak.said.len());
        generations = operations(&soak.companion).iter().filter(|status| *status == "activated").count();
    }
    soak.check();
    soak.end(Signal::TERM, false);
}

/// `.ci/soak` runs it for an hour; `KAEL_SOAK_SECONDS` says how long.
#[test]
#[ignore = "takes as long as it is told to: .ci/soak"]
fn random_faults_for_a_long_time() {
    let seconds = std::env::var("KAEL_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3600);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut soak = Soak::new(true, true);
    soak.run();
    let mut rounds = 0_u64;
    while Instant::now() < until {
        soak.say();
        if soak.dice.one_in(3) {
            soak.trouble();
        }
        if soak.dice.one_in(25) {
            soak.settle();
            soak.rebuild();
        }
        rounds += 1;
        if rounds.is_multiple_of(200) {
            soak.check();
        }
        if rounds.is_multiple_of(5) {
            // Not faster than it can be answered, or nothing but a queue is tested.
            soak.settle();
        }
    }
    soak.check();
    soak.end(Signal::TERM, false);
}
