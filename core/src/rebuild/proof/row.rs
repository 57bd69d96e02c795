//! A row as the proof reads it: a `serde_json` value without the bulk that can hold no words.
//!
//! Results of tools, images, thoughts and what attachments bring along are most of a transcript and
//! are looked at elsewhere: the plan's drops name them, and no copy of speech stands in them. Leaving
//! them out is what makes a second reading of everything affordable.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lines;

/// A string, borrowed where it holds no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A row's members: its message and attachment without their bulk, everything else unread.
#[derive(Default)]
struct Members<'a> {
    message: Option<Value>,
    attachment: Option<Value>,
    others: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Members { others: Vec::with_capacity(24), ..Members::default() };
                while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
                    match key.as_ref() {
                        "message" => all.message = Some(map.next_value_seed(Lean::Message)?),
                        "attachment" => all.attachment = Some(map.next_value_seed(Lean::Attachment)?),
                        _ => all.others.push((key, map.next_value()?)),
                    }
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(All)
    }
}

impl<'a> Members<'a> {
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        // Of several members with one name the CLI has the last.
        self.others.iter().rfind(|(name, _)| name == key).map(|(_, raw)| *raw)
    }

    fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        serde_json::from_str::<Text<'a>>(self.get(key)?.get()).ok().map(|Text(text)| text)
    }
}

/// Reads a value and leaves its bulk out: what stands at this place in a row.
#[derive(Clone, Copy)]
enum Lean {
    Message,
    Content,
    Block,
    Attachment,
}

impl<'de> DeserializeSeed<'de> for Lean {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Lean {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        if matches!(self, Self::Content) {
            while let Some(value) = list.next_element_seed(Self::Block)? {
                values.push(value);
            }
        } else {
            while let Some(value) = list.next_element()? {
                values.push(value);
            }
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        // What may be bulk, kept unread until the others say what it is.
        let mut unread: Vec<(String, &RawValue)> = Vec::new();
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            let bulky = match self {
                Self::Message => {
                    if key == "content" {
                        members.insert(key.into_owned(), map.next_value_seed(Self::Content)?);
                        continue;
                    }
                    false
                }
                Self::Block => {
                    matches!(key.as_ref(), "content" | "input" | "source" | "thinking" | "signature" | "data")
                }
                Self::Attachment => !matches!(key.as_ref(), "type" | "origin"),
                Self::Content => false,
            };
            if bulky {
                unread.push((key.into_owned(), map.next_value()?));
            } else {
                members.insert(key.into_owned(), map.next_value()?);
            }
        }
        let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = members.get("name").and_then(Value::as_str).unwrap_or_default();
        let is_error = members.get("is_error") == Some(&Value::Bool(true));
        let keep = || match (self, kind) {
            (Self::Attachment, kind) => kind == "queued_command",
            (_, "tool_use") => !WORDLESS.contains(&name),
            (_, "image" | "document" | "thinking" | "redacted_thinking") => false,
            _ => true,
        };
        let kept: Vec<bool> = unread
            .iter()
            .map(|(key, raw)| match (self, kind) {
                (Self::Block, "tool_result") if key == "content" => is_error || holds_sentence(raw.get()),
                _ => keep(),
            })
            .collect();
        for ((key, raw), kept) in unread.into_iter().zip(kept) {
            let value =
                if kept { serde_json::from_str(raw.get()).map_err(A::Error::custom)? } else { Value::Null };
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

/// Tools of the CLI's own whose input may be large and holds nothing that the assistant says.
const WORDLESS: &[&str] =
    &["Write", "Edit", "MultiEdit", "NotebookEdit", "Bash", "Task", "Agent", "Workflow"];

/// Whether a result begins as one does that tells what a human answered.
fn holds_sentence(raw: &str) -> bool {
    let text = raw.trim_start_matches('"');
    super::shapes::ANSWERED.iter().any(|head| text.starts_with(head))
        || raw.starts_with('[') && raw.len() < SMALL
}

/// What decides whether and how a row is looked at.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub(super) kind: String,
    pub(super) uuid: Option<String>,
    pub(super) parent: Option<String>,
    /// It says whom it hangs on, be it nobody.
    pub(super) names_parent: bool,
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
    &["user", "assistant", "attachment", "system", "queue-operation", "last-prompt", "api-request-blob"];

/// Reads a row; nothing when it cannot be decoded.
pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    if let Some(read) = lean(bytes) {
        return Some(read);
    }
    // What a quick look cannot read (a lone surrogate) is read whole.
    let value = lines::value(bytes)?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let envelope = Envelope {
        kind: text("type").unwrap_or_default(),
        uuid: text("uuid"),
        parent: text("parentUuid"),
        names_parent: value.get("parentUuid").is_some(),
        logical_parent: text("logicalParentUuid"),
        session: text("sessionId"),
        leaf: text("leafUuid"),
        is_boundary: text("subtype").as_deref() == Some("compact_boundary"),
        is_sidechain: value.get("isSidechain").and_then(Value::as_bool).unwrap_or(false),
    };
    let looked_at = LOOKED_AT.contains(&envelope.kind.as_str());
    Some(Read { envelope, value: looked_at.then_some(value) })
}

/// Reads a row in one pass, if it is nothing but one object and holds nothing odd.
pub(super) fn lean(bytes: &[u8]) -> Option<Read> {
    let members: Members<'_> = serde_json::from_slice(bytes).ok()?;
    let text = |key| members.text(key).map(Cow::into_owned);
    let envelope = Envelope {
        kind: text("type").unwrap_or_default(),
        uuid: text("uuid"),
        parent: text("parentUuid"),
        names_parent: members.get("parentUuid").is_some(),
        logical_parent: text("logicalParentUuid"),
        session: text("sessionId"),
        leaf: text("leafUuid"),
        is_boundary: members.text("subtype").as_deref() == Some("compact_boundary"),
        is_sidechain: members.get("isSidechain").is_some_and(|raw| raw.get() == "true"),
    };
    if !LOOKED_AT.contains(&envelope.kind.as_str()) {
        return Some(Read { envelope, value: None });
    }
    let mut row = Map::new();
    for (key, raw) in &members.others {
        let value = match key.as_ref() {
            // The envelope was read, and holds no words.
            "parentUuid" | "sessionId" | "timestamp" | "version" | "cwd" | "gitBranch" | "userType"
            | "requestId" | "slug" | "entrypoint" => continue,
            "toolUseResult" if raw.get().len() > SMALL && !holds_answers(raw.get()) => continue,
            "rendered" if raw.get().len() > SMALL => continue,
            _ => serde_json::from_str(raw.get()).ok()?,
        };
        row.insert(key.to_string(), value);
    }
    for (key, value) in [("message", members.message), ("attachment", members.attachment)] {
        if let Some(value) = value {
            row.insert(key.to_owned(), value);
        }
    }
    Some(Read { envelope, value: Some(Value::Object(row)) })
}

/// Below this a value is read as it is; looking for keys in it costs more.
const SMALL: usize = 2048;

/// A human's answers stand under these keys, or nothing of a human's does.
fn holds_answers(raw: &str) -> bool {
    let find = |key: &str| memchr::memmem::find(raw.as_bytes(), key.as_bytes()).is_some();
    find("\"answers\"") || find("\"annotations\"")
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
        assert_eq!(value.get("toolUseResult"), None);
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
