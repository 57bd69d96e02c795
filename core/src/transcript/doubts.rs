//! Rows that may be the runtime's although no field says so: the rows around them decide.
//!
//! Three wordings are the runtime's in one place and pasted by people in another. Each is taken for
//! words unless the transcript shows that the runtime wrote it:
//!
//! - a plan fed back: an earlier call showed that plan, or the runtime's own sentence closes it;
//! - what a hook says when it stops a prompt: it hangs on a message of a human's and the model never
//!   answered it;
//! - output of a command without its end: it hangs on the command.

use sha2::{Digest, Sha256};

use super::error::TranscriptError;
use super::head::{BlockKind, Head};
use super::index::{RowNo, flag};
use super::json::{Span, decode};
use super::judge::{Context, Doubt, ItemKind, Judged, PLAN_HEAD};
use super::rows::Rows;
use super::rules::{Category, Rule};
use super::speech::text_of;
use super::survey::Survey;

/// The sentence that newer versions put behind a plan that they feed back.
const PLAN_TAIL: &str = "If you need specific details from before exiting plan mode";
/// How far above or below a row its command, prompt or answer may stand.
const NEAR: usize = 16;

type TextKey = [u8; 16];

/// A row in doubt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubtful {
    row: RowNo,
    /// Its place among the verdicts.
    verdict: usize,
    doubt: Doubt,
    bytes: u64,
}

/// What was met in the first pass.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    rows: Vec<Doubtful>,
    /// Plans that were shown, with the row after which they are known.
    plans: Vec<(RowNo, TextKey)>,
}

impl Doubts {
    /// Takes note of a judged row; `row` is its number in the index, were it the next one.
    pub(super) fn row(&mut self, bytes: &[u8], judged: &Judged, row: RowNo, verdict: usize, indexed: bool) {
        for plan in judged.speech().filter(|part| part.kind == ItemKind::Plan) {
            self.plans.push((row, text_key(&text_of(plan, bytes).0)));
        }
        if let Some(doubt) = judged.doubt.filter(|_| indexed) {
            let bytes = judged.speech().map(|part| part.bytes).sum();
            self.rows.push(Doubtful { row, verdict, doubt, bytes });
        }
    }
}

fn text_key(text: &str) -> TextKey {
    let digest: [u8; 32] = Sha256::digest(text.trim().as_bytes()).into();
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    key
}

impl Survey {
    /// Decides every row in doubt, now that all rows around it are known.
    pub(super) fn resolve_doubts(
        &mut self,
        doubts: &Doubts,
        context: Context<'_>,
    ) -> Result<(), TranscriptError> {
        if doubts.rows.is_empty() {
            return Ok(());
        }
        let mut rows = Rows::open(&self.path)?;
        let mut judged = Judged::default();
        for doubtful in &doubts.rows {
            let Some(entry) = self.index.get(doubtful.row).copied() else { continue };
            let rule = match doubtful.doubt {
                Doubt::Plan => {
                    let (bytes, head) = rows.read(&entry)?;
                    let known =
                        |key| doubts.plans.iter().any(|(at, plan)| *at < doubtful.row && *plan == key);
                    is_fed_back(bytes, head, known).then_some(Rule::FedBackPlan)
                }
                Doubt::HookStop => self.is_hook_stop(doubtful.row).then_some(Rule::HookStop),
                Doubt::Output => {
                    let above = self.index.parent(doubtful.row).and_then(|row| self.index.get(row)).copied();
                    match above {
                        Some(above) => {
                            let (bytes, head) = rows.read(&above)?;
                            context.judge(bytes, head, &mut judged);
                            is_command(&judged).then_some(Rule::CommandOutput)
                        }
                        None => None,
                    }
                }
            };
            #[cfg(test)]
            let rule = rule.filter(|rule| super::judge::switched_off::RULE.get() != Some(*rule));
            if let Some(rule) = rule {
                self.not_words(*doubtful, rule);
            }
        }
        Ok(())
    }

    fn not_words(&mut self, doubtful: Doubtful, rule: Rule) {
        let line = self.index.get(doubtful.row).map_or(0, |entry| entry.line());
        self.index.clear(doubtful.row, flag::HUMAN);
        if let Some(verdict) = self.verdicts.get_mut(doubtful.verdict) {
            *verdict = rule.number();
        }
        let category = if rule == Rule::CommandOutput { Category::Command } else { Category::RuntimeText };
        self.tally.account.not_words(doubtful.bytes, category);
        self.drops.entry(rule).or_default().add(line, doubtful.bytes);
    }

    /// A hook's words take the place of the answer: above them stands the prompt that was stopped,
    /// below them no answer.
    fn is_hook_stop(&self, row: RowNo) -> bool {
        let above = std::iter::successors(self.index.parent(row), |row| self.index.parent(*row))
            .take(NEAR)
            .find(|row| self.index.has(*row, flag::SPEECH | flag::MODEL));
        let stopped = above.is_some_and(|row| self.index.has(row, flag::HUMAN));
        let mut below = vec![row];
        for next in row + 1..self.index.len().min(row + 64) {
            if !self.index.parent(next).is_some_and(|parent| below.contains(&parent)) {
                continue;
            }
            if self.index.has(next, flag::MODEL) {
                return false;
            }
            if !self.index.has(next, flag::HUMAN) {
                below.push(next);
            }
        }
        stopped
    }
}

fn is_fed_back(row: &[u8], head: &Head, shown: impl Fn(TextKey) -> bool) -> bool {
    use super::head::Content;
    let span = match head.content {
        Content::Text(span) => Some(span),
        Content::Blocks => {
            head.blocks.iter().find(|block| block.kind == BlockKind::Text).and_then(|block| block.text)
        }
        Content::Absent | Content::Odd(_) => None,
    };
    let text = span.map(|span: Span| decode(span.of(row)).text).unwrap_or_default();
    let Some(plan) = text.trim_start().strip_prefix(PLAN_HEAD) else { return false };
    match plan.rfind(PLAN_TAIL) {
        // The sentence ends in the path of the transcript that the plan comes from.
        Some(at) if plan.get(at..).is_some_and(|tail| tail.trim_end().ends_with(".jsonl")) => true,
        _ => shown(text_key(plan)),
    }
}

/// A slash command or a `!` command, with or without arguments.
fn is_command(judged: &Judged) -> bool {
    judged.parts.iter().any(|part| {
        matches!(part.rule, Rule::BareCommand | Rule::CommandOutput) || part.kind == ItemKind::Command
    })
}
