//! The names of the states, and reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a state, as files, commands and people's scripts write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are described at OpState")]
pub enum Status {
    Pending,
    Scheduled,
    Running,
    Verifying,
    Activating,
    Activated,
    RollbackPending,
    RollbackScheduled,
    RolledBack,
    Failed,
    Cancelled,
}

impl Status {
    /// Whether the switch is under way, so that what is current may be on either side of it.
    #[must_use]
    pub const fn is_switching(self) -> bool {
        matches!(self, Self::Activating | Self::RollbackScheduled)
    }

    /// Every status, in the order of an operation's life.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Scheduled,
        Self::Running,
        Self::Verifying,
        Self::Activating,
        Self::Activated,
        Self::RollbackPending,
        Self::RollbackScheduled,
        Self::RolledBack,
        Self::Failed,
        Self::Cancelled,
    ];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Verifying => "verifying",
            Self::Activating => "activating",
            Self::Activated => "activated",
            Self::RollbackPending => "rollback_pending",
            Self::RollbackScheduled => "rollback_scheduled",
            Self::RolledBack => "rolled_back",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether something is still to be done; only one operation is active at a time.
    #[must_use]
    pub const fn is_active(self) -> bool {
        match self {
            Self::Pending
            | Self::Scheduled
            | Self::Running
            | Self::Verifying
            | Self::Activating
            | Self::RollbackPending
            | Self::RollbackScheduled => true,
            Self::Activated | Self::RolledBack | Self::Failed | Self::Cancelled => false,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why something was asked for or failed: at most 500 characters, never speech.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Reason(String);

impl Reason {
    /// The most characters a reason has.
    pub const LIMIT: usize = 500;

    /// Trims the text, replaces control characters (it is shown in terminals) and cuts it to 500 characters.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        Self(text.trim().chars().map(shown).take(Self::LIMIT).collect())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
