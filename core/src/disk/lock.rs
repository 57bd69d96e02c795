//! Locks between processes: `flock` on files that are never unlinked.
//!
//! The lock is the kernel's, so it vanishes with its holder however that ends. What the file says
//! (pid and command) is for people only. It is never unlinked, since a process that waits on the
//! old inode and one that makes a new one would both believe they hold the lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::DiskError;

/// A lock that is held until this value is dropped.
///
/// Locks belong to the open file, so a second one on the same path waits even within one process
/// (and a thread that takes it twice waits for itself).
#[derive(Debug)]
pub struct FileLock {
    _file: File,
    path: PathBuf,
}

impl FileLock {
    /// The file that is locked.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn acquire(path: &Path, wait: bool) -> Result<Option<Self>, DiskError> {
        let failed = |source| DiskError::io("lock", path, source);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)
            .map_err(failed)?;
        let how = if wait { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
        loop {
            match flock(&file, how) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        // A full disk must not keep anybody from locking: the text is information only.
        if let Err(error) = describe(&mut file)
            && !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        {
            return Err(failed(error));
        }
        Ok(Some(Self { _file: file, path: path.to_owned() }))
    }
}

/// Writes who holds the lock. Only the program and its first word are named: later arguments may
/// be somebody's message.
fn describe(file: &mut File) -> io::Result<()> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
    let mut after_option = false;
    let command = arguments.find(|argument| {
        let is_value = std::mem::replace(&mut after_option, argument == "--config" || argument == "-c");
        !is_value && !argument.to_string_lossy().starts_with('-')
    });
    let command = command.unwrap_or_default();
    let line = format!("{} {program} {}\n", std::process::id(), command.to_string_lossy());
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(line.as_bytes())
}

/// Who last took the lock at `path`, as "pid program command"; for messages only, since the holder
/// may have ended meanwhile.
#[must_use]
pub fn holder(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether somebody holds the lock at `path` exclusively. Looking does not keep anybody from
/// taking it for longer than the look: who must have it waits a moment.
///
/// # Errors
/// [`DiskError`] when the file is there and cannot be opened.
pub fn is_locked(path: &Path) -> Result<bool, DiskError> {
    let failed = |source| DiskError::io("look at the lock", path, source);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    loop {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(true),
            Err(errno) => return Err(failed(errno.into())),
        }
    }
}
