//! `doctor`: whether everything a companion needs is in place, and what to do where it is not.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use kael_core::config::{Activation, Config, project_dir};
use kael_core::pointer::{PointerValue, probe_exchange};
use kael_core::transcript::drift;
use serde_json::{Value, json};

use crate::claude::binary::{self, VersionCache};
use crate::claude::command::REMOVED;
use crate::companion::Companion;
use crate::versions;

use super::error::CliError;
use super::output::Output;
use kael_core::error_chain as chain;

/// One thing that was looked at.
struct Check {
    name: &'static str,
    /// `None`: worth knowing, but nothing fails.
    ok: Option<bool>,
    detail: String,
}

impl Check {
    fn new(name: &'static str, result: Result<String, String>) -> Self {
        let ok = Some(result.is_ok());
        Self { name, ok, detail: result.unwrap_or_else(|detail| detail) }
    }

    fn note(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: None, detail: detail.into() }
    }
}

/// Runs the command. Exits with 1 when a check fails.
pub fn run(companion: &Companion, output: &Output) -> Result<ExitCode, CliError> {
    let (value, checks) = look(companion);
    output.print(&value, || {
        let lines = checks.iter().map(|check| {
            let sign = match check.ok {
                Some(true) => "ok  ",
                Some(false) => "FAIL",
                None => "note",
            };
            format!("{sign}  {:<12} {}", check.name, check.detail)
        });
        lines.collect::<Vec<_>>().join("\n")
    })?;
    Ok(if value["ok"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything `doctor` finds, as its JSON.
pub fn collect(companion: &Companion) -> Value {
    look(companion).0
}

fn look(companion: &Companion) -> (Value, Vec<Check>) {
    let config = &companion.config;
    let binary = find_binary(config);
    let pane = Pane::look(config);
    let store = companion.store();
    let active = store.as_ref().ok().and_then(|store| store.active().ok().flatten());
    let version = binary.as_ref().ok().and_then(|binary| version_of(config, binary));
    let mut checks = vec![
        check_cli(&binary, version.as_deref()),
        check_shapes(version.as_deref()),
        check_workdir(config),
        check_project_dir(config),
        check_pointer(companion),
        check_state(companion),
        check_exchange(companion),
    ];
    checks.extend(check_operations(&store, companion));
    if config.activation == Activation::Tmux {
        checks.push(pane.check(config));
    }
    let ok = checks.iter().all(|check| check.ok != Some(false));
    let expected = config.claude_workdir.canonicalize().ok().map(|real| project_dir::encode(&real));
    let actual = file_name(&config.project_dir);
    let pointer = companion.pointer.read().ok().and_then(|value| value.session());
    let value = json!({
        "schema": 1,
        "ok": ok,
        "project_dir": config.project_dir,
        "project_dir_exists": config.project_dir.is_dir(),
        "transcript_count": transcripts(&config.project_dir),
        "state_dir": config.state_dir,
        "claude_workdir": config.claude_workdir,
        "expected_project_dirname": expected,
        "actual_project_dirname": actual,
        "workdir_matches_project": expected.is_some() && expected == actual,
        "claude_binary": binary.as_ref().ok(),
        "tmux_target": config.tmux_target,
        "tmux_available": pane.available,
        "tmux_target_alive": pane.command.is_some(),
        "tmux_pane_command": pane.command,
        "tmux_pane_pid": pane.pid,
        "active_operation": active.map(|operation| operation.id),
        "pointer": pointer,
        "credential": match config.activation {
            Activation::Pointer => json!(pointer),
            Activation::Tmux => json!(pane.pid),
            Activation::Systemd => Value::Null,
        },
        "checks": checks.iter()
            .map(|c| json!({ "name": c.name, "ok": c.ok, "detail": c.detail }))
            .collect::<Vec<_>>(),
    });
    (value, checks)
}

fn find_binary(config: &Config) -> Result<PathBuf, String> {
    let name = config.resume_command.first().map_or("claude", String::as_str);
    let configured = config.claude.env.get("PATH").map(std::ffi::OsString::from);
    let search = configured.or_else(|| std::env::var_os("PATH"));
    binary::resolve(name, &config.claude_workdir, search.as_deref()).map_err(|error| error.to_string())
}

fn version_of(config: &Config, binary: &Path) -> Option<String> {
    let env: Vec<(String, String)> = config.claude.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    VersionCache::default().version(binary, &env, REMOVED)
}

/// Which versions' transcripts the table of known shapes was checked against.
fn check_shapes(version: Option<&str>) -> Check {
    let all = drift::CHECKED_VERSIONS.join(", ");
    match version {
        Some(version) if !drift::is_checked(version) => Check::note(
            "shapes",
            format!(
                "transcripts of {version} were not looked at; known are those of {all}: a shape that is new blocks a \
                 rebuild, with its line"
            ),
        ),
        _ => Check::new("shapes", Ok(format!("the shapes of rows were checked against {all}"))),
    }
}

fn check_cli(binary: &Result<PathBuf, String>, version: Option<&str>) -> Check {
    let binary = match binary {
        Ok(binary) => binary,
        Err(error) => return Check::new("cli", Err(error.clone())),
    };
    match version {
        None => Check::new(
            "cli",
            Err(format!("{} --version prints no version: is it Claude Code?", binary.display())),
        ),
        Some(version) if versions::is_known(version) => {
            Check::new("cli", Ok(format!("{} is {version}, which was measured", binary.display())))
        }
        Some(version) => Check::note(
            "cli",
            format!(
                "{} is {version}; measured were {}: rebuild = \"auto\" asks instead",
                binary.display(),
                versions::KNOWN.join(" and ")
            ),
        ),
    }
}

fn check_workdir(config: &Config) -> Check {
    let dir = &config.claude_workdir;
    Check::new(
        "workdir",
        if dir.is_dir() {
            Ok(dir.display().to_string())
        } else {
            Err(format!("{} is not a folder: create it or correct claude_workdir", dir.display()))
        },
    )
}

fn check_project_dir(config: &Config) -> Check {
    let dir = &config.project_dir;
    if dir.is_dir() {
        Check::new("project_dir", Ok(format!("{} with {} transcripts", dir.display(), transcripts(dir))))
    } else {
        Check::note("project_dir", format!("{} is not there yet: the first turn makes it", dir.display()))
    }
}

fn check_pointer(companion: &Companion) -> Check {
    match companion.pointer.read() {
        Err(error) => Check::new("pointer", Err(chain(&error))),
        Ok(PointerValue::Session(session)) => {
            let transcript = companion.transcript(session);
            Check::new(
                "pointer",
                if transcript.is_file() {
                    Ok(format!("names session {session}"))
                } else {
                    Err(format!(
                        "names session {session}, but {} is not there: point to one that is, with `kael-runner pointer set`",
                        transcript.display()
                    ))
                },
            )
        }
        Ok(PointerValue::Absent) if companion.pointer.used() => Check::new(
            "pointer",
            Err(format!(
                "{} is gone although it has a history: put it back with `kael-runner pointer set SESSION`",
                companion.config.resume_pointer_path.display()
            )),
        ),
        Ok(PointerValue::Absent) => Check::note("pointer", "absent: the first message begins a new session"),
    }
}

fn check_state(companion: &Companion) -> Check {
    use std::os::unix::fs::PermissionsExt;
    let dir = &companion.config.state_dir;
    let result = companion.queue().map_err(|error| error.message).and_then(|_| {
        let mode = dir.metadata().map_err(|error| error.to_string())?.permissions().mode() & 0o777;
        if mode & 0o077 == 0 {
            Ok(dir.display().to_string())
        } else {
            Err(format!("{} can be read by others (mode {mode:o}): chmod 700 it", dir.display()))
        }
    });
    Check::new("state", result)
}

fn check_exchange(companion: &Companion) -> Check {
    let folder = companion.config.resume_pointer_path.parent().unwrap_or(Path::new("."));
    match probe_exchange(&companion.disk, folder) {
        Ok(true) => Check::new("exchange", Ok("the file system exchanges names atomically".to_owned())),
        Ok(false) => Check::note(
            "exchange",
            "the file system of the pointer has no atomic exchange: a write by others in the instant of a switch may be \
             lost unseen (weaker guarantee); keep the pointer on a local disk",
        ),
        Err(error) => Check::new("exchange", Err(chain(&error))),
    }
}

fn check_operations(
    store: &Result<kael_core::operation::OpStore, CliError>,
    companion: &Companion,
) -> Vec<Check> {
    let store = match store {
        Ok(store) => store,
        Err(error) => return vec![Check::new("operations", Err(error.message.clone()))],
    };
    let conflict = store.session_conflict();
    let mut checks = vec![match conflict {
        Ok(None) => Check::new("operations", Ok(format!("in {}", companion.config.state_dir.display()))),
        Ok(Some(id)) => Check::new(
            "operations",
            Err(format!(
                "operation {id} met somebody else's change: find out who changed the session, do not retry, then \
                 `kael-runner clear`"
            )),
        ),
        Err(error) => Check::new("operations", Err(chain(&error))),
    }];
    match companion.runner_lives() {
        Ok(true) => checks.push(Check::note("runner", format!("up ({})", companion.holder()))),
        Ok(false) => checks.push(Check::note("runner", "not running")),
        Err(error) => checks.push(Check::new("runner", Err(error.message))),
    }
    checks
}

fn transcripts(dir: &Path) -> usize {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "jsonl"))
        .count()
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// The pane of a tmux setup.
#[derive(Default)]
struct Pane {
    available: bool,
    command: Option<String>,
    pid: Option<u32>,
}

impl Pane {
    /// Asks tmux; in other setups the target is only a default and is not looked for.
    fn look(config: &Config) -> Self {
        let available = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
        if config.activation != Activation::Tmux {
            return Self { available, ..Self::default() };
        }
        let mut tmux = Command::new("tmux");
        if let Some(socket) = &config.tmux_socket {
            tmux.arg("-S").arg(socket);
        }
        let shown = tmux
            .args(["display-message", "-p", "-t", &config.tmux_target, "#{pane_pid} #{pane_current_command}"])
            .output();
        let text = match shown {
            Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
            _ => String::new(),
        };
        match text.split_once(' ') {
            Some((pid, command)) => {
                Self { available, command: Some(command.to_owned()), pid: pid.parse().ok() }
            }
            None => Self { available, ..Self::default() },
        }
    }

    fn check(&self, config: &Config) -> Check {
        Check::new(
            "tmux",
            match &self.command {
                Some(command) => Ok(format!("{} runs {command}", config.tmux_target)),
                None if self.available => {
                    Err(format!("there is no pane {}: correct tmux_target", config.tmux_target))
                }
                None => Err("tmux is not installed".to_owned()),
            },
        )
    }
}
