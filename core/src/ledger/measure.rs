//! Measuring a transcript: all of it, or what was appended since the last time.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::near::Near;
use super::tally::Tally;
use crate::transcript::judge::{Context, Judged};
use crate::transcript::media::hex;
use crate::transcript::reader::{Event, Reader};
use crate::transcript::receipt::Usage;
use crate::transcript::survey::{self, Survey};
use crate::transcript::{Category, ExtractRules, OwnRows, TranscriptError};

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
#[serde(default)]
pub struct LedgerState {
    /// Up to here the file was read: the end of its last complete line.
    offset: u64,
    lines: u64,
    /// SHA-256 over the bytes near the start and just before `offset`, in hexadecimal.
    prefix: String,
    tally: Tally,
    near: Near,
}

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
    let near = Near::of(survey)?;
    let level = near.level();
    let state = LedgerState {
        offset: survey.end.complete,
        lines: survey.end.complete_lines,
        prefix: prefix_digest(&survey.path, survey.end.complete)?,
        // A line that is still being written is read again.
        tally: survey.complete.as_ref().unwrap_or(&survey.tally).clone(),
        near,
    };
    Ok(report(&survey.tally, survey.end.offset, level, state, true))
}

fn report(tally: &Tally, size: u64, usage: Option<Usage>, state: LedgerState, full: bool) -> LedgerReport {
    let account = tally.settled();
    LedgerReport {
        total_bytes: account.noise_total(),
        context_bytes: account.context,
        conversation_bytes: account.speech,
        conversation_turns: account.turns,
        damage_bytes: account.damage,
        preview_image_count: account.preview_images,
        original_image_view_count: account.original_images,
        categories: account.noise,
        bookkeeping: account.bookkeeping,
        file_size: size,
        water_level: usage,
        state,
        full_scan: full,
    }
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
        || state.tally.account.total() != state.offset
        || prefix_digest(path, state.offset)? != state.prefix
    {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(state.offset)).map_err(TranscriptError::io(path, "read"))?;
    let mut more = Appended {
        context,
        tally: state.tally.clone(),
        complete: None,
        near: state.near.clone(),
        judged: Judged::default(),
        same_chain: true,
    };
    let reader = Reader::new(file, path).starting_at(state.offset, state.lines);
    let (end, _) = reader.run(|event| {
        more.event(&event);
        Ok(())
    })?;
    if !more.same_chain || !more.near.settle() {
        return Ok(None);
    }
    survey::check_sums(path, &more.tally.account, end.offset)?;
    let level = more.near.level();
    let Appended { tally, complete, near, .. } = more;
    let next = LedgerState {
        offset: end.complete,
        lines: end.complete_lines,
        prefix: prefix_digest(path, end.complete)?,
        tally: complete.unwrap_or_else(|| tally.clone()),
        near,
    };
    Ok(Some(report(&tally, end.offset, level, next, false)))
}

/// Rows appended since the last measurement.
struct Appended<'a> {
    context: Context<'a>,
    tally: Tally,
    /// The tally at the end of the last complete line.
    complete: Option<Tally>,
    near: Near,
    judged: Judged,
    same_chain: bool,
}

impl Appended<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Incomplete => self.complete = Some(self.tally.clone()),
            Event::Blank { bytes } => self.tally.account.blank(*bytes),
            Event::Damage(damage) => self.tally.account.damaged(damage.bytes),
            Event::Row { bytes, head, around, place } => {
                self.context.judge(bytes, head, &mut self.judged);
                self.tally.row(bytes, head, &self.judged, *around, place.line, &mut |_| ());
                // What only the rows around it can tell takes a look at all of them.
                self.same_chain &= self.judged.doubt.is_none() && self.near.follow(bytes, head, &self.judged);
            }
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
