//! The drift table: every row type, subtype, attachment and block kind we know, with its verdict
//! and the evidence for it.
//!
//! A shape that is not here and could hold words blocks a rebuild, with the row named, until a human
//! has looked (`accept_unknown`). To teach the reader a new shape, add a line here; if it holds
//! words, also a rule in `judge`.

use super::json::{Bad, Scanner, decode};
use super::rules::Rule;

/// The CLI versions whose transcripts the table was checked against, oldest first.
pub const CHECKED_VERSIONS: &[&str] = &["1.0.128", "2.0.77", "2.1.199", "2.1.332"];

/// Where a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// `type` of a row.
    Row,
    /// `subtype` of a `system` row.
    System,
    /// `attachment.type` of an `attachment` row.
    Attachment,
    /// `type` of a content block.
    Block,
    /// `origin.kind` of a user row or queued command.
    Origin,
    /// `operation` of a `queue-operation` row.
    Queue,
}

/// What is done with a known shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may hold words; the rules of `judge` look at each.
    Look,
    /// It holds no words of its own and is dropped under this rule.
    Drop(Rule),
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Where the name stands.
    pub shape: Shape,
    /// The name.
    pub name: &'static str,
    /// What is done with it.
    pub verdict: Verdict,
    /// Where it was seen, or why it is believed.
    pub evidence: &'static str,
}

const fn known(shape: Shape, name: &'static str, verdict: Verdict, evidence: &'static str) -> Known {
    Known { shape, name, verdict, evidence }
}

const NOISE: Verdict = Verdict::Drop(Rule::Attachment);
const SIDE: Verdict = Verdict::Drop(Rule::Bookkeeping);
const SYSTEM: Verdict = Verdict::Drop(Rule::SystemRow);

const ALL: &str = "1.0.128 to 2.1.332";
const SINCE_2_0: &str = "2.0.77 to 2.1.332";
const SINCE_2_1: &str = "2.1.199, 2.1.332";
const NEWEST: &str = "2.1.332";
const TYPE_TABLE: &str = "row type table of 2.1.332; not produced by -p";
const PUBLIC: &str = "public transcripts up to 2.1.281";
const API: &str = "content blocks of the Messages API";

/// The table.
pub const TABLE: &[Known] = &[
    known(Shape::Row, "user", Verdict::Look, ALL),
    known(Shape::Row, "assistant", Verdict::Look, ALL),
    known(Shape::Row, "attachment", Verdict::Look, SINCE_2_1),
    known(Shape::Row, "system", Verdict::Look, ALL),
    known(Shape::Row, "queue-operation", Verdict::Look, SINCE_2_0),
    known(Shape::Row, "last-prompt", SIDE, SINCE_2_1),
    known(Shape::Row, "progress", SIDE, PUBLIC),
    known(Shape::Row, "api-request", SIDE, NEWEST),
    known(Shape::Row, "api-request-blob", SIDE, NEWEST),
    known(Shape::Row, "api-request-shape", SIDE, NEWEST),
    known(Shape::Row, "mode", SIDE, SINCE_2_1),
    known(Shape::Row, "atis-latch", SIDE, NEWEST),
    known(Shape::Row, "cost-state", SIDE, NEWEST),
    known(Shape::Row, "tools-used", SIDE, NEWEST),
    known(Shape::Row, "file-history-snapshot", SIDE, NEWEST),
    known(Shape::Row, "file-history-delta", SIDE, NEWEST),
    known(Shape::Row, "summary", SIDE, "1.0.128 writes titles; later versions accept them"),
    known(Shape::Row, "ai-title", SIDE, TYPE_TABLE),
    known(Shape::Row, "custom-title", SIDE, TYPE_TABLE),
    known(Shape::Row, "permission-mode", SIDE, TYPE_TABLE),
    known(Shape::Row, "attribution-snapshot", SIDE, TYPE_TABLE),
    known(Shape::Row, "content-replacement", SIDE, TYPE_TABLE),
    known(Shape::Row, "fork-context-ref", SIDE, TYPE_TABLE),
    known(Shape::Row, "worktree-state", SIDE, TYPE_TABLE),
    known(Shape::Row, "pr-link", SIDE, TYPE_TABLE),
    known(Shape::Row, "session-owner", SIDE, TYPE_TABLE),
    known(Shape::Row, "history-suppression", SIDE, TYPE_TABLE),
    known(Shape::Row, "ended-by-model", SIDE, TYPE_TABLE),
    known(Shape::Row, "derived-from", SIDE, TYPE_TABLE),
    known(Shape::Row, "continued-in", SIDE, TYPE_TABLE),
    known(Shape::System, "", SYSTEM, "1.0.x writes system rows without a subtype"),
    known(Shape::System, "compact_boundary", SYSTEM, SINCE_2_0),
    known(Shape::System, "local_command", SYSTEM, SINCE_2_1),
    known(Shape::System, "informational", SYSTEM, SINCE_2_1),
    known(Shape::System, "api_error", SYSTEM, NEWEST),
    known(Shape::System, "stop_hook_summary", SYSTEM, NEWEST),
    known(Shape::Attachment, "queued_command", Verdict::Look, SINCE_2_1),
    known(Shape::Attachment, "hook_success", NOISE, SINCE_2_1),
    known(Shape::Attachment, "hook_additional_context", NOISE, SINCE_2_1),
    known(Shape::Attachment, "hook_blocking_error", NOISE, SINCE_2_1),
    known(Shape::Attachment, "file", NOISE, SINCE_2_1),
    known(Shape::Attachment, "instructions", NOISE, NEWEST),
    known(Shape::Attachment, "environment", NOISE, NEWEST),
    known(Shape::Attachment, "model", NOISE, NEWEST),
    known(Shape::Attachment, "date", NOISE, NEWEST),
    known(Shape::Attachment, "session_context", NOISE, NEWEST),
    known(Shape::Attachment, "prompt_snapshot", SIDE, NEWEST),
    known(Shape::Attachment, "deferred_tools_delta", NOISE, SINCE_2_1),
    // The instructions of MCP servers; written unless attachments are disabled.
    known(Shape::Attachment, "mcp_instructions_delta", NOISE, SINCE_2_1),
    known(Shape::Attachment, "agent_listing_delta", NOISE, SINCE_2_1),
    known(Shape::Attachment, "skill_listing", NOISE, SINCE_2_1),
    known(Shape::Attachment, "command_permissions", NOISE, SINCE_2_1),
    known(Shape::Attachment, "task_reminder", NOISE, SINCE_2_1),
    known(Shape::Attachment, "total_tokens_reminder", NOISE, NEWEST),
    known(Shape::Attachment, "unknown_command_fallback", NOISE, NEWEST),
    known(Shape::Attachment, "remote_session_change", NOISE, NEWEST),
    known(Shape::Attachment, "budget_usd", NOISE, SINCE_2_1),
    known(Shape::Attachment, "max_turns_reached", NOISE, SINCE_2_1),
    known(Shape::Block, "text", Verdict::Look, ALL),
    known(Shape::Block, "image", Verdict::Look, ALL),
    known(Shape::Block, "document", Verdict::Look, API),
    known(Shape::Block, "tool_result", Verdict::Look, ALL),
    known(Shape::Block, "tool_use", Verdict::Look, ALL),
    known(Shape::Block, "thinking", Verdict::Drop(Rule::Thinking), ALL),
    known(Shape::Block, "redacted_thinking", Verdict::Drop(Rule::Thinking), API),
    known(Shape::Block, "server_tool_use", Verdict::Drop(Rule::ToolUse), API),
    known(Shape::Block, "mcp_tool_use", Verdict::Drop(Rule::ToolUse), API),
    known(Shape::Block, "web_search_tool_result", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Block, "web_fetch_tool_result", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Block, "code_execution_tool_result", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Block, "mcp_tool_result", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Block, "container_upload", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Block, "tool_reference", Verdict::Drop(Rule::ToolResult), API),
    known(Shape::Origin, "human", Verdict::Look, PUBLIC),
    known(Shape::Origin, "channel", Verdict::Look, PUBLIC),
    known(Shape::Origin, "peer", Verdict::Drop(Rule::TeammateMessage), PUBLIC),
    known(Shape::Origin, "task-notification", Verdict::Drop(Rule::TaskNotification), SINCE_2_1),
    known(Shape::Origin, "auto-continuation", Verdict::Drop(Rule::NotHuman), PUBLIC),
    known(Shape::Origin, "coordinator", Verdict::Drop(Rule::TeammateMessage), PUBLIC),
    known(Shape::Origin, "unclassified", Verdict::Drop(Rule::NotHuman), NEWEST),
    known(Shape::Queue, "enqueue", Verdict::Look, SINCE_2_0),
    known(Shape::Queue, "dequeue", Verdict::Look, SINCE_2_0),
    known(Shape::Queue, "remove", Verdict::Look, SINCE_2_1),
    known(Shape::Queue, "popAll", Verdict::Look, PUBLIC),
];

impl Known {
    /// The line for a name, if we know it.
    #[must_use]
    pub fn find(shape: Shape, name: &[u8]) -> Option<&'static Self> {
        TABLE.iter().find(|known| known.shape == shape && known.name.as_bytes() == name)
    }
}

/// Whether a CLI of this version wrote transcripts that the table was checked against.
#[must_use]
pub fn is_checked(version: &str) -> bool {
    CHECKED_VERSIONS.contains(&version)
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
    fn every_name_stands_once() {
        for (at, known) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|k| k.shape == known.shape && k.name == known.name);
            assert_eq!(first, Some(at), "{} {:?}", known.name, known.shape);
            assert!(!known.evidence.is_empty());
        }
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
