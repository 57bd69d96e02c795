//! Operations, as the lock holder runs them: consent, the worker, recovery.

use std::time::{Duration, Instant};

use kael_core::clock::Timestamp;
use kael_core::config;
use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::{
    self, Consent, ConsentVerdict, Kind, NewOperation, OpEvent, OpState, Operation, Requested, Status,
    StoreError, StoreGuard, Worker, WorkerError,
};
use kael_core::pointer::PointerValue;
use kael_core::rebuild::{self, Evidence, Plan, PlanInput, RebuildSettings};
use kael_core::switch::{LiveProcesses, NewerTranscripts};
use kael_core::transcript::receipt::After;

use crate::claude::live;
use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;
use crate::facts;
use crate::settings::{Kept, extract_rules, rebuild_settings};
use crate::setup;

use super::Keeper;

impl Keeper {
    /// The operation that waits for a yes or for its turn.
    pub(super) fn pending_operation(&self) -> Result<Option<Operation>, CliError> {
        let active = self.store.active()?;
        Ok(active.filter(|op| {
            matches!(op.status(), Status::Pending | Status::Verifying | Status::RollbackPending)
        }))
    }

    /// When the question to a human runs out.
    pub(super) fn expiry(&self, operation: &Operation) -> Timestamp {
        operation.waits_since().after(self.companion.config.runner.ask_expires)
    }

    /// Whether somebody has said yes to what the operation waits for. A model's word counts only while the human lets
    /// it count.
    pub(super) fn agreed(&self, operation: &Operation) -> bool {
        let word_counts = self.companion.config.runner.consent == config::Consent::Word;
        operation.yes().is_some_and(|yes| !yes.by_word || word_counts)
    }

    /// The question to the human about an operation that others have registered (a model, by its tools), once: who
    /// wants what, the figures, and how to answer.
    pub fn new_question(&mut self) -> Result<Vec<String>, CliError> {
        let pending = self.pending_operation()?.filter(|operation| !self.agreed(operation));
        let Some(operation) = pending else { return Ok(Vec::new()) };
        let asking = Some((operation.id, operation.status()));
        if self.asked == asking {
            return Ok(Vec::new());
        }
        self.asked = asking;
        let id = operation.id;
        let mut lines = vec![question_line(&operation)];
        if operation.status() == Status::Pending && operation.kind != Kind::Return {
            match self.plan_now(Some(id)) {
                Ok(plan) => {
                    lines.extend(super::figures(&plan));
                    let blocked = plan.blocked_reason();
                    if !blocked.is_empty() {
                        lines.push(format!("it is not possible now: {blocked}"));
                    }
                }
                Err(error) => lines.push(format!("it cannot be planned now: {}", error.message)),
            }
        }
        lines.push(format!(
            "`kael-runner confirm` says yes, `kael-runner cancel --confirm CANCEL` says no ({id})"
        ));
        Ok(lines)
    }

    /// Withdraws a question that nobody has answered in time.
    pub fn expire_question(&mut self) -> Result<(), CliError> {
        let Some(operation) = self.pending_operation()? else { return Ok(()) };
        self.store.lock()?.cancel(operation.id, self.now())?;
        tracing::info!(operation = %operation.id, "nobody answered within ask_expires: the question is withdrawn");
        self.remember_told();
        Ok(())
    }

    /// The plan of the session that is current now.
    pub fn plan_now(&self, operation: Option<OperationId>) -> Result<Plan, CliError> {
        let session = self.current_session()?;
        let config = &self.companion.config;
        Ok(rebuild::plan(&PlanInput {
            source: &self.companion.transcript(session),
            source_session: session,
            new_session: SessionId::generate(),
            operation,
            settings: &self.rebuild_settings()?,
            rules: &extract_rules(config, &Kept::of(&self.queue)?.decided),
            own: &facts::own_rows(&self.queue)?,
            accept_damage: None,
        })?)
    }

    /// How a transcript is read where nothing may be left out.
    pub(crate) fn unlimited_settings(&self) -> Result<RebuildSettings, CliError> {
        Ok(self.rebuild_settings()?.without_limits())
    }

    fn rebuild_settings(&self) -> Result<RebuildSettings, CliError> {
        let mut settings = rebuild_settings(&self.companion.config, &Kept::of(&self.queue)?);
        if self.mends_open_turn()? {
            // What frees little is worth it when nothing else lets the conversation go on.
            settings.min_gain_percent = 0;
        }
        Ok(settings)
    }

    pub(super) fn current_session(&self) -> Result<SessionId, CliError> {
        match self.companion.pointer.read()? {
            PointerValue::Session(session) => Ok(session),
            PointerValue::Absent => {
                Err(CliError::refused("there is no session yet: nothing was said that could be rebuilt"))
            }
        }
    }

    /// Registers a rebuild. `by` is who asks; a policy is refused after a session conflict.
    pub fn request(&mut self, reason: &str, by: &str, by_policy: bool) -> Result<Operation, CliError> {
        self.current_session()?;
        let reason = if reason.trim().is_empty() { "asked for without a reason" } else { reason };
        let wish = NewOperation {
            kind: Kind::Rebuild,
            reason: reason.into(),
            requested_by: by.to_owned(),
            by_policy,
        };
        let requested = self.store.lock()?.request(wish, self.now())?;
        if let Requested::Created(operation) = &requested {
            tracing::info!(operation = %operation.id, by, "a rebuild is asked for");
        }
        Ok(requested.into_operation())
    }

    /// Records a yes to the plan as it is now, or to a rollback that waits for one. `shown`: the digest of the plan that
    /// the human saw, if one was shown. `in_spite`: a human who was shown what speaks against it.
    pub fn confirm(
        &mut self,
        id: OperationId,
        by: &str,
        shown: Option<&str>,
        in_spite: bool,
    ) -> Result<Operation, CliError> {
        let lifetime = self.companion.config.runner.ask_expires;
        let operation = self.store.load(id)?;
        if operation.status() == Status::RollbackPending {
            let yes = Consent::without_plan(by, self.now(), lifetime);
            return Ok(self.store.lock()?.agree(id, yes, self.now())?);
        }
        if operation.kind == Kind::Return {
            let yes = Consent::without_plan(by, self.now(), lifetime);
            return Ok(self.store.lock()?.agree(id, yes, self.now())?);
        }
        // A prepared operation has its plan on record, made from the frozen copy.
        let digest = match (operation.status(), operation.plan_digest) {
            (Status::Verifying, Some(digest)) => digest,
            _ => self.plan_now(Some(id))?.digest(),
        };
        if shown.is_some_and(|shown| shown != digest) {
            return Err(CliError::new(
                ErrorKind::Conflict,
                "the conversation has gone on since the plan was shown: look at the present one and confirm again",
            ));
        }
        let yes = Consent::new(&digest, by, self.now(), lifetime);
        let yes = if in_spite { yes.in_spite() } else { yes };
        Ok(self.store.lock()?.agree(id, yes, self.now())?)
    }

    /// Runs a confirmed operation to its end and says in one line what came of it.
    pub fn operate(&mut self, id: OperationId) -> Result<String, CliError> {
        let line = self.carry_out(id)?;
        self.tidy();
        Ok(line)
    }

    fn carry_out(&mut self, id: OperationId) -> Result<String, CliError> {
        let mut operation = self.store.load(id)?;
        if operation.status() == Status::RollbackPending {
            return self.operate_rollback(&operation);
        }
        if operation.status() != Status::Verifying {
            operation = self.prepare(id)?;
        }
        if operation.status() != Status::Verifying {
            self.remember_told();
            return Ok(outcome_line(&operation));
        }
        std::thread::sleep(self.pause_before_switch);
        match self.activate(id) {
            Ok(operation) => Ok(outcome_line(&operation)),
            Err(error) if error.kind == ErrorKind::Refused => {
                // The yes was for another plan, or is too old: nothing may stay active without one.
                let failed =
                    OpEvent::Failed { reason: error.message.as_str().into(), session_conflict: false };
                self.store.lock()?.advance(&mut self.store.load(id)?, &failed, self.now())?;
                Ok(error.message)
            }
            Err(error) => Err(error),
        }
    }

    fn operate_rollback(&mut self, operation: &Operation) -> Result<String, CliError> {
        let verdict = operation.rollback_verdict(self.now());
        if !matches!(verdict, ConsentVerdict::Given { .. }) {
            // Without this it would be tried again and again.
            self.store.lock()?.cancel(operation.id, self.now())?;
            return Ok(format!("the rollback is {verdict}; nothing was switched"));
        }
        match self.finish_rollback(operation.clone()) {
            Ok(operation) => Ok(outcome_line(&operation)),
            Err(error) => {
                if self.store.load(operation.id)?.status() == Status::RollbackPending {
                    self.store.lock()?.cancel(operation.id, self.now())?;
                }
                Ok(error.message)
            }
        }
    }

    /// Freezes, plans, builds and proves.
    pub fn prepare(&mut self, id: OperationId) -> Result<Operation, CliError> {
        let mut operation = self.store.load(id)?;
        self.refuse_over_open_turn()?;
        self.with_worker(|worker| Ok(worker.prepare(&mut operation)?))?;
        Ok(operation)
    }

    /// Makes the proved candidate current.
    pub fn activate(&mut self, id: OperationId) -> Result<Operation, CliError> {
        self.refuse_over_open_turn()?;
        self.activate_proved(id)
    }

    /// The same where it is known that the open turn loses nothing by it.
    pub(super) fn activate_proved(&mut self, id: OperationId) -> Result<Operation, CliError> {
        let mut operation = self.store.load(id)?;
        let switched =
            self.holding(id, |keeper| keeper.with_worker(|worker| Ok(worker.activate(&mut operation))))?;
        match switched {
            Ok(warnings) => warnings.iter().for_each(|warning| tracing::warn!("{warning}")),
            Err(error @ WorkerError::Interrupted { .. }) => {
                tracing::warn!("{}", kael_core::error_chain(&error));
                self.recover_pointer_and_operations()?;
                operation = self.store.load(id)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.after_switch(&operation)?;
        Ok(operation)
    }

    /// Goes back to the session before the newest activated operation, or before `id`, because `by` says so.
    pub fn roll_back(&mut self, id: OperationId, by: &str) -> Result<Operation, CliError> {
        let operation = self.store.load(id)?;
        self.refuse_over_open_turn()?;
        let yes = Consent::without_plan(by, self.now(), self.companion.config.runner.ask_expires);
        let operation = match operation.status() {
            Status::Activated => {
                let reason = format!("a rollback is asked for by {by}");
                self.store.lock()?.request_rollback(id, &reason, Some(yes), self.now())?
            }
            Status::RollbackPending => self.store.lock()?.agree(id, yes, self.now())?,
            Status::Pending
            | Status::Scheduled
            | Status::Running
            | Status::Verifying
            | Status::Activating
            | Status::RollbackScheduled
            | Status::RolledBack
            | Status::Failed
            | Status::Cancelled => operation,
        };
        self.finish_rollback(operation)
    }

    /// Goes back to the session before the newest rebuild and takes along what has been said since: an operation of its
    /// own, begun and ended here. Where nothing has been said since, plainly.
    pub fn carry_back(&mut self, id: OperationId, by: &str) -> Result<Operation, CliError> {
        if !gone_on(&self.companion, &self.store.load(id)?) {
            return self.roll_back(id, by);
        }
        self.refuse_over_open_turn()?;
        let reason = format!("the way back with what has been said since is asked for by {by}");
        let guard = self.store.lock()?;
        let operation = register_carry_back(&guard, id, &reason, by, self.now())?;
        let yes = Consent::without_plan(by, self.now(), self.companion.config.runner.ask_expires);
        guard.agree(operation.id, yes, self.now())?;
        drop(guard);
        self.operate(operation.id)?;
        Ok(self.store.load(operation.id)?)
    }

    fn finish_rollback(&mut self, mut operation: Operation) -> Result<Operation, CliError> {
        self.refuse_over_open_turn()?;
        self.with_worker(|worker| Ok(worker.roll_back(&mut operation)?))?;
        self.after_switch(&operation)?;
        Ok(operation)
    }

    /// An open turn whose tools may have run cannot be sent again, so its rows must not be left out of a candidate.
    /// One of which nothing but the message (and perhaps an API error) is there is sent again in the new session.
    pub(super) fn refuse_over_open_turn(&self) -> Result<(), CliError> {
        let Some(turn) = self.queue.open_turn()? else { return Ok(()) };
        let busy = |why: &str| {
            Err(CliError::new(
                ErrorKind::Busy,
                format!("turn {} {why}: wait for it, or give it up with `kael-runner skip`", turn.id),
            ))
        };
        let past = self.queue.invocations_of(turn.id)?;
        if past.iter().any(|invocation| invocation.ended_at.is_none()) {
            return busy("is running");
        }
        match past.last().map(|last| self.read_receipt(last)).transpose()?.map(|receipt| receipt.after) {
            _ if self.holds_additions(turn.id)? => busy("has taken in what was said meanwhile"),
            None | Some(After::Absent | After::Nothing | After::ApiErrorOnly { .. } | After::Interrupted) => {
                Ok(())
            }
            Some(After::Answered) => busy("is answered and not acknowledged yet"),
            Some(After::ToolsFinished { .. } | After::ToolOpen { .. } | After::AnsweredPartly) => {
                busy("has done things that its answer does not tell yet")
            }
        }
    }

    /// Keeps the open turn's messages out of everybody's way while a session that leaves their rows out is made
    /// current, and gives them back whatever comes of it (DESIGN 6 "Open tail").
    fn holding<T>(
        &mut self,
        id: OperationId,
        work: impl FnOnce(&mut Self) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        if let Some(turn) = self.queue.open_turn()? {
            self.queue.hold_messages(turn.id, id)?;
        }
        let result = work(self);
        self.queue.give_back_held()?;
        result
    }

    pub(super) fn with_worker<T>(
        &self,
        work: impl FnOnce(&Worker<'_>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let companion = &self.companion;
        let config = &companion.config;
        let own = facts::own_rows(&self.queue)?;
        let evidence = match companion.pointer.read()?.session() {
            Some(session) => facts::evidence(&self.queue, &self.store, session)?,
            None => Evidence::default(),
        };
        let ours = self.queue.sessions_run(false)?;
        let process = setup::process_of(config);
        // The one that is to be ended is no stranger.
        let its_own = process.as_ref().and_then(|process| process.claude().ok().flatten());
        let live = LiveOn { project_dir: &config.project_dir, but: its_own.map(|claude| claude.pid) };
        let settings = self.rebuild_settings()?;
        let rules = extract_rules(config, &Kept::of(&self.queue)?.decided);
        let guard = self.store.lock()?;
        work(&Worker {
            guard: &guard,
            disk: &companion.disk,
            pointer: &companion.pointer,
            clock: companion.clock.as_ref(),
            project_dir: &config.project_dir,
            resume_command: &config.resume_command,
            settings: &settings,
            rules: &rules,
            own: &own,
            evidence: &evidence,
            live: &live,
            allowed_newer: &ours,
            process: process.as_deref(),
            health: config.healthcheck,
            newer: match process.is_some() || self.own_loop {
                true => NewerTranscripts::Conflict,
                false => NewerTranscripts::Warn,
            },
            // Our own writer has exited, but nobody vouches for others: a command may be called while an
            // interactive session writes.
            quiet: (!self.is_runner).then_some((config.stable_file, config.stable_file_timeout)),
        })
    }

    /// Everything an interrupted switch, `pointer set` or worker left.
    pub(super) fn recover_pointer_and_operations(&mut self) -> Result<Vec<String>, CliError> {
        let mut told = self.finish_interrupted_switches()?;
        let guard = self.store.lock()?;
        let lock = self.companion.pointer.lock()?;
        let recovery = operation::recover(
            &guard,
            &self.companion.pointer,
            &lock,
            &self.companion.config.project_dir,
            self.now(),
        )?;
        drop(lock);
        for unreadable in &recovery.unreadable {
            told.push(kael_core::error_chain(&unreadable.error));
        }
        let (mut redo, mut undo) = (Vec::new(), Vec::new());
        for done in recovery.operations {
            told.push(format!("operation {}: {}", done.id, done.what));
            if let Some(change) = done.source_changed {
                told.push(format!(
                    "operation {}: the old session was written to during the switch: {change}",
                    done.id
                ));
                undo.push(done.id);
            }
            if done.redo {
                redo.push(done.id);
            }
        }
        drop(guard);
        for id in undo {
            // Refused when something ran on the new session already: then it is only told.
            let line = self
                .roll_back(id, "the look back at an interrupted switch")
                .map_or_else(|error| error.message, |operation| outcome_line(&operation));
            told.push(format!("operation {id}: {line}"));
        }
        for id in redo {
            if self.store.load(id)?.kind == Kind::Repair
                && self.store.load(id)?.status() != Status::RollbackScheduled
            {
                continue;
            }
            // Whether it may go on is decided by its consent; without the work it would stay active for ever.
            let line = match self.store.load(id)?.status() {
                Status::RollbackScheduled => outcome_line(&self.finish_rollback(self.store.load(id)?)?),
                _ => self.redo(id)?,
            };
            told.push(format!("operation {id}: {line}"));
        }
        self.end_broken_repairs()?;
        Ok(told)
    }

    /// A pane or unit in the middle of a switch has no session running: that comes first.
    fn finish_interrupted_switches(&self) -> Result<Vec<String>, CliError> {
        let mut told = Vec::new();
        for mut operation in self.store.list()?.operations {
            if !operation.status().is_switching() {
                continue;
            }
            if let Some(what) = self.with_worker(|worker| Ok(worker.resolve(&mut operation)?))? {
                told.push(format!("operation {}: {what}", operation.id));
            }
        }
        Ok(told)
    }

    fn redo(&mut self, id: OperationId) -> Result<String, CliError> {
        let mut operation = self.store.load(id)?;
        if let Err(busy) = self.refuse_over_open_turn() {
            let reason = busy.message.as_str();
            let failed = OpEvent::Failed { reason: reason.into(), session_conflict: false };
            self.store.lock()?.advance(&mut operation, &failed, self.now())?;
            return Ok(reason.to_owned());
        }
        let digest = operation.plan_digest.clone().unwrap_or_default();
        let given = matches!(operation.consent_for(&digest, self.now()), ConsentVerdict::Given { .. });
        if given && self.agreed(&operation) {
            return self.operate(id);
        }
        Ok(outcome_line(&self.prepare(id)?))
    }
}

/// Whether something was said in the session that an operation made current.
pub(crate) fn gone_on(companion: &Companion, operation: &Operation) -> bool {
    let Some(made) = operation.state().candidate() else { return false };
    let placed = companion.transcript(made.session);
    !kael_core::disk::digest(&placed).is_ok_and(|found| found.sha256 == made.sha256)
}

/// Notes the wish to go back from the newest switch with what has been said since. It waits for a yes.
pub(crate) fn register_carry_back(
    guard: &StoreGuard,
    id: OperationId,
    reason: &str,
    by: &str,
    at: Timestamp,
) -> Result<Operation, StoreError> {
    let newest = guard.newest_activated()?.map(|operation| operation.id);
    if newest != Some(id) {
        return Err(StoreError::NotNewest { id, newest });
    }
    let wish = NewOperation {
        kind: Kind::Return,
        reason: reason.into(),
        requested_by: by.to_owned(),
        by_policy: false,
    };
    Ok(guard.request(wish, at)?.into_operation())
}

/// Foreign live processes, by the CLI's own notes.
struct LiveOn<'a> {
    project_dir: &'a std::path::Path,
    but: Option<u32>,
}

impl LiveProcesses for LiveOn<'_> {
    fn holder(&self, session: SessionId) -> Option<String> {
        let look = || live::processes_on(session, self.project_dir, self.but.as_slice());
        let mut pids = look();
        // One that is being killed is there for a moment longer.
        let until = Instant::now() + Duration::from_secs(1);
        while !pids.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            pids = look();
        }
        (!pids.is_empty()).then(|| {
            let list: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("a claude process ({})", list.join(", "))
        })
    }
}

/// Who wants what of the human.
#[must_use]
pub fn question_line(operation: &Operation) -> String {
    let reason = operation.reasons.last().map(|reason| format!(": {reason}")).unwrap_or_default();
    if operation.status() == Status::RollbackPending {
        return format!("the session before the last rebuild is wanted back{reason}");
    }
    if operation.kind == Kind::Return {
        return format!(
            "the session before the last rebuild is wanted back, with what has been said since{reason}"
        );
    }
    format!("a rebuild is asked for by {}{reason}", operation.requested_by)
}

/// What came of an operation, for the human's one line.
#[must_use]
pub fn outcome_line(operation: &Operation) -> String {
    match operation.state() {
        OpState::Activated(activation) if operation.kind == Kind::Return => format!(
            "the session before the rebuild is back, with what has been said since: proved; the next turn resumes {}",
            activation.candidate.session
        ),
        OpState::Activated(activation) => {
            if operation.kind == Kind::Repair {
                return format!(
                    "the session was repaired: every row kept but a failed tail; the next turn resumes {}",
                    activation.candidate.session
                );
            }
            let turns = operation.stats.as_ref().and_then(|s| s["selected_turns"].as_u64());
            format!(
                "the session was rebuilt: {} turns carried, proved; {} {}",
                turns.map_or_else(|| "all".to_owned(), |n| n.to_string()),
                if activation.after.claude().is_some() { "claude runs on" } else { "the next turn resumes" },
                activation.candidate.session
            )
        }
        OpState::RolledBack { after, reason, .. } => {
            let why = reason.as_ref().map(|r| format!(", because {r}")).unwrap_or_default();
            if operation.history.iter().any(|step| step.to == Status::Activated) {
                format!("the session before is current again ({after}){why}")
            } else {
                format!("nothing was switched, and the old session runs on ({after}){why}")
            }
        }
        OpState::Failed { reason, .. } => format!("nothing was switched: {reason}"),
        OpState::Verifying { .. } => "a candidate is built and proved; nothing is switched yet".to_owned(),
        OpState::Pending
        | OpState::Scheduled
        | OpState::Running
        | OpState::Activating { .. }
        | OpState::RollbackPending(_)
        | OpState::RollbackScheduled { .. }
        | OpState::Cancelled => format!("operation {} is {}", operation.id, operation.status()),
    }
}
