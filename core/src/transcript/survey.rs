//! The first pass over a transcript: index, ledger, drops and damage in one read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::damage::DamageReport;
use super::error::TranscriptError;
use super::head::{BlockKind, Head, Parent, RowKind};
use super::index::{Index, NewRow, RowKey, flag};
use super::judge::{Context, ItemKind, Judged, Role, Trouble, shape_name};
use super::queue::{Queue, Unseen};
use super::reader::{End, Event, Place, Reader};
use super::rules::Rule;
use crate::ledger::Account;

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
    pub(crate) account: Account,
    pub(crate) drops: BTreeMap<Rule, Dropped>,
    pub(crate) damage: DamageReport,
    pub(crate) unknown: Vec<UnknownShape>,
    pub(crate) unseen: Vec<Unseen>,
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
    queue: Queue,
    sessions: HashMap<Box<[u8]>, u32>,
    /// Messages sent by tools whose result has not come yet, and their bytes.
    calls: HashMap<RowKey, u64>,
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
        file.seek(SeekFrom::Start(start)).map_err(TranscriptError::io(path, "read"))?;
        let survey = Self {
            path: path.to_owned(),
            index: Index::default(),
            account: Account::default(),
            drops: BTreeMap::new(),
            damage: DamageReport::default(),
            unknown: Vec::new(),
            unseen: Vec::new(),
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
            queue: Queue::default(),
            sessions: HashMap::new(),
            calls: HashMap::new(),
        };
        let mut reader = Reader::new(file, path).starting_at(start, 0);
        if hash {
            reader = reader.hashing();
        }
        let (end, digest) = reader.run(|event| surveyor.event(event))?;
        let Surveyor { mut survey, queue, calls, .. } = surveyor;
        survey.end = end;
        survey.sha256 = digest.unwrap_or_default();
        survey.unseen = queue.unseen();
        // A call without a result has not succeeded.
        for bytes in calls.into_values() {
            survey.account.unsent(bytes);
        }
        check_sums(path, &survey.account, end.offset - start)?;
        survey.resolve_late_parents()?;
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
            Event::Blank { bytes } => self.survey.account.blank(bytes),
            Event::Damage(damage) => {
                self.survey.account.damaged(damage.bytes);
                self.survey.damage.add(damage);
            }
            Event::Row { place, bytes, head, around } => self.row(place, bytes, head, around)?,
        }
        Ok(())
    }

    fn row(&mut self, place: Place, row: &[u8], head: &Head, around: u64) -> Result<(), TranscriptError> {
        let Self { context, survey, judged, queue, .. } = self;
        context.judge(row, head, judged);
        survey.account.row(row, head, judged, around);
        survey.verdicts.push(judged.rule().number());
        queue.row(row, head, judged, place.line);
        if judged.parts.is_empty() {
            survey.drops.entry(judged.rule()).or_default().add(place.line, row.len() as u64);
        }
        for part in judged.parts.iter().filter(|part| part.rule != Rule::Spoken) {
            survey.drops.entry(part.rule).or_default().add(place.line, part.bytes);
        }
        if let Some(trouble) = judged.trouble {
            self.trouble(trouble, row, place.line);
        }
        self.calls(row, head);
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
        if let Some(uuid) = head.uuid {
            self.index(place, row, head, RowKey::of(uuid.of(row)))?;
        }
        Ok(())
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
        };
        let unknown = &mut self.survey.unknown;
        if let Some(known) = unknown.iter_mut().find(|known| known.shape == shape) {
            known.count += 1;
        } else if unknown.len() < MAX_SHAPES {
            unknown.push(UnknownShape { shape, what, line, count: 1 });
        }
    }

    /// Messages sent by tools count once their result says that they were sent.
    fn calls(&mut self, row: &[u8], head: &Head) {
        for part in self.judged.speech().filter(|part| part.kind == ItemKind::ToolMessage) {
            let call = head.blocks.iter().find(|block| {
                block.kind == BlockKind::ToolUse
                    && block.whole.start <= part.span.start
                    && part.span.end <= block.whole.end
            });
            if let Some(id) = call.and_then(|call| call.id) {
                self.calls.insert(RowKey::of(id.of(row)), part.bytes);
            }
        }
        if self.calls.is_empty() {
            return;
        }
        for block in head.blocks.iter().filter(|block| block.kind == BlockKind::ToolResult) {
            let Some(id) = block.id.map(|id| RowKey::of(id.of(row))) else { continue };
            if let Some(bytes) = self.calls.remove(&id) {
                if block.is_error {
                    self.survey.account.unsent(bytes);
                } else {
                    self.survey.sent.insert(id);
                }
            }
        }
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
        let chain =
            matches!(head.kind, RowKind::User | RowKind::Assistant | RowKind::Attachment | RowKind::System);
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
        let added = self.survey.index.push(new);
        added.map(drop).ok_or_else(|| TranscriptError::TooLarge {
            path: self.survey.path.clone(),
            what: "more than four billion rows",
        })
    }
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
