//! The drift table: every row type, subtype, attachment and block kind we know, with its verdict
//! and the evidence for it.
//!
//! A shape that is not here and could hold words blocks a rebuild, with the row named, until a human
//! has looked (`accept_unknown`). To teach the reader a new shape, add a line here; if it holds
//! words, also a rule in `judge`.

use super::rules::Rule;

mod fields;

pub use fields::{FIELDS, KnownField, is_known_field, is_wordy};
pub(crate) use fields::{could_hold_words, unknown_words};

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
}
