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
    /// A field of a row that may hold words, by its path.
    Field,
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
const PUBLIC: &str = "public transcripts and code up to 2.1.281";
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
    known(Shape::Row, "agent-name", SIDE, PUBLIC),
    known(Shape::Row, "agent-color", SIDE, PUBLIC),
    known(Shape::Row, "agent-setting", SIDE, PUBLIC),
    known(Shape::Row, "tag", SIDE, PUBLIC),
    known(Shape::Row, "task-summary", SIDE, PUBLIC),
    known(Shape::Row, "speculation-accept", SIDE, PUBLIC),
    known(Shape::Row, "marble-origami-commit", SIDE, PUBLIC),
    known(Shape::Row, "marble-origami-snapshot", SIDE, PUBLIC),
    known(Shape::Row, "bridge-session", SIDE, PUBLIC),
    known(Shape::Row, "relocated", SIDE, PUBLIC),
    known(Shape::System, "", SYSTEM, "1.0.x writes system rows without a subtype"),
    known(Shape::System, "compact_boundary", SYSTEM, SINCE_2_0),
    known(Shape::System, "local_command", SYSTEM, SINCE_2_1),
    known(Shape::System, "informational", SYSTEM, SINCE_2_1),
    known(Shape::System, "api_error", SYSTEM, NEWEST),
    known(Shape::System, "stop_hook_summary", SYSTEM, NEWEST),
    known(Shape::System, "microcompact_boundary", SYSTEM, PUBLIC),
    known(Shape::System, "turn_duration", SYSTEM, PUBLIC),
    known(Shape::System, "away_summary", SYSTEM, PUBLIC),
    known(Shape::System, "bridge_status", SYSTEM, PUBLIC),
    known(Shape::System, "memory_saved", SYSTEM, PUBLIC),
    known(Shape::System, "agents_killed", SYSTEM, PUBLIC),
    known(Shape::System, "scheduled_task_fire", SYSTEM, PUBLIC),
    known(Shape::System, "permission_retry", SYSTEM, PUBLIC),
    known(Shape::System, "api_metrics", SYSTEM, PUBLIC),
    known(Shape::System, "file_snapshot", SYSTEM, PUBLIC),
    known(Shape::Attachment, "queued_command", Verdict::Look, SINCE_2_1),
    known(Shape::Attachment, "hook_success", NOISE, SINCE_2_1),
    known(Shape::Attachment, "hook_additional_context", NOISE, SINCE_2_1),
    known(Shape::Attachment, "hook_blocking_error", NOISE, SINCE_2_1),
    known(Shape::Attachment, "hook_non_blocking_error", NOISE, PUBLIC),
    known(Shape::Attachment, "hook_error_during_execution", NOISE, PUBLIC),
    known(Shape::Attachment, "hook_stopped_continuation", NOISE, PUBLIC),
    known(Shape::Attachment, "hook_system_message", NOISE, PUBLIC),
    known(Shape::Attachment, "hook_permission_decision", NOISE, PUBLIC),
    known(Shape::Attachment, "hook_cancelled", NOISE, PUBLIC),
    known(Shape::Attachment, "async_hook_response", NOISE, PUBLIC),
    known(Shape::Attachment, "directory", NOISE, PUBLIC),
    known(Shape::Attachment, "edited_text_file", NOISE, PUBLIC),
    known(Shape::Attachment, "edited_image_file", NOISE, PUBLIC),
    known(Shape::Attachment, "compact_file_reference", NOISE, PUBLIC),
    known(Shape::Attachment, "pdf_reference", NOISE, PUBLIC),
    known(Shape::Attachment, "already_read_file", NOISE, PUBLIC),
    known(Shape::Attachment, "opened_file_in_ide", NOISE, PUBLIC),
    known(Shape::Attachment, "selected_lines_in_ide", NOISE, PUBLIC),
    known(Shape::Attachment, "diagnostics", NOISE, PUBLIC),
    known(Shape::Attachment, "todo_reminder", NOISE, PUBLIC),
    known(Shape::Attachment, "todo", NOISE, PUBLIC),
    known(Shape::Attachment, "nested_memory", NOISE, PUBLIC),
    known(Shape::Attachment, "relevant_memories", NOISE, PUBLIC),
    known(Shape::Attachment, "mcp_resource", NOISE, PUBLIC),
    known(Shape::Attachment, "agent_mention", NOISE, PUBLIC),
    known(Shape::Attachment, "plan_mode", NOISE, PUBLIC),
    known(Shape::Attachment, "plan_mode_reentry", NOISE, PUBLIC),
    known(Shape::Attachment, "plan_mode_exit", NOISE, PUBLIC),
    known(Shape::Attachment, "plan_file_reference", NOISE, PUBLIC),
    known(Shape::Attachment, "auto_mode", NOISE, PUBLIC),
    known(Shape::Attachment, "auto_mode_exit", NOISE, PUBLIC),
    known(Shape::Attachment, "invoked_skills", NOISE, PUBLIC),
    known(Shape::Attachment, "dynamic_skill", NOISE, PUBLIC),
    known(Shape::Attachment, "skill_discovery", NOISE, PUBLIC),
    known(Shape::Attachment, "output_style", NOISE, PUBLIC),
    known(Shape::Attachment, "date_change", NOISE, PUBLIC),
    known(Shape::Attachment, "task_status", NOISE, PUBLIC),
    known(Shape::Attachment, "unified_tasks", NOISE, PUBLIC),
    known(Shape::Attachment, "critical_system_reminder", NOISE, PUBLIC),
    known(Shape::Attachment, "ultrathink_effort", NOISE, PUBLIC),
    known(Shape::Attachment, "token_usage", NOISE, PUBLIC),
    known(Shape::Attachment, "output_token_usage", NOISE, PUBLIC),
    known(Shape::Attachment, "compaction_reminder", NOISE, PUBLIC),
    known(Shape::Attachment, "context_efficiency", NOISE, PUBLIC),
    known(Shape::Attachment, "structured_output", NOISE, PUBLIC),
    known(Shape::Attachment, "verify_plan_reminder", NOISE, PUBLIC),
    known(Shape::Attachment, "team_context", NOISE, PUBLIC),
    known(Shape::Attachment, "teammate_mailbox", NOISE, PUBLIC),
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
