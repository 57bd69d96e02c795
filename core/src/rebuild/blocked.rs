//! What speaks against a rebuild.

use serde::Serialize;

use crate::transcript::Decision;

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockKind {
    /// A shape outside the drift table that could hold words, or words where none belong.
    UnknownRow,
    /// Lines that could not be read.
    Damage,
    /// Two rows with one uuid that say different things.
    DuplicateUuid,
    /// A branch with a human's words that nobody decided about.
    Fork,
    /// A queued message whose words this version does not carry.
    QueuedWords,
    /// Nothing was said: a session without a message cannot be resumed.
    NothingSaid,
    /// The gain is below `min_gain_percent`.
    Gain,
    /// The candidate would fill too much of the window.
    Window,
    /// The candidate would be larger than what is loaded now.
    Level,
    /// The conversation is larger than `carry_max_tokens`.
    Overflow,
    /// The poison pattern.
    Poison,
}

impl BlockKind {
    /// Whether the words themselves are in doubt. What is not hard keeps nobody from writing a candidate.
    #[must_use]
    pub const fn is_hard(self) -> bool {
        match self {
            Self::UnknownRow
            | Self::Damage
            | Self::DuplicateUuid
            | Self::Fork
            | Self::QueuedWords
            | Self::NothingSaid => true,
            Self::Gain | Self::Window | Self::Level | Self::Overflow | Self::Poison => false,
        }
    }

    /// Whether a human who was shown it may say yes in spite of it (DESIGN 6).
    #[must_use]
    pub const fn may_be_confirmed(self) -> bool {
        matches!(self, Self::Poison | Self::Level)
    }
}

/// One reason not to rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// What kind of reason.
    pub kind: BlockKind,
    /// The line it is about.
    pub line: Option<u64>,
    /// What is wrong, where, and what to do.
    pub message: String,
    /// The same without anything that was said, where the message holds some: for files.
    #[serde(skip)]
    pub recorded: Option<String>,
    /// What a human's decision about it is remembered by; none where it cannot be decided away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The answers there are.
    #[serde(skip_serializing_if = "<[Decision]>::is_empty")]
    pub answers: &'static [Decision],
}

impl Blocked {
    pub(super) fn new(kind: BlockKind, line: Option<u64>, message: String) -> Self {
        Self { kind, line, message, recorded: None, key: None, answers: &[] }
    }

    /// The same, and a human may decide it.
    pub(super) fn decidable(self, key: impl Into<String>, answers: &'static [Decision]) -> Self {
        Self { key: Some(key.into()), answers, ..self }
    }
}
