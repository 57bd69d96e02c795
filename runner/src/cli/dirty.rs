//! `dirty`: what the session is made of, and whether a rebuild is due.

use std::path::{Path, PathBuf};

use kael_core::ledger::{self, LedgerReport};
use kael_core::pointer::PointerValue;
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::facts;
use crate::keeper::baseline;
use crate::queue::{Queue, Setting};
use crate::settings::{Kept, Measured, budgets, extract_rules};

use super::args;
use super::error::CliError;
use super::output::{Output, bytes, with_progress};

/// Runs the command.
pub fn run(companion: &Companion, args: &args::Source, output: &Output) -> Result<(), CliError> {
    let source = find_source(companion, args.transcript.as_deref())?;
    let (report, value) = with_progress("measuring", size(&source), || measure(companion, &source))?;
    output.print(&value, || text(&report, &value))
}

/// What the command shows of the pointer's session.
pub fn shown(companion: &Companion) -> Result<String, CliError> {
    let (report, value) = measure(companion, &find_source(companion, None)?)?;
    Ok(text(&report, &value))
}

/// The transcript that a command is about: the named one, which must be in the project folder, or the pointer's.
pub fn find_source(companion: &Companion, named: Option<&Path>) -> Result<PathBuf, CliError> {
    let Some(named) = named.filter(|path| !path.as_os_str().is_empty()) else {
        let running =
            crate::setup::session_now(&companion.config).map(|session| companion.transcript(session));
        if let Some(path) = running.filter(|path| path.is_file()) {
            return Ok(path);
        }
        return match companion.pointer.read()? {
            PointerValue::Session(session) => {
                let path = companion.transcript(session);
                if path.is_file() { Ok(path) } else { Err(missing(&path)) }
            }
            PointerValue::Absent => Err(CliError::refused(
                "the pointer names no session yet: name a transcript with --transcript, or send a first message",
            )),
        };
    };
    let folder = &companion.config.project_dir;
    let real = named.canonicalize().map_err(|_| missing(named))?;
    let inside = folder.canonicalize().is_ok_and(|folder| real.parent() == Some(folder.as_path()));
    if !inside || !real.is_file() || real.extension().is_none_or(|e| e != "jsonl") {
        return Err(CliError::refused(format!(
            "{} is not a transcript (*.jsonl) directly in {}: copy it there first",
            named.display(),
            folder.display()
        )));
    }
    Ok(real)
}

/// A transcript's size, for signs of progress.
pub fn size(source: &Path) -> u64 {
    source.metadata().map_or(0, |meta| meta.len())
}

fn missing(path: &Path) -> CliError {
    CliError::refused(format!("there is no transcript {}", path.display()))
}

/// The ledger of a transcript and its JSON, with what is due.
pub fn measure(companion: &Companion, source: &Path) -> Result<(LedgerReport, Value), CliError> {
    let config = &companion.config;
    let queue = companion.queue()?;
    let rules = extract_rules(config, &Kept::of(&queue)?.decided);
    let report = ledger::measure(source, &rules, &facts::own_rows(&queue)?, None)?;
    let value = to_json(companion, &queue, source, &report)?;
    Ok((report, value))
}

/// The `dirty` JSON of a ledger.
pub fn to_json(
    companion: &Companion,
    queue: &Queue,
    source: &Path,
    report: &LedgerReport,
) -> Result<Value, CliError> {
    let config = &companion.config;
    let session = source.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    let base = session.map(|session| baseline(queue, session)).transpose()?.unwrap_or(0);
    let measured: Measured = queue.get(Setting::Measured)?.unwrap_or_default();
    let reasons = ledger::due(report, base, &budgets(config, measured));
    let mut value = report.to_json(source, config.dirty_budget_bytes, &reasons);
    value["schema"] = json!(1);
    value["ok"] = json!(true);
    value["baseline_bytes"] = json!(base);
    Ok(value)
}

fn text(report: &LedgerReport, value: &Value) -> String {
    let mut lines = Vec::new();
    let due: Vec<&str> =
        value["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    lines.push(match due.is_empty() {
        true => "a rebuild is not due".to_owned(),
        false => format!("a rebuild is due: {}", due.join("; ")),
    });
    if let Some(level) = report.water_level {
        lines.push(format!("water level    {} tokens at the last turn", level.total()));
    }
    lines.push(format!(
        "speech         {} in {} turns",
        bytes(report.conversation_bytes),
        report.conversation_turns
    ));
    lines.push(format!(
        "noise          {} ({:.1} %)",
        bytes(report.total_bytes),
        report.noise_ratio() * 100.0
    ));
    for (category, count) in &report.categories {
        let name = serde_json::to_value(category).unwrap_or_default();
        lines.push(format!("  {:<15} {}", name.as_str().unwrap_or_default(), bytes(*count)));
    }
    let bookkeeping: u64 = report.bookkeeping.values().sum();
    lines.push(format!("bookkeeping    {} (never reaches the model)", bytes(bookkeeping)));
    if report.damage_bytes > 0 {
        lines.push(format!("damage         {}", bytes(report.damage_bytes)));
    }
    lines.join("\n")
}
