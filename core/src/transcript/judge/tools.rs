//! Words inside tool traffic: refusals, answers, plans, messages sent by a tool.

use super::super::head::{Block, Head};
use super::super::json::{Bad, Scanner, Span, decode};
use super::super::rules::Rule;
use super::{Context, ItemKind, Judged, Role};

/// The sentence after which a refused call's result holds what the human typed.
const REFUSAL: &[u8] = br"the user said:\n";
/// How the result of a refused call begins.
const REFUSED: &[u8] = b"The user doesn't want to";

impl Context<'_> {
    pub(super) fn tool_use(&self, block: &Block, row: &[u8], out: &mut Judged) {
        let dropped = out.parts.len();
        out.drop_span(Rule::ToolUse, block.whole, true);
        let (Some(tool), Some(input)) = (block.tool, block.input) else { return };
        let tool = decode(tool.of(row)).text;
        let (kind, field) = if tool == "ExitPlanMode" {
            (ItemKind::Plan, &b"plan"[..])
        } else if tool == "SendUserMessage" {
            (ItemKind::ToolMessage, &b"message"[..])
        } else if self.rules.is_reply_tool(&tool) {
            (ItemKind::ToolMessage, &b"text"[..])
        } else {
            return;
        };
        if let Ok(Some(text)) = string_member(row, input, field)
            && !decode(text.of(row)).text.trim().is_empty()
        {
            out.say_inside(dropped, Role::Assistant, kind, text);
        }
    }

    pub(super) fn tool_result(&self, block: &Block, row: &[u8], out: &mut Judged) {
        let dropped = out.parts.len();
        out.drop_span(Rule::ToolResult, block.whole, true);
        let Some(content) = block.content.filter(|_| block.is_error) else { return };
        let raw = content.of(row);
        let Some(raw) = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")) else { return };
        if raw.starts_with(REFUSED)
            && let Some(at) = memchr::memmem::find(raw, REFUSAL)
        {
            let words = content.inner(1 + at + REFUSAL.len(), 1 + raw.len());
            if !decode(words.of(row)).text.trim().is_empty() {
                out.say_inside(dropped, Role::Human, ItemKind::Refusal, words);
            }
        }
    }

    /// `toolUseResult`: a copy of the result, and the only place of some answers.
    pub(super) fn tool_use_result(&self, head: &Head, row: &[u8], out: &mut Judged) {
        let Some(span) = head.tool_use_result else { return };
        let dropped = out.parts.len();
        out.drop_span(Rule::ToolResult, span, false);
        let mut answers = Vec::new();
        if answers_in(row, span, &mut answers).is_err() {
            answers.clear();
        }
        for answer in answers {
            if !decode(answer.of(row)).text.trim().is_empty() {
                out.say_inside(dropped, Role::Human, ItemKind::Answer, answer);
            }
        }
    }
}

/// The strings a human gave in `answers` (question to answer) and in `annotations.*.notes`.
fn answers_in(row: &[u8], result: Span, answers: &mut Vec<Span>) -> Result<(), Bad> {
    let mut s = Scanner::new(row.get(..result.end as usize).unwrap_or_default()).at(result.start as usize);
    if s.peek() != Some(b'{') {
        return Ok(());
    }
    s.object(|s, key| {
        if key == b"answers" && s.peek() == Some(b'{') {
            s.object(|s, _| {
                answers.extend(s.maybe_string()?);
                Ok(())
            })?;
        } else if key == b"annotations" && s.peek() == Some(b'{') {
            s.object(|s, _| {
                if s.peek() != Some(b'{') {
                    return s.pass();
                }
                s.object(|s, key| {
                    if key == b"notes" {
                        answers.extend(s.maybe_string()?);
                    } else {
                        s.pass()?;
                    }
                    Ok(())
                })
                .map(drop)
            })?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A string member of an object.
fn string_member(row: &[u8], object: Span, name: &[u8]) -> Result<Option<Span>, Bad> {
    let mut s = Scanner::new(row.get(..object.end as usize).unwrap_or_default()).at(object.start as usize);
    let mut found = None;
    if s.peek() == Some(b'{') {
        s.object(|s, key| {
            if key == name {
                found = s.maybe_string()?;
            } else {
                s.pass()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}
