//! The Stop hook: the end of a turn in setups whose `claude` is not ours.
//!
//! `hook-stop` is called by the CLI after every turn. It answers within milliseconds, whatever is wrong, and leaves
//! the work to a [`worker`] that does not die with the pane or unit. [`settings`] puts the hook into the CLI's
//! settings and takes it out again.

pub mod settings;
pub mod worker;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kael_core::config::Activation;
use kael_core::ids::SessionId;
use kael_core::switch::processes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::claude::marked;
use crate::cli::args::{Global, HookStop, HookWorker};
use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;

/// More than the CLI ever says; the rest of a longer text is not read.
const LONGEST: u64 = 4 * 1024 * 1024;

/// What the CLI tells a Stop hook, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
pub struct Told {
    /// The session whose turn has ended.
    pub session_id: Option<SessionId>,
    /// Its transcript.
    pub transcript_path: Option<PathBuf>,
}

/// Answers the CLI. Never fails: a hook that fails would be the model's trouble.
pub fn stop(
    global: &Global,
    args: &HookStop,
    find: &dyn Fn() -> Result<Companion, CliError>,
) -> Result<Value, CliError> {
    let told = read(args);
    if args.wait {
        let companion = find()?;
        super::cli::refuse_inside_invocation("hook-stop --wait")?;
        return worker::run_here(&companion, &told?);
    }
    Ok(match hand_over(global, told, find) {
        Ok(message) => answer(message.as_deref()),
        Err(error) => answer(Some(&format!("kael-runner: {}", error.message))),
    })
}

/// The answer of a hook that has nothing against the end of the turn.
fn answer(message: Option<&str>) -> Value {
    match message {
        None => json!({ "suppressOutput": true }),
        Some(message) => json!({ "suppressOutput": true, "systemMessage": message }),
    }
}

fn read(args: &HookStop) -> Result<Told, CliError> {
    let mut text = String::new();
    match &args.input {
        Some(path) => drop(File::open(path)?.take(LONGEST).read_to_string(&mut text)?),
        None if std::io::stdin().is_terminal() => {}
        None => drop(std::io::stdin().lock().take(LONGEST).read_to_string(&mut text)?),
    }
    if text.trim().is_empty() {
        return Ok(Told::default());
    }
    serde_json::from_str(&text).map_err(|error| {
        CliError::new(ErrorKind::Usage, format!("what the hook was told is not the CLI's JSON: {error}"))
    })
}

/// Starts the worker. Gives a line for the human where one is worth saying.
fn hand_over(
    global: &Global,
    told: Result<Told, CliError>,
    find: &dyn Fn() -> Result<Companion, CliError>,
) -> Result<Option<String>, CliError> {
    // Our own supervisor looks at the end of its turns itself.
    if marked::enclosing_invocation().is_some() {
        return Ok(None);
    }
    let companion = find()?;
    if companion.config.activation == Activation::Pointer {
        return Ok(None);
    }
    let told = told?;
    let Some(session) = told.session_id else { return Ok(None) };
    if told.transcript_path.is_some_and(|path| !is_its_transcript(&companion, session, &path)) {
        // Another conversation of this person, under the same settings.
        return Ok(None);
    }
    // The shell between us and the CLI is gone before a worker could look for it.
    let program = crate::setup::program_of(&companion.config);
    let Some(claude) = processes::claude_above(std::process::id(), program) else { return Ok(None) };
    companion.create_folders()?;
    let worker = HookWorker { session: Some(session), claude: Some(claude.pid), ..HookWorker::default() };
    start(&companion, &command(global, &companion, &worker)?)?;
    Ok(None)
}

fn is_its_transcript(companion: &Companion, session: SessionId, path: &Path) -> bool {
    let ours = companion.transcript(session);
    match (ours.canonicalize(), path.canonicalize()) {
        (Ok(ours), Ok(path)) => ours == path,
        // Not written yet, or gone: the name has to do.
        _ => ours == path,
    }
}

/// The command line of a worker: this program again, with the same configuration.
fn command(global: &Global, companion: &Companion, worker: &HookWorker) -> Result<Vec<OsString>, CliError> {
    let program = std::env::current_exe()?;
    let mut argv: Vec<OsString> =
        vec![program.into(), "--config".into(), companion.config.path.clone().into()];
    if let Some(name) = global.companion.as_ref().or(companion.config.name.as_ref()) {
        argv.extend(["--companion".into(), name.into()]);
    }
    argv.push("hook-worker".into());
    argv.extend(worker.arguments().into_iter().map(OsString::from));
    Ok(argv)
}

/// Starts a process that belongs to nobody: its words go to `worker.log`.
fn start(companion: &Companion, argv: &[OsString]) -> Result<std::process::Child, CliError> {
    let log = worker_log(companion)?;
    let (program, arguments) = argv.split_first().ok_or_else(|| CliError::failed("there is no command"))?;
    Ok(Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?)
}

/// Where workers write.
fn worker_log(companion: &Companion) -> Result<File, CliError> {
    let path = companion.config.state_dir.join("worker.log");
    Ok(OpenOptions::new().append(true).create(true).mode(0o600).open(path)?)
}
