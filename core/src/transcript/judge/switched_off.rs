//! Rules switched off by tests, to see what the proof makes of it.

use std::cell::Cell;

use super::super::head::{BlockKind, Content, Head, RowKind};
use super::super::rules::Rule;
use super::{ItemKind, Judged, Role, Take};

thread_local! {
    /// This rule drops nothing: what it would drop is taken for words.
    pub(crate) static RULE: Cell<Option<Rule>> = const { Cell::new(None) };
    /// Speech of this kind is not seen.
    pub(crate) static KIND: Cell<Option<ItemKind>> = const { Cell::new(None) };
    /// This part of finding the conversation does nothing.
    pub(crate) static STEP: Cell<Option<&'static str>> = const { Cell::new(None) };
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
