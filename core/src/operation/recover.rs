//! What is done at start with what a crash left, before anything else reads or writes.

use std::fs;
use std::path::Path;

use super::record::Operation;
use super::state::{Candidate, OpEvent, OpState};
use super::status::{Reason, Status};
use super::store::{Listing, StoreError, StoreGuard, Unreadable};
use crate::clock::Timestamp;
use crate::disk::{DiskError, digest};
use crate::ids::OperationId;
use crate::pointer::{Pointer, PointerError, PointerLock, PointerValue, Recovered, SwapIntent};
use crate::switch::{Credential, SourceChange, withdraw_candidate};

/// Recovery could not be completed; what was done so far stays right, and it can be called again.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pointer.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// One operation that recovery did something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredOp {
    /// Which.
    pub id: OperationId,
    /// In which state it was found.
    pub from: Status,
    /// In which state it is now.
    pub to: Status,
    /// What happened, in words for people.
    pub what: String,
    /// The caller is to run it again: from the frozen copy, or the rollback. If it does not want to, it
    /// applies [`OpEvent::Failed`]; otherwise the operation would stay active.
    pub redo: bool,
    /// The source was written to during the switch that recovery found done: as [`crate::switch::after_switch`], to be
    /// undone if nothing ran on the new session yet, else told.
    pub source_changed: Option<String>,
}

/// What recovery found and did.
#[derive(Debug, Default)]
pub struct Recovery {
    /// What was done, oldest operation first.
    pub operations: Vec<RecoveredOp>,
    /// Files that cannot be read; reported and left alone.
    pub unreadable: Vec<Unreadable>,
    /// What an interrupted `pointer set` had done.
    pub own_change: Option<Recovered>,
}

/// Brings every operation, the pointer and the project folder into agreement again. Safe to interrupt and to repeat.
///
/// | found | becomes |
/// |---|---|
/// | scheduled | pending |
/// | verifying, copy and candidate whole | stays |
/// | running, verifying | running from the frozen copy (`redo`), or failed without a whole one |
/// | activating | activated, failed, or failed with `session_conflict`, as [`Pointer::recover`] says |
/// | activated | stays; an unfinished history line is written |
/// | rollback_scheduled | rolled_back, still to be done (`redo`), or failed with `session_conflict` |
///
/// After that the candidate of every operation that is not activated is taken out of the project folder, if it is
/// unchanged and the pointer does not name it.
///
/// # Errors
/// [`RecoverError`]; call it again when the cause is mended.
pub fn recover(
    guard: &StoreGuard,
    pointer: &Pointer,
    lock: &PointerLock,
    project_dir: &Path,
    at: Timestamp,
) -> Result<Recovery, RecoverError> {
    let Listing { mut operations, unreadable } = guard.list()?;
    operations.reverse();
    let own_change = pointer.recover_own_intent(lock)?;
    let mut recovery = Recovery { operations: Vec::new(), unreadable, own_change };
    let work = Work { guard, pointer, lock, project_dir, at };
    for operation in &mut operations {
        if let Some(done) = work.one(operation)? {
            recovery.operations.push(done);
        }
    }
    Ok(recovery)
}

struct Work<'a> {
    guard: &'a StoreGuard,
    pointer: &'a Pointer,
    lock: &'a PointerLock,
    project_dir: &'a Path,
    at: Timestamp,
}

impl Work<'_> {
    fn one(&self, operation: &mut Operation) -> Result<Option<RecoveredOp>, RecoverError> {
        let from = operation.status();
        let mut done = match operation.state().clone() {
            OpState::Scheduled => {
                self.advance(operation, &OpEvent::StartFailed)?;
                Some("its worker had not begun; it waits again".to_owned())
            }
            // A person may have prepared it and gone to lunch: what is proved stays proved.
            OpState::Verifying { candidate, .. } if self.is_whole(operation, &candidate) => None,
            OpState::Running | OpState::Verifying { .. } => Some(self.redo_or_fail(operation)?),
            OpState::Activating { candidate, intent, .. } => {
                let to = Credential::Pointer { session: Some(candidate.session) };
                let switched = OpEvent::Switched { after: to };
                Some(self.decide(operation, intent.as_ref(), &switched, true)?)
            }
            OpState::RollbackScheduled { activation, back } => {
                let event = OpEvent::OldSessionResumed { after: activation.before, reason: None };
                Some(self.decide(operation, back.as_ref(), &event, false)?)
            }
            OpState::Activated(_)
            | OpState::RollbackPending(_)
            | OpState::RolledBack { .. }
            | OpState::Pending
            | OpState::Failed { .. }
            | OpState::Cancelled => None,
        };
        self.finish(operation)?;
        if let Some(note) = self.withdraw(operation)? {
            done = Some(done.map_or_else(|| note.clone(), |what| format!("{what}; {note}")));
        }
        let Some(what) = done else { return Ok(None) };
        let to = operation.status();
        let redo = matches!(to, Status::Running | Status::RollbackScheduled);
        let source_changed = if (from, to) == (Status::Activating, Status::Activated) {
            source_change(operation)?
        } else {
            None
        };
        Ok(Some(RecoveredOp { id: operation.id, from, to, what, redo, source_changed }))
    }

    fn is_whole(&self, operation: &Operation, candidate: &Candidate) -> bool {
        operation.source.as_ref().is_some_and(crate::switch::FrozenSource::copy_is_whole)
            && digest(&candidate.path).is_ok_and(|found| found.sha256 == candidate.sha256)
    }

    /// Running and verifying: nothing was switched. With a whole frozen copy the work can be done again.
    fn redo_or_fail(&self, operation: &mut Operation) -> Result<String, RecoverError> {
        let Some(source) = operation.source.as_ref().filter(|source| source.copy_is_whole()) else {
            self.fail(
                operation,
                "the process ended before the source was frozen; nothing was switched",
                false,
            )?;
            return Ok("nothing was frozen yet; it has failed, nothing was switched".to_owned());
        };
        // A candidate is written as a new file: what the interrupted run left is in its way.
        let folder = self.guard.artifacts_dir(operation.id);
        let failed = |source| DiskError::io("read the folder", &folder, source);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path != source.copy && !path.is_dir() {
                self.guard.disk().remove(&path)?;
            }
        }
        self.advance(operation, &OpEvent::Redone)?;
        Ok("it begins again from the frozen copy".to_owned())
    }

    /// Intent without result: the pointer tells whether the switch happened.
    fn decide(
        &self,
        operation: &mut Operation,
        intent: Option<&SwapIntent>,
        happened: &OpEvent,
        fails_otherwise: bool,
    ) -> Result<String, RecoverError> {
        let Some(intent) = intent else {
            if !fails_otherwise {
                return Ok("the rollback had not begun; it is still to be done".to_owned());
            }
            let what = "the process ended during the switch, and which session runs now is not known";
            self.fail(operation, what, false)?;
            return Ok(what.to_owned());
        };
        match self.pointer.recover(self.lock, intent)? {
            Recovered::Activated { replaced_by } => {
                self.advance(operation, happened)?;
                let mut what = "the switch had happened; it is noted now".to_owned();
                if let Some(value) = replaced_by {
                    what.push_str(&format!("; since then somebody made {value} current"));
                }
                Ok(what)
            }
            Recovered::NotExchanged if fails_otherwise => {
                let what = "the process ended before the switch; nothing was switched";
                self.fail(operation, what, false)?;
                Ok(what.to_owned())
            }
            Recovered::NotExchanged => Ok("the rollback had not happened; it is still to be done".to_owned()),
            Recovered::Foreign { seen } => {
                let what = format!(
                    "session conflict: the pointer was changed by somebody else (found {}); that is current: find out \
                     who changed it, do not retry",
                    seen.join(", then ")
                );
                self.fail(operation, &what, true)?;
                Ok(what)
            }
        }
    }

    /// Writes the history lines that were not written before the crash, and moves the old inode aside.
    fn finish(&self, operation: &Operation) -> Result<(), RecoverError> {
        let intent = match operation.state() {
            OpState::Activated(activation)
            | OpState::RollbackPending(activation)
            | OpState::RollbackScheduled { activation, .. } => activation.intent.as_ref(),
            OpState::RolledBack { back, .. } => back.as_ref(),
            OpState::Pending
            | OpState::Scheduled
            | OpState::Running
            | OpState::Verifying { .. }
            | OpState::Activating { .. }
            | OpState::Failed { .. }
            | OpState::Cancelled => None,
        };
        if let Some(intent) = intent {
            let by = &operation.requested_by;
            let at = operation.history.last().map_or(operation.updated_at, |step| step.at);
            self.pointer.finish(self.lock, intent, by, Some(operation.id), at)?;
        }
        Ok(())
    }

    /// Takes a stray candidate out of the project folder; the note is none when there was none.
    fn withdraw(&self, operation: &Operation) -> Result<Option<String>, RecoverError> {
        if operation.state().was_activated() {
            return Ok(None);
        }
        let Some(candidate) = operation.state().candidate() else { return Ok(None) };
        let path = crate::switch::transcript_path(self.project_dir, candidate.session);
        if !self.project_dir.is_dir() {
            return Ok(None);
        }
        // A pointer that cannot be read might name it.
        let current = self.pointer.read().ok();
        if current.is_none_or(|value| value == PointerValue::Session(candidate.session)) {
            return Ok(None);
        }
        let was_there = fs::symlink_metadata(&path).is_ok();
        let removed = withdraw_candidate(self.guard.disk(), candidate, self.project_dir)?;
        Ok(match (was_there, removed) {
            (true, true) => Some(format!("its unused candidate {} was removed", path.display())),
            (true, false) => {
                Some(format!("its candidate {} was changed by somebody and is left alone", path.display()))
            }
            (false, _) => None,
        })
    }

    fn fail(&self, operation: &mut Operation, why: &str, session_conflict: bool) -> Result<(), StoreError> {
        self.advance(operation, &OpEvent::Failed { reason: Reason::new(why), session_conflict })
    }

    fn advance(&self, operation: &mut Operation, event: &OpEvent) -> Result<(), StoreError> {
        self.guard.advance(operation, event, self.at)
    }
}

fn source_change(operation: &Operation) -> Result<Option<String>, DiskError> {
    let Some(source) = &operation.source else { return Ok(None) };
    Ok(match source.compare()? {
        SourceChange::None => None,
        SourceChange::Grew { bytes } => {
            Some(format!("{bytes} bytes were appended to {}", source.path.display()))
        }
        SourceChange::Changed(what) => Some(format!("{}: {what}", source.path.display())),
    })
}
