//! What a rebuild is asked to do.

use std::path::Path;

use crate::estimate::Calibration;
use crate::ids::{OperationId, SessionId};
use crate::transcript::{Decisions, ExtractRules, OffChain, OwnRows};

/// What happens when the conversation is larger than `carry_max_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CarryOverflow {
    /// Whole oldest turns are left out, counted.
    #[default]
    DropOldest,
    /// The rebuild blocks.
    Block,
}

/// Settings of a rebuild (DESIGN 6 and 12).
#[derive(Debug, Clone)]
pub struct RebuildSettings {
    /// Whether a turn's first human message begins with its time.
    pub stamp_turns: bool,
    /// Whether unanswered messages that are not sent again are carried as history.
    pub include_open_tail: bool,
    /// The most tokens to carry; 0 for no limit.
    pub carry_max_tokens: u64,
    /// What happens above it.
    pub carry_overflow: CarryOverflow,
    /// The most characters of one item; 0 for no limit.
    pub max_event_chars: u64,
    /// Whether the startup snapshot is carried as the first item.
    pub freeze_startup_snapshot: bool,
    /// What must not stand twice in the last ten turns.
    pub poison: regex::Regex,
    /// The gain below which a rebuild is not worth it, in percent; 0 for any.
    pub min_gain_percent: u8,
    /// The model's window in tokens; 0 when it is not known.
    pub context_window: u64,
    /// How estimates are corrected.
    pub calibration: Calibration,
    /// System prompt, tools and memory files in tokens; 0 to take it from the session's first usage.
    pub fixed_overhead_tokens: u64,
    /// What happens to branches nobody decided about.
    pub off_chain: OffChain,
    /// What was decided about single branches, by [`crate::transcript::Branch::key`].
    pub decisions: Decisions,
}

/// The default of `poison_pattern` (DESIGN 6).
pub const DEFAULT_POISON: &str =
    "(?i)(AUP|Acceptable Use|policy violation|policy blocked|refusal loop|毒上下文|中毒|拒绝循环)";

impl RebuildSettings {
    /// The defaults of DESIGN 12 around a pattern.
    #[must_use]
    pub fn with_poison(poison: regex::Regex) -> Self {
        Self {
            stamp_turns: true,
            include_open_tail: true,
            carry_max_tokens: 0,
            carry_overflow: CarryOverflow::DropOldest,
            max_event_chars: 0,
            freeze_startup_snapshot: false,
            poison,
            min_gain_percent: 20,
            context_window: 0,
            calibration: Calibration::default(),
            fixed_overhead_tokens: 0,
            off_chain: OffChain::Ask,
            decisions: Decisions::new(),
        }
    }
}

impl RebuildSettings {
    /// The same, with nothing left out or cut, and nothing weighed: for what must hold everything.
    #[must_use]
    pub fn without_limits(&self) -> Self {
        Self {
            min_gain_percent: 0,
            carry_max_tokens: 0,
            max_event_chars: 0,
            context_window: 0,
            ..self.clone()
        }
    }
}

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// The transcript, or the frozen copy of it.
    pub source: &'a Path,
    /// The session it belongs to.
    pub source_session: SessionId,
    /// The session to be made.
    pub new_session: SessionId,
    /// The operation that makes it, for our mark in its rows.
    pub operation: Option<OperationId>,
    /// Settings.
    pub settings: &'a RebuildSettings,
    /// The rules of extraction.
    pub rules: &'a ExtractRules,
    /// What the inbox knows.
    pub own: &'a OwnRows,
    /// How many damaged places a human has accepted to lose.
    pub accept_damage: Option<u64>,
}
