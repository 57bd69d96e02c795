//! What a row says: each stretch of its bytes with the rule that carries or drops it (DESIGN 4).
//!
//! A judgement needs the row, the configuration and what our inbox knows, and nothing of the rows
//! around it: ledger, plan and receipts all ask here, so that they cannot disagree. What depends on
//! other rows (which branch is live, which queued message has a row of its own, whether a reply tool
//! succeeded) is decided by their owners on top of it.
//!
//! One file for each kind of row; `text` knows the runtime's wordings, `tools` the words inside tool
//! traffic.

mod assistant;
mod attachment;
#[cfg(test)]
pub(crate) mod switched_off;
mod text;
mod tools;
mod user;

use super::drift::{Known, Shape, Verdict, could_hold_words, unknown_words};
use super::head::{Block, BlockKind, Head, KaelHead, Level, RowKind};
use super::json::{Span, decode};
use super::rules::{ExtractRules, OwnRows, Rule};

use text::TextShape;
pub(crate) use text::{PLAN_HEAD, command_text, is_notification, is_teammates};

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A human.
    Human,
    /// The assistant.
    Assistant,
}

/// What kind of speech an item is; everything but `Words` is derived or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A row's own text.
    Words,
    /// A slash command with its arguments.
    Command,
    /// Answers to the assistant's questions.
    Answer,
    /// The reason given when a tool call was refused.
    Refusal,
    /// A plan shown to the human.
    Plan,
    /// A message sent by a tool.
    ToolMessage,
    /// A message that was queued while the assistant worked.
    Queued,
    /// An image or document without words.
    Image,
    /// The summary of a compaction whose words are gone.
    Summary,
    /// The startup snapshot.
    Snapshot,
    /// The marker after an unanswered message.
    OpenTail,
}

impl ItemKind {
    /// The name in our mark; `Words` has none.
    pub(crate) const fn mark(self) -> Option<&'static str> {
        match self {
            Self::Summary => Some("summary"),
            Self::Snapshot => Some("snapshot"),
            Self::OpenTail => Some("open_tail"),
            Self::Words
            | Self::Command
            | Self::Answer
            | Self::Refusal
            | Self::Plan
            | Self::ToolMessage
            | Self::Queued
            | Self::Image => None,
        }
    }

    /// What distinguishes items taken from one row; empty for a row's own text.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Answer => "#answer",
            Self::Refusal => "#refusal",
            Self::Plan => "#plan",
            Self::ToolMessage => "#tool",
            Self::Snapshot => "#snapshot",
            Self::OpenTail => "#open_tail",
            Self::Words | Self::Command | Self::Queued | Self::Image | Self::Summary => "",
        }
    }
}

/// How speech is taken from its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// The string's text, without that many bytes of a stamp at its front.
    Text { stamp: u32 },
    /// `/name args`: the span is the arguments, this is the name.
    Command { name: Span },
    /// A marker for an image or document block.
    Marker,
}

/// One stretch of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) rule: Rule,
    /// Where the words are; for drops, the whole dropped stretch.
    pub(crate) span: Span,
    /// The bytes it accounts for. Less than the span where speech was taken out of its middle.
    pub(crate) bytes: u64,
    /// Whether it reaches the model.
    pub(crate) in_context: bool,
    pub(crate) take: Take,
    pub(crate) kind: ItemKind,
    /// For speech: whose.
    pub(crate) role: Role,
}

/// Why a row cannot be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A name outside the drift table.
    Unknown { shape: Shape, name: Option<Span> },
    /// Words in a field that nobody here knows; its path is in [`Judged::field`].
    Field,
    /// A known shape with something in it that may be a human's: the key to accept it by, and what.
    Ambiguous { key: &'static str, what: &'static str },
}

/// What a row without provenance may be besides a human's words. The rows around it decide
/// (`doubts`); where they do not, it is words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It begins like a plan of the model's that is fed back to it.
    Plan,
    /// It begins like what a hook says when it stops a prompt.
    HookStop,
    /// It begins like the output of a command, and does not end like one.
    Output,
}

/// A row's judgement. Reused from row to row.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The rule for the row as a whole: [`Rule::Spoken`] if anything of it is speech.
    pub(crate) rule: Option<Rule>,
    pub(crate) parts: Vec<Part>,
    pub(crate) trouble: Option<Trouble>,
    /// It is taken for words here; the rows around it may show that it is not.
    pub(crate) doubt: Option<Doubt>,
    /// The path of words in an unknown field, as `accept_unknown` takes it.
    pub(crate) field: Option<String>,
    /// Whether an assistant row counts as one of the model's: not synthetic, no API error.
    pub(crate) is_model: bool,
}

impl Judged {
    pub(crate) fn rule(&self) -> Rule {
        self.rule.unwrap_or(Rule::Bookkeeping)
    }

    pub(crate) fn speech(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.rule == Rule::Spoken)
    }

    /// Whether a human, or the assistant, says something in this row.
    pub(crate) fn says(&self, role: Role) -> bool {
        self.speech().any(|part| part.role == role)
    }

    fn drop_span(&mut self, rule: Rule, span: Span, in_context: bool) {
        self.parts.push(Part {
            rule,
            span,
            bytes: span.len() as u64,
            in_context,
            take: Take::Text { stamp: 0 },
            kind: ItemKind::Words,
            role: Role::Human,
        });
    }

    fn say(&mut self, role: Role, kind: ItemKind, span: Span, take: Take) {
        self.parts.push(Part {
            rule: Rule::Spoken,
            span,
            bytes: span.len() as u64,
            in_context: true,
            take,
            kind,
            role,
        });
    }

    /// Speech inside an already dropped stretch: taken out of its bytes.
    fn say_inside(&mut self, dropped: usize, role: Role, kind: ItemKind, span: Span) {
        if let Some(outer) = self.parts.get_mut(dropped) {
            outer.bytes = outer.bytes.saturating_sub(span.len() as u64);
        }
        self.say(role, kind, span, Take::Text { stamp: 0 });
    }

    fn settle(&mut self, otherwise: Rule) {
        let spoken = self.parts.iter().any(|part| part.rule == Rule::Spoken);
        self.rule = Some(if spoken { Rule::Spoken } else { otherwise });
    }
}

/// What every judgement needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) rules: &'a ExtractRules,
    pub(crate) own: &'a OwnRows,
}

impl Context<'_> {
    /// Judges one row.
    pub(crate) fn judge(&self, row: &[u8], head: &Head, out: &mut Judged) {
        out.parts.clear();
        out.trouble = None;
        out.doubt = None;
        out.field = None;
        out.rule = None;
        out.is_model = false;
        let name = head.type_name.map_or(&b""[..], |name| name.of(row));
        let known = Known::find(Shape::Row, name);
        match (known.map(|known| known.verdict), head.kind) {
            (None, _) => self.unknown(Shape::Row, head.type_name, row, Span::new(0, row.len()), out),
            (Some(Verdict::Drop(rule)), _) => out.rule = Some(rule),
            (Some(Verdict::Look), RowKind::User) => self.user(row, head, out),
            (Some(Verdict::Look), RowKind::Assistant) => self.assistant(row, head, out),
            (Some(Verdict::Look), RowKind::Attachment) => self.attachment(row, head, out),
            (Some(Verdict::Look), RowKind::System) => self.system(row, head, out),
            (Some(Verdict::Look), RowKind::QueueOperation) => {
                let name = head.operation.map_or(&b""[..], |name| name.of(row));
                if Known::find(Shape::Queue, name).is_none() {
                    self.unknown(Shape::Queue, head.operation, row, Span::new(0, row.len()), out);
                } else {
                    out.rule = Some(Rule::QueueCopy);
                    self.enqueued(row, head, out);
                }
            }
            (Some(Verdict::Look), _) => out.rule = Some(Rule::Bookkeeping),
        }
        if !head.odd.is_empty() && out.rule() != Rule::Sidechain {
            self.fields(row, head, out);
        }
        #[cfg(test)]
        switched_off::apply(head, out);
    }

    /// A queued text of the runtime's with something behind it may be merged with a human's.
    fn enqueued(&self, row: &[u8], head: &Head, out: &mut Judged) {
        let Some(content) = head.row_content.filter(|_| Head::is(head.operation, row, "enqueue")) else {
            return;
        };
        let raw = content.of(row).trim_ascii_start();
        if !raw.starts_with(b"<t") {
            return;
        }
        let decoded = decode(content.of(row)).text;
        let holds = |tag: &str| decoded.contains(tag);
        // One that is cut before its end has nothing behind it.
        let merged = if raw.starts_with(b"<task-notification>") && holds("</task-notification>") {
            Some(("queue-operation/task-notification", text::NOTIFICATION_AND_MORE))
                .filter(|_| !is_notification(&decoded))
        } else if raw.starts_with(b"<teammate-message") && holds("</teammate-message>") {
            Some(("queue-operation/teammate-message", text::TEAMMATE_AND_MORE))
                .filter(|_| !is_teammates(&decoded))
        } else {
            None
        };
        if let Some((key, what)) = merged.filter(|(key, _)| !self.rules.accepts(key)) {
            out.trouble = Some(Trouble::Ambiguous { key, what });
        }
    }

    /// Where words may stand, a new field with words in it is a change of the format.
    fn fields(&self, row: &[u8], head: &Head, out: &mut Judged) {
        let kind = match head.kind {
            RowKind::User => "user",
            RowKind::QueueOperation => "queue-operation",
            RowKind::Attachment if Head::is(head.attachment_type, row, "queued_command") => "attachment",
            _ => return,
        };
        let base = if head.attachment.is_some() { ["attachment", "prompt"] } else { ["message", "content"] };
        for odd in &head.odd {
            let key = String::from_utf8_lossy(odd.key.of(row));
            let place;
            let path = match odd.level {
                Level::Row => vec![key.as_ref()],
                Level::Message => vec!["message", key.as_ref()],
                Level::Attachment => vec!["attachment", key.as_ref()],
                Level::Block(at) => {
                    // Results of tools are the tools' own.
                    let block = head.blocks.get(usize::from(at));
                    if block.is_some_and(|b| matches!(b.kind, BlockKind::ToolResult | BlockKind::Other)) {
                        continue;
                    }
                    place = at.to_string();
                    vec![base[0], base[1], place.as_str(), key.as_ref()]
                }
            };
            let Some(path) = unknown_words(kind, &path, odd.value.of(row)) else { continue };
            let path = format!("field/{kind}.{path}");
            if !self.rules.accepts(&path) && out.trouble.is_none() {
                out.trouble = Some(Trouble::Field);
                out.field = Some(path);
            }
        }
    }

    fn system(&self, row: &[u8], head: &Head, out: &mut Judged) {
        let whole = Span::new(0, row.len());
        let name = head.subtype.map_or(&b""[..], |name| name.of(row));
        if head.is_sidechain {
            out.drop_span(Rule::Sidechain, whole, false);
            out.rule = Some(Rule::Sidechain);
        } else if Known::find(Shape::System, name).is_some() {
            out.drop_span(Rule::SystemRow, whole, false);
            if name == b"local_command" {
                local_command(row, head, out);
            }
            out.settle(Rule::SystemRow);
        } else {
            self.unknown(Shape::System, head.subtype, row, whole, out);
        }
    }

    /// A shape the table does not know: harmless without words, accepted by name, or trouble.
    fn unknown(&self, shape: Shape, name: Option<Span>, row: &[u8], whole: Span, out: &mut Judged) {
        let rule = if !could_hold_words(whole.of(row)) {
            Rule::Bookkeeping
        } else if self.rules.accepts(&shape_name(shape, name, row)) {
            Rule::AcceptedUnknown
        } else {
            out.trouble.get_or_insert(Trouble::Unknown { shape, name });
            Rule::Unknown
        };
        out.drop_span(rule, whole, false);
        out.rule.get_or_insert(rule);
    }

    /// A known shape that may hold a human's words where none belong.
    fn ambiguous(&self, key: &'static str, what: &'static str, span: Span, out: &mut Judged) {
        if self.rules.accepts(key) {
            out.drop_span(Rule::AcceptedUnknown, span, true);
        } else {
            out.trouble.get_or_insert(Trouble::Ambiguous { key, what });
            out.drop_span(Rule::Unknown, span, true);
        }
    }

    /// A block that is neither words nor tool traffic of a kind looked at elsewhere.
    fn plain_block(&self, block: &Block, row: &[u8], out: &mut Judged) {
        let name = block.name.map_or(&b""[..], |name| name.of(row));
        match Known::find(Shape::Block, name).map(|known| known.verdict) {
            Some(Verdict::Drop(rule)) => out.drop_span(rule, block.whole, true),
            Some(Verdict::Look) | None => self.unknown(Shape::Block, block.name, row, block.whole, out),
        }
    }

    /// Whom an `origin.kind` names: nobody (absent), a human (`Some(None)`), or somebody whose rows
    /// are dropped under a rule.
    fn origin(&self, kind: Option<Span>, row: &[u8], out: &mut Judged) -> Option<Option<Rule>> {
        let kind = kind?;
        match Known::find(Shape::Origin, kind.of(row)).map(|known| known.verdict) {
            Some(Verdict::Look) => Some(None),
            Some(Verdict::Drop(rule)) => Some(Some(rule)),
            None => {
                let accepted = self.rules.accepts(&shape_name(Shape::Origin, Some(kind), row));
                if !accepted {
                    out.trouble.get_or_insert(Trouble::Unknown { shape: Shape::Origin, name: Some(kind) });
                }
                Some(Some(if accepted { Rule::AcceptedUnknown } else { Rule::Unknown }))
            }
        }
    }

    /// A row of a candidate of ours: what it says was settled when it was written.
    fn candidate_row(role: Role, kael: &KaelHead, head: &Head, row: &[u8], out: &mut Judged) {
        let kind = match kael.kind.map_or(&b""[..], |kind| kind.of(row)) {
            b"open_tail" => ItemKind::OpenTail,
            b"summary" => ItemKind::Summary,
            b"snapshot" => ItemKind::Snapshot,
            _ => ItemKind::Words,
        };
        let mut stamp = u32::try_from(kael.stamp).unwrap_or(0);
        let mut say = |span: Span| {
            out.say(role, kind, span, Take::Text { stamp });
            if let Some(part) = out.parts.last_mut()
                && stamp > 0
            {
                // In the file the stamp's newline takes two bytes.
                part.bytes = part.bytes.saturating_sub(u64::from(stamp) + 1);
            }
            stamp = 0;
        };
        match head.content {
            super::head::Content::Text(span) => say(span),
            super::head::Content::Blocks => {
                for block in &head.blocks {
                    if let (BlockKind::Text, Some(text)) = (block.kind, block.text) {
                        say(text);
                    }
                }
            }
            super::head::Content::Absent | super::head::Content::Odd(_) => {}
        }
        out.is_model = role == Role::Assistant;
        out.settle(Rule::Marker);
    }
}

/// Some versions note a command that a human typed in a row of the system's, as it was typed or in tags:
/// with arguments it is speech, like any other.
fn local_command(row: &[u8], head: &Head, out: &mut Judged) {
    let Some(content) = head.row_content else { return };
    let dropped = out.parts.len() - 1;
    match text::local_command(content.of(row)) {
        Some(TextShape::Command { name, args }) => {
            let take = Take::Command { name: content.inner(name.0, name.1) };
            out.say_inside(dropped, Role::Human, ItemKind::Command, content.inner(args.0, args.1));
            if let Some(part) = out.parts.last_mut() {
                part.take = take;
            }
        }
        Some(TextShape::Words) => out.say_inside(dropped, Role::Human, ItemKind::Command, content),
        _ => {}
    }
}

/// How a shape is named in messages and in `accept_unknown`.
pub(crate) fn shape_name(shape: Shape, name: Option<Span>, row: &[u8]) -> String {
    let name = name.map_or_else(String::new, |name| decode(name.of(row)).text.into_owned());
    let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let prefix = match shape {
        Shape::Row => "",
        Shape::System => "system/",
        Shape::Attachment => "attachment/",
        Shape::Block => "block/",
        Shape::Origin => "origin/",
        Shape::Queue => "queue-operation/",
        Shape::Field => "field/",
    };
    if name.is_empty() { format!("{prefix}(no type)") } else { format!("{prefix}{name}") }
}
