//! Assistant rows: text blocks verbatim, plans, messages sent by a tool.

use super::super::head::{BlockKind, Content, Head};
use super::super::json::{Span, decode};
use super::super::rules::Rule;
use super::{Context, ItemKind, Judged, Role, Take};

impl Context<'_> {
    pub(super) fn assistant(&self, row: &[u8], head: &Head, out: &mut Judged) {
        if let Some(kael) = &head.kael {
            return Self::candidate_row(Role::Assistant, kael, head, row, out);
        }
        let instead = if head.is_sidechain {
            Some(Rule::Sidechain)
        } else if head.is_api_error {
            Some(Rule::ApiError)
        } else if Head::is(head.model, row, "<synthetic>") {
            Some(Rule::Synthetic)
        } else {
            None
        };
        if let Some(rule) = instead {
            let span = head.message.unwrap_or_default();
            out.drop_span(rule, span, rule == Rule::Synthetic);
            out.rule = Some(rule);
            return;
        }
        out.is_model = true;
        match head.content {
            Content::Text(text) => say_unless_blank(text, row, out),
            Content::Blocks => {
                for block in &head.blocks {
                    match block.kind {
                        BlockKind::Text => match block.text {
                            Some(text) => say_unless_blank(text, row, out),
                            None => out.drop_span(Rule::WhitespaceText, block.whole, false),
                        },
                        BlockKind::ToolUse => self.tool_use(block, row, out),
                        BlockKind::Image | BlockKind::Document => {
                            out.drop_span(Rule::Image, block.whole, true);
                        }
                        BlockKind::ToolResult => out.drop_span(Rule::ToolResult, block.whole, true),
                        BlockKind::Thinking | BlockKind::Other => self.plain_block(block, row, out),
                    }
                }
            }
            Content::Odd(span) => {
                if span.of(row) != b"null" {
                    self.ambiguous("assistant/content", "content that is neither text nor blocks", span, out);
                }
            }
            Content::Absent => {}
        }
        let otherwise = out.parts.first().map_or(Rule::Bookkeeping, |part| part.rule);
        out.settle(otherwise);
    }
}

fn say_unless_blank(text: Span, row: &[u8], out: &mut Judged) {
    if decode(text.of(row)).text.trim().is_empty() {
        out.drop_span(Rule::WhitespaceText, text, false);
    } else {
        out.say(Role::Assistant, ItemKind::Words, text, Take::Text { stamp: 0 });
    }
}
