//! What the rows after a message add up to.

use std::collections::{HashMap, HashSet};

use super::{After, ApiError, NOTE_PREFIX, Receipt, ReplyPart, Usage};
use crate::transcript::head::{BlockKind, Content, Head, RowKind};
use crate::transcript::index::RowKey;
use crate::transcript::json::{Span, decode};
use crate::transcript::judge::{Judged, Role};
use crate::transcript::rules::Rule;
use crate::transcript::speech::text_of;

/// What a turn's rows add up to.
#[derive(Default)]
pub(super) struct Turn {
    replies: Vec<ReplyPart>,
    first_usage: Option<Usage>,
    usage: Option<Usage>,
    /// Blocks seen of each message.
    blocks: HashMap<String, u32>,
    /// Calls in order: id, row, tool.
    calls: Vec<(RowKey, String, String)>,
    done: HashSet<RowKey>,
    /// The last row with a result, in file order.
    last_result_row: Option<String>,
    /// A message that was absorbed behind it.
    absorbed_row: Option<String>,
    /// Our marker of an open tail stands behind it.
    closed: bool,
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
    pub(super) fn is_parallel(&self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        if judged.is_model {
            let id = head.message_id.map(|id| decode(id.of(row)).text);
            return id.is_some_and(|id| self.blocks.contains_key(id.as_ref()));
        }
        head.blocks.iter().any(|block| block.kind == BlockKind::ToolResult)
    }

    /// Takes in one row; false when the next human message begins.
    pub(super) fn row(&mut self, row: &[u8], head: &Head, judged: &Judged) -> bool {
        match head.kind {
            RowKind::User => self.user(row, head, judged),
            RowKind::Assistant => {
                self.assistant(row, head, judged);
                true
            }
            RowKind::Attachment if judged.says(Role::Human) => {
                self.absorbed_row = head.uuid.map(|id| decode(id.of(row)).text.into_owned());
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
                self.last_result_row = head.uuid.map(|id| decode(id.of(row)).text.into_owned());
                self.absorbed_row = None;
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
            self.closed = true;
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
                let text = |span: Option<Span>| {
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

    pub(super) fn finish(self) -> Receipt {
        let open = self.calls.iter().rev().find(|(id, ..)| !self.done.contains(id));
        // What comes after a finished answer (a failed follow-up, an interrupt) takes nothing back.
        let after = if self.finished {
            After::Answered
        } else if let Some((_, row, tool)) = open {
            After::ToolOpen { row: row.clone(), tool: tool.clone(), last_result_row: self.last_result_row }
        } else if let Some(last_result_row) = self.last_result_row.filter(|_| !self.calls.is_empty()) {
            After::ToolsFinished { last_result_row }
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
            absorbed_row: self.absorbed_row,
            closed: self.closed,
            usage: self.usage,
            first_usage: self.first_usage,
            interrupted: self.interrupted,
            api_error: self.api_error,
            ..Receipt::absent()
        }
    }
}
