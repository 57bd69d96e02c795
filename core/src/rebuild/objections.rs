//! What speaks against a rebuild: messages that say what is wrong, where, and what to do, and the keys by
//! which a human's decisions about them are remembered (DESIGN 4, 6).

use sha2::{Digest, Sha256};

use crate::transcript::chain::Chain;
use crate::transcript::forks::Decisions;
use crate::transcript::index::{RowNo, flag};
use crate::transcript::json::decode;
use crate::transcript::rows::Rows;
use crate::transcript::survey::Survey;
use crate::transcript::{Branch, DamageReport, Decision, TranscriptError, UnknownShape};

use super::blocked::{BlockKind, Blocked};
use super::items::PlannedItem;
use super::settings::{PlanInput, RebuildSettings};
use super::words;

/// How many turns the poison pattern looks at.
const POISON_TURNS: u32 = 10;
/// How many hits block.
const POISON_HITS: u32 = 2;

/// Under this name a queued message without words is accepted as lost.
pub(super) const WORDLESS: &str = "queue-operation/wordless";

/// Second rows of a uuid: the same row twice is harmless, two different ones are not. Of those that a
/// human decided to carry the first one is put on the chain, too.
pub(super) fn conflicting_duplicates(
    survey: &mut Survey,
    chain: &mut Chain,
    decisions: &Decisions,
) -> Result<Vec<Blocked>, TranscriptError> {
    let mut blocked = Vec::new();
    if survey.index.duplicates().is_empty() {
        return Ok(blocked);
    }
    let mut rows = Rows::open(&survey.path)?;
    let mut carried: Vec<RowNo> = Vec::new();
    for (second, first_row) in survey.index.duplicates() {
        let (Some(second), Some(first)) = (survey.index.get(*second), survey.index.get(*first_row)) else {
            continue;
        };
        let mut look = |entry| -> Result<(TextKey, String), TranscriptError> {
            let (bytes, head) = rows.read(entry)?;
            let said = head.message.or(head.attachment).map_or(bytes, |span| span.of(bytes));
            let uuid = head.uuid.map_or_else(String::new, |id| decode(id.of(bytes)).text.into_owned());
            Ok((Sha256::digest(said).into(), uuid))
        };
        let ((said, uuid), (replaced, _)) = (look(second)?, look(first)?);
        if said == replaced || !(second.has(flag::SPEECH) || first.has(flag::SPEECH)) {
            continue;
        }
        let key = format!("duplicate/{uuid}");
        match decisions.get(&key) {
            Some(Decision::Drop) => continue,
            Some(Decision::Carry) => {
                carried.extend(Some(*first_row).filter(|_| first.has(flag::SPEECH)));
                continue;
            }
            Some(Decision::Accept) | None => {}
        }
        let message = format!(
            "lines {} and {} have the same uuid and say different things, and the CLI loads only the second: look at \
             both, then decide about the first with `kael-runner plan --decide {key}=drop` or `--decide {key}=carry`",
            first.line(),
            second.line()
        );
        let found = Blocked::new(BlockKind::DuplicateUuid, Some(second.line()), message);
        blocked.push(found.decidable(key, EITHER));
    }
    carried.sort_unstable();
    survey.join(chain, &carried);
    Ok(blocked)
}

type TextKey = [u8; 32];

const EITHER: &[Decision] = &[Decision::Drop, Decision::Carry];
const ACCEPT: &[Decision] = &[Decision::Accept];

pub(super) fn fork(branch: &Branch) -> Blocked {
    Blocked::new(BlockKind::Fork, Some(branch.first_line), branch.message())
        .decidable(branch.key.clone(), EITHER)
}

pub(super) fn unknown(shape: &UnknownShape) -> Blocked {
    Blocked::new(BlockKind::UnknownRow, Some(shape.line), shape.message())
        .decidable(shape.shape.clone(), ACCEPT)
}

pub(super) fn damaged(damage: &DamageReport, input: &PlanInput<'_>) -> Option<Blocked> {
    let count = damage.blocking();
    let key = damage.key();
    let decided = input.settings.decisions.get(&key) == Some(&Decision::Accept);
    if count == 0 || decided || input.accept_damage == Some(count) {
        return None;
    }
    let first = damage.places.iter().find(|place| place.kind.blocks())?;
    let places = if count == 1 { "one place".to_owned() } else { format!("{count} places") };
    let message = format!(
        "line {}: {} ({} bytes); {places} of this transcript cannot be read and may have held words: look at it, then \
         accept the loss with `kael-runner plan --decide damage={count}`, or for this plan alone with \
         --accept-damage {count}",
        first.line,
        first.kind.describe(),
        first.bytes
    );
    Some(Blocked::new(BlockKind::Damage, Some(first.line), message).decidable(key, ACCEPT))
}

pub(super) fn queued(line: u64) -> Blocked {
    let message = format!(
        "line {line}: a queued message was given to the running turn, and no row of this transcript says what its words \
         are: find out what was said, or send it again and let it be answered, then accept it with `kael-runner \
         plan --decide {WORDLESS}=accept`"
    );
    Blocked::new(BlockKind::QueuedWords, Some(line), message).decidable(WORDLESS, ACCEPT)
}

pub(super) struct Poison {
    pub(super) hits: u32,
    /// The first lines with a hit, and the words that matched.
    places: Vec<(u64, String)>,
}

impl Poison {
    /// Looks at the last turns.
    pub(super) fn of(items: &[PlannedItem], input: &PlanInput<'_>) -> Result<Self, TranscriptError> {
        let mut poison = Self { hits: 0, places: Vec::new() };
        let last = items.last().map_or(0, |item| item.turn);
        let mut rows = Rows::open(input.source)?;
        for item in items.iter().filter(|item| item.turn + POISON_TURNS > last && !item.is_new_marker) {
            let (bytes, head) = rows.at(item.offset, item.length as usize)?;
            for text in words::source_texts(item, bytes, head).blocks {
                for hit in input.settings.poison.find_iter(&text) {
                    poison.hits = poison.hits.saturating_add(1);
                    if poison.places.len() < 5 {
                        poison.places.push((item.line, hit.as_str().chars().take(60).collect()));
                    }
                }
            }
        }
        Ok(poison)
    }

    pub(super) fn objection(&self, settings: &RebuildSettings) -> Option<Blocked> {
        if self.hits < POISON_HITS {
            return None;
        }
        let places: Vec<String> =
            self.places.iter().map(|(line, hit)| format!("\"{hit}\" in line {line}")).collect();
        let lines: Vec<String> = self.places.iter().map(|(line, _)| line.to_string()).collect();
        let recorded = format!(
            "the poison pattern matches {} times in the last ten turns (line {}): `kael-runner plan` shows what",
            self.hits,
            lines.join(", ")
        );
        let message = format!(
            "the poison pattern matches {} times in the last ten turns ({}). An everyday word, or talk about the \
             pattern itself, trips it too: narrow poison_pattern (now {:?}), or confirm in spite of it: `kael-runner \
             request`, then `kael-runner confirm`",
            self.hits,
            places.join(", "),
            settings.poison.as_str()
        );
        let line = self.places.first().map(|(line, _)| *line);
        // What matched was said, and belongs in no operation's file.
        Some(Blocked { recorded: Some(recorded), ..Blocked::new(BlockKind::Poison, line, message) })
    }
}
