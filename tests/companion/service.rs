//! Under a real service manager: `systemd --user` in a mount namespace of its own, with the unit's settings.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// A manager with one unit, `bot`.
struct Manager {
    companion: Companion,
    holder: Running,
}

impl Manager {
    /// `None`, said loudly, where there is no systemd or it may not run; that fails where CI runs.
    fn new(companion: Companion) -> Option<Self> {
        let sandbox = &companion.world.sandbox;
        let unit = format!(
            "[Service]\nType=notify\nNotifyAccess=main\nWatchdogSec=1s\nRestart=on-failure\nRestartSec=0\n\
             KillMode=mixed\nExecStart={runner} --config {config} run\nExecReload=/bin/kill -HUP $MAINPID\n\
             Environment=PATH=/usr/local/bin:/usr/bin:/bin KAEL_LOG=info\n\
             StandardError=append:{log}\n",
            runner = env!("CARGO_BIN_EXE_kael-runner"),
            config = sandbox.path("config.toml").display(),
            log = sandbox.path("log").display(),
        );
        sandbox.write("home/.config/systemd/user/bot.service", unit);
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system {run} && chmod 700 {run} && touch {ready} && \
             exec systemd --user --log-target=null",
            run = RUNTIME,
            ready = sandbox.path("mounted").display(),
        );
        let mut command = sandbox.command("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &script]).env("XDG_RUNTIME_DIR", RUNTIME);
        let manager = Self { holder: Running::spawn(&mut command), companion };
        for _ in 0..1000 {
            if manager.systemctl(&["is-system-running"]).lines.join("") == "running" {
                return Some(manager);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let missing =
            "a systemd manager cannot be started here (systemd, unshare -m and a writable cgroup are needed)";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        eprintln!("SKIPPED: {missing}");
        None
    }

    fn systemctl(&self, arguments: &[&str]) -> Outcome {
        let mut command: Command = self.companion.world.sandbox.command("nsenter");
        command
            .args(["-t", &self.holder.pid().as_raw_nonzero().to_string(), "-m", "--", "systemctl", "--user"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", RUNTIME);
        Running::spawn(&mut command).wait(PATIENCE)
    }

    fn property(&self, name: &str) -> String {
        self.systemctl(&["show", "bot", "--value", "-p", name]).expect_code(0).lines.join("")
    }

    fn wait_for(&self, name: &str, wanted: &str) {
        wait_until(&format!("{name}={wanted}"), || self.property(name) == wanted);
    }

    /// Waits until the watchdog has been fed twice more.
    fn fed(&self) {
        for _ in 0..2 {
            let before = self.property("WatchdogTimestampMonotonic");
            wait_until("the watchdog to be fed", || self.property("WatchdogTimestampMonotonic") != before);
        }
    }
}

const RUNTIME: &str = "/run/user/kael-test";

#[test]
fn the_service_manager_knows_how_the_runner_is_and_brings_it_back_when_it_hangs() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let gate = Gate::new();
    companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
    companion.world.stub.on_text("slow", Reply::text("At last.").gate(&gate));
    let Some(manager) = Manager::new(companion) else { return };
    let companion = &manager.companion;
    // Returns once READY=1 has come.
    manager.systemctl(&["start", "bot"]).expect_code(0);
    assert_eq!(manager.property("ActiveState"), "active");
    assert_eq!(companion.say("hello"), "Hello yourself.");
    manager.wait_for("StatusText", "waiting for a message");
    manager.fed();

    companion.run(&["send", "--key", "k", "a slow one"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    manager.wait_for("StatusText", "a turn is running");
    manager.fed();

    manager.systemctl(&["reload", "bot"]).expect_code(0);
    let log = companion.world.sandbox.path("log");
    wait_until("the configuration is read again", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("the configuration is read again"))
    });
    assert_eq!(manager.property("ActiveState"), "active");
    assert_eq!(manager.property("NRestarts"), "0");

    // It hangs in the middle of a turn: the manager ends it, starts it again, and the message is answered once.
    let pid: i32 = manager.property("MainPID").parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    manager.wait_for("NRestarts", "1");
    gate.open();
    assert_eq!(companion.run(&["send", "--wait", "--key", "k", "x"]).expect_code(0).lines, ["At last."]);
    let last = companion.world.stub.last_main();
    assert_eq!(last.occurrences("a slow one"), 1, "{:#?}", last.view());
    assert_eq!(companion.say("hello again"), "Hello yourself.");

    manager.systemctl(&["stop", "bot"]).expect_code(0);
    assert_eq!(
        (manager.property("ActiveState"), manager.property("Result")),
        ("inactive".into(), "success".into())
    );
    assert!(!companion.json(&["status"])["runner"]["lives"].as_bool().unwrap());
}
