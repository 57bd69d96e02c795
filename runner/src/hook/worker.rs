//! The work after a turn in a setup that is not ours: follow the session, measure, ask or switch.
//!
//! Three processes, so that no single death leaves a companion without a session: the *looker* is started by the hook
//! and only decides; the *guard* outlives pane and unit and starts the *doer*, which switches. If the doer dies, the
//! guard brings what it left to an end. If both die, the next command or hook does.

use std::process::Command;
use std::time::Duration;

use kael_core::config::{Activation, SystemdScope};
use kael_core::ids::OperationId;
use kael_core::pointer::PointerValue;
use serde_json::{Value, json};

use crate::cli::args::{Global, HookWorker, LogFormat};
use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;
use crate::doorbell;
use crate::keeper::Keeper;
use crate::setup;

use super::Told;

/// How long a command may hold the lock before this hook leaves the work to the next one.
const LOCK: Duration = Duration::from_secs(30);
/// How often a guard tries to end what a doer left.
const TRIES: u32 = 3;

/// Runs the part of the worker that the arguments name.
pub fn run(global: &Global, companion: &Companion, args: &HookWorker) -> Result<(), CliError> {
    // A process that leads a group already is out of the pane's reach as well.
    rustix::process::setsid().map(drop).unwrap_or_default();
    crate::cli::logs::start(LogFormat::Text, "info", None);
    match (args.operate, args.guard) {
        (Some(id), true) => guard(global, companion, id),
        (Some(id), false) => operate(companion, id),
        (None, _) => look(global, companion, args),
    }
}

/// After a turn: is there anything to do?
fn look(global: &Global, companion: &Companion, args: &HookWorker) -> Result<(), CliError> {
    let config = &companion.config;
    let (Some(session), Some(caller)) = (args.session, args.claude) else { return Ok(()) };
    let Some(process) = setup::process_of(config) else { return Ok(()) };
    let claude = process.claude().map_err(|error| CliError::from_error(ErrorKind::Failed, &error))?;
    if claude.map(|claude| claude.pid) != Some(caller) {
        tracing::debug!(%session, "the hook of another claude: nothing to do");
        return Ok(());
    }
    // The CLI is not idle before its hooks have ended, and makes its last notes then.
    let limit = config.stable_file_timeout + Duration::from_secs(10);
    if let Err(busy) = setup::wait_idle(config, Some(limit), &|line| tracing::info!("{line}")) {
        tracing::info!("{}; the end of that turn looks again", busy.message);
        return Ok(());
    }
    let Some(mut keeper) = Keeper::try_take_within(companion.clone(), LOCK)? else {
        tracing::info!("{} is at work: the next turn's end looks again", companion.holder());
        return Ok(());
    };
    for line in keeper.recover()? {
        tracing::info!("{line}");
    }
    setup::follow_to(companion, session)?;
    let (lines, ready) = keeper.after_foreign_turn()?;
    for line in &lines {
        tracing::info!("{line}");
    }
    drop(keeper);
    doorbell::ring_waiting(&config.state_dir);
    let Some(operation) = ready else { return Ok(()) };
    let guard = HookWorker { operate: Some(operation), guard: true, ..HookWorker::default() };
    let mut argv = super::command(global, companion, &guard)?;
    if config.activation == Activation::Systemd {
        // What stays in the unit's control group would be stopped with it.
        let mut scope: Vec<std::ffi::OsString> = vec!["systemd-run".into()];
        if config.systemd_scope == SystemdScope::User {
            scope.push("--user".into());
        }
        scope.extend(
            ["--scope", "--quiet", "--collect", "--no-ask-password", "--property=KillMode=process", "--"]
                .map(Into::into),
        );
        scope.append(&mut argv);
        argv = scope;
    }
    super::start(companion, &argv).map(drop)
}

/// Starts the doer, waits for it, and ends what it may have left.
fn guard(global: &Global, companion: &Companion, id: OperationId) -> Result<(), CliError> {
    let doer = HookWorker { operate: Some(id), ..HookWorker::default() };
    let argv = super::command(global, companion, &doer)?;
    let status = super::start(companion, &argv)?.wait()?;
    if status.success() {
        return Ok(());
    }
    tracing::warn!(%status, operation = %id, "the worker did not come to its end: looking after what it left");
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = mend(companion);
        match &result {
            Ok(()) => break,
            Err(error) => tracing::warn!("{}", error.message),
        }
        std::thread::sleep(Duration::from_secs(2));
    }
    doorbell::ring_waiting(&companion.config.state_dir);
    result
}

fn mend(companion: &Companion) -> Result<(), CliError> {
    let Some(mut keeper) = Keeper::try_take_within(companion.clone(), LOCK)? else { return Ok(()) };
    for line in keeper.recover()? {
        tracing::info!("{line}");
    }
    Ok(())
}

/// Carries a confirmed operation out, once the turn is really over.
fn operate(companion: &Companion, id: OperationId) -> Result<(), CliError> {
    let config = &companion.config;
    // Somebody may have said something since the look.
    let limit = config.stable_file_timeout + Duration::from_secs(10);
    if let Err(busy) = setup::wait_idle(config, Some(limit), &|line| tracing::info!("{line}")) {
        tracing::info!(operation = %id, "{}", busy.message);
        return Ok(());
    }
    let Some(mut keeper) = Keeper::try_take_within(companion.clone(), LOCK)? else {
        tracing::info!("{} is at work: the next turn's end looks again", companion.holder());
        return Ok(());
    };
    keeper.pause_before_switch = config.activation_delay;
    let line = keeper.operate(id)?;
    drop(keeper);
    tracing::info!(operation = %id, "{line}");
    doorbell::ring_waiting(&config.state_dir);
    Ok(())
}

/// `hook-stop --wait`: the whole of it here and now, for a loop that calls `claude -p` itself and calls this between
/// two calls.
pub fn run_here(companion: &Companion, told: &Told) -> Result<Value, CliError> {
    if companion.config.activation != Activation::Pointer {
        return Err(CliError::new(
            ErrorKind::Configuration,
            format!(
                "{}: `hook-stop --wait` is for your own `claude -p` loop (activation = \"pointer\"); in a pane or unit \
                 `hook-stop` does it after each turn",
                companion.config.path.display()
            ),
        ));
    }
    let Some(mut keeper) = Keeper::try_take_within(companion.clone(), LOCK)? else {
        return Err(CliError::new(
            ErrorKind::Busy,
            format!("{} is at work on this companion: try again", companion.holder()),
        ));
    };
    keeper.own_loop = true;
    let mut lines = keeper.recover()?;
    if let Some(session) = told.session_id {
        begin_or_check(companion, session)?;
    }
    let before = companion.pointer.read()?.session();
    let mut result = None;
    if before.is_some() {
        let (more, ready) = keeper.after_foreign_turn()?;
        lines.extend(more);
        if let Some(id) = ready {
            lines.push(keeper.operate(id)?);
            result = Some(keeper.store.load(id)?);
        }
    }
    drop(keeper);
    doorbell::ring_waiting(&companion.config.state_dir);
    let after = companion.pointer.read()?.session();
    for line in &lines {
        eprintln!("{line}");
    }
    Ok(json!({
        "schema": 1,
        "ok": true,
        "suppressOutput": true,
        "session": after,
        "switched": before != after,
        "operation": result.map(|operation| operation.to_json()),
        "told": lines,
    }))
}

/// The first session of a loop becomes the pointer's; another one than the pointer says is somebody's mistake.
fn begin_or_check(companion: &Companion, session: kael_core::ids::SessionId) -> Result<(), CliError> {
    match companion.pointer.read()? {
        PointerValue::Absent if !companion.pointer.used() => {
            let now = companion.clock.now();
            companion.pointer.set(PointerValue::Absent, session, "hook-stop --wait", now)?;
            Ok(())
        }
        PointerValue::Session(current) if current == session => Ok(()),
        other => Err(CliError::new(
            ErrorKind::Conflict,
            format!(
                "the loop has run session {session}, but the pointer says {}: nothing was changed; resume what \
                 `kael-runner pointer show --locked` prints",
                other.session().map_or_else(|| "nothing any more".to_owned(), |current| current.to_string())
            ),
        )),
    }
}

/// Whether systemd-run is there, for `doctor`.
#[must_use]
pub fn can_leave_a_unit() -> bool {
    Command::new("systemd-run").arg("--version").output().is_ok_and(|out| out.status.success())
}
