//! A full disk and a read-only folder: everything stays whole and is reported, and the runner goes on by itself.
//!
//! The state folder is a small tmpfs in a mount namespace of its own; nothing outside sees it.

use std::process::Command;

use kael_runner::standin::context::Role;
use rustix::process::Signal;
use serde_json::Value;

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// A companion whose state folder is a tmpfs of two megabytes.
struct Small {
    companion: Companion,
    holder: Running,
}

impl Small {
    /// `None`, said loudly, where mounts are not allowed.
    fn new() -> Option<Self> {
        let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
        companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
        let sandbox = &companion.world.sandbox;
        let script = format!(
            "mount -t tmpfs -o size=2m,mode=0700 tmpfs {} && touch {} && exec sleep 600",
            sandbox.state().display(),
            sandbox.path("mounted").display()
        );
        let mut command = sandbox.command("unshare");
        let holder = Running::spawn(command.args(["-m", "--propagation", "private", "sh", "-c", &script]));
        for _ in 0..500 {
            if sandbox.path("mounted").exists() {
                return Some(Self { companion, holder });
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "mounting a tmpfs (unshare -m) must work where CI runs"
        );
        eprintln!("SKIPPED: a tmpfs cannot be mounted here (unshare -m): full disks are not tested");
        None
    }

    /// A command inside the namespace.
    fn inside(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.companion.world.sandbox.command("nsenter");
        command
            .args(["-t", &self.holder.pid().as_raw_nonzero().to_string(), "-m", "--"])
            .arg(program)
            .args(arguments);
        command
    }

    fn runner(&self, arguments: &[&str]) -> Command {
        let config = self.companion.world.sandbox.path("config.toml");
        let all = [&["--config", config.to_str().unwrap()], arguments].concat();
        self.inside(env!("CARGO_BIN_EXE_kael-runner"), &all)
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Running::spawn(&mut self.runner(arguments)).wait(PATIENCE)
    }

    fn shell(&self, script: &str) -> Outcome {
        let state = self.companion.world.sandbox.state();
        Running::spawn(&mut self.inside("sh", &["-c", &format!("cd {} && {script}", state.display())]))
            .wait(PATIENCE)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"]).expect_code(0).lines.join("")).unwrap()
    }

    fn start(&self) -> Running {
        let runner = Running::spawn(&mut self.runner(&["run"]));
        wait_until("the runner lives", || {
            let outcome = self.run(&["status", "--json"]);
            outcome.code() == 0 && outcome.lines.join("").contains("\"lives\":true")
        });
        runner
    }

    fn fill(&self) {
        // cat fills the last byte and then fails, as it is meant to.
        self.shell("cat /dev/zero > filler; true");
    }
}

#[test]
fn a_disk_that_is_full_during_a_turn_loses_nothing_and_the_runner_goes_on_when_there_is_room() {
    let Some(small) = Small::new() else { return };
    let stub = &small.companion.world.stub;
    let runner = small.start();
    small.run(&["send", "--wait", "hello"]).expect_code(0);
    let gate = Gate::new();
    stub.on_text("while", Reply::text("The disk was full.").gate(&gate));
    small.run(&["send", "--key", "k", "what happened meanwhile?"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    small.fill();
    gate.open();
    let refused = small.run(&["send", "a message that finds no room"]).expect_code(1);
    assert!(refused.stderr.contains("could not") && refused.stderr.contains("full"), "{}", refused.stderr);
    std::thread::sleep(std::time::Duration::from_secs(2));
    small.shell("rm filler").expect_code(0);
    let reply = small.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0);
    assert_eq!(reply.lines, ["The disk was full."]);
    let heard = stub.last_main().texts(Role::User);
    assert_eq!(heard.iter().filter(|text| text.contains("what happened")).count(), 1);
    assert_eq!(stub.main_requests().len(), 2, "nothing was asked twice");
    assert_eq!(small.run(&["send", "--wait", "hello again"]).expect_code(0).lines, ["Hello yourself."]);
    let status = small.status();
    assert_eq!(status["messages"]["answered"], 3, "{status:#}");
    runner.signal(Signal::TERM);
    let ended = runner.wait(PATIENCE).expect_code(0);
    assert_eq!(
        ended.stderr.matches("nothing is done until this is in order again").count(),
        1,
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("in order again: going on"), "{}", ended.stderr);
}

#[test]
fn a_read_only_state_folder_is_reported_and_gone_on_from() {
    let Some(small) = Small::new() else { return };
    let runner = small.start();
    small.run(&["send", "--wait", "hello"]).expect_code(0);
    let state = small.companion.world.sandbox.state();
    let remount = |how: &str| {
        let target = state.to_str().unwrap().to_owned();
        let mut command = small.inside("mount", &["-o", &format!("remount,{how}"), &target]);
        Running::spawn(&mut command).wait(PATIENCE).code() == 0
    };
    // A bind of its own can be made read-only while files are open for writing.
    let bind = format!("mount --bind {0} {0} && mount -o remount,bind,ro {0}", state.display());
    if !remount("ro") && small.shell(&bind).code() != 0 {
        eprintln!("SKIPPED: the tmpfs cannot be made read-only here");
        return;
    }
    let refused = small.run(&["send", "nobody can store this"]).expect_code(1);
    assert!(
        refused.stderr.to_lowercase().contains("read-only") || refused.stderr.contains("readonly"),
        "{}",
        refused.stderr
    );
    if !remount("rw") {
        small.shell(&format!("cd / && umount {}", state.display())).expect_code(0);
    }
    assert_eq!(small.run(&["send", "--wait", "hello again"]).expect_code(0).lines, ["Hello yourself."]);
    runner.signal(Signal::TERM);
    runner.wait(PATIENCE).expect_code(0);
}
