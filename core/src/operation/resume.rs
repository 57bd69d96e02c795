//! What an interrupted switch of a pane or unit left: brought to an end, so that a session runs again.

use super::record::Operation;
use super::state::{OpEvent, OpState};
use super::status::Reason;
use super::worker::{Failure, Worker, WorkerError};
use crate::ids::SessionId;
use crate::pointer::{Recovered, SwapIntent};
use crate::switch::{ProcessSwitch, SessionProcess, SwitchError, withdraw_candidate};

/// Said where a worker was killed between ending the old process and starting a new one.
const ENDED: &str = "the process that switched ended in the middle";

impl Worker<'_> {
    /// Finishes the switch of a pane or unit that was interrupted: on the new session if the pointer says so and it
    /// runs well, else on the old one. Gives what happened, in words; none when the operation was not in a switch, or
    /// has no process. To be called before [`super::recover`], which knows nothing of processes.
    ///
    /// # Errors
    /// [`WorkerError`]; it can be called again.
    pub fn resolve(&self, operation: &mut Operation) -> Result<Option<String>, WorkerError> {
        let Some(process) = self.process else { return Ok(None) };
        match operation.state().clone() {
            OpState::Activating { candidate, credential, intent } if credential.claude().is_some() => {
                let Some(before) = operation.source.as_ref().map(|source| source.session) else {
                    return Ok(None);
                };
                let by = operation.requested_by.clone();
                let switch = self.process_switch(process, before, None, &by);
                let what = self.end_switch(operation, &switch, candidate.session, intent.as_ref())?;
                process.restore();
                if !operation.state().was_activated() {
                    drop(withdraw_candidate(self.disk, &candidate, self.project_dir));
                }
                Ok(Some(what))
            }
            OpState::RollbackScheduled { activation, .. } if activation.before.claude().is_some() => {
                let Some(before) = operation.source.as_ref().map(|source| source.session) else {
                    return Ok(None);
                };
                let by = operation.requested_by.clone();
                let switch = self.process_switch(process, before, None, &by);
                Ok(Some(self.end_rollback(operation, &switch, process)?))
            }
            _ => Ok(None),
        }
    }

    fn end_switch(
        &self,
        operation: &mut Operation,
        switch: &ProcessSwitch<'_>,
        new: SessionId,
        intent: Option<&SwapIntent>,
    ) -> Result<String, WorkerError> {
        let id = operation.id;
        let failed = |source: SwitchError| WorkerError::Interrupted { id, source };
        let swapped = match intent {
            None => Recovered::NotExchanged,
            Some(intent) => {
                let lock = self.pointer.lock().map_err(|error| failed(error.into()))?;
                self.pointer.recover(&lock, intent).map_err(|error| failed(error.into()))?
            }
        };
        let reason = match swapped {
            Recovered::Activated { replaced_by: None } => match switch.run(new) {
                Ok(after) => {
                    self.advance(operation, &OpEvent::Switched { after })?;
                    if let Some(intent) = intent {
                        let lock = self.pointer.lock().map_err(|error| failed(error.into()))?;
                        let (by, at) = (&operation.requested_by, operation.updated_at);
                        self.pointer
                            .finish(&lock, intent, by, Some(id), at)
                            .map_err(|error| failed(error.into()))?;
                    }
                    return Ok(format!("{ENDED}; it is finished now: session {new} runs"));
                }
                Err(why) => format!("{ENDED}, and the new session does not run: {why}"),
            },
            Recovered::Activated { .. } | Recovered::NotExchanged => ENDED.to_owned(),
            Recovered::Foreign { seen } => {
                let seen = seen.join(", then ");
                let reason = format!(
                    "session conflict: the pointer was changed by somebody else (found {seen}); find out who changed it, \
                     do not retry"
                );
                let then = switch.resume_old(new);
                self.fail(operation, &Failure { reason: reason.clone(), session_conflict: true })?;
                return Ok(match then {
                    Ok(_) => reason,
                    Err((why, _)) => format!("{reason}; and nothing runs: {why}"),
                });
            }
        };
        match switch.resume_old(new) {
            Ok(after) => {
                let why = Some(Reason::new(&reason));
                self.advance(operation, &OpEvent::OldSessionResumed { after, reason: why })?;
                Ok(format!("{reason}; the old session runs"))
            }
            Err((then, session_conflict)) => {
                let reason = format!("{reason}; and the old session did not start again: {then}");
                self.fail(operation, &Failure { reason: reason.clone(), session_conflict })?;
                Ok(reason)
            }
        }
    }

    /// A rollback that had not begun is left to be done; one that had ended the process is finished.
    fn end_rollback(
        &self,
        operation: &mut Operation,
        switch: &ProcessSwitch<'_>,
        process: &dyn SessionProcess,
    ) -> Result<String, WorkerError> {
        if matches!(process.claude(), Ok(Some(_))) && !self.points_to(switch.before) {
            return Ok("the rollback had not begun; it is still to be done".to_owned());
        }
        let Some(new) = operation.state().candidate().map(|candidate| candidate.session) else {
            return Ok(ENDED.to_owned());
        };
        let what = match switch.resume_old(new) {
            Ok(after) => {
                self.advance(operation, &OpEvent::OldSessionResumed { after, reason: None })?;
                format!("{ENDED} of a rollback; the old session runs")
            }
            Err((then, session_conflict)) => {
                let reason = format!("{ENDED} of a rollback, and the old session did not start: {then}");
                self.fail(operation, &Failure { reason: reason.clone(), session_conflict })?;
                reason
            }
        };
        process.restore();
        Ok(what)
    }

    fn points_to(&self, session: SessionId) -> bool {
        self.pointer.read().is_ok_and(|value| value.session() == Some(session))
    }
}
