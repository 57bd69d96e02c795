//! The dropped side: everything under a user, assistant, attachment or queue row is carried, or its
//! drop is explained by what the row itself says and by where it stands (DESIGN 6, evidence a to d).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::carried::{Carried, TextDigest, digest, from_hex};
use super::copies::{self, Copies, squash};
use super::paths::{is_result_path, is_spoken_path, walk};
use super::places::Later;
use super::row::{self, Envelope};
use super::shapes::{self, SpokenCall, Writer, at};
use super::tree::{Nature, Tree};
use super::{Check, ProofFailure, ProofInput, lines, noise};
use crate::rebuild::plan::Plan;
use crate::transcript::Rule;
use crate::transcript::drift::{is_known_field, is_wordy};

pub(super) fn check(
    input: &ProofInput<'_>,
    carried: &Carried,
    checks: &mut Vec<Check>,
) -> Result<(), ProofFailure> {
    let plan = input.plan;
    let mut items: Vec<(u64, usize)> =
        carried.items.iter().enumerate().map(|(at, item)| (item.offset, at)).collect();
    items.sort_unstable();
    let mut sweep = Sweep {
        plan,
        carried,
        items,
        tree: Tree::of(plan.verdicts.len()),
        copies: Copies::default(),
        dropped: HashSet::new(),
        dropped_squashed: HashSet::new(),
        dropped_rows: HashSet::new(),
        by_rule: HashMap::new(),
        plans: HashSet::new(),
        calls: Vec::new(),
        succeeded: HashSet::new(),
        later: Vec::new(),
        row: 0,
        strings: 0,
        said: 0,
    };
    let (sha256, len) =
        lines::each_row(input.source, |found, read| sweep.row(found.line, found.offset, read))?;
    if sha256 != plan.source_sha256 || len != plan.source_len {
        let what = format!("the source changed since it was planned: {len} bytes, sha256 {sha256}");
        return Err(ProofFailure::failed("source digest", what));
    }
    if sweep.row != plan.verdicts.len() {
        let what = format!("{} rows read by the plan, {} by the proof", plan.verdicts.len(), sweep.row);
        return Err(ProofFailure::failed("rows", what));
    }
    let places = sweep.places()?;
    checks.push(Check { name: "rows split and decoded a second time", count: sweep.row as u64 });
    checks.push(Check { name: "strings carried or explained", count: sweep.strings });
    checks.push(Check { name: "items taken from places where words belong", count: sweep.said });
    let by_rule: u64 = sweep.by_rule.values().sum();
    checks.push(Check { name: "dropped rows with the shape of their rule", count: by_rule });
    checks.push(Check { name: "rows placed on or off the conversation a second time", count: places });
    sweep.evidence(input, checks)?;
    let Sweep { copies, dropped_squashed, .. } = sweep;
    copies::find(input, carried, copies, &dropped_squashed, checks)
}

pub(super) struct Sweep<'a> {
    pub(super) plan: &'a Plan,
    pub(super) carried: &'a Carried,
    /// Items by the offset of the row that they are taken from.
    pub(super) items: Vec<(u64, usize)>,
    pub(super) tree: Tree,
    pub(super) copies: Copies,
    /// Texts of rows that are not carried and are listed as such.
    pub(super) dropped: HashSet<TextDigest>,
    pub(super) dropped_squashed: HashSet<TextDigest>,
    pub(super) dropped_rows: HashSet<String>,
    pub(super) by_rule: HashMap<Rule, u64>,
    /// Plans that were shown so far.
    pub(super) plans: HashSet<TextDigest>,
    /// Messages sent by tools: line, offset, call and whether the row itself is dropped.
    pub(super) calls: Vec<(u64, u64, SpokenCall, bool)>,
    pub(super) succeeded: HashSet<String>,
    pub(super) later: Vec<(u64, u64, Later)>,
    pub(super) row: usize,
    pub(super) strings: u64,
    pub(super) said: u64,
}

pub(super) fn fail<T>(check: &'static str, what: String) -> Result<T, ProofFailure> {
    Err(ProofFailure::failed(check, what))
}

impl Sweep<'_> {
    fn row(&mut self, line: u64, offset: u64, read: Option<row::Read>) -> Result<(), ProofFailure> {
        let verdict = self.plan.verdicts.get(self.row).and_then(|number| Rule::from_number(*number));
        self.row += 1;
        let Some(row::Read { envelope, value }) = read else {
            return fail("decoder", format!("line {line} could not be decoded a second time"));
        };
        let kind = envelope.kind.as_str();
        let empty = Value::Null;
        let value = value.as_ref().unwrap_or(&empty);
        let message = at(value, "/message/id").and_then(Value::as_str);
        self.tree.push(&envelope, offset, self.nature(&envelope, value), message);
        if self.has_items(offset) && value.is_null() {
            return fail("items", format!("line {line} is carried and of a kind that holds no words"));
        }
        if value.is_null() {
            return Ok(());
        }
        let Some(verdict) = verdict else { return fail("rows", format!("line {line} has no verdict")) };
        let mut said = 0;
        for item in self.items_at(offset).iter().filter_map(|(_, at)| self.carried.items.get(*at)) {
            said += 1;
            if let Some(what) = noise::objection(item, kind, value, self.plan) {
                return fail("items", format!("line {line} is carried although {what}"));
            }
        }
        self.said += said;
        self.carried_in_doubt(line, offset, kind, value);
        self.copies.row(line, kind, value, &self.plan.rules.injected_tags);
        match kind {
            "user" | "attachment" | "assistant" | "system" => {
                self.speech(line, offset, kind, value, verdict)?;
            }
            "queue-operation" => self.queued(offset, value),
            _ => {}
        }
        if matches!(kind, "user" | "attachment" | "queue-operation") {
            self.sweep(line, kind, value, verdict)?;
        }
        Ok(())
    }

    /// The items that are taken from the row at an offset.
    fn items_at(&self, offset: u64) -> &[(u64, usize)] {
        let from = self.items.partition_point(|(at, _)| *at < offset);
        let to = self.items.partition_point(|(at, _)| *at <= offset);
        self.items.get(from..to).unwrap_or_default()
    }

    fn has_items(&self, offset: u64) -> bool {
        !self.items_at(offset).is_empty()
    }

    /// Wordings that are the runtime's in one place and a human's in another: what is carried of them
    /// is looked at again where the rows around it are known.
    fn carried_in_doubt(&mut self, line: u64, offset: u64, kind: &str, row: &Value) {
        let typed = ["permissionMode", "thinkingMetadata", "todos"].iter().any(|key| row.get(*key).is_some());
        if kind != "user" || !self.has_items(offset) || shapes::writer(row, &self.plan.own) != Writer::Unsaid
        {
            return;
        }
        let [text] = shapes::spoken_places(kind, row)[..] else { return };
        if let Some((plan, closed)) = shapes::fed_back_plan(text) {
            if closed || self.plans.contains(&digest(plan)) {
                self.later.push((line, offset, Later::CarriedPlan));
            }
        } else if shapes::is_hook_stop(text) && !typed {
            self.later.push((line, offset, Later::CarriedHookStop));
        } else if shapes::opens_output(text) && !typed {
            self.later.push((line, offset, Later::CarriedOutput));
        }
    }

    /// What a row is, for the proof's own tree.
    fn nature(&self, envelope: &Envelope, row: &Value) -> Nature {
        let is = |key: &str| row.get(key) == Some(&Value::Bool(true));
        match envelope.kind.as_str() {
            "assistant" => {
                let made_up = at(row, "/message/model").and_then(Value::as_str) == Some("<synthetic>");
                // In a candidate nothing is made up, whatever model is named.
                let own = row.get("kael").is_some_and(Value::is_object);
                if is("isApiErrorMessage") || (made_up && !own) { Nature::Other } else { Nature::Model }
            }
            "user" if is("isCompactSummary") => Nature::Summary,
            "user" if !shapes::results(row).is_empty() => Nature::Result,
            "user" => {
                let texts = shapes::spoken_places("user", row);
                let command = texts
                    .iter()
                    .any(|text| shapes::typed_command(text).is_some() || shapes::opens_output(text));
                if shapes::writer(row, &self.plan.own) == Writer::Other {
                    Nature::Other
                } else if command {
                    Nature::Command
                } else {
                    Nature::Human
                }
            }
            "attachment" if !shapes::spoken_places("attachment", row).is_empty() => Nature::Human,
            "system"
                if shapes::spoken_places("system", row)
                    .iter()
                    .any(|text| shapes::local_command(text).is_some()) =>
            {
                Nature::Command
            }
            _ => Nature::Other,
        }
    }

    /// Every text where words belong is carried, or the row says why not.
    fn speech(
        &mut self,
        line: u64,
        offset: u64,
        kind: &str,
        row: &Value,
        verdict: Rule,
    ) -> Result<(), ProofFailure> {
        let listed = self.plan.not_carried.get(&offset).copied();
        if verdict == Rule::Spoken && listed.is_none() && !self.has_items(offset) {
            return fail(
                "dropped rows",
                format!("line {line} says something, is not carried, and no drop names it"),
            );
        }
        if let Some(rule) = listed {
            self.dropped_rows.insert(row.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned());
            if !self.plan.lists(rule) {
                let what = format!("line {line} is dropped as {}, which the plan does not list", rule.name());
                return fail("dropped rows", what);
            }
        }
        // A row that all of was left out; that of a message that was not sent is none.
        let left_out = listed.is_some_and(|rule| rule != Rule::ToolUse);
        let accepted = verdict == Rule::AcceptedUnknown;
        let explained = left_out || accepted || shapes::whole_row(verdict, row, &self.plan.own);
        let mut words_elsewhere = true;
        let texts = shapes::spoken_places(kind, row);
        for text in &texts {
            self.strings += 1;
            if self.is_carried(text, row) {
                continue;
            }
            words_elsewhere &= text.trim().is_empty();
            let because = explained || self.explains(kind, row, verdict, text, texts.len(), (line, offset));
            if !because {
                let what = format!(
                    "line {line} holds words that are not carried; they were dropped as {}, and the row does not look \
                     like that",
                    verdict.name()
                );
                return fail("dropped rows", what);
            }
            self.dropped.insert(digest(text));
            self.dropped_squashed.insert(digest(&squash(text)));
            *self.by_rule.entry(listed.unwrap_or(verdict)).or_default() += 1;
        }
        if let Some(rule) = listed.filter(|_| verdict == Rule::Spoken) {
            let human = kind != "assistant";
            self.later.push((line, offset, Later::NotCarried { rule, words_elsewhere, human }));
        }
        if verdict == Rule::CompactSummary && !self.has_items(offset) {
            self.later.push((line, offset, Later::Summary));
        }
        self.derived(line, offset, kind, row, explained)
    }

    /// Whether a text that is not carried explains itself.
    fn explains(
        &mut self,
        kind: &str,
        row: &Value,
        verdict: Rule,
        text: &str,
        texts: usize,
        (line, offset): (u64, u64),
    ) -> bool {
        if text.trim().is_empty() {
            return true;
        }
        if kind == "system" {
            let typed = shapes::local_command(text);
            return typed.is_none_or(|typed| self.carried.exact.contains(&digest(&typed)));
        }
        if kind != "user" {
            return kind == "attachment" && shapes::is_runtime_text(text, &self.plan.rules.injected_tags);
        }
        let tags = &self.plan.rules.injected_tags;
        match shapes::writer(row, &self.plan.own) {
            Writer::Ours => return false,
            // A field vouches for the words, not for what an editor put beside them.
            Writer::Human => return texts > 1 && shapes::is_injected(text, tags),
            Writer::Other | Writer::Unsaid => {}
        }
        if shapes::is_runtime_text(text, tags) {
            return true;
        }
        if let Some(typed) = shapes::typed_command(text) {
            return shapes::is_bare_command(text, &typed) || self.carried.exact.contains(&digest(&typed));
        }
        match verdict {
            Rule::FedBackPlan => shapes::fed_back_plan(text)
                .is_some_and(|(plan, closed)| closed || self.plans.contains(&digest(plan))),
            Rule::HookStop if shapes::is_hook_stop(text) => {
                self.later.push((line, offset, Later::HookStop));
                true
            }
            Rule::CommandOutput if shapes::opens_output(text) => {
                self.later.push((line, offset, Later::Output));
                true
            }
            _ => false,
        }
    }

    /// Words that stand elsewhere than in a row's texts: plans and messages in calls of tools, reasons
    /// for refusals, answers, and images that stand for themselves.
    fn derived(
        &mut self,
        line: u64,
        offset: u64,
        kind: &str,
        row: &Value,
        explained: bool,
    ) -> Result<(), ProofFailure> {
        for (id, succeeded) in shapes::results(row) {
            if succeeded {
                self.succeeded.insert(id);
            }
        }
        if kind == "assistant" {
            for call in shapes::spoken_calls(row, &self.plan.rules) {
                self.strings += 1;
                if call.is_plan {
                    self.plans.insert(digest(call.text.trim()));
                    if !explained && !self.has(&call.text) {
                        return fail("plans", format!("line {line} shows a plan that is not carried"));
                    }
                } else {
                    self.calls.push((line, offset, call, explained));
                }
            }
            return Ok(());
        }
        if explained || kind != "user" {
            return Ok(());
        }
        for answer in shapes::answers(row) {
            self.strings += 1;
            if !answer.iter().all(|text| self.has(text)) {
                return fail(
                    "answers",
                    format!("line {line} holds an answer of a human's that is not carried"),
                );
            }
        }
        for forms in shapes::refusals(row) {
            self.strings += 1;
            if !forms.iter().any(|form| self.has(form)) {
                return fail("refusals", format!("line {line} holds a human's reason that is not carried"));
            }
        }
        let silent = shapes::spoken_places(kind, row).is_empty() && shapes::results(row).is_empty();
        let noise = shapes::writer(row, &self.plan.own) == Writer::Other;
        if silent && !noise && shapes::has_media(row) && !self.has_items(offset) {
            return fail("images", format!("line {line} is an image of a human's that left no marker"));
        }
        Ok(())
    }

    pub(super) fn has(&self, text: &str) -> bool {
        let text = digest(text);
        self.carried.exact.contains(&text) || self.plan.cut_texts.contains(&text)
    }

    /// A queued message whose words are left out is one of the listed drops.
    fn queued(&mut self, offset: u64, row: &Value) {
        let listed = self.plan.not_carried.get(&offset).is_some_and(|rule| self.plan.lists(*rule));
        if listed && let Some(text) = row.get("content").and_then(Value::as_str) {
            self.dropped.insert(digest(text));
            self.dropped_squashed.insert(digest(&squash(text)));
        }
    }

    /// A text, without the stamp that an earlier rebuild recorded, is a carried one.
    fn is_carried(&self, text: &str, row: &Value) -> bool {
        let stamp = at(row, "/kael/stamp").and_then(Value::as_u64).unwrap_or(0);
        let unstamped = usize::try_from(stamp).ok().and_then(|stamp| text.get(stamp..)).unwrap_or(text);
        [text, unstamped].iter().any(|text| self.carried.exact.contains(&digest(text)))
            // A text that the owner's limit cut: its item is in the plan as cut.
            || self.plan.cut_texts.contains(&digest(unstamped))
    }

    /// Every string of some length that stands where no words belong is of a known shape.
    fn sweep(&mut self, line: u64, kind: &str, row: &Value, verdict: Rule) -> Result<(), ProofFailure> {
        let mut path = Vec::new();
        let dropped_attachment = matches!(verdict, Rule::Attachment | Rule::Bookkeeping | Rule::Sidechain);
        let mut unknown = None;
        walk(row, &mut path, &mut |path, text| {
            self.strings += 1;
            // The cheapest first: nearly every string is short, or an id, or stands at its place.
            if text.len() < 6 || matches!(path, ["uuid" | "type"] | ["message", "content"]) || !is_wordy(text)
            {
                return;
            }
            let spoken = is_spoken_path(kind, path, row);
            let inside = kind == "attachment" && path.first() == Some(&"attachment") && dropped_attachment;
            let copy = kind == "queue-operation" && path == ["content"];
            let noise = spoken || inside || copy || is_result_path(path, row);
            if noise || is_known_field(kind, path) || verdict == Rule::AcceptedUnknown {
                return;
            }
            let name = path.join(".");
            let accepted = self.plan.rules.accepts(&format!("field/{kind}.{name}"));
            if !accepted && !self.carried.exact.contains(&digest(text)) {
                unknown.get_or_insert(name);
            }
        });
        match unknown {
            None => Ok(()),
            Some(path) => fail(
                "strings",
                format!(
                    "line {line} holds words at {path}, where this version knows of none: look at it, and report the \
                     shape of the row"
                ),
            ),
        }
    }

    /// What our inbox sent and our outbox took is carried, or its drop is listed (evidence b).
    fn evidence(&self, input: &ProofInput<'_>, checks: &mut Vec<Check>) -> Result<(), ProofFailure> {
        let own = &self.plan.own;
        let known = |text: &str| {
            from_hex(text).is_some_and(|text| {
                self.carried.exact.contains(&text)
                    || self.dropped.contains(&text)
                    || self.plan.cut_texts.contains(&text)
            })
        };
        for sent in &input.evidence.sent {
            let id = &sent.row_uuid;
            let listed =
                own.abandoned.contains(id) || own.resend.contains(id) || self.dropped_rows.contains(id);
            if !listed && !sent.text_sha256.iter().all(|text| known(text)) {
                return fail(
                    "inbox",
                    format!("the message {id} that the inbox sent is not carried and no drop names it"),
                );
            }
        }
        for reply in &input.evidence.received {
            if !known(&reply.text_sha256) {
                let what = format!(
                    "block {} of the reply {} that was delivered is not carried and no drop names it",
                    reply.block_index, reply.message_id
                );
                return fail("outbox", what);
            }
        }
        checks.push(Check { name: "messages of the inbox", count: input.evidence.sent.len() as u64 });
        checks.push(Check { name: "replies of the outbox", count: input.evidence.received.len() as u64 });
        Ok(())
    }
}
