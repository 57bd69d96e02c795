//! Messages that were given to a turn that ran already (`absorb = true`). Written down before the CLI reads them; what
//! became of them is known when their turn is over: the CLI took them into it, made a turn of their own of them, or
//! never saw them, and then they wait as if nothing had been.

use kael_core::clock::Timestamp;
use kael_core::ids::InvocationId;
use rusqlite::{OptionalExtension, Row, params};

use super::turns::insert_invocation;
use super::{Invocation, MessageState, Queue, QueueError, TurnState, parsed, stored_word, timestamp};

/// What became of an addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdditionState {
    /// Written to the CLI, or about to be.
    Given,
    /// In the conversation, as part of the turn it was given to.
    Absorbed,
    /// Not in the conversation; its messages wait again.
    Returned,
    /// The CLI made a turn of its own of it.
    Own,
}

stored_word!(AdditionState, "addition state", {
    Given => "given", Absorbed => "absorbed", Returned => "returned", Own => "own",
});

/// Messages given to a running turn in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// Its number.
    pub id: i64,
    /// The run whose standard input it was written to.
    pub host: InvocationId,
    /// The turn that run belongs to.
    pub turn: i64,
    /// The uuid it was sent under.
    pub row_uuid: String,
    /// Its content blocks, as JSON.
    pub content: String,
    /// The bytes that were written.
    pub line: Vec<u8>,
    /// When.
    pub at: Timestamp,
    /// What became of it.
    pub state: AdditionState,
}

fn addition(row: &Row<'_>) -> rusqlite::Result<Addition> {
    Ok(Addition {
        id: row.get("id")?,
        host: parsed(row, "host")?,
        turn: row.get("turn")?,
        row_uuid: row.get("row_uuid")?,
        content: row.get("content")?,
        line: row.get("line")?,
        at: timestamp(row, "at")?,
        state: row.get("state")?,
    })
}

impl Queue {
    /// Writes down that these queued messages are given to a running turn. `None`, and nothing changes, when one of them
    /// is not queued any more. Must have returned before the CLI gets the line.
    pub fn give(&mut self, new: &Addition, members: &[i64]) -> Result<Option<i64>, QueueError> {
        self.transaction("give messages to a running turn", |t| {
            t.execute(
                "INSERT INTO additions (host, turn, row_uuid, content, line, at, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    new.host.to_string(),
                    new.turn,
                    new.row_uuid,
                    new.content,
                    new.line,
                    new.at.as_millis(),
                    AdditionState::Given
                ],
            )?;
            let id = t.last_insert_rowid();
            for member in members {
                let moved = t.execute(
                    "UPDATE messages SET state = ?1, addition = ?2 WHERE id = ?3 AND state = ?4",
                    params![MessageState::Delivering, id, member, MessageState::Queued],
                )?;
                if moved != 1 {
                    return Err(rusqlite::Error::StatementChangedRows(moved));
                }
            }
            Ok(id)
        })
        .map(Some)
        .or_else(|error| match error {
            QueueError::Sqlite { source: rusqlite::Error::StatementChangedRows(_), .. } => Ok(None),
            other => Err(other),
        })
    }

    /// Additions of which it is not known yet what became of them, oldest first.
    pub fn open_additions(&self) -> Result<Vec<Addition>, QueueError> {
        self.additions("WHERE state = 'given'")
    }

    /// All additions, oldest first.
    pub fn all_additions(&self) -> Result<Vec<Addition>, QueueError> {
        self.additions("")
    }

    fn additions(&self, which: &str) -> Result<Vec<Addition>, QueueError> {
        self.doing("read the additions", |c| {
            c.prepare_cached(&format!("SELECT * FROM additions {which} ORDER BY id"))?
                .query_map([], addition)?
                .collect()
        })
    }

    /// How many were given to a turn, over all its runs.
    pub fn addition_count(&self, turn: i64) -> Result<u64, QueueError> {
        self.doing("count the additions", |c| {
            c.query_row("SELECT count(*) FROM additions WHERE turn = ?1", [turn], |row| row.get(0))
        })
    }

    /// It is part of its turn, which is over: its messages share the turn's end.
    pub fn absorb(&mut self, addition: &Addition, end: MessageState) -> Result<(), QueueError> {
        self.transaction("store what became of an addition", |t| {
            t.execute(
                "UPDATE messages SET state = ?2, turn = ?3 WHERE addition = ?1 AND state = ?4",
                params![addition.id, end, addition.turn, MessageState::Delivering],
            )?;
            set_state(t, addition.id, AdditionState::Absorbed)
        })
    }

    /// It never was in the conversation that goes on: its messages wait again.
    pub fn return_addition(&mut self, addition: &Addition) -> Result<(), QueueError> {
        self.transaction("take an addition back", |t| {
            t.execute(
                "UPDATE messages SET state = ?2, addition = NULL WHERE addition = ?1 AND state = ?3",
                params![addition.id, MessageState::Queued, MessageState::Delivering],
            )?;
            set_state(t, addition.id, AdditionState::Returned)
        })
    }

    /// The CLI made a turn of its own of it: from now on it is one here, too, with a run whose receipt is to be read.
    /// `run.turn` is given by this.
    pub fn make_own_turn(
        &mut self,
        addition: &Addition,
        mut run: Invocation,
    ) -> Result<Invocation, QueueError> {
        self.transaction("make a turn of an addition", |t| {
            t.execute(
                "INSERT INTO turns (state, content, created_at) VALUES (?1, ?2, ?3)",
                params![TurnState::Open, addition.content, addition.at.as_millis()],
            )?;
            run.turn = t.last_insert_rowid();
            t.execute(
                "UPDATE messages SET turn = ?2 WHERE addition = ?1 AND state = ?3",
                params![addition.id, run.turn, MessageState::Delivering],
            )?;
            insert_invocation(t, &run)?;
            set_state(t, addition.id, AdditionState::Own)?;
            Ok(run)
        })
    }

    /// Whether a turn still wants an answer.
    pub fn turn_state(&self, turn: i64) -> Result<Option<TurnState>, QueueError> {
        self.doing("read a turn", |c| {
            c.query_row("SELECT state FROM turns WHERE id = ?1", [turn], |row| row.get(0)).optional()
        })
    }

    /// How many turns are open; several only after a split.
    pub fn open_turns(&self) -> Result<u64, QueueError> {
        self.doing("count the open turns", |c| {
            c.query_row("SELECT count(*) FROM turns WHERE state = ?1", [TurnState::Open], |row| row.get(0))
        })
    }
}

fn set_state(t: &rusqlite::Transaction<'_>, id: i64, state: AdditionState) -> rusqlite::Result<()> {
    t.execute("UPDATE additions SET state = ?2 WHERE id = ?1", params![id, state]).map(drop)
}
