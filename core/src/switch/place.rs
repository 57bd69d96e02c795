//! What tmux pane and systemd unit have in common: running the tool that owns them, with a time limit.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::SwitchError;

/// How long the CLI may take to exit after TERM: it notes what it has done.
pub(super) const EXIT_GRACE: Duration = Duration::from_secs(15);

/// Runs a command to its end and gives what it printed; an error says what it was and what it said.
pub(super) fn output(command: &mut Command, limit: Duration) -> Result<String, SwitchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let words: Vec<String> =
        command.get_args().take(6).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let shown = format!("{name} {}", words.join(" "));
    let failed = |what: String| SwitchError::Setup(format!("`{shown}` {what}"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(
            |error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    SwitchError::Setup(format!("{name} is not installed, or not in PATH"))
                }
                _ => failed(format!("could not be started: {error}")),
            },
        )?;
    // Both print a few kilobytes at most, but a full pipe must not hold them up either.
    let reading = (child.stdout.take().map(drained), child.stderr.take().map(drained));
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| failed(format!("could not be waited for: {error}")))? {
            Some(status) => break status,
            None if Instant::now() >= until => {
                // It is only the messenger: what it has asked for goes on.
                child.kill().unwrap_or_default();
                child.wait().map(drop).unwrap_or_default();
                return Err(failed(format!("did not end within {} s", limit.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    };
    let (out, err) = (text(reading.0), text(reading.1));
    if status.success() {
        return Ok(out);
    }
    Err(failed(format!("failed ({status}): {}", err.lines().take(3).collect::<Vec<_>>().join(" | "))))
}

fn drained(mut stream: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came until then is what it said.
        stream.read_to_end(&mut bytes).map(drop).unwrap_or_default();
        bytes
    })
}
