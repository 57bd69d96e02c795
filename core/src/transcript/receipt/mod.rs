//! What a transcript says about one message of ours (DESIGN 9 "Receipts", facts 1, 3, 5 and 6).
//!
//! Read after the invocation has exited: a running CLI's output is ahead of its file. The answer
//! depends on the file alone, never on an exit code or a result line.

mod footing;
mod turn;

use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::footing::{Footing, footing};
use self::turn::Turn;
use super::error::TranscriptError;
use super::head::RowKind;
use super::index::{Link, RowKey, RowNo, flag};
use super::json::decode;
use super::judge::{Context, Judged};
use super::rows::Rows;
use super::rules::{ExtractRules, OwnRows};
use super::survey::{self, Survey};

/// How far a message got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "after", rename_all = "snake_case")]
pub enum After {
    /// No row of the message is in the file, or there is no file.
    Absent,
    /// The row is there and nothing of the model's came after it.
    Nothing,
    /// Nothing but an interrupt and perhaps words before it; no tool was called.
    Interrupted,
    /// Nothing but an API error.
    ApiErrorOnly {
        /// The HTTP status, where the CLI knew one.
        status: Option<u16>,
        /// The CLI's own words about it. Not a reply.
        text: String,
    },
    /// Tools were called, each has its result, and then it ended.
    ToolsFinished {
        /// The uuid of the last row in the file that holds a result: where the turn can be continued
        /// without losing any (measured: going on at a call's row loses that call's result).
        last_result_row: String,
    },
    /// A tool was called and has no result: whether it had its effect is unknown.
    ToolOpen {
        /// The uuid of the call's row.
        row: String,
        /// The tool's name.
        tool: String,
        /// The uuid of the last row in the file that holds the result of another call of the turn:
        /// where it can be continued without the open call. None when no call of it has finished.
        last_result_row: Option<String>,
    },
    /// The last message of the assistant is finished.
    Answered,
    /// The assistant said something, and the message was not finished.
    AnsweredPartly,
}

/// A text block of the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyPart {
    /// The API's id of the message.
    pub message_id: String,
    /// The block's place in the message, counted from 0 over blocks of all kinds.
    pub block_index: u32,
    /// Its text, verbatim.
    pub text: String,
}

/// Token counts of one API call, as the transcript has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to the cache.
    pub input_tokens: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_creation: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

impl Usage {
    /// All tokens together: how full the context is after the call.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.input() + self.output_tokens
    }

    /// The tokens that were sent.
    #[must_use]
    pub const fn input(&self) -> u64 {
        self.input_tokens + self.cache_read + self.cache_creation
    }
}

impl From<super::head::UsageHead> for Usage {
    fn from(head: super::head::UsageHead) -> Self {
        Self {
            input_tokens: head.input,
            cache_read: head.cache_read,
            cache_creation: head.cache_creation,
            output_tokens: head.output,
        }
    }
}

/// What the transcript says about one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// How far it got.
    pub after: After,
    /// The uuid of the last row of the model's in front of the message, on the message's chain.
    pub last_assistant_before: Option<String>,
    /// The reply's text blocks, in order; also of a reply that is not finished.
    pub replies: Vec<ReplyPart>,
    /// The usage of the last row of the model's after the message.
    pub usage: Option<Usage>,
    /// The usage of the first one.
    pub first_usage: Option<Usage>,
    /// Whether the message is on the chain that the next resume loads.
    pub on_live_chain: bool,
    /// The line of the message's row; not counted where the message is answered and the file long.
    pub row_line: Option<u64>,
    /// The message was taken into a turn that ran already: it stands in an attachment and has no row of its own.
    pub absorbed: bool,
    /// A row of ours closes the turn, though nothing answered it: the next message begins another one.
    pub closed: bool,
    /// The uuid of the row of another message that was taken into this one's turn, behind the last result of a tool.
    pub absorbed_row: Option<String>,
    /// An interrupt row stands after the last row of the model's.
    pub interrupted: bool,
    /// The last API error after the message, if nothing of the model's came after it.
    pub api_error: Option<ApiError>,
    /// The uuid of the message's row, as it stands in the file.
    row: Option<String>,
    /// The uuid of the row that the message's chain begins with, where it was read.
    near_root: Option<String>,
}

/// An API error row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// The HTTP status, where the CLI knew one.
    pub status: Option<u16>,
    /// The CLI's own words about it.
    pub text: String,
}

impl Receipt {
    /// The receipt of a message of which no row is in the file.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            after: After::Absent,
            last_assistant_before: None,
            replies: Vec::new(),
            usage: None,
            first_usage: None,
            on_live_chain: false,
            row_line: None,
            absorbed: false,
            closed: false,
            absorbed_row: None,
            interrupted: false,
            api_error: None,
            row: None,
            near_root: None,
        }
    }
}

/// How notes of ours begin (DESIGN 12). A note continues a turn, it does not begin one.
pub const NOTE_PREFIX: &str = "[kael-runner]";

/// Reads what became of the message whose row has this uuid, also under our mark in a candidate,
/// as `source_uuid` of an absorbed message, or merged into another one (facts 3).
///
/// `from_offset` is the file's size before the invocation. Only what stands behind it is read, and
/// as much in front of it as the answer needs: mostly a few rows, so that a turn on a transcript of
/// any size costs what the turn wrote. A message that is not there is looked for in the whole file.
/// A file that is not there gives [`After::Absent`]. Blocking.
///
/// # Errors
///
/// When the file cannot be read, or changes while it is.
pub fn read(transcript: &Path, from_offset: u64, row_uuid: &str) -> Result<Receipt, TranscriptError> {
    let mut reach = REACH;
    loop {
        let start = match line_start(transcript, from_offset, reach) {
            Ok(start) => start,
            Err(error) if error.is_not_found() => return Ok(Receipt::absent()),
            Err(error) => return Err(error),
        };
        if let Some(mut receipt) = look(transcript, start, from_offset, row_uuid)? {
            if start > 0 && !matches!(receipt.after, After::Answered | After::Absent) {
                // Messages name the line; the usual case does without counting.
                let lines = lines_before(transcript, start)?;
                receipt.row_line = receipt.row_line.map(|line| line + lines);
            } else if start > 0 {
                receipt.row_line = None;
            }
            return Ok(receipt);
        }
        reach = reach.saturating_mul(8);
    }
}

impl Receipt {
    /// The uuid of the row that the message's chain begins with, read from the whole file unless it
    /// was near. None when there is no row of the message. Blocking.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn chain_root(&self, transcript: &Path) -> Result<Option<String>, TranscriptError> {
        match (&self.near_root, &self.row) {
            (Some(root), _) => Ok(Some(root.clone())),
            (None, Some(row)) => Ok(look(transcript, 0, 0, row)?.and_then(|receipt| receipt.near_root)),
            (None, None) => Ok(None),
        }
    }
}

/// What the part of the file from `start` on says; nothing when that is too little to tell. From 0
/// it always says something.
fn look(
    transcript: &Path,
    start: u64,
    from_offset: u64,
    row_uuid: &str,
) -> Result<Option<Receipt>, TranscriptError> {
    let rules = ExtractRules::default();
    let own = OwnRows::default();
    let context = Context { rules: &rules, own: &own };
    let mut survey = match Survey::tail(transcript, context, start) {
        Ok(survey) => survey,
        Err(error) if error.is_not_found() => return Ok(Some(Receipt::absent())),
        Err(error) => return Err(error),
    };
    let whole = start == 0;
    let mut rows = Rows::open(transcript)?;
    let Some(ours) = find(&survey, &mut rows, from_offset, row_uuid)? else {
        return Ok(whole.then(Receipt::absent));
    };
    // The row the next resume continues from is named by the last last-prompt that names a row of
    // the file: one that names none here may name one in front.
    let named = survey.last_leaf.last().is_some_and(|leaf| survey.index.find(*leaf).is_some());
    if !whole && !named {
        return Ok(None);
    }
    let leaf = survey.leaf();
    let live = live_path(leaf, &survey, &mut rows)?;
    let on_live_chain = live.contains(&ours);
    let ends = |row: Option<&RowNo>| {
        row.and_then(|row| survey.index.get(*row)).is_none_or(|entry| entry.parent() == Link::Root)
    };
    if !whole && !on_live_chain && !ends(live.first()) {
        return Ok(None);
    }
    let before = ancestors(&survey, ours).skip(1).find(|row| survey.index.has(*row, flag::MODEL));
    let root = ancestors(&survey, ours).last().filter(|root| whole || ends(Some(root)));
    if before.is_none() && root.is_none() {
        return Ok(None);
    }
    let path: Vec<RowNo> = if on_live_chain {
        live.into_iter().skip_while(|row| *row != ours).skip(1).collect()
    } else {
        let tip = survey.newest_below(ours);
        path_to(&survey, tip, ours)
    };
    let mut turn = Turn::default();
    let mut judged = Judged::default();
    // Rows of parallel calls hang beside the path: the other calls of one message, and their results.
    let on: HashSet<RowNo> = path.iter().copied().collect();
    let mut of_turn = on.clone();
    for row in ours + 1..survey.index.len() {
        let beside = !on.contains(&row);
        let hangs = survey.index.parent(row).is_some_and(|parent| of_turn.contains(&parent));
        let Some(entry) = survey.index.get(row).copied().filter(|_| !beside || hangs) else { continue };
        let (bytes, head) = rows.read(&entry)?;
        context.judge(bytes, head, &mut judged);
        if beside && !turn.is_parallel(bytes, head, &judged) {
            continue;
        }
        of_turn.insert(row);
        if !turn.row(bytes, head, &judged) {
            break;
        }
    }
    let mut receipt = turn.finish();
    receipt.last_assistant_before = uuid_of(before, &survey, &mut rows)?;
    receipt.near_root = uuid_of(root, &survey, &mut rows)?;
    receipt.row = uuid_of(Some(ours), &survey, &mut rows)?;
    receipt.on_live_chain = on_live_chain;
    receipt.absorbed = match survey.index.get(ours).copied() {
        Some(entry) => rows.read(&entry)?.1.kind == RowKind::Attachment,
        None => false,
    };
    receipt.row_line = survey.index.get(ours).map(super::index::Entry::line);
    Ok(Some(receipt))
}

/// A row's uuid as it stands in the file.
fn uuid_of(row: Option<RowNo>, survey: &Survey, rows: &mut Rows) -> Result<Option<String>, TranscriptError> {
    let Some(entry) = row.and_then(|row| survey.index.get(row)) else { return Ok(None) };
    let (bytes, head) = rows.read(entry)?;
    Ok(head.uuid.map(|id| decode(id.of(bytes)).text.into_owned()))
}

/// How much in front of the invocation is read at first.
const REACH: u64 = 256 << 10;

/// The start of a line at least `reach` bytes in front of an offset; 0 where that is the whole file,
/// or where there is no such line.
fn line_start(path: &Path, offset: u64, reach: u64) -> Result<u64, TranscriptError> {
    let io = || TranscriptError::io(path, "read");
    let mut file = survey::open(path)?;
    let size = file.metadata().map_err(io())?.len();
    let Some(from) = offset.checked_sub(reach).filter(|_| offset <= size) else { return Ok(0) };
    file.seek(SeekFrom::Start(from)).map_err(io())?;
    let mut bytes = Vec::new();
    (&mut file).take(reach).read_to_end(&mut bytes).map_err(io())?;
    Ok(memchr::memchr(b'\n', &bytes).map_or(0, |at| from + at as u64 + 1))
}

/// How many lines end in front of an offset.
fn lines_before(path: &Path, offset: u64) -> Result<u64, TranscriptError> {
    let mut file = survey::open(path)?.take(offset);
    let mut buffer = vec![0; 256 << 10];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer).map_err(TranscriptError::io(path, "read"))? {
            0 => return Ok(lines),
            count => {
                lines += memchr::memchr_iter(b'\n', buffer.get(..count).unwrap_or_default()).count() as u64;
            }
        }
    }
}

/// The message's row.
fn find(
    survey: &Survey,
    rows: &mut Rows,
    from: u64,
    row_uuid: &str,
) -> Result<Option<RowNo>, TranscriptError> {
    let plain = serde_json::to_string(row_uuid).unwrap_or_default();
    let key = RowKey::of(plain.trim_matches('"').as_bytes());
    if let Some(row) = survey.index.find(key) {
        return Ok(Some(row));
    }
    let mut found = None;
    for (row, entry) in survey.index.rows() {
        let marked = entry.has(flag::KAEL);
        if !marked && (entry.offset() < from || !entry.has(flag::HUMAN)) {
            continue;
        }
        let (bytes, head) = rows.read(entry)?;
        let is =
            |span: Option<super::json::Span>| span.is_some_and(|id| decode(id.of(bytes)).text == row_uuid);
        let merged = head.merged_sends.is_some_and(|ids| {
            serde_json::from_slice::<Vec<String>>(ids.of(bytes))
                .is_ok_and(|ids| ids.iter().any(|id| id == row_uuid))
        });
        if is(head.kael.and_then(|kael| kael.source)) || is(head.source_uuid) || merged {
            found = Some(row);
        }
    }
    Ok(found)
}

/// A row and everything it hangs on, as the CLI follows it: neither over boundaries nor gaps.
fn ancestors(survey: &Survey, row: RowNo) -> impl Iterator<Item = RowNo> + '_ {
    let mut seen = HashSet::new();
    std::iter::successors(Some(row), move |row| survey.index.parent(*row))
        .take_while(move |row| seen.insert(*row))
}

/// The path from just below `from` to `tip`.
fn path_to(survey: &Survey, tip: RowNo, from: RowNo) -> Vec<RowNo> {
    let mut path: Vec<RowNo> = ancestors(survey, tip).take_while(|row| *row != from).collect();
    path.reverse();
    path
}

/// The chain the next resume loads. A row that a compaction kept is on it too: the boundary names it
/// as its logical parent.
fn live_path(leaf: Option<RowNo>, survey: &Survey, rows: &mut Rows) -> Result<Vec<RowNo>, TranscriptError> {
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let mut path: Vec<RowNo> = ancestors(survey, leaf).collect();
    if let Some(entry) = path.last().and_then(|row| survey.index.get(*row))
        && entry.parent() == Link::Root
        && entry.has(flag::BOUNDARY)
    {
        let (bytes, head) = rows.read(entry)?;
        let kept = head.logical_parent.and_then(|id| survey.index.find(RowKey::of(id.of(bytes))));
        path.extend(kept.filter(|row| survey.index.has(*row, flag::HUMAN)));
    }
    path.reverse();
    Ok(path)
}

#[cfg(test)]
mod tests;
