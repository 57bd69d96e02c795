//! Time as transcripts and our files write it, and a clock that tests can set.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant in UTC with millisecond resolution, written as `2026-11-30T18:54:24.123Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time of day here, `23:46:45`, for somebody who waits for it; with the date where that is another one.
    #[must_use]
    pub fn local(self) -> String {
        let zone = jiff::tz::TimeZone::system();
        let (this, now) = (self.0.to_zoned(zone.clone()), jiff::Timestamp::now().to_zoned(zone));
        let format = if this.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        this.strftime(format).to_string()
    }

    /// The instant that many milliseconds after 1970; instants outside the calendar are clamped.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(if millis < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        }))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn as_millis(&self) -> i64 {
        self.0.as_millisecond()
    }

    /// This instant moved into the future.
    #[must_use]
    pub fn after(&self, by: Duration) -> Self {
        Self::from_millis(self.as_millis().saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this instant is; zero when it is not.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Duration {
        Duration::from_millis(
            u64::try_from(self.as_millis().saturating_sub(earlier.as_millis())).unwrap_or(0),
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let exact: jiff::Timestamp = text.parse()?;
        Ok(Self::from_millis(exact.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where the product reads the time, so that pauses and expiries can be tested exactly.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub const fn starting_at(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = now.after(by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_with_three_digits() {
        let t: Timestamp = "2026-11-30T18:54:24.1239Z".parse().unwrap();
        assert_eq!(t.to_string(), "2026-11-30T18:54:24.123Z");
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(t.after(Duration::from_secs(1)).since(t), Duration::from_secs(1));
        assert_eq!(t.since(t.after(Duration::from_secs(1))), Duration::ZERO);
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&t).unwrap()).unwrap(), t);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::starting_at(Timestamp::from_millis(5));
        assert_eq!(clock.now().as_millis(), 5);
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now().as_millis(), 2005);
    }
}
