//! Speech beside the chain: retries, lost branches, and the forks a human has to decide (DESIGN 4).

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::chain::Chain;
use super::error::TranscriptError;
use super::index::{RowNo, flag};
use super::json::decode;
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

/// What a human decided about one thing that blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The branch, or the row, is dropped and listed.
    Drop,
    /// It is carried, in the order of the file.
    Carry,
    /// What was lost is lost: of damaged places.
    Accept,
}

impl Decision {
    /// How a human says it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Carry => "carry",
            Self::Accept => "accept",
        }
    }
}

/// Decisions by what they are about ([`Branch::key`], `DamageReport::key`, `duplicate/<uuid>`),
/// remembered from plan to plan.
pub type Decisions = BTreeMap<String, Decision>;

/// What decides about branches with words of a human's that stand nowhere else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deciding<'a> {
    /// One by one.
    pub(crate) decisions: &'a Decisions,
    /// All others.
    pub(crate) otherwise: OffChain,
}

/// A branch the CLI does not load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// What a decision about it is remembered by: the uuid of its first row with speech, and how
    /// many human rows it has. A branch that grew is another one and asked about again.
    pub key: String,
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
    /// A human, or the configuration, drops it.
    Dropped,
    /// A human, or the configuration, carries it.
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
        deciding: Deciding<'_>,
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
            let with = |bit| rows.iter().filter(|row| self.index.has(**row, bit)).count() as u64;
            let human_rows = with(flag::HUMAN);
            let key = format!("{}+{human_rows}", texts.id(self, rows.first().copied().unwrap_or(first))?);
            let off_chain = match deciding.decisions.get(&key) {
                Some(Decision::Drop) => OffChain::Drop,
                Some(Decision::Carry) => OffChain::Carry,
                Some(Decision::Accept) | None => deciding.otherwise,
            };
            let fate = self.fate(&rows, later, &mut texts, off_chain)?;
            let line = |row: RowNo| self.index.get(row).map_or(0, |entry| entry.line());
            branches.push(Branch {
                key,
                leaves_at_line: leaves.map_or(0, line),
                first_line: rows.first().map_or_else(|| line(first), |row| line(*row)),
                human_rows,
                assistant_rows: with(flag::ASSISTANT),
                lines: rows.iter().take(20).map(|row| line(*row)).collect(),
                fate,
            });
            match fate {
                Fate::Carried => carried.extend(rows),
                Fate::Dropped => self.decided.extend(rows),
                _ => {}
            }
        }
        carried.sort_unstable();
        self.join(chain, &carried);
        branches.sort_by_key(|branch| branch.first_line);
        Ok(branches)
    }

    /// Offsets of the rows that somebody decided to drop.
    pub(crate) fn decided(&self) -> HashSet<u64> {
        self.decided.iter().filter_map(|row| self.index.get(*row)).map(super::index::Entry::offset).collect()
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
        #[cfg(test)]
        if super::judge::switched_off::is_off("forks") {
            return Ok(Fate::Retry);
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
    /// A row's uuid; of a queued message, where it stands.
    fn id(&mut self, survey: &Survey, row: RowNo) -> Result<String, TranscriptError> {
        let Some(entry) = survey.index.get(row).copied() else { return Ok(String::new()) };
        let (bytes, head) = self.rows.read(&entry)?;
        Ok(match head.uuid {
            Some(id) => decode(id.of(bytes)).text.into_owned(),
            None => format!("queue-operation@{}", entry.offset()),
        })
    }

    fn of(&mut self, survey: &Survey, row: RowNo) -> Result<Vec<TextKey>, TranscriptError> {
        let Some(entry) = survey.index.get(row).copied() else { return Ok(Vec::new()) };
        let (bytes, head) = self.rows.read(&entry)?;
        if entry.has(flag::QUEUED) {
            let words = head.row_content.map(|span| decode(span.of(bytes)).text);
            return Ok(words.map(|text| Sha256::digest(text.as_bytes()).into()).into_iter().collect());
        }
        self.context.judge(bytes, head, &mut self.judged);
        let human = self.judged.speech().filter(|part| part.role == Role::Human);
        Ok(human.map(|part| Sha256::digest(speech::text_of(part, bytes).0.as_bytes()).into()).collect())
    }
}

impl Branch {
    /// The message that blocks a rebuild.
    #[must_use]
    pub fn message(&self) -> String {
        format!(
            "line {}: {} only on {}, which the CLI does not load: look at it (`kael-runner plan --show off-chain`), \
             then decide with `kael-runner plan --decide {key}=drop` or `--decide {key}=carry`, or about all branches \
             with off_chain in the table [runner]",
            self.first_line,
            self.words(),
            self.place(),
            key = self.key
        )
    }

    fn words(&self) -> String {
        if self.human_rows == 1 {
            "a human message stands".to_owned()
        } else {
            format!("{} human messages stand", self.human_rows)
        }
    }

    /// Where it leaves the conversation, in words.
    #[must_use]
    pub fn place(&self) -> String {
        if self.leaves_at_line == 0 {
            "a second beginning".to_owned()
        } else {
            format!("a branch that leaves the conversation at line {}", self.leaves_at_line)
        }
    }
}

impl Fate {
    /// What becomes of the branch and why, in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Retry => "dropped: the same message was sent again",
            Self::AssistantOnly => "dropped: no human says anything on it",
            Self::WordsOnChain => "dropped: every word of a human's stands in the conversation too",
            Self::Dropped => "dropped: so decided",
            Self::Carried => "carried: so decided",
            Self::Undecided => "not decided",
        }
    }
}
