//! The dropped side: everything under a user, assistant, attachment or queue row is carried, or its
//! drop is explained by what the row itself says (DESIGN 6, evidence a to d).

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::carried::{Carried, from_hex};
use super::copies::{Copies, squash};
use super::{Check, ProofFailure, ProofInput, lines, shapes};
use crate::rebuild::plan::Plan;
use crate::transcript::Rule;

type TextDigest = [u8; 32];

fn digest(text: &str) -> TextDigest {
    Sha256::digest(text.as_bytes()).into()
}

/// The fields that decide whether a row is looked at.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<std::borrow::Cow<'a, str>>,
}

pub(super) fn check(
    input: &ProofInput<'_>,
    carried: &Carried,
    checks: &mut Vec<Check>,
) -> Result<(), ProofFailure> {
    let plan = input.plan;
    let mut sweep = Sweep {
        plan,
        carried,
        items: plan.items.iter().map(|item| item.offset).collect(),
        copies: Copies::default(),
        dropped: HashSet::new(),
        dropped_squashed: HashSet::new(),
        dropped_rows: HashSet::new(),
        by_rule: HashMap::new(),
        row: 0,
        strings: 0,
    };
    let (sha256, len) = lines::each_row(input.source, |line, offset, row| sweep.row(line, offset, row))?;
    if sha256 != plan.source_sha256 || len != plan.source_len {
        let what = format!("the source changed since it was planned: {len} bytes, sha256 {sha256}");
        return Err(ProofFailure::failed("source digest", what));
    }
    if sweep.row != plan.verdicts.len() {
        let what = format!("{} rows read by the plan, {} by the proof", plan.verdicts.len(), sweep.row);
        return Err(ProofFailure::failed("rows", what));
    }
    checks.push(Check { name: "rows split and decoded a second time", count: sweep.row as u64 });
    checks.push(Check { name: "strings carried or explained", count: sweep.strings });
    let by_rule: u64 = sweep.by_rule.values().sum();
    checks.push(Check { name: "dropped rows with the shape of their rule", count: by_rule });
    sweep.evidence(input, checks)?;
    let Sweep { copies, dropped_squashed, .. } = sweep;
    find_copies(input, carried, copies, &dropped_squashed, checks)
}

struct Sweep<'a> {
    plan: &'a Plan,
    carried: &'a Carried,
    /// Offsets of rows that items are taken from.
    items: HashSet<u64>,
    copies: Copies,
    /// Texts of rows that are not carried and are listed as such.
    dropped: HashSet<TextDigest>,
    dropped_squashed: HashSet<TextDigest>,
    dropped_rows: HashSet<String>,
    by_rule: HashMap<Rule, u64>,
    row: usize,
    strings: u64,
}

impl Sweep<'_> {
    fn row(&mut self, line: u64, offset: u64, bytes: &[u8]) -> Result<(), ProofFailure> {
        let verdict = self.plan.verdicts.get(self.row).and_then(|number| Rule::from_number(*number));
        self.row += 1;
        let unreadable =
            || ProofFailure::failed("decoder", format!("line {line} could not be decoded a second time"));
        let peek: Peek<'_> = match serde_json::from_slice(bytes) {
            Ok(peek) => peek,
            Err(_) => Peek { kind: None },
        };
        let kind = match peek.kind {
            Some(kind) => kind.into_owned(),
            None => {
                let value = lines::value(bytes).ok_or_else(unreadable)?;
                value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned()
            }
        };
        if !matches!(
            kind.as_str(),
            "user" | "assistant" | "attachment" | "queue-operation" | "last-prompt" | "api-request-blob"
        ) {
            return Ok(());
        }
        let verdict =
            verdict.ok_or_else(|| ProofFailure::failed("rows", format!("line {line} has no verdict")))?;
        let value = lines::value(bytes).ok_or_else(unreadable)?;
        self.copies.row(line, &kind, &value, &self.plan.injected_tags);
        match kind.as_str() {
            "user" | "attachment" | "assistant" => self.speech(line, offset, &kind, &value, verdict)?,
            _ => {}
        }
        if matches!(kind.as_str(), "user" | "attachment" | "queue-operation") {
            self.sweep(line, &kind, &value, verdict)?;
        }
        Ok(())
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
        let own = &self.plan.own;
        let listed = self.plan.not_carried.get(&offset).copied();
        if verdict == Rule::Spoken && listed.is_none() && !self.items.contains(&offset) {
            let what = format!("line {line} says something, is not carried, and no drop names it");
            return Err(ProofFailure::failed("dropped rows", what));
        }
        let explained = if let Some(rule) = listed {
            self.dropped_rows.insert(row.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned());
            if !self.plan.lists(rule) {
                let what = format!("line {line} is dropped as {}, which the plan does not list", rule.name());
                return Err(ProofFailure::failed("dropped rows", what));
            }
            true
        } else if verdict == Rule::AcceptedUnknown {
            true
        } else {
            shapes::whole_row(verdict, row, own)
        };
        for text in spoken_places(kind, row) {
            self.strings += 1;
            if self.is_carried(text, row) {
                continue;
            }
            let runtime = kind != "assistant" && shapes::is_runtime_text(text, &self.plan.injected_tags);
            let command = shapes::typed_command(text)
                .is_some_and(|typed| !typed.contains(' ') || self.carried.exact.contains(&digest(&typed)));
            if explained || runtime || command || text.trim().is_empty() {
                self.dropped.insert(digest(text));
                self.dropped_squashed.insert(digest(&squash(text)));
                *self.by_rule.entry(listed.unwrap_or(verdict)).or_default() += 1;
                continue;
            }
            let what = format!(
                "line {line} holds words that are not carried; they were dropped as {}, and the row does not look like \
                 that",
                verdict.name()
            );
            return Err(ProofFailure::failed("dropped rows", what));
        }
        if kind == "user" && !explained {
            self.answers(line, row)?;
        }
        Ok(())
    }

    /// A text, without the stamp that an earlier rebuild recorded, is a carried one.
    fn is_carried(&self, text: &str, row: &Value) -> bool {
        let stamp = row.pointer("/kael/stamp").and_then(Value::as_u64).unwrap_or(0);
        let unstamped = usize::try_from(stamp).ok().and_then(|stamp| text.get(stamp..)).unwrap_or(text);
        [text, unstamped].iter().any(|text| self.carried.exact.contains(&digest(text)))
            // A text that the owner's limit cut: its item is in the plan as cut.
            || self.plan.cut_texts.contains(&digest(unstamped))
    }

    /// What a human answered to a question stands in the result's copy.
    fn answers(&mut self, line: u64, row: &Value) -> Result<(), ProofFailure> {
        let Some(answers) = row.pointer("/toolUseResult/answers").and_then(Value::as_object) else {
            return Ok(());
        };
        for answer in answers.values().filter_map(Value::as_str).filter(|answer| !answer.trim().is_empty()) {
            self.strings += 1;
            if !self.carried.exact.contains(&digest(answer)) {
                let what = format!("line {line} holds an answer of a human's that is not carried");
                return Err(ProofFailure::failed("answers", what));
            }
        }
        Ok(())
    }

    /// Every string of some length that stands where no words belong is of a known shape.
    fn sweep(&mut self, line: u64, kind: &str, row: &Value, verdict: Rule) -> Result<(), ProofFailure> {
        let mut path = Vec::new();
        let dropped_attachment = matches!(verdict, Rule::Attachment | Rule::Bookkeeping | Rule::Sidechain);
        let mut unknown = None;
        walk(row, &mut path, &mut |path, text| {
            self.strings += 1;
            let spoken = is_spoken_path(kind, path, row);
            let inside = kind == "attachment" && path.first() == Some(&"attachment") && dropped_attachment;
            let result = is_result_path(path, row);
            let copy = kind == "queue-operation" && path == ["content"];
            if spoken
                || inside
                || result
                || copy
                || !shapes::is_wordy(text)
                || shapes::is_known_path(kind, path)
            {
                return;
            }
            if !self.carried.exact.contains(&digest(text)) && verdict != Rule::AcceptedUnknown {
                unknown.get_or_insert_with(|| path.join("."));
            }
        });
        match unknown {
            None => Ok(()),
            Some(path) => {
                let what = format!(
                    "line {line} holds words at {path}, where this version knows of none: look at it, and report the \
                     shape of the row"
                );
                Err(ProofFailure::failed("strings", what))
            }
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
                let what =
                    format!("the message {id} that the inbox sent is not carried and no drop names it");
                return Err(ProofFailure::failed("inbox", what));
            }
        }
        for reply in &input.evidence.received {
            if !known(&reply.text_sha256) {
                let what = format!(
                    "block {} of the reply {} that was delivered is not carried and no drop names it",
                    reply.block_index, reply.message_id
                );
                return Err(ProofFailure::failed("outbox", what));
            }
        }
        checks.push(Check { name: "messages of the inbox", count: input.evidence.sent.len() as u64 });
        checks.push(Check { name: "replies of the outbox", count: input.evidence.received.len() as u64 });
        Ok(())
    }
}

/// The texts of a row where words belong.
fn spoken_places<'a>(kind: &str, row: &'a Value) -> Vec<&'a str> {
    let content = if kind == "attachment" {
        if row.pointer("/attachment/type").and_then(Value::as_str) != Some("queued_command") {
            return Vec::new();
        }
        row.pointer("/attachment/prompt")
    } else {
        row.pointer("/message/content")
    };
    match content {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(blocks)) => blocks
            .iter()
            .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
            .filter_map(|block| block.get("text").and_then(Value::as_str))
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether a path leads to one of those texts.
fn is_spoken_path(kind: &str, path: &[&str], row: &Value) -> bool {
    let base: &[&str] =
        if kind == "attachment" { &["attachment", "prompt"] } else { &["message", "content"] };
    match path.strip_prefix(base) {
        Some([]) => true,
        Some([block, "text"]) => {
            let pointer = format!("/{}/{block}/type", base.join("/"));
            row.pointer(&pointer).and_then(Value::as_str) == Some("text")
        }
        _ => false,
    }
}

/// Whether a path leads into a tool's result.
fn is_result_path(path: &[&str], row: &Value) -> bool {
    match path {
        ["message", "content", block, "content", ..] => {
            let pointer = format!("/message/content/{block}/type");
            row.pointer(&pointer).and_then(Value::as_str) == Some("tool_result")
        }
        _ => false,
    }
}

/// Calls `on` with the path and text of every string. `serde_json` bounds the depth.
fn walk<'a>(value: &'a Value, path: &mut Vec<&'a str>, on: &mut dyn FnMut(&[&str], &str)) {
    match value {
        Value::String(text) => on(path, text),
        Value::Object(members) => {
            for (key, value) in members {
                path.push(key);
                walk(value, path, on);
                path.pop();
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                path.push(NUMBERS.get(at).copied().unwrap_or("more"));
                walk(value, path, on);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Names for places in lists; content has few blocks, and what is beyond is looked at as unknown.
const NUMBERS: &[&str] = &[
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
];

/// Looks for copies: by digest, then in the candidate's texts, then in the texts of dropped rows.
fn find_copies(
    input: &ProofInput<'_>,
    carried: &Carried,
    mut copies: Copies,
    dropped: &HashSet<TextDigest>,
    checks: &mut Vec<Check>,
) -> Result<(), ProofFailure> {
    copies.explain_by(&carried.squashed);
    copies.explain_by(dropped);
    for path in [input.candidate, input.source] {
        if copies.all.is_empty() {
            break;
        }
        lines::each_row(path, |_, _, row| {
            let Some(value) = lines::value(row) else { return Ok(()) };
            let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
            if matches!(kind, "user" | "assistant" | "attachment") {
                let mut texts = Vec::new();
                walk(&value, &mut texts, &mut |_, text| copies.explain_in(text));
            }
            Ok(())
        })?;
    }
    if let Some(copy) = copies.all.first() {
        let what = format!(
            "line {} ({}) repeats words that stand neither in the candidate nor in a dropped row",
            copy.line, copy.what
        );
        return Err(ProofFailure::failed("copies", what));
    }
    if copies.lost > 0 {
        let what = format!("{} copies are too large to be looked for", copies.lost);
        return Err(ProofFailure::failed("copies", what));
    }
    checks.push(Check { name: "the CLI's own copies", count: copies.count });
    Ok(())
}
