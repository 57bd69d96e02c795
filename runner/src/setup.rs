//! Setups in which `claude` lives on between turns: which process it is, which session it is on, and whether it
//! is working on a turn. The answers come from the process itself; the pointer is the record of them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use kael_core::config::{Activation, Config};
use kael_core::ids::SessionId;
use kael_core::pointer::PointerValue;
use kael_core::switch::processes::{self, Process};
use kael_core::switch::{SessionProcess, SystemdUnit, TmuxPane, wait_until_quiet};
use serde_json::Value;

use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;

/// How far from its end the last thing said is looked for in a transcript.
const TAIL: u64 = 2 * 1024 * 1024;

/// Pane or unit of this configuration; none where the runner starts `claude` itself.
#[must_use]
pub fn process_of(config: &Config) -> Option<Box<dyn SessionProcess>> {
    match config.activation {
        Activation::Pointer => None,
        Activation::Tmux => Some(Box::new(pane_of(config))),
        Activation::Systemd => Some(Box::new(unit_of(config))),
    }
}

/// The pane of a tmux setup.
#[must_use]
pub fn pane_of(config: &Config) -> TmuxPane {
    let socket = config.tmux_socket.clone();
    TmuxPane::new(socket, &config.tmux_target, &command_of(config), config.claude_workdir.clone())
}

/// The unit of a systemd setup.
#[must_use]
pub fn unit_of(config: &Config) -> SystemdUnit {
    SystemdUnit {
        unit: config.systemd_unit.clone().unwrap_or_default(),
        scope: config.systemd_scope,
        program: program_of(config).to_owned(),
        limit: config.systemd_restart_timeout,
    }
}

/// The program of `resume_command`.
#[must_use]
pub fn program_of(config: &Config) -> &str {
    config.resume_command.first().map_or("claude", String::as_str)
}

/// `resume_command` with its program in full where it is found: a pane's PATH may be another one.
fn command_of(config: &Config) -> Vec<String> {
    let mut command = config.resume_command.clone();
    let search = std::env::var_os("PATH");
    let found = crate::claude::binary::resolve(program_of(config), &config.claude_workdir, search.as_deref());
    if let (Ok(found), Some(first)) = (found, command.first_mut())
        && let Some(found) = found.to_str()
    {
        found.clone_into(first);
    }
    command
}

/// The session that pane or unit is on, by the process itself; none in a pointer setup, or where nothing runs.
#[must_use]
pub fn session_now(config: &Config) -> Option<SessionId> {
    let claude = process_of(config)?.claude().ok()??;
    processes::session_of(claude, &config.project_dir)
}

/// Makes the pointer say what the process is on, as long as that can be told and its transcript is there: a person may
/// have typed `/clear`, or started it by hand.
pub fn follow(companion: &Companion) -> Result<(), CliError> {
    let Some(session) = session_now(&companion.config) else { return Ok(()) };
    follow_to(companion, session)
}

/// Makes the pointer say `session`, which the running process has told.
pub fn follow_to(companion: &Companion, session: SessionId) -> Result<(), CliError> {
    let current = companion.pointer.read()?;
    if current == PointerValue::Session(session) || !companion.transcript(session).is_file() {
        return Ok(());
    }
    // Between the swap of an interrupted switch and the new process, what still runs is the past.
    if companion.store()?.active()?.is_some_and(|operation| operation.status().is_switching()) {
        return Ok(());
    }
    tracing::info!(%session, "the running claude is on another session than the pointer said; the pointer follows");
    companion.pointer.set(current, session, "the running claude", companion.clock.now())?;
    Ok(())
}

/// Whether the process is working on a turn: by its own word, else by the end of its transcript.
#[must_use]
pub fn is_busy(claude: Process, config: &Config) -> bool {
    let Some(session) = processes::session_of(claude, &config.project_dir) else { return false };
    let transcript = config.project_dir.join(format!("{session}.jsonl"));
    match processes::note_of(claude, &config.project_dir).and_then(|note| note.idle) {
        Some(false) => true,
        // Its note lags behind its transcript.
        Some(true) => was_just_written(&transcript) && turn_is_open(&transcript),
        None => turn_is_open(&transcript),
    }
}

/// Waits until the process has finished its turn, at most `limit`.
pub fn wait_idle(config: &Config, limit: Option<Duration>, tell: &dyn Fn(String)) -> Result<(), CliError> {
    let Some(process) = process_of(config) else { return Ok(()) };
    let started = Instant::now();
    let mut told = false;
    loop {
        match process.claude().map_err(|error| CliError::from_error(ErrorKind::Refused, &error))? {
            Some(claude) if is_busy(claude, config) => {}
            // It makes its notes a moment after it has said that the turn is over.
            Some(claude) => return be_quiet(claude, config),
            None => return Ok(()),
        }
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            return Err(CliError::new(
                ErrorKind::Busy,
                "claude is working on a turn: what was confirmed follows its end",
            ));
        }
        if !told && started.elapsed() > Duration::from_secs(2) {
            tell("waiting for claude to finish its turn".to_owned());
            told = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn was_just_written(transcript: &Path) -> bool {
    let age =
        transcript.metadata().and_then(|meta| meta.modified()).map(|at| at.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age < Duration::from_secs(5))
}

fn be_quiet(claude: Process, config: &Config) -> Result<(), CliError> {
    let Some(session) = processes::session_of(claude, &config.project_dir) else { return Ok(()) };
    let transcript = config.project_dir.join(format!("{session}.jsonl"));
    if !transcript.is_file() {
        return Ok(());
    }
    wait_until_quiet(&transcript, config.stable_file, config.stable_file_timeout)
        .map_err(|error| CliError::from_error(ErrorKind::Busy, &error))
}

/// Whether the last thing in a transcript is a message without an answer, or a tool that runs.
#[must_use]
pub fn turn_is_open(transcript: &Path) -> bool {
    let Ok(bytes) = tail(transcript) else { return false };
    for line in bytes.split(|&byte| byte == b'\n').rev() {
        let Ok(row) = serde_json::from_slice::<Value>(line) else { continue };
        if row["isSidechain"] == true || row["isMeta"] == true {
            continue;
        }
        match row["type"].as_str() {
            Some("assistant") => return row["message"]["stop_reason"] == "tool_use",
            Some("user") => {
                let text = row["message"]["content"].as_str().unwrap_or_default();
                let block = row["message"]["content"][0]["text"].as_str().unwrap_or_default();
                return !["<local-command", "<command-name>", "[Request interrupted"]
                    .iter()
                    .any(|start| text.starts_with(start) || block.starts_with(start));
            }
            _ => {}
        }
    }
    false
}

fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_open_until_its_answer_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let asked = r#"{"type":"user","message":{"content":"hello"}}"#;
        let tool = r#"{"type":"assistant","message":{"stop_reason":"tool_use"}}"#;
        let done = r#"{"type":"assistant","message":{"stop_reason":"end_turn"}}"#;
        let side = r#"{"type":"assistant","isSidechain":true,"message":{"stop_reason":"tool_use"}}"#;
        let command =
            r#"{"type":"user","message":{"content":"<local-command-stdout>x</local-command-stdout>"}}"#;
        let note = r#"{"type":"cost-state"}"#;
        for (rows, open) in [
            (vec![asked], true),
            (vec![asked, tool], true),
            (vec![asked, done], false),
            (vec![asked, done, note], false),
            (vec![asked, done, side], false),
            (vec![asked, done, command], false),
            (vec![asked, done, asked], true),
            (vec![], false),
        ] {
            std::fs::write(&path, rows.join("\n")).unwrap();
            assert_eq!(turn_is_open(&path), open, "{rows:?}");
        }
    }
}
