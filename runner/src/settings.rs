//! From the configuration to what the core's rebuild and ledger are asked to do.

use kael_core::config::{self, Config};
use kael_core::estimate::{Calibration, Pair};
use kael_core::ledger::Budgets;
use kael_core::rebuild::{CarryOverflow, RebuildSettings};
use kael_core::transcript::{ExtractRules, OffChain};
use serde::{Deserialize, Serialize};

use crate::decisions::Decided;
use crate::queue::{Queue, QueueError, Setting};

/// Figures that earlier turns have shown; 0 where nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The model's context window, from the result's `modelUsage`, in tokens.
    pub context_window: u64,
}

/// What is kept beside the configuration: figures, and what humans decided.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// Figures.
    pub measured: Measured,
    /// Decisions about single branches, rows and places.
    pub decided: Decided,
    /// What texts took, beside their estimates, the newest last.
    pub pairs: Vec<Pair>,
}

impl Kept {
    /// Reads it.
    pub fn of(queue: &Queue) -> Result<Self, QueueError> {
        Ok(Self {
            measured: queue.get(Setting::Measured)?.unwrap_or_default(),
            decided: queue.get(Setting::Decided)?.unwrap_or_default(),
            pairs: queue.get(Setting::Pairs)?.unwrap_or_default(),
        })
    }
}

/// What counts as speech.
#[must_use]
pub fn extract_rules(config: &Config, decided: &Decided) -> ExtractRules {
    let mut accept_unknown = config.transcript.accept_unknown.clone();
    accept_unknown.extend(decided.accepted().map(str::to_owned));
    ExtractRules {
        reply_tools: config.transcript.reply_tools.clone(),
        injected_tags: config.transcript.injected_tags.clone(),
        accept_unknown,
    }
}

fn window(config: &Config, measured: Measured) -> u64 {
    if config.runner.context_window > 0 { config.runner.context_window } else { measured.context_window }
}

/// How a rebuild is made.
#[must_use]
pub fn rebuild_settings(config: &Config, kept: &Kept) -> RebuildSettings {
    RebuildSettings {
        stamp_turns: config.stamp_turns,
        include_open_tail: config.include_open_tail,
        carry_max_tokens: config.carry_max_tokens,
        carry_overflow: match config.carry_overflow {
            config::CarryOverflow::DropOldest => CarryOverflow::DropOldest,
            config::CarryOverflow::Block => CarryOverflow::Block,
        },
        max_event_chars: config.max_event_chars,
        freeze_startup_snapshot: config.freeze_startup_snapshot,
        poison: config.poison_pattern.clone(),
        min_gain_percent: config.runner.min_gain_percent,
        context_window: window(config, kept.measured),
        calibration: Calibration::from_pairs(&kept.pairs),
        fixed_overhead_tokens: config.runner.fixed_overhead_tokens,
        off_chain: match config.runner.off_chain {
            config::OffChain::Ask => OffChain::Ask,
            config::OffChain::Drop => OffChain::Drop,
            config::OffChain::Carry => OffChain::Carry,
        },
        decisions: kept.decided.decisions(),
    }
}

/// When a rebuild is due.
#[must_use]
pub fn budgets(config: &Config, measured: Measured) -> Budgets {
    Budgets {
        dirty_budget_bytes: config.dirty_budget_bytes,
        context_budget_tokens: config.runner.context_budget_tokens,
        context_budget_percent: config.runner.context_budget_percent,
        rebuild_on_original_image_view: config.rebuild_on_original_image_view,
        context_window: window(config, measured),
    }
}
