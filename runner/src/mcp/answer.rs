//! What a model reads: answers that are short enough, operations without their manifests, and errors that say what to
//! do.

use kael_core::operation::{Operation, Status};
use serde_json::{Map, Value, json};

use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;
use crate::keeper::outcome_line;

/// Why a tool did nothing, and what the model is to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    what: String,
    remedy: String,
}

impl Refusal {
    /// `what` happened, and the `remedy`.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }

    /// The whole text.
    pub fn text(&self) -> String {
        format!("{}. What to do: {}.", self.what.trim_end_matches('.'), self.remedy)
    }
}

impl<E: Into<CliError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        let error: CliError = error.into();
        let remedy = match error.kind {
            ErrorKind::Busy => "leave it for now, and look once with thread_rebuild_status in a later turn",
            ErrorKind::Conflict => "do not try again; tell the human that somebody else changed the session",
            ErrorKind::Refused => "look with thread_rebuild_status, and tell the human what it says",
            ErrorKind::Usage => "correct the argument; thread_rebuild_status shows the ids of operations",
            ErrorKind::Configuration | ErrorKind::Failed => {
                "do not try again by yourself; tell the human, who can run `kael-runner doctor`"
            }
        };
        Self::new(error.message, remedy)
    }
}

/// The longest list in an answer; a plan's lists may have thousands of entries, and all of it is noise later on.
const LONGEST_LIST: usize = 20;
/// The longest text in an answer, in characters.
const LONGEST_TEXT: usize = 1000;

/// Cuts long lists and texts, and says under `left_out` how much is missing where.
#[must_use]
pub fn capped(mut value: Value) -> Value {
    let mut left_out = Map::new();
    cap(&mut value, "", &mut left_out);
    if let Some(object) = value.as_object_mut()
        && !left_out.is_empty()
    {
        object.insert("left_out".to_owned(), Value::Object(left_out));
    }
    value
}

fn cap(value: &mut Value, path: &str, left_out: &mut Map<String, Value>) {
    match value {
        Value::Array(items) => {
            if items.len() > LONGEST_LIST {
                left_out.insert(path.to_owned(), json!(items.len() - LONGEST_LIST));
                items.truncate(LONGEST_LIST);
            }
            for (at, item) in items.iter_mut().enumerate() {
                cap(item, &format!("{path}[{at}]"), left_out);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                cap(field, &inner, left_out);
            }
        }
        Value::String(text) => {
            let length = text.chars().count();
            if length > LONGEST_TEXT {
                let kept: String = text.chars().take(LONGEST_TEXT).collect();
                *text = format!("{kept} [... {} characters left out]", length - LONGEST_TEXT);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Fields of an operation's file that tell a model something.
const SHOWN: &[&str] = &[
    "operation_id",
    "kind",
    "status",
    "reasons",
    "requested_by",
    "created_at",
    "updated_at",
    "source_session_id",
    "new_session_id",
    "stats",
    "error",
    "failed_at",
    "session_conflict",
    "history",
];

/// Whether the operation waits for a human, by the configuration as it is now.
pub fn waits_for_human(companion: &Companion, operation: &Operation) -> bool {
    let pending = matches!(operation.status(), Status::Pending | Status::Verifying | Status::RollbackPending);
    let word_counts = super::actions::by_word(companion);
    pending && operation.yes().is_none_or(|yes| yes.by_word && !word_counts)
}

/// The answer about an operation: what it is, and what happens next.
pub fn about(companion: &Companion, operation: &Operation) -> Value {
    let whole = operation.to_json();
    let mut shown: Map<String, Value> = SHOWN
        .iter()
        .filter_map(|&name| Some((name.to_owned(), whole.get(name).filter(|v| !v.is_null())?.clone())))
        .collect();
    let waits = waits_for_human(companion, operation);
    shown.insert("waits_for_human".to_owned(), json!(waits));
    if waits {
        let expires = operation.waits_since().after(companion.config.runner.ask_expires);
        shown.insert("expires_at".to_owned(), json!(expires));
    }
    if let Some(yes) = operation.yes().filter(|_| !waits) {
        shown.insert("agreed_by".to_owned(), json!(yes.by));
    }
    json!({ "ok": true, "operation": shown, "next": next(operation, waits) })
}

fn next(operation: &Operation, waits: bool) -> String {
    let id = operation.id;
    match (operation.status(), waits) {
        (Status::Pending | Status::Verifying, true) => format!(
            "It is registered, and nothing more. A human must say yes outside this conversation (`kael-runner confirm \
             {id}`); a yes in the chat does not count, and the question runs out by itself. Go on with your answer to \
             the human; do not wait for it and do not ask again."
        ),
        (Status::RollbackPending, true) => format!(
            "The wish to go back is registered, and nothing more. A human must say yes outside this conversation \
             (`kael-runner confirm {id}`). It is refused if anything was said since the rebuild, because those words \
             would be left behind. Go on with your answer to the human."
        ),
        (Status::Pending | Status::Verifying | Status::RollbackPending, false) => {
            "It is agreed to, and is carried out after this turn, before the next one. Finish your answer to the human; \
             you will not notice the switch."
                .to_owned()
        }
        (
            Status::Scheduled
            | Status::Running
            | Status::Activating
            | Status::Activated
            | Status::RollbackScheduled
            | Status::RolledBack
            | Status::Failed
            | Status::Cancelled,
            _,
        ) => outcome_line(operation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_texts_are_cut_and_counted() {
        let value = capped(json!({
            "drops": (0..33).collect::<Vec<_>>(),
            "deep": { "lines": [(0..21).collect::<Vec<_>>(), [1]] },
            "text": "字".repeat(1003),
            "short": ["a"],
        }));
        assert_eq!(value["left_out"], json!({ "drops": 13, "deep.lines[0]": 1 }));
        assert_eq!(value["drops"].as_array().unwrap().len(), 20);
        assert!(value["text"].as_str().unwrap().ends_with("字 [... 3 characters left out]"));
        assert_eq!(capped(json!({ "short": ["a"] })), json!({ "short": ["a"] }));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal = Refusal::from(CliError::new(ErrorKind::Busy, "it is busy."));
        assert!(refusal.text().starts_with("it is busy. What to do: leave it for now"), "{}", refusal.text());
    }
}
