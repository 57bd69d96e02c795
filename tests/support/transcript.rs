//! A transcript as tests look at it and write it.

use std::path::Path;

use serde_json::{Value, json};

/// The rows that parse, in order.
pub fn rows(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// User and assistant rows as `U:text`, `A:text`, `A:<tool_use>`, `U:<tool_result>`, `A!text` for an
/// API error, `A~text` for another synthetic row and `M:text` for a meta row; one entry a block.
pub fn outline(path: &Path) -> Vec<String> {
    rows(path).iter().flat_map(outline_of).collect()
}

fn outline_of(row: &Value) -> Vec<String> {
    let who = match (row["type"].as_str(), row["isMeta"] == true, row["isApiErrorMessage"] == true) {
        (Some("user"), true, _) => "M:",
        (Some("user"), ..) => "U:",
        (Some("assistant"), _, true) => "A!",
        (Some("assistant"), ..) if row["message"]["model"] == "<synthetic>" => "A~",
        (Some("assistant"), ..) => "A:",
        _ => return Vec::new(),
    };
    match &row["message"]["content"] {
        Value::String(text) => vec![format!("{who}{text}")],
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["text"].as_str() {
                Some(text) => format!("{who}{text}"),
                None => format!("{who}<{}>", block["type"].as_str().unwrap_or("?")),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// The row with this uuid.
pub fn row(path: &Path, uuid: &str) -> Option<Value> {
    rows(path).into_iter().find(|row| row["uuid"] == uuid)
}

/// The row's uuid, its parent's, and so on up to the root.
pub fn ancestry(path: &Path, uuid: &str) -> Vec<String> {
    let mut line = vec![uuid.to_owned()];
    while let Some(parent) =
        line.last().and_then(|uuid| row(path, uuid)?["parentUuid"].as_str().map(str::to_owned))
    {
        assert!(!line.contains(&parent), "the chain of {uuid} runs in a circle");
        line.push(parent);
    }
    line
}

/// The uuid of the last row that carries the result of a tool.
pub fn last_result(path: &Path) -> String {
    let rows = rows(path);
    let last = rows.iter().rfind(|r| !r["toolUseResult"].is_null());
    last.and_then(|r| r["uuid"].as_str()).expect("the transcript has no result of a tool").to_owned()
}

/// The uuid of the last assistant row that the model made.
pub fn last_real_assistant(path: &Path) -> String {
    let rows = rows(path);
    let last = rows.iter().rfind(|r| r["type"] == "assistant" && r["message"]["model"] != "<synthetic>");
    last.and_then(|r| r["uuid"].as_str()).expect("the transcript has no assistant row").to_owned()
}

/// A minimal rebuilt session: what a candidate looks like at the least (facts 1).
pub struct Candidate {
    session: String,
    rows: Vec<Value>,
}

impl Candidate {
    /// Of this session, without rows.
    pub fn new(session: &str) -> Self {
        Self { session: session.to_owned(), rows: Vec::new() }
    }

    /// Adds a human row; one text stays a plain string, several become blocks.
    pub fn user(self, texts: &[&str]) -> Self {
        let content = match texts {
            [one] => json!(one),
            many => blocks(many),
        };
        self.row("user", json!({"role": "user", "content": content}))
    }

    /// Adds an assistant row.
    pub fn assistant(self, texts: &[&str]) -> Self {
        let message = json!({"role": "assistant", "model": "claude-opus-5-5", "content": blocks(texts)});
        self.row("assistant", message)
    }

    fn row(mut self, kind: &str, message: Value) -> Self {
        let parent = self.rows.last().map_or(Value::Null, |row| row["uuid"].clone());
        let second = self.rows.len();
        let mut row = json!({"parentUuid": parent, "isSidechain": false, "type": kind,
            "uuid": uuid::Uuid::new_v4(), "timestamp": format!("2026-01-02T03:04:{second:02}.000Z"),
            "sessionId": self.session, "kael": {"v": 1}});
        row["message"] = message;
        self.rows.push(row);
        self
    }

    /// Writes it.
    pub fn write(self, path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let lines: String = self.rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(path, lines).unwrap();
    }
}

fn blocks(texts: &[&str]) -> Value {
    texts.iter().map(|text| json!({"type": "text", "text": text})).collect()
}
