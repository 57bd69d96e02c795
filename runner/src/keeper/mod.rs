//! The process that holds a companion's lock, and the only one that settles invocations, runs
//! operations and moves the pointer. A living runner is one for its whole life; a command is one
//! for a moment when no runner lives, and leaves a request otherwise (DESIGN 7).
//!
//! Synchronous: the supervisor adds the waiting.

mod additions;
mod attempt;
mod dead;
mod emergency;
mod footing;
mod foreign;
mod limits;
mod measure;
mod operations;
mod outcome;
mod perform;
mod repair;
mod settle;
mod tidy;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use kael_core::disk::FileLock;
use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::{OpStore, Status};

use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;
use crate::queue::{Hold, MessageState, Queue, Setting};
use crate::supervisor::View;

pub use attempt::Next;
pub use measure::{baseline, figures};
pub(crate) use operations::{gone_on, register_carry_back};
pub use operations::{outcome_line, question_line};
pub use outcome::Kind;
pub use settle::Settled;
pub use tidy::report_json;

/// A companion under our lock.
pub struct Keeper {
    /// The companion.
    pub companion: Companion,
    /// Its queues.
    pub queue: Queue,
    /// Its operations.
    pub store: OpStore,
    version: Option<String>,
    asked: Option<(OperationId, Status)>,
    is_runner: bool,
    /// The sessions whose transcripts are copied, as long as the pointer names this one.
    kept: Option<(Option<SessionId>, BTreeSet<SessionId>)>,
    /// Somebody else's loop runs the CLI: nothing but the pointer tells which session is the current one.
    pub own_loop: bool,
    /// Before a switch that nobody waits for: so that the end of the turn is seen.
    pub pause_before_switch: Duration,
    _lock: FileLock,
}

impl Keeper {
    /// Takes the lock for the life of a runner, or says who has it. Waits a second: a command may hold it for a moment.
    pub fn take(companion: Companion) -> Result<Self, CliError> {
        companion.create_folders()?;
        let Some(lock) = companion.disk.lock_within(&companion.runner_lock(), Duration::from_secs(1))? else {
            return Err(CliError::new(
                ErrorKind::Busy,
                format!(
                    "the companion of {} is already run by {}: talk to it with `kael-runner attach` or `kael-runner send`, or stop it first",
                    companion.config.resume_pointer_path.display(),
                    companion.holder()
                ),
            ));
        };
        Self::with_lock(companion, lock, true)
    }

    /// Takes the lock for one piece of work, waiting a while for a command that has it for a moment.
    pub fn try_take_within(companion: Companion, limit: Duration) -> Result<Option<Self>, CliError> {
        companion.create_folders()?;
        match companion.disk.lock_within(&companion.runner_lock(), limit)? {
            Some(lock) => Ok(Some(Self::with_lock(companion, lock, false)?)),
            None => Ok(None),
        }
    }

    /// Takes the lock for one command, unless somebody has it.
    pub fn try_take(companion: Companion) -> Result<Option<Self>, CliError> {
        companion.create_folders()?;
        match companion.disk.try_lock(&companion.runner_lock())? {
            Some(lock) => Ok(Some(Self::with_lock(companion, lock, false)?)),
            None => Ok(None),
        }
    }

    fn with_lock(companion: Companion, lock: FileLock, is_runner: bool) -> Result<Self, CliError> {
        let queue = companion.queue()?;
        let store = companion.store()?;
        Ok(Self {
            companion,
            queue,
            store,
            version: None,
            asked: None,
            is_runner,
            kept: None,
            own_loop: false,
            pause_before_switch: Duration::ZERO,
            _lock: lock,
        })
    }

    /// Opens everything anew after the storage has failed: what an earlier sync left is unknown, and nothing is written
    /// until it has been read again. The lock stays ours.
    pub fn reopen(&mut self) -> Result<(), CliError> {
        self.companion = self.companion.on_fresh_disk();
        self.queue = self.companion.queue()?;
        self.store = self.companion.store()?;
        Ok(())
    }

    /// Writes and forgets something, so that "in order again" is true.
    pub fn prove_writable(&mut self) -> Result<(), CliError> {
        // More than a page, as a turn needs.
        self.queue.set(Setting::Scratch, &"x".repeat(16 * 1024))?;
        Ok(self.queue.clear(Setting::Scratch)?)
    }

    /// Brings everything an earlier holder left unfinished to a definite state. Returns a line for
    /// each thing that was done.
    pub fn recover(&mut self) -> Result<Vec<String>, CliError> {
        let mut told = self.recover_pointer_and_operations()?;
        told.extend(self.settle_leftovers()?);
        if let Some(since) = crate::forget::unfinished(self)? {
            told.push(format!(
                "`forget` was interrupted at {since}: call it again with the same words, it does what is left"
            ));
        }
        Ok(told)
    }

    /// One look at everything that the next decision depends on.
    pub fn look(&self) -> Result<View, CliError> {
        let queued = self.queue.messages_in(MessageState::Queued)?;
        let debounce = self.companion.config.runner.debounce;
        let youngest_remote = queued.iter().filter(|m| remote(&m.front)).map(|m| m.at).max();
        let pending = self.pending_operation()?;
        // One that may not run yet waits until the open turn is answered.
        let ready = pending.as_ref().filter(|op| self.agreed(op) && self.refuse_over_open_turn().is_ok());
        Ok(View {
            request: self.queue.next_request()?.is_some(),
            confirmed_operation: ready.map(|op| op.id),
            question: pending.as_ref().filter(|op| !self.agreed(op)).map(|op| op.id),
            question_expires_at: pending.filter(|op| !self.agreed(op)).map(|op| self.expiry(&op)),
            paused: self.queue.get::<bool>(Setting::Paused)?.unwrap_or(false),
            held: self.queue.get::<Hold>(Setting::Hold)?.is_some(),
            open_turn: self.queue.open_turn()?.is_some(),
            queued: queued.len(),
            debounced_at: youngest_remote.map(|at| at.after(debounce)),
            ..View::default()
        })
    }

    /// Remembers which version of the CLI runs, for the rule that an unknown one makes `auto` ask.
    pub fn note_version(&mut self, version: Option<&str>) {
        self.version = version.map(str::to_owned);
    }

    /// The transcripts in the project folder, newest first.
    pub(crate) fn sessions_by_age(&self) -> Vec<(SessionId, PathBuf)> {
        let mut found: Vec<(SystemTime, SessionId, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&self.companion.config.project_dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if let (Some(id), Some("jsonl")) = (id, path.extension().and_then(|e| e.to_str())) {
                let age = entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((age, id, path));
            }
        }
        found.sort_by_key(|(age, _, _)| std::cmp::Reverse(*age));
        found.into_iter().map(|(_, id, path)| (id, path)).collect()
    }
}

/// Messages of remote fronts wait for each other; what is typed or sent by hand goes at once.
fn remote(front: &str) -> bool {
    !matches!(front, "send" | "terminal")
}
