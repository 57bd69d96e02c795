//! Which rows are the conversation: the chain the CLI itself would load (facts 4), extended
//! backwards over compactions and missing parents (DESIGN 4).

use super::error::TranscriptError;
use super::head::{BlockKind, Head};
use super::index::{Link, RowKey, RowNo, flag};
#[cfg(test)]
use super::judge::switched_off::is_off;
use super::rows::Rows;
use super::survey::Survey;

/// The conversation's rows.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// From the root to the leaf, with rows of parallel tool calls in their places.
    pub(crate) rows: Vec<RowNo>,
    /// Lines of rows whose parent is missing and that were joined to an earlier row.
    pub(crate) stitched: Vec<u64>,
    /// Lines where following parents led in a circle.
    pub(crate) cycles: Vec<u64>,
    /// How many compactions were read over.
    pub(crate) compactions: u32,
}

impl Survey {
    /// The row the CLI would continue from.
    pub(crate) fn leaf(&mut self) -> Option<RowNo> {
        let named = self.last_leaf.iter().rev().find_map(|leaf| self.index.find(*leaf));
        #[cfg(test)]
        let named = named.filter(|_| !is_off("last-prompt"));
        match named {
            Some(leaf) => Some(self.newest_below(leaf)),
            None => self.index.rows().rev().find(|(_, entry)| entry.has(flag::CHAIN)).map(|(row, _)| row),
        }
    }

    /// The newest chain row at or below a row.
    pub(crate) fn newest_below(&mut self, leaf: RowNo) -> RowNo {
        self.index.set(leaf, flag::SEEN);
        let mut tip = leaf;
        // Where rows stand before their parents one pass is not enough.
        let passes = if self.index.unresolved() > 0 { 16 } else { 1 };
        for _ in 0..passes {
            let mut grew = false;
            for row in 0..self.index.len() {
                let below = self.index.parent(row).is_some_and(|parent| self.index.has(parent, flag::SEEN));
                if below && !self.index.has(row, flag::SEEN | flag::SIDE) {
                    self.index.set(row, flag::SEEN);
                    grew = true;
                }
            }
            if !grew {
                break;
            }
        }
        for row in 0..self.index.len() {
            if self.index.has(row, flag::SEEN) {
                self.index.clear(row, flag::SEEN);
                if self.index.has(row, flag::CHAIN) {
                    tip = row;
                }
            }
        }
        tip
    }

    /// The chain, with [`flag::ON`] set on its rows.
    pub(crate) fn chain(&mut self) -> Result<Chain, TranscriptError> {
        let mut chain = Chain::default();
        let mut rows = None;
        let mut next = self.leaf();
        while let Some(row) = next {
            if self.index.has(row, flag::ON) {
                let line =
                    chain.rows.last().and_then(|row| self.index.get(*row)).map_or(0, |entry| entry.line());
                chain.cycles.push(line);
                break;
            }
            self.index.set(row, flag::ON);
            chain.rows.push(row);
            let Some(entry) = self.index.get(row).copied() else { break };
            next = match entry.parent() {
                Link::Row(parent) => Some(parent),
                Link::Root if entry.has(flag::BOUNDARY) => {
                    chain.compactions += 1;
                    let rows = match &mut rows {
                        Some(rows) => rows,
                        none => none.insert(Rows::open(&self.path)?),
                    };
                    let (bytes, head) = rows.read(&entry)?;
                    #[cfg(test)]
                    if is_off("compaction") {
                        break;
                    }
                    match head.logical_parent.and_then(|id| self.index.find(RowKey::of(id.of(bytes)))) {
                        Some(before) => Some(before),
                        None => self.stitch(row, &mut chain),
                    }
                }
                Link::Root => None,
                Link::Missing => self.stitch(row, &mut chain),
            };
        }
        chain.rows.reverse();
        self.join_parallel(&mut chain)?;
        self.join_queued(&mut chain);
        Ok(chain)
    }

    /// The last earlier main-chain row of the same session.
    fn stitch(&self, row: RowNo, chain: &mut Chain) -> Option<RowNo> {
        #[cfg(test)]
        if is_off("stitch") {
            return None;
        }
        let entry = self.index.get(row)?;
        let found = (0..row).rev().find(|before| {
            self.index.get(*before).is_some_and(|other| {
                other.has(flag::CHAIN) && !other.has(flag::ON) && other.session() == entry.session()
            })
        })?;
        chain.stitched.push(entry.line());
        Some(found)
    }

    /// Parallel tool calls make branch points that are no forks: rows of a message whose other rows
    /// are on the chain belong to it, and so do results of calls that are on it.
    fn join_parallel(&mut self, chain: &mut Chain) -> Result<(), TranscriptError> {
        #[cfg(test)]
        if is_off("parallel") {
            return Ok(());
        }
        let mut joined = Vec::new();
        let mut rows = None;
        for row in 0..self.index.len() {
            let Some(entry) = self.index.get(row).copied() else { break };
            if !entry.has(flag::SPEECH | flag::MODEL) || entry.has(flag::ON | flag::SIDE | flag::QUEUED) {
                continue;
            }
            let Some(parent) = self.index.parent(row) else { continue };
            if !self.index.has(parent, flag::ON) || !self.index.has(parent, flag::MODEL) {
                continue;
            }
            let (Some(parent), rows) = (
                self.index.get(parent).copied(),
                match &mut rows {
                    Some(rows) => rows,
                    none => none.insert(Rows::open(&self.path)?),
                },
            ) else {
                continue;
            };
            let message = {
                let (bytes, head) = rows.read(&parent)?;
                head.message_id.map(|id| id.of(bytes).to_owned())
            };
            let (bytes, head) = rows.read(&entry)?;
            let same = message.is_some() && head.message_id.map(|id| id.of(bytes)) == message.as_deref();
            if same || is_result(head) {
                self.index.set(row, flag::ON);
                joined.push(row);
            }
        }
        insert_by_place(&mut chain.rows, &joined);
        Ok(())
    }

    /// Queued messages without a row belong to the branch that was being written when they were taken;
    /// one that still waits belongs to what comes next, whatever that is.
    fn join_queued(&mut self, chain: &mut Chain) {
        #[cfg(test)]
        if is_off("queued") {
            self.queued.clear();
        }
        let last = self.index.rows().rev().find(|(_, entry)| entry.has(flag::CHAIN)).map(|(row, _)| row);
        let on: Vec<RowNo> = self
            .queued
            .iter()
            .copied()
            .filter(|row| {
                let waits = last.is_none_or(|last| *row > last);
                waits || self.index.parent(*row).is_none_or(|parent| self.index.has(parent, flag::ON))
            })
            .collect();
        self.join(chain, &on);
    }

    /// Puts further rows on the chain, each behind the last row that stands before it in the file.
    pub(crate) fn join(&mut self, chain: &mut Chain, more: &[RowNo]) {
        for row in more {
            self.index.set(*row, flag::ON);
        }
        insert_by_place(&mut chain.rows, more);
    }
}

fn is_result(head: &Head) -> bool {
    head.blocks.iter().any(|block| block.kind == BlockKind::ToolResult)
}

/// Merges rows in file order into a path; a path that is itself out of file order keeps its order.
fn insert_by_place(path: &mut Vec<RowNo>, more: &[RowNo]) {
    if more.is_empty() {
        return;
    }
    let in_order = path.is_sorted();
    let mut keyed: Vec<(usize, RowNo)> = path.iter().enumerate().map(|(at, row)| (2 * at, *row)).collect();
    for row in more {
        let before = if in_order {
            path.partition_point(|other| other < row).checked_sub(1)
        } else {
            path.iter().rposition(|other| other < row)
        };
        keyed.push((before.map_or(0, |at| 2 * at + 1), *row));
    }
    keyed.sort_unstable();
    *path = keyed.into_iter().map(|(_, row)| row).collect();
}

#[cfg(test)]
mod tests {
    use super::insert_by_place;

    #[test]
    fn rows_are_merged_where_they_stand() {
        let mut path = vec![1, 4, 6];
        insert_by_place(&mut path, &[2, 5, 9]);
        assert_eq!(path, [1, 2, 4, 5, 6, 9]);
        let mut odd = vec![5, 1, 7];
        insert_by_place(&mut odd, &[3, 8]);
        assert_eq!(odd, [5, 1, 3, 7, 8]);
    }
}
