//! The tables, and how a file of an earlier format is brought up to date.

use super::{Queue, QueueError};

/// Times are milliseconds since 1970, UTC. Words of messages stand in `messages.words` exactly as
/// they were accepted; what was sent to the CLI stands in `turns.content` and `invocations.line`.
const VERSIONS: &[&str] = &[
    "
    CREATE TABLE turns (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        state TEXT NOT NULL,
        content TEXT NOT NULL,
        charged INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        ended_at INTEGER,
        error TEXT
    ) STRICT;
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        front TEXT NOT NULL,
        key TEXT NOT NULL,
        sender TEXT NOT NULL,
        words TEXT NOT NULL,
        at INTEGER NOT NULL,
        state TEXT NOT NULL,
        turn INTEGER REFERENCES turns(id),
        operation TEXT,
        UNIQUE (front, key)
    ) STRICT;
    CREATE INDEX messages_by_state ON messages(state);
    CREATE TABLE invocations (
        id TEXT PRIMARY KEY,
        turn INTEGER NOT NULL REFERENCES turns(id),
        route TEXT NOT NULL,
        resume_at TEXT,
        note INTEGER NOT NULL,
        session TEXT NOT NULL,
        new_session INTEGER NOT NULL,
        transcript TEXT NOT NULL,
        from_offset INTEGER NOT NULL,
        row_uuid TEXT NOT NULL,
        line BLOB NOT NULL,
        pid INTEGER,
        pid_start INTEGER,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        ending TEXT,
        detail TEXT
    ) STRICT;
    CREATE INDEX invocations_by_turn ON invocations(turn);
    CREATE TABLE replies (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        turn INTEGER NOT NULL REFERENCES turns(id),
        message_id TEXT NOT NULL,
        block_index INTEGER NOT NULL,
        words TEXT NOT NULL,
        stored_at INTEGER NOT NULL,
        UNIQUE (turn, message_id, block_index)
    ) STRICT;
    CREATE TABLE requests (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        arguments TEXT NOT NULL,
        at INTEGER NOT NULL,
        answer TEXT
    ) STRICT;
    CREATE TABLE settings (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE turns ADD COLUMN outcome TEXT;
    ALTER TABLE turns ADD COLUMN mark TEXT;
    ALTER TABLE turns ADD COLUMN taken_out INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE usage (
        invocation TEXT PRIMARY KEY REFERENCES invocations(id),
        turn INTEGER NOT NULL REFERENCES turns(id),
        session TEXT NOT NULL,
        at INTEGER NOT NULL,
        input INTEGER NOT NULL,
        cache_read INTEGER NOT NULL,
        cache_creation INTEGER NOT NULL,
        output INTEGER NOT NULL,
        context INTEGER,
        level INTEGER,
        millis INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX usage_by_time ON usage(at);
",
    "
    CREATE TABLE additions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        host TEXT NOT NULL REFERENCES invocations(id),
        turn INTEGER NOT NULL REFERENCES turns(id),
        row_uuid TEXT NOT NULL,
        content TEXT NOT NULL,
        line BLOB NOT NULL,
        at INTEGER NOT NULL,
        state TEXT NOT NULL
    ) STRICT;
    CREATE INDEX additions_by_state ON additions(state);
    ALTER TABLE messages ADD COLUMN addition INTEGER REFERENCES additions(id);
    CREATE INDEX messages_by_turn ON messages(turn);
    CREATE INDEX messages_by_addition ON messages(addition) WHERE addition IS NOT NULL;
",
];

pub(super) fn migrate(queue: &mut Queue) -> Result<(), QueueError> {
    let known = i64::try_from(VERSIONS.len()).unwrap_or(i64::MAX);
    let read = |c: &rusqlite::Connection| c.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    let found = queue.doing("read the format", read)?;
    if found > known {
        return Err(QueueError::Newer { path: queue.path.clone(), found, known });
    }
    if found == known {
        return Ok(());
    }
    queue.transaction("bring the format up to date", |t| {
        // Another process may have migrated between the look above and this lock.
        let found = read(t)?;
        for (index, version) in VERSIONS.iter().enumerate() {
            if i64::try_from(index).unwrap_or(i64::MAX) >= found {
                t.execute_batch(version)?;
            }
        }
        t.pragma_update(None, "user_version", known)
    })
}
