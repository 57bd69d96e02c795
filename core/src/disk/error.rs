//! What can go wrong on the disk, as values.

use std::io;
use std::path::{Path, PathBuf};

/// A durable step that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The operating system refused the step; the previous content is whole.
    #[error("failed to {doing} {}", path.display())]
    Io {
        /// What was tried, as in "failed to ...".
        doing: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An earlier `fsync` failed, so what the disk holds is unknown; nothing is written any more.
    #[error(
        "refused to {doing} {}: an earlier sync of {} failed ({cause}), so nothing is written any more; \
         check the disk, then start again",
        path.display(), failed_path.display()
    )]
    Latched {
        /// What was asked for.
        doing: &'static str,
        /// What it was asked for.
        path: PathBuf,
        /// The file or folder whose sync failed.
        failed_path: PathBuf,
        /// Why that sync failed.
        cause: String,
    },
    /// Something else than a regular file stands where a file is to be.
    #[error("{} is {found}, not a regular file; move it away, nothing was written", path.display())]
    NotAFile {
        /// Where it stands.
        path: PathBuf,
        /// What it is, with an article.
        found: &'static str,
    },
}

impl DiskError {
    /// A step that the system refused; `doing` completes "could not ...".
    #[must_use]
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    /// The operating system's word for it, where there is one.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Latched { .. } | Self::NotAFile { .. } => None,
        }
    }

    /// Whether something with that name was there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.kind() == Some(io::ErrorKind::AlreadyExists)
    }

    /// Whether the file was not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(io::ErrorKind::NotFound)
    }

    /// Whether the disk is full: worth another try when there is room again.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Whether this file system cannot do what was asked at all (`RENAME_EXCHANGE` on some).
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported))
    }
}
