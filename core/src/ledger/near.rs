//! The rows near the end of the chain: enough to tell where appended rows hang, which of them the CLI
//! would continue from, and how full the context is there.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::transcript::TranscriptError;
use crate::transcript::head::{Head, Parent, RowKind};
use crate::transcript::index::{RowKey, flag};
use crate::transcript::judge::Judged;
use crate::transcript::media::hex;
use crate::transcript::receipt::Usage;
use crate::transcript::rows::Rows;
use crate::transcript::survey::Survey;

/// How many rows are remembered: an appended row may hang on any of them without changing the past,
/// as results of parallel tool calls do, and the rows of a second writer.
const ROWS: usize = 64;

/// A row near the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    id: String,
    parent: Option<String>,
    /// The last usage on the chain down to this row.
    level: Option<Usage>,
}

/// Rows near the end of the chain, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Near {
    rows: Vec<Row>,
    /// The row that the last `last-prompt` names.
    leaf: Option<String>,
    /// That row is known, or was when everything was read.
    leaf_known: bool,
}

fn text(key: RowKey) -> String {
    hex(key.bytes())
}

impl Near {
    /// The rows near the end of a transcript that was read whole.
    pub(super) fn of(survey: &mut Survey) -> Result<Self, TranscriptError> {
        let leaf = survey.leaf();
        let mut path: Vec<_> =
            std::iter::successors(leaf, |row| survey.index.parent(*row)).take(ROWS).collect();
        // The level at the oldest of them may have been noted far above it.
        let mut seen = HashSet::new();
        let measured = std::iter::successors(path.last().copied(), |row| survey.index.parent(*row))
            .take_while(|row| seen.insert(*row))
            .find(|row| survey.index.has(*row, flag::USAGE));
        let mut rows = Rows::open(&survey.path)?;
        let mut usage = |row: Option<u32>| -> Result<Option<Usage>, TranscriptError> {
            let Some(entry) = row.and_then(|row| survey.index.get(row)) else { return Ok(None) };
            Ok(rows.read(entry)?.1.usage.map(Usage::from))
        };
        let mut level = usage(measured)?;
        path.reverse();
        let mut near = Self::default();
        for row in path {
            if survey.index.has(row, flag::USAGE) {
                level = usage(Some(row))?;
            }
            let key = |row| survey.index.get(row).map(|entry| text(entry.key()));
            near.rows.push(Row {
                id: key(row).unwrap_or_default(),
                parent: survey.index.parent(row).and_then(key),
                level,
            });
        }
        let named = survey.last_leaf.iter().rev().find(|leaf| survey.index.find(**leaf).is_some());
        near.leaf = named.map(|leaf| text(*leaf));
        near.leaf_known = near.leaf.is_some();
        Ok(near)
    }

    /// Takes in an appended row; false when it hangs on nothing that is near.
    pub(super) fn follow(&mut self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        let of = |span: crate::transcript::json::Span| text(RowKey::of(span.of(row)));
        match head.kind {
            RowKind::LastPrompt => {
                if let Some(leaf) = head.leaf.map(of) {
                    self.leaf_known = self.leaf.as_ref() == Some(&leaf) && self.leaf_known;
                    self.leaf = Some(leaf);
                }
                return true;
            }
            RowKind::User | RowKind::Assistant | RowKind::Attachment | RowKind::System
                if !head.is_sidechain => {}
            _ => return true,
        }
        let Some(id) = head.uuid.map(of) else { return true };
        let above = match head.parent {
            Parent::Row(parent) => self.rows.iter().rfind(|row| row.id == of(parent)),
            Parent::Null | Parent::Absent if self.rows.is_empty() => None,
            Parent::Null | Parent::Absent => return false,
        };
        if above.is_none() && !self.rows.is_empty() {
            return false;
        }
        let mut level = above.and_then(|row| row.level);
        let parent = above.map(|row| row.id.clone());
        if judged.is_model && head.usage.is_some() {
            level = head.usage.map(Usage::from);
        }
        self.rows.push(Row { id, parent, level });
        if self.rows.len() > 2 * ROWS {
            self.rows.drain(..ROWS);
        }
        true
    }

    /// After the last row: false when a `last-prompt` names a row that is neither near nor was named
    /// before, perhaps one of another branch.
    pub(super) fn settle(&mut self) -> bool {
        let Some(leaf) = &self.leaf else { return true };
        self.leaf_known |= self.rows.iter().any(|row| row.id == *leaf);
        self.leaf_known
    }

    /// How full the context is where the CLI would continue: at the newest row at or below the leaf
    /// that a `last-prompt` names, else at the last row.
    pub(super) fn level(&self) -> Option<Usage> {
        let named = self.leaf.as_ref().filter(|leaf| self.rows.iter().any(|row| row.id == **leaf));
        let Some(leaf) = named else { return self.rows.last().and_then(|row| row.level) };
        let mut below = HashSet::from([leaf.as_str()]);
        let mut level = None;
        for row in &self.rows {
            if row.parent.as_ref().is_some_and(|parent| below.contains(parent.as_str())) {
                below.insert(&row.id);
            }
            if below.contains(row.id.as_str()) {
                level = row.level;
            }
        }
        level
    }
}
