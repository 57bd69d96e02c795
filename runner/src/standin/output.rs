//! Stdout in its three forms.

use std::io::Write;

use serde_json::{Value, json};

use super::args::Format;
use super::quirks::{Quirk, Quirks};
use super::session::now;

/// Where events and results go.
pub(super) struct Output {
    pub(super) format: Format,
    pub(super) partial: bool,
    pub(super) replay: bool,
    pub(super) quirks: Quirks,
}

impl Output {
    /// A line of the stream; nothing in the other forms.
    pub(super) fn emit(&self, session: &str, mut line: Value) {
        if self.format == Format::Stream {
            line["session_id"] = json!(self.reported(session));
            if line["uuid"].is_null() {
                line["uuid"] = json!(uuid::Uuid::new_v4());
            }
            print(&line.to_string());
        }
    }

    fn reported<'a>(&self, session: &'a str) -> &'a str {
        if self.quirks.has(Quirk::OtherSession) { "0b1d0000-0000-4000-8000-0000000000ff" } else { session }
    }

    /// What becomes of a message, by its uuid.
    pub(super) fn lifecycle(&self, session: &str, command: &str, state: &str) {
        self.emit(session, json!({"type": "command_lifecycle", "command_uuid": command, "state": state}));
    }

    /// The message as the CLI repeats it. A replay without time stands for a message that is known.
    pub(super) fn replay(&self, session: &str, uuid: &str, content: &Value, known: bool) {
        if self.replay {
            let mut line = json!({"type": "user", "message": {"role": "user", "content": content},
                "parent_tool_use_id": null, "uuid": uuid, "isReplay": true});
            if !known {
                line["timestamp"] = json!(now());
            }
            self.emit(session, line);
        }
    }

    /// A message in the stream's form: `assistant`, or `user` for results of tools.
    pub(super) fn message(&self, session: &str, kind: &str, uuid: &str, message: &Value) {
        self.emit(
            session,
            json!({"type": kind, "message": message, "parent_tool_use_id": null, "uuid": uuid, "timestamp": now()}),
        );
    }

    /// An event of the API's stream, with `--include-partial-messages`.
    pub(super) fn partial(&self, session: &str, event: &Value) {
        if self.partial {
            self.emit(session, json!({"type": "stream_event", "event": event, "parent_tool_use_id": null}));
        }
    }

    /// The end of a turn.
    pub(super) fn result(&self, session: &str, mut result: Value) {
        if self.quirks.has(Quirk::NoResult) {
            return;
        }
        if self.quirks.has(Quirk::HalfResult) {
            let line = result.to_string();
            let half = line.char_indices().nth(line.chars().count() / 2).map_or(0, |(at, _)| at);
            let mut stdout = std::io::stdout().lock();
            if stdout.write_all(&line.as_bytes()[..half]).is_ok() {
                stdout.flush().ok();
            }
            return;
        }
        match self.format {
            Format::Stream => self.emit(session, result),
            Format::Json => {
                result["session_id"] = json!(self.reported(session));
                print(&result.to_string());
            }
            Format::Text => print(result["result"].as_str().unwrap_or_default()),
        }
    }
}

/// A reader that has gone away does not end the turn: its answer is still written down.
fn print(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").is_ok() {
        stdout.flush().ok();
    }
}
