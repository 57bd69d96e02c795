//! What is said in a row: the texts of its speech, as items.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::head::{BlockKind, Content, Head, RowKind};
use super::index::RowKey;
use super::json::{Span, decode};
use super::judge::{ItemKind, Judged, Part, Role, Take, command_text};
use super::media;

/// The text of a part, and how many characters of it could not be read.
pub(crate) fn text_of<'a>(part: &Part, row: &'a [u8]) -> (Cow<'a, str>, u32) {
    take_text(part.take, part.span, row)
}

/// The text that a span stands for.
pub(crate) fn take_text(take: Take, span: Span, row: &[u8]) -> (Cow<'_, str>, u32) {
    match take {
        Take::Text { stamp } => {
            let decoded = decode(span.of(row));
            let text = match decoded.text {
                Cow::Borrowed(text) => Cow::Borrowed(text.get(stamp as usize..).unwrap_or(text)),
                Cow::Owned(text) if stamp == 0 => Cow::Owned(text),
                Cow::Owned(text) => Cow::Owned(text.get(stamp as usize..).unwrap_or(&text).to_owned()),
            };
            (text, decoded.replaced)
        }
        Take::Command { name } => {
            let (text, replaced) = command_text(name, span, row);
            (Cow::Owned(text), replaced)
        }
        Take::Marker => (Cow::Owned(media::marker(row, span)), 0),
    }
}

/// Consecutive speech of one kind in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Utterance {
    pub(crate) role: Role,
    pub(crate) kind: ItemKind,
    /// Which of the row's utterances it is, from 0: part of the identity.
    pub(crate) number: u32,
    /// The content was a plain string, not a list of blocks.
    pub(crate) is_string: bool,
    pub(crate) parts: Vec<(Span, Take)>,
}

/// The utterances of a judged row, in its order. `sent` says whether a tool call succeeded.
pub(crate) fn utterances(
    row: &[u8],
    head: &Head,
    judged: &Judged,
    sent: &dyn Fn(RowKey) -> bool,
) -> Vec<Utterance> {
    let mut all: Vec<Utterance> = Vec::new();
    for part in judged.speech() {
        if part.kind == ItemKind::ToolMessage
            && !call_of(part, head).is_some_and(|id| sent(RowKey::of(id.of(row))))
        {
            continue;
        }
        // A row's own words, commands and markers go together; derived speech stands for itself.
        let is_string = part.kind.suffix().is_empty()
            && (head.kind == RowKind::System
                || matches!(
                    if head.attachment.is_some() { head.prompt } else { head.content },
                    Content::Text(_)
                ));
        match all.last_mut().filter(|last| last.role == part.role && last.kind == part.kind) {
            Some(last) => last.parts.push((part.span, part.take)),
            None => all.push(Utterance {
                role: part.role,
                kind: part.kind,
                number: u32::try_from(all.len()).unwrap_or(u32::MAX),
                is_string,
                parts: vec![(part.span, part.take)],
            }),
        }
    }
    all
}

/// The utterance of a queued message that has no row of its own, from its `enqueue` row.
pub(crate) fn queued(head: &Head) -> Option<Utterance> {
    let words = head.row_content?;
    Some(Utterance {
        role: Role::Human,
        kind: ItemKind::Queued,
        number: 0,
        is_string: true,
        parts: vec![(words, Take::Text { stamp: 0 })],
    })
}

/// The id of the tool call that a part stands in.
fn call_of(part: &Part, head: &Head) -> Option<Span> {
    let inside = |block: &&super::head::Block| {
        block.kind == BlockKind::ToolUse
            && block.whole.start <= part.span.start
            && part.span.end <= block.whole.end
    };
    head.blocks.iter().find(inside)?.id
}

/// What names an utterance across rebuilds: our mark's source in a candidate, else the row's uuid,
/// with a suffix where a row holds more than one.
pub(crate) fn identity(row: &[u8], head: &Head, kind: ItemKind, number: u32) -> String {
    let text = |span: Span| decode(span.of(row)).text.into_owned();
    if let Some(source) = head.kael.and_then(|kael| kael.source) {
        return text(source);
    }
    let digest = || media::hex(&Sha256::digest(row)).get(..32).unwrap_or_default().to_owned();
    if head.kind == RowKind::QueueOperation {
        return format!("queue-operation#{}", digest());
    }
    let id = head.uuid.map_or_else(|| format!("row#{}", digest()), text);
    let suffix = kind.suffix();
    match (number, suffix) {
        (0, _) => format!("{id}{suffix}"),
        (number, "") => format!("{id}#{number}"),
        (number, suffix) => format!("{id}{suffix}{number}"),
    }
}
