//! The source transcript: frozen once, and compared with its live self before and after a switch.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::SwitchError;
use super::tail::only_bookkeeping_follows;
use crate::clock::Timestamp;
use crate::disk::{Copied, Disk, DiskError, digest};
use crate::ids::SessionId;

/// A source as it was when its copy was taken. From then on only the copy is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenSource {
    /// The session it is the transcript of.
    pub session: SessionId,
    /// The live transcript.
    pub path: PathBuf,
    /// The frozen copy in the artifacts.
    pub copy: PathBuf,
    /// SHA-256 of the copied bytes.
    pub sha256: String,
    /// Bytes.
    pub len: u64,
    /// Inode of the live transcript.
    pub inode: u64,
    /// Its modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// When the copy was taken.
    pub frozen_at: Timestamp,
}

/// How the live source differs from what was frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceChange {
    /// It does not.
    None,
    /// The frozen bytes are still its beginning, and more was appended.
    Grew {
        /// By how many bytes.
        bytes: u64,
    },
    /// Something else happened to it, in words.
    Changed(String),
}

impl fmt::Display for SourceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing changed"),
            Self::Grew { bytes } => write!(f, "{bytes} bytes were appended"),
            Self::Changed(what) => f.write_str(what),
        }
    }
}

/// Length, inode and modification time, in that order.
type Facts = (u64, u64, i64);

fn facts(path: &Path) -> Result<Facts, DiskError> {
    let metadata = fs::symlink_metadata(path).map_err(|e| DiskError::io("look at", path, e))?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a folder" } else { "a symlink or a special file" };
        return Err(DiskError::NotAFile { path: path.to_owned(), found });
    }
    let nanoseconds = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    Ok((metadata.len(), metadata.ino(), nanoseconds))
}

impl FrozenSource {
    /// Copies the live transcript to `copy` (made new, 0600, synced), hashing it on the way.
    ///
    /// # Errors
    /// [`SwitchError::SourceMoved`] when it changed meanwhile: nothing was touched, try again.
    pub fn freeze(
        disk: &Disk,
        session: SessionId,
        path: &Path,
        copy: &Path,
        at: Timestamp,
    ) -> Result<Self, SwitchError> {
        let before = facts(path)?;
        let Copied { sha256, len } = disk.copy_hashing(path, copy)?;
        if facts(path)? != before || len != before.0 {
            disk.remove(copy)?;
            return Err(SwitchError::SourceMoved { path: path.to_owned() });
        }
        Ok(Self {
            session,
            path: path.to_owned(),
            copy: copy.to_owned(),
            sha256,
            len,
            inode: before.1,
            mtime_ns: before.2,
            frozen_at: at,
        })
    }

    /// Compares the live transcript with what was frozen: length, inode, modification time, then the digest
    /// (one pass over the file).
    ///
    /// # Errors
    /// [`DiskError`] when it cannot be read; a missing file is a change, not an error.
    pub fn compare(&self) -> Result<SourceChange, DiskError> {
        let change = self.compare_facts()?;
        if change == SourceChange::None && digest(&self.path)?.sha256 != self.sha256 {
            return Ok(SourceChange::Changed("its content differs from the frozen copy".to_owned()));
        }
        Ok(change)
    }

    /// As [`FrozenSource::compare`], for a source whose CLI still lives: what it appends without anything being said
    /// is no change.
    ///
    /// # Errors
    /// As [`FrozenSource::compare`].
    pub fn compare_speech(&self) -> Result<SourceChange, DiskError> {
        match self.compare()? {
            SourceChange::Grew { .. } => {}
            other => return Ok(other),
        }
        Ok(match only_bookkeeping_follows(&self.path, self.len, &self.sha256)? {
            Ok(()) => SourceChange::None,
            Err(what) => SourceChange::Changed(what),
        })
    }

    /// The part of [`FrozenSource::compare`] that does not read the file: length, inode, modification time.
    ///
    /// # Errors
    /// As [`FrozenSource::compare`].
    pub fn compare_facts(&self) -> Result<SourceChange, DiskError> {
        let (len, inode, mtime_ns) = match facts(&self.path) {
            Ok(facts) => facts,
            Err(error) if error.is_not_found() => {
                return Ok(SourceChange::Changed("it is not there any more".to_owned()));
            }
            Err(DiskError::NotAFile { found, .. }) => {
                return Ok(SourceChange::Changed(format!("it is {found} now")));
            }
            Err(error) => return Err(error),
        };
        let changed = |what: String| Ok(SourceChange::Changed(what));
        if inode != self.inode {
            return changed(format!("it is another file now (inode {inode} instead of {})", self.inode));
        }
        if len < self.len {
            return changed(format!("it was cut from {} to {len} bytes", self.len));
        }
        if len > self.len {
            return Ok(SourceChange::Grew { bytes: len - self.len });
        }
        if mtime_ns != self.mtime_ns {
            return changed("it was written to since it was frozen".to_owned());
        }
        Ok(SourceChange::None)
    }

    /// Takes the live file for the one that was frozen, if it says the same, though it is another inode: it was copied
    /// by a restore. Otherwise nothing changes.
    pub(crate) fn recognise(&mut self) {
        let same = digest(&self.path).is_ok_and(|found| found.sha256 == self.sha256);
        if let (true, Ok((_, inode, mtime_ns))) = (same, facts(&self.path)) {
            self.inode = inode;
            self.mtime_ns = mtime_ns;
        }
    }

    /// Whether the frozen copy is there and is what was copied.
    #[must_use]
    pub fn copy_is_whole(&self) -> bool {
        digest(&self.copy).is_ok_and(|found| found.sha256 == self.sha256 && found.len == self.len)
    }
}

/// Waits until the transcript has not changed for `stable`, at most `timeout`; for setups in which somebody
/// else's CLI writes it. Blocks.
///
/// # Errors
/// [`SwitchError::NotQuiet`] when the time is over.
pub fn wait_until_quiet(path: &Path, stable: Duration, timeout: Duration) -> Result<(), SwitchError> {
    let deadline = Instant::now() + timeout;
    let mut last = facts(path)?;
    let mut since = Instant::now();
    loop {
        if since.elapsed() >= stable {
            return Ok(());
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(SwitchError::NotQuiet { path: path.to_owned(), seconds: timeout.as_secs_f64() });
        }
        let rest = stable.saturating_sub(since.elapsed()).min(deadline - now);
        std::thread::sleep(rest.min(Duration::from_millis(100)));
        let found = facts(path)?;
        if found != last {
            last = found;
            since = Instant::now();
        }
    }
}
