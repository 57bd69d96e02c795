//! Which queued messages have a row of their own (DESIGN 4, facts 3 and 11).
//!
//! The CLI notes every message it queues (`enqueue`) and what became of it: `dequeue` starts a turn
//! with it (a user row follows), `remove` gives it to the running turn (`queued_command`, in some
//! versions no row at all), `popAll` hands it back to the human's input line. A message that was
//! taken and has no row is speech that stands nowhere else, and so is one that still waits at the
//! end of the file.
//!
//! Paired in file order: a row goes with the message of its text, several messages that were merged
//! into one row go with that row, and a user row of another text goes with the message dequeued last
//! (the CLI rewrites some: commands, pasted text). A message that was sent again after a crash shows
//! once. Two equal messages are two.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::head::{BlockKind, Content, Head, RowKind};
use super::json::{Span, decode};
use super::judge::{Judged, Part, Role, Take, command_text, is_notification, is_teammates};

type TextKey = [u8; 16];

/// Where a message without a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where it was taken out of the queue.
    Taken,
    /// Where it was queued: what came later did not wait for it, its process is gone.
    Queued,
    /// At the end: it still waits.
    End,
}

/// A queued message without a row of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// The number of its `enqueue` row among the queue's.
    pub(crate) number: u64,
    /// The line of its `enqueue` row.
    pub(crate) line: u64,
    pub(crate) place: Place,
    /// The bytes its words take in the file; none when the file does not say what they are.
    pub(crate) bytes: Option<u64>,
}

/// What a queue row did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It queued this message, with its words.
    Queued(u64),
    /// It took this message.
    Taken(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    number: u64,
    line: u64,
    /// The trimmed text's digest and length; none where the row does not repeat it.
    text: Option<(TextKey, u64)>,
    /// The bytes of the words in the file.
    bytes: u64,
    human: bool,
    /// A row with its text stood in front of the row that took it.
    shown: bool,
    /// A later message began a turn while it waited.
    overtaken: bool,
    /// It was given to the running turn, not dequeued.
    absorbed: bool,
}

/// Pairs queue rows with the rows of the messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    next: u64,
    waiting: VecDeque<Entry>,
    /// Taken, and no row yet.
    taken: Vec<Entry>,
}

impl Queue {
    /// Takes note of any row.
    pub(crate) fn row(&mut self, row: &[u8], head: &Head, judged: &Judged, line: u64) -> Option<Step> {
        if head.kind == RowKind::QueueOperation {
            return self.operation(row, head, line);
        }
        if self.waiting.is_empty() && self.taken.is_empty() || head.is_sidechain {
            return None;
        }
        let queued = head.kind == RowKind::Attachment && judged.says(Role::Human);
        let is_result = head.blocks.iter().any(|block| block.kind == BlockKind::ToolResult);
        let begins = head.kind == RowKind::User && !is_result && !head.is_meta && !head.is_compact_summary;
        if queued || begins || judged.says(Role::Human) {
            self.message(row, head, judged, queued, begins);
        }
        None
    }

    fn operation(&mut self, row: &[u8], head: &Head, line: u64) -> Option<Step> {
        let text = head.row_content.map(|content| decode(content.of(row)).text);
        match head.operation.map_or(&b""[..], |operation| operation.of(row)) {
            b"enqueue" => {
                let number = self.next;
                self.next += 1;
                let human = text.as_deref().is_none_or(is_human);
                self.waiting.push_back(Entry {
                    number,
                    line,
                    text: text.as_deref().map(text_key),
                    bytes: head.row_content.map_or(0, |span| span.len() as u64),
                    human,
                    shown: false,
                    overtaken: false,
                    absorbed: false,
                });
                (human && text.is_some()).then_some(Step::Queued(number))
            }
            b"dequeue" => self.take(text.as_deref(), false),
            b"remove" => self.take(text.as_deref(), true),
            b"popAll" => {
                self.waiting.clear();
                None
            }
            _ => None,
        }
    }

    /// Takes the entry an operation is about: the one with its text, else the oldest.
    fn take(&mut self, text: Option<&str>, absorbed: bool) -> Option<Step> {
        let key = text.map(text_key);
        let named = match key {
            Some(key) => self.waiting.iter().position(|entry| entry.text == Some(key)),
            // 2.1.199 writes the row of an absorbed message first, then that it was taken.
            None => self.waiting.iter().position(|entry| absorbed && entry.shown && entry.text.is_none()),
        };
        let entry = self.waiting.remove(named.unwrap_or(0)).filter(|entry| entry.human && !entry.shown)?;
        self.taken.push(Entry { absorbed, ..entry });
        entry.text.map(|_| Step::Taken(entry.number))
    }

    /// A row that is a message: the entries it goes with are accounted for.
    fn message(&mut self, row: &[u8], head: &Head, judged: &Judged, queued: bool, begins: bool) {
        let texts = texts_of(row, head, judged);
        let keys: Vec<_> = texts.iter().map(|text| text_key(text)).collect();
        let same = |entry: &Entry| entry.text.is_some_and(|text| keys.contains(&text));
        // Of equal texts the absorbed ones are messages of their own; dequeued ones were sent again.
        let by_text = self
            .taken
            .iter()
            .position(|entry| same(entry) && entry.absorbed == queued)
            .or_else(|| self.taken.iter().position(same));
        let mut number = None;
        if let Some(at) = by_text {
            let entry = self.taken.remove(at);
            number = Some(entry.number);
            if !entry.absorbed {
                self.taken.retain(|other| other.absorbed || other.text != entry.text);
            }
        } else if let Some(merged) = texts.iter().find_map(|text| self.merged(text)) {
            number = merged.iter().min().copied();
            self.taken.retain(|entry| !merged.contains(&entry.number));
        } else if let Some(entry) = self.waiting.iter_mut().find(|entry| !entry.shown && same(entry)) {
            entry.shown = true;
        } else if let Some(at) = self.taken.iter().rposition(|entry| {
            // Without its text, the kind of row is the only evidence there can be.
            if queued { entry.absorbed && entry.text.is_none() } else { begins && !entry.absorbed }
        }) {
            number = Some(self.taken.remove(at).number);
        } else if queued
            && let Some(entry) =
                self.waiting.iter_mut().find(|entry| entry.human && !entry.shown && entry.text.is_none())
        {
            entry.shown = true;
        }
        if begins {
            for entry in self.waiting.iter_mut().filter(|entry| number.is_none_or(|n| n > entry.number)) {
                entry.overtaken = true;
            }
        }
    }

    /// The taken messages that a text is made of, a line end between them.
    fn merged(&self, text: &str) -> Option<Vec<u64>> {
        let mut rest = text.trim();
        let mut numbers = Vec::new();
        for entry in &self.taken {
            let Some((key, length)) = entry.text else { continue };
            let Some((front, behind)) = usize::try_from(length).ok().and_then(|at| rest.split_at_checked(at))
            else {
                continue;
            };
            if text_key(front).0 == key {
                numbers.push(entry.number);
                rest = behind.trim_start();
            }
        }
        (rest.is_empty() && !numbers.is_empty()).then_some(numbers)
    }

    /// Messages that no row shows, as far as the file goes.
    pub(crate) fn unseen(&self) -> Vec<Unseen> {
        let of = |entry: &Entry, place| {
            // What waits without words in the file was not taken in by anybody, and what was
            // dequeued without words began a turn: only an absorbed message is lost with them.
            let known = entry.text.is_some() || (place == Place::Taken && entry.absorbed);
            let bytes = entry.text.map(|_| entry.bytes);
            (entry.human && !entry.shown && known).then_some(Unseen {
                number: entry.number,
                line: entry.line,
                place,
                bytes,
            })
        };
        let taken = self.taken.iter().filter_map(|entry| of(entry, Place::Taken));
        let waiting = self
            .waiting
            .iter()
            .filter_map(|entry| of(entry, if entry.overtaken { Place::Queued } else { Place::End }));
        let mut unseen: Vec<Unseen> = taken.chain(waiting).collect();
        unseen.sort_by_key(|entry| entry.line);
        unseen
    }
}

/// The texts a row may have had in the queue: its own, and a command as it was typed.
fn texts_of(row: &[u8], head: &Head, judged: &Judged) -> Vec<String> {
    if let Some(content) = head.row_content.filter(|_| head.kind == RowKind::System) {
        return vec![decode(content.of(row)).text.into_owned()];
    }
    let own = match if head.attachment.is_some() { head.prompt } else { head.content } {
        Content::Text(text) => Some(decode(text.of(row)).text.into_owned()),
        Content::Blocks => {
            let blocks = head.blocks.iter().filter(|block| block.kind == BlockKind::Text);
            let texts: Vec<_> =
                blocks.filter_map(|block| block.text).map(|text: Span| decode(text.of(row)).text).collect();
            Some(texts.join("\n"))
        }
        Content::Absent | Content::Odd(_) => None,
    };
    let command = judged.speech().find_map(|part: &Part| match part.take {
        Take::Command { name } => Some(command_text(name, part.span, row).0),
        Take::Text { .. } | Take::Marker => None,
    });
    own.into_iter().chain(command).collect()
}

/// Whether a queued text is a human's: not a task's event, not a bare slash command.
fn is_human(text: &str) -> bool {
    let text = text.trim();
    // A path that somebody typed has more than one slash.
    let command =
        text.strip_prefix('/').is_some_and(|name| !name.contains(|c: char| c.is_whitespace() || c == '/'));
    !(text.is_empty()
        || command
        || is_notification(text)
        || is_teammates(text)
        || (text.starts_with("{\"task_id\"") && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()))
}

fn text_key(text: &str) -> (TextKey, u64) {
    let text = text.trim();
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    (key, text.len() as u64)
}
