//! The worker: carries one operation from pending to proved, from proved to current, and back.
//!
//! It composes what its neighbours decide: [`crate::rebuild`] plans, writes and proves a candidate,
//! [`crate::switch`] holds the checks and the compare-and-swap, the store keeps the state. Every step is
//! durable before the next one begins; a crash anywhere leaves what [`super::recover`] understands.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::consent::{Consent, ConsentVerdict};
use super::record::{Kind, Operation};
use super::state::{Candidate, OpEvent, OpState};
use super::status::{Reason, Status};
use super::store::{StoreError, StoreGuard};
use crate::clock::Clock;
use crate::disk::Disk;
use crate::ids::SessionId;
use crate::pointer::{Pointer, PointerError, PointerValue};
use crate::rebuild::{self, Evidence, PlanInput, ProofInput, RebuildSettings};
use crate::switch::{
    Adapter, AfterSwitch, Credential, FrozenSource, LiveProcesses, NewerTranscripts, PointerSwitch,
    ProcessSwitch, SessionProcess, SwitchCheck, SwitchError, Warning, after_switch, place_candidate,
    preconditions, transcript_path, wait_until_quiet, withdraw_candidate,
};
use crate::transcript::{ExtractRules, OwnRows};

/// How long the undoing of a switch may be left over by a crash and still be done by itself.
const UNDO_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What the worker works with.
pub struct Worker<'a> {
    /// Held `coordinator.lock`.
    pub guard: &'a StoreGuard,
    /// The storage layer.
    pub disk: &'a Disk,
    /// The pointer.
    pub pointer: &'a Pointer,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// The folder of the transcripts.
    pub project_dir: &'a Path,
    /// The argv that resumes a session, `{session_id}` in it.
    pub resume_command: &'a [String],
    /// How a rebuild is made.
    pub settings: &'a RebuildSettings,
    /// What is speech.
    pub rules: &'a ExtractRules,
    /// Which rows the inbox sent.
    pub own: &'a OwnRows,
    /// What was said through inbox and outbox.
    pub evidence: &'a Evidence,
    /// Who runs a session.
    pub live: &'a dyn LiveProcesses,
    /// Sessions of ours that may be newer than the source.
    pub allowed_newer: &'a HashSet<SessionId>,
    /// Pane or unit in which a long-lived `claude` is switched; none where the pointer is all there is to switch.
    pub process: Option<&'a dyn SessionProcess>,
    /// How long a new process must stay to count as healthy.
    pub health: Duration,
    /// What another transcript that became newer than the source means.
    pub newer: NewerTranscripts,
    /// Where the writer is not known to have exited: how long the source must be still, and the most to wait.
    pub quiet: Option<(Duration, Duration)>,
}

/// What a repair is to do.
#[derive(Debug)]
pub struct Repair<'a> {
    /// What is kept.
    pub cut: rebuild::RepairCut,
    /// What the model is told in place of a missing result.
    pub unknown_result: &'a str,
    /// The uuid of the row that the message's chain begins with, to be found again by the first turn.
    pub root: Option<String>,
}

/// The worker could not go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The operation's file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Whether the switch happened is not known; recovery decides at the next start.
    #[error(
        "operation {id} was interrupted while it switched; the next command or runner finds out what happened"
    )]
    Interrupted {
        /// Which.
        id: crate::ids::OperationId,
        /// What interrupted it.
        source: SwitchError,
    },
    /// Nobody has said yes to what would be dropped.
    #[error("operation {id} is {verdict}; nothing was switched")]
    NoConsent {
        /// Which.
        id: crate::ids::OperationId,
        /// What is missing.
        verdict: ConsentVerdict,
    },
    /// The conversation has gone on in the new session; going back would lose that.
    #[error(
        "session {session} has gone on since it was made current: going back would leave those words behind, so nothing \
         was changed; `kael-runner rollback-request --carry-new-turns --confirm ROLLBACK` takes them along, and if they may \
         be left, `kael-runner pointer set {before}` goes back without them"
    )]
    GoneOn {
        /// The session.
        session: SessionId,
        /// The one before.
        before: SessionId,
    },
}

/// Why a step failed, and whether somebody else is behind it.
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) session_conflict: bool,
}

impl Failure {
    pub(super) fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), session_conflict: false }
    }

    fn conflict(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), session_conflict: true }
    }
}

/// An error of a step, with its causes.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::because(crate::error_chain(&error))
    }
}

impl Worker<'_> {
    /// Freezes, plans, builds and proves. Afterwards the operation is `verifying`, or `failed` with the
    /// reason; an error is only what could not be noted.
    ///
    /// # Errors
    /// [`WorkerError::Store`].
    pub fn prepare(&self, operation: &mut Operation) -> Result<(), WorkerError> {
        if operation.status() == Status::Pending {
            self.advance(operation, &OpEvent::Scheduled)?;
        }
        if operation.status() == Status::Scheduled {
            self.advance(operation, &OpEvent::Started)?;
        }
        match self.build(operation) {
            Ok((candidate, credential)) => {
                self.advance(operation, &OpEvent::Proved { candidate, credential })?;
            }
            Err(failure) => self.fail(operation, &failure)?,
        }
        Ok(())
    }

    /// The same for a repair: a copy with every row kept but a failed tail.
    ///
    /// # Errors
    /// [`WorkerError::Store`].
    pub fn prepare_repair(&self, operation: &mut Operation, wish: &Repair<'_>) -> Result<(), WorkerError> {
        self.advance(operation, &OpEvent::Scheduled)?;
        self.advance(operation, &OpEvent::Started)?;
        match self.build_repair(operation, wish) {
            Ok((candidate, credential)) => {
                self.advance(operation, &OpEvent::Proved { candidate, credential })?;
            }
            Err(failure) => self.fail(operation, &failure)?,
        }
        Ok(())
    }

    fn build_repair(
        &self,
        operation: &mut Operation,
        wish: &Repair<'_>,
    ) -> Result<(Candidate, Credential), Failure> {
        let PointerValue::Session(session) = self.pointer.read()? else {
            return Err(Failure::because("there is no session yet: nothing to repair"));
        };
        let source = self.freeze(operation, session)?;
        let copy = source.copy.clone();
        operation.source = Some(source);
        let new_session = SessionId::generate();
        let input = rebuild::RepairInput {
            source: &copy,
            session,
            new_session,
            operation: operation.id,
            cut: wish.cut,
            unknown_result: wish.unknown_result,
        };
        let path = self.guard.artifact(operation.id, new_session);
        let written = rebuild::write_repair(self.disk, &input, &path)?;
        rebuild::prove_repair(&input, &path, &written)?;
        operation.verification = Some(json!({
            "proof": { "rows_kept": written.kept, "bytes_left_out": written.left_out, "rows_added": written.added },
            "root": wish.root,
        }));
        let new_id = new_session.to_string();
        operation.command =
            self.resume_command.iter().map(|part| part.replace("{session_id}", &new_id)).collect();
        let candidate = Candidate { session: new_session, path, sha256: written.sha256, len: written.len };
        Ok((candidate, PointerValue::Session(session).into()))
    }

    fn build(&self, operation: &mut Operation) -> Result<(Candidate, Credential), Failure> {
        let session = match self.pointer.read()? {
            PointerValue::Session(session) => session,
            PointerValue::Absent => {
                return Err(Failure::because("there is no session yet: nothing to rebuild"));
            }
        };
        let source = match operation
            .source
            .take()
            .filter(|source| source.session == session && source.copy_is_whole())
        {
            Some(source) => source,
            None => self.freeze(operation, session)?,
        };
        let copy = source.copy.clone();
        operation.source = Some(source);
        if operation.kind == Kind::Return {
            let candidate = self.build_way_back(operation, session)?;
            return Ok((candidate, self.credential(session)?));
        }
        let new_session = SessionId::generate();
        let plan = rebuild::plan(&PlanInput {
            source: &copy,
            source_session: session,
            new_session,
            operation: Some(operation.id),
            settings: self.settings,
            rules: self.rules,
            own: self.own,
            accept_damage: None,
        })?;
        operation.plan_digest = Some(plan.digest());
        operation.dirty_at_prepare = Some(plan.ledger.to_json(&copy, 0, &[]));
        operation.stats = Some(json!(plan.stats));
        let digest = plan.digest();
        let given = matches!(operation.consent_for(&digest, self.clock.now()), ConsentVerdict::Given { .. });
        // A human who was shown what speaks against this very plan may have said yes in spite of it.
        let in_spite = given && operation.yes().is_some_and(|yes| yes.in_spite);
        let blocked = plan.blocked_record(in_spite);
        if !blocked.is_empty() {
            return Err(Failure::because(blocked));
        }
        let path = self.guard.artifact(operation.id, new_session);
        let written = rebuild::write_candidate(self.disk, &plan, &copy, &path)?;
        let proof = rebuild::prove(&ProofInput {
            plan: &plan,
            source: &copy,
            candidate: &path,
            candidate_file: &written,
            evidence: self.evidence,
        })?;
        operation.manifest = Some(json!(written.manifest));
        operation.verification = Some(json!({
            "proof": proof,
            "root": written.root_uuid,
            "estimated_tokens": plan.gain.estimated_after,
            "overhead_tokens": plan.gain.overhead_tokens,
            "speech_tokens": plan.gain.speech_tokens,
            "calibration": plan.calibration,
            "pairs": plan.pairs,
        }));
        let new_id = new_session.to_string();
        operation.command =
            self.resume_command.iter().map(|part| part.replace("{session_id}", &new_id)).collect();
        let candidate = Candidate { session: new_session, path, sha256: written.sha256, len: written.len };
        Ok((candidate, self.credential(session)?))
    }

    /// What is compared at the switch: of a process where one is switched, else of the pointer.
    fn credential(&self, session: SessionId) -> Result<Credential, Failure> {
        Ok(match self.process {
            Some(process) => process.credential()?,
            None => PointerValue::Session(session).into(),
        })
    }

    fn freeze(&self, operation: &Operation, session: SessionId) -> Result<FrozenSource, Failure> {
        let live = transcript_path(self.project_dir, session);
        if let Some((stable, timeout)) = self.quiet {
            wait_until_quiet(&live, stable, timeout)?;
        }
        self.guard.make_artifacts_dir(operation.id)?;
        let copy = self.guard.artifact(operation.id, session);
        Ok(FrozenSource::freeze(self.disk, session, &live, &copy, self.clock.now())?)
    }

    /// Makes the proved candidate current. Afterwards the operation is `activated`, `failed` or, where a failed switch
    /// was undone, `rolled_back`.
    ///
    /// # Errors
    /// [`WorkerError::NoConsent`] leaves it `verifying`; [`WorkerError::Interrupted`] leaves it to recovery.
    pub fn activate(&self, operation: &mut Operation) -> Result<Vec<Warning>, WorkerError> {
        let OpState::Verifying { candidate, credential } = operation.state().clone() else {
            self.advance(operation, &OpEvent::ChecksHeld { intent: None })?;
            return Ok(Vec::new());
        };
        let digest = operation.plan_digest.clone().unwrap_or_default();
        let verdict = operation.consent_for(&digest, self.clock.now());
        if !matches!(verdict, ConsentVerdict::Given { .. }) {
            return Err(WorkerError::NoConsent { id: operation.id, verdict });
        }
        let Some(source) = operation.source.clone() else {
            self.fail(operation, &Failure::because("its file does not say what was frozen"))?;
            return Ok(Vec::new());
        };
        let mut adapter = match self.adapter(source.session, Some(&source), &operation.requested_by) {
            Ok(adapter) => adapter,
            Err(error) => {
                self.fail(operation, &error.into())?;
                return Ok(Vec::new());
            }
        };
        let adapter = adapter.as_mut();
        let check = SwitchCheck {
            source: &source,
            candidate: &candidate,
            credential,
            project_dir: self.project_dir,
            allowed_newer: self.allowed_newer,
            newer: self.newer,
            live: self.live,
            writer_lives: self.process.is_some(),
        };
        let warnings = match preconditions(&check, adapter) {
            Ok(warnings) => warnings,
            Err(failure) => {
                let session_conflict = failure.session_conflict();
                self.fail(operation, &Failure { reason: crate::error_chain(&failure), session_conflict })?;
                return Ok(Vec::new());
            }
        };
        let switched = adapter.switch(credential, candidate.session, &mut |intent| {
            let first = operation.status() == Status::Verifying;
            self.guard.advance(
                operation,
                &OpEvent::ChecksHeld { intent: intent.cloned() },
                self.clock.now(),
            )?;
            if first {
                place_candidate(self.disk, &candidate, self.project_dir)?;
            }
            Ok(())
        });
        let after = match switched {
            Ok(after) => after,
            // Nothing was touched: the intent could not be noted, or the candidate not be given its name.
            Err(error)
                if operation.status() == Status::Verifying
                    || matches!(error, SwitchError::Pointer(PointerError::Intent { .. })) =>
            {
                let session_conflict = error.is_conflict();
                self.fail(operation, &Failure { reason: crate::error_chain(&error), session_conflict })?;
                drop(withdraw_candidate(self.disk, &candidate, self.project_dir));
                return Ok(warnings);
            }
            Err(SwitchError::WentBack { reason, after, conflict: false }) => {
                let reason = Some(Reason::new(&reason));
                self.advance(operation, &OpEvent::OldSessionResumed { after, reason })?;
                drop(withdraw_candidate(self.disk, &candidate, self.project_dir));
                return Ok(warnings);
            }
            Err(error @ SwitchError::Stranded { conflict: false, .. }) => {
                self.fail(operation, &error.into())?;
                drop(withdraw_candidate(self.disk, &candidate, self.project_dir));
                return Ok(warnings);
            }
            Err(error) if error.is_conflict() => {
                self.fail(operation, &Failure::conflict(crate::error_chain(&error)))?;
                // A stray candidate is swept by recovery, too; that it stays for now is no reason to fail twice.
                drop(withdraw_candidate(self.disk, &candidate, self.project_dir));
                return Ok(warnings);
            }
            Err(source) => return Err(WorkerError::Interrupted { id: operation.id, source }),
        };
        let placed = transcript_path(self.project_dir, candidate.session);
        let seen = after_switch(&source, &candidate, &placed, self.process.is_some());
        self.advance(operation, &OpEvent::Switched { after })?;
        self.settle(adapter, operation)?;
        if let Ok(AfterSwitch::SourceChanged { change, can_undo }) = seen {
            let reason = format!("the old session was written to during the switch ({change})");
            if can_undo {
                match self.process {
                    None => self.go_back(operation, adapter, Some(&reason))?,
                    Some(_) => {
                        let back = self.adapter(candidate.session, None, &operation.requested_by);
                        let mut back =
                            back.map_err(|source| WorkerError::Interrupted { id: operation.id, source })?;
                        self.go_back(operation, back.as_mut(), Some(&reason))?;
                    }
                }
            } else {
                operation.reasons.push(Reason::new(&reason));
                self.guard.save(operation)?;
            }
        }
        Ok(warnings)
    }

    /// Goes back to the session before, where that was asked for and agreed to. Afterwards the operation is `rolled_back`
    /// or `failed`.
    ///
    /// # Errors
    /// [`WorkerError::NoConsent`] changes nothing; [`WorkerError::GoneOn`] changes nothing but the wish, which is taken back.
    pub fn roll_back(&self, operation: &mut Operation) -> Result<(), WorkerError> {
        let before = operation.source.as_ref().map(|source| source.session);
        let candidate = operation.state().candidate().map(|candidate| candidate.session);
        let Some(now) = candidate.or(before) else {
            return Ok(self.fail(operation, &Failure::because("its file does not say what was switched"))?);
        };
        let mut adapter = match self.adapter(now, None, &operation.requested_by) {
            Ok(adapter) => adapter,
            Err(error) => {
                self.fail(operation, &error.into())?;
                return Ok(());
            }
        };
        self.go_back(operation, adapter.as_mut(), None)
    }

    /// The way of switching, from the session that is current now.
    pub(super) fn adapter<'b>(
        &'b self,
        before: SessionId,
        source: Option<&'b FrozenSource>,
        by: &str,
    ) -> Result<Box<dyn Adapter + 'b>, SwitchError> {
        Ok(match self.process {
            Some(process) => Box::new(self.process_switch(process, before, source, by)),
            None => Box::new(PointerSwitch::locked(self.pointer, self.disk)?),
        })
    }

    pub(super) fn process_switch<'b>(
        &'b self,
        process: &'b dyn SessionProcess,
        before: SessionId,
        source: Option<&'b FrozenSource>,
        by: &str,
    ) -> ProcessSwitch<'b> {
        ProcessSwitch {
            process,
            pointer: self.pointer,
            project_dir: self.project_dir,
            before,
            source,
            health: self.health,
            by: by.to_owned(),
            at: self.clock.now(),
        }
    }

    fn go_back(
        &self,
        operation: &mut Operation,
        adapter: &mut dyn Adapter,
        unasked: Option<&str>,
    ) -> Result<(), WorkerError> {
        if let (Status::Activated, Some(reason)) = (operation.status(), unasked) {
            let now = self.clock.now();
            let yes = Consent::without_plan("the check after the switch", now, UNDO_LIFETIME);
            *operation = self.guard.request_rollback(operation.id, reason, Some(yes), now)?;
        }
        if let OpState::RollbackPending(activation) = operation.state().clone() {
            let verdict = operation.rollback_verdict(self.clock.now());
            if !matches!(verdict, ConsentVerdict::Given { .. }) {
                return Err(WorkerError::NoConsent { id: operation.id, verdict });
            }
            let placed = transcript_path(self.project_dir, activation.candidate.session);
            let untouched = untouched(&placed, &activation.candidate, self.process.is_some());
            if let (false, Some(before)) = (untouched, session_before(operation, activation.before)) {
                self.advance(operation, &OpEvent::Cancelled)?;
                return Err(WorkerError::GoneOn { session: activation.candidate.session, before });
            }
            self.advance(operation, &OpEvent::Scheduled)?;
        }
        let OpState::RollbackScheduled { activation, .. } = operation.state().clone() else {
            self.advance(operation, &OpEvent::Scheduled)?;
            return Ok(());
        };
        let Some(before) = session_before(operation, activation.before) else {
            return Ok(
                self.fail(operation, &Failure::because("its file does not say which session was before"))?
            );
        };
        let transcript = transcript_path(self.project_dir, before);
        if !transcript.is_file() {
            let reason =
                format!("the old session's transcript {} is not there any more", transcript.display());
            return Ok(self.fail(operation, &Failure::because(reason))?);
        }
        for session in [before, activation.candidate.session] {
            if let Some(holder) = self.live.holder(session) {
                let reason = format!("{holder} holds session {session}; end it first");
                return Ok(self.fail(operation, &Failure::conflict(reason))?);
            }
        }
        let current = match self.process {
            None => activation.after,
            // A human may have started claude anew since; what counts is that it is on the session to be left.
            Some(_) => match adapter
                .healthy(activation.candidate.session)
                .and_then(|on_it| Ok((on_it, adapter.credential()?)))
            {
                Ok((true, current)) => current,
                Ok((false, current)) => {
                    let reason = format!(
                        "{current} is not on session {}: nothing was switched",
                        activation.candidate.session
                    );
                    return Ok(self.fail(operation, &Failure::conflict(reason))?);
                }
                Err(error) => return Ok(self.fail(operation, &error.into())?),
            },
        };
        let switched = adapter.switch(current, before, &mut |intent| {
            Ok(self.guard.advance(
                operation,
                &OpEvent::ChecksHeld { intent: intent.cloned() },
                self.clock.now(),
            )?)
        });
        match switched {
            Ok(after) => {
                self.advance(
                    operation,
                    &OpEvent::OldSessionResumed { after, reason: unasked.map(Reason::new) },
                )?;
                self.settle(adapter, operation)
            }
            Err(SwitchError::WentBack { reason, conflict, .. }) => {
                let reason =
                    format!("the session before was not resumed, and the rebuilt one runs on: {reason}");
                Ok(self.fail(operation, &Failure { reason, session_conflict: conflict })?)
            }
            Err(error @ SwitchError::Stranded { conflict: false, .. }) => {
                Ok(self.fail(operation, &error.into())?)
            }
            Err(error) if error.is_conflict() => {
                Ok(self.fail(operation, &Failure::conflict(crate::error_chain(&error)))?)
            }
            Err(source) => Err(WorkerError::Interrupted { id: operation.id, source }),
        }
    }

    fn settle(&self, adapter: &mut dyn Adapter, operation: &Operation) -> Result<(), WorkerError> {
        let intent = match operation.state() {
            OpState::Activated(activation) => activation.intent.as_ref(),
            OpState::RolledBack { back, .. } => back.as_ref(),
            OpState::Pending
            | OpState::Scheduled
            | OpState::Running
            | OpState::Verifying { .. }
            | OpState::Activating { .. }
            | OpState::RollbackPending(_)
            | OpState::RollbackScheduled { .. }
            | OpState::Failed { .. }
            | OpState::Cancelled => None,
        };
        adapter
            .settle(intent, &operation.requested_by, operation.id, operation.updated_at)
            .map_err(|source| WorkerError::Interrupted { id: operation.id, source })
    }

    pub(super) fn advance(&self, operation: &mut Operation, event: &OpEvent) -> Result<(), StoreError> {
        self.guard.advance(operation, event, self.clock.now())
    }

    pub(super) fn fail(&self, operation: &mut Operation, failure: &Failure) -> Result<(), StoreError> {
        let reason = Reason::new(&failure.reason);
        self.advance(operation, &OpEvent::Failed { reason, session_conflict: failure.session_conflict })
    }
}

/// The session that was current before: the pointer says so, or what was frozen.
fn session_before(operation: &Operation, before: Credential) -> Option<SessionId> {
    match before {
        Credential::Pointer { session } => session,
        Credential::Tmux { .. } | Credential::Systemd { .. } => Some(operation.source.as_ref()?.session),
    }
}

/// Whether nothing was said in the new session. A CLI that lives there may have made its notes.
fn untouched(placed: &Path, candidate: &Candidate, writer_lives: bool) -> bool {
    let unchanged = crate::disk::digest(placed).is_ok_and(|found| found.sha256 == candidate.sha256);
    unchanged
        || (writer_lives
            && crate::switch::only_bookkeeping_follows(placed, candidate.len, &candidate.sha256)
                .is_ok_and(|followed| followed.is_ok()))
}
