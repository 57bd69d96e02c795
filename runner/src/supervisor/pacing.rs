//! How long to wait before a failed attempt is repeated: growing pauses, and a breaker for many failures in a short
//! time (DESIGN 9). Pure: the clock and the random number come from the caller.

use std::collections::VecDeque;
use std::time::Duration;

use kael_core::clock::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// Failures that are closer together than this trip the breaker.
const WINDOW: Duration = Duration::from_secs(120);
const FIRST_TRIP: Duration = Duration::from_secs(300);
const LONGEST_TRIP: Duration = Duration::from_secs(3600);

/// A pause, and whether the breaker made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// How long.
    pub length: Duration,
    /// So many failures came so close together that more than a pause is needed.
    pub tripped: bool,
}

/// The failures since the last turn that was answered.
#[derive(Debug, Default)]
pub struct Pacing {
    failures: u32,
    recent: VecDeque<Timestamp>,
    trips: u32,
}

impl Pacing {
    /// The pause after one more failure. `breaker` failures within two minutes make it five minutes; from then on every
    /// failure doubles that, up to an hour, until a turn is answered. `spread` is any random number: pauses are
    /// lengthened by up to a fifth, so that companions that failed together do not return together.
    pub fn failed(&mut self, breaker: u32, now: Timestamp, spread: u32) -> Pause {
        self.failures = self.failures.saturating_add(1);
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|&at| now.since(at) > WINDOW) {
            self.recent.pop_front();
        }
        let many = u32::try_from(self.recent.len()).unwrap_or(u32::MAX) >= breaker;
        if many || self.trips > 0 {
            self.recent.clear();
            self.trips = self.trips.saturating_add(1);
            return Pause {
                length: spread_out(doubled(FIRST_TRIP, self.trips, LONGEST_TRIP), spread),
                tripped: true,
            };
        }
        Pause { length: spread_out(doubled(FIRST, self.failures, LONGEST), spread), tripped: false }
    }

    /// How many failures there were in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// A turn was answered, given up as the one to blame, or a human wants it tried.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// A pause that doubles with every repetition, for what is tried again apart from turns.
#[must_use]
pub fn growing(first: Duration, times: u32, longest: Duration, spread: u32) -> Duration {
    spread_out(doubled(first, times, longest), spread)
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16))).min(longest)
}

fn spread_out(pause: Duration, spread: u32) -> Duration {
    pause + pause.mul_f64(f64::from(spread % 1000) / 5000.0)
}

/// A random number for the above.
#[must_use]
pub fn random() -> u32 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    (high >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use kael_core::clock::{Clock, ManualClock};

    fn start() -> ManualClock {
        ManualClock::starting_at("2026-11-30T14:00:00.000Z".parse().unwrap())
    }

    #[test]
    fn pauses_double_are_bounded_and_begin_anew_after_an_answer() {
        let clock = start();
        let mut pacing = Pacing::default();
        let mut seen = Vec::new();
        for _ in 0..11 {
            let pause = pacing.failed(u32::MAX, clock.now(), 0);
            assert!(!pause.tripped);
            seen.push(pause.length.as_secs());
            clock.advance(pause.length);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pacing.failures(), 11);
        pacing.reset();
        assert_eq!(pacing.failed(u32::MAX, clock.now(), 0).length.as_secs(), 1);
    }

    #[test]
    fn five_failures_in_two_minutes_trip_the_breaker_and_it_grows_until_an_answer() {
        let clock = start();
        let mut pacing = Pacing::default();
        let mut seen = Vec::new();
        for _ in 0..10 {
            let pause = pacing.failed(5, clock.now(), 0);
            seen.push((pause.length.as_secs(), pause.tripped));
            clock.advance(pause.length);
        }
        let quiet = [1, 2, 4, 8].map(|seconds| (seconds, false));
        let loud = [300, 600, 1200, 2400, 3600, 3600].map(|seconds| (seconds, true));
        assert_eq!(seen, [&quiet[..], &loud[..]].concat());
        pacing.reset();
        assert!(!pacing.failed(5, clock.now(), 0).tripped);
    }

    #[test]
    fn failures_far_apart_do_not_trip_it() {
        let clock = start();
        let mut pacing = Pacing::default();
        for _ in 0..9 {
            assert!(!pacing.failed(2, clock.now(), 0).tripped);
            clock.advance(Duration::from_secs(121));
        }
    }

    #[test]
    fn pauses_are_spread_by_at_most_a_fifth() {
        let clock = start();
        let with = |spread| Pacing::default().failed(9, clock.now(), spread).length.as_millis();
        assert_eq!((with(0), with(500), with(999)), (1000, 1100, 1199));
        assert_eq!(growing(Duration::from_secs(60), 9, Duration::from_secs(1800), 0).as_secs(), 1800);
    }
}
