//! What can go wrong around a switch.

use std::path::PathBuf;

use super::Credential;
use crate::disk::DiskError;
use crate::pointer::PointerError;

/// A step around a switch that did not work.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// A step on the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The pointer was not changed, or cannot be read.
    #[error(transparent)]
    Pointer(#[from] PointerError),
    /// The source changed while it was copied.
    #[error("{} changed while it was copied; nothing was touched, try again", path.display())]
    SourceMoved {
        /// The source.
        path: PathBuf,
    },
    /// The source did not stay quiet.
    #[error(
        "{} was still written to after {seconds} s; wait for the end of the turn, or raise stable_file_timeout_seconds",
        path.display()
    )]
    NotQuiet {
        /// The source.
        path: PathBuf,
        /// How long it was watched.
        seconds: f64,
    },
    /// What was put into the project folder is not what was proved.
    #[error("{} is not the candidate that was proved; it was not made current", path.display())]
    CandidateDiffers {
        /// The file.
        path: PathBuf,
    },
    /// Pane or unit cannot be looked at or handled.
    #[error("{0}")]
    Setup(String),
    /// Somebody else's process is where the noted one was; it was left alone.
    #[error(
        "session conflict: {noted} was current at prepare, {found} is now; find out who changed it, do not retry"
    )]
    Replaced {
        /// At prepare.
        noted: Credential,
        /// Now, in words.
        found: String,
    },
    /// The switch did not work out, and the old session runs again.
    #[error("{reason}")]
    WentBack {
        /// Why.
        reason: String,
        /// What is current now.
        after: Credential,
        /// Somebody else is behind it.
        conflict: bool,
    },
    /// The switch did not work out, and the old session could not be started either.
    #[error("{reason}; and the old session did not start again: {then}")]
    Stranded {
        /// Why.
        reason: String,
        /// What went wrong on the way back, with the remedy.
        then: String,
        /// Somebody else is behind it.
        conflict: bool,
    },
    /// A credential of another adapter.
    #[error(
        "{found} is nothing that this setup could compare; the operation was prepared for another activation"
    )]
    OtherAdapter {
        /// What was noted.
        found: Credential,
    },
}

impl SwitchError {
    /// Whether somebody else changed what was to be switched (exit code 4, `session_conflict`).
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        match self {
            Self::Pointer(error) => error.is_conflict(),
            Self::Replaced { .. } => true,
            Self::Stranded { conflict, .. } | Self::WentBack { conflict, .. } => *conflict,
            Self::Setup(_)
            | Self::Disk(_)
            | Self::SourceMoved { .. }
            | Self::NotQuiet { .. }
            | Self::CandidateDiffers { .. }
            | Self::OtherAdapter { .. } => false,
        }
    }
}
