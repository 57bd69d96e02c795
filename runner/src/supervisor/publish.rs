//! What the loop tells those who are attached, and the log.

use kael_core::ids::OperationId;
use kael_core::operation::{Kind, Status};

use crate::attach::{self, Level, Outcome, ServerLine, Wish};
use crate::claude::stream::StreamEvent;
use crate::cli::error::CliError;
use crate::keeper::{figures, outcome_line, question_line};
use crate::queue::{Hold, Setting};

use super::Supervisor;
use super::decide::View;

impl Supervisor {
    /// The runner's own words, to everyone attached and to the log.
    pub(super) fn tell(&self, level: Level, text: &str) {
        match level {
            Level::Info => tracing::info!("{text}"),
            Level::Warning => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
        self.hub.publish(&ServerLine::Line { level, text: text.to_owned() });
    }

    /// Messages that have come in, through whichever front.
    pub(super) fn publish_said(&self) -> Result<(), CliError> {
        let (told, _) = self.hub.told();
        for message in self.keeper.queue.messages_after(told)? {
            self.hub.publish(&attach::said(&message, false));
        }
        Ok(())
    }

    /// What has changed since the last look.
    pub(super) fn publish_state(&mut self, view: &View) -> Result<(), CliError> {
        self.publish_said()?;
        self.publish_standing(view)?;
        self.publish_question(view.question)
    }

    fn publish_standing(&mut self, view: &View) -> Result<(), CliError> {
        let now = match (view.held, view.paused) {
            (true, _) => {
                let hold = self.keeper.queue.get::<Hold>(Setting::Hold)?;
                hold.map(|hold| (Level::Error, format!("the queue is held: {}", hold.reason)))
            }
            (false, true) => {
                Some((Level::Warning, "paused: no turn is taken until `kael-runner continue`".to_owned()))
            }
            (false, false) => None,
        };
        let text = now.as_ref().map(|(_, text)| text.clone());
        if text == self.standing {
            return Ok(());
        }
        let line = now.map(|(level, text)| ServerLine::Line { level, text });
        match &line {
            Some(line) => self.hub.publish(line),
            None => self.tell(Level::Info, "turns are taken again"),
        }
        self.hub.set_standing(line);
        self.standing = text;
        Ok(())
    }

    /// A rebuild that waits for a yes, with the figures of the plan as it is now; a yes is bound to them.
    fn publish_question(&mut self, question: Option<OperationId>) -> Result<(), CliError> {
        let asked = self.hub.asked();
        if asked == question {
            return Ok(());
        }
        if let Some(operation) = asked {
            let outcome = outcome_line(&self.keeper.store.load(operation)?);
            self.hub.publish(&ServerLine::QuestionClosed { operation, outcome });
        }
        let Some(operation) = question else { return Ok(()) };
        let pending = self.keeper.store.load(operation)?;
        if pending.status() == Status::RollbackPending || pending.kind == Kind::Return {
            let (what, digest) = (Wish::Rollback, String::new());
            let (reasons, figures) = (vec![question_line(&pending)], Vec::new());
            self.hub.publish(&ServerLine::Question { operation, what, digest, reasons, figures });
            return Ok(());
        }
        let reasons = vec![question_line(&pending)];
        // Without a plan there is nothing to say yes to; the worker will say the same and fail.
        let (digest, mut figures) = match self.keeper.plan_now(None) {
            Ok(plan) => {
                let blocked = plan.blocked_reason();
                // What may be confirmed in spite of it is shown, and a yes is bound to it.
                let head = if plan.blocked_record(true).is_empty() {
                    "speaks against it"
                } else {
                    "not possible now"
                };
                let blocked = (!blocked.is_empty()).then(|| format!("{head}: {blocked}"));
                (plan.digest(), figures(&plan).into_iter().chain(blocked).collect::<Vec<_>>())
            }
            Err(error) => (String::new(), vec![format!("not possible now: {}", error.message)]),
        };
        figures.iter_mut().for_each(|line| *line = line.trim().to_owned());
        let what = Wish::Rebuild;
        self.hub.publish(&ServerLine::Question { operation, what, digest, reasons, figures });
        Ok(())
    }

    /// One event of the turn's stream. `message` is the API message that began last.
    pub(super) fn publish_event(&self, turn: i64, event: StreamEvent, message: &mut String) {
        match event {
            StreamEvent::MessageStart { id } => *message = id,
            StreamEvent::Delta { block, text } => {
                let message_id = message.clone();
                self.hub.publish(&ServerLine::Part { turn, message_id, block, text });
            }
            StreamEvent::ToolUse { name } => self.hub.publish(&ServerLine::Tool { turn, name }),
            StreamEvent::Retry { attempt, status } => {
                let status =
                    status.map_or_else(|| "no answer".to_owned(), |status| format!("status {status}"));
                let text = format!("the API refused ({status}); the CLI asks again, time {attempt}");
                self.hub.publish(&ServerLine::Line { level: Level::Warning, text });
            }
            StreamEvent::Init { .. }
            | StreamEvent::Limit { .. }
            | StreamEvent::ApiError { .. }
            | StreamEvent::Replay { .. }
            | StreamEvent::Text
            | StreamEvent::ToolDone
            | StreamEvent::Result(_)
            | StreamEvent::Other => {}
        }
    }

    /// The end of a turn's run: what is stored of its reply, then what came of it.
    pub(super) fn publish_end(&self, turn: i64, outcome: Outcome, kept: Vec<String>) -> Result<(), CliError> {
        let (_, told) = self.hub.told();
        for reply in self.keeper.queue.replies_to(turn)?.iter().filter(|reply| reply.id > told) {
            self.hub.publish(&attach::replied(reply, false));
        }
        self.hub.publish(&ServerLine::TurnEnded { turn, outcome, kept });
        Ok(())
    }
}
