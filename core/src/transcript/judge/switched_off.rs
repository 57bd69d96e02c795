//! Rules switched off by tests, to see what the proof makes of it; and for a whole run of the tests, to see
//! which of them hold a rule:
//!
//! ```text
//! KAEL_SWITCH_OFF=rule:meta    cargo test -p kael-core --lib rebuild     # or kind:answer, step:stitch
//! ```

use std::cell::Cell;
use std::sync::LazyLock;

use super::super::head::{BlockKind, Content, Head, RowKind};
use super::super::rules::Rule;
use super::{ItemKind, Judged, Role, Take};

thread_local! {
    /// This rule drops nothing: what it would drop is taken for words.
    pub(crate) static RULE: Cell<Option<Rule>> =
        Cell::new(named("rule:").and_then(|name| Rule::ALL.iter().copied().find(|rule| rule.name() == name)));
    /// Speech of this kind is not seen.
    pub(crate) static KIND: Cell<Option<ItemKind>> =
        Cell::new(named("kind:").and_then(|name| KINDS.iter().copied().find(|kind| is_called(*kind, name))));
    /// This part of finding the conversation does nothing.
    pub(crate) static STEP: Cell<Option<&'static str>> = Cell::new(named("step:"));
}

/// What the environment switches off for the whole run.
fn named(prefix: &str) -> Option<&'static str> {
    static OFF: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("KAEL_SWITCH_OFF").ok());
    OFF.as_deref()?.strip_prefix(prefix)
}

const KINDS: &[ItemKind] = &[
    ItemKind::Words,
    ItemKind::Command,
    ItemKind::Answer,
    ItemKind::Refusal,
    ItemKind::Plan,
    ItemKind::ToolMessage,
    ItemKind::Queued,
    ItemKind::Image,
];

fn is_called(kind: ItemKind, name: &str) -> bool {
    serde_json::to_value(kind).is_ok_and(|kind| kind == name)
}

/// Whether a step of finding the conversation is switched off.
pub(crate) fn is_off(step: &'static str) -> bool {
    STEP.get() == Some(step)
}

pub(super) fn apply(head: &Head, out: &mut Judged) {
    if let Some(kind) = KIND.get() {
        out.parts.retain(|part| part.rule != Rule::Spoken || part.kind != kind);
        if !out.parts.iter().any(|part| part.rule == Rule::Spoken) && out.rule == Some(Rule::Spoken) {
            out.rule = out.parts.first().map(|part| part.rule).or(Some(Rule::Attachment));
        }
    }
    let Some(rule) = RULE.get().filter(|rule| out.parts.iter().any(|part| part.rule == *rule)) else {
        return;
    };
    let before = out.parts.len();
    let role = if head.kind == RowKind::Assistant { Role::Assistant } else { Role::Human };
    match if head.attachment.is_some() { head.prompt } else { head.content } {
        Content::Text(text) => out.say(role, ItemKind::Words, text, Take::Text { stamp: 0 }),
        Content::Blocks => {
            for block in &head.blocks {
                let span = match block.kind {
                    BlockKind::Text => block.text,
                    BlockKind::ToolResult => {
                        block.content.filter(|span| span.len() > 2).map(|span| span.inner(1, span.len() - 1))
                    }
                    _ => Some(block.whole),
                };
                let Some(span) = span else { continue };
                let dropped = out.parts.iter().any(|part| {
                    part.rule == rule && part.span.start <= span.start && span.end <= part.span.end
                });
                if dropped {
                    out.say(role, ItemKind::Words, span, Take::Text { stamp: 0 });
                }
            }
        }
        Content::Absent | Content::Odd(_) => {
            if let Some(part) = out.parts.iter().find(|part| part.rule == rule).copied() {
                out.say(role, ItemKind::Words, part.span, Take::Text { stamp: 0 });
            }
        }
    }
    if out.parts.len() > before {
        out.parts.retain(|part| part.rule != rule);
        out.rule = Some(Rule::Spoken);
    }
}
