//! Damage in a transcript, as values with line numbers (DESIGN 4).

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::media::hex;

/// What is wrong with a stretch of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DamageKind {
    /// The last line ends in the middle of a row: its writer was killed.
    TornTail,
    /// A row that was torn in the middle, with the next one written behind it; that one is read.
    TornHalf,
    /// A line that is no JSON.
    NotJson,
    /// A line longer than the reader holds in memory.
    TooLong,
    /// A line that is JSON, but a text or a list where an object belongs.
    NotARow,
    /// A line that is JSON, but a number, `true`, `false`, `null` or an empty list.
    EmptyValue,
    /// Two or more rows on one line; all are read.
    GluedRows,
    /// NUL bytes in front of a row, or alone on a line.
    Nul,
    /// A byte order mark at the start of the file.
    ByteOrderMark,
    /// A line that ends in CR LF.
    CarriageReturn,
    /// A last row that is whole but has no newline.
    NoFinalNewline,
}

impl DamageKind {
    /// Whether words may be lost in it, so that a rebuild waits for a human's word.
    #[must_use]
    pub const fn blocks(self) -> bool {
        matches!(self, Self::TornHalf | Self::NotJson | Self::TooLong | Self::NotARow)
    }

    /// How messages name it.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::TornTail => "the last row is torn",
            Self::TornHalf => "a row that was torn, with the next one behind it",
            Self::NotJson => "not JSON",
            Self::TooLong => "longer than the reader holds in memory",
            Self::NotARow => "JSON, but not an object",
            Self::EmptyValue => "a bare JSON value without words",
            Self::GluedRows => "several rows on one line",
            Self::Nul => "NUL bytes",
            Self::ByteOrderMark => "a byte order mark",
            Self::CarriageReturn => "a line that ends in CR LF",
            Self::NoFinalNewline => "no newline after the last row",
        }
    }
}

/// One damaged place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// What is wrong.
    pub kind: DamageKind,
    /// The line, counted from 1.
    pub line: u64,
    /// The first byte of it in the file.
    pub offset: u64,
    /// How many bytes it takes; 0 where the place itself is readable.
    pub bytes: u64,
}

/// All damage of a transcript: counted by kind, the first places of each kind listed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DamageReport {
    /// How often each kind was met.
    pub counts: BTreeMap<DamageKind, u64>,
    /// The first places of each kind, at most [`DamageReport::LISTED`] each.
    pub places: Vec<Damage>,
    /// Stands for all places that may have lost words.
    #[serde(skip)]
    seal: [u8; 32],
}

impl DamageReport {
    /// How many places of a kind are listed.
    pub const LISTED: u64 = 20;

    pub(crate) fn add(&mut self, damage: Damage) {
        let count = self.counts.entry(damage.kind).or_default();
        *count += 1;
        if *count <= Self::LISTED {
            self.places.push(damage);
        }
        if damage.kind.blocks() {
            let mut hasher = Sha256::new();
            hasher.update(self.seal);
            for part in [damage.kind as u64, damage.offset, damage.bytes] {
                hasher.update(part.to_be_bytes());
            }
            self.seal = hasher.finalize().into();
        }
    }

    /// What a decision about these very places is remembered by. One more, or one elsewhere, is another
    /// loss and asked about again.
    #[must_use]
    pub fn key(&self) -> String {
        format!("damage/{}@{}", self.blocking(), hex(&self.seal[..6]))
    }

    /// How many places may have lost words: what `--accept-damage N` and `--decide damage=N` must name.
    #[must_use]
    pub fn blocking(&self) -> u64 {
        self.counts.iter().filter(|(kind, _)| kind.blocks()).map(|(_, count)| count).sum()
    }
}
