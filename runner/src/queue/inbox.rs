//! Messages, from the moment they are accepted until they are answered or given up.

use kael_core::clock::Timestamp;
use kael_core::ids::OperationId;
use rusqlite::{OptionalExtension, Row, params};

use super::{Queue, QueueError, parsed, stored_word, timestamp};

/// Where a message stands (DESIGN 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waits for its turn.
    Queued,
    /// Part of a turn that is not finished.
    Delivering,
    /// In the conversation, with its answer.
    Answered,
    /// Given up; its human was told why.
    Dead,
    /// Taken back before it was delivered.
    Cancelled,
    /// In the open tail of a session that an operation is rebuilding.
    Held,
}

stored_word!(MessageState, "message state", {
    Queued => "queued",
    Delivering => "delivering",
    Answered => "answered",
    Dead => "dead",
    Cancelled => "cancelled",
    Held => "held",
});

/// A message as a front hands it over.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// The front it came through, such as `send`.
    pub front: String,
    /// What makes it one message however often it is handed over; unique within its front.
    pub key: String,
    /// Who said it, as the front names them.
    pub sender: String,
    /// The words, exactly as typed.
    pub words: String,
}

/// What became of a message that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Its place in the inbox.
    pub id: i64,
    /// The key was known: nothing was stored, this is the message from before.
    pub duplicate: bool,
}

/// A message in the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its place in the inbox; order of acceptance.
    pub id: i64,
    /// The front it came through.
    pub front: String,
    /// Its key within that front.
    pub key: String,
    /// Who said it.
    pub sender: String,
    /// The words, exactly as typed.
    pub words: String,
    /// When it was accepted.
    pub at: Timestamp,
    /// Where it stands.
    pub state: MessageState,
    /// The turn it is or was part of.
    pub turn: Option<i64>,
    /// The operation that holds it.
    pub operation: Option<OperationId>,
}

const COLUMNS: &str = "id, front, key, sender, words, at, state, turn, operation";

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    Ok(Message {
        id: row.get("id")?,
        front: row.get("front")?,
        key: row.get("key")?,
        sender: row.get("sender")?,
        words: row.get("words")?,
        at: timestamp(row, "at")?,
        state: row.get("state")?,
        turn: row.get("turn")?,
        operation: match row.get::<_, Option<String>>("operation")? {
            Some(_) => Some(parsed(row, "operation")?),
            None => None,
        },
    })
}

impl Queue {
    /// Stores a message durably, unless its key is known. Returns once it is on disk.
    pub fn accept(&mut self, new: &NewMessage, at: Timestamp) -> Result<Accepted, QueueError> {
        self.transaction("store a message", |t| {
            let known: Option<i64> = t
                .query_row(
                    "SELECT id FROM messages WHERE front = ?1 AND key = ?2",
                    params![new.front, new.key],
                    |row| row.get(0),
                )
                .optional()?;
            if let Some(id) = known {
                return Ok(Accepted { id, duplicate: true });
            }
            t.execute(
                "INSERT INTO messages (front, key, sender, words, at, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![new.front, new.key, new.sender, new.words, at.as_millis(), MessageState::Queued],
            )?;
            Ok(Accepted { id: t.last_insert_rowid(), duplicate: false })
        })
    }

    /// One message by its place.
    pub fn message(&self, id: i64) -> Result<Option<Message>, QueueError> {
        self.doing("read a message", |c| {
            c.query_row(&format!("SELECT {COLUMNS} FROM messages WHERE id = ?1"), [id], message).optional()
        })
    }

    /// All messages in one state, oldest first.
    pub fn messages_in(&self, state: MessageState) -> Result<Vec<Message>, QueueError> {
        self.doing("read the inbox", |c| {
            c.prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE state = ?1 ORDER BY id"))?
                .query_map([state], message)?
                .collect()
        })
    }

    /// The messages of a turn, in order.
    pub fn messages_of(&self, turn: i64) -> Result<Vec<Message>, QueueError> {
        self.doing("read a turn's messages", |c| {
            c.prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE turn = ?1 ORDER BY id"))?
                .query_map([turn], message)?
                .collect()
        })
    }

    /// The last messages up to this place, oldest first.
    pub fn last_messages(&self, up_to: i64, most: u32) -> Result<Vec<Message>, QueueError> {
        self.doing("read the last messages", |c| {
            let mut found: Vec<Message> = c
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM messages WHERE id <= ?1 ORDER BY id DESC LIMIT ?2"
                ))?
                .query_map(params![up_to, most], message)?
                .collect::<rusqlite::Result<_>>()?;
            found.reverse();
            Ok(found)
        })
    }

    /// The messages after this place, oldest first.
    pub fn messages_after(&self, place: i64) -> Result<Vec<Message>, QueueError> {
        self.doing("read new messages", |c| {
            c.prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE id > ?1 ORDER BY id"))?
                .query_map([place], message)?
                .collect()
        })
    }

    /// The places of the newest message and of the newest reply; 0 where there is none.
    pub fn newest(&self) -> Result<(i64, i64), QueueError> {
        self.doing("read the newest places", |c| {
            c.query_row(
                "SELECT (SELECT coalesce(max(id), 0) FROM messages), (SELECT coalesce(max(id), 0) FROM replies)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
        })
    }

    /// Marks the messages of a turn as held by an operation that leaves their rows out of its candidate.
    pub fn hold_messages(&mut self, turn: i64, operation: OperationId) -> Result<(), QueueError> {
        self.transaction("hold messages", |t| {
            t.execute(
                "UPDATE messages SET state = ?1, operation = ?2 WHERE turn = ?3 AND state = ?4",
                params![MessageState::Held, operation.to_string(), turn, MessageState::Delivering],
            )
            .map(drop)
        })
    }

    /// Gives held messages back to their turn, whatever came of the operation: if it left their rows out they are
    /// sent again, else they stand where they stood.
    pub fn give_back_held(&mut self) -> Result<(), QueueError> {
        self.transaction("give held messages back", |t| {
            t.execute(
                "UPDATE messages SET state = ?1, operation = NULL WHERE state = ?2",
                params![MessageState::Delivering, MessageState::Held],
            )
            .map(drop)
        })
    }

    /// How many messages are in each state; states without one are left out.
    pub fn message_counts(&self) -> Result<Vec<(MessageState, u64)>, QueueError> {
        self.doing("count the inbox", |c| {
            c.prepare_cached("SELECT state, count(*) FROM messages GROUP BY state ORDER BY state")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }
}
