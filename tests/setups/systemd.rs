//! Switches of a real unit, by a real manager, with the start script that is shipped.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::manager::Manager;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

const UNIT: &str = "companion.service";
const FLAGS: &str = "-p --input-format stream-json --output-format stream-json --verbose --allowedTools Bash";

/// A companion in a unit.
struct InUnit {
    companion: Companion,
    manager: Manager,
    first: String,
}

impl InUnit {
    /// A companion that has said two things, and goes on in a unit that waits for more.
    fn start(subject: Subject, unit: &str, runner: &str) -> Option<Self> {
        let companion = Companion::new(subject, "", "");
        let sandbox = &companion.world.sandbox;
        let stub = &companion.world.stub;
        stub.on_text("the lamp is green", Reply::text("Noted: green."));
        stub.on_tool_turn(
            "look into the shed",
            Reply::bash("seq 1 4000"),
            Reply::text("The shed holds ropes."),
        );
        let first = uuid::Uuid::new_v4().to_string();
        let id = || uuid::Uuid::new_v4().to_string();
        companion.world.begin(&first, &id(), "the lamp is green").expect_code(0);
        companion.world.resume(&first, &id(), "look into the shed").expect_code(0);

        let program = companion.world.subject.program(sandbox);
        let real = fs::canonicalize(&program).unwrap();
        // Called claude, as it is everywhere.
        fs::create_dir(sandbox.path("real")).unwrap();
        let call = sandbox.path("real/claude");
        symlink(&real, &call).unwrap();
        fs::remove_file(&program).unwrap();
        let script = format!(
            "#!/bin/sh\nonly={only}\nif [ -e \"$only\" ]; then case \" $* \" in *\" $(cat \"$only\") \"*) ;; *) exit 7;; \
             esac; fi\nexec {call:?} \"$@\"\n",
            only = sandbox.path("only").display(),
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_kael-runner"), sandbox.path("bin/kael-runner")).unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", sandbox.path("bin").display());
        let manager = Manager::start(sandbox, &path)?;
        let text = format!(
            "[Unit]\nStartLimitBurst=20\n[Service]\nType=exec\nWorkingDirectory={work}\n\
             Environment=KAEL_RUNNER_CONFIG={config} COMPANION_INPUT={input} PATH={path} CLAUDE={claude}\n\
             Environment=ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=sk-ant-made-up DISABLE_AUTOUPDATER=1\n\
             Environment=CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1 CLAUDE_CODE_MAX_RETRIES=0\n\
             ExecStart={start} {FLAGS}\nSuccessExitStatus=143\nStandardOutput=append:{out}\nStandardError=append:{out}\nTimeoutStopSec=10\n{unit}\n",
            work = sandbox.work().display(),
            config = sandbox.path("config.toml").display(),
            input = sandbox.path("input").display(),
            claude = program.display(),
            url = stub.url(),
            start = concat!(env!("CARGO_MANIFEST_DIR"), "/../systemd/companion-start"),
            out = sandbox.path("out").display(),
        );
        sandbox.write(&format!("home/.config/systemd/user/{UNIT}"), text);
        let setup = Self { companion, manager, first };
        setup.configure(runner);
        setup.run(&["hook", "install"]).expect_code(0);
        setup.run(&["pointer", "set", &setup.first]).expect_code(0);
        setup.systemctl(&["daemon-reload"]).expect_code(0);
        setup.systemctl(&["start", UNIT]).expect_code(0);
        wait_until("the unit runs claude", || setup.main_pid() != 0 && setup.runs(&setup.first));
        Some(setup)
    }

    fn configure(&self, runner: &str) {
        let sandbox = &self.companion.world.sandbox;
        let program = self.companion.world.subject.program(sandbox);
        let command: Vec<&str> = [program.to_str().unwrap(), "--resume", "{session_id}"]
            .into_iter()
            .chain(FLAGS.split(' '))
            .collect();
        let text = format!(
            "activation = \"systemd\"\nsystemd_unit = {UNIT:?}\nsystemd_scope = \"user\"\nclaude_workdir = {work:?}\n\
             state_dir = {state:?}\nresume_command = {command}\nactivation_delay_seconds = 0.1\n\
             healthcheck_seconds = 1\nstable_file_seconds = 0.3\n[runner]\nmin_gain_percent = 1\n{runner}\n",
            work = sandbox.work(),
            state = sandbox.state(),
            command = json!(command),
        );
        sandbox.write("config.toml", text);
    }

    fn systemctl(&self, arguments: &[&str]) -> Outcome {
        self.manager.systemctl(&self.companion.world.sandbox, arguments)
    }

    fn show(&self, property: &str) -> String {
        self.manager.show(&self.companion.world.sandbox, UNIT, property)
    }

    fn main_pid(&self) -> u32 {
        self.show("MainPID").parse().unwrap_or(0)
    }

    /// Whether the unit's process is on that session.
    fn runs(&self, session: &str) -> bool {
        let line = fs::read_to_string(format!("/proc/{}/cmdline", self.main_pid())).unwrap_or_default();
        line.split('\0').any(|part| part == session) && line.contains("stream-json")
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let sandbox = &self.companion.world.sandbox;
        let config = sandbox.path("config.toml");
        let all = [&["--config", config.to_str().unwrap()], arguments].concat();
        let program = sandbox.path("bin/kael-runner");
        let mut command = self.manager.inside(sandbox, program.to_str().unwrap(), &all);
        Running::spawn(&mut command).wait(PATIENCE * 2)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let outcome = self.run(&[arguments, &["--json"]].concat()).expect_code(0);
        serde_json::from_str(&outcome.lines.join("\n")).unwrap()
    }

    fn operation(&self) -> Value {
        self.companion.json(&["status"])["operation"].clone()
    }

    /// Says something to the process in the unit.
    fn say(&self, words: &str) {
        let line = json!({"type": "user", "message": {"role": "user", "content": words}, "parent_tool_use_id": null,
            "session_id": "", "uuid": uuid::Uuid::new_v4().to_string()});
        let mut input =
            fs::OpenOptions::new().write(true).open(self.companion.world.sandbox.path("input")).unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.companion.world.sandbox.state().join("worker.log")).unwrap_or_default()
    }

    fn wait_for(&self, wanted: &[&str]) -> Value {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            let last = self.operation();
            if wanted.contains(&last["status"].as_str().unwrap_or_default()) {
                return last;
            }
            assert!(std::time::Instant::now() < until, "it is {last:#}, not {wanted:?}; {}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn doers(&self) -> Vec<i32> {
        let alive = self.companion.world.sandbox.survivors().into_iter();
        let line = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        alive.filter(|pid| line(pid).contains("--operate") && !line(pid).contains("--guard")).collect()
    }
}

const AUTO: &str = "rebuild = \"auto\"\ncontext_budget_tokens = 1";

fn real() -> Option<Subject> {
    Subject::newest_real()
}

#[test]
fn a_confirmed_rebuild_restarts_the_unit_on_the_clean_session() {
    let Some(subject) = real() else { return };
    let Some(setup) = InUnit::start(subject, "", "rebuild = \"off\"") else { return };
    let before = setup.main_pid();
    let done = setup.json(&["request", "--confirm", "REBUILD"]);
    assert_eq!(done["operation"]["status"], "activated", "{done:#}");
    let new = done["operation"]["new_session_id"].as_str().unwrap();
    assert_ne!(setup.main_pid(), before);
    assert!(setup.runs(new));
    assert_eq!(done["operation"]["credential_after"]["main_pid"], setup.main_pid());
    assert_eq!(setup.companion.session(), new);
    setup.say("and warm");
    let sent = setup.companion.world.stub.wait_main(4, PATIENCE);
    let words = sent.last().unwrap().view().join("\n");
    for said in
        ["the lamp is green", "Noted: green.", "look into the shed", "The shed holds ropes.", "and warm"]
    {
        assert!(words.contains(said), "{said} is not in {words}");
    }
    let back = setup.run(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert!(back.stderr.contains("has gone on since"), "{back:?}");
    assert!(setup.runs(new), "a refused rollback touches nothing");
}

#[test]
fn the_stop_hooks_worker_is_in_a_scope_of_its_own_and_survives_the_unit() {
    let Some(subject) = real() else { return };
    let Some(setup) = InUnit::start(subject, "", AUTO) else { return };
    setup.say("and warm");
    let mut groups = String::new();
    wait_until("the switch has begun", || {
        if let Some(pid) = setup.doers().first() {
            groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        }
        setup.operation()["status"] == "activating"
    });
    assert!(groups.contains(".scope") && !groups.contains(UNIT), "{groups}");
    let done = setup.wait_for(&["activated"]);
    assert!(setup.runs(done["new_session_id"].as_str().unwrap()));
}

#[test]
fn a_unit_that_does_not_start_on_the_new_session_is_started_on_the_old_one() {
    let Some(setup) = InUnit::start(Subject::StandIn, "", "rebuild = \"off\"") else { return };
    setup.companion.world.sandbox.write("only", &setup.first);
    let failed = setup.run(&["request", "--confirm", "REBUILD"]).expect_code(3);
    assert!(
        failed.stderr.contains("the old session runs on") && failed.stderr.contains("exit-code"),
        "{failed:?}"
    );
    assert!(setup.runs(&setup.first));
    assert_eq!(setup.companion.session(), setup.first);
    assert_eq!(setup.operation()["status"], "rolled_back");
}

#[test]
fn a_unit_that_somebody_has_restarted_is_a_conflict() {
    let Some(setup) = InUnit::start(Subject::StandIn, "", "rebuild = \"off\"") else { return };
    setup.json(&["request"]);
    setup.json(&["prepare"]);
    setup.systemctl(&["restart", UNIT]).expect_code(0);
    wait_until("the unit runs claude", || setup.runs(&setup.first));
    let theirs = setup.main_pid();
    let error = setup.run(&["confirm", "--yes"]).expect_code(4).stderr;
    assert!(error.contains("session conflict"), "{error}");
    assert_eq!(setup.main_pid(), theirs);
    assert!(setup.runs(&setup.first));
}

#[test]
fn a_killed_worker_leaves_the_unit_running() {
    for pause in [0, 80, 400, 1100] {
        let Some(subject) = real() else { return };
        let Some(setup) = InUnit::start(subject, "", AUTO) else { return };
        setup.say("and warm");
        setup.wait_for(&["activating"]);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        for pid in setup.doers() {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
        }
        let done = setup.wait_for(&["activated", "rolled_back"]);
        let session = setup.companion.session();
        wait_until("the unit runs what the pointer names", || setup.runs(&session));
        let wanted = if done["status"] == "activated" {
            done["new_session_id"].as_str().unwrap()
        } else {
            &setup.first
        };
        assert_eq!(session, wanted, "killed after {pause} ms: {done:#}\n{}", setup.log());
    }
}

#[test]
fn the_time_a_unit_takes_to_stop_is_respected_and_a_longer_one_is_told() {
    let stop = "ExecStop=/bin/sh -c 'sleep 2; touch %h/stopped'";
    let Some(setup) = InUnit::start(Subject::StandIn, stop, "rebuild = \"off\"") else { return };
    let done = setup.json(&["request", "--confirm", "REBUILD"]);
    assert_eq!(done["operation"]["status"], "activated");
    assert!(setup.companion.world.sandbox.path("home/stopped").exists(), "ExecStop came to its end");
    let config = setup.companion.world.sandbox.path("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("systemd_restart_timeout_seconds = 3\n{text}")).unwrap();
    let doctor = setup.run(&["doctor"]).lines.join("\n");
    assert!(doctor.contains("longer than systemd_restart_timeout_seconds (3 s)"), "{doctor}");
}

#[test]
fn a_start_limit_is_reported_and_does_not_keep_the_old_session_down() {
    let Some(setup) = InUnit::start(Subject::StandIn, "", "rebuild = \"off\"") else { return };
    let unit = setup.companion.world.sandbox.path(&format!("home/.config/systemd/user/{UNIT}"));
    let text = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, text.replace("StartLimitBurst=20", "StartLimitBurst=1\nStartLimitIntervalSec=1h"))
        .unwrap();
    // Wanted by something, so that the manager remembers it, and how often it was started.
    let wants = unit.parent().unwrap().join("default.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink(&unit, wants.join(UNIT)).unwrap();
    setup.systemctl(&["daemon-reload"]).expect_code(0);
    setup.systemctl(&["restart", UNIT]);
    setup.systemctl(&["stop", UNIT]);
    setup.systemctl(&["start", UNIT]);
    assert_eq!(setup.show("Result"), "start-limit-hit");
    let doctor = setup.run(&["doctor"]).lines.join("\n");
    assert!(doctor.contains("start-limit-hit") && doctor.contains("reset-failed"), "{doctor}");
    setup.systemctl(&["reset-failed", UNIT]).expect_code(0);
    setup.systemctl(&["start", UNIT]).expect_code(0);
    wait_until("the unit runs claude", || setup.runs(&setup.first));
    setup.companion.world.sandbox.write("only", &setup.first);
    setup.run(&["request", "--confirm", "REBUILD"]).expect_code(3);
    assert!(setup.runs(&setup.first), "{}", setup.show("Result"));
}

#[test]
fn a_unit_that_is_not_there_or_runs_something_else_is_refused() {
    let Some(setup) = InUnit::start(Subject::StandIn, "", "rebuild = \"off\"") else { return };
    let sandbox = &setup.companion.world.sandbox;
    let config = sandbox.path("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    sandbox.write("home/.config/systemd/user/other.service", "[Service]\nExecStart=/bin/sleep 600\n");
    setup.systemctl(&["daemon-reload"]).expect_code(0);
    setup.systemctl(&["start", "other.service"]).expect_code(0);
    for (unit, why) in [
        ("other.service", "runs /bin/sleep 600, not claude"),
        ("no.service", "is not-found for the user manager"),
    ] {
        fs::write(&config, text.replace(UNIT, unit)).unwrap();
        let doctor = setup.run(&["doctor"]).lines.join("\n");
        assert!(doctor.contains(why), "{doctor}");
        let refused = setup.run(&["request", "--confirm", "REBUILD"]).expect_code(3).stderr;
        assert!(refused.contains(why), "{refused}");
    }
    assert!(setup.runs(&setup.first));
}

#[test]
fn a_drill_in_systemd_passes_and_leaves_nothing_and_never_touches_the_live_unit() {
    let Some(subject) = real() else { return };
    let Some(setup) = InUnit::start(subject, "", "rebuild = \"off\"") else { return };
    let sandbox = &setup.companion.world.sandbox;
    super::remembers_code_words(&setup.companion.world.stub);
    let pid = setup.main_pid();
    let config = sandbox.path("config.toml");
    let program = sandbox.path("bin/kael-runner");
    let mut command = setup.manager.inside(
        sandbox,
        program.to_str().unwrap(),
        &["--config", config.to_str().unwrap(), "drill"],
    );
    command
        .env("ANTHROPIC_BASE_URL", setup.companion.world.stub.url())
        .env("ANTHROPIC_API_KEY", "sk-ant-made-up")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    let drill = Running::spawn(&mut command).wait(PATIENCE * 3).expect_code(0);
    assert!(drill.lines.join("\n").contains("both code words were known"), "{drill:?}");
    assert_eq!(setup.main_pid(), pid);
    assert!(!setup.systemctl(&["list-units", "--all"]).lines.join("").contains("kael-drill"));
    let left: Vec<_> =
        fs::read_dir(sandbox.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("kael-drill")), "{left:?}");
}
