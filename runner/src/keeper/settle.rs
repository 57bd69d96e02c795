//! After a run: what the transcript says, written into the queue.

use kael_core::clock::Timestamp;
use kael_core::pointer::PointerValue;
use kael_core::transcript::receipt::{After, Receipt};

use crate::claude::marked;
use crate::claude::process::{Ended, EndedBy};
use crate::cli::error::CliError;
use crate::queue::{Hold, Invocation, ReplyPart, Setting};

use super::Keeper;
use super::attempt::NewSession;
use super::outcome::{Run, Then, classify};

/// What became of an invocation.
#[derive(Debug)]
pub enum Settled {
    /// The turn is answered and its reply stored.
    Answered(Box<Receipt>),
    /// A human stopped it: it is done, with as much of a reply as there is.
    Stopped(Box<Receipt>),
    /// It is to be tried again after a pause.
    TryAgain {
        /// What happened.
        detail: String,
    },
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

    fn settle_run(&mut self, invocation: &Invocation, run: &Run<'_>) -> Result<Settled, CliError> {
        let receipt = self.read_receipt(invocation)?;
        self.adopt_new_session(invocation, &receipt)?;
        if let Some(Ok(ended)) = run {
            self.note_window(ended)?;
        }
        if receipt.after == After::Answered {
            return self.acknowledge(invocation, receipt, "answered");
        }
        let ended_by = run.as_ref().and_then(|run| run.as_ref().ok()?.ended_by);
        // Of a run of an earlier runner only the note is left that a human wanted it stopped.
        if ended_by == Some(EndedBy::Human) || self.queue.stop_noted(invocation.id)? {
            return self.stopped(invocation, receipt);
        }
        let failure = classify(run, &receipt, invocation.session);
        let charge = failure.then == Then::Retry { charge: true };
        self.queue.end_unanswered(invocation.id, &failure.detail, charge, self.now())?;
        if failure.then == Then::Hold {
            self.hold(&failure.detail)?;
            return Ok(Settled::Held);
        }
        let charged = self.queue.open_turn()?.map_or(0, |turn| turn.charged);
        let most = self.companion.config.runner.max_attempts;
        if charged >= most {
            self.hold(&format!(
                "turn {} has failed {charged} times, at last because {}: mend that and run `kael-runner retry`, or give \
                 the turn up with `kael-runner skip`",
                invocation.turn, failure.detail
            ))?;
            return Ok(Settled::Held);
        }
        Ok(Settled::TryAgain { detail: failure.detail })
    }

    /// Closes a turn that a human stopped. What was said until then is kept; a message that never
    /// reached the conversation is taken back.
    fn stopped(&mut self, invocation: &Invocation, receipt: Receipt) -> Result<Settled, CliError> {
        let detail = "stopped by a human";
        if receipt.after == After::Absent {
            self.queue.take_back(invocation.id, invocation.turn, detail, self.now())?;
            return Ok(Settled::Stopped(Box::new(receipt)));
        }
        match self.acknowledge(invocation, receipt, detail)? {
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
        self.queue.answer(invocation.id, invocation.turn, &replies, detail, self.now())?;
        Ok(Settled::Answered(Box::new(receipt)))
    }

    /// Stops taking turns until a human says `retry` (or `skip`).
    pub fn hold(&mut self, reason: &str) -> Result<(), CliError> {
        tracing::error!("the queue is held: {reason}");
        let hold = Hold { reason: reason.to_owned(), since: self.now() };
        Ok(self.queue.set(Setting::Hold, &hold)?)
    }

    /// Resolves what an earlier runner left: its processes get `orphan_grace` to finish, because an
    /// answer they still write is a receipt, then they are ended and the transcript is read.
    pub(super) fn settle_leftovers(&mut self) -> Result<Vec<String>, CliError> {
        let mut told = Vec::new();
        for invocation in self.queue.unresolved_invocations()? {
            self.await_orphans(&invocation);
            let line = match self.settle_run(&invocation, &None)? {
                Settled::Answered(receipt) => {
                    self.after_turn(&receipt)?;
                    "was answered"
                }
                Settled::Stopped(_) => "was stopped by a human and is done",
                Settled::TryAgain { .. } => "is not answered and will be tried again",
                Settled::Held => "is not answered and the queue is held",
            };
            told.push(format!("turn {} of an earlier runner {line}", invocation.turn));
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
