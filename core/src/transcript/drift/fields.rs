//! Fields of rows: which hold no words, and whether a value could hold some.

use super::super::json::{Bad, Scanner, decode};
use super::{ALL, API, NEWEST, PUBLIC, SINCE_2_0, SINCE_2_1};

/// A field whose text is never speech, by the type of its row and its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownField {
    /// The row's type; `*` is any.
    pub row: &'static str,
    /// Its path; `*` is any element of a list. Everything below it is known with it.
    pub path: &'static str,
    /// Where it was seen, or why it is believed.
    pub evidence: &'static str,
}

const fn field(row: &'static str, path: &'static str, evidence: &'static str) -> KnownField {
    KnownField { row, path, evidence }
}

/// Fields of user, attachment and queue rows whose text is no speech, or is read by a rule. Words in
/// any other field block.
pub const FIELDS: &[KnownField] = &[
    field("*", "type", ALL),
    field("*", "uuid", ALL),
    field("*", "parentUuid", ALL),
    field("*", "logicalParentUuid", SINCE_2_0),
    field("*", "sessionId", ALL),
    field("*", "session_id", PUBLIC),
    field("*", "timestamp", ALL),
    field("*", "version", ALL),
    field("*", "cwd", ALL),
    field("*", "gitBranch", ALL),
    field("*", "userType", ALL),
    field("*", "entrypoint", SINCE_2_1),
    field("*", "slug", SINCE_2_0),
    field("*", "agentId", NEWEST),
    field("*", "agentName", PUBLIC),
    field("*", "teamName", PUBLIC),
    field("*", "requestSessionId", NEWEST),
    field("*", "forkedFrom", PUBLIC),
    field("user", "toolUseResult", ALL),
    field("user", "message.role", ALL),
    field("user", "message.type", PUBLIC),
    field("user", "message.id", PUBLIC),
    field("user", "message.content.*.type", ALL),
    field("user", "message.content.*.id", ALL),
    field("user", "message.content.*.source", SINCE_2_0),
    field("user", "message.content.*.title", API),
    field("user", "message.content.*.context", API),
    field("user", "message.content.*.citations", API),
    field("user", "message.content.*.tool_use_id", ALL),
    field("user", "message.content.*.cache_control", API),
    field("user", "permissionMode", SINCE_2_1),
    field("user", "permissionDecision", NEWEST),
    field("user", "toolDenialKind", SINCE_2_1),
    field("user", "mcpMeta", PUBLIC),
    field("user", "origin", SINCE_2_1),
    field("user", "promptSource", SINCE_2_1),
    field("user", "turnOrigin", NEWEST),
    field("user", "turnPosition", NEWEST),
    field("user", "turnAttributionKey", NEWEST),
    field("user", "turnCompanion", NEWEST),
    field("user", "rowSource", NEWEST),
    field("user", "hookText", NEWEST),
    field("user", "hookTextLead", NEWEST),
    field("user", "planContent", PUBLIC),
    field("user", "promptId", SINCE_2_1),
    field("user", "mergedSendUuids", NEWEST),
    field("user", "sourceToolAssistantUUID", SINCE_2_0),
    field("user", "sourceToolUseID", SINCE_2_0),
    field("user", "interruptedMessageId", PUBLIC),
    field("user", "summarizedTurnPromptUuids", NEWEST),
    field("user", "summarizeMetadata", PUBLIC),
    field("user", "thinkingMetadata", PUBLIC),
    field("user", "todos", PUBLIC),
    field("user", "kael", "our own mark"),
    field("attachment", "rendered", NEWEST),
    field("attachment", "renderedRole", NEWEST),
    field("attachment", "attachment.type", SINCE_2_1),
    field("attachment", "attachment.source_uuid", NEWEST),
    field("attachment", "attachment.delivery_id", NEWEST),
    field("attachment", "attachment.commandMode", SINCE_2_1),
    field("attachment", "attachment.rowSource", NEWEST),
    field("attachment", "attachment.timestamp", NEWEST),
    field("attachment", "attachment.origin", PUBLIC),
    field("attachment", "attachment.prompt.*.type", NEWEST),
    field("attachment", "attachment.prompt.*.source", NEWEST),
    field("attachment", "attachment.prompt.*.id", NEWEST),
    field("attachment", "attachment.prompt.*.cache_control", API),
    field("queue-operation", "operation", SINCE_2_0),
    field("queue-operation", "reason", NEWEST),
    // The uuid an absorbed message was sent under, and the CLI's own number for it.
    field("queue-operation", "commandUuid", NEWEST),
    field("queue-operation", "deliveryId", NEWEST),
];

/// Whether text at a path of a row type is known.
#[must_use]
pub fn is_known_field(row: &str, path: &[&str]) -> bool {
    FIELDS.iter().any(|known| {
        (known.row == "*" || known.row == row)
            && known.path.split('.').count() <= path.len()
            && known.path.split('.').zip(path).all(|(step, at)| step == "*" || step == *at)
    })
}

/// Whether a string is long enough that its loss would be a loss of words (DESIGN 6): twelve letters,
/// or two Chinese, Japanese or Korean characters.
#[must_use]
pub fn is_wordy(text: &str) -> bool {
    let (mut letters, mut cjk) = (0, 0);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        cjk += u32::from(crate::estimate::is_cjk(c));
        letters += 1;
        if letters >= 12 || cjk >= 2 {
            return true;
        }
    }
    false
}

/// The path of the first wordy string in a value that stands at `path`, unless all are known.
pub(crate) fn unknown_words(row: &str, path: &[&str], value: &[u8]) -> Option<String> {
    fn walk(
        s: &mut Scanner<'_>,
        bytes: &[u8],
        row: &str,
        path: &mut Vec<String>,
    ) -> Result<Option<String>, Bad> {
        let mut found = None;
        match s.peek() {
            Some(b'{') if path.len() < 64 => {
                s.object(|s, key| {
                    path.push(String::from_utf8_lossy(key).into_owned());
                    let inside = walk(s, bytes, row, path)?;
                    path.pop();
                    found = found.take().or(inside);
                    Ok(())
                })?;
            }
            Some(b'[') if path.len() < 64 => {
                let mut at = 0;
                s.array(|s| {
                    path.push(at.to_string());
                    at += 1;
                    let inside = walk(s, bytes, row, path)?;
                    path.pop();
                    found = found.take().or(inside);
                    Ok(())
                })?;
            }
            Some(b'"') => {
                let text = s.string()?.of(bytes);
                let steps: Vec<&str> = path.iter().map(String::as_str).collect();
                if text.len() >= 6 && is_wordy(&decode(text).text) && !is_known_field(row, &steps) {
                    found = Some(path.join("."));
                }
            }
            _ => s.pass()?,
        }
        Ok(found)
    }
    let mut steps: Vec<String> = path.iter().map(|step| (*step).to_owned()).collect();
    walk(&mut Scanner::new(value), value, row, &mut steps).ok().flatten()
}

/// Fields that identify a row and never hold words; they do not make an unknown shape dangerous.
const ENVELOPE: &[&str] = &[
    "type",
    "subtype",
    "uuid",
    "parentUuid",
    "logicalParentUuid",
    "leafUuid",
    "messageId",
    "sessionId",
    "timestamp",
    "version",
    "cwd",
    "gitBranch",
    "userType",
    "entrypoint",
    "slug",
    "requestId",
    "promptId",
    "agentId",
];

/// Whether a value could hold words: any text with a letter in it that is no id, no digest and no
/// field of the envelope. Two letters are a word in every language, so length is no excuse.
pub(crate) fn could_hold_words(value: &[u8]) -> bool {
    fn walk(s: &mut Scanner<'_>, bytes: &[u8], depth: usize, found: &mut bool) -> Result<(), Bad> {
        match s.peek() {
            Some(b'{') if depth < 64 => {
                s.object(|s, key| {
                    if ENVELOPE.iter().any(|name| name.as_bytes() == key) {
                        s.pass()
                    } else {
                        walk(s, bytes, depth + 1, found)
                    }
                })?;
            }
            Some(b'[') if depth < 64 => {
                s.array(|s| walk(s, bytes, depth + 1, found))?;
            }
            Some(b'{' | b'[') => {
                s.skip()?;
                *found = true;
            }
            Some(b'"') => {
                let text = decode(s.string()?.of(bytes)).text;
                *found |= text.chars().any(char::is_alphabetic) && !is_id(&text);
            }
            _ => s.pass()?,
        }
        Ok(())
    }
    let mut found = false;
    // What does not parse here has not parsed before; then nobody knows what it holds.
    walk(&mut Scanner::new(value), value, 0, &mut found).is_err() || found
}

/// A UUID, a digest or another token made of hexadecimal digits and dashes.
fn is_id(text: &str) -> bool {
    text.len() >= 16
        && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        && text.bytes().any(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_for_what_is_below_it() {
        assert!(is_known_field("user", &["toolUseResult", "answers", "which?"]));
        assert!(is_known_field("user", &["message", "content", "3", "type"]));
        assert!(!is_known_field("user", &["message", "content", "3", "text"]));
        assert!(!is_known_field("user", &["message"]));
        assert!(is_known_field("attachment", &["cwd"]));
        assert!(!is_known_field("attachment", &["toolUseResult"]));
    }

    #[test]
    fn words_begin_at_twelve_letters_or_two_characters() {
        for (text, wordy) in [
            ("hello", false),
            ("hello world now", true),
            ("风", false),
            ("风筝", true),
            ("、。", false),
            ("1234567890123456", false),
            ("مرحبا بالعالم كله", true),
        ] {
            assert_eq!(is_wordy(text), wordy, "{text}");
        }
    }

    #[test]
    fn words_in_fields_nobody_knows_are_named_by_their_path() {
        let of = |value: &str| unknown_words("user", &["aside"], value.as_bytes());
        assert_eq!(of(r#"{"n":[1,{"deep":"都是秘密的话"}]}"#).as_deref(), Some("aside.n.1.deep"));
        assert_eq!(of(r#"{"n":"short","id":"7f00-1234-5678-9999"}"#), None);
        assert_eq!(unknown_words("user", &["origin"], br#""a channel of some kind""#), None);
    }

    #[test]
    fn words_are_found_wherever_they_stand() {
        for (value, words) in [
            (r#"{"type":"x","sessionId":"abc","n":[1,{"deep":"ok"}]}"#, true),
            (r#"{"type":"x","text":"风筝"}"#, true),
            (r#"{"type":"x","uuid":"some words","count":3,"flag":true}"#, false),
            (r#"{"type":"x","hash":"815053278f2a7826652fc4cde1ed13bf","at":"12:30"}"#, false),
            (r#"{"type":"x","\u0074ext":"مرحبا"}"#, true),
        ] {
            assert_eq!(could_hold_words(value.as_bytes()), words, "{value}");
        }
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(could_hold_words(deep.as_bytes()), "what is too deep to look at is not called empty");
    }
}
