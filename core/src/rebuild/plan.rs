//! The plan: what would be carried, what dropped and why, and what speaks against it. Read-only.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::estimate::{Calibration, Pair};
use crate::ids::{OperationId, SessionId};
use crate::ledger::{self, LedgerReport};
use crate::transcript::chain::Chain;
use crate::transcript::forks::Deciding;
use crate::transcript::index::{RowNo, flag};
use crate::transcript::judge::Context;
use crate::transcript::media::hex;
use crate::transcript::rows::Rows;
use crate::transcript::survey::Survey;
use crate::transcript::{
    Branch, DamageReport, Dropped, ExtractRules, Fate, ItemKind, OwnRows, Rule, TranscriptError,
};

use super::blocked::{BlockKind, Blocked};
use super::error::RebuildError;
use super::gain::{self, Gain};
use super::items::{self, PlannedItem};
use super::objections::{self, Poison};
use super::settings::PlanInput;
use super::turns;
use super::words;

/// The plan's figures, named as the original names them (DESIGN 12).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PlanStats {
    /// Turns in the source.
    pub source_turns: u32,
    /// Turns that are carried.
    pub selected_turns: u32,
    /// Unanswered turns among them: 0 or 1.
    pub open_tail_turns: u32,
    /// Turns that `carry_max_tokens` leaves out.
    pub dropped_oldest_turns: u32,
    /// The estimate of the carried speech. Not the water level: the overhead comes on top.
    pub estimated_tokens: u64,
    /// Hits of the poison pattern in the last ten turns.
    pub poison_score: u32,
    /// Whether a startup snapshot is carried.
    pub startup_frozen: bool,
}

/// What one rule drops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DropCount {
    /// The rule.
    pub rule: Rule,
    /// How many rows or blocks.
    pub count: u64,
    /// How many bytes of the file.
    pub bytes: u64,
    /// The first lines it is applied to.
    pub lines: Vec<u64>,
}

/// A plan. It holds no speech: items are spans into the source.
#[derive(Debug, Clone)]
pub struct Plan {
    /// SHA-256 of the source, in hexadecimal.
    pub source_sha256: String,
    /// Its length in bytes.
    pub source_len: u64,
    /// The session it belongs to.
    pub source_session: SessionId,
    /// The session to be made.
    pub new_session: SessionId,
    /// The operation that makes it.
    pub operation: Option<OperationId>,
    /// What is carried, in order.
    pub items: Vec<PlannedItem>,
    /// Figures.
    pub stats: PlanStats,
    /// The source's ledger.
    pub ledger: LedgerReport,
    /// What speaks against the rebuild; empty when nothing does.
    pub blocked: Vec<Blocked>,
    /// What is dropped, by rule.
    pub drops: Vec<DropCount>,
    /// Speech beside the chain.
    pub off_chain: Vec<Branch>,
    /// Damage in the source.
    pub damage: DamageReport,
    /// Lines of rows whose parent is missing and that were joined to an earlier row.
    pub stitched: Vec<u64>,
    /// Compactions that were read over.
    pub compactions: u32,
    /// Characters that could not be read and are carried as U+FFFD.
    pub replaced_characters: u64,
    /// What would be gained.
    pub gain: Gain,
    /// Uuids of unanswered rows that are not carried because the inbox sends them again.
    pub open_tail_resend: Vec<String>,
    /// Lines of messages sent by tools to a chat from which no words of a human's came. Carried all the
    /// same: the assistant said them.
    pub reply_elsewhere: Vec<u64>,
    /// CLI versions that wrote the source.
    pub versions: Vec<String>,
    /// The rule of each row in file order.
    pub(super) verdicts: Vec<u8>,
    /// Rows with speech that is not carried, by offset.
    pub(super) not_carried: HashMap<u64, Rule>,
    /// Rows of branches that somebody decided to drop, by offset.
    pub(super) decided: HashSet<u64>,
    /// What stretches of plain talk took, beside their estimates: for later plans.
    pub pairs: Vec<Pair>,
    /// How the estimates were corrected.
    pub calibration: Calibration,
    /// What the inbox knew; the proof compares.
    pub(super) own: OwnRows,
    /// The rules of extraction, as configured.
    pub(super) rules: ExtractRules,
    /// What the owner chose that drops words.
    pub(super) choices: Choices,
    /// Texts that `max_event_chars` cuts, by digest.
    pub(super) cut_texts: HashSet<[u8; 32]>,
    /// How many items stand in the source behind the one after them.
    pub(super) out_of_order: u64,
}

/// What the owner chose that drops words; the proof accepts such drops only where it was chosen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Choices {
    pub(super) drops_open_tail: bool,
    pub(super) drops_oldest: bool,
}

/// Plans a rebuild. Blocking; reads the source twice and writes nothing.
///
/// # Errors
///
/// When the source cannot be read or changes while it is. What speaks against the rebuild is in
/// [`Plan::blocked`].
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, RebuildError> {
    let context = Context { rules: input.rules, own: input.own };
    let settings = input.settings;
    let mut survey = Survey::of(input.source, context)?;
    let ledger = ledger::report_of(&mut survey)?;
    let mut chain = survey.chain()?;
    let conflicts = objections::conflicting_duplicates(&mut survey, &mut chain, &settings.decisions)?;
    let deciding = Deciding { decisions: &settings.decisions, otherwise: settings.off_chain };
    let off_chain = survey.branches(&mut chain, context, deciding)?;
    let mut collected = items::collect(&survey, &chain, context, settings)?;
    let reply_elsewhere = collected.elsewhere();
    // What this very conversation showed is better than what others did.
    let own = Calibration::from_pairs(&collected.pairs);
    let calibration = if own.pairs >= ENOUGH_PAIRS { own } else { settings.calibration };
    for item in &mut collected.items {
        item.tokens = calibration.correct(item.tokens);
    }
    let frozen = freeze(&survey, &chain, input, &mut collected)?;
    let selected = turns::select(collected.items, &collected.resend, &collected.from_inbox, settings);
    let poison = Poison::of(&selected.items, input)?;
    let gain = gain::weigh(settings, calibration, collected.first_usage, ledger.water_level, selected.tokens);
    let not_carried = not_carried(&survey, &chain, &selected.items, &selected.left_out);
    let decided = survey.decided();
    let open_tail_resend = resend_ids(&selected.left_out, input)?;

    let cut_texts = cut_texts(&selected.items, input)?;
    let out_of_order =
        selected.items.windows(2).filter(|pair| pair[1].offset < pair[0].offset).count() as u64;

    let accepted = input.rules.accepts(objections::WORDLESS);
    let wordless = if accepted { &[][..] } else { &survey.unseen };
    let mut blocked = Vec::new();
    blocked.extend(survey.unknown.iter().map(objections::unknown));
    blocked.extend(objections::damaged(&survey.damage, input));
    blocked.extend(conflicts);
    blocked.extend(off_chain.iter().filter(|branch| branch.fate == Fate::Undecided).map(objections::fork));
    blocked.extend(wordless.iter().map(|unseen| objections::queued(unseen.line)));
    if selected.items.is_empty() {
        let message =
            "nobody says anything in this transcript that could be carried: start a fresh session instead";
        blocked.push(Blocked::new(BlockKind::NothingSaid, None, message.to_owned()));
    }
    if selected.overflow {
        let message = format!(
            "the conversation takes about {} tokens and carry_max_tokens is {}: raise it, or set carry_overflow to \
             \"drop_oldest\" (the last 12 turns always stay)",
            selected.tokens, settings.carry_max_tokens
        );
        blocked.push(Blocked::new(BlockKind::Overflow, None, message));
    }
    blocked.extend(gain.objections(settings, chain.compactions));
    blocked.extend(poison.objection(settings));

    Ok(Plan {
        source_sha256: hex(&survey.sha256),
        source_len: survey.end.offset,
        source_session: input.source_session,
        new_session: input.new_session,
        operation: input.operation,
        stats: PlanStats {
            source_turns: selected.source_turns,
            selected_turns: selected.selected_turns,
            open_tail_turns: selected.open_tail_turns,
            dropped_oldest_turns: selected.dropped_oldest_turns,
            estimated_tokens: selected.tokens,
            poison_score: poison.hits,
            startup_frozen: frozen,
        },
        drops: drops(&survey, &selected.left_out, &off_chain),
        items: selected.items,
        ledger,
        blocked,
        off_chain,
        damage: survey.damage,
        stitched: chain.stitched,
        compactions: chain.compactions,
        replaced_characters: collected.replaced,
        gain,
        open_tail_resend,
        reply_elsewhere,
        versions: survey.versions.into_iter().collect(),
        pairs: newest(collected.pairs),
        calibration,
        verdicts: survey.verdicts,
        not_carried,
        decided,
        own: input.own.clone(),
        rules: input.rules.clone(),
        choices: Choices {
            drops_open_tail: !settings.include_open_tail,
            drops_oldest: selected.dropped_oldest_turns > 0,
        },
        cut_texts,
        out_of_order,
    })
}

/// From so many stretches on a conversation calibrates itself.
const ENOUGH_PAIRS: u32 = 3;
/// How many are kept for later plans.
const KEPT_PAIRS: usize = 32;

fn newest(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.drain(..pairs.len().saturating_sub(KEPT_PAIRS));
    pairs
}

/// Puts the startup snapshot in front, unless an earlier rebuild did.
fn freeze(
    survey: &Survey,
    chain: &Chain,
    input: &PlanInput<'_>,
    collected: &mut items::Collected,
) -> Result<bool, TranscriptError> {
    if collected.items.first().is_some_and(|item| item.kind == ItemKind::Snapshot) {
        return Ok(true);
    }
    if !input.settings.freeze_startup_snapshot {
        return Ok(false);
    }
    let Some(snapshot) = items::snapshot(survey, chain, input.source)? else { return Ok(false) };
    collected.items.insert(0, snapshot);
    // The numbers of all other items moved by one.
    collected.resend = collected.resend.iter().map(|at| at + 1).collect();
    collected.from_inbox = collected.from_inbox.iter().map(|at| at + 1).collect();
    Ok(true)
}

/// Rows that say something and are not carried, with the rule that explains it.
fn not_carried(
    survey: &Survey,
    chain: &Chain,
    items: &[PlannedItem],
    left_out: &[(Rule, PlannedItem)],
) -> HashMap<u64, Rule> {
    let carried: HashSet<u64> = items.iter().map(|item| item.offset).collect();
    let mut rules: HashMap<u64, Rule> = left_out.iter().map(|(rule, item)| (item.offset, *rule)).collect();
    let on: HashSet<RowNo> = chain.rows.iter().copied().collect();
    for (row, entry) in survey.index.rows() {
        if !entry.has(flag::SPEECH) || carried.contains(&entry.offset()) {
            continue;
        }
        let rule = if survey.is_replaced(row) {
            Rule::Duplicate
        } else if on.contains(&row) {
            // All it says is a message of a tool that was not sent.
            Rule::ToolUse
        } else {
            Rule::OffChain
        };
        rules.entry(entry.offset()).or_insert(rule);
    }
    rules
}

/// What the owner's limit cuts, by digest of the whole text.
fn cut_texts(items: &[PlannedItem], input: &PlanInput<'_>) -> Result<HashSet<[u8; 32]>, TranscriptError> {
    let mut texts = HashSet::new();
    let mut rows = Rows::open(input.source)?;
    for item in items.iter().filter(|item| item.keep_chars > 0) {
        let (bytes, head) = rows.at(item.offset, item.length as usize)?;
        for text in words::source_texts(item, bytes, head).blocks {
            texts.insert(Sha256::digest(text.as_bytes()).into());
        }
    }
    Ok(texts)
}

fn resend_ids(
    left_out: &[(Rule, PlannedItem)],
    input: &PlanInput<'_>,
) -> Result<Vec<String>, TranscriptError> {
    let mut ids = Vec::new();
    let mut rows = Rows::open(input.source)?;
    for (_, item) in left_out.iter().filter(|(rule, _)| *rule == Rule::OpenTailResend) {
        let (bytes, head) = rows.at(item.offset, item.length as usize)?;
        let kael = head.kael.and_then(|kael| kael.source);
        let known = [head.source_uuid, head.uuid, kael].into_iter().flatten();
        let mut known = known.map(|id| crate::transcript::json::decode(id.of(bytes)).text.into_owned());
        ids.extend(known.find(|id| input.own.resend.contains(id)));
    }
    ids.dedup();
    Ok(ids)
}

fn drops(survey: &Survey, left_out: &[(Rule, PlannedItem)], branches: &[Branch]) -> Vec<DropCount> {
    let mut all: BTreeMap<Rule, Dropped> = survey.drops.clone();
    for (rule, item) in left_out {
        let bytes: usize = item.parts.iter().map(|(span, _)| span.len()).sum();
        all.entry(*rule).or_default().add(item.line, bytes as u64);
    }
    for (_, first) in survey.index.duplicates() {
        let replaced = survey.index.get(*first).filter(|entry| entry.has(flag::SPEECH));
        if let Some(replaced) = replaced {
            all.entry(Rule::Duplicate).or_default().add(replaced.line(), u64::from(replaced.length()));
        }
    }
    for branch in branches {
        let rule = match branch.fate {
            Fate::Retry => Rule::Retry,
            Fate::AssistantOnly | Fate::WordsOnChain | Fate::Dropped => Rule::OffChain,
            Fate::Carried | Fate::Undecided => continue,
        };
        let dropped = all.entry(rule).or_default();
        for line in &branch.lines {
            dropped.add(*line, 0);
        }
    }
    all.into_iter()
        .map(|(rule, Dropped { count, bytes, lines })| DropCount { rule, count, bytes, lines })
        .collect()
}

impl Plan {
    /// All reasons against the rebuild in one text; empty when there are none.
    #[must_use]
    pub fn blocked_reason(&self) -> String {
        let messages: Vec<&str> = self.blocked.iter().map(|blocked| blocked.message.as_str()).collect();
        messages.join("; ")
    }

    /// How many rebuilds the candidate's oldest words have been through, this one included.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.items.iter().map(|item| item.generation).max().unwrap_or(0)
    }

    /// The same for an operation's file, which holds nothing that was said. With `in_spite` without what
    /// a human who was shown it has said yes to.
    #[must_use]
    pub fn blocked_record(&self, in_spite: bool) -> String {
        let left = self.blocked.iter().filter(|blocked| !(in_spite && blocked.kind.may_be_confirmed()));
        let texts = left.map(|blocked| blocked.recorded.as_deref().unwrap_or(&blocked.message));
        texts.collect::<Vec<_>>().join("; ")
    }

    /// Whether the words themselves are in doubt, so that not even a human may confirm.
    #[must_use]
    pub fn is_hard_blocked(&self) -> bool {
        self.blocked.iter().any(|blocked| blocked.kind.is_hard())
    }

    /// Whether the plan lists drops under a rule.
    pub(super) fn lists(&self, rule: Rule) -> bool {
        // A retry's rows are listed under their own name.
        let also = if rule == Rule::OffChain { Rule::Retry } else { rule };
        self.drops.iter().any(|drop| drop.rule == rule || drop.rule == also)
    }

    /// What a human's yes is bound to: the source, the selected items and the drops. The new
    /// session's id is not part of it.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.source_sha256.as_bytes());
        for item in &self.items {
            hasher.update(item.offset.to_be_bytes());
            hasher.update(item.number.to_be_bytes());
            hasher.update(item.keep_chars.to_be_bytes());
            hasher.update([u8::from(item.stamped), u8::from(item.is_new_marker)]);
        }
        for drop in &self.drops {
            hasher.update(drop.rule.name().as_bytes());
            hasher.update(drop.count.to_be_bytes());
            hasher.update(drop.bytes.to_be_bytes());
        }
        for blocked in &self.blocked {
            hasher.update(blocked.message.as_bytes());
        }
        for branch in &self.off_chain {
            hasher.update(branch.key.as_bytes());
            hasher.update(branch.fate.describe().as_bytes());
        }
        hasher.update(self.damage.key().as_bytes());
        hex(&hasher.finalize())
    }
}
