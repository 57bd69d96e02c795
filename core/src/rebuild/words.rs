//! The texts of items: what the source says, and what goes into the candidate.
//!
//! The only fixed texts we add are here (DESIGN 12): stamps, cuts, heads of summaries and snapshots,
//! the open tail's marker. All are recognised again through our mark.

use std::borrow::Cow;

use crate::transcript::head::{BlockKind, Content, Head, RowKind};
use crate::transcript::json::{Span, decode};
use crate::transcript::speech::take_text;
use crate::transcript::{ItemKind, Role};

use super::items::PlannedItem;

/// Stands after an unanswered message, so that the CLI neither answers it nor acts on it.
pub(crate) const OPEN_TAIL: &str = "[unanswered before the rebuild]";
/// Stands in front of a carried summary.
pub(crate) const SUMMARY_HEAD: &str = "[summary by the CLI; the words are not in this file]\n";
/// How a time stamp begins.
pub(crate) const STAMP_HEAD: &str = "[发生时间: ";

/// Texts, and how many of their characters could not be read.
pub(crate) struct Texts {
    pub(crate) blocks: Vec<String>,
    pub(crate) replaced: u32,
}

/// What an item's row says, block by block; heads of ours included, stamps and cuts not.
pub(crate) fn source_texts(item: &PlannedItem, row: &[u8], head: &Head) -> Texts {
    if item.is_new_marker {
        return Texts { blocks: vec![OPEN_TAIL.to_owned()], replaced: 0 };
    }
    let mut replaced = 0;
    let mut blocks: Vec<String> = Vec::with_capacity(item.parts.len());
    for (span, take) in &item.parts {
        let (text, bad) = take_text(*take, *span, row);
        replaced += bad;
        blocks.push(text.into_owned());
    }
    // In a candidate these already have their heads.
    if head.kael.is_none()
        && let Some(first) = blocks.first_mut()
    {
        match item.kind {
            ItemKind::Summary => first.insert_str(0, SUMMARY_HEAD),
            ItemKind::Snapshot => first.insert_str(0, &snapshot_head(time(row, head).as_deref())),
            _ => {}
        }
    }
    Texts { blocks, replaced }
}

/// When a row was written, as its own words have it; in a candidate, as the first source had it.
pub(crate) fn time<'a>(row: &'a [u8], head: &Head) -> Option<Cow<'a, str>> {
    if head.kael.is_some_and(|kael| kael.timeless) {
        return None;
    }
    let span = head.kael.and_then(|kael| kael.time).or(head.timestamp)?;
    Some(decode(span.of(row)).text)
}

fn snapshot_head(time: Option<&str>) -> String {
    format!("[续窗启动快照 · 冻结于 {}]\n", time.unwrap_or("?"))
}

/// The stamp for an item, if it gets one. Never a second: rows that the original tool rebuilt carry
/// theirs as text.
pub(crate) fn stamp(item: &PlannedItem, first: &str, row: &[u8], head: &Head) -> Option<String> {
    if !item.stamped || has_stamp(first) {
        return None;
    }
    time(row, head).map(|time| format!("{STAMP_HEAD}{time}]\n"))
}

fn has_stamp(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(STAMP_HEAD)
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|time| time.len() < 64 && !time.contains(']'))
}

/// Keeps the first characters of an item (0: all) and says how many were cut.
pub(crate) fn cut(blocks: Vec<String>, keep: u64) -> Vec<String> {
    if keep == 0 {
        return blocks;
    }
    let all: u64 = blocks.iter().map(|text| text.chars().count() as u64).sum();
    let mut left = usize::try_from(keep).unwrap_or(usize::MAX);
    let mut kept = Vec::new();
    for mut text in blocks {
        let chars = text.chars().count();
        if chars > left {
            let end = text.char_indices().nth(left).map_or(text.len(), |(at, _)| at);
            text.truncate(end);
            text.push_str(&cut_mark(all.saturating_sub(keep)));
            kept.push(text);
            return kept;
        }
        left -= chars;
        kept.push(text);
    }
    kept
}

pub(crate) fn cut_mark(chars: u64) -> String {
    format!("[... {chars} characters cut by max_event_chars ...]")
}

/// What goes into the candidate for one item.
pub(crate) struct Injected {
    pub(crate) blocks: Vec<String>,
    /// How many bytes of the first block are a stamp.
    pub(crate) stamp: usize,
}

/// The candidate's texts for an item.
pub(crate) fn injected(item: &PlannedItem, row: &[u8], head: &Head) -> Injected {
    let mut blocks = cut(source_texts(item, row, head).blocks, item.keep_chars);
    let mut length = 0;
    if let Some(first) = blocks.first_mut()
        && let Some(stamp) = stamp(item, first, row, head)
    {
        length = stamp.len();
        first.insert_str(0, &stamp);
    }
    Injected { blocks, stamp: length }
}

/// Where a row holds the startup snapshot's text, and whether it is a plain string.
pub(super) fn snapshot_span(row: &[u8], head: &Head) -> Option<(Span, bool)> {
    let reminder = |span: &Span| {
        let text = decode(span.of(row)).text;
        let text = text.trim();
        text.starts_with("<system-reminder>") && text.ends_with("</system-reminder>")
    };
    match head.kind {
        RowKind::User if !head.is_sidechain && !head.is_compact_summary => match head.content {
            Content::Text(text) => Some(text).filter(reminder).map(|text| (text, true)),
            Content::Blocks => {
                let first = head.blocks.first().filter(|block| block.kind == BlockKind::Text)?;
                first.text.filter(reminder).map(|text| (text, false))
            }
            Content::Absent | Content::Odd(_) => None,
        },
        RowKind::Attachment if Head::is(head.attachment_type, row, "instructions") => {
            rendered_text(row, head.rendered?).map(|text| (text, false))
        }
        _ => None,
    }
}

/// The first text in an attachment's `rendered`.
fn rendered_text(row: &[u8], rendered: Span) -> Option<Span> {
    use crate::transcript::json::Scanner;
    let mut s = Scanner::inside(row, rendered);
    let mut found = None;
    s.array(|s| {
        if s.peek() != Some(b'{') {
            return s.pass();
        }
        s.object(|s, key| {
            if key == b"content" && found.is_none() {
                found = s.maybe_string()?;
            } else {
                s.pass()?;
            }
            Ok(())
        })
        .map(drop)
    })
    .ok()?;
    found
}

/// What a role's rows are called in a transcript.
pub(crate) const fn row_type(role: Role) -> &'static str {
    match role {
        Role::Human => "user",
        Role::Assistant => "assistant",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_count_what_they_take() {
        let blocks = || vec!["风筝飞".to_owned(), "over 山".to_owned()];
        assert_eq!(cut(blocks(), 0), blocks());
        assert_eq!(cut(blocks(), 9), blocks());
        assert_eq!(cut(blocks(), 5), ["风筝飞", "ov[... 4 characters cut by max_event_chars ...]"]);
        assert_eq!(cut(blocks(), 3), ["风筝飞", "[... 6 characters cut by max_event_chars ...]"]);
        assert_eq!(cut(blocks(), 2), ["风筝[... 7 characters cut by max_event_chars ...]"]);
    }

    #[test]
    fn a_stamp_is_recognised_and_talk_about_stamps_is_not() {
        assert!(has_stamp("[发生时间: 2026-01-01T00:00:00.000Z]\n你好"));
        assert!(!has_stamp("[发生时间: what is this] asked"));
        assert!(!has_stamp("你好 [发生时间: 2026]"));
    }
}
