//! Where `claude` lives: pane or unit, its hook and tools, its flags, and what keeps it alive.

use std::path::Path;
use std::process::Command;

use kael_core::config::{Activation, Config, SystemdScope};
use kael_core::switch::processes::{self, Process};
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::hook::settings as hook;
use crate::init::argv;
use crate::setup;

use super::{Check, config_dir};

/// The name under which the tools are registered.
const SERVER: &str = "kael-thread-rebuild";

/// The pane of a tmux setup, under the names that scripts know.
#[derive(Default)]
pub(super) struct Pane {
    pub(super) available: bool,
    pub(super) command: Option<String>,
    pub(super) pid: Option<u32>,
}

/// Asks tmux; in other setups the target is only a default and is not looked for.
pub(super) fn pane(config: &Config) -> Pane {
    let available = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    let found = match config.activation {
        Activation::Tmux => setup::pane_of(config).find().ok(),
        Activation::Pointer | Activation::Systemd => None,
    };
    let Some(found) = found.filter(|pane| !pane.dead) else { return Pane { available, ..Pane::default() } };
    let name = std::fs::read_to_string(format!("/proc/{}/comm", found.pid)).unwrap_or_default();
    Pane { available, command: Some(name.trim().to_owned()), pid: Some(found.pid) }
}

/// What a switch would compare.
pub(super) fn credential(config: &Config) -> Value {
    let found = setup::process_of(config).and_then(|process| process.credential().ok());
    found.map_or(Value::Null, |credential| json!(credential))
}

fn running(config: &Config) -> Option<Process> {
    setup::process_of(config)?.claude().ok()?
}

/// Whether the running `claude` of a pane or unit has that variable switched on.
pub(super) fn has_in_environment(config: &Config, name: &str) -> bool {
    let Some(claude) = running(config) else { return false };
    let environ = std::fs::read(format!("/proc/{}/environ", claude.pid)).unwrap_or_default();
    let prefix = format!("{name}=");
    environ.split(|&byte| byte == 0).any(|var| {
        var.strip_prefix(prefix.as_bytes()).is_some_and(|value| !matches!(value, b"" | b"0" | b"false"))
    })
}

pub(super) fn checks(companion: &Companion) -> Vec<Check> {
    let config = &companion.config;
    let mut all = Vec::new();
    if let Some(process) = setup::process_of(config) {
        let name = config.activation.as_str();
        all.push(match process.credential() {
            Err(error) => {
                Check::fail(name, error.to_string(), "put this right: nothing can be switched until then")
            }
            Ok(credential) => match process.probe().unwrap_or_default().as_slice() {
                [] => Check::pass(name, credential.to_string()),
                notes => {
                    Check::warn(name, notes.join("; "), "change that: a switch would be given up half-way")
                }
            },
        });
        all.push(stop_hook(companion));
        all.push(tools(companion));
        all.extend(flags(config));
    }
    all.extend(linger(config));
    all
}

fn stop_hook(companion: &Companion) -> Check {
    let path = hook::default_file(companion);
    match hook::installed(companion, &path) {
        Err(error) => Check::fail("hook", error.message, "mend the CLI's settings"),
        Ok(Some(_)) => Check::pass("hook", format!("in {}", path.display())),
        Ok(None) => Check::fail(
            "hook",
            format!(
                "{} has no Stop hook of this companion: no rebuild would ever begin by itself",
                path.display()
            ),
            "`kael-runner hook install`",
        ),
    }
}

fn tools(companion: &Companion) -> Check {
    let config = &companion.config;
    let work = config.claude_workdir.canonicalize().unwrap_or_else(|_| config.claude_workdir.clone());
    let state = config_dir(config);
    // ~/.claude.json stands beside ~/.claude; with CLAUDE_CONFIG_DIR it stands inside.
    let beside = state.parent().unwrap_or(Path::new("/")).join(".claude.json");
    let files = [beside, state.join(".claude.json"), work.join(".mcp.json")];
    let registered = files.iter().any(|file| {
        let all: Value =
            std::fs::read(file).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
        let here = &all["projects"][work.to_string_lossy().as_ref()];
        [&all["mcpServers"], &here["mcpServers"]].iter().any(|servers| servers.get(SERVER).is_some())
    });
    if registered {
        return Check::pass("tools", format!("{SERVER} is registered with the CLI"));
    }
    Check::warn(
        "tools",
        format!("the CLI does not know the MCP server {SERVER}: the model cannot look or ask"),
        "`kael-runner mcp install`",
    )
}

/// Options of the running process that `resume_command` lacks: after a switch the companion would be without them. One
/// that lost its channel is deaf.
pub(super) fn missing_flags(config: &Config, line: &[String]) -> Vec<String> {
    let options = |arguments: &[String]| grouped(&argv::resume_command(arguments).kept);
    let configured = options(&config.resume_command);
    options(line)
        .into_iter()
        .filter(|option| !configured.contains(option))
        .map(|option| option.join(" "))
        .collect()
}

/// Each option with what belongs to it.
fn grouped(arguments: &[String]) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for argument in arguments {
        match groups.last_mut() {
            Some(last) if !argument.starts_with('-') => last.push(argument.clone()),
            _ => groups.push(vec![argument.clone()]),
        }
    }
    groups
}

fn flags(config: &Config) -> Option<Check> {
    // A unit's command line is its own; ours only names its program.
    if config.activation != Activation::Tmux {
        return None;
    }
    let line = processes::command_line(running(config)?.pid)?;
    let missing = missing_flags(config, &line);
    Some(if missing.is_empty() {
        Check::pass("flags", "resume_command has all options of the running claude")
    } else {
        Check::fail(
            "flags",
            format!("resume_command lacks what the running claude was started with: {}", missing.join(", ")),
            "add it to resume_command: after a switch the companion would be without it (without its channel it is deaf)",
        )
    })
}

/// A user's manager, and everything in it, ends with the last login, unless it lingers.
fn linger(config: &Config) -> Option<Check> {
    let by_user = config.activation == Activation::Systemd && config.systemd_scope == SystemdScope::User;
    let own_unit =
        config_home(config).is_some_and(|home| home.join("systemd/user/kael-runner.service").is_file());
    if !by_user && !own_unit {
        return None;
    }
    let id = rustix::process::getuid().as_raw().to_string();
    let shown = Command::new("loginctl").args(["show-user", "--property=Linger", "--value", &id]).output();
    let text = shown
        .ok()
        .filter(|out| out.status.success())
        .map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let remedy = "`loginctl enable-linger`: without it the unit ends with the last login";
    Some(match text.as_deref().map(str::trim) {
        Some("yes") => Check::pass("linger", "on"),
        Some("no") => Check::fail("linger", "off for this user", remedy),
        _ => Check::warn("linger", "cannot be told: loginctl has no answer", remedy),
    })
}

fn config_home(config: &Config) -> Option<std::path::PathBuf> {
    let given = std::env::var_os("XDG_CONFIG_HOME").map(std::path::PathBuf::from);
    given.or_else(|| Some(config_dir(config).parent()?.join(".config")))
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn an_option_goes_with_its_values() {
        let line: Vec<String> = ["-x", "--channels", "a", "b", "--model=m"].map(str::to_owned).to_vec();
        assert_eq!(grouped(&line), [vec!["-x"], vec!["--channels", "a", "b"], vec!["--model=m"]]);
    }
}
