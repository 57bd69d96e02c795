//! What commands ask of a living runner: they write a request, ring, and wait for its answer,
//! because only the lock holder runs operations (DESIGN 7).

use kael_core::clock::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::{Queue, QueueError, stored_word};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// Register a rebuild.
    Request,
    /// A human's yes to a pending operation.
    Confirm,
    /// Withdraw a pending operation.
    Cancel,
    /// Freeze, plan, build and prove, but do not switch.
    Prepare,
    /// Switch to a prepared candidate.
    Activate,
    /// Go back to the session before.
    Rollback,
    /// Point somewhere else.
    PointerSet,
    /// End a hold and try again.
    Retry,
    /// Give the open turn up and go on with the next message.
    Skip,
    /// Take no new turn until told.
    Pause,
    /// Take turns again.
    Continue,
    /// Clear a `session_conflict` after a human has looked.
    Clear,
    /// Clear old evidence away.
    Gc,
    /// Put the kept copy of a transcript in its place.
    PutBack,
}

stored_word!(RequestKind, "request", {
    Request => "request",
    Confirm => "confirm",
    Cancel => "cancel",
    Prepare => "prepare",
    Activate => "activate",
    Rollback => "rollback-request",
    PointerSet => "pointer-set",
    Retry => "retry",
    Skip => "skip",
    Pause => "pause",
    Continue => "continue",
    Clear => "clear",
    Gc => "gc",
    PutBack => "put-back",
});

/// A request that waits for the runner.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its number.
    pub id: i64,
    /// What is asked.
    pub kind: RequestKind,
    /// With which arguments.
    pub arguments: Value,
}

impl Queue {
    /// Leaves a request for the runner and returns its number.
    pub fn leave_request(
        &mut self,
        kind: RequestKind,
        arguments: &Value,
        at: Timestamp,
    ) -> Result<i64, QueueError> {
        self.transaction("leave a request", |t| {
            t.execute(
                "INSERT INTO requests (kind, arguments, at) VALUES (?1, ?2, ?3)",
                params![kind, arguments.to_string(), at.as_millis()],
            )?;
            Ok(t.last_insert_rowid())
        })
    }

    /// The oldest request without an answer.
    pub fn next_request(&self) -> Result<Option<Request>, QueueError> {
        self.doing("read requests", |c| {
            c.prepare_cached("SELECT * FROM requests WHERE answer IS NULL ORDER BY id LIMIT 1")?
                .query_row([], |row| {
                    let arguments: String = row.get("arguments")?;
                    Ok(Request {
                        id: row.get("id")?,
                        kind: row.get("kind")?,
                        arguments: serde_json::from_str(&arguments).unwrap_or(Value::Null),
                    })
                })
                .optional()
        })
    }

    /// Stores the answer to a request.
    pub fn answer_request(&mut self, id: i64, answer: &Value) -> Result<(), QueueError> {
        self.transaction("answer a request", |t| {
            t.execute("UPDATE requests SET answer = ?2 WHERE id = ?1", params![id, answer.to_string()])
                .map(drop)
        })
    }

    /// The answer to a request, once there is one.
    pub fn request_answer(&self, id: i64) -> Result<Option<Value>, QueueError> {
        self.doing("read an answer", |c| {
            let text: Option<String> =
                c.query_row("SELECT answer FROM requests WHERE id = ?1", [id], |row| row.get(0))?;
            Ok(text.map(|text| serde_json::from_str(&text).unwrap_or(Value::Null)))
        })
    }

    /// Withdraws a request that nobody has answered; false when it was answered after all.
    pub fn withdraw_request(&mut self, id: i64) -> Result<bool, QueueError> {
        self.transaction("withdraw a request", |t| {
            Ok(t.execute("DELETE FROM requests WHERE id = ?1 AND answer IS NULL", [id])? == 1)
        })
    }
}
