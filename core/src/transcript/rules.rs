//! Why a stretch of a transcript is carried or dropped: one name for each rule of DESIGN 4.
//!
//! The reader's judgement names a rule for everything it meets; the ledger takes its classes from
//! here, the plan its drops, and the proof the shape that a dropped row must have.

use serde::{Deserialize, Serialize};

/// Noise by category. The first eight are the original's; the rest is what the facts add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Results of tools: the block, and `toolUseResult` beside the message.
    ToolResult,
    /// Calls of tools.
    ToolUse,
    /// Thinking, also redacted.
    Thinking,
    /// Images and documents outside tool results.
    Image,
    /// Runtime blocks beside or instead of words, such as `<system-reminder>`.
    InjectedBlock,
    /// Rows marked `isMeta`: skill bodies, caveats, hook feedback.
    MetaInjection,
    /// Rows of subagents inside the main file.
    Sidechain,
    /// `system` rows.
    System,
    /// `attachment` rows: hook output, file contents, listings.
    Attachment,
    /// Slash commands without arguments, their output, `!` commands.
    Command,
    /// Plain user rows that no human wrote: notifications, interrupts, plans fed back.
    RuntimeText,
    /// Answers that the CLI made up, such as "No response requested."
    Synthetic,
    /// Summaries written by a compaction.
    Summary,
}

/// Which account of the ledger a stretch of bytes belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Speech,
    Noise(Category),
    Bookkeeping,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $name:ident, $text:literal, $class:expr;)*) => {
        /// Why something is carried or dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Rule { $($(#[doc = $doc])* $name,)* }

        impl Rule {
            /// All rules, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The rule's name in plans, manifests and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            pub(crate) const fn class(self) -> Class {
                match self { $(Self::$name => $class,)* }
            }
        }
    };
}

rules! {
    /// Words of a human or the assistant: carried.
    Spoken, "spoken", Class::Speech;
    /// Result of a tool.
    ToolResult, "tool_result", Class::Noise(Category::ToolResult);
    /// Call of a tool.
    ToolUse, "tool_use", Class::Noise(Category::ToolUse);
    /// Thinking.
    Thinking, "thinking", Class::Noise(Category::Thinking);
    /// The bytes of an image or document; a marker is carried where no words stand beside it.
    Image, "image", Class::Noise(Category::Image);
    /// A runtime block that is a whole content block or a whole string.
    InjectedBlock, "injected_block", Class::Noise(Category::InjectedBlock);
    /// A row marked `isMeta` that is no channel message.
    MetaRow, "meta", Class::Noise(Category::MetaInjection);
    /// A subagent's row.
    Sidechain, "sidechain", Class::Noise(Category::Sidechain);
    /// A summary written by a compaction, whose words are in the file.
    CompactSummary, "compact_summary", Class::Noise(Category::Summary);
    /// A `system` row.
    SystemRow, "system", Class::Noise(Category::System);
    /// An `attachment` row without words of a human.
    Attachment, "attachment", Class::Noise(Category::Attachment);
    /// A slash command that was typed without arguments.
    BareCommand, "bare_command", Class::Noise(Category::Command);
    /// Output of a slash command or of a `!` command, its caveat, the `!` command itself.
    CommandOutput, "command_output", Class::Noise(Category::Command);
    /// A background task's notification.
    TaskNotification, "task_notification", Class::Noise(Category::RuntimeText);
    /// Messages of other agents.
    TeammateMessage, "teammate_message", Class::Noise(Category::RuntimeText);
    /// `[Request interrupted by user]`.
    Interrupt, "interrupt", Class::Noise(Category::RuntimeText);
    /// A plan of the model's own, fed back to it.
    FedBackPlan, "fed_back_plan", Class::Noise(Category::RuntimeText);
    /// What a hook says in place of an answer when it stops a prompt.
    HookStop, "hook_stop", Class::Noise(Category::RuntimeText);
    /// A row whose provenance fields name another writer than a human.
    NotHuman, "not_human", Class::Noise(Category::RuntimeText);
    /// A note of ours, known by its uuid.
    Note, "note", Class::Noise(Category::RuntimeText);
    /// An answer that the CLI made up.
    Synthetic, "synthetic", Class::Noise(Category::Synthetic);
    /// An API error in place of an answer; it never reaches the model.
    ApiError, "api_error", Class::Bookkeeping;
    /// An attempt of ours that failed and was sent again.
    AbandonedAttempt, "abandoned_attempt", Class::Bookkeeping;
    /// Assistant text of white space only; the API refuses it.
    WhitespaceText, "whitespace_text", Class::Bookkeeping;
    /// A copy of a queued message that has a row of its own, or that was pulled back.
    QueueCopy, "queue_copy", Class::Bookkeeping;
    /// A marker that we wrote into an earlier candidate.
    Marker, "marker", Class::Bookkeeping;
    /// A row that never reaches the model and holds no words of its own.
    Bookkeeping, "bookkeeping", Class::Bookkeeping;
    /// A shape the drift table does not know.
    Unknown, "unknown", Class::Bookkeeping;
    /// A shape the drift table does not know and the configuration accepts.
    AcceptedUnknown, "accepted_unknown", Class::Bookkeeping;
    /// The same row a second time.
    Duplicate, "duplicate", Class::Bookkeeping;
    /// Speech on a branch that the CLI does not load.
    OffChain, "off_chain", Class::Speech;
    /// A message that was sent again on another branch.
    Retry, "retry", Class::Speech;
    /// An unanswered message that our inbox sends again.
    OpenTailResend, "open_tail_resend", Class::Speech;
    /// An unanswered message, left out by `include_open_tail = false`.
    OpenTailExcluded, "open_tail_excluded", Class::Speech;
    /// The oldest turns, left out by `carry_max_tokens`.
    DroppedOldest, "dropped_oldest", Class::Speech;
}

impl Rule {
    /// The rule with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The rule's number, as [`Rule::from_number`] takes it.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// What of the extraction a configuration can set (DESIGN 12, table `[transcript]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractRules {
    /// Tools whose `text` is spoken to a chat; `*` stands for any characters.
    pub reply_tools: Vec<String>,
    /// Tags whose whole block is the runtime's when no human provenance speaks for it.
    pub injected_tags: Vec<String>,
    /// Shapes outside the drift table that a human looked at and found without words, as blocked
    /// plans name them: `some-row`, `attachment/some_type`, `block/some_kind`.
    pub accept_unknown: Vec<String>,
}

impl Default for ExtractRules {
    fn default() -> Self {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            reply_tools: all(&["mcp__*companion*__reply", "mcp__*telegram*__reply"]),
            injected_tags: all(&["system-reminder", "ide_opened_file", "ide_selection", "ide_diagnostics"]),
            accept_unknown: Vec::new(),
        }
    }
}

impl ExtractRules {
    /// Whether a tool of this name speaks to a chat.
    pub(crate) fn is_reply_tool(&self, name: &str) -> bool {
        name == "SendUserMessage" || self.reply_tools.iter().any(|pattern| matches(pattern, name))
    }

    pub(crate) fn accepts(&self, shape: &str) -> bool {
        self.accept_unknown.iter().any(|accepted| accepted == shape)
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut rest = rest;
    let mut last = None;
    for part in parts {
        if let Some(skipped) = last.replace(part) {
            let Some(at) = rest.find(skipped) else { return false };
            rest = &rest[at + skipped.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

/// What only the inbox knows of a session's rows: the extractor's highest authority (DESIGN 4).
/// All are row uuids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnRows {
    /// Rows our inbox sent: human, whole, whatever they look like.
    pub human: std::collections::HashSet<String>,
    /// Notes of ours: runtime text.
    pub notes: std::collections::HashSet<String>,
    /// Failed attempts, sent again under another uuid: dropped.
    pub abandoned: std::collections::HashSet<String>,
    /// Rows of an open tail that the inbox will send again: not carried.
    pub resend: std::collections::HashSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_tools_match_whole_names() {
        for (pattern, name, fits) in [
            ("mcp__*companion*__reply", "mcp__my-companion-2__reply", true),
            ("mcp__*companion*__reply", "mcp__companion__reply", true),
            ("mcp__*companion*__reply", "mcp__companion__reply_all", false),
            ("mcp__*companion*__reply", "xmcp__companion__reply", false),
            ("reply", "reply", true),
            ("reply", "reply2", false),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn numbers_lead_back_to_rules() {
        for rule in Rule::ALL {
            assert_eq!(Rule::from_number(rule.number()), Some(*rule));
            assert!(serde_json::to_value(rule).unwrap().as_str().map(str::len).is_some());
        }
        assert_eq!(Rule::from_number(250), None);
    }
}
