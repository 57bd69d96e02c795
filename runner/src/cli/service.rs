//! `service`: the runner as a systemd unit, of this user or of the system.
//!
//! With `--prefix` the files go below another folder and the manager is only told about in words: for packages, for
//! machines without a manager, and to look first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kael_core::config::{Config, SystemdScope};
use kael_core::switch::{quoted_line, systemctl};
use serde_json::json;

use crate::companion::Companion;

use super::args::{Service, ServiceWhere};
use super::error::{CliError, ErrorKind};
use super::output::Output;

const USER_UNIT: &str = include_str!("../../../systemd/kael-runner.service");
const SYSTEM_UNIT: &str = include_str!("../../../systemd/kael-runner@.service");
const SYSUSERS: &str = include_str!("../../../systemd/kael-runner.sysusers");
const TMPFILES: &str = include_str!("../../../systemd/kael-runner.tmpfiles");

/// Files and commands of one installation.
struct Plan {
    files: Vec<(PathBuf, String)>,
    unit: String,
    scope: SystemdScope,
}

/// Runs the command.
pub fn run(companion: &Companion, command: Service, output: &Output) -> Result<(), CliError> {
    match command {
        Service::Install(place) => {
            super::refuse_inside_invocation("service install")?;
            install(&plan(&companion.config, &place)?, companion, &place, output)
        }
        Service::Uninstall(place) => {
            super::refuse_inside_invocation("service uninstall")?;
            uninstall(&plan(&companion.config, &place)?, companion, &place, output)
        }
        Service::Status(place) => {
            let plan = plan(&companion.config, &place)?;
            let mut command = systemctl(plan.scope);
            command.args(["status", "--no-pager", &plan.unit]);
            through(command, place.print, output)
        }
        Service::Logs(place) => {
            let plan = plan(&companion.config, &place)?;
            let mut command = Command::new("journalctl");
            if plan.scope == SystemdScope::User {
                command.arg("--user");
            }
            command.args(["--unit", &plan.unit, "--lines", "200", "--no-pager"]);
            through(command, place.print, output)
        }
    }
}

fn plan(config: &Config, place: &ServiceWhere) -> Result<Plan, CliError> {
    let stem = config.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let root = place.prefix.clone().unwrap_or_else(|| PathBuf::from("/"));
    if place.system {
        let wanted = Path::new("/etc/kael-runner");
        if config.path.parent() != Some(wanted) && place.prefix.is_none() {
            return Err(CliError::new(
                ErrorKind::Usage,
                format!(
                    "the system's unit runs /etc/kael-runner/NAME.toml as the user NAME: put {} there, or leave --system out",
                    config.path.display()
                ),
            ));
        }
        let program = std::env::current_exe()?;
        let unit = SYSTEM_UNIT.replace("/usr/bin/kael-runner", &escaped(&program));
        let files = vec![
            (root.join("etc/systemd/system/kael-runner@.service"), unit),
            (root.join("etc/sysusers.d/kael-runner.conf"), SYSUSERS.replace("companion", &stem)),
            (root.join("etc/tmpfiles.d/kael-runner.conf"), TMPFILES.replace("companion", &stem)),
        ];
        return Ok(Plan { files, unit: format!("kael-runner@{stem}.service"), scope: SystemdScope::System });
    }
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .ok_or_else(|| CliError::failed("HOME is not set: there is no place for a user's unit"))?;
    let name = config.name.as_deref().unwrap_or(if stem == "config" { "" } else { &stem });
    let unit = if name.is_empty() {
        "kael-runner.service".to_owned()
    } else {
        format!("kael-runner-{name}.service")
    };
    let program = std::env::current_exe()?;
    let mut start = format!("{} run --config {}", escaped(&program), escaped(&config.path));
    if let Some(name) = &config.name {
        start.push_str(&format!(" --companion {name}"));
    }
    let text: String = USER_UNIT
        .lines()
        .map(|line| {
            if line.starts_with("ExecStart=") { format!("ExecStart={start}\n") } else { format!("{line}\n") }
        })
        .collect();
    let folder = match &place.prefix {
        Some(prefix) => prefix.join(home.strip_prefix("/").unwrap_or(&home)),
        None => home,
    };
    Ok(Plan { files: vec![(folder.join("systemd/user").join(&unit), text)], unit, scope: SystemdScope::User })
}

/// A path in a unit: quoted, and no specifier in it.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy().replace('%', "%%").replace('\\', "\\\\").replace('"', "\\\"");
    if text.contains([' ', '\'', ';', '$']) { format!("\"{}\"", text.replace('$', "$$")) } else { text }
}

fn commands(plan: &Plan, install: bool) -> Vec<Command> {
    let mut all = Vec::new();
    if install && plan.scope == SystemdScope::System {
        all.push(Command::new("systemd-sysusers"));
        let mut tmpfiles = Command::new("systemd-tmpfiles");
        tmpfiles.arg("--create");
        all.push(tmpfiles);
    }
    let mut reload = systemctl(plan.scope);
    reload.arg("daemon-reload");
    let mut switch = systemctl(plan.scope);
    switch.args([if install { "enable" } else { "disable" }, "--now", &plan.unit]);
    if install {
        all.extend([reload, switch]);
    } else {
        all.extend([switch, reload]);
    }
    all
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    quoted_line(&words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
}

fn install(
    plan: &Plan,
    companion: &Companion,
    place: &ServiceWhere,
    output: &Output,
) -> Result<(), CliError> {
    let dry = place.print;
    let mut done = Vec::new();
    for (path, text) in &plan.files {
        if dry {
            done.push(format!("would write {}", path.display()));
            continue;
        }
        if fs::read_to_string(path).is_ok_and(|present| present == *text) {
            done.push(format!("already there: {}", path.display()));
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        companion.disk.replace(path, text.as_bytes())?;
        // Units are read by the manager, and hold no secret.
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        done.push(format!("wrote {}", path.display()));
    }
    done.extend(carry_out(commands(plan, true), place)?);
    if plan.scope == SystemdScope::User {
        done.push("it ends with your last login unless you `loginctl enable-linger`".to_owned());
    }
    report(plan, &done, output)
}

fn uninstall(
    plan: &Plan,
    companion: &Companion,
    place: &ServiceWhere,
    output: &Output,
) -> Result<(), CliError> {
    let mut commands = commands(plan, false).into_iter();
    let mut done = carry_out(commands.by_ref().take(1).collect(), place)?;
    for (path, _) in &plan.files {
        // What the user and its home need stays: they may have more in them than we put there.
        let ours = path.extension().is_some_and(|kind| kind == "service");
        if place.print {
            done.push(format!("would remove {}", path.display()));
        } else if ours && companion.disk.remove(path)? {
            done.push(format!("removed {}", path.display()));
        }
    }
    done.extend(carry_out(commands.collect(), place)?);
    report(plan, &done, output)
}

/// Runs the commands; with `--prefix` or `--print` they are only named.
fn carry_out(commands: Vec<Command>, place: &ServiceWhere) -> Result<Vec<String>, CliError> {
    let mut done = Vec::new();
    for mut command in commands {
        let words = line(&command);
        if place.print || place.prefix.is_some() {
            done.push(format!("would run {words}"));
            continue;
        }
        let run = command
            .output()
            .map_err(|error| CliError::failed(format!("could not run `{words}`: {error}")))?;
        if !run.status.success() {
            let why = String::from_utf8_lossy(&run.stderr).trim().to_owned();
            return Err(CliError::failed(format!(
                "`{words}` failed: {why}; the files are written, so it can be run by hand when that is mended"
            )));
        }
        done.push(format!("ran {words}"));
    }
    Ok(done)
}

fn report(plan: &Plan, done: &[String], output: &Output) -> Result<(), CliError> {
    let value =
        json!({ "schema": 1, "ok": true, "unit": plan.unit, "scope": plan.scope.as_str(), "done": done });
    output.print(&value, || done.join("\n"))
}

/// Hands the terminal to a command of systemd.
fn through(mut command: Command, print: bool, output: &Output) -> Result<(), CliError> {
    let words = line(&command);
    if print || output.json {
        return output.print(&json!({ "schema": 1, "ok": true, "command": words }), || words.clone());
    }
    let status =
        command.status().map_err(|error| CliError::failed(format!("could not run `{words}`: {error}")))?;
    if status.success() {
        return Ok(());
    }
    Err(CliError::failed(format!("`{words}` says: {status}")))
}
