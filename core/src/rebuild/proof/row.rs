//! A row as the proof reads it: a `serde_json` value without the bulk that can hold no words.
//!
//! Results of tools, images, thoughts and what attachments bring along are most of a transcript and
//! are looked at elsewhere: the plan's drops name them, and no copy of speech stands in them. Leaving
//! them out is what makes a second reading of everything affordable.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lines;

/// An object's members, unread.
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::with_capacity(16);
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &RawValue>()? {
                    all.push((key, value));
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(All).map(Members)
    }
}

impl<'a> Members<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// A member that is a string; of several, the last, as the CLI has it.
    fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        let (_, raw) = self.0.iter().rfind(|(name, _)| name == key)?;
        serde_json::from_str::<Key<'a>>(raw.get()).ok().map(|Key(text)| text)
    }
}

/// What decides whether and how a row is looked at.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub(super) kind: String,
    pub(super) uuid: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) logical_parent: Option<String>,
    pub(super) session: Option<String>,
    pub(super) leaf: Option<String>,
    pub(super) is_boundary: bool,
    pub(super) is_sidechain: bool,
}

/// A row: its envelope, and its value if its kind may hold words.
pub(super) struct Read {
    pub(super) envelope: Envelope,
    pub(super) value: Option<Value>,
}

/// Kinds of rows that hold words or copies of them.
const LOOKED_AT: &[&str] =
    &["user", "assistant", "attachment", "queue-operation", "last-prompt", "api-request-blob"];

/// Reads a row; nothing when it cannot be decoded.
pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    match serde_json::from_slice::<Members<'_>>(bytes) {
        Ok(members) => {
            let text = |key| members.text(key).map(Cow::into_owned);
            let envelope = Envelope {
                kind: text("type").unwrap_or_default(),
                uuid: text("uuid"),
                parent: text("parentUuid"),
                logical_parent: text("logicalParentUuid"),
                session: text("sessionId"),
                leaf: text("leafUuid"),
                is_boundary: members.text("subtype").as_deref() == Some("compact_boundary"),
                is_sidechain: members.0.iter().any(|(key, raw)| key == "isSidechain" && raw.get() == "true"),
            };
            let value = if LOOKED_AT.contains(&envelope.kind.as_str()) {
                // What a raw look cannot read (a lone surrogate) is read whole.
                Some(reduced(&members).or_else(|| lines::value(bytes))?)
            } else {
                None
            };
            Some(Read { envelope, value })
        }
        Err(_) => {
            let value = lines::value(bytes)?;
            let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            let envelope = Envelope {
                kind: text("type").unwrap_or_default(),
                uuid: text("uuid"),
                parent: text("parentUuid"),
                logical_parent: text("logicalParentUuid"),
                session: text("sessionId"),
                leaf: text("leafUuid"),
                is_boundary: text("subtype").as_deref() == Some("compact_boundary"),
                is_sidechain: value.get("isSidechain").and_then(Value::as_bool).unwrap_or(false),
            };
            Some(Read { envelope, value: Some(value) })
        }
    }
}

/// Below this a value is read as it is; looking into it costs more.
const SMALL: usize = 2048;

fn reduced(members: &Members<'_>) -> Option<Value> {
    let mut row = Map::new();
    for (key, raw) in &members.0 {
        let value = match key.as_ref() {
            _ if raw.get().len() < SMALL => parse(raw)?,
            // A human's answers stand in it, or nothing of a human's does.
            "toolUseResult" => {
                match raw.get().contains("\"answers\"") || raw.get().contains("\"annotations\"") {
                    true => parse(raw)?,
                    false => Value::Null,
                }
            }
            "message" => message(raw)?,
            "attachment" => attachment(raw)?,
            "rendered" => Value::Null,
            _ => parse(raw)?,
        };
        row.insert(key.to_string(), value);
    }
    Some(Value::Object(row))
}

fn parse(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok()
}

fn message(raw: &RawValue) -> Option<Value> {
    let Some(members) = Members::of(raw) else { return parse(raw) };
    let mut message = Map::new();
    for (key, raw) in &members.0 {
        let value = match key.as_ref() {
            "content" if raw.get().starts_with('[') => {
                let blocks: Vec<&RawValue> = serde_json::from_str(raw.get()).ok()?;
                Value::Array(blocks.into_iter().map(block).collect::<Option<_>>()?)
            }
            _ => parse(raw)?,
        };
        message.insert(key.to_string(), value);
    }
    Some(Value::Object(message))
}

/// Tools whose input holds words of the assistant's are few; large inputs of others are none.
const SPEAKS: &[&str] = &["ExitPlanMode", "SendUserMessage"];

fn block(raw: &RawValue) -> Option<Value> {
    let members = Members::of(raw).filter(|_| raw.get().len() >= SMALL);
    let Some(members) = members else { return parse(raw) };
    let kind = members.text("type").unwrap_or_default();
    let is_error = members.0.iter().any(|(key, raw)| key == "is_error" && raw.get() == "true");
    let name = members.text("name").unwrap_or_default();
    let mut block = Map::new();
    for (key, raw) in &members.0 {
        let bulk = match (kind.as_ref(), key.as_ref()) {
            ("tool_result", "content") => !is_error,
            ("image" | "document", "source") | ("thinking" | "redacted_thinking", _) => key != "type",
            ("tool_use", "input") => !SPEAKS.contains(&name.as_ref()) && !name.starts_with("mcp__"),
            _ => false,
        };
        block.insert(key.to_string(), if bulk { Value::Null } else { parse(raw)? });
    }
    Some(Value::Object(block))
}

fn attachment(raw: &RawValue) -> Option<Value> {
    let Some(members) = Members::of(raw) else { return parse(raw) };
    let queued = members.text("type").as_deref() == Some("queued_command");
    let mut attachment = Map::new();
    for (key, raw) in &members.0 {
        let value =
            if queued || matches!(key.as_ref(), "type" | "origin") { parse(raw)? } else { Value::Null };
        attachment.insert(key.to_string(), value);
    }
    Some(Value::Object(attachment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(row: &Value) -> Value {
        read(row.to_string().as_bytes()).unwrap().value.unwrap()
    }

    #[test]
    fn bulk_is_left_out_and_words_are_not() {
        let big = "x".repeat(5000);
        let row = json!({"type": "user", "toolUseResult": {"stdout": big}, "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": big},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true, "content": big},
            {"type": "image", "source": {"data": big}},
            {"type": "text", "text": big}]}});
        let value = of(&row);
        assert_eq!(value["toolUseResult"], Value::Null);
        let content = &value["message"]["content"];
        assert_eq!((&content[0]["content"], &content[2]["source"]), (&Value::Null, &Value::Null));
        assert_eq!((&content[1]["content"], &content[3]["text"]), (&json!(big), &json!(big)));
        let answers = json!({"type": "user", "toolUseResult": {"answers": {"q": big}}});
        assert_eq!(of(&answers), answers);
        let queued = json!({"type": "attachment", "attachment": {"type": "queued_command", "prompt": big}});
        assert_eq!(of(&queued), queued);
    }

    #[test]
    fn rows_that_no_raw_look_can_read_are_read_whole() {
        let row = br#"{"type":"user","uuid":"a","message":{"content":"x\ud83ey"}}"#;
        let read = read(row).unwrap();
        assert_eq!(read.envelope.uuid.as_deref(), Some("a"));
        assert_eq!(read.value.unwrap()["message"]["content"], "x\u{fffd}y");
    }
}
