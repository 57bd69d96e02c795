//! Printing: text for people, one JSON value for scripts.

use std::io::{IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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

/// Lines for people, through `$PAGER` (else `less`) where somebody reads them on a terminal.
pub struct Pages {
    pager: Option<Child>,
}

impl Pages {
    /// Starts the pager if one is wanted and standard output is a terminal.
    pub fn open(wanted: bool) -> Result<Self, CliError> {
        if !wanted || !std::io::stdout().is_terminal() {
            return Ok(Self { pager: None });
        }
        let pager = std::env::var_os("PAGER").filter(|pager| !pager.is_empty());
        let pager = pager.unwrap_or_else(|| "less".into());
        // One word, never through a shell. Without a pager the lines are simply printed.
        Ok(Self { pager: Command::new(pager).stdin(Stdio::piped()).spawn().ok() })
    }

    /// Prints one line; false when nobody reads any more.
    pub fn line(&mut self, text: &str) -> std::io::Result<bool> {
        let text = format!("{text}\n");
        let written = match self.pager.as_mut().and_then(|pager| pager.stdin.as_mut()) {
            Some(pager) => pager.write_all(text.as_bytes()),
            None => std::io::stdout().lock().write_all(text.as_bytes()),
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for the reader.
    pub fn close(mut self) -> Result<(), CliError> {
        if let Some(mut pager) = self.pager.take() {
            drop(pager.stdin.take());
            pager.wait()?;
        }
        Ok(())
    }
}

/// How long work must take before it shows how far it is.
const PATIENCE: Duration = Duration::from_millis(400);
/// How often the sign is written anew.
const AGAIN: Duration = Duration::from_millis(100);

/// Does work that reads about `bytes` bytes, and shows on standard error how far it is, where that is a terminal and it
/// takes long. Nothing of it stays on the screen.
pub fn with_progress<T>(what: &str, bytes: u64, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let before = kael_core::progress::bytes_read();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut wait = PATIENCE;
            // The other end is dropped when the work is over.
            while ended.recv_timeout(wait) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                wait = AGAIN;
                let read = kael_core::progress::bytes_read().saturating_sub(before);
                let percent = (read.saturating_mul(100) / bytes.max(1)).min(99);
                eprint!("\r\u{1b}[K{what}: {percent} % of {}", self::bytes(bytes));
            }
            if wait == AGAIN {
                eprint!("\r\u{1b}[K");
            }
        });
        let result = work();
        drop(done);
        result
    })
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
