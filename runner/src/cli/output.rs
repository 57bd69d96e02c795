//! Printing: text for people, one JSON value for scripts.

use std::io::Write;

use serde_json::Value;

use super::error::CliError;

/// Where and how a command prints.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON instead of text.
    pub json: bool,
}

impl Output {
    /// Prints the value or the text. A reader that went away (`| head`) is no error.
    pub fn print(&self, value: &Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let mut line = if self.json { value.to_string() } else { text() };
        line.push('\n');
        let mut out = std::io::stdout().lock();
        match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Prints an error to standard error, in the same form.
    pub fn print_error(&self, error: &CliError) {
        if self.json {
            eprintln!("{}", serde_json::json!({ "ok": false, "error": error.message }));
        } else {
            eprintln!("error: {}", error.message);
        }
    }
}

/// A byte count for people.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_readable() {
        let all = [0, 1023, 1024, 1536, 10 * 1024 * 1024, 1 << 40].map(super::bytes);
        assert_eq!(all, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 MiB", "1024.0 GiB"]);
    }
}
