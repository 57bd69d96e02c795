//! The first pass over a transcript: index, ledger, drops and damage in one read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::damage::DamageReport;
use super::doubts::Doubts;
use super::error::TranscriptError;
use super::head::{Head, Parent, RowKind};
use super::index::{Index, NewRow, RowKey, RowNo, flag};
use super::judge::{Context, Judged, Role, Trouble, shape_name};
use super::queue::{self, Step, Unseen};
use super::reader::{End, Event, Place, Reader};
use super::rules::Rule;
use crate::ledger::{Account, Tally};

/// What one rule dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// How many rows or blocks.
    pub count: u64,
    /// How many bytes of the file.
    pub bytes: u64,
    /// The first lines it was applied to.
    pub lines: Vec<u64>,
}

impl Dropped {
    const LISTED: usize = 20;

    pub(crate) fn add(&mut self, line: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        if self.lines.len() < Self::LISTED && self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }
}

impl Dropped {
    /// Takes back what [`Dropped::add`] put in.
    fn remove(&mut self, line: u64, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.lines.retain(|listed| *listed != line);
    }
}

/// A shape nobody here understands, with the first place it was met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnknownShape {
    /// Its name, as `accept_unknown` takes it.
    pub shape: String,
    /// What is wrong with it, for shapes that are known but hold something they should not.
    pub what: Option<&'static str>,
    /// The first line it stands on.
    pub line: u64,
    /// How often it was met.
    pub count: u64,
}

/// Shapes named one by one; what is beyond blocks just as well.
const MAX_SHAPES: usize = 100;

/// What the first pass over a transcript found.
pub(crate) struct Survey {
    pub(crate) path: PathBuf,
    pub(crate) index: Index,
    pub(crate) tally: Tally,
    /// The tally at the end of the last complete line: a measurement can go on from there.
    pub(crate) complete: Option<Tally>,
    pub(crate) drops: BTreeMap<Rule, Dropped>,
    pub(crate) damage: DamageReport,
    pub(crate) unknown: Vec<UnknownShape>,
    /// Queued messages that no row shows and whose words the file does not say.
    pub(crate) unseen: Vec<Unseen>,
    /// Rows of queued messages that stand nowhere else: their words are in their `enqueue` rows.
    pub(crate) queued: Vec<RowNo>,
    /// Rows of branches that somebody decided to drop.
    pub(crate) decided: Vec<RowNo>,
    /// Reply tools that succeeded, by the id of the call.
    pub(crate) sent: HashSet<RowKey>,
    /// The rule of each row in file order, as [`Rule::number`]; the proof compares.
    pub(crate) verdicts: Vec<u8>,
    /// `leafUuid` of the last `last-prompt` rows that name a row of the file, the last one last.
    pub(crate) last_leaf: Vec<RowKey>,
    pub(crate) versions: BTreeSet<String>,
    pub(crate) sha256: [u8; 32],
    pub(crate) end: End,
}

/// Opens a transcript for reading.
pub(crate) fn open(path: &Path) -> Result<File, TranscriptError> {
    File::open(path).map_err(TranscriptError::io(path, "open"))
}

struct Surveyor<'a> {
    context: Context<'a>,
    survey: Survey,
    judged: Judged,
    doubts: Doubts,
    sessions: HashMap<Box<[u8]>, u32>,
    /// Queued messages by number: places kept for them where they were queued and where taken.
    places: HashMap<u64, Queued>,
    /// The last row that can be on a chain.
    last_chain: Option<RowKey>,
}

/// A queued message, and the places kept for it.
#[derive(Clone, Copy)]
struct Queued {
    offset: u64,
    length: u32,
    line: u64,
    at: RowNo,
    taken: Option<RowNo>,
}

impl Survey {
    /// Reads a whole transcript. Blocking; memory is bounded by the longest line and the index.
    pub(crate) fn of(path: &Path, context: Context<'_>) -> Result<Self, TranscriptError> {
        Self::read(path, context, 0, true)
    }

    /// Reads a transcript from the start of a line on; lines are counted from there.
    pub(crate) fn tail(path: &Path, context: Context<'_>, start: u64) -> Result<Self, TranscriptError> {
        Self::read(path, context, start, false)
    }

    fn read(path: &Path, context: Context<'_>, start: u64, hash: bool) -> Result<Self, TranscriptError> {
        let mut file = open(path)?;
        let size = file.metadata().map_err(TranscriptError::io(path, "read"))?.len();
        file.seek(SeekFrom::Start(start)).map_err(TranscriptError::io(path, "read"))?;
        let survey = Self {
            path: path.to_owned(),
            index: Index::default(),
            tally: Tally::default(),
            complete: None,
            drops: BTreeMap::new(),
            damage: DamageReport::default(),
            unknown: Vec::new(),
            unseen: Vec::new(),
            queued: Vec::new(),
            decided: Vec::new(),
            sent: HashSet::new(),
            verdicts: Vec::new(),
            last_leaf: Vec::new(),
            versions: BTreeSet::new(),
            sha256: [0; 32],
            end: End::default(),
        };
        let mut surveyor = Surveyor {
            context,
            survey,
            judged: Judged::default(),
            doubts: Doubts::default(),
            sessions: HashMap::new(),
            places: HashMap::new(),
            last_chain: None,
        };
        let mut reader = Reader::new(file, path).starting_at(start, 0);
        if hash {
            reader = reader.hashing(size);
        }
        let (end, digest) = reader.run(|event| surveyor.event(event))?;
        surveyor.queue_rows()?;
        let Surveyor { mut survey, doubts, .. } = surveyor;
        survey.end = end;
        survey.sha256 = digest.unwrap_or_default();
        check_sums(path, &survey.tally.account, end.offset - start)?;
        survey.resolve_late_parents()?;
        survey.resolve_doubts(&doubts, context)?;
        Ok(survey)
    }

    /// Rows may stand before their parent (facts 11): their heads are read once more.
    fn resolve_late_parents(&mut self) -> Result<(), TranscriptError> {
        let mut late = Vec::new();
        if self.index.unresolved() > 0 {
            let mut rows = super::rows::Rows::open(&self.path)?;
            for (row, entry) in self.index.rows() {
                if entry.parent() != super::index::Link::Missing {
                    continue;
                }
                let (bytes, head) = rows.read(entry)?;
                if let Parent::Row(id) = head.parent
                    && let Some(parent) = self.index.find(RowKey::of(id.of(bytes)))
                {
                    late.push((row, parent));
                }
            }
        }
        for (row, parent) in late {
            self.index.resolve(row, parent);
        }
        // A later row with the same uuid replaces an earlier one, also as a parent (facts 4).
        if !self.index.duplicates().is_empty() {
            let moved: Vec<_> = self
                .index
                .rows()
                .filter_map(|(row, _)| {
                    let parent = self.index.parent(row)?;
                    let now = self.index.find(self.index.get(parent)?.key())?;
                    (now != parent).then_some((row, now))
                })
                .collect();
            for (row, parent) in moved {
                self.index.resolve(row, parent);
            }
        }
        Ok(())
    }
}

/// The ledger's promise: every byte in exactly one account.
pub(crate) fn check_sums(path: &Path, account: &Account, actual: u64) -> Result<(), TranscriptError> {
    let accounted = account.total();
    if accounted == actual {
        Ok(())
    } else {
        Err(TranscriptError::LedgerDoesNotAddUp { path: path.to_owned(), accounted, actual })
    }
}

impl Surveyor<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), TranscriptError> {
        match event {
            Event::Blank { bytes } => self.survey.tally.account.blank(bytes),
            Event::Damage(damage) => {
                self.survey.tally.account.damaged(damage.bytes);
                self.survey.damage.add(damage);
            }
            Event::Incomplete => self.survey.complete = Some(self.survey.tally.clone()),
            Event::Row { place, bytes, head, around } => self.row(place, bytes, head, around)?,
        }
        Ok(())
    }

    fn row(&mut self, place: Place, row: &[u8], head: &Head, around: u64) -> Result<(), TranscriptError> {
        let Self { context, survey, judged, .. } = self;
        context.judge(row, head, judged);
        let Survey { tally, sent, .. } = survey;
        let step = tally.row(row, head, judged, around, place.line, &mut |call| {
            sent.insert(call);
        });
        survey.verdicts.push(judged.rule().number());
        if judged.parts.is_empty() {
            survey.drops.entry(judged.rule()).or_default().add(place.line, row.len() as u64);
        }
        for part in judged.parts.iter().filter(|part| part.rule != Rule::Spoken) {
            survey.drops.entry(part.rule).or_default().add(place.line, part.bytes);
        }
        if let Some(trouble) = judged.trouble {
            self.trouble(trouble, row, place.line);
        }
        let (next, verdict) = (self.survey.index.len(), self.survey.verdicts.len() - 1);
        self.doubts.row(row, &self.judged, next, verdict, head.uuid.is_some());
        if let Some(step) = step {
            self.queue_row(step, place, row.len())?;
        }
        if let Some(version) = head.version
            && self.survey.versions.len() < MAX_SHAPES
            && let Ok(version) = std::str::from_utf8(version.of(row))
            && !self.survey.versions.contains(version)
        {
            self.survey.versions.insert(version.to_owned());
        }
        if head.kind == RowKind::LastPrompt
            && let Some(leaf) = head.leaf
        {
            self.last_prompt(RowKey::of(leaf.of(row)));
        }
        match head.uuid {
            Some(uuid) => self.index(place, row, head, RowKey::of(uuid.of(row))),
            // Nothing can hang on it, but what it says was said.
            None if is_chain(head) && self.judged.speech().next().is_some() => {
                self.index(place, row, head, RowKey::of(format!("row at byte {}", place.offset).as_bytes()))
            }
            None => Ok(()),
        }
    }

    /// Only leaves that turn out to be known rows count, and a leaf may stand after its row: the
    /// last few are kept, the known ones preferred.
    fn last_prompt(&mut self, leaf: RowKey) {
        let leaves = &mut self.survey.last_leaf;
        if leaves.last() == Some(&leaf) {
            return;
        }
        if leaves.len() == 64 {
            let unknown = leaves.iter().position(|leaf| self.survey.index.find(*leaf).is_none());
            leaves.remove(unknown.unwrap_or(0));
        }
        leaves.push(leaf);
    }

    fn trouble(&mut self, trouble: Trouble, row: &[u8], line: u64) {
        let (shape, what) = match trouble {
            Trouble::Unknown { shape, name } => (shape_name(shape, name, row), None),
            Trouble::Ambiguous { key, what } => (key.to_owned(), Some(what)),
            Trouble::Field => {
                (self.judged.field.take().unwrap_or_default(), Some("words in a field nobody here knows"))
            }
        };
        let unknown = &mut self.survey.unknown;
        if let Some(known) = unknown.iter_mut().find(|known| known.shape == shape) {
            known.count += 1;
        } else if unknown.len() < MAX_SHAPES {
            unknown.push(UnknownShape { shape, what, line, count: 1 });
        }
    }

    /// Keeps a place in the order of rows for a queued message, where it was queued and where it was
    /// taken: only the end of the file shows which of them counts.
    fn queue_row(&mut self, step: Step, place: Place, length: usize) -> Result<(), TranscriptError> {
        match step {
            Step::Queued(number) => {
                let mut queued = Queued {
                    offset: place.offset,
                    length: u32::try_from(length).unwrap_or(u32::MAX),
                    line: place.line,
                    at: 0,
                    taken: None,
                };
                queued.at = self.keep_place(number, queued, "queued")?;
                self.places.insert(number, queued);
            }
            Step::Taken(number) => {
                if let Some(queued) = self.places.get(&number).copied() {
                    let taken = self.keep_place(number, queued, "taken")?;
                    self.places.insert(number, Queued { taken: Some(taken), ..queued });
                }
            }
        }
        Ok(())
    }

    fn keep_place(&mut self, number: u64, queued: Queued, what: &str) -> Result<RowNo, TranscriptError> {
        self.push(NewRow {
            key: RowKey::of(format!("{what} {number} at byte {}", queued.offset).as_bytes()),
            offset: queued.offset,
            length: queued.length,
            line: queued.line,
            // It belongs to the branch that was being written.
            parent: self.last_chain,
            flags: flag::QUEUED,
        })
    }

    /// Gives the messages that no row shows their places.
    fn queue_rows(&mut self) -> Result<(), TranscriptError> {
        for unseen in self.survey.tally.queue.unseen() {
            let known = self.places.get(&unseen.number).copied().filter(|_| unseen.bytes.is_some());
            let Some(queued) = known else {
                self.survey.unseen.push(unseen);
                continue;
            };
            let row = match unseen.place {
                queue::Place::Taken => queued.taken.unwrap_or(queued.at),
                queue::Place::Queued => queued.at,
                queue::Place::End => self.keep_place(unseen.number, queued, "waiting")?,
            };
            self.survey.index.set(row, flag::HUMAN);
            self.survey.queued.push(row);
            if let Some(copies) = self.survey.drops.get_mut(&Rule::QueueCopy) {
                copies.remove(queued.line, u64::from(queued.length));
            }
        }
        self.survey.queued.sort_unstable();
        Ok(())
    }

    fn session(&mut self, row: &[u8], head: &Head) -> u32 {
        let id = head.session.map_or(&b""[..], |session| session.of(row));
        if let Some(number) = self.sessions.get(id) {
            return *number;
        }
        // Beyond the last number they share one: only stitching looks at it.
        let number = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX).min(0xFFFF);
        if number < 0xFFFF {
            self.sessions.insert(id.into(), number);
        }
        number
    }

    fn index(&mut self, place: Place, row: &[u8], head: &Head, key: RowKey) -> Result<(), TranscriptError> {
        let chain = is_chain(head);
        let boundary = head.kind == RowKind::System && Head::is(head.subtype, row, "compact_boundary");
        let mut flags = self.session(row, head) << flag::SESSION_SHIFT;
        let judged = &self.judged;
        for (bit, is) in [
            (flag::CHAIN, chain && !head.is_sidechain),
            (flag::SIDE, head.is_sidechain),
            (flag::HUMAN, judged.says(Role::Human)),
            (flag::ASSISTANT, judged.says(Role::Assistant)),
            (flag::BOUNDARY, boundary),
            (flag::SUMMARY, judged.rule() == Rule::CompactSummary),
            (flag::USAGE, judged.is_model && head.usage.is_some()),
            (flag::MODEL, judged.is_model),
            (flag::KAEL, head.kael.is_some()),
        ] {
            flags |= if is { bit } else { 0 };
        }
        let parent = match head.parent {
            Parent::Row(id) => Some(RowKey::of(id.of(row))),
            // What has no name itself goes on from the row before it.
            Parent::Absent if chain && head.uuid.is_none() => self.last_chain,
            // Older shapes leave it out: as good as a parent that is not in the file.
            Parent::Absent if chain && !boundary && !head.is_sidechain => Some(RowKey::of(b"")),
            Parent::Null | Parent::Absent => None,
        };
        let new = NewRow {
            key,
            offset: place.offset,
            length: u32::try_from(row.len()).unwrap_or(u32::MAX),
            line: place.line,
            parent,
            flags,
        };
        if chain && !head.is_sidechain {
            self.last_chain = Some(key);
        }
        self.push(new).map(drop)
    }

    fn push(&mut self, new: NewRow) -> Result<RowNo, TranscriptError> {
        self.survey.index.push(new).ok_or_else(|| TranscriptError::TooLarge {
            path: self.survey.path.clone(),
            what: "more than four billion rows",
        })
    }
}

/// Whether a row is of a kind that the conversation is made of.
const fn is_chain(head: &Head) -> bool {
    matches!(head.kind, RowKind::User | RowKind::Assistant | RowKind::Attachment | RowKind::System)
}

impl UnknownShape {
    /// The message that blocks a rebuild: what stands where, and what to do.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { shape, what, line, count } = self;
        let times = if *count == 1 { String::new() } else { format!(" ({count} such rows)") };
        let remedy = format!(
            "look at it; if it holds no words of the conversation, add \"{shape}\" to accept_unknown in the \
             table [transcript]"
        );
        match what {
            Some(what) => format!("line {line} holds {what}{times}: {remedy}"),
            None => format!("line {line} is of a shape this version does not know, {shape}{times}: {remedy}"),
        }
    }
}
