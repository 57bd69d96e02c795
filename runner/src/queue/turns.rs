//! Turns (frozen batches of messages) and the invocations that try to get them answered.

use std::collections::HashSet;

use kael_core::clock::Timestamp;
use kael_core::ids::{InvocationId, SessionId};
use rusqlite::{OptionalExtension, Row, params};

use super::outbox::insert_reply;
use super::{MessageState, Queue, QueueError, ReplyPart, optional_timestamp, parsed, stored_word, timestamp};

/// Stands in `detail` while a run that a human wants stopped is not closed.
const STOP_NOTED: &str = "a human wants it stopped";

/// Whether a turn still wants an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnState {
    /// Not answered yet. Only the oldest is worked on; there are several only after a split.
    Open,
    /// Answered; its replies are stored.
    Answered,
    /// Given up.
    Dead,
    /// Failed as a batch; each of its messages is a turn of its own now.
    Split,
}

stored_word!(TurnState, "turn state", {
    Open => "open", Answered => "answered", Dead => "dead", Split => "split",
});

/// A frozen batch of messages: what is sent stays the same over all its attempts (DESIGN 9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its number.
    pub id: i64,
    /// Whether it still wants an answer.
    pub state: TurnState,
    /// The content blocks of the user message, as JSON; one text block a message.
    pub content: String,
    /// Failed attempts that count against `max_attempts`.
    pub charged: u32,
    /// When it was formed.
    pub created_at: Timestamp,
}

/// How an invocation gets its message into the conversation (DESIGN 9 "Receipts", facts 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The message under its uuid, at the tip of the session (or as the first of a new one).
    Send,
    /// The row is there and nothing after it: the CLI takes the interrupted turn up again.
    ResumeInterrupted,
    /// From the named row on; what came after it is left on a dead branch.
    ResumeAt(String),
}

impl Route {
    const fn word(&self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::ResumeInterrupted => "resume-interrupted",
            Self::ResumeAt(_) => "resume-at",
        }
    }

    fn resume_at(&self) -> Option<&str> {
        match self {
            Self::ResumeAt(row) => Some(row),
            Self::Send | Self::ResumeInterrupted => None,
        }
    }
}

/// How an invocation ended, as far as the next attempt must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The turn was answered.
    Answered,
    /// It left the turn unanswered.
    Unanswered,
}

stored_word!(Ending, "ending", { Answered => "answered", Unanswered => "unanswered" });

/// A row of the conversation that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRow {
    /// The turn it belongs to.
    pub turn: i64,
    /// Its uuid.
    pub row_uuid: String,
    /// It is a note of ours and not the human's message.
    pub note: bool,
}

/// One recorded run of `claude -p`, written down before the process exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Also the value of `KAEL_INVOCATION` in its environment.
    pub id: InvocationId,
    /// The turn it wants answered.
    pub turn: i64,
    /// How.
    pub route: Route,
    /// What it sends is a note of ours and not the human's message.
    pub note: bool,
    /// The session it runs in.
    pub session: SessionId,
    /// The session does not exist before this invocation.
    pub new_session: bool,
    /// The transcript it writes.
    pub transcript: String,
    /// The transcript's length before it started, in bytes.
    pub from_offset: u64,
    /// The uuid its message's row has or will have.
    pub row_uuid: String,
    /// Exactly what goes to its standard input.
    pub line: Vec<u8>,
    /// Its process, once started.
    pub pid: Option<u32>,
    /// That process's start time in clock ticks since boot, so that a reused pid is not taken for it.
    pub pid_start: Option<u64>,
    /// When it was recorded.
    pub started_at: Timestamp,
    /// When its receipt had been read.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// For the human: what happened, without any words of the conversation.
    pub detail: Option<String>,
}

fn turn(row: &Row<'_>) -> rusqlite::Result<Turn> {
    Ok(Turn {
        id: row.get("id")?,
        state: row.get("state")?,
        content: row.get("content")?,
        charged: row.get("charged")?,
        created_at: timestamp(row, "created_at")?,
    })
}

fn invocation(row: &Row<'_>) -> rusqlite::Result<Invocation> {
    let resume_at: Option<String> = row.get("resume_at")?;
    let route = match (row.get_ref("route")?.as_str()?, resume_at) {
        ("resume-interrupted", _) => Route::ResumeInterrupted,
        ("resume-at", Some(at)) => Route::ResumeAt(at),
        _ => Route::Send,
    };
    Ok(Invocation {
        id: parsed(row, "id")?,
        turn: row.get("turn")?,
        route,
        note: row.get("note")?,
        session: parsed(row, "session")?,
        new_session: row.get("new_session")?,
        transcript: row.get("transcript")?,
        from_offset: row.get("from_offset")?,
        row_uuid: row.get("row_uuid")?,
        line: row.get("line")?,
        pid: row.get("pid")?,
        pid_start: row.get("pid_start")?,
        started_at: timestamp(row, "started_at")?,
        ended_at: optional_timestamp(row, "ended_at")?,
        ending: row.get("ending")?,
        detail: row.get("detail")?,
    })
}

impl Queue {
    /// Freezes these queued messages into a turn with this content. Messages that are no longer
    /// queued (cancelled meanwhile) make it fail and change nothing: `None`.
    pub fn form_turn(
        &mut self,
        members: &[i64],
        content: &str,
        at: Timestamp,
    ) -> Result<Option<Turn>, QueueError> {
        self.transaction("form a turn", |t| {
            t.execute(
                "INSERT INTO turns (state, content, created_at) VALUES (?1, ?2, ?3)",
                params![TurnState::Open, content, at.as_millis()],
            )?;
            let id = t.last_insert_rowid();
            for member in members {
                let moved = t.execute(
                    "UPDATE messages SET state = ?1, turn = ?2 WHERE id = ?3 AND state = ?4",
                    params![MessageState::Delivering, id, member, MessageState::Queued],
                )?;
                if moved != 1 {
                    return Err(rusqlite::Error::StatementChangedRows(moved));
                }
            }
            Ok(Turn { id, state: TurnState::Open, content: content.to_owned(), charged: 0, created_at: at })
        })
        .map(Some)
        .or_else(|error| match error {
            QueueError::Sqlite { source: rusqlite::Error::StatementChangedRows(_), .. } => Ok(None),
            other => Err(other),
        })
    }

    /// The turn that still wants an answer, if there is one.
    pub fn open_turn(&self) -> Result<Option<Turn>, QueueError> {
        self.doing("read the open turn", |c| {
            c.query_row("SELECT * FROM turns WHERE state = ?1 ORDER BY id LIMIT 1", [TurnState::Open], turn)
                .optional()
        })
    }

    /// Writes an invocation down. Must have returned before its process is started.
    pub fn record_invocation(&mut self, new: &Invocation) -> Result<(), QueueError> {
        self.transaction("record an invocation", |t| insert_invocation(t, new))
    }

    /// Notes which process an invocation became. Only a help for finding it again: the marker in
    /// its environment is what counts.
    pub fn note_process(&mut self, id: InvocationId, pid: u32, start: Option<u64>) -> Result<(), QueueError> {
        self.transaction("note a process", |t| {
            t.execute(
                "UPDATE invocations SET pid = ?2, pid_start = ?3 WHERE id = ?1",
                params![id.to_string(), pid, start],
            )
            .map(drop)
        })
    }

    /// Notes that a human wants an invocation stopped, before it is: a runner that comes after a crash
    /// must not try its turn again.
    pub fn note_stop(&mut self, id: InvocationId) -> Result<(), QueueError> {
        self.transaction("note a stop", |t| {
            t.execute(
                "UPDATE invocations SET detail = ?2 WHERE id = ?1 AND ended_at IS NULL",
                params![id.to_string(), STOP_NOTED],
            )
            .map(drop)
        })
    }

    /// Whether a human wanted this invocation stopped.
    pub fn stop_noted(&self, id: InvocationId) -> Result<bool, QueueError> {
        self.doing("read an invocation", |c| {
            let detail: Option<Option<String>> = c
                .query_row("SELECT detail FROM invocations WHERE id = ?1", [id.to_string()], |row| row.get(0))
                .optional()?;
            Ok(detail.flatten().as_deref() == Some(STOP_NOTED))
        })
    }

    /// Takes the messages of a turn back that never reached the conversation, and closes it.
    pub fn take_back(
        &mut self,
        id: InvocationId,
        turn: i64,
        (outcome, reason): (&str, &str),
        at: Timestamp,
    ) -> Result<(), QueueError> {
        self.transaction("take a turn back", |t| {
            end(t, id, Ending::Unanswered, reason, at)?;
            t.execute(
                "UPDATE turns SET state = ?2, ended_at = ?3, error = ?4, outcome = ?5 WHERE id = ?1",
                params![turn, TurnState::Dead, at.as_millis(), reason, outcome],
            )?;
            t.execute(
                "UPDATE messages SET state = ?2 WHERE turn = ?1",
                params![turn, MessageState::Cancelled],
            )
            .map(drop)
        })
    }

    /// Invocations whose receipt has not been read yet, oldest first.
    pub fn unresolved_invocations(&self) -> Result<Vec<Invocation>, QueueError> {
        self.doing("read unresolved invocations", |c| {
            c.prepare_cached("SELECT * FROM invocations WHERE ended_at IS NULL ORDER BY started_at, rowid")?
                .query_map([], invocation)?
                .collect()
        })
    }

    /// The invocations of a turn, oldest first.
    pub fn invocations_of(&self, turn: i64) -> Result<Vec<Invocation>, QueueError> {
        self.doing("read a turn's invocations", |c| {
            c.prepare_cached("SELECT * FROM invocations WHERE turn = ?1 ORDER BY started_at, rowid")?
                .query_map([turn], invocation)?
                .collect()
        })
    }

    /// Every row that was ever sent, oldest first: cheap enough to read after each turn for years.
    pub fn sent_rows(&self) -> Result<Vec<SentRow>, QueueError> {
        self.doing("read the rows sent", |c| {
            c.prepare_cached("SELECT turn, row_uuid, note FROM invocations ORDER BY started_at, rowid")?
                .query_map([], |row| {
                    Ok(SentRow {
                        turn: row.get("turn")?,
                        row_uuid: row.get("row_uuid")?,
                        note: row.get("note")?,
                    })
                })?
                .collect()
        })
    }

    /// The sessions that invocations ran in; only those they began, if asked so.
    pub fn sessions_run(&self, only_begun: bool) -> Result<HashSet<SessionId>, QueueError> {
        self.doing("read the sessions", |c| {
            c.prepare_cached("SELECT DISTINCT session FROM invocations WHERE new_session OR NOT ?1")?
                .query_map([only_begun], |row| parsed(row, "session"))?
                .collect()
        })
    }

    /// The fronts of the turn that was answered last.
    pub fn fronts_answered_last(&self) -> Result<Vec<String>, QueueError> {
        self.doing("read the last turn", |c| {
            c.prepare_cached(
                "SELECT DISTINCT front FROM messages
                 WHERE turn = (SELECT id FROM turns WHERE state = ?1 ORDER BY ended_at DESC, id DESC LIMIT 1)",
            )?
            .query_map([TurnState::Answered], |row| row.get(0))?
            .collect()
        })
    }

    /// Every invocation ever recorded, oldest first, with all it sent.
    pub fn all_invocations(&self) -> Result<Vec<Invocation>, QueueError> {
        self.doing("read the invocations", |c| {
            c.prepare_cached("SELECT * FROM invocations ORDER BY started_at, rowid")?
                .query_map([], invocation)?
                .collect()
        })
    }

    /// Closes an invocation that left its turn unanswered.
    pub fn end_unanswered(
        &mut self,
        id: InvocationId,
        (outcome, detail): (&str, &str),
        charge: bool,
        at: Timestamp,
    ) -> Result<(), QueueError> {
        self.transaction("close an invocation", |t| {
            end(t, id, Ending::Unanswered, detail, at)?;
            t.execute(
                "UPDATE turns SET charged = charged + ?2, error = ?3, outcome = ?4
                 WHERE id = (SELECT turn FROM invocations WHERE id = ?1)",
                params![id.to_string(), u32::from(charge), detail, outcome],
            )
            .map(drop)
        })
    }

    /// Stores the replies of a turn and marks it and its messages answered, in one transaction:
    /// after it the reply is safe, before it the message is still asked for. `mark` is what the
    /// human is told beside the reply.
    pub fn answer(
        &mut self,
        id: InvocationId,
        turn: i64,
        replies: &[ReplyPart],
        (detail, mark): (&str, Option<&str>),
        at: Timestamp,
    ) -> Result<(), QueueError> {
        self.transaction("store a reply", |t| {
            for part in replies {
                insert_reply(t, turn, part, at)?;
            }
            end(t, id, Ending::Answered, detail, at)?;
            t.execute(
                "UPDATE turns SET state = ?2, ended_at = ?3, error = NULL, outcome = NULL, mark = ?4 WHERE id = ?1",
                params![turn, TurnState::Answered, at.as_millis(), mark],
            )?;
            t.execute(
                "UPDATE messages SET state = ?2 WHERE turn = ?1 AND state IN (?3, ?4)",
                params![turn, MessageState::Answered, MessageState::Delivering, MessageState::Held],
            )
            .map(drop)
        })
    }

    /// Gives a turn up: its messages are dead and the next ones may go.
    /// `outcome` is the word of the failure that did it; none when a human gave it up.
    pub fn give_up(
        &mut self,
        turn: i64,
        (outcome, reason): (Option<&str>, &str),
        at: Timestamp,
    ) -> Result<(), QueueError> {
        self.transaction("give a turn up", |t| {
            t.execute(
                "UPDATE turns SET state = ?2, ended_at = ?3, error = ?4, outcome = ?5 WHERE id = ?1",
                params![turn, TurnState::Dead, at.as_millis(), reason, outcome],
            )?;
            t.execute("UPDATE messages SET state = ?2 WHERE turn = ?1", params![turn, MessageState::Dead])
                .map(drop)
        })
    }

    /// Ends a batch that fails as a whole: each of its messages becomes a turn of its own, in order, in
    /// one transaction. `contents` are theirs, in the same order. Returns the new turns.
    pub fn split(
        &mut self,
        turn: i64,
        contents: &[(i64, String)],
        at: Timestamp,
    ) -> Result<Vec<i64>, QueueError> {
        self.transaction("split a turn", |t| {
            t.execute(
                "UPDATE turns SET state = ?2, ended_at = ?3 WHERE id = ?1",
                params![turn, TurnState::Split, at.as_millis()],
            )?;
            let mut parts = Vec::new();
            for (message, content) in contents {
                t.execute(
                    "INSERT INTO turns (state, content, created_at) VALUES (?1, ?2, ?3)",
                    params![TurnState::Open, content, at.as_millis()],
                )?;
                let part = t.last_insert_rowid();
                t.execute("UPDATE messages SET turn = ?2 WHERE id = ?1", params![message, part])?;
                parts.push(part);
            }
            Ok(parts)
        })
    }

    /// Turns that ended without an answer and may still stand in the conversation, newest first.
    pub fn left_in(&self) -> Result<Vec<i64>, QueueError> {
        self.doing("read the dead turns", |c| {
            c.prepare_cached(
                "SELECT id FROM turns WHERE state IN (?1, ?2) AND taken_out = 0 ORDER BY id DESC",
            )?
            .query_map([TurnState::Dead, TurnState::Split], |row| row.get(0))?
            .collect()
        })
    }

    /// Notes that no row of a dead turn is in the conversation.
    pub fn note_taken_out(&mut self, turn: i64) -> Result<(), QueueError> {
        self.transaction("note a dead turn", |t| {
            t.execute("UPDATE turns SET taken_out = 1 WHERE id = ?1", [turn]).map(drop)
        })
    }

    /// The turns whose rows are on branches that the conversation has left.
    pub fn taken_out(&self) -> Result<HashSet<i64>, QueueError> {
        self.doing("read the dead turns", |c| {
            c.prepare_cached("SELECT id FROM turns WHERE taken_out = 1")?
                .query_map([], |row| row.get(0))?
                .collect()
        })
    }

    /// How the newest turns that are over ended, newest first: the word of their failure, `None` for an answer.
    pub fn last_endings(&self, count: usize) -> Result<Vec<Option<String>>, QueueError> {
        self.doing("read the last turns", |c| {
            c.prepare_cached(
                "SELECT outcome FROM turns WHERE state IN (?1, ?2) ORDER BY ended_at DESC, id DESC LIMIT ?3",
            )?
            .query_map(
                params![TurnState::Dead, TurnState::Answered, i64::try_from(count).unwrap_or(i64::MAX)],
                |row| row.get(0),
            )?
            .collect()
        })
    }

    /// What the human is told beside a turn's reply.
    pub fn turn_mark(&self, turn: i64) -> Result<Option<String>, QueueError> {
        self.doing("read a turn", |c| {
            c.query_row("SELECT mark FROM turns WHERE id = ?1", [turn], |row| row.get(0))
        })
    }

    /// Lets a turn be tried again as if it had not failed yet.
    pub fn forgive(&mut self, turn: i64) -> Result<(), QueueError> {
        self.transaction("reset a turn", |t| {
            t.execute("UPDATE turns SET charged = 0, error = NULL, outcome = NULL WHERE id = ?1", [turn])
                .map(drop)
        })
    }

    /// Why a turn is not answered, as last recorded.
    pub fn turn_error(&self, turn: i64) -> Result<Option<String>, QueueError> {
        self.doing("read a turn", |c| {
            c.query_row("SELECT error FROM turns WHERE id = ?1", [turn], |row| row.get(0))
        })
    }
}

pub(super) fn insert_invocation(t: &rusqlite::Transaction<'_>, new: &Invocation) -> rusqlite::Result<()> {
    t.execute(
        "INSERT INTO invocations (id, turn, route, resume_at, note, session, new_session, transcript,
             from_offset, row_uuid, line, started_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            new.id.to_string(),
            new.turn,
            new.route.word(),
            new.route.resume_at(),
            new.note,
            new.session.to_string(),
            new.new_session,
            new.transcript,
            new.from_offset,
            new.row_uuid,
            new.line,
            new.started_at.as_millis(),
        ],
    )
    .map(drop)
}

fn end(
    t: &rusqlite::Transaction<'_>,
    id: InvocationId,
    ending: Ending,
    detail: &str,
    at: Timestamp,
) -> rusqlite::Result<()> {
    t.execute(
        "UPDATE invocations SET ended_at = ?2, ending = ?3, detail = ?4 WHERE id = ?1",
        params![id.to_string(), at.as_millis(), ending, detail],
    )
    .map(drop)
}
