//! `service`: the unit of a user by a real manager, the system's by a prefix folder and its command lines.

use std::fs;
use std::os::unix::fs::symlink;

use super::manager::Manager;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

#[test]
fn a_users_unit_is_installed_runs_and_goes_again() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let sandbox = &companion.world.sandbox;
    let Some(manager) = Manager::start(sandbox, "/usr/local/bin:/usr/bin:/bin") else { return };
    let config = sandbox.path("config.toml");
    // A path with a blank and a percent sign in it.
    let program = sandbox.path("bin/of 100%/kael-runner");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_kael-runner"), &program).unwrap();
    let service = |what: &str| {
        let all = ["--config", config.to_str().unwrap(), "service", what];
        let mut command = manager.inside(sandbox, program.to_str().unwrap(), &all);
        Running::spawn(&mut command).wait(PATIENCE).expect_code(0).lines.join("\n")
    };
    service("install");
    wait_until("the runner is up", || companion.json(&["status"])["runner"]["lives"] == true);
    assert_eq!(manager.show(sandbox, "kael-runner.service", "ActiveState"), "active", "READY=1 was said");
    assert!(service("install").contains("already there"), "twice is once");
    assert!(service("status").contains("kael-runner.service"));
    assert_eq!(companion.say("hello"), "Noted as number 1: hello");
    let gone = service("uninstall");
    assert!(gone.contains("removed"), "{gone}");
    assert_eq!(companion.json(&["status"])["runner"]["lives"], false);
    assert!(!sandbox.home().join(".config/systemd/user/kael-runner.service").exists());
    assert!(config.exists() && sandbox.state().exists(), "nothing else goes");
}

#[test]
fn the_systems_unit_is_for_a_prefix_and_its_commands_are_named() {
    let companion = Companion::new(Subject::StandIn, "", "");
    let sandbox = &companion.world.sandbox;
    let prefix = sandbox.path("prefix");
    symlink(sandbox.path("config.toml"), sandbox.path("bot.toml")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = sandbox.runner();
        command.arg("--config").arg(sandbox.path("bot.toml")).arg("service").args(arguments);
        Running::spawn(&mut command).wait(PATIENCE)
    };
    let refused = run(&["install", "--system"]).expect_code(2).stderr;
    assert!(refused.contains("/etc/kael-runner/NAME.toml"), "{refused}");
    let text =
        run(&["install", "--system", "--prefix", prefix.to_str().unwrap()]).expect_code(0).lines.join("\n");
    for wanted in [
        "would run systemd-sysusers",
        "would run systemd-tmpfiles --create",
        "would run systemctl --no-ask-password daemon-reload",
        "would run systemctl --no-ask-password enable --now kael-runner@bot.service",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    let unit = fs::read_to_string(prefix.join("etc/systemd/system/kael-runner@.service")).unwrap();
    assert!(unit.contains("/kael-runner run --config /etc/kael-runner/%i.toml"), "{unit}");
    assert!(fs::read_to_string(prefix.join("etc/sysusers.d/kael-runner.conf")).unwrap().contains("u bot "));
    let logs = run(&["logs", "--system", "--prefix", "/x", "--print"]).expect_code(0).lines.join("\n");
    assert_eq!(logs, "journalctl --unit kael-runner@bot.service --lines 200 --no-pager");
    let status = run(&["status", "--print"]).expect_code(0).lines.join("\n");
    assert_eq!(status, "systemctl --user --no-ask-password status --no-pager kael-runner-bot.service");
    let gone =
        run(&["uninstall", "--system", "--prefix", prefix.to_str().unwrap()]).expect_code(0).lines.join("\n");
    assert!(
        gone.contains("removed") && !prefix.join("etc/systemd/system/kael-runner@.service").exists(),
        "{gone}"
    );
}

/// The units that are shipped are what systemd understands, and no more exposed than they say.
#[test]
fn the_shipped_units_are_sound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../systemd");
    let analyze = |arguments: &[&str]| std::process::Command::new("systemd-analyze").args(arguments).output();
    let unit = format!("{folder}/kael-runner@.service");
    let Ok(output) = analyze(&["security", "--offline=true", "--no-pager", "--threshold=40", &unit]) else {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "systemd-analyze must be there where CI runs");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("exposure level for kael-runner@i.service: 4.0"),
        "state another score in the unit: {text}"
    );
}
