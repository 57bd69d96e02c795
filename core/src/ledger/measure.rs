//! Measuring a transcript: all of it, or what was appended since the last time.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Account;
use crate::transcript::head::{Head, Parent, RowKind};
use crate::transcript::index::{RowKey, RowNo, flag};
use crate::transcript::json::Span;
use crate::transcript::judge::{Context, Judged};
use crate::transcript::media::hex;
use crate::transcript::reader::{End, Event, Reader};
use crate::transcript::receipt::Usage;
use crate::transcript::rows::Rows;
use crate::transcript::survey::{self, Survey};
use crate::transcript::{Category, ExtractRules, ItemKind, OwnRows, TranscriptError};

/// A transcript's ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedgerReport {
    /// Noise: what the budget counts, in bytes.
    pub total_bytes: u64,
    /// The part of the noise that reaches the model.
    pub context_bytes: u64,
    /// Speech, as the file holds it. Never counts against a budget.
    pub conversation_bytes: u64,
    /// Turns: consecutive human speech and all assistant speech up to the next.
    pub conversation_turns: u64,
    /// Noise by category.
    pub categories: BTreeMap<Category, u64>,
    /// Bytes that never reach the model, by kind.
    pub bookkeeping: BTreeMap<String, u64>,
    /// Bytes that could not be read.
    pub damage_bytes: u64,
    /// Images in human messages.
    pub preview_image_count: u64,
    /// Images that the model opened.
    pub original_image_view_count: u64,
    /// The file's size: the sum of everything above.
    pub file_size: u64,
    /// The usage of the last row of the model's on the main chain: how full the context is.
    pub water_level: Option<Usage>,
    /// From where the next measurement can go on.
    pub state: LedgerState,
    /// Whether everything was read, or only what was appended.
    pub full_scan: bool,
}

/// Where a measurement ended, and what it had found. Kept between turns; any JSON store will do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerState {
    /// Up to here the file was read: the end of its last complete line.
    offset: u64,
    lines: u64,
    /// SHA-256 over the bytes near the start and just before `offset`, in hexadecimal.
    prefix: String,
    account: Account,
    usage: Option<Usage>,
    /// The row the CLI would continue from, and those just above it.
    tip: Vec<String>,
}

/// How many rows above the tip are remembered: an appended row may hang on any of them without
/// changing the chain, as results of parallel tool calls do.
const TIP_ROWS: usize = 64;

/// How much of the prefix is compared, at either end. A transcript is only ever appended to; what
/// rewrites it rewrites its end.
const COMPARED: u64 = 64 << 10;

/// Measures a transcript. With a state of an earlier measurement of the same file only what was
/// appended is read, unless the file shrank or changed before that point, or an appended row changes
/// the chain (a rewind, a compaction, a `last-prompt` elsewhere).
///
/// # Errors
///
/// When the file cannot be read, or the accounts do not add up to its size. Blocking.
pub fn measure(
    path: &Path,
    rules: &ExtractRules,
    own: &OwnRows,
    resume: Option<&LedgerState>,
) -> Result<LedgerReport, TranscriptError> {
    let context = Context { rules, own };
    if let Some(state) = resume
        && let Some(report) = continued(path, context, state)?
    {
        return Ok(report);
    }
    let mut survey = Survey::of(path, context)?;
    report_of(&mut survey)
}

/// The report of a full scan.
pub(crate) fn report_of(survey: &mut Survey) -> Result<LedgerReport, TranscriptError> {
    let leaf = survey.leaf();
    let mut above = Vec::new();
    let mut next = leaf;
    let mut usage_row = None;
    for _ in 0..survey.index.len() {
        let Some(row) = next else { break };
        if above.len() < TIP_ROWS {
            above.push(row);
        }
        if survey.index.has(row, flag::USAGE) {
            usage_row = Some(row);
            break;
        }
        next = survey.index.parent(row);
    }
    while above.len() < TIP_ROWS
        && let Some(row) = above.last().and_then(|row| survey.index.parent(*row))
        && !above.contains(&row)
    {
        above.push(row);
    }
    let usage = usage_at(survey, usage_row)?;
    let tip =
        above.iter().filter_map(|row| survey.index.get(*row)).map(|entry| key_text(entry.key())).collect();
    let state = LedgerState {
        offset: survey.end.complete,
        lines: survey.end.complete_lines,
        prefix: prefix_digest(&survey.path, survey.end.complete)?,
        account: complete_account(survey)?,
        usage,
        tip,
    };
    Ok(report(&survey.account, survey.end.offset, usage, state, true))
}

fn usage_at(survey: &Survey, row: Option<RowNo>) -> Result<Option<Usage>, TranscriptError> {
    let Some(entry) = row.and_then(|row| survey.index.get(row)) else { return Ok(None) };
    let mut rows = Rows::open(&survey.path)?;
    let (_, head) = rows.read(entry)?;
    Ok(head.usage.map(Usage::from))
}

/// The account up to the last complete line: a line that is still being written is read again.
fn complete_account(survey: &Survey) -> Result<Account, TranscriptError> {
    let mut account = survey.account.clone();
    if survey.end.complete < survey.end.offset {
        // Rare (a killed writer): leave the torn part out by not continuing from this state.
        account = Account::default();
    }
    Ok(account)
}

fn report(
    account: &Account,
    size: u64,
    usage: Option<Usage>,
    state: LedgerState,
    full: bool,
) -> LedgerReport {
    LedgerReport {
        total_bytes: account.noise_total(),
        context_bytes: account.context,
        conversation_bytes: account.speech,
        conversation_turns: account.turns,
        categories: account.noise.clone(),
        bookkeeping: account.bookkeeping.clone(),
        damage_bytes: account.damage,
        preview_image_count: account.preview_images,
        original_image_view_count: account.original_images,
        file_size: size,
        water_level: usage,
        state,
        full_scan: full,
    }
}

fn key_text(key: RowKey) -> String {
    hex(key.bytes())
}

/// A digest of the bytes at the start of the file and of those before `offset`.
fn prefix_digest(path: &Path, offset: u64) -> Result<String, TranscriptError> {
    let mut file = survey::open(path)?;
    let mut hasher = Sha256::new();
    for (from, to) in [(0, offset.min(COMPARED)), (offset.saturating_sub(COMPARED), offset)] {
        file.seek(SeekFrom::Start(from)).map_err(TranscriptError::io(path, "read"))?;
        let mut bytes = Vec::new();
        (&mut file).take(to - from).read_to_end(&mut bytes).map_err(TranscriptError::io(path, "read"))?;
        hasher.update(&bytes);
    }
    Ok(hex(&hasher.finalize()))
}

/// What was appended, on top of a state; nothing when the state does not fit the file any more.
fn continued(
    path: &Path,
    context: Context<'_>,
    state: &LedgerState,
) -> Result<Option<LedgerReport>, TranscriptError> {
    let mut file = survey::open(path)?;
    let size = file.metadata().map_err(TranscriptError::io(path, "read"))?.len();
    if state.offset == 0
        || size < state.offset
        || state.account.total() != state.offset
        || prefix_digest(path, state.offset)? != state.prefix
    {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(state.offset)).map_err(TranscriptError::io(path, "read"))?;
    let mut more = Appended {
        context,
        account: state.account.clone(),
        judged: Judged::default(),
        usage: state.usage,
        tip: state.tip.clone(),
        leaf: None,
        same_chain: true,
    };
    let reader = Reader::new(file, path).starting_at(state.offset, state.lines);
    let (end, _) = reader.run(|event| {
        more.event(&event);
        Ok(())
    })?;
    // A last-prompt may name a row that is written just after it.
    let led_away = more.leaf.as_ref().is_some_and(|leaf| !more.tip.contains(leaf));
    if !more.same_chain || led_away || end.complete < end.offset {
        return Ok(None);
    }
    survey::check_sums(path, &more.account, end.offset)?;
    let next = LedgerState {
        offset: end.complete,
        lines: end.complete_lines,
        prefix: prefix_digest(path, end.complete)?,
        account: more.account.clone(),
        usage: more.usage,
        tip: more.tip,
    };
    let End { offset, .. } = end;
    Ok(Some(report(&more.account, offset, more.usage, next, false)))
}

/// Rows appended since the last measurement.
struct Appended<'a> {
    context: Context<'a>,
    account: Account,
    judged: Judged,
    usage: Option<Usage>,
    /// The newest first.
    tip: Vec<String>,
    /// The last `leafUuid`.
    leaf: Option<String>,
    same_chain: bool,
}

impl Appended<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Blank { bytes } => self.account.blank(*bytes),
            Event::Damage(damage) => self.account.damaged(damage.bytes),
            Event::Row { bytes, head, around, .. } => {
                self.context.judge(bytes, head, &mut self.judged);
                self.account.row(bytes, head, &self.judged, *around);
                self.follow(bytes, head);
            }
        }
    }

    fn follow(&mut self, row: &[u8], head: &Head) {
        let known = |id: Span| self.tip.contains(&key_text(RowKey::of(id.of(row))));
        // A message sent by a tool counts only once it is known to have been sent; that is looked up
        // in the whole file.
        let tool_message = self.judged.speech().any(|part| part.kind == ItemKind::ToolMessage);
        let moved = match head.kind {
            RowKind::LastPrompt => {
                self.leaf = head.leaf.map(|leaf| key_text(RowKey::of(leaf.of(row))));
                return;
            }
            RowKind::User | RowKind::Assistant | RowKind::Attachment | RowKind::System
                if !head.is_sidechain =>
            {
                match head.parent {
                    Parent::Row(parent) => !known(parent),
                    Parent::Null | Parent::Absent => !self.tip.is_empty(),
                }
            }
            _ => return,
        };
        if moved || tool_message {
            self.same_chain = false;
            return;
        }
        let Some(uuid) = head.uuid else { return };
        self.tip.insert(0, key_text(RowKey::of(uuid.of(row))));
        self.tip.truncate(TIP_ROWS);
        if self.judged.is_model
            && let Some(usage) = head.usage
        {
            self.usage = Some(usage.into());
        }
    }
}

impl LedgerReport {
    /// Noise as a share of noise and speech, four digits; 0 when there is neither.
    #[must_use]
    pub fn noise_ratio(&self) -> f64 {
        let total = self.total_bytes + self.conversation_bytes;
        if total == 0 {
            return 0.0;
        }
        // Rounded in whole numbers: the figure is compared with the original's.
        let rounded = (u128::from(self.total_bytes) * 20_000 / u128::from(total)).div_ceil(2);
        f64::from(u32::try_from(rounded).unwrap_or(10_000)) / 10_000.0
    }

    /// The fields of `dirty` (DESIGN 12) that come from the ledger; the caller adds its own.
    #[must_use]
    pub fn to_json(&self, source: &Path, dirty_budget_bytes: u64, reasons: &[String]) -> Value {
        json!({
            "total_bytes": self.total_bytes,
            "categories": self.categories,
            "preview_image_count": self.preview_image_count,
            "original_image_view_count": self.original_image_view_count,
            "conversation_bytes": self.conversation_bytes,
            "conversation_turns": self.conversation_turns,
            "noise_ratio": self.noise_ratio(),
            "dirty_budget_bytes": dirty_budget_bytes,
            "should_rebuild": !reasons.is_empty(),
            "reasons": reasons,
            "source_path": source,
            "context_bytes": self.context_bytes,
            "water_level": self.water_level.map(|usage| json!({
                "tokens": usage.total(),
                "input_tokens": usage.input_tokens,
                "cache_read": usage.cache_read,
                "cache_creation": usage.cache_creation,
                "output_tokens": usage.output_tokens,
            })),
            "bookkeeping": self.bookkeeping,
            "damage_bytes": self.damage_bytes,
            "file_size": self.file_size,
        })
    }
}
