//! What turns have cost: one row for each run that reached the API.

use kael_core::clock::Timestamp;
use kael_core::ids::{InvocationId, SessionId};
use rusqlite::{OptionalExtension, Row, params};

use super::{Queue, QueueError, parsed};

/// What one run has used, all its API calls together, as the CLI's result says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to the cache.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_creation: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens of the first API call alone: how large the conversation was when the turn began.
    pub context: Option<u64>,
    /// Tokens of the last API call with its answer: how full the context was when the turn ended.
    pub level: Option<u64>,
    /// From the start of the process to its exit.
    pub millis: u64,
}

/// The sum over one day of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// `2026-11-30`, UTC.
    pub day: String,
    /// The session.
    pub session: SessionId,
    /// Runs, repeated ones included.
    pub runs: u64,
    /// Turns.
    pub turns: u64,
    /// Sums; `context` is that of the last run, `level` the highest.
    pub sum: Usage,
}

fn sum(row: &Row<'_>) -> rusqlite::Result<UsageSum> {
    Ok(UsageSum {
        day: row.get("day")?,
        session: parsed(row, "session")?,
        runs: row.get("runs")?,
        turns: row.get("turns")?,
        sum: Usage {
            input: row.get("input")?,
            cache_read: row.get("cache_read")?,
            cache_creation: row.get("cache_creation")?,
            output: row.get("output")?,
            context: row.get("last_context")?,
            level: row.get("largest_level")?,
            millis: row.get("millis")?,
        },
    })
}

impl Queue {
    /// Stores what a run has used; a second time for one run changes nothing.
    pub fn note_usage(
        &mut self,
        invocation: InvocationId,
        (turn, session): (i64, SessionId),
        used: &Usage,
        at: Timestamp,
    ) -> Result<(), QueueError> {
        self.transaction("store what a run has used", |t| {
            t.execute(
                "INSERT INTO usage (invocation, turn, session, at, input, cache_read, cache_creation, output, context,
                     level, millis)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING",
                params![
                    invocation.to_string(),
                    turn,
                    session.to_string(),
                    at.as_millis(),
                    used.input,
                    used.cache_read,
                    used.cache_creation,
                    used.output,
                    used.context,
                    used.level,
                    used.millis,
                ],
            )
            .map(drop)
        })
    }

    /// What was used since then, by day and session, oldest first.
    pub fn usage_since(&self, since: Timestamp) -> Result<Vec<UsageSum>, QueueError> {
        self.doing("sum what was used", |c| {
            c.prepare_cached(
                "SELECT date(at / 1000, 'unixepoch') AS day, session, count(*) AS runs,
                     count(DISTINCT turn) AS turns, sum(input) AS input, sum(cache_read) AS cache_read,
                     sum(cache_creation) AS cache_creation, sum(output) AS output, sum(millis) AS millis,
                     max(level) AS largest_level,
                     (SELECT later.context FROM usage later WHERE later.session = usage.session
                         AND later.context IS NOT NULL
                         AND date(later.at / 1000, 'unixepoch') = date(usage.at / 1000, 'unixepoch')
                         ORDER BY later.at DESC, later.rowid DESC LIMIT 1) AS last_context
                 FROM usage WHERE at >= ?1 GROUP BY day, session ORDER BY min(at)",
            )?
            .query_map([since.as_millis()], sum)?
            .collect()
        })
    }

    /// How full the context of a session was when its last turn that reached the API ended.
    pub fn last_level_of(&self, session: SessionId) -> Result<Option<u64>, QueueError> {
        self.doing("read what was used", |c| {
            c.query_row(
                "SELECT level FROM usage WHERE session = ?1 AND level IS NOT NULL ORDER BY at DESC, rowid DESC LIMIT 1",
                [session.to_string()],
                |row| row.get(0),
            )
            .optional()
        })
    }

    /// The context at the beginning of each turn of a session that reached the API, oldest first.
    pub fn contexts_of(&self, session: SessionId) -> Result<Vec<u64>, QueueError> {
        self.doing("read what was used", |c| {
            c.prepare_cached(
                "SELECT context FROM usage WHERE session = ?1 AND context IS NOT NULL ORDER BY at, rowid",
            )?
            .query_map([session.to_string()], |row| row.get(0))?
            .collect()
        })
    }
}
