//! Transcripts for tests, made row by row in the shapes of the facts. Only compiled for tests.
#![expect(clippy::needless_pass_by_value, reason = "a json!() value reads best in its place")]

use std::path::PathBuf;

use serde_json::{Value, json};

/// The session of all fixtures.
pub(crate) const SESSION: &str = "5e551011-0000-4000-8000-000000000001";
/// The model of all fixtures.
pub(crate) const MODEL: &str = "claude-test-1";

/// A transcript under construction: each row hangs on the one before it unless said otherwise.
#[derive(Clone)]
pub(crate) struct Script {
    bytes: Vec<u8>,
    tip: Option<String>,
    next: u32,
    message: u32,
}

/// A row's uuid by number.
pub(crate) fn uuid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

impl Script {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), tip: None, next: 1, message: 1 }
    }

    /// Appends anything.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a line without changing the tip.
    pub(crate) fn line(&mut self, row: &Value) -> &mut Self {
        let line = format!("{row}\n");
        self.raw(line.as_bytes())
    }

    /// Appends a row with the fields of the envelope; returns its uuid.
    pub(crate) fn row(&mut self, mut row: Value) -> String {
        let id = uuid(self.next);
        self.next += 1;
        let time = crate::clock::Timestamp::from_millis(1_790_000_000_000 + i64::from(self.next) * 1000);
        if let Some(fields) = row.as_object_mut() {
            for (key, value) in [
                ("parentUuid", json!(self.tip)),
                ("isSidechain", json!(false)),
                ("uuid", json!(id)),
                ("timestamp", json!(time)),
                ("sessionId", json!(SESSION)),
                ("version", json!("2.1.332")),
                ("cwd", json!("/srv/bot")),
            ] {
                fields.entry(key).or_insert(value);
            }
        }
        let id = row["uuid"].as_str().unwrap_or_default().to_owned();
        self.line(&row);
        if row["isSidechain"] != json!(true) {
            self.tip = Some(id.clone());
        }
        id
    }

    /// What the next row hangs on.
    pub(crate) fn tip(&self) -> Option<String> {
        self.tip.clone()
    }

    /// The next row hangs on this one.
    pub(crate) fn on(&mut self, parent: &str) -> &mut Self {
        self.tip = Some(parent.to_owned());
        self
    }

    /// The next row hangs on nothing.
    pub(crate) fn root(&mut self) -> &mut Self {
        self.tip = None;
        self
    }

    /// A user row with any content and further fields.
    pub(crate) fn user(&mut self, content: Value, more: Value) -> String {
        let mut row = json!({"type": "user", "message": {"role": "user", "content": content}});
        merge(&mut row, more);
        self.row(row)
    }

    /// What a human sends through `-p`.
    pub(crate) fn human(&mut self, text: &str) -> String {
        self.user(json!(text), json!({"promptSource": "sdk", "turnOrigin": "sdk"}))
    }

    /// An assistant row with any blocks and further fields.
    pub(crate) fn model(&mut self, blocks: Value, stop: Value, more: Value) -> String {
        let id = format!("msg_{:04}", self.message);
        let mut row = json!({"type": "assistant", "message": {
            "id": id, "type": "message", "role": "assistant", "model": MODEL, "content": blocks,
            "stop_reason": stop,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 20_000, "cache_creation_input_tokens": 5,
                      "output_tokens": 7}}});
        merge(&mut row, more);
        self.row(row)
    }

    /// A finished answer.
    pub(crate) fn says(&mut self, text: &str) -> String {
        let id = self.model(json!([{"type": "text", "text": text}]), json!("end_turn"), json!({}));
        self.message += 1;
        id
    }

    /// Leaves numbers of rows out, for rows that others have.
    pub(crate) fn skip(&mut self, rows: u32) -> &mut Self {
        self.next += rows;
        self
    }

    /// The next assistant row belongs to another message.
    pub(crate) fn next_message(&mut self) -> &mut Self {
        self.message += 1;
        self
    }

    /// A call of a tool; returns the row's uuid. The call's id is `toolu_<name>`.
    pub(crate) fn calls(&mut self, tool: &str, input: Value) -> String {
        let block = json!({"type": "tool_use", "id": format!("toolu_{tool}"), "name": tool, "input": input});
        self.model(json!([block]), json!("tool_use"), json!({}))
    }

    /// The result of a call.
    pub(crate) fn result(&mut self, tool: &str, content: Value, is_error: bool) -> String {
        let block = json!({"tool_use_id": format!("toolu_{tool}"), "type": "tool_result", "content": content,
                           "is_error": is_error});
        let id = self.user(json!([block]), json!({"toolUseResult": content}));
        self.message += 1;
        id
    }

    /// `No response requested.`
    pub(crate) fn synthetic(&mut self, text: &str) -> String {
        self.row(json!({"type": "assistant", "isApiErrorMessage": false, "message": {
            "id": "x", "role": "assistant", "model": "<synthetic>", "stop_reason": "stop_sequence",
            "content": [{"type": "text", "text": text}]}}))
    }

    /// An API error in place of an answer.
    pub(crate) fn api_error(&mut self, status: u16) -> String {
        self.row(json!({"type": "assistant", "isApiErrorMessage": true, "apiErrorStatus": status,
            "error": "server_error", "message": {
            "id": "x", "role": "assistant", "model": "<synthetic>", "stop_reason": "stop_sequence",
            "content": [{"type": "text", "text": format!("API Error: {status} try again")}]}}))
    }

    /// `[Request interrupted by user]`
    pub(crate) fn interrupt(&mut self) -> String {
        self.user(
            json!([{"type": "text", "text": "[Request interrupted by user]"}]),
            json!({"rowSource": "harness"}),
        )
    }

    /// An attachment row.
    pub(crate) fn attachment(&mut self, attachment: Value) -> String {
        self.row(json!({"type": "attachment", "attachment": attachment}))
    }

    /// A queue row.
    pub(crate) fn queue(&mut self, operation: &str, content: Option<&str>) -> &mut Self {
        let mut row = json!({"type": "queue-operation", "operation": operation, "sessionId": SESSION});
        if let Some(content) = content {
            merge(&mut row, json!({"content": content}));
        }
        self.line(&row)
    }

    /// A `last-prompt` row.
    pub(crate) fn last_prompt(&mut self, text: &str, leaf: &str) -> &mut Self {
        self.line(&json!({"type": "last-prompt", "lastPrompt": text, "leafUuid": leaf, "sessionId": SESSION}))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the transcript to a folder that lives as long as the result.
    pub(crate) fn file(&self) -> Fixture {
        Fixture::of(&self.bytes)
    }
}

fn merge(row: &mut Value, more: Value) {
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
}

/// A transcript on disk.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
    /// The transcript.
    pub(crate) path: PathBuf,
}

impl Fixture {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{SESSION}.jsonl"));
        std::fs::write(&path, bytes).unwrap();
        Self { dir, path }
    }

    /// Another file beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
