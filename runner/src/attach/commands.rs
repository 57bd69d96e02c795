//! What a client asks, carried out. Reading and waiting happen on threads that may block; what
//! changes an operation is left as a request for the lock holder, as any command leaves it.

use std::sync::Arc;

use kael_core::ids::OperationId;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cli::error::{CliError, ErrorKind};
use crate::cli::{dirty, operations, plan, send, status};
use crate::companion::Companion;
use crate::doorbell;
use crate::keeper::figures;
use crate::queue::{Message, NewMessage, Queue, Reply, RequestKind};

use super::FRONT;
use super::hub::{Hub, Snapshot};
use super::protocol::{ClientLine, CommandName, Level, SCHEMA, ServerLine, Wish};

/// So many of the last messages are shown to who attaches.
const PAST: u32 = 10;
const BY: &str = "a human at the terminal";

pub(super) struct Commands {
    companion: Companion,
    hub: Hub,
    stop_turn: Box<dyn Fn(i64) + Send + Sync>,
}

impl Commands {
    pub(super) fn new(companion: Companion, hub: Hub, stop_turn: Box<dyn Fn(i64) + Send + Sync>) -> Self {
        Self { companion, hub, stop_turn }
    }

    /// What who attaches is told first.
    pub(super) async fn greeting(self: &Arc<Self>, now: Snapshot) -> Vec<ServerLine> {
        let this = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || this.collect_greeting(now)).await;
        found.unwrap_or_else(|error| vec![failed(&error)])
    }

    fn collect_greeting(&self, now: Snapshot) -> Vec<ServerLine> {
        let session = self.companion.pointer.read().ok().and_then(|value| value.session());
        let mut lines = vec![ServerLine::Hello {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            companion: self.companion.config.name.clone(),
            session,
        }];
        match self.past(&now) {
            Ok(past) => lines.extend(past),
            Err(error) => lines.push(failed(&error)),
        }
        if let Some(running) = now.running {
            let turn = running.turn;
            lines.push(ServerLine::TurnStarted { turn, since: running.since });
            let parts = running.parts.into_iter();
            lines.extend(parts.map(|(message_id, block, text)| ServerLine::Part {
                turn,
                message_id,
                block,
                text,
            }));
            lines.extend(running.tool.map(|name| ServerLine::Tool { turn, name }));
        }
        lines.extend(now.standing);
        lines.extend(now.question);
        lines
    }

    fn past(&self, now: &Snapshot) -> Result<Vec<ServerLine>, CliError> {
        let queue = self.companion.queue()?;
        let messages = queue.last_messages(now.last_message, PAST)?;
        let mut lines = Vec::new();
        let mut told = std::collections::BTreeSet::new();
        for (at, message) in messages.iter().enumerate() {
            lines.push(said(message, true));
            // The reply to a turn stands after the last of its messages.
            let more = messages.get(at + 1).is_some_and(|next| next.turn == message.turn);
            if let Some(turn) = message.turn
                && !more
                && told.insert(turn)
            {
                let replies = queue.replies_to(turn)?;
                lines.extend(
                    replies.iter().filter(|r| r.id <= now.last_reply).map(|reply| replied(reply, true)),
                );
            }
        }
        Ok(lines)
    }

    /// Carries one line out. What takes long is answered later through `answers`.
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        asked: ClientLine,
        answers: &mpsc::Sender<ServerLine>,
    ) -> Option<ServerLine> {
        match asked {
            ClientLine::Stop { turn } => {
                (self.stop_turn)(turn);
                None
            }
            ClientLine::Say { key, words, sender } => {
                let this = Arc::clone(self);
                let (about, work) = (key.clone(), move || this.say(key, words, sender));
                Some(match tokio::task::spawn_blocking(work).await {
                    Ok(Ok(accepted)) => accepted,
                    Ok(Err(error)) => ServerLine::Error { text: error.message, key: Some(about) },
                    Err(error) => ServerLine::Error { text: error.to_string(), key: Some(about) },
                })
            }
            ClientLine::Answer { id, operation, digest, yes } => {
                let this = Arc::clone(self);
                Self::later(id, answers, move || this.answer(operation, &digest, yes));
                None
            }
            ClientLine::Command { id, name } => {
                let this = Arc::clone(self);
                Self::later(id, answers, move || this.command(name));
                None
            }
        }
    }

    fn later(
        id: u64,
        answers: &mpsc::Sender<ServerLine>,
        work: impl FnOnce() -> Result<String, CliError> + Send + 'static,
    ) {
        let answers = answers.clone();
        tokio::task::spawn_blocking(move || {
            let line = match work() {
                Ok(text) => ServerLine::Result { id, ok: true, text },
                Err(error) => ServerLine::Result { id, ok: false, text: error.message },
            };
            // Who asked may have gone.
            answers.blocking_send(line).unwrap_or_default();
        });
    }

    fn say(&self, key: String, words: String, sender: String) -> Result<ServerLine, CliError> {
        send::check_words(&words)?;
        let mut queue = self.companion.queue()?;
        let new = NewMessage { front: FRONT.to_owned(), key: key.clone(), sender, words };
        let accepted = queue.accept(&new, self.companion.clock.now())?;
        doorbell::ring(&self.companion.config.state_dir);
        Ok(ServerLine::Accepted { key, message: accepted.id, duplicate: accepted.duplicate })
    }

    fn answer(&self, operation: OperationId, digest: &str, yes: bool) -> Result<String, CliError> {
        // A way back has no plan, and so no digest.
        let digest = (!digest.is_empty()).then_some(digest);
        let arguments = json!({ "operation": operation, "by": BY, "digest": digest });
        if !yes {
            self.ask(RequestKind::Cancel, &arguments)?;
            return Ok("no: nothing was done".to_owned());
        }
        match self.ask(RequestKind::Confirm, &arguments) {
            Err(error) if error.kind == ErrorKind::Conflict && self.hub.asked() == Some(operation) => {
                // The figures that were said yes to are no longer those of the plan: show the present ones.
                self.ask_again(operation)?;
                Err(error)
            }
            other => other.map(|answer| next(&answer)),
        }
    }

    fn ask_again(&self, operation: OperationId) -> Result<(), CliError> {
        let plan = plan::make(&self.companion, None, None)?;
        let reasons = vec!["the conversation has gone on; these are the figures now".to_owned()];
        let figures = figures(&plan);
        let (what, digest) = (Wish::Rebuild, plan.digest());
        self.hub.publish(&ServerLine::Question { operation, what, digest, reasons, figures });
        Ok(())
    }

    fn command(&self, name: CommandName) -> Result<String, CliError> {
        let companion = &self.companion;
        match name {
            CommandName::Status => Ok(status::text(&status::collect(companion)?)),
            CommandName::Dirty => dirty::shown(companion),
            CommandName::Plan => plan::shown(companion),
            CommandName::Rebuild => {
                let arguments =
                    json!({ "reason": "asked for at the terminal", "by": BY, "confirmed": false });
                self.ask(RequestKind::Request, &arguments).map(|_| "a rebuild is asked for".to_owned())
            }
            CommandName::Rollback => self.ask(RequestKind::Rollback, &json!({})).map(|answer| next(&answer)),
            CommandName::RollbackCarrying => self
                .ask(RequestKind::Rollback, &json!({ "carry_new_turns": true }))
                .map(|answer| next(&answer)),
            CommandName::Retry => self.ask(RequestKind::Retry, &json!({})).map(|answer| next(&answer)),
            CommandName::GiveUp => self.ask(RequestKind::Skip, &json!({})).map(|answer| next(&answer)),
        }
    }

    /// Leaves a request and waits for the supervisor, which may be in the middle of a turn.
    fn ask(&self, kind: RequestKind, arguments: &Value) -> Result<Value, CliError> {
        let tell = |text: String| self.hub.publish(&ServerLine::Line { level: Level::Info, text });
        let answer = operations::ask_runner(&self.companion, kind, arguments, &tell)?;
        let answer = answer.ok_or_else(|| CliError::failed("the runner has gone: nothing was done"))?;
        CliError::from_answer(&answer).map_or(Ok(answer), Err)
    }
}

fn next(answer: &Value) -> String {
    answer["next"].as_str().unwrap_or("done").to_owned()
}

fn failed(error: &(dyn std::error::Error + 'static)) -> ServerLine {
    ServerLine::Line { level: Level::Error, text: kael_core::error_chain(error) }
}

/// A message as everyone is told of it.
pub(crate) fn said(message: &Message, past: bool) -> ServerLine {
    ServerLine::Said {
        message: message.id,
        front: message.front.clone(),
        key: message.key.clone(),
        sender: message.sender.clone(),
        words: message.words.clone(),
        at: message.at,
        past,
    }
}

/// A stored reply as everyone is told of it.
pub(crate) fn replied(reply: &Reply, past: bool) -> ServerLine {
    ServerLine::Reply {
        reply: reply.id,
        turn: reply.turn,
        message_id: reply.part.message_id.clone(),
        block: reply.part.block_index,
        words: reply.part.words.clone(),
        at: reply.stored_at,
        past,
    }
}

/// What was told before a runner starts: everything that is stored.
pub(crate) fn hub_of(queue: &Queue) -> Result<Hub, CliError> {
    let (message, reply) = queue.newest()?;
    Ok(Hub::new(message, reply))
}
