//! How many tokens a text takes, before anything was measured (DESIGN 5).

use serde::{Deserialize, Serialize};

/// Estimates the tokens of a text: 1.1 for each Chinese, Japanese or Korean character, one for each
/// 1.5 other characters. Rounded up, so that no text is free.
#[must_use]
pub fn tokens(text: &str) -> u64 {
    let mut count = Count::default();
    count.add(text);
    count.tokens()
}

/// A running estimate over many texts, rounded once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    cjk: u64,
    other: u64,
}

impl Count {
    /// Counts another text in.
    pub fn add(&mut self, text: &str) {
        for c in text.chars() {
            if is_cjk(c) { self.cjk += 1 } else { self.other += 1 }
        }
    }

    /// Both counts together.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self { cjk: self.cjk + more.cjk, other: self.other + more.other }
    }

    /// The estimate for what was counted.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        // In thirtieths of a token: 1.1 is 33, one of 1.5 is 20.
        (self.cjk * 33 + self.other * 20).div_ceil(30)
    }
}

/// What a text took when it was measured, beside its estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The estimate of the texts that were sent, uncorrected.
    pub estimated: u64,
    /// What they took: the API's `usage` without the fixed overhead.
    pub measured: u64,
}

/// A correction of estimates, from measured pairs (DESIGN 5).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Estimates are multiplied by this, in thousandths.
    pub per_mille: u32,
    /// How many pairs it comes from.
    pub pairs: u32,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { per_mille: 1000, pairs: 0 }
    }
}

/// Pairs below this say more about rounding and the messages around them than about texts.
const SMALLEST: u64 = 200;
/// How many pairs count; older ones are of other texts and perhaps of another model.
const NEWEST: usize = 64;

impl Calibration {
    /// From measured pairs, the newest last. The middle one of their ratios, weighed by their size,
    /// decides, so that a turn that compacted, failed or sent images does not; a factor that no
    /// tokenizer has (under a fifth, over five) is not believed. Without usable pairs: no correction.
    #[must_use]
    pub fn from_pairs(pairs: &[Pair]) -> Self {
        let usable = pairs.iter().rev().filter(|pair| pair.estimated >= SMALLEST && pair.measured > 0);
        let mut ratios: Vec<(u64, u64)> = usable
            .take(NEWEST)
            .map(|pair| (pair.measured.saturating_mul(1000) / pair.estimated, pair.estimated))
            .filter(|(ratio, _)| (200..=5000).contains(ratio))
            .collect();
        ratios.sort_unstable();
        let whole: u64 = ratios.iter().map(|(_, weight)| weight).sum();
        let mut below = 0;
        let middle = ratios.iter().find(|(_, weight)| {
            below += weight;
            below * 2 >= whole
        });
        match middle {
            Some((ratio, _)) => Self {
                per_mille: u32::try_from(*ratio).unwrap_or(1000),
                pairs: u32::try_from(ratios.len()).unwrap_or(u32::MAX),
            },
            None => Self::default(),
        }
    }

    /// An estimate, corrected. Rounded up, so that no text is free.
    #[must_use]
    pub const fn correct(&self, estimated: u64) -> u64 {
        estimated.saturating_mul(self.per_mille as u64).div_ceil(1000)
    }
}

/// Scripts whose characters are about a token each.
pub(crate) const fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11FF}'
        | '\u{2E80}'..='\u{2FDF}'
        | '\u{3000}'..='\u{30FF}'
        | '\u{3100}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{A960}'..='\u{A97F}'
        | '\u{AC00}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{FF00}'..='\u{FFEF}'
        | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_weighed_as_agreed() {
        for (text, expected) in [
            ("", 0),
            ("a", 1),
            ("abc", 2),
            ("风筝飞了", 5),
            ("風の音", 4),
            ("하늘", 3),
            ("🪁🪁🪁", 2),
            ("مرحبا", 4),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
        assert_eq!(tokens(&"风".repeat(1000)), 1100);
    }

    #[test]
    fn measured_pairs_correct_the_estimate_within_five_percent() {
        // A tokenizer that takes 0.71 of the estimate, give or take what a turn differs.
        let pairs: Vec<Pair> = (1..40_u64)
            .map(|turn| Pair { estimated: 300 * turn, measured: 213 * turn + turn % 7 * 4 })
            .collect();
        let calibration = Calibration::from_pairs(&pairs);
        assert_eq!(calibration.pairs, 39);
        for text in [1_000, 50_000, 900_000_u64] {
            let off = calibration.correct(text).abs_diff(text * 71 / 100);
            assert!(off * 20 <= text * 71 / 100, "{text}: {off}");
        }
        // Some turns that compacted, or sent images, move it little.
        let mut odd = pairs.clone();
        odd.extend((0..10).map(|_| Pair { estimated: 4000, measured: 19_000 }));
        odd.extend([Pair { estimated: 5000, measured: 1 }, Pair { estimated: 3, measured: 900 }]);
        let moved = Calibration::from_pairs(&odd).per_mille.abs_diff(calibration.per_mille);
        assert!(moved * 20 <= calibration.per_mille, "{moved}");
        assert_eq!(Calibration::from_pairs(&[]), Calibration::default());
        assert_eq!(Calibration::default().correct(7), 7);
    }

    #[test]
    fn a_running_count_rounds_once() {
        let mut count = Count::default();
        for _ in 0..30 {
            count.add("a");
        }
        assert_eq!(count.tokens(), 20);
        assert_eq!(count.plus(count).tokens(), 40);
    }
}
