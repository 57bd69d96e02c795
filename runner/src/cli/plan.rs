//! `plan`: what a rebuild would carry and drop, before the fact; with `--candidate` the clean session as a file.

use std::path::Path;
use std::process::ExitCode;

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Evidence, Plan, PlanInput, Proof, ProofInput, Show, Shown};
use kael_core::transcript::{Fate, Role};
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::decisions::{Decided, Word};
use crate::queue::Setting;
use crate::settings::{Kept, extract_rules, rebuild_settings};
use crate::{doorbell, facts};

use super::args;
use super::dirty::{find_source, size, to_json};
use super::error::{CliError, ErrorKind};
use super::output::{Output, Pages, with_progress};

/// Runs the command. A blocked plan is printed and exits with 3.
pub fn run(companion: &Companion, args: &args::Plan, output: &Output) -> Result<ExitCode, CliError> {
    let source = find_source(companion, args.source.transcript.as_deref())?;
    let size = size(&source);
    let make = || with_progress("planning", size, || make(companion, Some(&source), args.accept_damage));
    let mut plan = make()?;
    if !args.decide.is_empty() {
        super::refuse_inside_invocation("plan --decide")?;
        decide(companion, &plan, &args.decide)?;
        plan = make()?;
    }
    if let Some(which) = args.show {
        items(&plan, &source, which, output)?;
        return Ok(code(&plan));
    }
    let written = match &args.candidate {
        Some(path) if !plan.is_hard_blocked() => {
            Some(with_progress("writing and proving", size * 2, || write(companion, &plan, &source, path))?)
        }
        _ => None,
    };
    let failure = written.as_ref().and_then(|written| written.proof.as_ref().err());
    let path = written.as_ref().filter(|written| written.proof.is_ok()).map(|written| &written.path);
    let mut value = describe(companion, &plan, &source)?;
    value["candidate_path"] = json!(path);
    value["proof"] = json!(written.as_ref().and_then(|written| written.proof.as_ref().ok()));
    if let Some(failure) = failure {
        value["ok"] = json!(false);
        value["blocked_reason"] = json!(failure);
    }
    let decided = Kept::of(&companion.queue()?)?.decided;
    let mut lines = text(&plan, &source, &decided);
    lines.extend(sides(&plan, &source)?);
    if let Some(path) = path {
        lines.push(format!("candidate      {path}, proved"));
    } else if let Some(failure) = failure {
        lines.push(format!("BLOCKED        {failure}; the candidate was removed"));
    } else if plan.is_hard_blocked() {
        lines.push("no candidate can be written before that is decided".to_owned());
    }
    output.print(&value, || lines.join("\n"))?;
    Ok(if failure.is_some() { ExitCode::from(ErrorKind::Refused.exit_code()) } else { code(&plan) })
}

/// Stores what a human decides about things that this plan names. The runner looks again at the end of the next turn.
fn decide(companion: &Companion, plan: &Plan, words: &[Word]) -> Result<(), CliError> {
    let mut queue = companion.queue()?;
    let changes = Kept::of(&queue)?.decided.changes(words, plan)?;
    let now = companion.clock.now();
    queue.change::<Decided>(Setting::Decided, |decided| {
        decided.apply(&changes, "a human at the command line", now);
    })?;
    // What was told to be impossible may be possible now.
    queue.clear(Setting::Told)?;
    doorbell::ring(&companion.config.state_dir);
    Ok(())
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
    match item.generation {
        None | Some(0) => {}
        Some(1) => head.push_str(" rebuilt once "),
        Some(generation) => head.push_str(&format!(" rebuilt {generation} times ")),
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
    let decided = Kept::of(&companion.queue()?)?.decided;
    Ok(text(&make(companion, Some(&source), None)?, &source, &decided).join("\n"))
}

/// The plan's JSON, without a candidate.
pub fn describe(companion: &Companion, plan: &Plan, source: &Path) -> Result<Value, CliError> {
    let queue = companion.queue()?;
    let mut value = plan.to_json(source, &to_json(companion, &queue, source, &plan.ledger)?);
    value["schema"] = json!(1);
    value["candidate_path"] = Value::Null;
    value["decisions"] = Kept::of(&queue)?.decided.to_json();
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
    let kept = Kept::of(&queue)?;
    let named = source.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
    Ok(rebuild::plan(&PlanInput {
        source: &source,
        // A transcript may have any name here; its session only names what is printed.
        source_session: named.unwrap_or_else(|| SessionId::from_uuid(uuid::Uuid::nil())),
        new_session: SessionId::generate(),
        operation: None,
        settings: &rebuild_settings(config, &kept),
        rules: &extract_rules(config, &kept.decided),
        own: &facts::own_rows(&queue)?,
        accept_damage,
    })?)
}

/// A candidate that was written, and what the proof says of it.
struct Written {
    path: String,
    proof: Result<Proof, String>,
}

/// Writes a candidate and proves it; one that cannot be proved is not left behind.
fn write(companion: &Companion, plan: &Plan, source: &Path, path: &Path) -> Result<Written, CliError> {
    let file = rebuild::write_candidate(&companion.disk, plan, source, path)?;
    let evidence = match companion.pointer.read()?.session() {
        Some(session) if session == plan.source_session => {
            facts::evidence(&companion.queue()?, &companion.store()?, session)?
        }
        _ => Evidence::default(),
    };
    let input = ProofInput { plan, source, candidate: path, candidate_file: &file, evidence: &evidence };
    let proof = rebuild::prove(&input).map_err(|failure| kael_core::error_chain(&failure));
    if proof.is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(Written { path: path.display().to_string(), proof })
}

fn text(plan: &Plan, source: &Path, decided: &Decided) -> Vec<String> {
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
        if let Some(key) = &blocked.key {
            let words = blocked.answers.iter().map(|answer| format!("--decide '{key}={}'", answer.name()));
            lines.push(format!("to decide      kael-runner plan {}", words.collect::<Vec<_>>().join(" or ")));
        }
    }
    lines.extend(decided.lines().map(|line| format!("decided        {line}")));
    lines
}

/// How much of each side of a fork is shown.
const SIDE_ITEMS: usize = 3;

/// Both sides of each fork that nobody decided about: how the branch begins, and how the conversation goes on there.
fn sides(plan: &Plan, source: &Path) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    for branch in plan.off_chain.iter().filter(|branch| branch.fate == Fate::Undecided) {
        lines.push(format!("on the branch  {}", branch.key));
        lines.extend(beginning(plan, source, Show::OffChain, |item| branch.lines.contains(&item.line))?);
        lines.push("instead of it".to_owned());
        lines.extend(beginning(plan, source, Show::Carried, |item| item.line > branch.leaves_at_line)?);
    }
    Ok(lines)
}

fn beginning(
    plan: &Plan,
    source: &Path,
    what: Show,
    fits: impl Fn(&Shown) -> bool,
) -> Result<Vec<String>, CliError> {
    let mut lines = Vec::new();
    rebuild::show(plan, source, what, &mut |item| {
        if fits(&item) {
            let who = if item.who == Some(Role::Assistant) { "assistant" } else { "human" };
            let mut words: String = item.text.split_whitespace().collect::<Vec<_>>().join(" ");
            if let Some((end, _)) = words.char_indices().nth(72) {
                words.truncate(end);
                words.push('…');
            }
            words.retain(|c| !c.is_control());
            lines.push(format!("  line {:<6} {who}: {words}", item.line));
        }
        lines.len() < SIDE_ITEMS
    })?;
    Ok(lines)
}
