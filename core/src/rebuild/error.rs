//! What can keep a rebuild from being planned or written. What speaks against one is `Blocked`.

use std::io;
use std::path::{Path, PathBuf};

use crate::transcript::TranscriptError;

/// A failure while planning or writing a candidate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    /// The source could not be read.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The candidate could not be written.
    #[error("could not {action} the candidate {}", path.display())]
    Io {
        /// The candidate.
        path: PathBuf,
        /// What was being done, as a verb.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The candidate could not be made durable.
    #[error("could not write the candidate")]
    Disk {
        /// Why.
        source: crate::disk::DiskError,
    },
    /// A repair is not the copy that it must be.
    #[error("the repair {} does not agree with its source: {what}", path.display())]
    Differs {
        /// The repair.
        path: PathBuf,
        /// Where.
        what: String,
    },
    /// A row could not be put into words for the candidate.
    #[error("could not form a row of the candidate {}", path.display())]
    Json {
        /// The candidate.
        path: PathBuf,
        /// Why it failed.
        source: serde_json::Error,
    },
}

impl RebuildError {
    pub(super) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}
