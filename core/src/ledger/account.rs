//! The accounts: every byte of a transcript in exactly one of them (DESIGN 5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::transcript::Category;
use crate::transcript::drift::{Known, Shape};
use crate::transcript::head::{BlockKind, Head};
use crate::transcript::judge::{Judged, Role};
use crate::transcript::rules::{Class, Rule};

/// Sums over a transcript, or over the part of it that was read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) speech: u64,
    pub(crate) noise: BTreeMap<Category, u64>,
    /// The part of the noise that reaches the model.
    pub(crate) context: u64,
    pub(crate) bookkeeping: BTreeMap<String, u64>,
    pub(crate) damage: u64,
    pub(crate) turns: u64,
    /// The last speech was a human's.
    pub(crate) open: bool,
    pub(crate) preview_images: u64,
    pub(crate) original_images: u64,
}

/// What stands around values: keys, ids, brackets, line ends.
const ENVELOPE: &str = "envelope";

impl Account {
    fn book(&mut self, kind: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(sum) = self.bookkeeping.get_mut(kind) {
            *sum += bytes;
        } else {
            self.bookkeeping.insert(kind.to_owned(), bytes);
        }
    }

    /// Bytes between rows.
    pub(crate) fn blank(&mut self, bytes: u64) {
        self.book(ENVELOPE, bytes);
    }

    /// Bytes that could not be read.
    pub(crate) fn damaged(&mut self, bytes: u64) {
        self.damage += bytes;
    }

    /// One row, with `around` bytes of white space.
    pub(crate) fn row(&mut self, row: &[u8], head: &Head, judged: &Judged, around: u64) {
        let mut rest = row.len() as u64;
        for part in &judged.parts {
            let bytes = part.bytes.min(rest);
            rest -= bytes;
            match part.rule.class() {
                Class::Speech => self.speech += bytes,
                Class::Noise(category) => {
                    *self.noise.entry(category).or_default() += bytes;
                    if part.in_context {
                        self.context += bytes;
                    }
                }
                Class::Bookkeeping if part.rule == Rule::Bookkeeping => self.book(own_name(row, head), bytes),
                Class::Bookkeeping => self.book(part.rule.name(), bytes),
            }
        }
        if judged.parts.is_empty() {
            self.book(row_name(row, head), rest + around);
        } else {
            self.book(ENVELOPE, rest + around);
        }
        self.pictures(head, judged);
        if judged.says(Role::Human) && !self.open {
            self.turns += 1;
            self.open = true;
        }
        if judged.says(Role::Assistant) {
            self.open = false;
        }
    }

    /// An image in a tool result was opened by the model; one in a human row is a preview.
    fn pictures(&mut self, head: &Head, judged: &Judged) {
        if judged.rule() == Rule::Sidechain {
            return;
        }
        for block in &head.blocks {
            match block.kind {
                BlockKind::ToolResult => self.original_images += u64::from(block.images),
                BlockKind::Image if judged.is_model => self.original_images += 1,
                BlockKind::Image => self.preview_images += 1,
                _ => {}
            }
        }
    }

    /// A message sent by a tool turned out not to have been sent.
    pub(crate) fn unsent(&mut self, bytes: u64) {
        let bytes = bytes.min(self.speech);
        self.speech -= bytes;
        *self.noise.entry(Category::ToolUse).or_default() += bytes;
        self.context += bytes;
    }

    /// The words of a queued message that stand nowhere else turned out to be speech.
    pub(crate) fn queued(&mut self, bytes: u64) {
        if let Some(booked) = self.bookkeeping.get_mut("queue-operation") {
            let bytes = bytes.min(*booked);
            *booked -= bytes;
            self.speech += bytes;
        }
    }

    /// What had been taken for words turned out to be the runtime's.
    pub(crate) fn not_words(&mut self, bytes: u64, category: Category) {
        let bytes = bytes.min(self.speech);
        self.speech -= bytes;
        *self.noise.entry(category).or_default() += bytes;
        self.context += bytes;
    }

    pub(crate) fn noise_total(&self) -> u64 {
        self.noise.values().sum()
    }

    /// The sum over all accounts: the size of what was read.
    pub(crate) fn total(&self) -> u64 {
        self.speech + self.noise_total() + self.bookkeeping.values().sum::<u64>() + self.damage
    }
}

/// A row type's name, as far as the drift table knows it: names in files are not ours to collect.
fn row_name(row: &[u8], head: &Head) -> &'static str {
    let name = head.type_name.map_or(&b""[..], |name| name.of(row));
    Known::find(Shape::Row, name).map_or("unknown", |known| known.name)
}

/// The name of what a part of a row is, for attachments that never reach the model.
fn own_name(row: &[u8], head: &Head) -> &'static str {
    let name = head.attachment_type.map_or(&b""[..], |name| name.of(row));
    Known::find(Shape::Attachment, name).map_or_else(|| row_name(row, head), |known| known.name)
}
