//! The items behind a plan's figures, one by one with their lines: what is carried, what is dropped,
//! what stands off the chain. Words are read from the source here and handed on, never kept.

use std::path::Path;

use serde::Serialize;

use crate::transcript::head::RowKind;
use crate::transcript::json::decode;
use crate::transcript::judge::{Context, Judged};
use crate::transcript::reader::{Event, Reader};
use crate::transcript::rows::Rows;
use crate::transcript::speech::text_of;
use crate::transcript::{OwnRows, Role, Rule, TranscriptError, survey};

use super::candidate::identity;
use super::plan::Plan;
use super::words;

/// Which items to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// What goes into the candidate.
    Carried,
    /// What does not, and under which rule.
    Dropped,
    /// What is said on branches that the CLI does not load.
    OffChain,
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The line of its row.
    pub line: u64,
    /// The turn it belongs to, counted from 0; only of carried items.
    pub turn: Option<u32>,
    /// Whose words they are; none for noise.
    pub who: Option<Role>,
    /// The kind of speech, or the rule that drops it.
    pub what: String,
    /// How many rebuilds it has been through, this one included; only of carried items.
    pub generation: Option<u64>,
    /// What names its source across rebuilds; only of carried items.
    pub source: Option<String>,
    /// When it was said.
    pub time: Option<String>,
    /// How many bytes of the file it takes.
    pub bytes: u64,
    /// Its words; of noise the beginning.
    pub text: String,
}

/// How much of noise is shown.
const BEGINNING: usize = 120;

/// Calls `on` with each item in the order of the file (carried ones: of the candidate) until it says
/// no. Blocking; the source must be the one the plan was made from.
///
/// # Errors
///
/// When the source cannot be read any more.
pub fn show(
    plan: &Plan,
    source: &Path,
    what: Show,
    on: &mut dyn FnMut(Shown) -> bool,
) -> Result<(), TranscriptError> {
    match what {
        Show::Carried => carried(plan, source, on),
        Show::Dropped => dropped(plan, source, on),
        Show::OffChain => off_chain(plan, source, on),
    }
}

fn carried(plan: &Plan, source: &Path, on: &mut dyn FnMut(Shown) -> bool) -> Result<(), TranscriptError> {
    let mut rows = Rows::open(source)?;
    for item in &plan.items {
        let (bytes, head) = rows.at(item.offset, item.length as usize)?;
        let kind = serde_json::to_value(item.kind).unwrap_or_default();
        let shown = Shown {
            line: item.line,
            turn: Some(item.turn),
            who: Some(item.role),
            what: kind.as_str().unwrap_or_default().to_owned(),
            generation: Some(item.generation),
            source: Some(identity(item, bytes, head)),
            time: if item.is_new_marker { None } else { words::time(bytes, head).map(|t| t.into_owned()) },
            bytes: item.parts.iter().map(|(span, _)| span.len() as u64).sum(),
            text: words::injected(item, bytes, head).blocks.join("\n"),
        };
        if !on(shown) {
            break;
        }
    }
    Ok(())
}

/// Reads the source once more; rows whose speech is listed as not carried are dropped too.
fn dropped(plan: &Plan, source: &Path, on: &mut dyn FnMut(Shown) -> bool) -> Result<(), TranscriptError> {
    let own: &OwnRows = &plan.own;
    let context = Context { rules: &plan.rules, own };
    let mut judged = Judged::default();
    let mut row_number = 0;
    let mut go_on = true;
    Reader::new(survey::open(source)?, source).run(|event| {
        let Event::Row { place, bytes, head, .. } = event else { return Ok(()) };
        let verdict = plan.verdicts.get(row_number).and_then(|number| Rule::from_number(*number));
        row_number += 1;
        if !go_on {
            return Ok(());
        }
        context.judge(bytes, head, &mut judged);
        let left_out = plan.not_carried.get(&place.offset).copied();
        let time = head.timestamp.map(|time| decode(time.of(bytes)).text.into_owned());
        let mut one = |rule: Rule, size: u64, text: String| {
            go_on = go_on
                && on(Shown {
                    line: place.line,
                    turn: None,
                    who: None,
                    what: rule.name().to_owned(),
                    generation: None,
                    source: None,
                    time: time.clone(),
                    bytes: size,
                    text,
                });
        };
        let whole = verdict.filter(|_| judged.parts.is_empty());
        if let Some(rule) = whole {
            one(rule, bytes.len() as u64, beginning(bytes));
        }
        for part in &judged.parts {
            let spoken = part.rule == Rule::Spoken;
            // The rows around a row may have shown that its words are the runtime's.
            let rule = match (spoken, left_out, verdict) {
                (true, Some(rule), _) => rule,
                (true, None, Some(Rule::Spoken) | None) => continue,
                (true, None, Some(rule)) => rule,
                (false, ..) => part.rule,
            };
            let text =
                if spoken { text_of(part, bytes).0.into_owned() } else { beginning(part.span.of(bytes)) };
            one(rule, part.bytes, text);
        }
        Ok(())
    })?;
    Ok(())
}

fn off_chain(plan: &Plan, source: &Path, on: &mut dyn FnMut(Shown) -> bool) -> Result<(), TranscriptError> {
    let context = Context { rules: &plan.rules, own: &plan.own };
    let mut judged = Judged::default();
    let mut go_on = true;
    Reader::new(survey::open(source)?, source).run(|event| {
        let Event::Row { place, bytes, head, .. } = event else { return Ok(()) };
        let rule = plan.not_carried.get(&place.offset);
        let beside = matches!(rule, Some(Rule::OffChain | Rule::Retry));
        if !go_on || !beside {
            return Ok(());
        }
        context.judge(bytes, head, &mut judged);
        let mut said: Vec<(Role, u64, String)> = judged
            .speech()
            .map(|part| (part.role, part.bytes, text_of(part, bytes).0.into_owned()))
            .collect();
        if head.kind == RowKind::QueueOperation {
            let words = head.row_content.map(|span| decode(span.of(bytes)).text.into_owned());
            said.extend(words.map(|text| (Role::Human, text.len() as u64, text)));
        }
        for (who, size, text) in said {
            go_on = go_on
                && on(Shown {
                    line: place.line,
                    turn: None,
                    who: Some(who),
                    what: rule.map_or_else(String::new, |rule| rule.name().to_owned()),
                    generation: None,
                    source: head.uuid.map(|id| decode(id.of(bytes)).text.into_owned()),
                    time: head.timestamp.map(|time| decode(time.of(bytes)).text.into_owned()),
                    bytes: size,
                    text,
                });
        }
        Ok(())
    })?;
    Ok(())
}

/// The first characters of something that is not shown whole, on one line.
fn beginning(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..BEGINNING.min(bytes.len())).unwrap_or_default());
    let mut text: String = text.chars().filter(|c| !c.is_control() && *c != '\u{fffd}').collect();
    if bytes.len() > BEGINNING {
        text.push('…');
    }
    text
}
