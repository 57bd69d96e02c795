//! How long to wait before a failed attempt is repeated.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// The pause after the `failures`-th failure in a row (from 1): one second, doubling, at most five
/// minutes, spread by up to a fifth so that companions that failed together do not return together.
/// `spread` is any random number.
#[must_use]
pub fn pause_after(failures: u32, spread: u32) -> Duration {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(LONGEST);
    doubled + doubled.mul_f64(f64::from(spread % 1000) / 5000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_bounded() {
        let exact: Vec<u64> = (1..=12).map(|n| pause_after(n, 0).as_secs()).collect();
        assert_eq!(exact, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(pause_after(u32::MAX, 999).as_secs(), 359);
        assert!(pause_after(1, 500) > pause_after(1, 0));
    }
}
