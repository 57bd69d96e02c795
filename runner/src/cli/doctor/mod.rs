//! `doctor`: whether everything a companion needs is in place, and what to do where it is not.
//!
//! | module | what it looks at |
//! |---|---|
//! | `files` | configuration, folders and modes, pointer, operations, disk room, clock |
//! | `cli` | the CLI, its version, its login, its settings |
//! | `place` | pane or unit, hook, tools, flags, linger |
//! | `fix` | what can be mended without a question |

mod cli;
mod files;
mod fix;
mod place;

use std::path::Path;
use std::process::ExitCode;

use kael_core::config::{Activation, Config, project_dir};
use serde_json::{Value, json};

use crate::companion::Companion;

use super::args;
use super::error::CliError;
use super::output::Output;

/// How a thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    Pass,
    Warn,
    Fail,
}

impl Grade {
    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    grade: Grade,
    detail: String,
    /// What to do about it; empty where nothing is to be done.
    remedy: String,
}

impl Check {
    fn pass(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, grade: Grade::Pass, detail: detail.into(), remedy: String::new() }
    }

    fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, grade: Grade::Warn, detail: detail.into(), remedy: remedy.into() }
    }

    fn fail(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, grade: Grade::Fail, detail: detail.into(), remedy: remedy.into() }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "status": self.grade.word(),
            // True, false, or null for a warning, as it was before there were three words.
            "ok": match self.grade { Grade::Pass => json!(true), Grade::Warn => Value::Null, Grade::Fail => json!(false) },
            "detail": self.detail,
            "remedy": self.remedy,
        })
    }
}

/// Runs the command. Exits with 1 when a line fails.
pub fn run(companion: &Companion, args: &args::Doctor, output: &Output) -> Result<ExitCode, CliError> {
    let done = if args.fix {
        super::refuse_inside_invocation("doctor --fix")?;
        fix::mend(companion)
    } else {
        Vec::new()
    };
    let (mut value, checks) = look(companion, args.live);
    if args.fix {
        value["fixed"] = json!(done);
    }
    output.print(&value, || {
        let mut lines: Vec<String> = done.iter().map(|line| format!("fixed {line}")).collect();
        for check in &checks {
            lines.push(format!("{}  {:<13} {}", check.grade.word(), check.name, check.detail));
            if !check.remedy.is_empty() {
                lines.push(format!("{:19} -> {}", "", check.remedy));
            }
        }
        lines.join("\n")
    })?;
    Ok(if value["ok"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything `doctor` finds, as its JSON.
pub fn collect(companion: &Companion) -> Value {
    look(companion, false).0
}

fn look(companion: &Companion, live: bool) -> (Value, Vec<Check>) {
    let config = &companion.config;
    let binary = cli::find(config);
    let pane = place::pane(config);
    let store = companion.store();
    let active = store.as_ref().ok().and_then(|store| store.active().ok().flatten());
    let mut checks = vec![files::configuration(config)];
    checks.push(cli::program(config, &binary));
    checks.push(cli::shapes(config, &binary));
    checks.extend(cli::login(companion, &binary, live));
    checks.push(files::workdir(config));
    checks.push(files::project_dir(config));
    checks.push(files::pointer(companion));
    checks.push(files::state(companion));
    checks.push(files::exchange(companion));
    checks.extend(files::operations(&store, companion));
    checks.push(files::room(companion));
    checks.push(files::clock(config));
    let settings = cli::Settings::read(config);
    checks.push(cli::clean_up(&settings));
    checks.push(cli::updates(config, &settings));
    checks.push(cli::compaction(config, &settings));
    checks.extend(place::checks(companion));
    let ok = checks.iter().all(|check| check.grade != Grade::Fail);
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
            Activation::Tmux | Activation::Systemd => place::credential(config),
        },
        "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
    });
    (value, checks)
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

/// The CLI's own folder: `~/.claude`, or what `CLAUDE_CONFIG_DIR` names.
fn config_dir(config: &Config) -> std::path::PathBuf {
    config.project_dir.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}
