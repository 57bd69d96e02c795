//! `plan`: what a rebuild would carry and drop, before the fact; with `--candidate` the clean session as a file.

use std::path::Path;
use std::process::ExitCode;

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Plan, PlanInput, Show, Shown};
use kael_core::transcript::Role;
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::facts;
use crate::queue::Setting;
use crate::settings::{extract_rules, rebuild_settings};

use super::args;
use super::dirty::{find_source, to_json};
use super::error::{CliError, ErrorKind};
use super::output::{Output, Pages};

/// Runs the command. A blocked plan is printed and exits with 3.
pub fn run(companion: &Companion, args: &args::Plan, output: &Output) -> Result<ExitCode, CliError> {
    let source = find_source(companion, args.source.transcript.as_deref())?;
    let plan = make(companion, Some(&source), args.accept_damage)?;
    if let Some(which) = args.show {
        items(&plan, &source, which, output)?;
        return Ok(code(&plan));
    }
    let written = match &args.candidate {
        Some(path) if !plan.is_hard_blocked() => Some(write(&plan, &source, path)?),
        _ => None,
    };
    let mut value = describe(companion, &plan, &source)?;
    value["candidate_path"] = json!(written);
    output.print(&value, || text(&plan, &source, written.as_deref()))?;
    Ok(code(&plan))
}

fn code(plan: &Plan) -> ExitCode {
    if plan.blocked.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ErrorKind::Refused.exit_code()) }
}

/// The items one by one: a JSON value a line, or text through a pager.
fn items(plan: &Plan, source: &Path, which: args::Show, output: &Output) -> Result<(), CliError> {
    let what = match which {
        args::Show::Carried => Show::Carried,
        args::Show::Dropped => Show::Dropped,
        args::Show::OffChain => Show::OffChain,
    };
    let json = output.json;
    let mut pages = Pages::open(!json)?;
    let mut wrong = None;
    rebuild::show(plan, source, what, &mut |item| {
        let text = if json { json!(item).to_string() } else { item_text(&item) };
        match pages.line(&text) {
            Ok(more) => more,
            Err(error) => {
                wrong = Some(error);
                false
            }
        }
    })?;
    pages.close()?;
    wrong.map_or(Ok(()), |error| Err(error.into()))
}

fn item_text(item: &Shown) -> String {
    let who = match item.who {
        Some(Role::Human) => "human",
        Some(Role::Assistant) => "assistant",
        None => "",
    };
    let mut head = format!("line {:<8}", item.line);
    if let Some(turn) = item.turn {
        head.push_str(&format!(" turn {:<6}", turn + 1));
    }
    if let Some(generation) = item.generation {
        head.push_str(&format!(" rebuilt {generation} times "));
    }
    let time = item.time.as_deref().unwrap_or("no time");
    head.push_str(&format!(" {who:<10} {} {time} {} bytes", item.what, item.bytes));
    // Escape sequences in what was said would act on the terminal.
    let text: String = item.text.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
    let words: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    format!("{}\n{}\n", head.trim_end(), words.join("\n"))
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
    rebuild::write_candidate(&kael_core::disk::Disk::real(), plan, source, path)?;
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
    if plan.generation() > 1 {
        let old = plan.items.iter().filter(|item| item.generation > 1).count();
        lines.push(format!(
            "               {old} of the items come from earlier rebuilds, the oldest from {}",
            plan.generation() - 1
        ));
    }
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
    let percent = match gain.percent {
        Some(percent) if percent < 0 => format!(", {} % more", -percent),
        Some(percent) => format!(", {percent} % less"),
        None => String::new(),
    };
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
        lines.push(format!(
            "off the chain  line {}: {}, {} human and {} assistant rows, {}",
            branch.first_line,
            branch.place(),
            branch.human_rows,
            branch.assistant_rows,
            branch.fate.describe()
        ));
    }
    if !plan.reply_elsewhere.is_empty() {
        let at: Vec<String> = plan.reply_elsewhere.iter().take(3).map(u64::to_string).collect();
        lines.push(format!(
            "other chats    {} messages went to a chat that no words came from, line {}",
            plan.reply_elsewhere.len(),
            at.join(", ")
        ));
    }
    for blocked in &plan.blocked {
        lines.push(format!("BLOCKED        {}", blocked.message));
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
