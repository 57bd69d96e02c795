//! JSON without certain words: every string is read, and what does not hold them stays byte for byte as it is.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::words::{MARK, Words};

/// JSON inside of strings is followed this deep.
const DEPTH: u32 = 4;

/// Which rule holds for the strings of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    Plain,
    /// It belongs to what is meant as a whole.
    There,
    /// The CLI's own copies.
    Copy,
}

/// The text without the words, if they stand in it; it may be JSON or not.
#[must_use]
pub fn without(words: &Words, text: &[u8], kind: Kind) -> Option<Vec<u8>> {
    inside(words, text, kind, DEPTH)
}

fn inside(words: &Words, text: &[u8], kind: Kind, depth: u32) -> Option<Vec<u8>> {
    let looks = matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
    if !looks || serde_json::from_slice::<IgnoredAny>(text).is_err() {
        let text = String::from_utf8_lossy(text);
        return match plain(words, &text, kind) {
            Cow::Borrowed(_) => None,
            Cow::Owned(without) => Some(without.into_bytes()),
        };
    }
    let mut out = Vec::new();
    let mut done = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        let end = string_end(text, start);
        let raw = text.get(start..end).unwrap_or_default();
        if let Some(string) = decode(raw) {
            let new = match nested(words, &string, kind, depth) {
                Some(new) => Some(new),
                None => match plain(words, &string, kind) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(new) => Some(new),
                },
            };
            if let Some(new) = new {
                out.extend_from_slice(text.get(done..start).unwrap_or_default());
                out.extend_from_slice(Value::from(new).to_string().as_bytes());
                done = end;
            }
        }
        at = end;
    }
    if done == 0 {
        return None;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    Some(out)
}

fn nested(words: &Words, string: &str, kind: Kind, depth: u32) -> Option<String> {
    let looks = depth > 0 && matches!(string.trim_start().as_bytes().first(), Some(b'{' | b'['));
    if !looks || serde_json::from_str::<IgnoredAny>(string).is_err() {
        return None;
    }
    inside(words, string.as_bytes(), kind, depth - 1).and_then(|new| String::from_utf8(new).ok())
}

fn plain<'a>(words: &Words, text: &'a str, kind: Kind) -> Cow<'a, str> {
    match kind {
        Kind::Plain => words.out_of(text, false),
        Kind::There => words.out_of(text, true),
        Kind::Copy => words.out_of_copy(text),
    }
}

/// Where the string that begins here ends, its quotes included.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// A lone surrogate is no text for `serde_json`: it counts as U+FFFD.
fn decode(raw: &[u8]) -> Option<String> {
    serde_json::from_slice::<String>(raw).ok().or_else(|| {
        let text = String::from_utf8_lossy(raw);
        let surrogate = regex::Regex::new(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}").ok()?;
        serde_json::from_str(&surrogate.replace_all(&text, "\u{fffd}")).ok()
    })
}

/// What of a row decides which rule holds for it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    uuid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    kael: Option<Mark<'a>>,
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
}

#[derive(Deserialize)]
struct Mark<'a> {
    #[serde(borrow, default)]
    source: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}

/// A line of a transcript without the words, of the same length; nothing where they do not stand in it.
#[must_use]
pub fn row(words: &Words, line: &[u8]) -> Option<Vec<u8>> {
    if !words.may_be_in(line) {
        return None;
    }
    let head: Option<Head<'_>> = serde_json::from_slice(line).ok();
    let kind = head.as_ref().map_or(Kind::Plain, |head| {
        let message = head.message.as_ref().and_then(|message| message.id.as_deref());
        let source = head.kael.as_ref().and_then(|kael| kael.source.as_deref());
        let ids = [head.uuid.as_deref(), source, message];
        if ids.into_iter().flatten().any(|id| words.is_there(id)) {
            Kind::There
        } else if matches!(head.kind.as_ref(), "user" | "assistant" | "attachment") {
            Kind::Plain
        } else {
            Kind::Copy
        }
    });
    let mut new = without(words, line, kind)?;
    if let Some(told) = without_signed(line, &new) {
        new = told;
    }
    // White space at its end is nothing to JSON.
    while new.len() < line.len() {
        new.push(b' ');
    }
    Some(new)
}

/// Thinking is signed, and words taken out of it break the signature, which the API would refuse: the mark stands in its
/// place as a text.
fn without_signed(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(new, b"\"thinking\"")?;
    let before: Value = serde_json::from_slice(old).ok()?;
    let mut after: Value = serde_json::from_slice(new).ok()?;
    let old_blocks = before.pointer("/message/content")?.as_array()?;
    let blocks = after.pointer_mut("/message/content")?.as_array_mut()?;
    let mut changed = false;
    for (old, block) in old_blocks.iter().zip(blocks) {
        if block["type"] == "thinking" && old != block {
            *block = serde_json::json!({ "type": "text", "text": MARK });
            changed = true;
        }
    }
    let text = serde_json::to_vec(&after).ok().filter(|_| changed)?;
    (text.len() <= old.len()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words::sentence("the red kite, 山 \"七\"").unwrap()
    }

    #[test]
    fn everything_else_stays_byte_for_byte() {
        let line = br#"{"n":1.50, "b" :"x \u5c71 the red kite, \u5c71 \"\u4e03\" y","deep":"{\"a\":\"the red  kite, \u5c71 \\\"\u4e03\\\"\"}","bad":"\ud83d"}"#;
        let new = row(&words(), line).unwrap();
        assert_eq!(new.len(), line.len());
        assert_eq!(
            String::from_utf8(new).unwrap().trim_end(),
            r#"{"n":1.50, "b" :"x 山 [forgotten] y","deep":"{\"a\":\"[forgotten]\"}","bad":"\ud83d"}"#
        );
        assert_eq!(row(&words(), br#"{"b":"a red kite, \u5c71"}"#), None);
    }

    #[test]
    fn what_is_no_json_is_text() {
        let torn = "{\"b\":\"the red kite, 山 \\\"七\\\"";
        assert_eq!(without(&words(), torn.as_bytes(), Kind::Plain).unwrap(), b"{\"b\":\"[forgotten]");
    }

    #[test]
    fn signed_thinking_goes_as_a_whole() {
        let line = r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"he said the red kite, 山 \"七\"","signature":"abc"}]},"uuid":"u"}"#;
        let new = row(&words(), line.as_bytes()).unwrap();
        assert_eq!(new.len(), line.len());
        let value: Value = serde_json::from_slice(&new).unwrap();
        assert_eq!(value["message"]["content"][0], serde_json::json!({ "type": "text", "text": MARK }));
    }
}
