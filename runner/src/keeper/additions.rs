//! `absorb = true`: what is said while a tool is at work is given to the running turn (DESIGN 9, facts 3 and 12).
//!
//! Measured on 2.1.199 and 2.1.332: the CLI takes such a line in when the tool is done, as an attachment that carries the
//! uuid that was sent; comes it too late, it is a turn of its own in the same process; dies the CLI first, it is lost.
//! The CLI does not know the uuid of an absorbed line again, so it is never sent twice on a guess: what became of it is
//! read from the transcript once its turn is over.

use std::path::Path;

use kael_core::ids::InvocationId;
use kael_core::transcript::receipt::{self, After, Receipt};
use serde_json::json;
use uuid::Uuid;

use crate::claude::process::Ended;
use crate::cli::error::CliError;
use crate::queue::{Addition, AdditionState, Invocation, MessageState, Route, TurnState};
use crate::versions;

use super::attempt::content_of;
use super::outcome::Run;
use super::{Keeper, Settled};

impl Keeper {
    /// Writes down that the message that waits longest is given to this run, and says what to write to it. Nothing while a human
    /// wants no turns, or where something else comes first.
    pub fn add_to(&mut self, running: &Invocation) -> Result<Option<Addition>, CliError> {
        let view = self.look()?;
        let now = self.now();
        let not_yet = view.debounced_at.is_some_and(|at| at > now);
        if view.queued == 0
            || view.paused
            || view.held
            || not_yet
            || !versions::absorbs(self.version.as_deref())
        {
            return Ok(None);
        }
        // The other half of a batch comes before what was said later.
        if self.queue.open_turns()? > 1 {
            return Ok(None);
        }
        // One at a time: the CLI's own copy of a line joins its blocks, and the proof of a later rebuild could not tell
        // whose words the copy holds.
        let mut waiting = self.queue.messages_in(MessageState::Queued)?;
        waiting.truncate(1);
        let members: Vec<i64> = waiting.iter().map(|message| message.id).collect();
        let content = content_of(&waiting);
        let row_uuid =
            self.addition_uuid(running, &waiting.iter().map(|m| m.key.as_str()).collect::<Vec<_>>())?;
        let line = json!({
            "type": "user",
            "message": { "role": "user", "content": content },
            "parent_tool_use_id": null,
            "session_id": "",
            "uuid": row_uuid,
        });
        let mut addition = Addition {
            id: 0,
            host: running.id,
            turn: running.turn,
            row_uuid,
            content: content.to_string(),
            line: format!("{line}\n").into_bytes(),
            at: now,
            state: AdditionState::Given,
        };
        let Some(id) = self.queue.give(&addition, &members)? else { return Ok(None) };
        addition.id = id;
        tracing::info!(turn = running.turn, messages = members.len(), "given to the running turn");
        Ok(Some(addition))
    }

    fn addition_uuid(&self, running: &Invocation, keys: &[&str]) -> Result<String, CliError> {
        let number = self.queue.addition_count(running.turn)?;
        let name = format!("{}\n{}\naddition {number}", running.id, keys.join("\n"));
        Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string())
    }

    /// Finds out what became of the additions whose process is gone, as far as that is certain yet. `run` is the run that
    /// has just ended. Gives the turns that the CLI made of additions, with what became of them.
    pub fn settle_additions(
        &mut self,
        ended: Option<(InvocationId, &Ended)>,
    ) -> Result<Vec<(i64, Settled)>, CliError> {
        let mut own = Vec::new();
        for addition in self.queue.open_additions()? {
            let Some(host) = self.host_of(&addition)? else {
                self.queue.return_addition(&addition)?;
                continue;
            };
            let receipt = self.addition_receipt(&addition, &host)?;
            if receipt.after == After::Absent || !receipt.on_live_chain {
                self.queue.return_addition(&addition)?;
                tracing::info!(
                    turn = addition.turn,
                    "what was given to the turn did not reach it and waits again"
                );
                continue;
            }
            let turn = self.queue.turn_state(addition.turn)?;
            match turn {
                // It goes on, and may leave the addition behind.
                Some(TurnState::Open) => {}
                Some(TurnState::Answered)
                    if receipt.absorbed || self.is_answer_of(addition.turn, &receipt)? =>
                {
                    self.queue.absorb(&addition, MessageState::Answered)?;
                }
                // Its words are in the conversation and cannot be sent again; they share the end of their turn.
                _ if receipt.absorbed => self.queue.absorb(&addition, MessageState::Dead)?,
                _ => {
                    let run = self.queue.make_own_turn(&addition, self.own_run(&addition, &host))?;
                    let its = ended.filter(|(of, _)| *of == addition.host);
                    let its = its.map(|(_, ended)| Ended {
                        result: ended.result_of_addition.clone(),
                        ..ended.clone()
                    });
                    let settled = self.settle_run(&run, &its.as_ref().map(Ok))?;
                    own.push((run.turn, settled));
                }
            }
        }
        Ok(own)
    }

    /// Whether the reply stands in the outbox already, as that turn's.
    fn is_answer_of(&self, turn: i64, receipt: &Receipt) -> Result<bool, CliError> {
        let stored = self.queue.replies_to(turn)?;
        let last = receipt.replies.last();
        Ok(last.is_some_and(|last| stored.iter().any(|reply| reply.part.message_id == last.message_id)))
    }

    /// A message that failed, and one that was added to it and answered behind it: the model had both before it, so that
    /// the answer is to both. Going back in front of the failure would lose it.
    pub(super) fn answered_with_addition(
        &self,
        host: &Invocation,
        receipt: &Receipt,
        run: &Run<'_>,
    ) -> Result<Option<Receipt>, CliError> {
        if receipt.after == After::Answered || !receipt.on_live_chain || matches!(run, Some(Err(_))) {
            return Ok(None);
        }
        for addition in self.queue.open_additions()?.into_iter().filter(|addition| addition.host == host.id) {
            let of_addition = self.addition_receipt(&addition, host)?;
            if of_addition.on_live_chain && of_addition.after == After::Answered && !of_addition.absorbed {
                return Ok(Some(of_addition));
            }
        }
        Ok(None)
    }

    /// Whether additions stand in the open turn: then nothing but its end says where they belong.
    pub(super) fn holds_additions(&self, turn: i64) -> Result<bool, CliError> {
        Ok(self.queue.open_additions()?.iter().any(|addition| addition.turn == turn))
    }

    fn host_of(&self, addition: &Addition) -> Result<Option<Invocation>, CliError> {
        Ok(self.queue.invocations_of(addition.turn)?.into_iter().find(|run| run.id == addition.host))
    }

    fn addition_receipt(&self, addition: &Addition, host: &Invocation) -> Result<Receipt, CliError> {
        Ok(receipt::read(Path::new(&host.transcript), host.from_offset, &addition.row_uuid)?)
    }

    /// The run that an addition with a turn of its own is taken to have been.
    fn own_run(&self, addition: &Addition, host: &Invocation) -> Invocation {
        Invocation {
            id: InvocationId::generate(),
            route: Route::Send,
            note: false,
            new_session: false,
            row_uuid: addition.row_uuid.clone(),
            line: addition.line.clone(),
            pid: None,
            pid_start: None,
            started_at: addition.at,
            ended_at: None,
            ending: None,
            detail: None,
            ..host.clone()
        }
    }
}
