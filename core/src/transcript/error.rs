//! What can keep a transcript from being read at all. Damage inside one is a value, not an error.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to read a transcript.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// The file could not be opened or read.
    #[error("could not {action} the transcript {}", path.display())]
    Io {
        /// The transcript.
        path: PathBuf,
        /// What was being done, as a verb.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file holds more rows, or longer ones, than the index has numbers for.
    #[error("the transcript {} is too large to index: {what}", path.display())]
    TooLarge {
        /// The transcript.
        path: PathBuf,
        /// Which limit was met.
        what: &'static str,
    },
    /// The classes of the ledger do not add up to the size of the file: a mistake in this program.
    #[error(
        "the ledger of {} accounts for {accounted} of {actual} bytes; this is a mistake in kael-runner, \
         please report it with the shape of the transcript's rows",
        path.display()
    )]
    LedgerDoesNotAddUp {
        /// The transcript.
        path: PathBuf,
        /// The sum over all classes.
        accounted: u64,
        /// The bytes that were read.
        actual: u64,
    },
    /// The file changed between two reads of one operation.
    #[error("the transcript {} changed while it was read (at byte {offset}); read it again", path.display())]
    Changed {
        /// The transcript.
        path: PathBuf,
        /// The row that is not there any more.
        offset: u64,
    },
}

impl TranscriptError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Whether the failure is that there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
