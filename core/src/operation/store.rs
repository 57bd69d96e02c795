//! The operations of one state folder: reading for everybody, writing for the holder of `coordinator.lock`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::consent::Consent;
use super::file::{self, FormError};
use super::record::Operation;
use super::state::{IllegalTransition, OpEvent, OpState};
use super::status::Status;
use crate::clock::Timestamp;
use crate::disk::{Disk, DiskError, FileLock, holder};
use crate::ids::{OperationId, SessionId};

/// The operations under `<state>/operations`, and their artifacts under `<state>/artifacts`.
#[derive(Debug, Clone)]
pub struct OpStore {
    state_dir: PathBuf,
    disk: Disk,
}

/// An operation could not be read, or was not changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A step on the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No file of that name.
    #[error("there is no operation {id} in {}; `kael-runner status` shows the latest", folder.display())]
    NotFound {
        /// What was asked for.
        id: OperationId,
        /// Where.
        folder: PathBuf,
    },
    /// The file is there and is no operation.
    #[error("{} is not a readable operation ({cause}); it is left as it is: mend it or move it away", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// A newer version wrote it.
    #[error(
        "{} was written by a newer version of kael-runner (format {format}); it is left as it is: use that version",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Somebody else holds `coordinator.lock`.
    #[error("{} is held by {holder}; try again when that has ended", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, for people.
        holder: String,
    },
    /// Another operation is active.
    #[error("operation {id} is {status}; only one operation is active at a time")]
    Active {
        /// The active one.
        id: OperationId,
        /// Its state.
        status: Status,
    },
    /// Only what is pending can be confirmed.
    #[error("operation {id} is {status}; only a pending operation can be confirmed")]
    NotPending {
        /// Which.
        id: OperationId,
        /// Its state.
        status: Status,
    },
    /// Somebody else changed the session during an earlier operation.
    #[error(
        "operation {id} met a session conflict: find out who changed the session, do not retry; then \
         `kael-runner clear {id}`"
    )]
    SessionConflict {
        /// That operation.
        id: OperationId,
    },
    /// It was saved by somebody else since it was read.
    #[error("operation {id} was changed since it was read; read it again")]
    Stale {
        /// Which.
        id: OperationId,
    },
    /// Only the newest activated operation can be rolled back.
    #[error("operation {id} is not the newest activated one; {}", newest_text(*newest))]
    NotNewest {
        /// What was asked for.
        id: OperationId,
        /// Which could be.
        newest: Option<OperationId>,
    },
    /// It has no open session conflict.
    #[error("operation {id} has no open session conflict; nothing was changed")]
    NoConflict {
        /// Which.
        id: OperationId,
    },
    /// The event does not fit the state.
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
}

fn newest_text(newest: Option<OperationId>) -> String {
    newest.map_or_else(|| "none is activated".to_owned(), |id| format!("that is {id}"))
}

/// A file in the operations folder that cannot be used; it is reported and left alone.
#[derive(Debug)]
pub struct Unreadable {
    /// The file.
    pub path: PathBuf,
    /// Why, in words for people.
    pub error: StoreError,
}

/// Everything in the operations folder.
#[derive(Debug, Default)]
pub struct Listing {
    /// Newest first.
    pub operations: Vec<Operation>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

impl OpStore {
    /// Opens the store, making its folders (0700) where they are missing.
    ///
    /// # Errors
    /// [`StoreError::Disk`] when a folder cannot be made.
    pub fn open(state_dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        for folder in [state_dir.to_owned(), state_dir.join("operations"), state_dir.join("artifacts")] {
            disk.own_private_dir(&folder)?;
        }
        Ok(Self { state_dir: state_dir.to_owned(), disk })
    }

    /// The store of a state folder that may not be there; nothing is made. For commands that only read: an
    /// absent folder holds no operations, and locking it fails.
    #[must_use]
    pub fn read_only(state_dir: &Path, disk: Disk) -> Self {
        Self { state_dir: state_dir.to_owned(), disk }
    }

    /// The storage that the store writes through.
    #[must_use]
    pub const fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The state folder.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The operation's file.
    #[must_use]
    pub fn path(&self, id: OperationId) -> PathBuf {
        self.operations().join(format!("{id}.json"))
    }

    /// The operation's evidence: frozen copy, candidate, startup snapshot.
    #[must_use]
    pub fn artifacts_dir(&self, id: OperationId) -> PathBuf {
        self.state_dir.join("artifacts").join(id.to_string())
    }

    /// Where a transcript of that session stands in the artifacts: the frozen copy under the old session's
    /// id, the candidate under the new one's.
    #[must_use]
    pub fn artifact(&self, id: OperationId, session: SessionId) -> PathBuf {
        self.artifacts_dir(id).join(format!("{session}.jsonl"))
    }

    /// Where the frozen startup snapshot stands.
    #[must_use]
    pub fn snapshot_path(&self, id: OperationId) -> PathBuf {
        self.artifacts_dir(id).join("startup_snapshot.txt")
    }

    /// Where detached workers write what they do.
    #[must_use]
    pub fn worker_log(&self) -> PathBuf {
        self.state_dir.join("worker.log")
    }

    /// Reads one operation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], [`StoreError::Newer`]; the file is left alone.
    pub fn load(&self, id: OperationId) -> Result<Operation, StoreError> {
        let path = self.path(id);
        match read(&path) {
            Err(StoreError::Disk(error)) if error.is_not_found() => {
                Err(StoreError::NotFound { id, folder: self.operations() })
            }
            Ok(found) if found.id != id => {
                Err(StoreError::Damaged { path, cause: format!("it says that it is operation {}", found.id) })
            }
            other => other,
        }
    }

    /// Reads them all, newest first. Names that are no operation's (temporary files, a README) are passed over.
    ///
    /// # Errors
    /// [`StoreError::Disk`] when the folder cannot be read; single files are values.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let folder = self.operations();
        let failed = |source| DiskError::io("read the folder", &folder, source);
        let mut listing = Listing::default();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(listing),
            Err(error) => return Err(failed(error).into()),
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let Some(id) = name.to_str().and_then(|n| n.strip_suffix(".json")).and_then(|n| n.parse().ok())
            else {
                continue;
            };
            match self.load(id) {
                Ok(operation) => listing.operations.push(operation),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => listing.unreadable.push(Unreadable { path: self.path(id), error }),
            }
        }
        listing.operations.sort_by_key(|op| std::cmp::Reverse((op.created_at, op.id)));
        listing.unreadable.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// The operation that something is still to be done for.
    ///
    /// # Errors
    /// As [`OpStore::list`].
    pub fn active(&self) -> Result<Option<Operation>, StoreError> {
        Ok(self.list()?.operations.into_iter().find(|op| op.status().is_active()))
    }

    /// The newest operation.
    ///
    /// # Errors
    /// As [`OpStore::list`].
    pub fn latest(&self) -> Result<Option<Operation>, StoreError> {
        Ok(self.list()?.operations.into_iter().next())
    }

    /// The activated operation whose switch was the last; the only one that can be rolled back.
    ///
    /// # Errors
    /// As [`OpStore::list`].
    pub fn newest_activated(&self) -> Result<Option<Operation>, StoreError> {
        let operations = self.list()?.operations.into_iter();
        Ok(operations
            .filter(|op| op.status() == Status::Activated)
            .max_by_key(|op| (op.activated_at(), op.created_at, op.id)))
    }

    /// The newest operation with a session conflict that no human has cleared.
    ///
    /// # Errors
    /// As [`OpStore::list`].
    pub fn session_conflict(&self) -> Result<Option<OperationId>, StoreError> {
        Ok(self.list()?.operations.iter().find(|op| op.has_open_conflict()).map(|op| op.id))
    }

    /// Takes `coordinator.lock`, waiting as long as it takes.
    ///
    /// # Errors
    /// [`StoreError::Disk`] when the lock file cannot be opened, or debris of an earlier holder not removed.
    pub fn lock(&self) -> Result<StoreGuard, StoreError> {
        self.guard(self.disk.lock(&self.lock_path())?)
    }

    /// Takes `coordinator.lock`, waiting at most that long.
    ///
    /// # Errors
    /// [`StoreError::Busy`] names the holder; else as [`OpStore::lock`].
    pub fn lock_within(&self, limit: Duration) -> Result<StoreGuard, StoreError> {
        let path = self.lock_path();
        match self.disk.lock_within(&path, limit)? {
            Some(lock) => self.guard(lock),
            None => {
                let holder = holder(&path).unwrap_or_else(|| "another process".to_owned());
                Err(StoreError::Busy { path, holder })
            }
        }
    }

    fn guard(&self, lock: FileLock) -> Result<StoreGuard, StoreError> {
        let is_ours = |stem: &str| stem.ends_with(".json");
        self.disk.sweep(&self.operations(), is_ours)?;
        Ok(StoreGuard { store: self.clone(), _lock: lock })
    }

    fn operations(&self) -> PathBuf {
        self.state_dir.join("operations")
    }

    fn lock_path(&self) -> PathBuf {
        self.state_dir.join("coordinator.lock")
    }
}

fn read(path: &Path) -> Result<Operation, StoreError> {
    let damaged = |cause: String| StoreError::Damaged { path: path.to_owned(), cause };
    let mut file = match crate::disk::open_plain(path) {
        Ok(file) => file,
        Err(DiskError::NotAFile { found, .. }) => return Err(damaged(format!("it is {found}"))),
        Err(DiskError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            return Err(damaged(source.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes).map_err(|e| DiskError::io("read", path, e))?;
    file::from_json(&bytes).map_err(|error| match error {
        FormError::Newer(format) => StoreError::Newer { path: path.to_owned(), format },
        FormError::Damaged(cause) => damaged(cause),
    })
}

/// Shows that `coordinator.lock` is held: only its holder can write operations. Reading goes through it too.
#[derive(Debug)]
pub struct StoreGuard {
    store: OpStore,
    _lock: FileLock,
}

impl std::ops::Deref for StoreGuard {
    type Target = OpStore;

    fn deref(&self) -> &OpStore {
        &self.store
    }
}

impl StoreGuard {
    /// Saves the operation durably; its revision moves on.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when the file has moved on since it was read, [`StoreError::Newer`] and
    /// [`StoreError::Damaged`] when it is not ours to overwrite; [`StoreError::Disk`] leaves the old content.
    pub fn save(&self, operation: &mut Operation) -> Result<(), StoreError> {
        let path = self.path(operation.id);
        let on_disk = match self.load(operation.id) {
            Ok(found) => found.revision,
            Err(StoreError::NotFound { .. }) => 0,
            Err(error) => return Err(error),
        };
        if on_disk != operation.revision {
            return Err(StoreError::Stale { id: operation.id });
        }
        operation.revision += 1;
        let saved = file::to_json(operation)
            .map_err(|e| DiskError::io("write", &path, io::Error::from(e)))
            .and_then(|text| self.disk.replace(&path, &text));
        if saved.is_err() {
            operation.revision -= 1;
        }
        Ok(saved?)
    }

    /// Applies the event and saves. In memory nothing has changed unless both worked.
    ///
    /// # Errors
    /// [`StoreError::Illegal`], or as [`StoreGuard::save`].
    pub fn advance(
        &self,
        operation: &mut Operation,
        event: &OpEvent,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut next = operation.clone();
        next.apply(event, at)?;
        self.save(&mut next)?;
        *operation = next;
        Ok(())
    }

    /// Makes the operation's artifacts folder (0700).
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn make_artifacts_dir(&self, id: OperationId) -> Result<PathBuf, StoreError> {
        let folder = self.artifacts_dir(id);
        self.disk.own_private_dir(&folder)?;
        Ok(folder)
    }

    /// A human has found out who changed the session: policies may try again.
    ///
    /// # Errors
    /// [`StoreError::NoConflict`], or as [`StoreGuard::save`].
    pub fn clear_conflict(&self, id: OperationId, by: &str, at: Timestamp) -> Result<Operation, StoreError> {
        let mut operation = self.load(id)?;
        if !operation.has_open_conflict() {
            return Err(StoreError::NoConflict { id });
        }
        operation.conflict_cleared = Some((at, by.to_owned()));
        operation.updated_at = at;
        self.save(&mut operation)?;
        Ok(operation)
    }

    /// Notes that the session of before the newest activated operation is wanted back. Without a `yes` it waits until one
    /// is recorded with [`StoreGuard::agree`]; an earlier yes does not count for it.
    ///
    /// # Errors
    /// [`StoreError::NotNewest`], [`StoreError::Active`], or as [`StoreGuard::save`].
    pub fn request_rollback(
        &self,
        id: OperationId,
        reason: &str,
        yes: Option<Consent>,
        at: Timestamp,
    ) -> Result<Operation, StoreError> {
        let mut operation = self.load(id)?;
        if let OpState::Activated(_) = operation.state() {
            let newest = self.newest_activated()?.map(|op| op.id);
            if newest != Some(id) {
                return Err(StoreError::NotNewest { id, newest });
            }
            if let Some(active) = self.active()? {
                return Err(StoreError::Active { id: active.id, status: active.status() });
            }
        }
        operation.reasons.push(reason.into());
        operation.rollback_consent = yes;
        self.advance(&mut operation, &OpEvent::RollbackRequested, at)?;
        Ok(operation)
    }
}
