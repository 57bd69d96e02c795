//! What a transcript says about one message of ours (DESIGN 9 "Receipts", facts 1, 3, 5 and 6).
//!
//! Read after the invocation has exited: a running CLI's output is ahead of its file. The answer
//! depends on the file alone, never on an exit code or a result line.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::TranscriptError;
use super::head::{BlockKind, Content, Head, RowKind};
use super::index::{Link, RowKey, RowNo, flag};
use super::json::decode;
use super::judge::{Context, Judged, Role};
use super::rows::Rows;
use super::rules::{ExtractRules, OwnRows, Rule};
use super::speech::text_of;
use super::survey::Survey;

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
        /// The uuid of the last row with a call: where the turn can be continued.
        last_tool_use_row: String,
    },
    /// A tool was called and has no result: whether it had its effect is unknown.
    ToolOpen {
        /// The uuid of the call's row.
        row: String,
        /// The tool's name.
        tool: String,
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
    /// The uuid of the row that the message's chain begins with.
    pub chain_root: Option<String>,
    /// Whether the message is on the chain that the next resume loads.
    pub on_live_chain: bool,
    /// The line of the message's row.
    pub row_line: Option<u64>,
    /// An interrupt row stands after the last row of the model's.
    pub interrupted: bool,
    /// The last API error after the message, if nothing of the model's came after it.
    pub api_error: Option<ApiError>,
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
            chain_root: None,
            on_live_chain: false,
            row_line: None,
            interrupted: false,
            api_error: None,
        }
    }
}

/// How notes of ours begin (DESIGN 12). A note continues a turn, it does not begin one.
pub const NOTE_PREFIX: &str = "[kael-runner]";

/// Reads what became of the message whose row has this uuid, also under our mark in a candidate,
/// as `source_uuid` of an absorbed message, or merged into another one (facts 3).
///
/// `from_offset` is the file's size before the invocation: rows in front of it are read for the
/// chain. A file that is not there gives [`After::Absent`]. Blocking; reads the whole file once.
///
/// # Errors
///
/// When the file cannot be read, or changes while it is.
pub fn read(transcript: &Path, from_offset: u64, row_uuid: &str) -> Result<Receipt, TranscriptError> {
    let rules = ExtractRules::default();
    let own = OwnRows::default();
    let context = Context { rules: &rules, own: &own };
    let mut survey = match Survey::of(transcript, context) {
        Ok(survey) => survey,
        Err(error) if error.is_not_found() => return Ok(Receipt::absent()),
        Err(error) => return Err(error),
    };
    let mut rows = Rows::open(transcript)?;
    let Some(ours) = find(&survey, &mut rows, from_offset, row_uuid)? else { return Ok(Receipt::absent()) };
    let leaf = survey.leaf();
    let live = live_path(leaf, &survey, &mut rows)?;
    let on_live_chain = live.contains(&ours);
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
    let uuid = |row: Option<RowNo>, rows: &mut Rows| -> Result<Option<String>, TranscriptError> {
        let Some(entry) = row.and_then(|row| survey.index.get(row)) else { return Ok(None) };
        let (bytes, head) = rows.read(entry)?;
        Ok(head.uuid.map(|id| decode(id.of(bytes)).text.into_owned()))
    };
    let before = ancestors(&survey, ours).skip(1).find(|row| survey.index.has(*row, flag::MODEL));
    let root = ancestors(&survey, ours).last();
    let mut receipt = turn.finish();
    receipt.last_assistant_before = uuid(before, &mut rows)?;
    receipt.chain_root = uuid(root, &mut rows)?;
    receipt.on_live_chain = on_live_chain;
    receipt.row_line = survey.index.get(ours).map(super::index::Entry::line);
    Ok(receipt)
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

/// What a turn's rows add up to.
#[derive(Default)]
struct Turn {
    replies: Vec<ReplyPart>,
    first_usage: Option<Usage>,
    usage: Option<Usage>,
    /// Blocks seen of each message.
    blocks: HashMap<String, u32>,
    /// Calls in order: id, row, tool.
    calls: Vec<(RowKey, String, String)>,
    done: HashSet<RowKey>,
    /// The last row of the model's finished its message.
    finished: bool,
    interrupted: bool,
    api_error: Option<ApiError>,
}

/// Why a message of the model's is over. `tool_use`, `max_tokens` and `pause_turn` are not among
/// them: the CLI goes on by itself.
const FINISHED: &[&[u8]] = &[b"end_turn", b"stop_sequence", b"refusal", b"model_context_window_exceeded"];

/// How the CLI begins a result that it made up for a call whose outcome it does not know.
const MADE_UP: &str = "[Tool call interrupted:";

impl Turn {
    /// Whether a row beside the path belongs to the turn: a block of a message that is on it, or a
    /// result. An answer of another attempt does not.
    fn is_parallel(&self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        if judged.is_model {
            let id = head.message_id.map(|id| decode(id.of(row)).text);
            return id.is_some_and(|id| self.blocks.contains_key(id.as_ref()));
        }
        head.blocks.iter().any(|block| block.kind == BlockKind::ToolResult)
    }

    /// Takes in one row; false when the next human message begins.
    fn row(&mut self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        match head.kind {
            RowKind::User => self.user(row, head, judged),
            RowKind::Assistant => {
                self.assistant(row, head, judged);
                true
            }
            _ => true,
        }
    }

    fn user(&mut self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        let mut is_result = false;
        for block in head.blocks.iter().filter(|block| block.kind == BlockKind::ToolResult) {
            is_result = true;
            let made_up = block.content.is_some_and(|content| {
                content.of(row).strip_prefix(b"\"").is_some_and(|text| text.starts_with(MADE_UP.as_bytes()))
            });
            if let Some(id) = block.id.filter(|_| !made_up) {
                self.done.insert(RowKey::of(id.of(row)));
            }
        }
        if judged.parts.iter().any(|part| part.rule == Rule::Interrupt) {
            self.interrupted = true;
            return true;
        }
        if is_result || !judged.says(Role::Human) {
            return true;
        }
        let first = judged.speech().next().map(|part| text_of(part, row).0);
        first.is_some_and(|text| text.starts_with(NOTE_PREFIX))
    }

    fn assistant(&mut self, row: &[u8], head: &Head, judged: &Judged) {
        if judged.rule() == Rule::ApiError {
            let text = head.blocks.iter().filter_map(|block| block.text);
            let text: Vec<_> = text.map(|text| decode(text.of(row)).text).collect();
            self.api_error = Some(ApiError {
                status: head.api_error_status.and_then(|status| u16::try_from(status).ok()),
                text: text.join("\n"),
            });
            return;
        }
        if !judged.is_model {
            return;
        }
        // In a candidate stand only turns that were resolved before it was made; its rows have no
        // `stop_reason`, and a message that nobody answered has our marker behind it.
        if head.kael.is_some_and(|kael| Head::is(kael.kind, row, "open_tail")) {
            return;
        }
        self.api_error = None;
        self.interrupted = false;
        let message_id = head.message_id.map_or_else(String::new, |id| decode(id.of(row)).text.into_owned());
        let mut index = self.blocks.get(&message_id).copied().unwrap_or(0);
        for block in &head.blocks {
            let place = match head.api_block_index {
                Some(known) if head.blocks.len() == 1 => u32::try_from(known).unwrap_or(index),
                _ => index,
            };
            index += 1;
            if block.kind == BlockKind::ToolUse
                && let Some(id) = block.id
            {
                let text = |span: Option<super::json::Span>| {
                    span.map_or_else(String::new, |span| decode(span.of(row)).text.into_owned())
                };
                self.calls.push((RowKey::of(id.of(row)), text(head.uuid), text(block.tool)));
            }
            if let (BlockKind::Text, Some(text)) = (block.kind, block.text) {
                self.reply(&message_id, place, decode(text.of(row)).text.into_owned());
            }
        }
        if let Content::Text(text) = head.content {
            self.reply(&message_id, 0, decode(text.of(row)).text.into_owned());
        }
        self.blocks.insert(message_id, index);
        if let Some(usage) = head.usage {
            self.usage = Some(usage.into());
            self.first_usage = self.first_usage.or(self.usage);
        }
        let ended = head.stop_reason.is_some_and(|reason| FINISHED.contains(&reason.of(row)));
        self.finished = ended || head.kael.is_some();
    }

    fn reply(&mut self, message_id: &str, block_index: u32, text: String) {
        if !text.trim().is_empty() {
            self.replies.push(ReplyPart { message_id: message_id.to_owned(), block_index, text });
        }
    }

    fn finish(self) -> Receipt {
        let open = self.calls.iter().rev().find(|(id, ..)| !self.done.contains(id));
        // What comes after a finished answer (a failed follow-up, an interrupt) takes nothing back.
        let after = if self.finished {
            After::Answered
        } else if let Some((_, row, tool)) = open {
            After::ToolOpen { row: row.clone(), tool: tool.clone() }
        } else if let Some((_, row, _)) = self.calls.last() {
            After::ToolsFinished { last_tool_use_row: row.clone() }
        } else if self.interrupted {
            After::Interrupted
        } else if !self.replies.is_empty() {
            After::AnsweredPartly
        } else if let Some(error) = &self.api_error {
            After::ApiErrorOnly { status: error.status, text: error.text.clone() }
        } else {
            After::Nothing
        };
        Receipt {
            after,
            replies: self.replies,
            usage: self.usage,
            first_usage: self.first_usage,
            interrupted: self.interrupted,
            api_error: self.api_error,
            ..Receipt::absent()
        }
    }
}

#[cfg(test)]
mod tests;
