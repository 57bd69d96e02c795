//! After an answered turn: watch the first one after a switch, measure how dirty the session is,
//! and ask for a rebuild, or begin one, when it is due (DESIGN 5, 6.5, 9 "Between turns").

use std::collections::BTreeMap;

use kael_core::config::{Activation, RebuildPolicy};
use kael_core::estimate::{Calibration, Pair};
use kael_core::ids::{OperationId, SessionId};
use kael_core::ledger::{self, LedgerReport, LedgerState};
use kael_core::operation::{Consent, OpState, Operation};
use kael_core::pointer::PointerValue;
use kael_core::rebuild::Plan;
use kael_core::transcript::receipt::{After, Receipt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::claude::process::Ended;
use crate::cli::error::CliError;
use crate::facts;
use crate::queue::{HeldUntil, Invocation, Queue, Setting};
use crate::settings::{self, Measured, budgets, extract_rules};
use crate::versions;

use super::Keeper;
use super::operations::outcome_line;
use super::outcome::Kind;

/// Where the incremental ledger of the current session stands.
#[derive(Serialize, Deserialize)]
struct Kept {
    session: SessionId,
    state: LedgerState,
}

/// A due rebuild that a human was told about, or asked: not again before the session is dirtier.
#[derive(Serialize, Deserialize)]
struct Told {
    session: SessionId,
    total_bytes: u64,
}

/// The level from which the dirty budget counts, by session: what the CLI itself writes in a session's first turn is
/// no reason to rebuild.
pub type Baselines = BTreeMap<SessionId, u64>;

/// The level from which `session` is measured.
pub fn baseline(queue: &Queue, session: SessionId) -> Result<u64, CliError> {
    let all: Baselines = queue.get(Setting::Baseline)?.unwrap_or_default();
    Ok(all.get(&session).copied().unwrap_or(0))
}

impl Keeper {
    /// What is known of the model's window.
    pub(super) fn queue_measured(&self) -> Result<Measured, CliError> {
        Ok(self.queue.get(Setting::Measured)?.unwrap_or_default())
    }

    pub(super) fn note_window(&mut self, ended: &Ended) -> Result<(), CliError> {
        let window = ended.result.as_ref().and_then(|result| result.context_window());
        let known = self.queue_measured()?;
        match window {
            Some(context_window) if context_window != known.context_window => {
                Ok(self.queue.set(Setting::Measured, &Measured { context_window })?)
            }
            _ => Ok(()),
        }
    }

    /// Everything that follows an answered turn. Returns lines for the human.
    pub fn after_turn(&mut self, receipt: &Receipt) -> Result<Vec<String>, CliError> {
        let PointerValue::Session(session) = self.companion.pointer.read()? else { return Ok(Vec::new()) };
        let mut told = Vec::new();
        if let Some(line) = self.watch_first_turn(session, receipt)? {
            told.push(line);
        }
        told.extend(self.watch_footing()?);
        told.extend(self.measure_and_consider(session)?);
        Ok(told)
    }

    /// Measures the session and asks for a rebuild, or confirms one, when it is due. Returns lines for the human.
    pub(super) fn measure_and_consider(&mut self, session: SessionId) -> Result<Vec<String>, CliError> {
        let mut told = Vec::new();
        let report = match self.measure(session) {
            Ok(report) => report,
            Err(error) => {
                told.push(format!("the session could not be measured: {}", error.message));
                return Ok(told);
            }
        };
        let mut baselines: Baselines = self.queue.get(Setting::Baseline)?.unwrap_or_default();
        let base = match baselines.get(&session) {
            Some(base) => *base,
            None => {
                // A session that was here before us is measured whole; one that we began or rebuilt, from the end of
                // its first turn on.
                let base = if self.began(session)? { report.total_bytes } else { 0 };
                baselines.insert(session, base);
                self.queue.set(Setting::Baseline, &baselines)?;
                base
            }
        };
        let reasons = ledger::due(&report, base, &budgets(&self.companion.config, self.queue_measured()?));
        if !reasons.is_empty() {
            told.extend(self.consider_rebuild(session, &report, &reasons)?);
        }
        Ok(told)
    }

    fn measure(&mut self, session: SessionId) -> Result<LedgerReport, CliError> {
        let kept: Option<Kept> = self.queue.get(Setting::Ledger)?;
        let resume = kept.filter(|kept| kept.session == session).map(|kept| kept.state);
        let own = facts::own_rows(&self.queue)?;
        let rules = extract_rules(&self.companion.config, &settings::Kept::of(&self.queue)?.decided);
        let report = ledger::measure(&self.companion.transcript(session), &rules, &own, resume.as_ref())?;
        self.queue.set(Setting::Ledger, &Kept { session, state: report.state.clone() })?;
        Ok(report)
    }

    fn began(&self, session: SessionId) -> Result<bool, CliError> {
        let begun = self.queue.sessions_run(true)?.contains(&session);
        let rebuilt = self.store.list()?.operations.iter().any(|op| {
            op.state().was_activated() && op.state().candidate().is_some_and(|c| c.session == session)
        });
        Ok(begun || rebuilt)
    }

    /// A due rebuild, under the policy.
    fn consider_rebuild(
        &mut self,
        session: SessionId,
        report: &LedgerReport,
        reasons: &[String],
    ) -> Result<Vec<String>, CliError> {
        let policy = self.companion.config.runner.rebuild;
        let told: Option<Told> = self.queue.get(Setting::Told)?;
        let again = told.is_none_or(|told| {
            told.session != session || report.total_bytes >= told.total_bytes + self.hysteresis()
        });
        if policy == RebuildPolicy::Off
            || !again
            || self.store.active()?.is_some()
            || self.store.session_conflict()?.is_some()
        {
            return Ok(Vec::new());
        }
        let plan = self.plan_now(None)?;
        let blocked = plan.blocked_reason();
        if !blocked.is_empty() {
            self.tell_at(session, report.total_bytes)?;
            return Ok(vec![format!(
                "a rebuild is due ({}) and not possible: {blocked}",
                reasons.join("; ")
            )]);
        }
        let mut lines = Vec::new();
        let operation = self.request(&reasons.join("; "), "runner", true)?;
        let auto = policy == RebuildPolicy::Auto && {
            let known = self.version.as_deref().is_none_or(versions::is_known);
            if !known {
                lines.push(
                    "this version of the CLI was not measured: rebuild = \"auto\" asks instead".to_owned(),
                );
            }
            known
        };
        if auto {
            self.confirm_by_policy(operation.id)?;
        } else {
            self.tell_at(session, report.total_bytes)?;
            self.asked = Some((operation.id, operation.status()));
            lines.push(format!("a rebuild is due: {}", reasons.join("; ")));
            lines.extend(figures(&plan));
            lines.push(format!(
                "`kael-runner confirm` says yes, `kael-runner cancel --confirm CANCEL` says no ({})",
                operation.id
            ));
        }
        Ok(lines)
    }

    /// The yes that a human gave beforehand. A CLI that lives on makes notes in its transcript at any time, which would
    /// make another plan of the same words: there it is to whatever the plan is.
    fn confirm_by_policy(&mut self, id: OperationId) -> Result<Operation, CliError> {
        let by = "rebuild = \"auto\"";
        if self.companion.config.activation == Activation::Pointer {
            return self.confirm(id, by, None, false);
        }
        let yes = Consent::without_plan(by, self.now(), self.companion.config.runner.ask_expires);
        Ok(self.store.lock()?.agree(id, yes, self.now())?)
    }

    /// How much dirtier a session must be before a human is bothered again.
    fn hysteresis(&self) -> u64 {
        (self.companion.config.dirty_budget_bytes / 2).max(64 * 1024)
    }

    fn tell_at(&mut self, session: SessionId, total_bytes: u64) -> Result<(), CliError> {
        Ok(self.queue.set(Setting::Told, &Told { session, total_bytes })?)
    }

    /// After a question ran out, was refused or its operation failed: not again at this level.
    pub(super) fn remember_told(&mut self) {
        let mut remember = || -> Result<(), CliError> {
            let PointerValue::Session(session) = self.companion.pointer.read()? else { return Ok(()) };
            let level = self.measure(session)?.total_bytes;
            self.tell_at(session, level)
        };
        // Only spares the human a repeated question; the session may be one that somebody else pointed to.
        if let Err(error) = remember() {
            tracing::debug!("the level was not noted: {}", error.message);
        }
    }

    /// After the pointer moved: what was measured belongs to another session.
    pub(super) fn after_switch(&mut self, operation: &Operation) -> Result<(), CliError> {
        if matches!(operation.state(), OpState::Activated(_)) {
            self.end_hold(HeldUntil::Rebuild)?;
            self.queue.clear(Setting::Ledger)?;
            self.queue.clear(Setting::Told)?;
            if self.queue.open_turn()?.is_some() {
                // What kept the open turn from being answered may be mended now.
                self.queue.clear(Setting::Hold)?;
            }
        } else if matches!(operation.state(), OpState::RolledBack { .. }) {
            self.queue.clear(Setting::Ledger)?;
            // The human has just gone back: the old level is no reason to ask again at once.
            self.remember_told();
        }
        Ok(())
    }

    /// The CLI does not take the session that a rebuild has just made current, and nothing was answered there: the one
    /// before is current again, by itself. Whether it was so.
    pub(super) fn leave_failed_session(
        &mut self,
        invocation: &Invocation,
        receipt: &Receipt,
        kind: Kind,
        detail: &str,
    ) -> Result<bool, CliError> {
        if receipt.after != After::Absent || !matches!(kind, Kind::SessionNotFound | Kind::OtherSession) {
            return Ok(false);
        }
        let Some(operation) = self.store.newest_activated()? else { return Ok(false) };
        let OpState::Activated(activation) = operation.state() else { return Ok(false) };
        let resumed = operation.verification.as_ref().is_some_and(|seen| seen.get("first_turn").is_some());
        if activation.candidate.session != invocation.session || resumed {
            return Ok(false);
        }
        let went = self.roll_back(operation.id, "the failed first resume of the new session");
        let line = match &went {
            Ok(operation) if matches!(operation.state(), OpState::RolledBack { .. }) => {
                format!("the first resume of the new session failed ({detail}): {}", outcome_line(operation))
            }
            Ok(operation) => {
                tracing::error!("{}", outcome_line(operation));
                return Ok(false);
            }
            Err(error) => {
                tracing::error!("{}", error.message);
                return Ok(false);
            }
        };
        tracing::warn!(turn = invocation.turn, "{line}");
        self.note_outcome(invocation.turn, kind, &line, false)?;
        Ok(true)
    }

    /// The first turn after a switch: is the history that the proof put there what the CLI really loaded?
    fn watch_first_turn(
        &mut self,
        session: SessionId,
        receipt: &Receipt,
    ) -> Result<Option<String>, CliError> {
        let Some(mut operation) = self.store.newest_activated()? else { return Ok(None) };
        let OpState::Activated(activation) = operation.state() else { return Ok(None) };
        let before = activation.before;
        let mut verification = operation.verification.clone().unwrap_or_default();
        if activation.candidate.session != session || verification.get("first_turn").is_some() {
            return Ok(None);
        }
        let root = verification["root"].as_str().map(str::to_owned);
        let estimated = verification["estimated_tokens"].as_u64().unwrap_or(0);
        let measured = receipt.first_usage.map(|usage| usage.input());
        if let Some(measured) = measured {
            self.keep_pairs(&verification, measured)?;
        }
        let whole = receipt.chain_root(&self.companion.transcript(session))? == root;
        let plausible = match measured {
            Some(measured) if estimated > 0 => measured * 2 >= estimated && measured <= estimated * 2,
            _ => true,
        };
        verification["first_turn"] = json!({
            "at": self.now(),
            "reaches_root": whole,
            "measured_tokens": measured,
            "estimated_tokens": estimated,
        });
        operation.verification = Some(verification);
        for front in self.queue.fronts_answered_last()? {
            let at = self.now();
            operation.inbound_confirmed.entry(front).or_insert(at);
        }
        self.store.lock()?.save(&mut operation)?;
        if whole && plausible {
            return Ok(None);
        }
        // It was answered there, so going back would lose words: a human decides.
        let measured = measured.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
        let what = if whole {
            format!("the first turn sent {measured} tokens where about {estimated} were expected")
        } else {
            "the first turn was answered without the carried history in front of it".to_owned()
        };
        self.hold(&format!(
            "after the switch to {session} {what}: look at `kael-runner status`, then go on with `kael-runner retry`, or \
             leave the new session with `kael-runner pointer set` (before it was {before})"
        ))?;
        Ok(Some(what))
    }

    /// Keeps what the conversation before showed about its texts, and what all of them took now: the next plan's
    /// estimates are corrected by it.
    fn keep_pairs(&mut self, verification: &serde_json::Value, measured: u64) -> Result<(), CliError> {
        let part = |name: &str| verification[name].as_u64().unwrap_or(0);
        let more: Vec<Pair> = serde_json::from_value(verification["pairs"].clone()).unwrap_or_default();
        let calibration: Calibration =
            serde_json::from_value(verification["calibration"].clone()).unwrap_or_default();
        // As it would have been estimated without a correction.
        let estimated = part("speech_tokens").saturating_mul(1000) / u64::from(calibration.per_mille.max(1));
        let overhead = part("overhead_tokens");
        self.queue.change::<Vec<Pair>>(Setting::Pairs, |pairs| {
            pairs.extend(more);
            // Without an overhead of its own to take off, the figure says nothing about texts.
            if overhead > 0 && estimated >= WHOLE_TALK {
                pairs.push(Pair { estimated, measured: measured.saturating_sub(overhead) });
            }
            pairs.drain(..pairs.len().saturating_sub(KEPT_PAIRS));
        })?;
        Ok(())
    }
}

/// From this size on the first message after a switch is small beside the whole talk.
const WHOLE_TALK: u64 = 2000;
/// How many pairs are kept.
const KEPT_PAIRS: usize = 64;

/// A plan's figures in three lines, for the human who must say yes.
#[must_use]
pub fn figures(plan: &Plan) -> Vec<String> {
    let stats = &plan.stats;
    let gain = &plan.gain;
    let percent = gain.percent.map_or_else(|| "unknown".to_owned(), |percent| format!("{percent} %"));
    let level = gain.measured_tokens.map_or_else(|| "an unknown level".to_owned(), |n| format!("{n} tokens"));
    vec![
        format!("  carried: {} of {} turns, every word unchanged", stats.selected_turns, stats.source_turns),
        format!(
            "  dropped: {} bytes of noise, {} kinds (`kael-runner plan` lists them)",
            plan.ledger.total_bytes,
            plan.drops.len()
        ),
        format!("  gain: from {level} to about {} tokens, {percent}", gain.estimated_after),
    ]
}
