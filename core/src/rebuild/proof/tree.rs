//! The proof's own idea of which rows are the conversation: what the CLI would load (facts 4),
//! extended over compactions and gaps (DESIGN 4), found without the plan's help.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

use super::row::Envelope;

type Key = [u8; 16];

const NONE: u32 = u32::MAX;
const MISSING: u32 = u32::MAX - 1;

/// What the tree knows of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Nature {
    /// A user row with text that is no command.
    Human,
    /// A slash command, a `!` command, or output of one.
    Command,
    /// The model's.
    Model,
    /// A result of a tool.
    Result,
    /// A compaction's summary.
    Summary,
    /// Anything else.
    #[default]
    Other,
}

/// Forty bytes.
struct Node {
    key: Key,
    offset: u64,
    parent: u32,
    /// A digest of the API's message id, 0 without one.
    message: u32,
    /// Where on the chain it stands, [`NONE`] where it does not.
    place: u32,
    session: u16,
    nature: Nature,
    flags: u8,
}

/// What else is known of a row, one bit each.
mod flag {
    /// It can be a leaf.
    pub(super) const CHAIN: u8 = 1;
    /// A subagent's.
    pub(super) const SIDE: u8 = 2;
    /// A compaction's boundary.
    pub(super) const BOUNDARY: u8 = 4;
    /// Part of the conversation.
    pub(super) const ON: u8 = 8;
}

impl Node {
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The rows with a uuid.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    by_key: HashTable<u32>,
    hasher: RandomState,
    /// Children that stand in front of their parents: the row and whom it hangs on.
    early: Vec<(u32, Key)>,
    /// Boundaries and whom they hang on in truth.
    logical: Vec<(u32, Key)>,
    leaves: Vec<Key>,
    sessions: Vec<String>,
}

fn key(id: &str) -> Key {
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}

impl Tree {
    /// For a file with this many rows: growing would hold two copies of all of them.
    pub(super) fn of(rows: usize) -> Self {
        Self { nodes: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Takes in a row in file order.
    pub(super) fn push(&mut self, row: &Envelope, offset: u64, nature: Nature, message: Option<&str>) {
        if row.kind == "last-prompt"
            && let Some(leaf) = &row.leaf
        {
            let leaf = key(leaf);
            if self.leaves.last() != Some(&leaf) {
                self.leaves.push(leaf);
            }
        }
        let Some(id) = row.uuid.as_deref() else { return };
        let number = u32::try_from(self.nodes.len()).unwrap_or(MISSING - 1);
        let kinds = ["user", "assistant", "attachment", "system"];
        let chain = kinds.contains(&row.kind.as_str()) && !row.is_sidechain;
        let parent = match row.parent.as_deref().map(key) {
            None if chain && !row.names_parent && !row.is_boundary => MISSING,
            None => NONE,
            Some(parent) => self.find(&parent).unwrap_or_else(|| {
                self.early.push((number, parent));
                MISSING
            }),
        };
        if let Some(logical) = row.logical_parent.as_deref().filter(|_| row.is_boundary) {
            self.logical.push((number, key(logical)));
        }
        let session = row.session.as_deref().unwrap_or_default();
        let session = self.sessions.iter().position(|known| known == session).unwrap_or_else(|| {
            self.sessions.push(session.to_owned());
            self.sessions.len() - 1
        });
        let node = Node {
            key: key(id),
            offset,
            parent,
            message: message
                .map_or(0, |id| u32::from_be_bytes(key(id)[..4].try_into().unwrap_or_default()) | 1),
            nature,
            place: NONE,
            session: u16::try_from(session).unwrap_or(u16::MAX),
            flags: [(flag::CHAIN, chain), (flag::SIDE, row.is_sidechain), (flag::BOUNDARY, row.is_boundary)]
                .into_iter()
                .fold(0, |flags, (flag, is)| if is { flags | flag } else { flags }),
        };
        let hash = self.hasher.hash_one(node.key);
        let same = |other: &u32| self.nodes.get(*other as usize).is_some_and(|n| n.key == node.key);
        if let Some(slot) = self.by_key.find_mut(hash, same) {
            *slot = number; // A later row with the same uuid replaces the earlier one.
        } else {
            let Self { nodes, by_key, hasher, .. } = self;
            by_key.insert_unique(hash, number, |other| {
                nodes.get(*other as usize).map_or(0, |node| hasher.hash_one(node.key))
            });
        }
        self.nodes.push(node);
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let same = |row: &u32| self.nodes.get(*row as usize).is_some_and(|node| node.key == *key);
        self.by_key.find(self.hasher.hash_one(key), same).copied()
    }

    fn node(&self, row: u32) -> Option<&Node> {
        self.nodes.get(row as usize)
    }

    fn parent(&self, row: u32) -> Option<u32> {
        let parent = self.node(row)?.parent;
        // Of rows with one uuid the last one counts, as a parent too.
        if parent >= MISSING { None } else { self.find(&self.node(parent)?.key) }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(MISSING - 1)
    }

    /// Finds the conversation, now that all rows are known.
    pub(super) fn settle(&mut self) {
        for (row, parent) in std::mem::take(&mut self.early) {
            if let Some(parent) = self.find(&parent)
                && let Some(node) = self.nodes.get_mut(row as usize)
            {
                node.parent = parent;
            }
        }
        let mut path = Vec::new();
        let mut next = self.leaf();
        while let Some(row) = next {
            let Some(node) = self.nodes.get_mut(row as usize).filter(|node| !node.is(flag::ON)) else {
                break;
            };
            node.flags |= flag::ON;
            path.push(row);
            next = match (node.parent, node.is(flag::BOUNDARY)) {
                (MISSING, _) => self.stitch(row),
                (NONE, false) => None,
                (NONE, true) => {
                    let logical = self.logical.iter().find(|(boundary, _)| *boundary == row);
                    let before = logical.and_then(|(_, parent)| self.find(parent));
                    before.or_else(|| self.stitch(row))
                }
                _ => self.parent(row),
            };
        }
        for (place, row) in path.iter().rev().enumerate() {
            if let Some(node) = self.nodes.get_mut(*row as usize) {
                node.place = u32::try_from(place).unwrap_or(NONE);
            }
        }
        self.join_messages();
    }

    fn leaf(&self) -> Option<u32> {
        let named = self.leaves.iter().rev().find_map(|leaf| self.find(leaf));
        let Some(named) = named else {
            return (0..self.count())
                .rev()
                .find(|row| self.node(*row).is_some_and(|node| node.is(flag::CHAIN)));
        };
        let mut below = vec![false; self.nodes.len()];
        if let Some(slot) = below.get_mut(named as usize) {
            *slot = true;
        }
        for _ in 0..16 {
            let mut grew = false;
            for row in 0..self.count() {
                let hangs = self
                    .parent(row)
                    .is_some_and(|parent| below.get(parent as usize).copied().unwrap_or(false));
                let side = self.node(row).is_some_and(|node| node.is(flag::SIDE));
                if let Some(slot) = below.get_mut(row as usize).filter(|slot| hangs && !**slot && !side) {
                    *slot = true;
                    grew = true;
                }
            }
            if !grew {
                break;
            }
        }
        let tip = (0..self.count()).rev().find(|row| {
            below.get(*row as usize).copied().unwrap_or(false)
                && self.node(*row).is_some_and(|node| node.is(flag::CHAIN))
        });
        tip.or(Some(named))
    }

    /// The last earlier row of the same session that is not on the chain yet.
    fn stitch(&self, row: u32) -> Option<u32> {
        let session = self.node(row)?.session;
        (0..row).rev().find(|before| {
            self.node(*before)
                .is_some_and(|node| node.is(flag::CHAIN) && !node.is(flag::ON) && node.session == session)
        })
    }

    /// Rows of one message, and results of calls, hang beside the chain where calls ran in parallel.
    fn join_messages(&mut self) {
        for row in 0..self.count() {
            let Some(parent) = self.parent(row).and_then(|parent| self.node(parent)) else { continue };
            if !parent.is(flag::ON) || parent.nature != Nature::Model {
                continue;
            }
            let message = parent.message;
            if let Some(node) = self.nodes.get_mut(row as usize) {
                let same = node.nature == Nature::Model && node.message == message && message != 0;
                if same || node.nature == Nature::Result {
                    node.flags |= flag::ON;
                }
            }
        }
    }

    /// Whether the row at an offset is part of the conversation.
    pub(super) fn is_on(&self, offset: u64) -> bool {
        // Rows are in file order.
        self.at(offset).and_then(|row| self.node(row)).is_some_and(|node| node.is(flag::ON))
    }

    /// Where on the chain the row at an offset stands.
    pub(super) fn place(&self, offset: u64) -> Option<u32> {
        let place = self.node(self.at(offset)?)?.place;
        (place != NONE).then_some(place)
    }

    /// Whether a later row has the same uuid as the one at an offset.
    pub(super) fn is_replaced(&self, offset: u64) -> bool {
        let Some(row) = self.at(offset) else { return false };
        self.node(row).is_some_and(|node| self.find(&node.key) != Some(row))
    }

    fn at(&self, offset: u64) -> Option<u32> {
        let at = self.nodes.binary_search_by_key(&offset, |node| node.offset).ok()?;
        u32::try_from(at).ok()
    }

    /// The nature of the row that the one at an offset hangs on; rows without words between them do
    /// not count where `over` says so.
    pub(super) fn above(&self, offset: u64, over: bool) -> Option<Nature> {
        let mut row = self.parent(self.at(offset)?)?;
        for _ in 0..16 {
            let nature = self.node(row)?.nature;
            if nature != Nature::Other || !over {
                return Some(nature);
            }
            row = self.parent(row)?;
        }
        None
    }

    /// Whether the model answers right below the row at an offset.
    pub(super) fn is_answered(&self, offset: u64) -> bool {
        let Some(row) = self.at(offset) else { return false };
        let mut below = vec![row];
        for next in row + 1..self.count().min(row.saturating_add(64)) {
            if !self.parent(next).is_some_and(|parent| below.contains(&parent)) {
                continue;
            }
            match self.node(next).map(|node| node.nature) {
                Some(Nature::Model) => return true,
                Some(Nature::Human) | None => {}
                Some(_) => below.push(next),
            }
        }
        false
    }

    /// The first row of the conversation with words, and its nature.
    pub(super) fn first(&self) -> Option<(u64, Nature)> {
        let words = [Nature::Human, Nature::Model, Nature::Summary];
        let on = self.nodes.iter().filter(|node| node.place != NONE && words.contains(&node.nature));
        on.min_by_key(|node| node.place).map(|node| (node.offset, node.nature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_takes_forty_bytes() {
        assert_eq!(size_of::<Node>(), 40);
    }
}
