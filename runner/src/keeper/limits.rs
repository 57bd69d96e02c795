//! When a limit of the account ends.
//!
//! The CLI says it in a field (`rate_limit_event`: `resetsAt`). Older ones, and some errors, say it only in the text
//! of the result, as `...|1752123600` or `... resets May 18, 2033, 3:33am (UTC)`. That text is the CLI's own when the
//! result is an error; words of the conversation are never looked at.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use kael_core::clock::Timestamp;

/// The reset time in the text of an error's result.
#[must_use]
pub fn reset_in(text: &str, now: Timestamp) -> Option<Timestamp> {
    epoch(text).or_else(|| clock_time(text, now))
}

/// `Claude AI usage limit reached|1752123600`
fn epoch(text: &str) -> Option<Timestamp> {
    let (_, number) = text.rsplit_once('|')?;
    let seconds: i64 = number.trim().parse().ok()?;
    (seconds > 1_000_000_000).then(|| Timestamp::from_millis(seconds.saturating_mul(1000)))
}

/// `resets 3pm (Europe/Berlin)`, `resets 3:30pm (UTC)`, `resets May 18, 3am (UTC)`, `resets May 18, 2033, 3:33am (UTC)`
fn clock_time(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (_, after) = text.rsplit_once("resets ")?;
    let (when, zone) = after.split_once('(')?;
    let zone = match zone.split_once(')')?.0.trim() {
        // Also where the system has no list of zones.
        "UTC" | "GMT" => TimeZone::UTC,
        name => TimeZone::get(name).ok()?,
    };
    let here = jiff::Timestamp::from_millisecond(now.as_millis()).ok()?.to_zoned(zone.clone());
    let when = when.trim().trim_start_matches("at ").trim();
    let (date, time) = match when.rsplit_once(", ") {
        Some((date, time)) => (Some(date), time),
        None => (None, when),
    };
    let time = time_of_day(time)?;
    let at = |date: Date| -> Option<Zoned> { DateTime::from_parts(date, time).to_zoned(zone.clone()).ok() };
    let zoned = match date {
        Some(date) => {
            let dated = at(date_of(date, here.year())?)?;
            // Without a year it is the next such day: seen from December, January is in the year that follows.
            if dated < here && !date.contains(", ") { at(date_of(date, here.year() + 1)?)? } else { dated }
        }
        None => {
            let today = at(here.date())?;
            if today < here { at(here.date().checked_add(1.day()).ok()?)? } else { today }
        }
    };
    Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
}

fn time_of_day(text: &str) -> Option<Time> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, afternoon) = match (lower.strip_suffix("am"), lower.strip_suffix("pm")) {
        (Some(digits), _) => (digits, false),
        (_, Some(digits)) => (digits, true),
        _ => return None,
    };
    let (hour, minute) = digits.trim().split_once(':').unwrap_or((digits.trim(), "0"));
    let hour: i8 = hour.parse().ok()?;
    if !(1..=12).contains(&hour) {
        return None;
    }
    Time::new(hour % 12 + if afternoon { 12 } else { 0 }, minute.parse().ok()?, 0, 0).ok()
}

fn date_of(text: &str, year: i16) -> Option<Date> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let (day, year) = match text.split_once(", ") {
        Some((day, year)) => (day, year.trim().parse().ok()?),
        None => (text, year),
    };
    let (month, day) = day.trim().split_once(' ')?;
    let short = month.get(..3)?.to_ascii_lowercase();
    let month = MONTHS.iter().position(|name| *name == short)?;
    Date::new(year, i8::try_from(month + 1).ok()?, day.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_reset_time_is_read_and_nothing_else() {
        let now: Timestamp = "2026-11-30T14:00:00.000Z".parse().unwrap();
        let read = |text: &str| reset_in(text, now).map(|at| at.to_string());
        for (text, wanted) in [
            ("Claude AI usage limit reached|1800000000", "2027-01-15T08:00:00.000Z"),
            ("You've hit your session limit · resets 3pm (UTC)", "2026-11-30T15:00:00.000Z"),
            ("5-hour limit reached ∙ resets 1:30pm (UTC)", "2026-12-01T13:30:00.000Z"),
            ("resets 12am (UTC)", "2026-12-01T00:00:00.000Z"),
            ("resets 12pm (UTC)", "2026-12-01T12:00:00.000Z"),
            ("resets Dec 2, 3am (UTC)", "2026-12-02T03:00:00.000Z"),
            ("resets Jan 4, 3am (UTC)", "2027-01-04T03:00:00.000Z"),
            ("You've hit your weekly limit · resets May 18, 2033, 3:33am (UTC)", "2033-05-18T03:33:00.000Z"),
        ] {
            assert_eq!(read(text).as_deref(), Some(wanted), "{text}");
        }
        if TimeZone::get("Asia/Shanghai").is_ok() {
            assert_eq!(read("resets 11pm (Asia/Shanghai)").as_deref(), Some("2026-11-30T15:00:00.000Z"));
        }
        for text in [
            "",
            "a|b",
            "resets soon",
            "resets 25pm (UTC)",
            "resets 3pm (Nowhere/At-All)",
            "resets 3pm",
            "x|12",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
