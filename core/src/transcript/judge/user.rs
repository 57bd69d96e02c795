//! User rows. In order of authority: our inbox, explicit provenance, structure, text (DESIGN 4).

use super::super::head::{Block, BlockKind, Content, Head};
use super::super::json::{Span, decode};
use super::super::rules::Rule;
use super::text::{self, TextShape};
use super::{Context, Doubt, ItemKind, Judged, Role, Take};

/// Who wrote a user row, as far as its fields say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// Our inbox sent it: whole, whatever it looks like.
    OurHuman,
    /// A field says that a human wrote it.
    Human,
    /// The CLI itself; only tool traffic in the row is looked at.
    Harness,
    /// Not said; the text decides.
    Unsaid,
    /// Somebody else, under this rule.
    Other(Rule),
}

impl Context<'_> {
    pub(super) fn user(&self, row: &[u8], head: &Head, out: &mut Judged) {
        if let Some(kael) = &head.kael {
            return Self::candidate_row(Role::Human, kael, head, row, out);
        }
        let writer = self.writer(row, head, out);
        if let Writer::Other(rule) = writer {
            let dropped = head.message.unwrap_or_default();
            out.drop_span(rule, dropped, !matches!(rule, Rule::Sidechain | Rule::AbandonedAttempt));
            self.tool_use_result(head, row, out);
            // A dropped row says nothing, whatever its copies hold.
            for part in &mut out.parts {
                if part.rule == Rule::Spoken {
                    part.rule = rule;
                }
            }
            out.rule = Some(rule);
            return;
        }
        match head.content {
            Content::Text(span) => self.text(writer, span, row, (true, head.is_typed), out),
            Content::Blocks => self.user_blocks(writer, row, head, out),
            Content::Odd(span) => {
                if span.of(row) != b"null" {
                    self.ambiguous("user/content", "content that is neither text nor blocks", span, out);
                }
            }
            Content::Absent => {}
        }
        self.tool_use_result(head, row, out);
        let otherwise = out.parts.first().map_or(Rule::Bookkeeping, |part| part.rule);
        out.settle(otherwise);
    }

    fn writer(&self, row: &[u8], head: &Head, out: &mut Judged) -> Writer {
        let id = head.uuid.map(|id| decode(id.of(row)).text);
        if let Some(id) = &id {
            if self.own.human.contains(id.as_ref()) {
                return Writer::OurHuman;
            }
            if self.own.notes.contains(id.as_ref()) {
                return Writer::Other(Rule::Note);
            }
            if self.own.abandoned.contains(id.as_ref()) {
                return Writer::Other(Rule::AbandonedAttempt);
            }
        }
        if head.is_sidechain {
            return Writer::Other(Rule::Sidechain);
        }
        if head.is_compact_summary {
            return Writer::Other(Rule::CompactSummary);
        }
        if let Some(verdict) = self.origin(head.origin_kind, row, out) {
            return verdict.map_or(Writer::Human, Writer::Other);
        }
        if head.is_meta {
            let channel = match head.content {
                Content::Text(text) => is_channel(text, row),
                Content::Blocks => {
                    head.blocks.iter().any(|b| b.text.is_some_and(|text| is_channel(text, row)))
                }
                Content::Absent | Content::Odd(_) => false,
            };
            return if channel { Writer::Human } else { Writer::Other(Rule::MetaRow) };
        }
        if head.is_synthetic_input || head.is_visible_only {
            return Writer::Other(Rule::NotHuman);
        }
        if head.has_plan_content {
            return Writer::Other(Rule::FedBackPlan);
        }
        match head.prompt_source.map(|source| source.of(row)) {
            Some(b"typed" | b"sdk") => return Writer::Human,
            Some(b"system") => return Writer::Other(Rule::NotHuman),
            _ => {}
        }
        match head.turn_origin.map(|origin| origin.of(row)) {
            Some(b"human") => return Writer::Human,
            Some(b"scheduled" | b"host_synthetic") => return Writer::Other(Rule::NotHuman),
            Some(b"task_notification") => return Writer::Other(Rule::TaskNotification),
            _ => {}
        }
        match head.row_source.map(|source| source.of(row)) {
            Some(b"harness" | b"hook") => Writer::Harness,
            _ => Writer::Unsaid,
        }
    }

    fn user_blocks(&self, writer: Writer, row: &[u8], head: &Head, out: &mut Judged) {
        let texts = head.blocks.iter().filter(|block| block.kind == BlockKind::Text).count();
        let mut media = Vec::new();
        for block in &head.blocks {
            match block.kind {
                BlockKind::Text => match block.text {
                    Some(text) => self.text(writer, text, row, (texts == 1, head.is_typed), out),
                    None => self.plain_block(block, row, out),
                },
                BlockKind::ToolResult => self.tool_result(block, row, head, out),
                BlockKind::Image | BlockKind::Document => media.push(*block),
                BlockKind::Thinking | BlockKind::ToolUse | BlockKind::Other => {
                    self.plain_block(block, row, out);
                }
            }
        }
        let silent = !out.says(Role::Human) && out.parts.iter().all(|part| part.rule != Rule::ToolResult);
        for block in &media {
            media_block(block, silent, out);
        }
        // Markers stand where their images stood, so that block order is the source's.
        out.parts.sort_by_key(|part| part.span.start);
    }

    fn text(
        &self,
        writer: Writer,
        span: Span,
        row: &[u8],
        (alone, is_typed): (bool, bool),
        out: &mut Judged,
    ) {
        let raw = span.of(row);
        let whole = Take::Text { stamp: 0 };
        if writer == Writer::OurHuman {
            return out.say(Role::Human, ItemKind::Words, span, whole);
        }
        let shape = text::shape(raw, self.rules);
        if writer == Writer::Human {
            // A field vouches for the row; a block that an editor added beside the words is still
            // the runtime's, as a whole block of its own.
            return if !alone && shape == TextShape::Runtime(Rule::InjectedBlock) {
                out.drop_span(Rule::InjectedBlock, span, true);
            } else {
                say_unless_blank(span, row, out);
            };
        }
        match shape {
            TextShape::Runtime(rule) => out.drop_span(rule, span, true),
            _ if writer == Writer::Harness => out.drop_span(Rule::NotHuman, span, true),
            TextShape::Words => say_unless_blank(span, row, out),
            TextShape::Command { name, args } => {
                let dropped = out.parts.len();
                out.drop_span(Rule::BareCommand, span, true);
                let args = span.inner(args.0, args.1);
                out.say_inside(dropped, Role::Human, ItemKind::Command, args);
                if let Some(part) = out.parts.last_mut() {
                    part.take = Take::Command { name: span.inner(name.0, name.1) };
                }
            }
            TextShape::Doubtful(doubt) => {
                // What the runtime says stands alone in its row, and only people type in a mode.
                let typed = is_typed && doubt != Doubt::Plan;
                out.doubt = Some(doubt).filter(|_| alone && !typed);
                say_unless_blank(span, row, out);
            }
            TextShape::Ambiguous { key, what } => self.ambiguous(key, what, span, out),
        }
    }
}

/// White space only is no speech of a human either: there is nothing to carry.
fn say_unless_blank(text: Span, row: &[u8], out: &mut Judged) {
    if decode(text.of(row)).text.trim().is_empty() {
        out.drop_span(Rule::WhitespaceText, text, false);
    } else {
        out.say(Role::Human, ItemKind::Words, text, Take::Text { stamp: 0 });
    }
}

fn media_block(block: &Block, silent: bool, out: &mut Judged) {
    out.drop_span(Rule::Image, block.whole, true);
    if silent {
        out.say(Role::Human, ItemKind::Image, block.whole, Take::Marker);
        if let Some(part) = out.parts.last_mut() {
            part.bytes = 0; // the marker is ours; the bytes are the image's
        }
    }
}

fn is_channel(text: Span, row: &[u8]) -> bool {
    decode(text.of(row)).text.trim_start().starts_with("<channel source=\"")
}
