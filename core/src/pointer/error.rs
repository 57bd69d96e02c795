//! Everything a pointer can be that is not one session id, with the way out.

use std::path::PathBuf;

use crate::disk::DiskError;

/// Why an intent could not be recorded; whatever error the recorder has.
pub type IntentError = Box<dyn std::error::Error + Send + Sync>;

/// The pointer could not be read, or was not changed.
#[derive(Debug, thiserror::Error)]
pub enum PointerError {
    /// Nothing in it, for longer than a truncating writer takes.
    #[error("{} is empty; write the id of the session to resume into it (`kael-runner pointer set ID`)", path.display())]
    Empty {
        /// The pointer.
        path: PathBuf,
    },
    /// A part of an id, for longer than a writer takes.
    #[error(
        "{} holds only a part of a session id ({text:?}); whoever wrote it was interrupted: write the whole id \
         (`kael-runner pointer set ID`)",
        path.display()
    )]
    Torn {
        /// The pointer.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
    /// More than one id, as an appending script leaves it.
    #[error(
        "{} holds {count} session ids where one belongs; a script appends (`>>`) where it should replace: keep the \
         one to resume (`kael-runner pointer set ID`)",
        path.display()
    )]
    Several {
        /// The pointer.
        path: PathBuf,
        /// How many.
        count: usize,
    },
    /// A folder, a symlink, a device.
    #[error("{} is {found}, not a regular file; replace it by a file with the id of the session to resume", path.display())]
    NotAFile {
        /// The pointer.
        path: PathBuf,
        /// What it is, with an article.
        found: &'static str,
    },
    /// Text that is no session id.
    #[error(
        "{} does not hold a session id but {start:?}; write the id of the session to resume into it \
         (`kael-runner pointer set ID`)",
        path.display()
    )]
    Garbage {
        /// The pointer.
        path: PathBuf,
        /// Its first characters.
        start: String,
    },
    /// The operating system does not let us read it.
    #[error("failed to read {}: {cause}", path.display())]
    Unreadable {
        /// The pointer.
        path: PathBuf,
        /// Its words.
        cause: String,
    },
    /// Somebody else changed it. What they wrote is current.
    #[error(
        "{} was changed by somebody else: expected {expected}, found {}; it now says {current}, and was left so: find \
         out who writes it before trying again",
        path.display(), seen.join(", then ")
    )]
    Conflict {
        /// The pointer.
        path: PathBuf,
        /// What it should have said.
        expected: String,
        /// Every foreign value seen, oldest first.
        seen: Vec<String>,
        /// What it says now.
        current: String,
    },
    /// The new session is the expected one: nothing to change.
    #[error("{} already names that session; nothing was changed", path.display())]
    Same {
        /// The pointer.
        path: PathBuf,
    },
    /// The intent could not be made durable, so the pointer was not touched.
    #[error("failed to record the intent to change {}; it was not touched", path.display())]
    Intent {
        /// The pointer.
        path: PathBuf,
        /// Why.
        source: IntentError,
    },
    /// The intent of an earlier change cannot be read, so what it did cannot be told.
    #[error("{} cannot be read ({cause}); it is left as it is: compare it with the pointer and move it away", path.display())]
    IntentUnreadable {
        /// The intent file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// A line of the history that is not the last one is damaged.
    #[error("line {line} of {} is damaged ({cause}); it is left as it is: mend or move the file", path.display())]
    HistoryDamaged {
        /// The history file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// Why it cannot be read.
        cause: String,
    },
    /// A lock of another pointer was shown.
    #[error("the lock that is held is not that of {}", path.display())]
    WrongLock {
        /// The pointer.
        path: PathBuf,
    },
    /// A step on the disk failed. If the exchange may have happened, [`super::Pointer::recover`] tells.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl PointerError {
    /// Whether somebody else changed the pointer (exit code 4).
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}
