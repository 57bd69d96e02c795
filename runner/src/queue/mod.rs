//! The durable queues of one companion: inbox, turns, invocations, outbox and the requests that
//! commands leave for a living runner (DESIGN 10). One SQLite file in the state folder.
//!
//! The supervisor and any number of short-lived commands open it at once: WAL lets readers go on
//! while somebody writes, `synchronous=FULL` makes a returned commit durable, and every writing
//! transaction is `IMMEDIATE` so that two writers queue up instead of failing half way.
//! Whoever writes rings the [doorbell](crate::doorbell) after its commit.

mod additions;
mod inbox;
mod outbox;
mod requests;
mod rewrite;
mod schema;
mod settings;
mod turns;
mod usage;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kael_core::clock::Timestamp;
use kael_core::disk::{Disk, DiskError};
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use additions::{Addition, AdditionState};
pub use inbox::{Accepted, Message, MessageState, NewMessage};
pub use outbox::{Reply, ReplyPart};
pub use requests::{Request, RequestKind};
pub use settings::{HeldUntil, Hold, LastOutcome, NextRetry, Setting, Wait};
pub use turns::{Ending, Invocation, Route, SentRow, Turn, TurnState};
pub use usage::{Usage, UsageSum};

/// What can go wrong with the queue's file.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// SQLite refused; `path` is the queue's file.
    #[error("could not {doing} in {path}")]
    Sqlite {
        /// What was being done, completing "could not ...".
        doing: &'static str,
        /// The queue's file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The file could not be created with private permissions.
    #[error("could not create {path}")]
    Create {
        /// The queue's file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The storage layer refused the commit.
    #[error("could not {doing}")]
    Disk {
        /// What was being done, completing "could not ...".
        doing: &'static str,
        /// Why.
        source: DiskError,
    },
    /// The file was written by a newer release; it is left untouched.
    #[error(
        "{path} has format {found}, this release reads up to {known}: install the newer kael-runner again, \
         or restore the backup that was made before the upgrade"
    )]
    Newer {
        /// The queue's file.
        path: PathBuf,
        /// The format number in the file.
        found: i64,
        /// The newest format this release knows.
        known: i64,
    },
}

/// How long one writer waits for another.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open queue. Cheap to open; not shared between threads.
pub struct Queue {
    connection: Connection,
    path: PathBuf,
    /// Every commit is a durable step and goes through it.
    disk: Disk,
}

impl Queue {
    /// Opens or creates `<state_dir>/queue.sqlite` (0600), bringing an older format up to date.
    /// The folder must exist. Blocks at most ten seconds on other writers.
    pub fn open(state_dir: &Path) -> Result<Self, QueueError> {
        Self::open_on(state_dir, &Disk::real())
    }

    /// The same behind a storage layer: after a failed sync nothing is committed any more, and what a test refuses is not.
    pub fn open_on(state_dir: &Path, disk: &Disk) -> Result<Self, QueueError> {
        let path = state_dir.join("queue.sqlite");
        create_private(&path)?;
        let connection = Connection::open(&path).map_err(|source| QueueError::Sqlite {
            doing: "open the queue",
            path: path.clone(),
            source,
        })?;
        let mut queue = Self { connection, path, disk: disk.clone() };
        queue.doing("configure the queue", |c| {
            c.busy_timeout(PATIENCE)?;
            turn_on_wal(c)?;
            c.pragma_update(None, "synchronous", "FULL")?;
            c.pragma_update(None, "foreign_keys", true)
        })?;
        schema::migrate(&mut queue)?;
        Ok(queue)
    }

    /// Writes a consistent copy of everything to a new file (0600), while others may write on. Synced.
    pub fn snapshot(&self, to: &Path) -> Result<(), QueueError> {
        let text = to.to_string_lossy().into_owned();
        create_private(to)?;
        // An empty file counts as a new database.
        self.doing("copy the queue", |c| c.execute("VACUUM INTO ?1", [text]).map(drop))
    }

    /// Corrects where transcripts are said to be, after their folder moved.
    pub fn relocate(&mut self, from: &Path, to: &Path) -> Result<(), QueueError> {
        let all: Vec<String> = self.doing("read the invocations", |c| {
            c.prepare("SELECT DISTINCT transcript FROM invocations")?
                .query_map([], |row| row.get(0))?
                .collect()
        })?;
        self.transaction("correct the transcripts' places", |t| {
            for old in all {
                if let Ok(name) = Path::new(&old).strip_prefix(from) {
                    let new = to.join(name).to_string_lossy().into_owned();
                    t.execute("UPDATE invocations SET transcript = ?2 WHERE transcript = ?1", [&old, &new])?;
                }
            }
            Ok(())
        })
    }

    /// The queue's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn doing<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        work(&self.connection).map_err(|source| self.failed(doing, source))
    }

    fn transaction<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, QueueError> {
        let result = (|| {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            let mut transaction = Some(transaction);
            let mut committed = Ok(());
            let passed = self.disk.commit(&self.path, &mut || {
                committed = transaction.take().map_or(Ok(()), Transaction::commit);
            });
            committed?;
            Ok(passed.map(|()| value))
        })();
        let passed = result.map_err(|source| self.failed(doing, source))?;
        passed.map_err(|source| QueueError::Disk { doing, source })
    }

    fn failed(&self, doing: &'static str, source: rusqlite::Error) -> QueueError {
        QueueError::Sqlite { doing, path: self.path.clone(), source }
    }
}

/// SQLite's own waiting leaves out the change of the journal's mode, which two processes that open a new queue at once
/// both want.
fn turn_on_wal(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

/// SQLite gives its side files the permissions of the main file, so only this one has to be made
/// private, and before SQLite first opens it.
fn create_private(path: &Path) -> Result<(), QueueError> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map(drop)
        .map_err(|source| QueueError::Create { path: path.to_owned(), source })
}

/// Stored enums are short words; this pairs each with its word in both directions.
macro_rules! stored_word {
    ($name:ty, $what:literal, { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $name {
            /// The word under which this is stored and printed.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl rusqlite::types::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok(self.word().into())
            }
        }

        impl rusqlite::types::FromSql for $name {
            fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
                match value.as_str()? {
                    $($word => Ok(Self::$variant),)+
                    other => Err(rusqlite::types::FromSqlError::Other(
                        format!("unknown {} {other:?}", $what).into(),
                    )),
                }
            }
        }
    };
}
use stored_word;

fn timestamp(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    Ok(Timestamp::from_millis(row.get(column)?))
}

fn optional_timestamp(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
}

/// Ids are stored as text and parsed on the way out; anything else was written by somebody else.
fn parsed<T: std::str::FromStr>(row: &rusqlite::Row<'_>, column: &str) -> rusqlite::Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    let index = row.as_ref().column_index(column)?;
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests;
