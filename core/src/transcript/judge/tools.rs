//! Words inside tool traffic: refusals, answers, plans, messages sent by a tool.

use super::super::head::{Block, Head};
use super::super::json::{Bad, Scanner, Span, decode};
use super::super::rules::Rule;
use super::{Context, ItemKind, Judged, Role};

/// How the result of a refused call begins, in the wordings of the main loop and of subagents.
const REFUSED: &[&[u8]] = &[b"The user doesn't want to", b"Permission for this tool use was denied."];
/// The words after which a refused call's result holds what the human typed.
const REFUSAL: &[u8] = b"he user said:";
/// What some versions put behind the human's words, to the end of the result.
const HINT: &[u8] = br"\n\nNote: The user's next message may contain a correction or preference.";
/// The same, whole.
const HINT_TEXT: &str = "Pay close attention \u{2014} if they explain what went wrong or how they'd prefer you to work, \
                         consider saving that to memory for future sessions.";

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

    pub(super) fn tool_result(&self, block: &Block, row: &[u8], head: &Head, out: &mut Judged) {
        let dropped = out.parts.len();
        out.drop_span(Rule::ToolResult, block.whole, true);
        let Some(content) = block.content else { return };
        if !block.is_error {
            if ANSWERED.iter().any(|begin| memchr::memmem::find(near(content.of(row)), begin).is_some())
                && !has_answers(row, head)
            {
                told_answers(row, content, dropped, out);
            }
            return;
        }
        let mut texts = Vec::new();
        if texts_in(row, content, &mut texts).is_err() {
            return;
        }
        for text in texts {
            if let Some(words) = reason(row, text)
                && !decode(words.of(row)).text.trim().is_empty()
            {
                out.say_inside(dropped, Role::Human, ItemKind::Refusal, words);
            }
        }
    }

    /// `toolUseResult`: a copy of the result, and the only place of some answers.
    pub(super) fn tool_use_result(&self, head: &Head, row: &[u8], out: &mut Judged) {
        let Some(span) = head.tool_use_result else { return };
        let dropped = out.parts.len();
        out.drop_span(Rule::ToolResult, span, false);
        // Most results are long and hold no answers: one look for the key is enough.
        let raw = span.of(row);
        if raw.len() > 4096 && !holds_answers(raw) {
            return;
        }
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

/// How results begin that tell what a human answered.
const ANSWERED: &[&[u8]] = &[b"User has answered your questions: ", b"Your questions have been answered: "];
/// What stands behind the answers.
const ANSWERED_END: &[u8] = b". You can now continue with";

/// The beginning of a result, where such a sentence stands if there is one.
fn near(content: &[u8]) -> &[u8] {
    content.get(..256).unwrap_or(content)
}

/// Whether the row lists what was answered beside its result.
fn has_answers(row: &[u8], head: &Head) -> bool {
    let mut answers = Vec::new();
    head.tool_use_result.is_some_and(|span| answers_in(row, span, &mut answers).is_ok())
        && !answers.is_empty()
}

/// The answers in a result's sentence, for rows that have them nowhere else. Questions and answers stand
/// between quotes; where those of their own make it unclear which is which, the whole list is said.
fn told_answers(row: &[u8], content: Span, dropped: usize, out: &mut Judged) {
    let mut texts = Vec::new();
    if texts_in(row, content, &mut texts).is_err() {
        return;
    }
    for text in texts {
        let raw = text.of(row);
        let Some(from) = ANSWERED.iter().find(|head| raw.starts_with(head)).map(|head| head.len()) else {
            continue;
        };
        let to = memchr::memmem::rfind(&raw[from..], ANSWERED_END).map_or(raw.len(), |at| from + at);
        let list = text.inner(from, to);
        let pairs = pairs_of(list.of(row));
        let spans: Vec<Span> = match &pairs {
            Some(pairs) => pairs.iter().map(|(from, to)| list.inner(*from, *to)).collect(),
            None => vec![list],
        };
        for span in spans {
            if !decode(span.of(row)).text.trim().is_empty() {
                out.say_inside(dropped, Role::Human, ItemKind::Answer, span);
            }
        }
    }
}

/// Where the answers stand in `"Q"="A", "Q"="A"` with escaped quotes; nothing where that is unclear.
fn pairs_of(list: &[u8]) -> Option<Vec<(usize, usize)>> {
    let (middle, between) = (br#"\"=\""#, br#"\", \""#);
    let inside = list.strip_prefix(br#"\""#)?.strip_suffix(br#"\""#)?;
    let mut from = 2;
    let ends: Vec<usize> = memchr::memmem::find_iter(inside, between).map(|at| at + 2).collect();
    let mut pairs = Vec::new();
    for to in ends.into_iter().chain([inside.len() + 2]) {
        let pair = list.get(from..to)?;
        let mut found = memchr::memmem::find_iter(pair, middle);
        let (Some(at), None) = (found.next(), found.next()) else { return None };
        pairs.push((from + at + middle.len(), to));
        from = to + between.len();
    }
    Some(pairs)
}

/// A result's texts: itself, or those of its text blocks.
fn texts_in(row: &[u8], content: Span, texts: &mut Vec<Span>) -> Result<(), Bad> {
    let mut s = Scanner::inside(row, content);
    if s.peek() != Some(b'[') {
        texts.extend(s.maybe_string()?);
        return Ok(());
    }
    s.array(|s| {
        if s.peek() != Some(b'{') {
            return s.pass();
        }
        s.object(|s, key| {
            if key == b"text" {
                texts.extend(s.maybe_string()?);
            } else {
                s.pass()?;
            }
            Ok(())
        })
        .map(drop)
    })?;
    Ok(())
}

/// The words of a human in the text of a refused call's result.
fn reason(row: &[u8], text: Span) -> Option<Span> {
    let raw = text.of(row);
    if !REFUSED.iter().any(|head| raw.starts_with(head)) {
        return None;
    }
    let mut from = memchr::memmem::find(raw, REFUSAL)? + REFUSAL.len();
    // A line end stands in front of the words; older forms have a blank.
    from += [&br"\n"[..], b" "].iter().find(|gap| raw[from..].starts_with(gap)).map_or(0, |gap| gap.len());
    let mut to = raw.len();
    if let Some(at) = memchr::memmem::rfind(&raw[from..], HINT) {
        let rest = decode(&raw[from + at + HINT.len()..]).text;
        if rest.trim().is_empty() || rest.trim() == HINT_TEXT {
            to = from + at;
        }
    }
    Some(text.inner(from, to))
}

/// Whether a key under which answers stand is in there. No writer of JSON escapes letters of a key.
fn holds_answers(raw: &[u8]) -> bool {
    ANSWER_KEYS.iter().any(|key| memchr::memmem::find(raw, key).is_some())
}

const ANSWER_KEYS: &[&[u8]] = &[b"\"answers\"", b"\"annotations\""];

/// The strings a human gave in `answers` (question to answer) and in `annotations.*.notes`.
fn answers_in(row: &[u8], result: Span, answers: &mut Vec<Span>) -> Result<(), Bad> {
    let mut s = Scanner::inside(row, result);
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
    let mut s = Scanner::inside(row, object);
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
