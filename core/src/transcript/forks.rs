//! Speech beside the chain: retries, lost branches, and the forks a human has to decide (DESIGN 4).

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::chain::Chain;
use super::error::TranscriptError;
use super::index::{RowNo, flag};
use super::judge::{Context, Judged, Role};
use super::rows::Rows;
use super::speech;
use super::survey::Survey;

/// What happens to branches that hold words of a human and that nobody decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OffChain {
    /// The rebuild blocks and shows them.
    #[default]
    Ask,
    /// They are dropped and listed.
    Drop,
    /// They are carried, in the order of the file.
    Carry,
}

/// A branch the CLI does not load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// The line of the row it leaves the chain at; 0 when it hangs on nothing.
    pub leaves_at_line: u64,
    /// The line of its first row with speech.
    pub first_line: u64,
    /// Rows in which a human says something.
    pub human_rows: u64,
    /// Rows in which the assistant says something.
    pub assistant_rows: u64,
    /// The first lines of it that hold speech.
    pub lines: Vec<u64>,
    /// Why it is dropped, or that it is not decided.
    pub fate: Fate,
}

/// What becomes of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// The same message was sent again and stands on the chain.
    Retry,
    /// No human says anything on it.
    AssistantOnly,
    /// Every word of a human's on it stands on the chain too.
    WordsOnChain,
    /// The configuration drops it.
    Dropped,
    /// The configuration carries it.
    Carried,
    /// A human's words stand nowhere else: somebody has to say what becomes of them.
    Undecided,
}

type TextKey = [u8; 32];

impl Survey {
    /// Finds what is said beside the chain. Carried branches are put on it.
    pub(crate) fn branches(
        &mut self,
        chain: &mut Chain,
        context: Context<'_>,
        off_chain: OffChain,
    ) -> Result<Vec<Branch>, TranscriptError> {
        let beside: Vec<RowNo> = (0..self.index.len())
            .filter(|row| {
                self.index.get(*row).is_some_and(|e| e.has(flag::SPEECH) && !e.has(flag::ON | flag::SIDE))
            })
            .filter(|row| !self.is_replaced(*row))
            .collect();
        if beside.is_empty() {
            return Ok(Vec::new());
        }
        let mut groups: BTreeMap<(Option<RowNo>, RowNo), Vec<RowNo>> = BTreeMap::new();
        for row in beside {
            groups.entry(self.branch_of(row)).or_default().push(row);
        }
        let place: HashMap<RowNo, usize> =
            chain.rows.iter().enumerate().map(|(at, row)| (*row, at)).collect();
        let mut texts = Texts { rows: Rows::open(&self.path)?, context, judged: Judged::default() };
        let mut branches = Vec::new();
        let mut carried = Vec::new();
        for ((leaves, first), rows) in groups {
            let from = leaves.and_then(|row| place.get(&row)).map_or(0, |at| at + 1);
            let later = chain.rows.get(from..).unwrap_or_default();
            let fate = self.fate(&rows, later, &mut texts, off_chain)?;
            let line = |row: RowNo| self.index.get(row).map_or(0, |entry| entry.line());
            let with = |bit| rows.iter().filter(|row| self.index.has(**row, bit)).count() as u64;
            branches.push(Branch {
                leaves_at_line: leaves.map_or(0, line),
                first_line: rows.first().map_or_else(|| line(first), |row| line(*row)),
                human_rows: with(flag::HUMAN),
                assistant_rows: with(flag::ASSISTANT),
                lines: rows.iter().take(20).map(|row| line(*row)).collect(),
                fate,
            });
            if fate == Fate::Carried {
                carried.extend(rows);
            }
        }
        carried.sort_unstable();
        self.join(chain, &carried);
        branches.sort_by_key(|branch| branch.first_line);
        Ok(branches)
    }

    /// Where a row's branch leaves the chain, and the branch's first row.
    fn branch_of(&self, row: RowNo) -> (Option<RowNo>, RowNo) {
        let mut first = row;
        // A circle of parents cannot be longer than the index.
        for _ in 0..self.index.len() {
            match self.index.parent(first) {
                Some(parent) if self.index.has(parent, flag::ON) => return (Some(parent), first),
                Some(parent) => first = parent,
                None => return (None, first),
            }
        }
        (None, row)
    }

    /// A row that another one with the same uuid has replaced.
    pub(crate) fn is_replaced(&self, row: RowNo) -> bool {
        self.index.get(row).is_some_and(|entry| self.index.find(entry.key()) != Some(row))
    }

    fn fate(
        &self,
        branch: &[RowNo],
        later: &[RowNo],
        texts: &mut Texts<'_>,
        off_chain: OffChain,
    ) -> Result<Fate, TranscriptError> {
        let mut wanted = HashSet::new();
        for row in branch.iter().filter(|row| self.index.has(**row, flag::HUMAN)) {
            wanted.extend(texts.of(self, *row)?);
        }
        if wanted.is_empty() {
            return Ok(Fate::AssistantOnly);
        }
        let mut first = true;
        for row in later.iter().filter(|row| self.index.has(**row, flag::HUMAN)) {
            for text in texts.of(self, *row)? {
                wanted.remove(&text);
            }
            if wanted.is_empty() {
                return Ok(if first { Fate::Retry } else { Fate::WordsOnChain });
            }
            first = false;
        }
        Ok(match off_chain {
            OffChain::Ask => Fate::Undecided,
            OffChain::Drop => Fate::Dropped,
            OffChain::Carry => Fate::Carried,
        })
    }
}

/// Reads what humans say in single rows.
struct Texts<'a> {
    rows: Rows,
    context: Context<'a>,
    judged: Judged,
}

impl Texts<'_> {
    fn of(&mut self, survey: &Survey, row: RowNo) -> Result<Vec<TextKey>, TranscriptError> {
        let Some(entry) = survey.index.get(row).copied() else { return Ok(Vec::new()) };
        let (bytes, head) = self.rows.read(&entry)?;
        self.context.judge(bytes, head, &mut self.judged);
        let human = self.judged.speech().filter(|part| part.role == Role::Human);
        Ok(human.map(|part| Sha256::digest(speech::text_of(part, bytes).0.as_bytes()).into()).collect())
    }
}

impl Branch {
    /// The message that blocks a rebuild.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { leaves_at_line, first_line, human_rows, .. } = self;
        let from = if *leaves_at_line == 0 {
            "a second beginning".to_owned()
        } else {
            format!("a branch that leaves the conversation at line {leaves_at_line}")
        };
        let words = if *human_rows == 1 {
            "a human message stands".to_owned()
        } else {
            format!("{human_rows} human messages stand")
        };
        format!(
            "line {first_line}: {words} only on {from}, which the CLI does not load: look at it, then set off_chain \
             in the table [runner] to \"drop\" or \"carry\""
        )
    }
}
