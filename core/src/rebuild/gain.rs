//! Whether a rebuild is worth it, in tokens of the context (DESIGN 6).

use serde::Serialize;

use crate::estimate::{Calibration, Count};
use crate::transcript::receipt::Usage;

use super::blocked::{BlockKind, Blocked};
use super::settings::RebuildSettings;

/// What a rebuild would gain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gain {
    /// How full the context is now: the last usage. None without one.
    pub measured_tokens: Option<u64>,
    /// The estimate of what would be loaded: speech and overhead.
    pub estimated_after: u64,
    /// System prompt, tools and memory files; 0 when nothing says how much they take.
    pub overhead_tokens: u64,
    /// The estimate of the carried speech.
    pub speech_tokens: u64,
    /// The gain in percent of the measured level; negative when the session would grow.
    pub percent: Option<i64>,
}

pub(super) fn weigh(
    settings: &RebuildSettings,
    calibration: Calibration,
    first_usage: Option<(Usage, Count)>,
    level: Option<Usage>,
    speech_tokens: u64,
) -> Gain {
    let overhead_tokens = if settings.fixed_overhead_tokens > 0 {
        settings.fixed_overhead_tokens
    } else {
        first_usage
            .map_or(0, |(usage, said)| usage.input().saturating_sub(calibration.correct(said.tokens())))
    };
    let estimated_after = overhead_tokens + speech_tokens;
    let measured_tokens = level.map(|usage| usage.total());
    let percent = measured_tokens.filter(|tokens| *tokens > 0).map(|measured| {
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX / 200);
        (signed(measured) - signed(estimated_after)).saturating_mul(100) / signed(measured)
    });
    Gain { measured_tokens, estimated_after, overhead_tokens, speech_tokens, percent }
}

impl Gain {
    /// What the figures say against a rebuild.
    pub(super) fn objections(&self, settings: &RebuildSettings, compactions: u32) -> Vec<Blocked> {
        let mut blocked = Vec::new();
        let (after, window) = (self.estimated_after, settings.context_window);
        if window > 0 && after.saturating_mul(10) > window.saturating_mul(7) {
            blocked.push(Blocked::new(
                BlockKind::Window,
                None,
                format!(
                    "the rebuilt session would take about {after} tokens, more than 70 % of the window of {window}: \
                     set carry_max_tokens to about {} to leave out the oldest turns",
                    (window / 2).saturating_sub(self.overhead_tokens).max(5000)
                ),
            ));
        }
        if let (Some(measured), Some(percent)) = (self.measured_tokens, self.percent) {
            if after > measured && compactions > 0 {
                blocked.push(Blocked::new(
                    BlockKind::Level,
                    None,
                    format!(
                        "the rebuilt session would take about {after} tokens, more than the {measured} of now, \
                         because words come back that a compaction had replaced: set carry_max_tokens to about {} \
                         to leave out the oldest turns, or confirm to carry them all",
                        measured.saturating_sub(self.overhead_tokens).max(5000)
                    ),
                ));
            } else if settings.min_gain_percent > 0 && percent < i64::from(settings.min_gain_percent) {
                blocked.push(Blocked::new(
                    BlockKind::Gain,
                    None,
                    format!(
                        "not worth it: the context would go from {measured} to about {after} tokens, a gain of \
                         {percent} %, and min_gain_percent is {}",
                        settings.min_gain_percent
                    ),
                ));
            }
        }
        blocked
    }
}
