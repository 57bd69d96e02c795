//! [`Disk`]: the steps themselves.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::content::{
    Copied, copy, copy_some, folder_of, fresh_sibling, open_plain, sibling_of, unterminated_tail,
};
use super::gate::Open;
use super::lock::FileLock;
use super::{DiskError, FaultPlan, Gate, Step, StepKind, Twin};

/// How often a lock that is waited for with a limit is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The way to the file system for everything that must survive; see the module's header.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

struct Shared {
    gate: Box<dyn Gate>,
    /// The first sync that failed. Set once, and then nothing is written any more.
    failed: OnceLock<(PathBuf, String)>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("failed", &self.shared.failed.get()).finish_non_exhaustive()
    }
}

impl Disk {
    /// The real file system, with nothing in between.
    #[must_use]
    pub fn real() -> Self {
        Self::with_gate(Box::new(Open))
    }

    /// The real file system behind a gate of the caller's; for tests.
    #[must_use]
    pub fn with_gate(gate: Box<dyn Gate>) -> Self {
        Self { shared: Arc::new(Shared { gate, failed: OnceLock::new() }) }
    }

    /// The real file system with one planned fault; the second value tells what happened.
    #[must_use]
    pub fn faulty(plan: FaultPlan) -> (Self, Twin) {
        let twin = Twin::new(plan);
        (Self::with_gate(Box::new(twin.clone())), twin)
    }

    /// Replaces the file at `path` (or makes it) so that every reader sees the old content or the
    /// new one, whole, also after a power loss: temporary file in the same folder, `fsync`, rename,
    /// `fsync` of the folder. A symlink there is replaced, not followed. Mode 0600.
    ///
    /// # Errors
    /// [`DiskError`]; the old content is whole, and the temporary file is gone where possible.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
            return Err(DiskError::NotAFile { path: path.to_owned(), found: "a folder" });
        }
        let temporary = fresh_sibling(path)?;
        self.write_new(&temporary, bytes)?;
        let renamed = self.step(StepKind::RenameAndSync, &temporary, Some(path), "replace", || {
            atomicwrites::replace_atomic(&temporary, path)
        });
        self.or_clean(renamed, &temporary)
    }

    /// As [`Disk::replace`] for a file that is there, with content that `produce` writes piece by piece. The new file
    /// keeps the old one's permissions and time of change.
    ///
    /// # Errors
    /// As [`Disk::replace`]; also what `produce` returns.
    pub fn rewrite(
        &self,
        path: &Path,
        mut produce: impl FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let failed = |source| DiskError::io("look at", path, source);
        let metadata = open_plain(path)?.metadata().map_err(failed)?;
        let temporary = fresh_sibling(path)?;
        let file = self.create(&temporary)?;
        let written = self
            .step(StepKind::Write, &temporary, None, "write", || {
                let mut writer = io::BufWriter::new(&file);
                produce(&mut writer)?;
                writer.flush()?;
                file.set_permissions(metadata.permissions())?;
                file.set_modified(metadata.modified()?)
            })
            .and_then(|()| self.sync_open(&file, &temporary))
            .and_then(|()| {
                self.step(StepKind::RenameAndSync, &temporary, Some(path), "replace", || {
                    atomicwrites::replace_atomic(&temporary, path)
                })
            });
        self.or_clean(written, &temporary)
    }

    /// Makes a file that was not there, all of it or nothing, durably. Mode 0600.
    ///
    /// # Errors
    /// [`DiskError::is_exists`] when something has that name; nothing is overwritten.
    pub fn create_new(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let temporary = fresh_sibling(path)?;
        self.write_new(&temporary, bytes)?;
        let renamed = self.rename_noreplace(&temporary, path);
        self.or_clean(renamed, &temporary)?;
        self.sync_dir(&folder_of(path))
    }

    /// Writes a new file in place (readers can see a part of it) and syncs its content, not its
    /// name: for temporary files that are renamed next. Mode 0600.
    ///
    /// # Errors
    /// [`DiskError`]; the part that was written is removed where possible.
    pub fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let mut file = self.create(path)?;
        let written = self
            .step(StepKind::Write, path, None, "write", || file.write_all(bytes))
            .and_then(|()| self.sync_open(&file, path));
        self.or_clean(written, path)
    }

    /// Writes a new file (0600) with a writer of the caller's and makes it durable, its name too: for files too large to
    /// be held in memory.
    ///
    /// # Errors
    /// [`DiskError`]; the part that was written is removed where possible.
    pub fn write_through(
        &self,
        path: &Path,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let mut file = self.create(path)?;
        let written = self
            .step(StepKind::Write, path, None, "write", || {
                file.set_len(0)?;
                file.rewind()?;
                let mut writer = io::BufWriter::with_capacity(256 << 10, &mut file);
                write(&mut writer)?;
                writer.flush()
            })
            .and_then(|()| self.sync_open(&file, path))
            .and_then(|()| self.sync_dir(&folder_of(path)));
        self.or_clean(written, path)
    }

    /// Lets the commit of a database transaction through: one atomic step, durable once `commit` has returned. What
    /// `commit` does with its own errors is its matter.
    ///
    /// # Errors
    /// [`DiskError`] when the step is refused; then `commit` was not called, or nobody may rely on it.
    pub fn commit(&self, database: &Path, commit: &mut dyn FnMut()) -> Result<(), DiskError> {
        self.step(StepKind::Commit, database, None, "write to", || {
            commit();
            Ok(())
        })
    }

    /// Appends one line, in one write, synced. `line` must not hold a newline.
    ///
    /// An unterminated last line is what is left of an append that never completed. If it is whole
    /// JSON (somebody's editor saved it so) it gets its newline, else it is cut off first.
    ///
    /// # Errors
    /// [`DiskError`]; a part of the line may be there, and the next append deals with it.
    pub fn append_line(&self, path: &Path, line: &str) -> Result<(), DiskError> {
        let failed = |source| DiskError::io("append to", path, source);
        let is_new = fs::symlink_metadata(path).is_err();
        let mut file = if is_new {
            self.create(path)?
        } else {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(path)
                .map_err(failed)?
        };
        let mut text = String::new();
        let (whole_lines, torn) = unterminated_tail(&mut file).map_err(failed)?;
        if !torn.is_empty() {
            if serde_json::from_slice::<serde::de::IgnoredAny>(&torn).is_ok() {
                text.push('\n');
            } else {
                self.step(StepKind::Truncate, path, None, "cut the torn last line of", || {
                    file.set_len(whole_lines)
                })?;
            }
        }
        text.push_str(line);
        text.push('\n');
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        self.step(StepKind::Write, path, None, "append to", || file.write_all(text.as_bytes()))?;
        self.sync_open(&file, path)?;
        if is_new { self.sync_dir(&folder_of(path)) } else { Ok(()) }
    }

    /// Copies a file to a new one (0600, synced, its name too) and hashes what was copied. The
    /// blocks are shared where the file system can (`FICLONE`), else copied in pieces.
    ///
    /// # Errors
    /// [`DiskError::is_exists`] when `to` is there; otherwise `to` is removed where possible.
    pub fn copy_hashing(&self, from: &Path, to: &Path) -> Result<Copied, DiskError> {
        let mut source = open_plain(from)?;
        let mut target = self.create(to)?;
        let mut copied = Copied { sha256: String::new(), len: 0 };
        let done = self
            .step(StepKind::Write, to, None, "copy to", || {
                copied = copy(&mut source, &mut target)?;
                Ok(())
            })
            .and_then(|()| self.sync_open(&target, to))
            .and_then(|()| self.sync_dir(&folder_of(to)));
        self.or_clean(done, to)?;
        Ok(copied)
    }

    /// Makes `to` hold what stands in `from` up to `end`, of which it holds the first `at` bytes already: cuts what it
    /// has beyond them (an append that never completed), copies the rest and syncs it. Returns digest and length of
    /// what was copied. `to` must be there; the cost is that of the new bytes.
    ///
    /// # Errors
    /// [`DiskError`], also when `from` ends before `end`; the first `at` bytes of `to` are whole.
    pub fn copy_tail(&self, from: &Path, to: &Path, at: u64, end: u64) -> Result<Copied, DiskError> {
        let mut source = open_plain(from)?;
        source.seek(SeekFrom::Start(at)).map_err(|e| DiskError::io("read", from, e))?;
        let mut target = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(to)
            .map_err(|e| DiskError::io("open", to, e))?;
        let len = target.metadata().map_err(|e| DiskError::io("look at", to, e))?.len();
        if len < at {
            let short = io::Error::new(io::ErrorKind::UnexpectedEof, format!("{len} bytes instead of {at}"));
            return Err(DiskError::io("append to", to, short));
        }
        if len > at {
            self.step(StepKind::Truncate, to, None, "cut the torn end of", || target.set_len(at))?;
        }
        target.seek(SeekFrom::Start(at)).map_err(|e| DiskError::io("append to", to, e))?;
        let wanted = end.saturating_sub(at);
        let mut copied = Copied { sha256: String::new(), len: 0 };
        self.step(StepKind::Write, to, None, "append to", || {
            copied = copy_some(&mut source, wanted, &mut target)?;
            Ok(())
        })?;
        if copied.len != wanted {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(DiskError::io("read", from, short));
        }
        self.sync_open(&target, to)?;
        Ok(copied)
    }

    /// Gives the file a second name, or copies it where the file system cannot; the name is synced.
    /// After a link both names are one file: what is appended to one is in the other.
    ///
    /// # Errors
    /// [`DiskError::is_exists`] when `to` is there; nothing is overwritten.
    pub fn link_or_copy(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        match self.link(from, to) {
            Ok(()) => self.sync_dir(&folder_of(to)),
            Err(error) if error.is_exists() || matches!(error, DiskError::Latched { .. }) => Err(error),
            Err(_) => self.copy_hashing(from, to).map(drop),
        }
    }

    /// Gives the file a second name; the folder is not synced.
    ///
    /// # Errors
    /// [`DiskError`], also where the file system has no hard links.
    pub fn link(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.step(StepKind::Link, from, Some(to), "link", || fs::hard_link(from, to))
    }

    /// Swaps what two names name, atomically (`RENAME_EXCHANGE`); the folder is not synced.
    ///
    /// # Errors
    /// [`DiskError::is_not_found`] when one is missing, [`DiskError::is_unsupported`] on file systems
    /// without it; nothing has moved then.
    pub fn exchange(&self, a: &Path, b: &Path) -> Result<(), DiskError> {
        self.step(StepKind::Exchange, a, Some(b), "exchange", || {
            Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
        })
    }

    /// Moves a name where none stands; the folder is not synced. Where the file system lacks
    /// `RENAME_NOREPLACE`, by a link and an unlink.
    ///
    /// # Errors
    /// [`DiskError::is_exists`] when something stands there.
    pub fn rename_noreplace(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.step(StepKind::RenameNoreplace, from, Some(to), "move into place", || {
            match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                    fs::hard_link(from, to)?;
                    fs::remove_file(from)
                }
                other => Ok(other?),
            }
        })
    }

    /// Moves a name onto another, replacing what stands there; the folder is not synced.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.step(StepKind::Rename, from, Some(to), "move", || fs::rename(from, to))
    }

    /// Takes a file's name away; false when it was not there. The folder is not synced, so the name
    /// may come back after a power loss.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn remove(&self, path: &Path) -> Result<bool, DiskError> {
        match self.step(StepKind::Remove, path, None, "remove", || fs::remove_file(path)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what interrupted [`Disk::replace`] and [`Disk::create_new`] calls left in a folder, for the
    /// files whose names `of_ours` accepts. Only for the holder of the lock under which those are written.
    ///
    /// # Errors
    /// [`DiskError`]; a folder that is not there holds nothing.
    pub fn sweep(&self, folder: &Path, of_ours: impl Fn(&str) -> bool) -> Result<(), DiskError> {
        let failed = |source| DiskError::io("read the folder", folder, source);
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if name.to_str().and_then(sibling_of).is_some_and(&of_ours) {
                self.remove(&folder.join(name))?;
            }
        }
        Ok(())
    }

    /// Takes a folder and everything in it away, symlinks as such; false when it was not there. What an interruption
    /// leaves is a part of it, and doing it again takes that away. The folder that held it is synced.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn remove_folder(&self, folder: &Path) -> Result<bool, DiskError> {
        let failed = |source| DiskError::io("read the folder", folder, source);
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                self.remove_folder(&entry.path())?;
            } else {
                self.remove(&entry.path())?;
            }
        }
        self.step(StepKind::Remove, folder, None, "remove the folder", || fs::remove_dir(folder))?;
        self.sync_dir(&folder_of(folder))?;
        Ok(true)
    }

    /// Makes the names in a folder survive a power loss.
    ///
    /// # Errors
    /// [`DiskError`]; after it nothing is written any more.
    pub fn sync_dir(&self, folder: &Path) -> Result<(), DiskError> {
        self.step(StepKind::SyncDir, folder, None, "sync the folder", || {
            match File::open(folder)?.sync_all() {
                // Some network file systems cannot sync a folder at all and say so like this.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                other => other,
            }
        })
    }

    /// Makes the content of a file that somebody else wrote survive a power loss.
    ///
    /// # Errors
    /// [`DiskError`]; after a failed sync nothing is written any more.
    pub fn sync_file(&self, path: &Path) -> Result<(), DiskError> {
        let file = open_plain(path)?;
        self.sync_open(&file, path)
    }

    /// Makes the folder and its missing parents, 0700 each, durably. Folders that are there keep
    /// their mode: they may be the owner's own.
    ///
    /// # Errors
    /// [`DiskError`]; [`DiskError::NotAFile`] never.
    pub fn private_dir(&self, path: &Path) -> Result<(), DiskError> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = folder_of(path);
        if parent != path {
            self.private_dir(&parent)?;
        }
        match self.step(StepKind::MakeDir, path, None, "make the folder", || {
            fs::DirBuilder::new().mode(0o700).create(path)
        }) {
            // Somebody else was quicker.
            Err(error) if error.is_exists() && path.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.sync_dir(&parent),
        }
    }

    /// Makes a folder of ours, or closes one that is there to everybody but its owner (0700).
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn own_private_dir(&self, path: &Path) -> Result<(), DiskError> {
        self.private_dir(path)?;
        let failed = |source| DiskError::io("close to others", path, source);
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(mode & 0o700)).map_err(failed)?;
        }
        Ok(())
    }

    /// Waits for the lock on `path`, however long that takes; see [`FileLock`].
    ///
    /// # Errors
    /// [`DiskError`] when the lock file cannot be made or opened.
    pub fn lock(&self, path: &Path) -> Result<FileLock, DiskError> {
        loop {
            if let Some(lock) = FileLock::acquire(path, true)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock on `path` if nobody holds it.
    ///
    /// # Errors
    /// [`DiskError`] when the lock file cannot be made or opened.
    pub fn try_lock(&self, path: &Path) -> Result<Option<FileLock>, DiskError> {
        FileLock::acquire(path, false)
    }

    /// Waits for the lock on `path`, at most that long; `None` when the time is over.
    ///
    /// # Errors
    /// [`DiskError`] when the lock file cannot be made or opened.
    pub fn lock_within(&self, path: &Path, limit: Duration) -> Result<Option<FileLock>, DiskError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(lock) = FileLock::acquire(path, false)? {
                return Ok(Some(lock));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(LOCK_RETRY);
        }
    }

    pub(super) fn create(&self, path: &Path) -> Result<File, DiskError> {
        let mut made = None;
        self.step(StepKind::Create, path, None, "create", || {
            made = Some(OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?);
            Ok(())
        })?;
        made.ok_or_else(|| DiskError::io("create", path, io::Error::other("the gate let nothing through")))
    }

    fn sync_open(&self, file: &File, path: &Path) -> Result<(), DiskError> {
        self.step(StepKind::SyncFile, path, None, "sync", || file.sync_all())
    }

    /// Removes the temporary file of a failed step. The first error is the one that matters.
    fn or_clean(&self, result: Result<(), DiskError>, temporary: &Path) -> Result<(), DiskError> {
        if result.is_err() {
            drop(self.remove(temporary));
        }
        result
    }

    pub(super) fn step(
        &self,
        kind: StepKind,
        path: &Path,
        other: Option<&Path>,
        doing: &'static str,
        mut act: impl FnMut() -> io::Result<()>,
    ) -> Result<(), DiskError> {
        if let Some((failed_path, cause)) = self.shared.failed.get() {
            return Err(DiskError::Latched {
                doing,
                path: path.to_owned(),
                failed_path: failed_path.clone(),
                cause: cause.clone(),
            });
        }
        let result = self.shared.gate.around(&Step { kind, path, other }, &mut act);
        result.map_err(|source| {
            let sync_failed = match kind {
                StepKind::SyncFile | StepKind::SyncDir => true,
                // If the temporary name is gone, the rename was done and the sync after it failed.
                StepKind::RenameAndSync => fs::symlink_metadata(path).is_err(),
                _ => false,
            };
            if sync_failed {
                drop(self.shared.failed.set((path.to_owned(), source.to_string())));
            }
            DiskError::io(doing, other.unwrap_or(path), source)
        })
    }
}
