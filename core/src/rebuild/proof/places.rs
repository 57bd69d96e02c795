//! Where rows stand: what can only be said once all rows are known, by the proof's own tree.

use std::collections::HashSet;

use super::ProofFailure;
use super::dropped::{Sweep, fail};
use super::tree::Nature;
use crate::transcript::{ItemKind, Rule};

/// What can only be said once all rows are known.
pub(super) enum Later {
    /// A row with speech that is not carried, under this rule; whether all its words are carried
    /// elsewhere, and whether it is a human's.
    NotCarried { rule: Rule, words_elsewhere: bool, human: bool },
    /// A hook's words in the place of an answer.
    HookStop,
    /// Output of a command that stands above it.
    Output,
    /// A summary that was dropped.
    Summary,
    /// A carried plan that was shown before.
    CarriedPlan,
    /// A carried text that reads like what a hook says.
    CarriedHookStop,
    /// A carried text that reads like output of a command.
    CarriedOutput,
}

impl Sweep<'_> {
    /// Where rows stand: what is said to be off the conversation is, and what hangs on it is not.
    pub(super) fn places(&mut self) -> Result<u64, ProofFailure> {
        self.tree.settle();
        let mut count = self.order()?;
        for (line, offset, later) in &self.later {
            count += 1;
            let (line, offset) = (*line, *offset);
            let wrong = match later {
                Later::NotCarried { rule, words_elsewhere, human } => {
                    self.wrongly_left_out(*rule, offset, *words_elsewhere, *human)
                }
                Later::HookStop => (!self.is_hooks(offset)).then_some("no hook stopped a prompt there"),
                Later::Output => (!self.is_output(offset)).then_some("no command stands above it"),
                Later::CarriedPlan => Some("it is a plan that is fed back, and carried as a human's"),
                Later::CarriedHookStop => {
                    self.is_hooks(offset).then_some("it is carried, and a hook said it")
                }
                Later::CarriedOutput => {
                    self.is_output(offset).then_some("it is carried, and a command's output")
                }
                // Only what it sums up may take its place.
                Later::Summary => (self.tree.first() == Some((offset, Nature::Summary)))
                    .then_some("nothing of what it sums up is in the file"),
            };
            if let Some(wrong) = wrong {
                return fail("places", format!("line {line} does not belong where it is put: {wrong}"));
            }
        }
        for (line, _, call, explained) in &self.calls {
            count += 1;
            let sent = self.succeeded.contains(&call.id);
            if sent && !explained && !self.has(&call.text) {
                return fail(
                    "messages of tools",
                    format!("line {line} holds a sent message that is not carried"),
                );
            }
        }
        let sent: HashSet<u64> = self
            .calls
            .iter()
            .filter(|(.., call, _)| self.succeeded.contains(&call.id))
            .map(|(_, offset, ..)| *offset)
            .collect();
        for item in self.carried.items.iter().filter(|item| item.kind == ItemKind::ToolMessage) {
            if !sent.contains(&item.offset) {
                return fail("items", "a message of a tool is carried that was never sent".to_owned());
            }
        }
        Ok(count)
    }

    /// A hook's words stand in the place of an answer.
    fn is_hooks(&self, offset: u64) -> bool {
        self.tree.above(offset, true) == Some(Nature::Human) && !self.tree.is_answered(offset)
    }

    /// Output hangs on its command.
    fn is_output(&self, offset: u64) -> bool {
        self.tree.above(offset, false) == Some(Nature::Command)
    }

    /// Why a row with speech should have been carried.
    fn wrongly_left_out(
        &self,
        rule: Rule,
        offset: u64,
        words_elsewhere: bool,
        human: bool,
    ) -> Option<&'static str> {
        let choices = self.plan.choices;
        let holds = match rule {
            Rule::OffChain | Rule::Retry => {
                if self.tree.is_on(offset) {
                    return Some("it is part of the conversation");
                }
                !human || words_elsewhere || self.plan.decided.contains(&offset)
            }
            Rule::Duplicate => self.tree.is_replaced(offset),
            Rule::ToolUse => true,
            Rule::OpenTailResend => true,
            Rule::OpenTailExcluded => choices.drops_open_tail && !self.is_before_an_answer(offset),
            Rule::DroppedOldest => choices.drops_oldest && self.is_before_all_items(offset),
            _ => false,
        };
        (!holds).then_some("nothing explains that")
    }

    /// Whether the row stands in front of everything that is carried, the snapshot apart.
    fn is_before_all_items(&self, offset: u64) -> bool {
        let Some(place) = self.tree.place(offset) else { return true };
        let items = self.carried.items.iter().filter(|item| item.kind != ItemKind::Snapshot);
        items.filter_map(|item| self.tree.place(item.offset)).all(|other| place < other)
    }

    /// Whether something of the assistant's is carried from behind the row.
    fn is_before_an_answer(&self, offset: u64) -> bool {
        let answers = [ItemKind::Plan, ItemKind::ToolMessage];
        self.carried.items.iter().any(|item| item.offset > offset && answers.contains(&item.kind))
    }

    /// Items from the conversation stand in its order.
    fn order(&self) -> Result<u64, ProofFailure> {
        let mut last = None;
        let mut count = 0;
        for place in self.carried.items.iter().filter_map(|item| self.tree.place(item.offset)) {
            if last.is_some_and(|last| place < last) {
                return fail("order", "two items do not stand in the order of the conversation".to_owned());
            }
            last = Some(place);
            count += 1;
        }
        Ok(count)
    }
}
