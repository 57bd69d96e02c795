//! Messages that fail again and again: batches are split, single ones become dead letters, and what is dead is taken
//! out of the conversation before the next message goes in (DESIGN 9).

use std::path::Path;

use kael_core::ids::SessionId;
use kael_core::pointer::PointerValue;
use kael_core::transcript::receipt::{self, After, Receipt};
use serde_json::Value;

use crate::cli::error::CliError;
use crate::queue::{Invocation, Route, Setting};

use crate::versions;

use super::attempt::{NewSession, behind_tools};
use super::outcome::Kind;
use super::{Keeper, Settled};

/// Failures charged to a batch before its messages go one by one.
const TRIES_AS_A_BATCH: u32 = 2;
/// So many different messages failing alike are a fault of the session, not theirs.
const ALIKE: usize = 3;

impl Keeper {
    /// What follows a failure that is charged to the turn.
    pub(super) fn after_charged(
        &mut self,
        invocation: &Invocation,
        receipt: &Receipt,
        kind: Kind,
        detail: &str,
    ) -> Result<Settled, CliError> {
        let id = invocation.turn;
        let Some(turn) = self.queue.open_turn()?.filter(|turn| turn.id == id) else {
            return Ok(Settled::TryAtOnce);
        };
        let members = self.queue.messages_of(id)?;
        if members.len() > 1 && turn.charged >= TRIES_AS_A_BATCH && untouched(receipt) {
            // The blocks of a turn are its messages, in order.
            let blocks: Vec<Value> = serde_json::from_str(&turn.content).unwrap_or_default();
            if blocks.len() == members.len() {
                let contents: Vec<(i64, String)> = members
                    .iter()
                    .zip(blocks)
                    .map(|(message, block)| (message.id, Value::Array(vec![block]).to_string()))
                    .collect();
                let parts = self.queue.split(id, &contents, self.now())?;
                tracing::warn!(
                    turn = id,
                    ?parts,
                    "the turn has failed {} times ({detail}): its messages go one by one",
                    turn.charged
                );
                return Ok(Settled::TryAtOnce);
            }
        }
        if turn.charged < self.companion.config.runner.max_attempts {
            return Ok(Settled::TryAgain { kind, detail: detail.to_owned(), at: None });
        }
        let before = self.queue.last_endings(ALIKE - 1)?;
        if before.len() == ALIKE - 1 && before.iter().all(|ending| ending.as_deref() == Some(kind.word())) {
            self.hold(&format!(
                "{ALIKE} different messages have failed alike, at last turn {id} because {detail}: that is a fault of the \
                 session or of the setup, not of the messages. Mend it (`kael-runner request --confirm REBUILD` makes a \
                 clean session once no turn is open), then run `kael-runner retry`, or give the turn up with \
                 `kael-runner skip`"
            ))?;
            return Ok(Settled::Held);
        }
        let reason = format!("it failed {} times, at last because {detail}", turn.charged);
        self.queue.give_up(id, (Some(kind.word()), &reason), self.now())?;
        tracing::error!(
            turn = id,
            messages = members.len(),
            "dead letter: turn {id} is given up because {reason}; the next message goes on"
        );
        Ok(Settled::Dead)
    }

    /// Makes a first attempt begin in front of a dead turn whose rows the next resume would load: its message must not
    /// be answered along with this one, and a CLI would write a made-up answer behind it (facts 6).
    pub fn step_over_the_dead(&mut self, invocation: &mut Invocation) -> Result<(), CliError> {
        if invocation.route != Route::Send || invocation.new_session {
            return Ok(());
        }
        for turn in self.queue.left_in()? {
            let Some(receipt) = self.dead_receipt(turn, invocation.session)? else { continue };
            if !receipt.on_live_chain || !untouched(&receipt) {
                continue;
            }
            match receipt.last_assistant_before {
                Some(row) => invocation.route = Route::ResumeAt(row),
                None => {
                    // Nothing was ever answered there, so there is no row to go back to.
                    let begun =
                        NewSession { session: SessionId::generate(), expected: Some(invocation.session) };
                    if self.companion.pointer.read()? != PointerValue::Session(invocation.session) {
                        return Ok(());
                    }
                    self.queue.set(Setting::NewSession, &begun)?;
                    invocation.session = begun.session;
                    invocation.new_session = true;
                    invocation.transcript =
                        self.companion.transcript(begun.session).to_string_lossy().into_owned();
                    invocation.from_offset = 0;
                }
            }
            return Ok(());
        }
        self.go_on_behind_tools(invocation)
    }

    /// The last turn ended after its tools, or within one, and before an answer (`--max-turns`, a budget, a dead letter):
    /// what they did stays in the conversation, and no version may put words of its own behind it (facts 6).
    fn go_on_behind_tools(&self, invocation: &mut Invocation) -> Result<(), CliError> {
        let version = self.version.as_deref();
        let Some(turn) = self.queue.last_unfinished()?.filter(|_| versions::may_be_cut(version)) else {
            return Ok(());
        };
        let runs = self.queue.invocations_of(turn)?;
        let Some(sent) = runs.iter().rev().find(|run| !run.note && run.session == invocation.session) else {
            return Ok(());
        };
        let receipt = self.read_receipt(sent)?;
        if let Some(at) = behind_tools(&receipt, version, &sent.row_uuid).filter(|_| receipt.on_live_chain) {
            invocation.route = Route::ResumeAt(at);
        }
        Ok(())
    }

    /// After a run that may have left a dead turn behind: notes which dead turns are out of the conversation now.
    pub(super) fn forget_what_is_out(&mut self, arrived: bool) -> Result<(), CliError> {
        let left = self.queue.left_in()?;
        if !arrived || left.is_empty() {
            return Ok(());
        }
        let PointerValue::Session(session) = self.companion.pointer.read()? else { return Ok(()) };
        for turn in left {
            if self.dead_receipt(turn, session)?.is_none_or(|receipt| !receipt.on_live_chain) {
                self.queue.note_taken_out(turn)?;
            }
        }
        Ok(())
    }

    /// What the session's transcript says about a dead turn; `None` when no run of it was ever recorded.
    fn dead_receipt(&self, turn: i64, session: SessionId) -> Result<Option<Receipt>, CliError> {
        let Some(last) = self.queue.invocations_of(turn)?.pop() else { return Ok(None) };
        let transcript = self.companion.transcript(session);
        Ok(Some(receipt::read(Path::new(&transcript), 0, &last.row_uuid)?))
    }
}

/// Nothing was done or said for the message, so that leaving it behind loses nothing.
fn untouched(receipt: &Receipt) -> bool {
    matches!(receipt.after, After::Absent | After::Nothing | After::ApiErrorOnly { .. } | After::Interrupted)
}
