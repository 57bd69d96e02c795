//! Durations as people write them: seconds as a number, or `"20m"`, `"1h30m"`, `"500ms"`.

use std::time::Duration;

/// Longest duration the configuration takes. Larger ones are typing errors, and adding them to the
/// present instant could leave the calendar.
pub(super) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Units from the longest, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads seconds.
pub(super) fn from_seconds(seconds: f64) -> Result<Duration, String> {
    if !seconds.is_finite() {
        return Err("a duration must be finite".to_owned());
    }
    if seconds < 0.0 {
        return Err("a duration cannot be negative".to_owned());
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "longer than the longest duration, 366d".to_owned())
}

/// Reads numbers with units behind them, one after the other.
pub(super) fn from_text(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("an empty text is no duration; write it like \"20m\"".to_owned());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: f64 =
            number.parse().map_err(|_| "a duration is numbers with units, like \"1h30m\"".to_owned())?;
        let millis = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
        seconds += match millis {
            // Exact for every length up to a year.
            Some(millis) => number * Duration::from_millis(millis).as_secs_f64(),
            None if unit.is_empty() => {
                return Err(format!(
                    "a number in quotes needs a unit: \"{number}s\", or {number} without quotes"
                ));
            }
            None => return Err("the units of a duration are ms, s, m, h and d".to_owned()),
        };
        rest = after.trim_start();
    }
    from_seconds(seconds)
}

/// Writes a duration so that it is read as the same one, to the millisecond.
pub(super) fn show(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "\"0s\"".to_owned();
    }
    let mut text = String::new();
    for (unit, length) in UNITS {
        if millis >= length {
            text.push_str(&format!("{}{unit}", millis / length));
            millis %= length;
        }
    }
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_is_read() {
        for (text, millis) in [
            ("20m", 1_200_000),
            ("24h", 86_400_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1 h 30m", 5_400_000),
            (" 1.5s ", 1_500),
            ("0s", 0),
            ("366d", 366 * 86_400_000),
        ] {
            assert_eq!(from_text(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        assert_eq!(from_seconds(0.1).unwrap(), Duration::from_millis(100));
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        let said = |text: &str| from_text(text).unwrap_err();
        insta::assert_snapshot!(said(""), @r#"an empty text is no duration; write it like "20m""#);
        insta::assert_snapshot!(said("20"), @r#"a number in quotes needs a unit: "20s", or 20 without quotes"#);
        insta::assert_snapshot!(said("20 minutes"), @"the units of a duration are ms, s, m, h and d");
        insta::assert_snapshot!(said("20分"), @"the units of a duration are ms, s, m, h and d");
        insta::assert_snapshot!(said("-5s"), @r#"a duration is numbers with units, like "1h30m""#);
        insta::assert_snapshot!(said("1.2.3s"), @r#"a duration is numbers with units, like "1h30m""#);
        insta::assert_snapshot!(said("soon"), @r#"a duration is numbers with units, like "1h30m""#);
        insta::assert_snapshot!(said("400d"), @"longer than the longest duration, 366d");
        insta::assert_snapshot!(from_seconds(-0.5).unwrap_err(), @"a duration cannot be negative");
        insta::assert_snapshot!(from_seconds(f64::NAN).unwrap_err(), @"a duration must be finite");
        insta::assert_snapshot!(from_seconds(1e300).unwrap_err(), @"longer than the longest duration, 366d");
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for millis in [0, 1, 500, 1_000, 1_001, 5_400_000, 86_400_000, 90_061_001] {
            let duration = Duration::from_millis(millis);
            let shown = show(duration);
            assert_eq!(from_text(shown.trim_matches('"')).unwrap(), duration, "{shown}");
        }
        assert_eq!(show(Duration::from_secs(1_800)), "\"30m\"");
    }
}
