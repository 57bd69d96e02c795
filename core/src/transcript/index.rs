//! The index of a transcript's rows: small enough to hold for any file.
//!
//! Forty bytes a row and a table of row numbers by uuid; everything longer is read again from the
//! file where it is needed. Only rows with a uuid are here: no other row can be on a chain.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

/// A row's uuid as 128 bits. Uuids are arbitrary strings (facts 1); those that are no UUID are
/// represented by a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowKey([u8; 16]);

impl RowKey {
    pub(crate) fn of(raw: &[u8]) -> Self {
        let hyphenated = std::str::from_utf8(raw)
            .ok()
            .filter(|text| text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase()))
            .and_then(|text| uuid::Uuid::try_parse(text).ok());
        match hyphenated {
            Some(uuid) => Self(*uuid.as_bytes()),
            None => {
                let digest: [u8; 32] = Sha256::digest(super::json::decode(raw).text.as_bytes()).into();
                let mut key = [0; 16];
                key.copy_from_slice(&digest[..16]);
                Self(key)
            }
        }
    }

    pub(crate) const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) fn of_number(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

/// The number of a row in the index.
pub(crate) type RowNo = u32;

/// Who a row hangs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// `parentUuid` is null or absent.
    Root,
    /// The parent is this row.
    Row(RowNo),
    /// `parentUuid` names a row that is not in the file (or not yet: see [`Index::resolve`]).
    Missing,
}

const ROOT: u32 = u32::MAX;
const MISSING: u32 = u32::MAX - 1;

/// The largest number of rows an index can hold.
pub(crate) const MAX_ROWS: u32 = u32::MAX - 2;

/// One bit each.
pub(crate) mod flag {
    /// `user`, `assistant`, `attachment` or `system`: a row that can be a leaf.
    pub(crate) const CHAIN: u32 = 1;
    /// A subagent's row.
    pub(crate) const SIDE: u32 = 1 << 1;
    /// A human says something in it.
    pub(crate) const HUMAN: u32 = 1 << 2;
    /// The assistant says something in it.
    pub(crate) const ASSISTANT: u32 = 1 << 3;
    /// A compaction's boundary.
    pub(crate) const BOUNDARY: u32 = 1 << 4;
    /// A compaction's summary.
    pub(crate) const SUMMARY: u32 = 1 << 5;
    /// An assistant row of the model's with `usage`.
    pub(crate) const USAGE: u32 = 1 << 6;
    /// A second row with the same uuid.
    pub(crate) const DUPLICATE: u32 = 1 << 7;
    /// On the chain; set by `chain`.
    pub(crate) const ON: u32 = 1 << 8;
    /// A mark for walks; cleared by who sets it.
    pub(crate) const SEEN: u32 = 1 << 9;
    /// A row of a candidate of ours.
    pub(crate) const KAEL: u32 = 1 << 10;
    /// The assistant row is one of the model's: not synthetic, no API error.
    pub(crate) const MODEL: u32 = 1 << 11;
    /// Not a row of its own: the place of a queued message, whose words are in its `enqueue` row.
    pub(crate) const QUEUED: u32 = 1 << 12;
    /// Speech of either.
    pub(crate) const SPEECH: u32 = HUMAN | ASSISTANT;
    /// The number of the session the row names stands above these bits.
    pub(crate) const SESSION_SHIFT: u32 = 16;
}

/// What is remembered of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    key: RowKey,
    offset: u64,
    length: u32,
    line: u32,
    parent: u32,
    flags: u32,
}

impl Entry {
    pub(crate) fn key(&self) -> RowKey {
        self.key
    }
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
    pub(crate) fn length(&self) -> u32 {
        self.length
    }
    pub(crate) fn line(&self) -> u64 {
        u64::from(self.line)
    }
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
    pub(crate) fn session(&self) -> u32 {
        self.flags >> flag::SESSION_SHIFT
    }
    pub(crate) fn parent(&self) -> Link {
        match self.parent {
            ROOT => Link::Root,
            MISSING => Link::Missing,
            row => Link::Row(row),
        }
    }
}

/// A new row for the index.
#[derive(Clone, Copy)]
pub(crate) struct NewRow {
    pub(crate) key: RowKey,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) line: u64,
    pub(crate) parent: Option<RowKey>,
    pub(crate) flags: u32,
}

/// Rows are kept in chunks, so that growing never holds two copies of all of them.
const CHUNK: usize = 8192;

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    chunks: Vec<Vec<Entry>>,
    by_key: HashTable<RowNo>,
    hasher: RandomState,
    /// Rows whose parent was not there when they were read.
    unresolved: u32,
    /// Second rows of a uuid, with the first one.
    duplicates: Vec<(RowNo, RowNo)>,
}

impl Index {
    #[expect(clippy::cast_possible_truncation, reason = "push refuses more rows than a RowNo can name")]
    pub(crate) fn len(&self) -> RowNo {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        (full + self.chunks.last().map_or(0, Vec::len)) as RowNo
    }

    pub(crate) fn get(&self, row: RowNo) -> Option<&Entry> {
        self.chunks.get(row as usize / CHUNK)?.get(row as usize % CHUNK)
    }

    fn get_mut(&mut self, row: RowNo) -> Option<&mut Entry> {
        self.chunks.get_mut(row as usize / CHUNK)?.get_mut(row as usize % CHUNK)
    }

    /// All rows in file order.
    pub(crate) fn rows(&self) -> impl DoubleEndedIterator<Item = (RowNo, &Entry)> {
        (0..self.len()).filter_map(|row| self.get(row).map(|entry| (row, entry)))
    }

    pub(crate) fn has(&self, row: RowNo, flags: u32) -> bool {
        self.get(row).is_some_and(|entry| entry.has(flags))
    }

    pub(crate) fn set(&mut self, row: RowNo, flags: u32) {
        if let Some(entry) = self.get_mut(row) {
            entry.flags |= flags;
        }
    }

    pub(crate) fn clear(&mut self, row: RowNo, flags: u32) {
        if let Some(entry) = self.get_mut(row) {
            entry.flags &= !flags;
        }
    }

    /// The row with this uuid; of several, the last (facts 4: a later row replaces an earlier one).
    pub(crate) fn find(&self, key: RowKey) -> Option<RowNo> {
        let same = |row: &RowNo| self.get(*row).is_some_and(|entry| entry.key == key);
        self.by_key.find(self.hasher.hash_one(key), same).copied()
    }

    /// Second rows of a uuid, each with the one before it.
    pub(crate) fn duplicates(&self) -> &[(RowNo, RowNo)] {
        &self.duplicates
    }

    /// How many rows name a parent that was not there when they were read.
    pub(crate) fn unresolved(&self) -> u32 {
        self.unresolved
    }

    /// Adds a row and says its number; nothing when the index is full.
    pub(crate) fn push(&mut self, new: NewRow) -> Option<RowNo> {
        let row = self.len();
        if row >= MAX_ROWS {
            return None;
        }
        let before = self.find(new.key);
        let parent = match new.parent.map(|key| self.find(key)) {
            None => ROOT,
            Some(Some(parent)) => parent,
            Some(None) => {
                self.unresolved += 1;
                MISSING
            }
        };
        let entry = Entry {
            key: new.key,
            offset: new.offset,
            length: new.length,
            line: u32::try_from(new.line).unwrap_or(u32::MAX),
            parent,
            flags: new.flags | if before.is_some() { flag::DUPLICATE } else { 0 },
        };
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(entry);
        }
        let hash = self.hasher.hash_one(new.key);
        if let Some(before) = before {
            self.duplicates.push((row, before));
            let same = |other: &RowNo| *other == before;
            if let Some(slot) = self.by_key.find_mut(hash, same) {
                *slot = row;
            }
        } else {
            let Self { chunks, by_key, hasher, .. } = self;
            let key_of = |row: &RowNo| {
                let key = chunks
                    .get(*row as usize / CHUNK)
                    .and_then(|chunk| chunk.get(*row as usize % CHUNK))
                    .map(|entry| entry.key);
                key.map_or(0, |key| hasher.hash_one(key))
            };
            by_key.insert_unique(hash, row, key_of);
        }
        Some(row)
    }

    /// Gives a row a parent that stands after it in the file.
    pub(crate) fn resolve(&mut self, row: RowNo, parent: RowNo) {
        if let Some(entry) = self.get_mut(row) {
            entry.parent = parent;
        }
    }

    /// The row a row hangs on, as far as it is in the file.
    pub(crate) fn parent(&self, row: RowNo) -> Option<RowNo> {
        match self.get(row)?.parent() {
            Link::Row(parent) => Some(parent),
            Link::Root | Link::Missing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: u128, parent: Option<u128>) -> NewRow {
        NewRow {
            key: RowKey::of_number(key),
            offset: 0,
            length: 1,
            line: 1,
            parent: parent.map(RowKey::of_number),
            flags: flag::CHAIN,
        }
    }

    #[test]
    fn an_entry_takes_forty_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn rows_find_their_parents_across_chunks() {
        let mut index = Index::default();
        for key in 0..20_000_u128 {
            index.push(row(key, key.checked_sub(1))).unwrap();
        }
        assert_eq!(index.len(), 20_000);
        assert_eq!(index.parent(19_999), Some(19_998));
        assert_eq!(index.parent(0), None);
        assert_eq!(index.find(RowKey::of_number(8192)), Some(8192));
        assert_eq!(index.unresolved(), 0);
    }

    #[test]
    fn a_later_row_with_the_same_uuid_replaces_the_earlier_one() {
        let mut index = Index::default();
        index.push(row(1, None));
        index.push(row(1, None));
        index.push(row(2, Some(1)));
        index.push(row(3, Some(9)));
        assert_eq!(index.duplicates(), &[(1, 0)]);
        assert_eq!(index.parent(2), Some(1));
        assert_eq!(index.get(3).unwrap().parent(), Link::Missing);
        assert_eq!(index.unresolved(), 1);
    }

    #[test]
    fn uuids_that_are_none_have_keys_too() {
        assert_eq!(RowKey::of(b"not-a-uuid"), RowKey::of(br"not\u002da-uuid"));
        assert_ne!(RowKey::of(b"a"), RowKey::of(b"b"));
        // Only the spelling the CLI writes is a UUID: another spelling is another string.
        let lower = b"01890a5d-ac96-774b-bcce-b302099a8057";
        assert_ne!(RowKey::of(lower), RowKey::of(&lower.to_ascii_uppercase()));
    }
}
