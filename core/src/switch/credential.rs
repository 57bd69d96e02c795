//! What compare-and-swap compares: who was current when the operation was prepared.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::pointer::PointerValue;

/// The identity of what runs or is to be resumed, noted at prepare and compared before a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "adapter", rename_all = "snake_case")]
pub enum Credential {
    /// What the pointer says.
    Pointer {
        /// `None`: there is no pointer file.
        session: Option<SessionId>,
    },
    /// The process in a tmux pane. Operation files name it `cas_pane_pid`.
    Tmux {
        /// `#{pane_pid}`.
        pane_pid: u32,
    },
    /// The main process of a systemd unit.
    Systemd {
        /// `MainPID`.
        main_pid: u32,
    },
}

impl Credential {
    /// The pane's process, where there is a pane.
    #[must_use]
    pub const fn pane_pid(self) -> Option<u32> {
        match self {
            Self::Tmux { pane_pid } => Some(pane_pid),
            Self::Pointer { .. } | Self::Systemd { .. } => None,
        }
    }
}

impl From<PointerValue> for Credential {
    fn from(value: PointerValue) -> Self {
        Self::Pointer { session: value.session() }
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer { session: Some(session) } => write!(f, "pointer {session}"),
            Self::Pointer { session: None } => f.write_str("no pointer"),
            Self::Tmux { pane_pid } => write!(f, "pane process {pane_pid}"),
            Self::Systemd { main_pid } => write!(f, "unit process {main_pid}"),
        }
    }
}
