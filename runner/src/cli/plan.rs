//! `plan`: what a rebuild would carry and drop, before the fact; with `--candidate` the clean session as a file.

use std::path::Path;
use std::process::ExitCode;

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Plan, PlanInput};
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::facts;
use crate::queue::Setting;
use crate::settings::{extract_rules, rebuild_settings};

use super::args;
use super::dirty::{find_source, to_json};
use super::error::{CliError, ErrorKind};
use super::output::Output;

/// Runs the command. A blocked plan is printed and exits with 3.
pub fn run(companion: &Companion, args: &args::Plan, output: &Output) -> Result<ExitCode, CliError> {
    let source = find_source(companion, args.source.transcript.as_deref())?;
    let plan = make(companion, Some(&source), args.accept_damage)?;
    let written = match &args.candidate {
        Some(path) if !plan.is_hard_blocked() => Some(write(&plan, &source, path)?),
        _ => None,
    };
    let mut value = describe(companion, &plan, &source)?;
    value["candidate_path"] = json!(written);
    output.print(&value, || text(&plan, &source, written.as_deref()))?;
    Ok(if plan.blocked.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(ErrorKind::Refused.exit_code())
    })
}

/// What the command shows of the pointer's session.
pub fn shown(companion: &Companion) -> Result<String, CliError> {
    let source = find_source(companion, None)?;
    Ok(text(&make(companion, Some(&source), None)?, &source, None))
}

/// The plan's JSON, without a candidate.
pub fn describe(companion: &Companion, plan: &Plan, source: &Path) -> Result<Value, CliError> {
    let queue = companion.queue()?;
    let mut value = plan.to_json(source, &to_json(companion, &queue, source, &plan.ledger)?);
    value["schema"] = json!(1);
    value["candidate_path"] = Value::Null;
    Ok(value)
}

/// The plan of a transcript, the pointer's when none is named.
pub fn make(
    companion: &Companion,
    source: Option<&Path>,
    accept_damage: Option<u64>,
) -> Result<Plan, CliError> {
    let source = match source {
        Some(source) => source.to_owned(),
        None => find_source(companion, None)?,
    };
    let config = &companion.config;
    let queue = companion.queue()?;
    let named = source.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    Ok(rebuild::plan(&PlanInput {
        source: &source,
        // A transcript may have any name here; its session only names what is printed.
        source_session: named.unwrap_or_else(|| SessionId::from_uuid(uuid::Uuid::nil())),
        new_session: SessionId::generate(),
        operation: None,
        settings: &rebuild_settings(config, queue.get(Setting::Measured)?.unwrap_or_default()),
        rules: &extract_rules(config),
        own: &facts::own_rows(&queue)?,
        accept_damage,
    })?)
}

fn write(plan: &Plan, source: &Path, path: &Path) -> Result<String, CliError> {
    rebuild::write_candidate(plan, source, path)?;
    Ok(path.display().to_string())
}

fn text(plan: &Plan, source: &Path, written: Option<&str>) -> String {
    let stats = &plan.stats;
    let mut lines = vec![
        format!("plan for {}", source.display()),
        format!(
            "carried        {} of {} turns, {} items, every word unchanged",
            stats.selected_turns,
            stats.source_turns,
            plan.items.len()
        ),
    ];
    if stats.open_tail_turns > 0 {
        lines.push("               the last turn is not answered; it is carried and marked".to_owned());
    }
    if stats.dropped_oldest_turns > 0 {
        lines.push(format!(
            "left out       the {} oldest turns (carry_max_tokens)",
            stats.dropped_oldest_turns
        ));
    }
    let gain = &plan.gain;
    let level = gain.measured_tokens.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let percent = gain.percent.map(|p| format!(", {p} % less")).unwrap_or_default();
    lines.push(format!(
        "tokens         {level} now, about {} after ({} overhead and {} speech){percent}",
        gain.estimated_after, gain.overhead_tokens, gain.speech_tokens
    ));
    lines.push("dropped".to_owned());
    for drop in &plan.drops {
        let at: Vec<String> = drop.lines.iter().take(3).map(u64::to_string).collect();
        let more = if drop.count > 3 { ", ..." } else { "" };
        lines.push(format!(
            "  {:<28} {:>6} times {:>12} bytes  line {}{more}",
            drop.rule.name(),
            drop.count,
            drop.bytes,
            at.join(", ")
        ));
    }
    for branch in &plan.off_chain {
        lines.push(format!("off the chain  {}", branch.message()));
    }
    for blocked in &plan.blocked {
        let at = blocked.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        lines.push(format!("BLOCKED        {at}{}", blocked.message));
    }
    match written {
        Some(path) => lines.push(format!("candidate      {path}")),
        None if plan.is_hard_blocked() => {
            lines.push("no candidate can be written before that is decided".to_owned());
        }
        None => {}
    }
    lines.join("\n")
}
