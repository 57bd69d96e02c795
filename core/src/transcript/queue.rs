//! Which queued messages have a row of their own (DESIGN 4, facts 3 and 11).
//!
//! The CLI notes every message it queues (`enqueue`) and what became of it: `dequeue` starts a turn
//! with it (a user row follows), `remove` gives it to the running turn (`queued_command`, in some
//! versions no row at all), `popAll` hands it back to the human's input line. A message that was
//! taken in and has no row is speech that stands nowhere else.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest, Sha256};

use super::head::{BlockKind, Content, Head};
use super::json::{Span, decode};
use super::judge::{Judged, Role};

type TextKey = [u8; 16];

/// What became of a queued message, as far as the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Waiting,
    /// Given to the running turn.
    Absorbed,
}

/// A queued message without a row of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// The line of its `enqueue` row.
    pub(crate) line: u64,
    /// It was given to the running turn; else it still waits at the end of the file.
    pub(crate) absorbed: bool,
    /// The file does not say what its words are.
    pub(crate) wordless: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// None: the row does not repeat the words.
    text: Option<TextKey>,
    line: u64,
    human: bool,
}

/// Pairs queue rows with the rows of the messages.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Entry>,
    absorbed: Vec<Entry>,
    /// Rows with the text of a queued message, less those already accounted for.
    rows: HashMap<TextKey, u32>,
    /// Queued-command rows of any text.
    queued_rows: u32,
}

impl Queue {
    /// Takes note of any row.
    pub(crate) fn row(&mut self, row: &[u8], head: &Head, judged: &Judged, line: u64) {
        if head.operation.is_some() {
            self.operation(row, head, line);
        } else if judged.says(Role::Human) {
            let queued = head.attachment_type.is_some();
            self.queued_rows += u32::from(queued);
            if self.rows.is_empty() {
                return;
            }
            let key = match if queued { head.prompt } else { head.content } {
                Content::Text(text) => text_key(decode(text.of(row)).text.trim()),
                Content::Blocks => joined(row, head),
                Content::Absent | Content::Odd(_) => return,
            };
            if let Some(count) = self.rows.get_mut(&key) {
                *count += 1;
            }
        }
    }

    fn operation(&mut self, row: &[u8], head: &Head, line: u64) {
        let text = head.row_content.map(|content| decode(content.of(row)).text);
        match head.operation.map_or(&b""[..], |operation| operation.of(row)) {
            b"enqueue" => {
                let human = text.as_deref().is_none_or(is_human);
                let key = text.as_deref().map(|text| text_key(text.trim()));
                if let Some(key) = key.filter(|_| human) {
                    self.rows.entry(key).or_insert(0);
                }
                self.waiting.push_back(Entry { text: key, line, human });
            }
            b"dequeue" => drop(self.take(text.as_deref())),
            b"remove" => {
                let taken = self.take(text.as_deref()).filter(|entry| entry.human);
                self.absorbed.extend(taken);
            }
            b"popAll" => self.waiting.clear(),
            _ => {}
        }
    }

    /// The entry an operation is about: the one with its text, else the oldest.
    fn take(&mut self, text: Option<&str>) -> Option<Entry> {
        let key = text.map(|text| text_key(text.trim()));
        let named = key.and_then(|key| self.waiting.iter().position(|entry| entry.text == Some(key)));
        self.waiting.remove(named.unwrap_or(0))
    }

    /// Messages that no row shows. A text that was queued twice needs two rows.
    pub(crate) fn unseen(mut self) -> Vec<Unseen> {
        let mut unseen = Vec::new();
        let absorbed = std::mem::take(&mut self.absorbed);
        let waiting = std::mem::take(&mut self.waiting);
        let all =
            absorbed.iter().map(|e| (e, Fate::Absorbed)).chain(waiting.iter().map(|e| (e, Fate::Waiting)));
        for (entry, fate) in all {
            let absorbed = fate == Fate::Absorbed;
            let shown = match entry.text {
                Some(key) => self.rows.get_mut(&key).is_some_and(take_one),
                // Without its text, a queued-command row is the only evidence there can be; a
                // message that still waits has not been taken in by anybody.
                None => !absorbed || take_one(&mut self.queued_rows),
            };
            if entry.human && !shown {
                unseen.push(Unseen { line: entry.line, absorbed, wordless: entry.text.is_none() });
            }
        }
        unseen.sort_by_key(|entry| entry.line);
        unseen
    }
}

fn take_one(count: &mut u32) -> bool {
    let some = *count > 0;
    *count = count.saturating_sub(1);
    some
}

/// Whether a queued text is a human's: not a task's event, not a bare slash command.
fn is_human(text: &str) -> bool {
    let text = text.trim();
    let command = text.starts_with('/') && !text.contains(char::is_whitespace);
    !(text.is_empty()
        || command
        || text.starts_with("<task-notification>")
        || text.starts_with("{\"task_id\""))
}

fn text_key(text: &str) -> TextKey {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}

fn joined(row: &[u8], head: &Head) -> TextKey {
    let texts: Vec<_> = head
        .blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Text)
        .filter_map(|block| block.text)
        .map(|text: Span| decode(text.of(row)).text)
        .collect();
    text_key(texts.join("\n").trim())
}
