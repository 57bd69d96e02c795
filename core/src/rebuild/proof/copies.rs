//! The CLI's own copies of what was said (evidence c): each must stand in a carried item or in a
//! dropped row.

use std::collections::HashSet;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::carried::{Carried, TextDigest};
use super::dropped::fail;
use super::paths::walk;
use super::{Check, ProofFailure, ProofInput, lines, shapes};

/// A copy that has to be found again.
pub(super) struct Copy {
    pub(super) line: u64,
    pub(super) what: &'static str,
    pub(super) text: String,
    /// The CLI's own words stand behind it.
    wrapped: bool,
}

/// Copies kept for a closer look take at most this many bytes.
const KEPT: usize = 16 << 20;

/// Copies that no digest has explained yet.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) all: Vec<Copy>,
    seen: HashSet<[u8; 32]>,
    bytes: usize,
    pub(super) count: u64,
    /// Copies that could not be kept for lack of room.
    pub(super) lost: u64,
}

impl Copies {
    /// Takes note of the copies in a row.
    pub(super) fn row(&mut self, line: u64, kind: &str, row: &Value, injected_tags: &[String]) {
        let text = |key: &str| row.get(key).and_then(Value::as_str);
        match kind {
            "queue-operation" => {
                if let Some(content) = text("content") {
                    self.add(line, "queue-operation", content, injected_tags);
                }
            }
            "last-prompt" => {
                if let Some(prompt) = text("lastPrompt") {
                    self.add(line, "last-prompt", prompt, injected_tags);
                }
            }
            "api-request-blob" => {
                let message = row.get("message");
                let role = message.and_then(|message| message.get("role")).and_then(Value::as_str);
                if role != Some("user") {
                    return;
                }
                match message.and_then(|message| message.get("content")) {
                    Some(Value::String(content)) => {
                        self.add(line, "api-request-blob", content, injected_tags);
                    }
                    Some(Value::Array(blocks)) => {
                        for block in blocks {
                            if block.get("type").and_then(Value::as_str) == Some("text")
                                && let Some(content) = block.get("text").and_then(Value::as_str)
                            {
                                self.add(line, "api-request-blob", content, injected_tags);
                            }
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, line: u64, what: &'static str, text: &str, injected_tags: &[String]) {
        let text = text.trim();
        self.count += 1;
        // A copy of the runtime's own words, a task's event, a command without arguments.
        let runtime = text.starts_with("<system-reminder>")
            || text.starts_with("{\"task_id\"")
            || shapes::is_runtime_text(text, injected_tags)
            || (text.starts_with('/') && !text.contains(char::is_whitespace))
            // Output may be cut before its end.
            || (what == "api-request-blob" && shapes::opens_output(text))
            || shapes::typed_command(text).is_some_and(|typed| shapes::is_bare_command(text, &typed));
        if runtime {
            return;
        }
        let (text, wrapped) = match text.strip_prefix(MID_TURN) {
            Some(message) => (message, true),
            None => (text, false),
        };
        let text = squash(&shapes::typed_command(text).unwrap_or_else(|| text.to_owned()));
        if !self.seen.insert(Sha256::digest(text.as_bytes()).into()) {
            return;
        }
        if self.bytes + text.len() > KEPT {
            self.lost += 1;
            return;
        }
        self.bytes += text.len();
        self.all.push(Copy { line, what, text, wrapped });
    }

    /// Forgets copies whose text is one of these.
    pub(super) fn explain_by(&mut self, digests: &HashSet<[u8; 32]>) {
        self.all.retain(|copy| !digests.contains(&<[u8; 32]>::from(Sha256::digest(copy.text.as_bytes()))));
    }

    /// Whether some copies end in the dots that the CLI puts behind what it shortens.
    fn has_short(&self) -> bool {
        self.all.iter().any(|copy| shortened(&copy.text).is_some())
    }

    /// Forgets shortened copies of a text, perhaps behind a stamp.
    pub(super) fn explain_prefix(&mut self, text: &str) {
        let unstamped = text.strip_prefix("[").and_then(|text| text.split_once("]\n")).map(|(_, text)| text);
        for text in [Some(text), unstamped].into_iter().flatten() {
            let text = squash(text);
            let front: String = text.chars().take(SHORTEST).collect();
            self.all.retain(|copy| {
                // Most differ in their first characters.
                !(copy.text.starts_with(&front)
                    && shortened(&copy.text).is_some_and(|short| text.starts_with(short)))
            });
        }
    }

    /// Whether some copies have words of the CLI's own behind them.
    fn has_wrapped(&self) -> bool {
        self.all.iter().any(|copy| copy.wrapped)
    }

    /// Forgets copies that begin with a text and go on in the CLI's own words.
    fn explain_wrapped(&mut self, text: &str) {
        let text = squash(text);
        self.all.retain(|copy| {
            !(copy.wrapped
                && !text.is_empty()
                && copy.text.strip_prefix(&text).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
        });
    }

    /// Forgets copies that stand in a text.
    pub(super) fn explain_in(&mut self, text: &str) {
        let text = squash(text);
        self.all.retain(|copy| {
            // The CLI shortens long prompts and ends them in dots.
            let short = shortened(&copy.text);
            !(text.contains(&copy.text) || short.is_some_and(|short| text.contains(short)))
        });
    }
}

/// A copy is believed to be shortened from this many characters on.
const SHORTEST: usize = 40;

/// What the CLI left of a long text, without the dots that it puts behind it and without its last word,
/// of which only a part may be left.
fn shortened(text: &str) -> Option<&str> {
    let short = text.strip_suffix('…').or_else(|| text.strip_suffix("..."))?.trim_end();
    let whole = short.rsplit_once(' ').map_or(short, |(words, _)| words);
    [whole, short].into_iter().find(|text| text.chars().count() >= SHORTEST)
}

/// What the CLI says in front of a message that it gives to a running turn; behind it stand words of the
/// CLI's own, which differ from version to version.
const MID_TURN: &str = "The user sent a new message while you were working:";

/// A text with each stretch of white space as one blank: copies do not keep line ends.
pub(super) fn squash(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Looks for copies: by digest, then in the candidate's texts, then in the texts of dropped rows.
pub(super) fn find(
    input: &ProofInput<'_>,
    carried: &Carried,
    mut copies: Copies,
    dropped: &HashSet<TextDigest>,
    checks: &mut Vec<Check>,
) -> Result<(), ProofFailure> {
    copies.explain_by(&carried.squashed);
    copies.explain_by(dropped);
    if copies.has_short() || copies.has_wrapped() {
        // Shortened copies are prefixes: found in one look a text.
        lines::each_row(input.candidate, |found, _| {
            let Some(value) = lines::value(found.bytes) else { return Ok(()) };
            let stamp = shapes::at(&value, "/kael/stamp").and_then(Value::as_u64).unwrap_or(0);
            for (at, text) in shapes::spoken_places("user", &value).into_iter().enumerate() {
                copies.explain_prefix(text);
                let stamp = if at == 0 { usize::try_from(stamp).unwrap_or(0) } else { 0 };
                copies.explain_wrapped(text.get(stamp..).unwrap_or(text));
            }
            Ok(())
        })?;
    }
    for path in [input.candidate, input.source] {
        if copies.all.is_empty() {
            break;
        }
        lines::each_row(path, |found, _| {
            let Some(value) = lines::value(found.bytes) else { return Ok(()) };
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
        return fail("copies", what);
    }
    if copies.lost > 0 {
        return fail("copies", format!("{} copies are too large to be looked for", copies.lost));
    }
    checks.push(Check { name: "the CLI's own copies", count: copies.count });
    Ok(())
}
