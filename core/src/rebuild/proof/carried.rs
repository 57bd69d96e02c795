//! The carried side: each item equals its source, and the rows are what every CLI resumes.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::copies::squash;
use super::{Check, ProofFailure, ProofInput, lines};
use crate::clock::Timestamp;
use crate::rebuild::candidate::{digest as texts_digest, identity};
use crate::rebuild::items::PlannedItem;
use crate::rebuild::words;
use crate::transcript::ItemKind;
use crate::transcript::Role;
use crate::transcript::head::Head;
use crate::transcript::json::{Span, decode};
use crate::transcript::judge::Take;
use crate::transcript::media::hex;
use crate::transcript::rows::Rows;
use crate::transcript::speech::take_text;

const CHECK: &str = "carried items";

/// SHA-256 of a text.
pub(super) type TextDigest = [u8; 32];

pub(super) fn digest(text: &str) -> TextDigest {
    Sha256::digest(text.as_bytes()).into()
}

/// An item as the candidate has it.
pub(super) struct ItemTexts {
    pub(super) kind: ItemKind,
    /// The row it is taken from.
    pub(super) offset: u64,
    /// The owner's limit cut it.
    pub(super) is_cut: bool,
    /// Its texts, without stamps.
    pub(super) texts: Box<[TextDigest]>,
}

/// What the dropped side needs to know of the candidate: its texts without stamps, as digests.
pub(super) struct Carried {
    /// All items with a row of their own in the source, in order.
    pub(super) items: Vec<ItemTexts>,
    /// SHA-256 of each text.
    pub(super) exact: HashSet<TextDigest>,
    /// The same of the texts with white space squashed, as copies have it.
    pub(super) squashed: HashSet<TextDigest>,
}

/// A row of a candidate, and nothing else: an unknown field fails.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(rename = "parentUuid")]
    parent: Option<String>,
    #[serde(rename = "isSidechain")]
    is_sidechain: bool,
    #[serde(rename = "type")]
    kind: String,
    message: Message,
    uuid: String,
    timestamp: String,
    #[serde(rename = "sessionId")]
    session: String,
    kael: Mark,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    role: String,
    #[serde(default)]
    model: Option<String>,
    content: Value,
}

#[derive(Deserialize)]
struct Mark {
    source: String,
    stamp: usize,
}

/// A text block, and nothing else: thinking, tool and image blocks fail.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextBlock {
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

pub(super) fn check(input: &ProofInput<'_>, checks: &mut Vec<Check>) -> Result<Carried, ProofFailure> {
    let plan = input.plan;
    let sums = plan.ledger.total_bytes
        + plan.ledger.conversation_bytes
        + plan.ledger.bookkeeping.values().sum::<u64>()
        + plan.ledger.damage_bytes;
    if sums != plan.source_len || plan.ledger.file_size != plan.source_len {
        let what = format!("the ledger accounts for {sums} of {} bytes", plan.source_len);
        return Err(ProofFailure::failed("ledger", what));
    }
    checks.push(Check { name: "ledger sums to the size of the source", count: sums });

    let mut walk = Walk {
        input,
        source: Rows::open(input.source)?,
        carried: Carried { items: Vec::new(), exact: HashSet::new(), squashed: HashSet::new() },
        at: 0,
        parent: None,
        last_time: None,
        last_offset: 0,
        out_of_order: 0,
        texts: 0,
    };
    let (sha256, len) = lines::each_row(input.candidate, |found, _| walk.row(found.line, found.bytes))?;
    let file = input.candidate_file;
    if sha256 != file.sha256 || len != file.len {
        let what = format!("the candidate is not the one that was written: {len} bytes, sha256 {sha256}");
        return Err(ProofFailure::failed("candidate digest", what));
    }
    if walk.at != plan.items.len() || file.rows != walk.at as u64 || file.manifest.len() != walk.at {
        let what = format!("{} items planned, {} in the candidate", plan.items.len(), walk.at);
        return Err(ProofFailure::failed(CHECK, what));
    }
    if walk.out_of_order != plan.out_of_order {
        let what = format!("{} items stand in front of earlier ones", walk.out_of_order);
        return Err(ProofFailure::failed("order", what));
    }
    let count = walk.at as u64;
    checks.push(Check { name: "items equal their source", count });
    checks.push(Check { name: "texts compared byte for byte", count: walk.texts });
    checks.push(Check { name: "ids, parents, times and order", count });
    Ok(walk.carried)
}

struct Walk<'a> {
    input: &'a ProofInput<'a>,
    source: Rows,
    carried: Carried,
    at: usize,
    parent: Option<String>,
    last_time: Option<Timestamp>,
    last_offset: u64,
    out_of_order: u64,
    texts: u64,
}

impl Walk<'_> {
    fn row(&mut self, line: u64, bytes: &[u8]) -> Result<(), ProofFailure> {
        let fail = |what: String| ProofFailure::failed(CHECK, format!("candidate line {line}: {what}"));
        let plan = self.input.plan;
        let row: Row =
            serde_json::from_slice(bytes).map_err(|error| fail(format!("not a row of ours: {error}")))?;
        let item = plan.items.get(self.at).ok_or_else(|| fail("more rows than items".to_owned()))?;
        let manifest = self.input.candidate_file.manifest.get(self.at);
        let manifest = manifest.ok_or_else(|| fail("no manifest entry".to_owned()))?;
        let (source, head) = self.source.at(item.offset, item.length as usize)?;
        let identity = identity(item, source, head);
        let id = Uuid::new_v5(plan.new_session.as_uuid(), format!("{}:{identity}", self.at).as_bytes())
            .to_string();
        let kind = words::row_type(item.role);
        let time: Option<Timestamp> = row.timestamp.parse().ok();
        for (holds, what) in [
            (row.kind == kind && row.message.role == kind, "the role is not the source's"),
            (row.parent == self.parent, "it does not hang on the row before it"),
            (!row.is_sidechain, "it is marked as a sidechain"),
            (row.uuid == id && manifest.item_id == id, "its uuid is not derived from its source and place"),
            (row.session == plan.new_session.to_string(), "it names another session"),
            (row.kael.source == identity && manifest.source_uuid == identity, "it names another source"),
            (
                manifest.position == self.at as u64 && manifest.role == kind,
                "the manifest names another place",
            ),
            (time.is_some() && time > self.last_time, "its time is not later than the one before"),
            (
                item.role == Role::Human || row.message.model.is_some_and(|m| !m.is_empty()),
                "no model is named",
            ),
        ] {
            if !holds {
                return Err(fail(what.to_owned()));
            }
        }
        let texts = texts(row.message.content, item.role).map_err(fail)?;
        let expected = expected(item, source, head);
        let injected = with_stamp(&texts, row.kael.stamp, item, source, head).map_err(fail)?;
        if injected != expected {
            return Err(fail(format!("the words are not those of line {} of the source", item.line)));
        }
        if manifest.injected_sha256 != texts_digest(&texts)
            || manifest.source_sha256 != texts_digest(&uncut(item, source, head))
        {
            return Err(fail("the manifest's digests are not those of the words".to_owned()));
        }
        let mut texts = Vec::with_capacity(injected.len());
        for text in injected {
            self.carried.squashed.insert(digest(&squash(&text)));
            let exact = digest(&text);
            self.carried.exact.insert(exact);
            texts.push(exact);
            self.texts += 1;
        }
        if !item.is_new_marker {
            self.carried.items.push(ItemTexts {
                kind: item.kind,
                offset: item.offset,
                is_cut: item.keep_chars > 0,
                texts: texts.into_boxed_slice(),
            });
        }
        self.out_of_order += u64::from(item.offset < self.last_offset);
        self.last_offset = item.offset;
        self.last_time = time;
        self.parent = Some(id);
        self.at += 1;
        Ok(())
    }
}

/// The texts of a candidate row's content: a string, or text blocks only, none of them empty.
fn texts(content: Value, role: Role) -> Result<Vec<String>, String> {
    let texts: Vec<String> = match content {
        Value::String(text) if role == Role::Human => vec![text],
        Value::Array(blocks) => {
            let mut texts = Vec::new();
            for block in blocks {
                let block: TextBlock =
                    serde_json::from_value(block).map_err(|error| format!("not a text block: {error}"))?;
                if block.kind != "text" {
                    return Err(format!("a block of kind {}", block.kind));
                }
                texts.push(block.text);
            }
            texts
        }
        _ => return Err("its content is neither words nor blocks".to_owned()),
    };
    if texts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
        return Err("it holds an empty text".to_owned());
    }
    Ok(texts)
}

/// Takes the stamp off and checks that it is the right one.
fn with_stamp(
    texts: &[String],
    stamp: usize,
    item: &PlannedItem,
    source: &[u8],
    head: &Head,
) -> Result<Vec<String>, String> {
    let mut texts = texts.to_vec();
    let Some(first) = texts.first_mut() else { return Ok(texts) };
    if stamp > 0 {
        let (front, words) = first.split_at_checked(stamp).ok_or("its stamp is longer than its text")?;
        let time = words::time(source, head).unwrap_or_default();
        if !item.stamped || front != format!("{}{time}]\n", words::STAMP_HEAD) {
            return Err("its stamp is not its source's time".to_owned());
        }
        *first = words.to_owned();
    }
    Ok(texts)
}

/// What the source says, after the owner's limit.
fn expected(item: &PlannedItem, source: &[u8], head: &Head) -> Vec<String> {
    let all = uncut(item, source, head);
    if item.keep_chars == 0 {
        return all;
    }
    let chars = |texts: &[String]| texts.iter().map(|text| text.chars().count() as u64).sum::<u64>();
    let cut = chars(&all).saturating_sub(item.keep_chars);
    let mut left = item.keep_chars;
    let mut kept = Vec::new();
    for text in all {
        let length = text.chars().count() as u64;
        if length > left {
            let front: String = text.chars().take(usize::try_from(left).unwrap_or(usize::MAX)).collect();
            kept.push(front + &words::cut_mark(cut));
            return kept;
        }
        left -= length;
        kept.push(text);
    }
    kept
}

/// What the source says, read with `serde_json` where it can read it.
fn uncut(item: &PlannedItem, source: &[u8], head: &Head) -> Vec<String> {
    if item.is_new_marker
        || head.kael.is_none() && matches!(item.kind, ItemKind::Summary | ItemKind::Snapshot)
    {
        return words::source_texts(item, source, head).blocks;
    }
    item.parts
        .iter()
        .map(|(span, take)| match take {
            Take::Text { stamp } => {
                let text = plain(*span, source);
                text.get(*stamp as usize..).map(str::to_owned).unwrap_or(text)
            }
            Take::Command { .. } | Take::Marker => take_text(*take, *span, source).0.into_owned(),
        })
        .collect()
}

/// A string's text. `serde_json` refuses lone surrogates and bytes that are no UTF-8; those only the
/// reader's own decoder can show.
fn plain(span: Span, source: &[u8]) -> String {
    let quoted = [b"\"", span.of(source), b"\""].concat();
    serde_json::from_slice(&quoted).unwrap_or_else(|_| decode(span.of(source)).text.into_owned())
}

/// SHA-256 in hexadecimal, as evidence has it.
pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (hex(&bytes) == text).then_some(bytes)
}
