//! `usage`: what turns have cost, by day and session, and what rebuilding has saved.

use std::time::Duration;

use kael_core::clock::Timestamp;
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::queue::{Queue, Usage, UsageSum};

use super::args;
use super::error::CliError;
use super::output::Output;
use super::status::counted;

const DAY: u64 = 24 * 3600;

/// Runs the command.
pub fn run(companion: &Companion, args: &args::Usage, output: &Output) -> Result<(), CliError> {
    let queue = companion.queue()?;
    let now = companion.clock.now();
    let back = Duration::from_secs(args.days.saturating_mul(DAY));
    let since = i64::try_from(back.as_millis()).unwrap_or(i64::MAX);
    let days = queue.usage_since(Timestamp::from_millis(now.as_millis().saturating_sub(since)))?;
    let saved = saved(companion, &queue)?;
    let value = json!({
        "schema": 1,
        "ok": true,
        "days": days.iter().map(shown).collect::<Vec<_>>(),
        "saved": saved,
    });
    output.print(&value, || text(&days, &saved))
}

fn shown(day: &UsageSum) -> Value {
    json!({
        "day": day.day,
        "session": day.session,
        "turns": day.turns,
        "runs": day.runs,
        "input": day.sum.input,
        "cache_read": day.sum.cache_read,
        "cache_creation": day.sum.cache_creation,
        "output": day.sum.output,
        "context": day.sum.context,
        "level": day.sum.level,
        "seconds": seconds(&day.sum),
    })
}

/// For every activated rebuild: how full the context was before it, with how much the first turn after it began, and
/// the tokens that the turns since did not have to send.
fn saved(companion: &Companion, queue: &Queue) -> Result<Vec<Value>, CliError> {
    let mut all = Vec::new();
    for operation in companion.store()?.list()?.operations {
        let state = operation.state();
        let (Some(candidate), Some(source)) = (state.candidate(), operation.source.as_ref()) else {
            continue;
        };
        if !state.was_activated() {
            continue;
        }
        let Some(before) = queue.last_level_of(source.session)? else { continue };
        let after = queue.contexts_of(candidate.session)?;
        all.push(json!({
            "operation_id": operation.id,
            "level_before": before,
            "context_after": after.first(),
            "turns_since": after.len(),
            "tokens": after.iter().map(|level| before.saturating_sub(*level)).sum::<u64>(),
        }));
    }
    Ok(all)
}

fn seconds(sum: &Usage) -> f64 {
    // Hours of a day in milliseconds are far below what a float holds exactly.
    (sum.millis as f64 / 100.0).round() / 10.0
}

fn text(days: &[UsageSum], saved: &[Value]) -> String {
    if days.is_empty() {
        return "nothing was used yet".to_owned();
    }
    let mut lines: Vec<String> = days
        .iter()
        .map(|day| {
            let Usage { input, cache_read, cache_creation, output, .. } = day.sum;
            format!(
                "{}  {}  {} in {}, {} s: {} input tokens ({input} new, {cache_read} from the cache, \
                 {cache_creation} into it), {output} output tokens",
                day.day,
                day.session,
                counted(&json!(day.turns), "turn"),
                counted(&json!(day.runs), "run"),
                seconds(&day.sum),
                input + cache_read + cache_creation,
            )
        })
        .collect();
    for one in saved {
        let operation = one["operation_id"].as_str().unwrap_or_default();
        let before = &one["level_before"];
        lines.push(match one["context_after"].as_u64() {
            None => format!("rebuild {operation}: {before} tokens before it; no turn since, so nothing is known yet"),
            Some(after) => format!(
                "rebuild {operation}: from {before} tokens to {after} at the beginning of the next turn; about {} tokens \
                 saved in {}",
                one["tokens"],
                counted(&one["turns_since"], "turn"),
            ),
        });
    }
    lines.join("\n")
}
