//! What compare-and-swap compares: who was current when the operation was prepared.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::pointer::PointerValue;

use super::processes::Process;

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
        /// The `claude` in it: the same process, or one below it; with its start time. None only in older files.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claude: Option<Process>,
    },
    /// The main process of a systemd unit.
    Systemd {
        /// `MainPID`.
        main_pid: u32,
        /// The `claude` of the unit: the same process, or one below it; with its start time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claude: Option<Process>,
    },
}

impl Credential {
    /// The pane's process, where there is a pane.
    #[must_use]
    pub const fn pane_pid(self) -> Option<u32> {
        match self {
            Self::Tmux { pane_pid, .. } => Some(pane_pid),
            Self::Pointer { .. } | Self::Systemd { .. } => None,
        }
    }
}

impl Credential {
    /// The `claude` it names, where it names a process.
    #[must_use]
    pub const fn claude(self) -> Option<Process> {
        match self {
            Self::Tmux { claude, .. } | Self::Systemd { claude, .. } => claude,
            Self::Pointer { .. } => None,
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
            Self::Tmux { pane_pid, claude } => shown(f, "pane", *pane_pid, *claude),
            Self::Systemd { main_pid, claude } => shown(f, "unit", *main_pid, *claude),
        }
    }
}

fn shown(f: &mut fmt::Formatter<'_>, what: &str, pid: u32, claude: Option<Process>) -> fmt::Result {
    match claude {
        Some(claude) if claude.pid != pid => write!(f, "{what} process {pid} with claude {}", claude.pid),
        Some(_) | None => write!(f, "{what} process {pid}"),
    }
}
