//! Attachment rows: a message absorbed while a tool ran is a human's, everything else is not.

use super::super::drift::{Known, Shape, Verdict};
use super::super::head::{BlockKind, Content, Head};
use super::super::json::{Span, decode};
use super::super::rules::Rule;
use super::{Context, ItemKind, Judged, Role, Take};

impl Context<'_> {
    pub(super) fn attachment(&self, row: &[u8], head: &Head, out: &mut Judged) {
        if head.is_sidechain {
            out.drop_span(Rule::Sidechain, Span::new(0, row.len()), false);
            out.rule = Some(Rule::Sidechain);
            return;
        }
        let name = head.attachment_type.map_or(&b""[..], |name| name.of(row));
        match Known::find(Shape::Attachment, name).map(|known| known.verdict) {
            Some(Verdict::Drop(rule)) => {
                // The attachment is what the CLI knows, `rendered` what it sends.
                let sent = head.rendered.is_some();
                out.drop_span(rule, head.attachment.unwrap_or_default(), !sent && rule == Rule::Attachment);
                if let Some(rendered) = head.rendered {
                    out.drop_span(rule, rendered, rule == Rule::Attachment);
                }
                out.rule = Some(rule);
            }
            Some(Verdict::Look) => self.queued(row, head, out),
            None => self.unknown(
                Shape::Attachment,
                head.attachment_type,
                row,
                head.attachment.unwrap_or_default(),
                out,
            ),
        }
    }

    /// `queued_command`: the only place where a message absorbed mid-turn stands as it was typed.
    fn queued(&self, row: &[u8], head: &Head, out: &mut Judged) {
        let attachment = head.attachment.unwrap_or_default();
        let rule = self.queued_rule(row, head, out);
        let dropped = out.parts.len();
        let otherwise = rule.unwrap_or(Rule::Attachment);
        out.drop_span(otherwise, attachment, head.rendered.is_none());
        if let Some(rendered) = head.rendered {
            out.drop_span(Rule::Attachment, rendered, true);
        }
        if rule.is_none() {
            match head.prompt {
                Content::Text(text) => out.say_inside(dropped, Role::Human, ItemKind::Queued, text),
                Content::Blocks => {
                    for block in &head.blocks {
                        if let (BlockKind::Text, Some(text)) = (block.kind, block.text) {
                            out.say_inside(dropped, Role::Human, ItemKind::Queued, text);
                        }
                    }
                    if !out.says(Role::Human) {
                        queued_images(head, out);
                    }
                }
                Content::Odd(span) => {
                    self.ambiguous(
                        "attachment/queued_command",
                        "a prompt that is neither text nor blocks",
                        span,
                        out,
                    );
                }
                Content::Absent => {}
            }
        }
        out.settle(otherwise);
    }

    /// The rule that drops a queued command, or none if a human typed it.
    fn queued_rule(&self, row: &[u8], head: &Head, out: &mut Judged) -> Option<Rule> {
        for id in [head.source_uuid, head.uuid].into_iter().flatten() {
            let id = decode(id.of(row)).text;
            if self.own.human.contains(id.as_ref()) {
                return None;
            }
            if self.own.notes.contains(id.as_ref()) {
                return Some(Rule::Note);
            }
            if self.own.abandoned.contains(id.as_ref()) {
                return Some(Rule::AbandonedAttempt);
            }
        }
        if let Some(verdict) = self.origin(head.attachment_origin, row, out) {
            return verdict;
        }
        match head.command_mode.map(|mode| mode.of(row)) {
            Some(b"prompt") | None => {
                let text = match head.prompt {
                    Content::Text(text) => decode(text.of(row)).text.into_owned(),
                    Content::Absent | Content::Blocks | Content::Odd(_) => return None,
                };
                text.trim_start().starts_with("<task-notification>").then_some(Rule::TaskNotification)
            }
            Some(b"task-notification") => Some(Rule::TaskNotification),
            Some(_) => Some(Rule::NotHuman),
        }
    }
}

fn queued_images(head: &Head, out: &mut Judged) {
    for block in &head.blocks {
        if matches!(block.kind, BlockKind::Image | BlockKind::Document) {
            out.say(Role::Human, ItemKind::Image, block.whole, Take::Marker);
            if let Some(part) = out.parts.last_mut() {
                part.bytes = 0; // the bytes stay with the attachment
            }
        }
    }
}
