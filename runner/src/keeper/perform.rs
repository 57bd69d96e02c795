//! Requests of commands, carried out by whoever holds the lock.

use kael_core::config::Activation;
use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::{OpState, Operation, Status};
use kael_core::pointer::PointerValue;
use serde_json::{Value, json};

use crate::cli::error::{CliError, ErrorKind};
use crate::queue::{Hold, RequestKind, Setting};

use super::Keeper;
use super::operations::outcome_line;

impl Keeper {
    /// Answers the oldest request. Returns whether turns may be tried again at once because of it.
    pub fn answer_next_request(&mut self) -> Result<bool, CliError> {
        let Some(request) = self.queue.next_request()? else { return Ok(false) };
        let result = self.perform(request.kind, &request.arguments);
        let answer = match &result {
            Ok(value) => value.clone(),
            Err(error) => error.to_answer(),
        };
        self.queue.answer_request(request.id, &answer)?;
        let wakes = matches!(request.kind, RequestKind::Retry | RequestKind::Skip | RequestKind::Continue);
        Ok(wakes && result.is_ok())
    }

    /// Carries a request out. What it answers is what the command prints.
    pub fn perform(&mut self, kind: RequestKind, arguments: &Value) -> Result<Value, CliError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        match kind {
            RequestKind::Request => {
                let mut operation = self.request(text("reason"), text("by"), false)?;
                if arguments["confirmed"] == true && self.is_elsewhere() {
                    // No runner takes it up before the next turn, and after that one the plan would be another.
                    return self.agree_and_operate(operation.id, text("by"), None, false);
                }
                if arguments["confirmed"] == true {
                    operation = self.confirm(operation.id, text("by"), None, false)?;
                }
                Ok(shown(&operation, "registered"))
            }
            RequestKind::Confirm => {
                let id = self.named(arguments, Status::Pending)?;
                self.agree_and_operate(id, text("by"), arguments["digest"].as_str(), true)
            }
            RequestKind::Cancel => {
                let id = self.named(arguments, Status::Pending)?;
                let operation = self.store.lock()?.cancel(id, self.now())?;
                self.remember_told();
                Ok(shown(&operation, "taken back"))
            }
            RequestKind::Prepare => {
                let id = self.named(arguments, Status::Pending)?;
                let operation = self.prepare(id)?;
                self.result(&operation)
            }
            RequestKind::Activate => {
                let id = self.named(arguments, Status::Verifying)?;
                let operation = self.activate(id)?;
                self.result(&operation)
            }
            RequestKind::Rollback => {
                let id = self.named(arguments, Status::Activated)?;
                let operation = match arguments["carry_new_turns"] == true {
                    true => self.carry_back(id, "a human")?,
                    false => self.roll_back(id, "a human")?,
                };
                self.result(&operation)
            }
            RequestKind::PointerSet => self.set_pointer(arguments),
            RequestKind::Clear => {
                let id = match arguments["operation"].as_str() {
                    Some(id) => parse_operation(id)?,
                    None => self.store.session_conflict()?.ok_or_else(|| {
                        CliError::refused("there is no session conflict: nothing was changed")
                    })?,
                };
                let operation = self.store.lock()?.clear_conflict(id, text("by"), self.now())?;
                Ok(shown(&operation, "the conflict is cleared; policies may ask for rebuilds again"))
            }
            RequestKind::Gc => {
                let limits = serde_json::from_value(arguments["limits"].clone()).unwrap_or_default();
                Ok(super::report_json(&self.clear_away(limits)?, false))
            }
            RequestKind::PutBack => self.put_back(arguments["session"].as_str()),
            RequestKind::Retry => self.retry(),
            RequestKind::Skip => self.skip(),
            RequestKind::Pause | RequestKind::Continue => {
                let paused = kind == RequestKind::Pause;
                self.queue.set(Setting::Paused, &paused)?;
                let line = if paused {
                    "no new turn is taken until `kael-runner continue`"
                } else {
                    "turns are taken again"
                };
                Ok(json!({ "schema": 1, "ok": true, "paused": paused, "next": line }))
            }
        }
    }

    /// The operation a command names, or the one it must mean: the newest in the state that the command is for.
    fn named(&self, arguments: &Value, wanted: Status) -> Result<OperationId, CliError> {
        if let Some(id) = arguments["operation"].as_str() {
            return Ok(self.store.load(parse_operation(id)?)?.id);
        }
        let found = match wanted {
            // A rollback that somebody asked for already is the one that is meant.
            Status::Activated => match self.store.active()? {
                Some(active) if active.status() == Status::RollbackPending => Some(active),
                _ => self.store.newest_activated()?,
            },
            // A yes or a no may also be about a proved candidate or a rollback.
            Status::Pending => self.pending_operation()?,
            _ => self.store.active()?.filter(|op| op.status() == wanted),
        };
        found.map(|op| op.id).ok_or_else(|| {
            CliError::refused(format!(
                "there is no operation that is {wanted}{}: `kael-runner status` shows the latest",
                if wanted == Status::Activated { ", and so nothing to go back to" } else { "" }
            ))
        })
    }

    /// Whether `claude` lives in a pane or unit.
    fn is_elsewhere(&self) -> bool {
        self.companion.config.activation != Activation::Pointer
    }

    /// Notes a human's yes and carries the operation out.
    fn agree_and_operate(
        &mut self,
        id: OperationId,
        by: &str,
        shown: Option<&str>,
        asked: bool,
    ) -> Result<Value, CliError> {
        if self.is_elsewhere() && self.store.load(id)?.status() == Status::Pending {
            // A CLI that lives on makes its notes at any time, so the yes is to what is frozen.
            let operation = self.prepare(id)?;
            if operation.status() != Status::Verifying {
                return self.result(&operation);
            }
        }
        let rollback = self.confirm(id, by, shown, asked)?.status() == Status::RollbackPending;
        let line = self.operate(id)?;
        self.told(id, &line, rollback)
    }

    /// What came of an operation that was carried out at once.
    fn told(&self, id: OperationId, line: &str, rollback: bool) -> Result<Value, CliError> {
        let operation = self.store.load(id)?;
        match operation.state() {
            OpState::Failed { session_conflict: true, .. } => Err(CliError::new(ErrorKind::Conflict, line)),
            OpState::Failed { .. } => Err(CliError::refused(line)),
            OpState::Activated(_) if rollback => Err(CliError::refused(line)),
            OpState::RolledBack { reason: Some(_), .. } if !rollback => Err(CliError::refused(line)),
            _ => Ok(shown(&operation, line)),
        }
    }

    fn result(&mut self, operation: &Operation) -> Result<Value, CliError> {
        let line = outcome_line(operation);
        match operation.state() {
            OpState::Failed { session_conflict: true, .. } => Err(CliError::new(ErrorKind::Conflict, line)),
            OpState::Failed { .. } => {
                self.remember_told();
                Err(CliError::refused(line))
            }
            _ => Ok(shown(operation, &line)),
        }
    }

    fn set_pointer(&mut self, arguments: &Value) -> Result<Value, CliError> {
        let session = |name: &str| -> Result<Option<SessionId>, CliError> {
            arguments[name].as_str().map(crate::companion::Companion::session).transpose()
        };
        let Some(new) = session("session")? else { return Err(CliError::failed("no session was named")) };
        if let Some(turn) = self.queue.open_turn()? {
            tracing::warn!(
                turn = turn.id,
                "the pointer is set while a turn is not answered: it goes on in the new session"
            );
        }
        let now = self.now();
        let by = arguments["by"].as_str().unwrap_or("pointer set");
        let pointer = &self.companion.pointer;
        if pointer.read().is_ok_and(|value| value == PointerValue::Session(new)) {
            return Ok(json!({ "schema": 1, "ok": true, "session": new, "changed": false }));
        }
        if arguments["expected"] == "anything" {
            // A human's word mends a broken pointer, too; what it said is kept beside it.
            pointer.set_over(new, by, now)?;
        } else {
            pointer.set(PointerValue::from(session("expected")?), new, by, now)?;
        }
        self.queue.clear(Setting::Ledger)?;
        Ok(json!({ "schema": 1, "ok": true, "session": new, "changed": true }))
    }

    fn retry(&mut self) -> Result<Value, CliError> {
        let held = self.queue.get::<Hold>(Setting::Hold)?.is_some();
        self.queue.clear(Setting::Hold)?;
        self.queue.clear(Setting::NextRetry)?;
        let turn = self.queue.open_turn()?;
        if let Some(turn) = &turn {
            self.queue.forgive(turn.id)?;
        }
        let next = match (held, &turn) {
            (_, Some(turn)) => format!("turn {} is tried again", turn.id),
            (true, None) => "the hold is ended".to_owned(),
            (false, None) => "nothing was held and no turn is open".to_owned(),
        };
        Ok(json!({ "schema": 1, "ok": true, "turn": turn.map(|turn| turn.id), "next": next }))
    }

    fn skip(&mut self) -> Result<Value, CliError> {
        let Some(turn) = self.queue.open_turn()? else {
            return Err(CliError::refused("no turn is open: there is nothing to give up"));
        };
        self.queue.give_up(turn.id, (None, "given up by a human"), self.now())?;
        self.settle_additions(None)?;
        self.queue.clear(Setting::Hold)?;
        self.queue.clear(Setting::NextRetry)?;
        Ok(json!({
            "schema": 1,
            "ok": true,
            "turn": turn.id,
            "next": format!("turn {} is given up; its messages are dead letters and the next one may go", turn.id),
        }))
    }
}

fn shown(operation: &Operation, next: &str) -> Value {
    json!({ "schema": 1, "ok": true, "operation": operation.to_json(), "next": next })
}

fn parse_operation(text: &str) -> Result<OperationId, CliError> {
    text.parse().map_err(|error| CliError::from_error(ErrorKind::Usage, &error))
}
