//! Replies: stored with the acknowledgement of their turn, then handed to the front.

use kael_core::clock::Timestamp;
use rusqlite::{Row, Transaction, params};

use super::{Queue, QueueError, timestamp};

/// One text the assistant said, keyed by where it stands in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyPart {
    /// The API message it is part of.
    pub message_id: String,
    /// Its text block within that message.
    pub block_index: u32,
    /// The words, verbatim.
    pub words: String,
}

/// A stored reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its place in the outbox.
    pub id: i64,
    /// The turn it answers.
    pub turn: i64,
    /// The words and where they stand.
    pub part: ReplyPart,
    /// When it was stored.
    pub stored_at: Timestamp,
}

pub(super) fn insert_reply(
    t: &Transaction<'_>,
    turn: i64,
    part: &ReplyPart,
    at: Timestamp,
) -> rusqlite::Result<()> {
    t.execute(
        "INSERT INTO replies (turn, message_id, block_index, words, stored_at)
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
        params![turn, part.message_id, part.block_index, part.words, at.as_millis()],
    )
    .map(drop)
}

fn reply(row: &Row<'_>) -> rusqlite::Result<Reply> {
    Ok(Reply {
        id: row.get("id")?,
        turn: row.get("turn")?,
        part: ReplyPart {
            message_id: row.get("message_id")?,
            block_index: row.get("block_index")?,
            words: row.get("words")?,
        },
        stored_at: timestamp(row, "stored_at")?,
    })
}

impl Queue {
    /// The replies to a turn, in the order they were said.
    pub fn replies_to(&self, turn: i64) -> Result<Vec<Reply>, QueueError> {
        self.doing("read replies", |c| {
            c.prepare_cached("SELECT * FROM replies WHERE turn = ?1 ORDER BY id")?
                .query_map([turn], reply)?
                .collect()
        })
    }

    /// Every reply ever stored, in order: what the proof holds a candidate against.
    pub fn all_replies(&self) -> Result<Vec<Reply>, QueueError> {
        self.doing("read the outbox", |c| {
            c.prepare_cached("SELECT * FROM replies ORDER BY id")?.query_map([], reply)?.collect()
        })
    }
}
