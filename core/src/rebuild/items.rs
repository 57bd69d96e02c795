//! The items of a plan: which speech of the source goes into the candidate, as spans.

use std::collections::HashSet;
use std::path::Path;

use crate::estimate::{Count, Pair};
use crate::transcript::chain::Chain;
use crate::transcript::head::Head;
use crate::transcript::index::flag;
use crate::transcript::json::{Span, decode};
use crate::transcript::judge::{Context, Judged, Take};
use crate::transcript::receipt::Usage;
use crate::transcript::rows::Rows;
use crate::transcript::speech::{Utterance, queued, utterances};
use crate::transcript::survey::Survey;
use crate::transcript::{ItemKind, Role, TranscriptError};

use super::settings::RebuildSettings;
use super::words;

/// One item of a plan. It holds no speech: the words are read from the source when they are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedItem {
    /// Who says it.
    pub role: Role,
    /// What kind of speech it is.
    pub kind: ItemKind,
    /// The first byte of its row in the source. For a marker of ours: of the row before it.
    pub offset: u64,
    /// The length of that row.
    pub length: u32,
    /// The line of that row.
    pub line: u64,
    /// The turn it belongs to, counted from 0 over the whole conversation.
    pub turn: u32,
    /// How many rebuilds it has been through.
    pub generation: u64,
    /// The estimate of its tokens.
    pub tokens: u64,
    /// Which of its row's utterances it is.
    pub(crate) number: u32,
    pub(crate) is_string: bool,
    /// It gets a time stamp.
    pub(crate) stamped: bool,
    /// The marker at the end of an open tail, which has no row of its own in the source.
    pub(crate) is_new_marker: bool,
    /// Keep only that many characters; 0: all.
    pub(crate) keep_chars: u64,
    pub(crate) parts: Vec<(Span, Take)>,
}

/// What was collected.
pub(super) struct Collected {
    pub(super) items: Vec<PlannedItem>,
    pub(super) replaced: u64,
    /// The first usage on the chain, and the speech in front of it.
    pub(super) first_usage: Option<(Usage, Count)>,
    /// What stretches of plain talk took, beside their estimates.
    pub(super) pairs: Vec<Pair>,
    /// Items of the open tail whose rows the inbox sends again, or sent: by item number.
    pub(super) resend: HashSet<usize>,
    pub(super) from_inbox: HashSet<usize>,
    /// Chats that human words came from, by their ids.
    chats: HashSet<String>,
    /// Messages sent by tools: the line, and the chat they went to.
    sent_to: Vec<(u64, String)>,
}

impl Collected {
    /// Lines of messages that went to a chat from which no words of a human's came.
    pub(super) fn elsewhere(&self) -> Vec<u64> {
        let elsewhere = self.sent_to.iter().filter(|(_, chat)| !self.chats.contains(chat));
        elsewhere.map(|(line, _)| *line).collect()
    }
}

/// Reads the rows of a chain a second time and collects what is said in them.
pub(super) fn collect(
    survey: &Survey,
    chain: &Chain,
    context: Context<'_>,
    settings: &RebuildSettings,
) -> Result<Collected, TranscriptError> {
    let mut rows = Rows::open(&survey.path)?;
    let mut judged = Judged::default();
    let mut said = Count::default();
    let mut talk = Talk::default();
    let mut out = Collected {
        items: Vec::new(),
        replaced: 0,
        first_usage: None,
        pairs: Vec::new(),
        resend: HashSet::new(),
        from_inbox: HashSet::new(),
        chats: HashSet::new(),
        sent_to: Vec::new(),
    };
    for row in &chain.rows {
        let Some(entry) = survey.index.get(*row).copied() else { continue };
        // A summary is carried only where nothing of what it sums up is in the file.
        let lost_words = entry.has(flag::SUMMARY) && out.items.is_empty();
        #[cfg(test)]
        let lost_words = lost_words && !crate::transcript::judge::switched_off::is_off("summary");
        let weigh = out.first_usage.is_none() && entry.has(flag::USAGE);
        if !entry.has(flag::SPEECH) && !lost_words && !weigh {
            // What the model thought is not sent again; anything else that was sent is no talk.
            talk.is_plain &= entry.has(flag::MODEL);
            continue;
        }
        let (bytes, head) = rows.read(&entry)?;
        if weigh {
            out.first_usage = head.usage.map(|usage| (usage.into(), said));
        }
        if let Some(usage) = head.usage.filter(|_| entry.has(flag::USAGE)) {
            out.pairs.extend(talk.call(Usage::from(usage).input()));
        }
        context.judge(bytes, head, &mut judged);
        let all = if lost_words {
            summary(head)
        } else if entry.has(flag::QUEUED) {
            queued(head).into_iter().collect()
        } else {
            utterances(bytes, head, &judged, &|call| survey.sent.contains(&call))
        };
        let ids = own_ids(bytes, head);
        for utterance in all {
            let mut item = PlannedItem {
                role: utterance.role,
                kind: utterance.kind,
                offset: entry.offset(),
                length: entry.length(),
                line: entry.line(),
                turn: 0,
                generation: head.kael.map_or(0, |kael| kael.generation) + 1,
                tokens: 0,
                number: utterance.number,
                is_string: utterance.is_string,
                stamped: false,
                is_new_marker: false,
                keep_chars: 0,
                parts: utterance.parts,
            };
            let texts = words::source_texts(&item, bytes, head);
            let chars: u64 = texts.blocks.iter().map(|text| text.chars().count() as u64).sum();
            let max_event_chars = settings.max_event_chars;
            if max_event_chars > 0 && chars > max_event_chars && !head.kael.is_some_and(|kael| kael.cut) {
                item.keep_chars = max_event_chars;
            }
            match item.kind {
                ItemKind::ToolMessage => {
                    let chat = item.parts.first().and_then(|(span, _)| chat_of_call(bytes, head, *span));
                    out.sent_to.extend(chat.map(|chat| (item.line, chat)));
                }
                _ => out.chats.extend(texts.blocks.first().and_then(|text| chat_of_envelope(text))),
            }
            let mut count = Count::default();
            for text in words::cut(texts.blocks, item.keep_chars) {
                count.add(&text);
            }
            item.tokens = count.tokens();
            said = said.plus(count);
            talk.since = talk.since.plus(count);
            out.replaced += u64::from(texts.replaced);
            if ids.iter().any(|id| context.own.resend.contains(id)) {
                out.resend.insert(out.items.len());
            }
            if ids.iter().any(|id| context.own.human.contains(id)) {
                out.from_inbox.insert(out.items.len());
            }
            out.items.push(item);
        }
    }
    Ok(out)
}

/// Talk between two calls of the model: how much the second one sent more is what the words between took.
#[derive(Default)]
struct Talk {
    /// What the last call sent.
    sent: Option<u64>,
    since: Count,
    is_plain: bool,
}

impl Talk {
    /// Takes note of a call. Rows of one message repeat its figures.
    fn call(&mut self, sent: u64) -> Option<Pair> {
        let before = self.sent.replace(sent);
        if before == Some(sent) {
            return None;
        }
        let estimated = std::mem::take(&mut self.since).tokens();
        let was_plain = std::mem::replace(&mut self.is_plain, true);
        let measured = sent.checked_sub(before?)?;
        was_plain.then_some(Pair { estimated, measured })
    }
}

/// The chat in whose envelope a human's words came.
fn chat_of_envelope(text: &str) -> Option<String> {
    let (head, _) = text.trim_start().strip_prefix("<channel ")?.split_once('>')?;
    let (_, rest) = head.split_once("chat_id=\"")?;
    rest.split_once('"').map(|(chat, _)| chat.to_owned())
}

/// The chat that a call sends a message to.
fn chat_of_call(row: &[u8], head: &Head, words: Span) -> Option<String> {
    let inside = |span: &Span| span.start <= words.start && words.end <= span.end;
    let input = head.blocks.iter().filter_map(|block| block.input).find(inside)?;
    let input: serde_json::Value = serde_json::from_slice(input.of(row)).ok()?;
    match input.get("chat_id")? {
        serde_json::Value::String(chat) => Some(chat.clone()),
        serde_json::Value::Number(chat) => Some(chat.to_string()),
        _ => None,
    }
}

/// The uuids under which the inbox may know a row.
fn own_ids(row: &[u8], head: &Head) -> Vec<String> {
    let kael = head.kael.and_then(|kael| kael.source);
    [head.uuid, head.source_uuid, kael]
        .into_iter()
        .flatten()
        .map(|id| decode(id.of(row)).text.into_owned())
        .collect()
}

/// A compaction's summary as an utterance.
fn summary(head: &Head) -> Vec<Utterance> {
    use crate::transcript::head::{BlockKind, Content};
    let take = Take::Text { stamp: 0 };
    let (is_string, parts) = match head.content {
        Content::Text(text) => (true, vec![(text, take)]),
        Content::Blocks => {
            let texts = head.blocks.iter().filter(|block| block.kind == BlockKind::Text);
            (false, texts.filter_map(|block| block.text).map(|text| (text, take)).collect())
        }
        Content::Absent | Content::Odd(_) => return Vec::new(),
    };
    vec![Utterance { role: Role::Human, kind: ItemKind::Summary, number: 0, is_string, parts }]
}

/// The startup snapshot: what the CLI told the model at the session's start, carried once. It is a
/// leading `<system-reminder>` of the first user row, or an `instructions` attachment in front of
/// the first answer.
pub(super) fn snapshot(
    survey: &Survey,
    chain: &Chain,
    path: &Path,
) -> Result<Option<PlannedItem>, TranscriptError> {
    let mut rows = Rows::open(path)?;
    for row in chain.rows.iter().take(64) {
        let Some(entry) = survey.index.get(*row).copied() else { continue };
        if entry.has(flag::MODEL | flag::KAEL) {
            break;
        }
        let (bytes, head) = rows.read(&entry)?;
        let Some((span, is_string)) = words::snapshot_span(bytes, head) else { continue };
        let take = Take::Text { stamp: 0 };
        let mut item = PlannedItem {
            role: Role::Human,
            kind: ItemKind::Snapshot,
            offset: entry.offset(),
            length: entry.length(),
            line: entry.line(),
            turn: 0,
            generation: 1,
            tokens: 0,
            number: 0,
            is_string,
            stamped: false,
            is_new_marker: false,
            keep_chars: 0,
            parts: vec![(span, take)],
        };
        let mut count = Count::default();
        for text in words::source_texts(&item, bytes, head).blocks {
            count.add(&text);
        }
        item.tokens = count.tokens();
        return Ok(Some(item));
    }
    Ok(None)
}
