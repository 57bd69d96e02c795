//! After a run: what the transcript says, written into the queue.

use kael_core::clock::Timestamp;
use kael_core::pointer::PointerValue;
use kael_core::transcript::receipt::{After, Receipt};

use crate::claude::marked;
use crate::claude::process::{Ended, EndedBy};
use crate::cli::error::CliError;
use crate::queue::{HeldUntil, Hold, Invocation, LastOutcome, ReplyPart, Setting, Usage};

use super::Keeper;
use super::attempt::NewSession;
use super::outcome::{Kind, Outcome, Run, Then, classify, remark};

/// What became of an invocation.
#[derive(Debug)]
pub enum Settled {
    /// The turn is over and its reply stored.
    Answered(Box<Receipt>),
    /// A human stopped it: it is done, with as much of a reply as there is.
    Stopped(Box<Receipt>),
    /// It is to be tried again: after a pause, or at a stated time.
    TryAgain {
        /// What happened, in one word.
        kind: Kind,
        /// For a human.
        detail: String,
        /// Not before this; `None`: after a pause.
        at: Option<Timestamp>,
    },
    /// It, or what is left of it, is to be tried again at once.
    TryAtOnce,
    /// It is given up and the next one may go.
    Dead,
    /// The queue is held until a human has looked.
    Held,
}

impl Keeper {
    /// Reads the receipt of an invocation whose process has exited and stores the result. The
    /// transcript decides; the stream and the exit code only explain (DESIGN 9).
    pub fn settle(
        &mut self,
        invocation: &Invocation,
        ended: Result<&Ended, String>,
    ) -> Result<Settled, CliError> {
        self.settle_run(invocation, &Some(ended))
    }

    pub(super) fn settle_run(&mut self, invocation: &Invocation, run: &Run<'_>) -> Result<Settled, CliError> {
        let receipt = self.read_receipt(invocation)?;
        self.adopt_new_session(invocation, &receipt)?;
        self.forget_what_is_out(receipt.after != After::Absent)?;
        let used = match run {
            Some(Ok(ended)) => {
                self.note_window(ended)?;
                used(ended, &receipt)
            }
            _ => None,
        };
        let settled = match self.answered_with_addition(invocation, &receipt, run)? {
            Some(both) => self.close(invocation, both, Kind::Answered, None)?,
            None => self.settle_by(invocation, run, receipt)?,
        };
        if let Some(used) = used {
            let of = (invocation.turn, invocation.session);
            self.queue.note_usage(invocation.id, of, &used, self.now())?;
        }
        Ok(settled)
    }

    fn settle_by(
        &mut self,
        invocation: &Invocation,
        run: &Run<'_>,
        receipt: Receipt,
    ) -> Result<Settled, CliError> {
        if receipt.after == After::Answered {
            let (kind, mark) = remark(run).map_or((Kind::Answered, None), |(kind, line)| (kind, Some(line)));
            return self.close(invocation, receipt, kind, mark.as_deref());
        }
        let ended_by = run.as_ref().and_then(|run| run.as_ref().ok()?.ended_by);
        // Of a run of an earlier runner only the note is left that a human wanted it stopped.
        if ended_by == Some(EndedBy::Human) || self.queue.stop_noted(invocation.id)? {
            return self.stopped(invocation, receipt);
        }
        let outcome = classify(run, &receipt, invocation.session, self.now());
        if outcome.then == Then::Deliver {
            return self.close(invocation, receipt, outcome.kind, Some(&outcome.detail));
        }
        let charge = matches!(outcome.then, Then::Retry { charge: true } | Then::Rebuild);
        let words = (outcome.kind.word(), outcome.detail.as_str());
        self.queue.end_unanswered(invocation.id, words, charge, self.now())?;
        self.note_outcome(invocation.turn, outcome.kind, &outcome.detail, charge)?;
        self.after_failure(invocation, &receipt, outcome)
    }

    fn after_failure(
        &mut self,
        invocation: &Invocation,
        receipt: &Receipt,
        outcome: Outcome,
    ) -> Result<Settled, CliError> {
        let Outcome { kind, detail, then } = outcome;
        match then {
            Then::Deliver | Then::Retry { charge: false } => Ok(Settled::TryAgain { kind, detail, at: None }),
            Then::At(at) => Ok(Settled::TryAgain { kind, detail, at: Some(at) }),
            Then::Hold => {
                self.hold(&detail)?;
                Ok(Settled::Held)
            }
            Then::Probe => {
                let line = format!(
                    "{detail}. It is tried by itself now and then; `kael-runner retry` tries at once"
                );
                self.hold_until(&line, HeldUntil::Probe)?;
                Ok(Settled::Held)
            }
            Then::Rebuild => self.emergency(invocation, kind, &detail),
            Then::Retry { charge: true } => self.after_charged(invocation, receipt, kind, &detail),
        }
    }

    /// Ends a turn with what was said in it.
    fn close(
        &mut self,
        invocation: &Invocation,
        receipt: Receipt,
        kind: Kind,
        mark: Option<&str>,
    ) -> Result<Settled, CliError> {
        let settled = self.acknowledge_marked(invocation, receipt, kind.word(), mark)?;
        if let Some(mark) = mark {
            tracing::warn!(turn = invocation.turn, outcome = kind.word(), "the reply is marked: {mark}");
        }
        self.note_outcome(invocation.turn, kind, mark.unwrap_or("answered"), false)?;
        Ok(settled)
    }

    fn note_outcome(&mut self, turn: i64, kind: Kind, detail: &str, charged: bool) -> Result<(), CliError> {
        let (outcome, detail, at) = (kind.word().to_owned(), detail.to_owned(), self.now());
        Ok(self.queue.set(Setting::LastOutcome, &LastOutcome { outcome, detail, turn, charged, at })?)
    }

    /// Closes a turn that a human stopped. What was said until then is kept; a message that never
    /// reached the conversation is taken back.
    fn stopped(&mut self, invocation: &Invocation, receipt: Receipt) -> Result<Settled, CliError> {
        let (kind, detail) = (Kind::StoppedByHuman, "a human stopped the turn");
        if receipt.after == After::Absent {
            self.queue.take_back(invocation.id, invocation.turn, (kind.word(), detail), self.now())?;
            self.note_outcome(invocation.turn, kind, detail, false)?;
            return Ok(Settled::Stopped(Box::new(receipt)));
        }
        match self.close(invocation, receipt, kind, Some(detail))? {
            Settled::Answered(receipt) => Ok(Settled::Stopped(receipt)),
            other => Ok(other),
        }
    }

    /// Stores the replies and marks the turn answered, in one transaction.
    pub(super) fn acknowledge(
        &mut self,
        invocation: &Invocation,
        receipt: Receipt,
        detail: &str,
    ) -> Result<Settled, CliError> {
        self.acknowledge_marked(invocation, receipt, detail, None)
    }

    fn acknowledge_marked(
        &mut self,
        invocation: &Invocation,
        receipt: Receipt,
        detail: &str,
        mark: Option<&str>,
    ) -> Result<Settled, CliError> {
        let mut replies: Vec<ReplyPart> = receipt
            .replies
            .iter()
            .map(|part| ReplyPart {
                message_id: part.message_id.clone(),
                block_index: part.block_index,
                words: part.text.clone(),
            })
            .collect();
        if self.companion.config.runner.reply == kael_core::config::ReplyMode::Final {
            replies.drain(..replies.len().saturating_sub(1));
        }
        self.queue.answer(invocation.id, invocation.turn, &replies, (detail, mark), self.now())?;
        Ok(Settled::Answered(Box::new(receipt)))
    }

    /// Stops taking turns until a human says `retry` (or `skip`).
    pub fn hold(&mut self, reason: &str) -> Result<(), CliError> {
        self.hold_until(reason, HeldUntil::Human)
    }

    pub(super) fn hold_until(&mut self, reason: &str, until: HeldUntil) -> Result<(), CliError> {
        tracing::error!("the queue is held: {reason}");
        let hold = Hold { reason: reason.to_owned(), since: self.now(), until };
        Ok(self.queue.set(Setting::Hold, &hold)?)
    }

    /// Ends a hold of this kind, if there is one.
    pub fn end_hold(&mut self, until: HeldUntil) -> Result<bool, CliError> {
        let held = self.queue.get::<Hold>(Setting::Hold)?.is_some_and(|hold| hold.until == until);
        if held {
            self.queue.clear(Setting::Hold)?;
        }
        Ok(held)
    }

    /// Resolves what an earlier runner left: its processes get `orphan_grace` to finish, because an
    /// answer they still write is a receipt, then they are ended and the transcript is read.
    pub(super) fn settle_leftovers(&mut self) -> Result<Vec<String>, CliError> {
        let mut told = Vec::new();
        self.queue.give_back_held()?;
        for invocation in self.queue.unresolved_invocations()? {
            self.await_orphans(&invocation);
            let line = match self.settle_run(&invocation, &None)? {
                Settled::Answered(receipt) => {
                    self.after_turn(&receipt)?;
                    "was answered"
                }
                Settled::Stopped(_) => "was stopped by a human and is done",
                Settled::TryAgain { .. } | Settled::TryAtOnce => "is not answered and will be tried again",
                Settled::Dead => "is given up",
                Settled::Held => "is not answered and the queue is held",
            };
            told.push(format!("turn {} of an earlier runner {line}", invocation.turn));
        }
        for (turn, settled) in self.settle_additions(None)? {
            if let Settled::Answered(receipt) = settled {
                self.after_turn(&receipt)?;
                told.push(format!("turn {turn} of an earlier runner was answered"));
            }
        }
        Ok(told)
    }

    fn await_orphans(&self, invocation: &Invocation) {
        let runner = &self.companion.config.runner;
        let deadline = std::time::Instant::now() + runner.orphan_grace;
        let mut told = false;
        while std::time::Instant::now() < deadline && !marked::processes(invocation.id).is_empty() {
            if !told {
                tracing::info!(invocation = %invocation.id, "an earlier runner's CLI still runs: waiting for it to finish");
                told = true;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        marked::end_all(invocation.id, runner.kill_grace);
    }

    /// Moves the pointer to a session we began, once its transcript holds our row.
    fn adopt_new_session(&mut self, invocation: &Invocation, receipt: &Receipt) -> Result<(), CliError> {
        if !invocation.new_session || receipt.after == After::Absent {
            return Ok(());
        }
        let begun: Option<NewSession> = self.queue.get(Setting::NewSession)?;
        let current = self.companion.pointer.read()?;
        let ours = begun.filter(|begun| begun.session == invocation.session);
        if let Some(begun) = ours
            && current != PointerValue::Session(invocation.session)
        {
            let expected = PointerValue::from(begun.expected);
            if current == expected {
                self.companion.pointer.set(expected, begun.session, "runner: new session", self.now())?;
            } else {
                tracing::warn!(
                    session = %invocation.session,
                    "somebody set the pointer while the first turn ran: it stays, and the new session is left alone"
                );
            }
        }
        Ok(self.queue.clear(Setting::NewSession)?)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.companion.clock.now()
    }
}

/// What the run has used, by its result; nothing if it never reached the API.
fn used(ended: &Ended, receipt: &Receipt) -> Option<Usage> {
    let result = ended.result.as_ref()?;
    let tokens = |name: &str| result.usage[name].as_u64().unwrap_or(0);
    let used = Usage {
        input: tokens("input_tokens"),
        cache_read: tokens("cache_read_input_tokens"),
        cache_creation: tokens("cache_creation_input_tokens"),
        output: tokens("output_tokens"),
        context: receipt.first_usage.map(|usage| usage.input()),
        level: receipt.usage.map(|usage| usage.total()),
        millis: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
    };
    (used.input + used.cache_read + used.cache_creation + used.output > 0).then_some(used)
}
