//! The resume pointer: the one-line file that names the session to resume.
//!
//! *Responsibility.* Read it without ever taking rubbish for a session, and change it by
//! compare-and-swap, although other programs write it as well: shell scripts with `echo id > file`
//! (truncate, then write), editors and tools with write-and-rename. None of them knows our lock.
//!
//! *Neighbours.* Steps go through [`crate::disk`]; [`crate::switch`] calls [`Pointer::compare_and_swap`]
//! for an operation, [`crate::operation::recover`] decides by [`Pointer::recover`] what a crash left.
//!
//! # How a swap works
//!
//! Under `<pointer>.lock` the pointer is read and compared. The new id is written to a fresh file beside
//! it and synced, and then the two *names* are exchanged in one atomic step (`RENAME_EXCHANGE`). What
//! comes out is looked at **afterwards**: if it is the expected id, nobody's write is lost, since whatever
//! stood there is in our hands. If it is anything else, somebody wrote between our look and our exchange,
//! and it is put back. That, too, is an exchange, and what it brings out is looked at as well: our own id,
//! and all is as before; or a still newer write, which then goes back in, up to eight times. The caller gets
//! a conflict that lists every value seen.
//!
//! # What is guaranteed, and what not
//!
//! * No replacement and no truncating write that others completed is lost unseen: it was the value that the
//!   caller expected, or it is named in a conflict, or it is the pointer's content now.
//! * Not covered: a program that opened the pointer *before* the switch and writes *after* it writes to the
//!   old inode, which has no name any more. That inode is kept as `<pointer>.prev`, and
//!   [`Pointer::look_back`] tells, at the next turn, whether anything was written to it.
//! * For an instant between exchange and put-back the new id is visible. A reader that starts sessions takes
//!   the lock ([`Pointer::read_locked`], `kael-runner pointer show --locked`).
//! * On file systems without `RENAME_EXCHANGE` ([`probe_exchange`]) it is: lock, read again, rename. A foreign
//!   write between the second read and the rename is lost there. `doctor` says so.
//!
//! # After a crash
//!
//! Expected id, new id and temporary name are durable in an *intent* before the exchange, and the temporary
//! file stays until the operation is durably activated ([`Pointer::finish`]). So pointer and temporary file tell
//! on which side of the exchange the crash fell; see [`Pointer::recover`].

mod error;
mod history;
mod look;
mod own;
mod recover;
mod swap;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::{IntentError, PointerError};
pub use history::{HistoryLine, LateWrite};
pub use recover::Recovered;
pub use swap::{Swapped, probe_exchange};

use crate::disk::{Disk, FileLock, folder_of};
use crate::ids::SessionId;
use look::{Look, look_patiently};

#[cfg(test)]
mod race;
#[cfg(test)]
mod tests;

/// The pointer file at a path, and its companions beside it: `.lock`, `.history`, `.prev`, `.intent`, `.broken`.
#[derive(Debug, Clone)]
pub struct Pointer {
    path: PathBuf,
    disk: Disk,
}

/// What a sound pointer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PointerValue {
    /// There is no file. Never used ([`Pointer::used`]): a new session may begin; else: hold.
    Absent,
    /// The session to resume.
    Session(SessionId),
}

impl PointerValue {
    /// The session, if there is one.
    #[must_use]
    pub const fn session(self) -> Option<SessionId> {
        match self {
            Self::Absent => None,
            Self::Session(id) => Some(id),
        }
    }
}

impl From<Option<SessionId>> for PointerValue {
    fn from(session: Option<SessionId>) -> Self {
        session.map_or(Self::Absent, Self::Session)
    }
}

/// What must be durable before the pointer is touched, so that a crash can be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapIntent {
    /// The session that was current; `None`: there was no pointer.
    pub expected: Option<SessionId>,
    /// The session that is to be current.
    pub new: SessionId,
    /// Name of the temporary file in the pointer's folder; it also names this swap in the history.
    pub temp_name: String,
}

/// Shows that `<pointer>.lock` is held; released when dropped.
#[derive(Debug)]
pub struct PointerLock(FileLock);

impl Pointer {
    /// A pointer at that path; nothing is touched. The folder must exist before it is written.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, disk: Disk) -> Self {
        Self { path: path.into(), disk }
    }

    /// Where the pointer is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the pointer says. White space around the id and CRLF are accepted. Empty or torn content is
    /// read again for 200 ms (`echo id > file` is empty for an instant), so this can block that long.
    ///
    /// # Errors
    /// [`PointerError`] for everything that is not exactly one id: two ids, a folder, a symlink, rubbish.
    /// Never an invented session.
    pub fn read(&self) -> Result<PointerValue, PointerError> {
        look_patiently(&self.path).into_value(&self.path)
    }

    /// [`Pointer::read`] under the lock, so that the id of a swap that is then put back is never seen.
    ///
    /// # Errors
    /// As [`Pointer::read`] and [`Pointer::lock`].
    pub fn read_locked(&self) -> Result<PointerValue, PointerError> {
        let _lock = self.lock()?;
        self.read()
    }

    /// Waits for `<pointer>.lock`. It is held for single writes, so the wait is short. A thread that
    /// holds it already waits for itself.
    ///
    /// # Errors
    /// [`PointerError::Disk`] when the lock file cannot be opened.
    pub fn lock(&self) -> Result<PointerLock, PointerError> {
        Ok(PointerLock(self.disk.lock(&self.beside(".lock"))?))
    }

    /// Whether the pointer was ever written by us: an absent pointer with a history is held, not replaced
    /// by a new session.
    #[must_use]
    pub fn used(&self) -> bool {
        self.beside(".history").metadata().is_ok_and(|m| m.len() > 0)
    }

    fn check(&self, lock: &PointerLock) -> Result<(), PointerError> {
        if lock.0.path() == self.beside(".lock") {
            Ok(())
        } else {
            Err(PointerError::WrongLock { path: self.path.clone() })
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name: OsString = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    fn temporary(&self, intent: &SwapIntent) -> PathBuf {
        // Only the last part: an intent file must not lead anywhere else.
        let name = Path::new(&intent.temp_name).file_name().unwrap_or_default();
        folder_of(&self.path).join(name)
    }

    /// Where the old inode waits if the file system could not exchange names.
    fn aside(&self, intent: &SwapIntent) -> PathBuf {
        let mut name = self.temporary(intent).into_os_string();
        name.push(".old");
        name.into()
    }

    fn look(&self) -> Look {
        look_patiently(&self.path)
    }
}
