//! `status`: what the runner, its queue and its operation are doing, read from their files.

use kael_core::pointer::PointerValue;
use serde_json::{Map, Value, json};

use crate::companion::Companion;
use crate::doorbell::WaitingBell;
use crate::queue::{Hold, LastOutcome, NextRetry, Setting};

use super::args;
use super::error::CliError;
use super::output::Output;

/// Runs the command.
pub fn run(companion: &Companion, args: &args::Status, output: &Output) -> Result<(), CliError> {
    if let Some(id) = &args.operation {
        let operation = super::operations::find(&companion.store()?, id)?;
        let value = json!({ "schema": 1, "ok": true, "operation": operation.to_json() });
        return output.print(&value, || super::operations::text(&operation));
    }
    if args.watch {
        return watch(companion, output);
    }
    let status = collect(companion)?;
    output.print(&status, || text(&status))
}

/// Prints the status whenever it changes. Rung by the runner after each thing it does, like every command that waits;
/// what it was not rung for it sees within a second.
fn watch(companion: &Companion, output: &Output) -> Result<(), CliError> {
    companion.create_folders()?;
    let bell = WaitingBell::hang(&companion.config.state_dir)?;
    let mut shown = None;
    loop {
        let status = collect(companion)?;
        let mut same = status.clone();
        same["at"] = Value::Null;
        if shown.as_ref() != Some(&same) {
            output.print(&status, || {
                format!("{}\n{}\n", status["at"].as_str().unwrap_or_default(), text(&status))
            })?;
            shown = Some(same);
        }
        bell.wait(None)?;
    }
}

/// Everything `status` shows, as its JSON.
pub fn collect(companion: &Companion) -> Result<Value, CliError> {
    let queue = companion.queue()?;
    let store = companion.store()?;
    let counts: Map<String, Value> =
        queue.message_counts()?.into_iter().map(|(state, n)| (state.word().to_owned(), json!(n))).collect();
    let turn = match queue.open_turn()? {
        None => Value::Null,
        Some(turn) => json!({
            "id": turn.id,
            "messages": queue.messages_of(turn.id)?.len(),
            "since": turn.created_at,
            "attempts": queue.invocations_of(turn.id)?.len(),
            "charged": turn.charged,
            "running": queue.unresolved_invocations()?.iter().any(|run| run.turn == turn.id),
            "last_error": queue.turn_error(turn.id)?,
        }),
    };
    let pointer = match companion.pointer.read() {
        Ok(PointerValue::Session(session)) => json!({ "session": session }),
        Ok(PointerValue::Absent) => json!({ "session": null }),
        Err(error) => json!({ "session": null, "error": kael_core::error_chain(&error) }),
    };
    let lives = companion.runner_lives()?;
    Ok(json!({
        "schema": 1,
        "ok": true,
        "operation": store.latest()?.map(|operation| operation.to_json()),
        "runner": { "lives": lives, "holder": lives.then(|| companion.holder()) },
        "pointer": pointer,
        "messages": counts,
        "turn": turn,
        "next_retry": queue.get::<NextRetry>(Setting::NextRetry)?,
        "last_outcome": queue.get::<LastOutcome>(Setting::LastOutcome)?,
        "hold": queue.get::<Hold>(Setting::Hold)?.map(|hold| json!(hold)),
        "paused": queue.get::<bool>(Setting::Paused)?.unwrap_or(false),
        "session_conflict": store.session_conflict()?,
        "at": companion.clock.now(),
    }))
}

/// The same for people.
#[must_use]
pub fn text(status: &Value) -> String {
    let word = |pointer: &str| status.pointer(pointer).and_then(Value::as_str);
    let mut lines = Vec::new();
    lines.push(match status.pointer("/runner/lives") {
        Some(Value::Bool(true)) => format!("runner     up ({})", word("/runner/holder").unwrap_or("unknown")),
        _ => "runner     not running: start it with `kael-runner run`".to_owned(),
    });
    lines.push(match (word("/pointer/session"), word("/pointer/error")) {
        (Some(session), _) => format!("pointer    {session}"),
        (None, Some(error)) => format!("pointer    {error}"),
        (None, None) => "pointer    absent: the first message begins a new session".to_owned(),
    });
    let counts: Vec<String> = status["messages"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    lines.push(format!(
        "messages   {}",
        if counts.is_empty() { "none yet".to_owned() } else { counts.join(", ") }
    ));
    if let Some(turn) = status["turn"].as_object() {
        let state = if turn["running"] == true { "is running" } else { "waits to be tried again" };
        let error = turn["last_error"].as_str().map(|e| format!(", last: {e}")).unwrap_or_default();
        lines.push(format!(
            "turn       {} {state}, {}{error}",
            turn["id"],
            counted(&turn["attempts"], "attempt")
        ));
    }
    if status["turn"]["running"] != true
        && let Some(at) = word("/next_retry/at")
    {
        let why = match word("/next_retry/why").unwrap_or_default() {
            "limit" => "the limit resets",
            "breaker" => "many failures in a short time",
            "probe" => "the login is tried in a session of its own",
            "storage" => "the disk is tried again",
            _ => "a pause",
        };
        let reason = word("/next_retry/reason").unwrap_or_default();
        lines.push(format!("retry      at {at} ({why}): {reason}"));
    }
    if let Some(outcome) = word("/last_outcome/outcome").filter(|outcome| *outcome != "answered") {
        let detail = word("/last_outcome/detail").unwrap_or_default();
        let charged =
            if status["last_outcome"]["charged"] == true { ", counts against max_attempts" } else { "" };
        lines
            .push(format!("last       turn {} {outcome}: {detail}{charged}", status["last_outcome"]["turn"]));
    }
    if let Some(reason) = word("/hold/reason") {
        lines.push(format!("hold       since {}: {reason}", word("/hold/since").unwrap_or_default()));
    }
    if status["paused"] == true {
        lines.push("paused     no new turn until `kael-runner continue`".to_owned());
    }
    if let Some(id) = word("/session_conflict") {
        lines.push(format!(
            "conflict   operation {id} met somebody else's change: find out who changed the session, do not retry; \
             then `kael-runner clear`"
        ));
    }
    lines.push(match word("/operation/status") {
        Some(state) => {
            let reason = word("/operation/error").map(|r| format!(": {r}")).unwrap_or_default();
            let next = match state {
                "pending" => ": waits for a yes: `kael-runner confirm`, or `kael-runner cancel --confirm CANCEL`",
                "rollback_pending" => {
                    ": going back waits for a yes: `kael-runner confirm`, or `kael-runner cancel --confirm CANCEL`"
                }
                _ => "",
            };
            format!("operation  {} {state}{reason}{next}", word("/operation/operation_id").unwrap_or_default())
        }
        None => "operation  none yet".to_owned(),
    });
    lines.join("\n")
}

/// `1 attempt`, `2 attempts`.
pub(super) fn counted(number: &Value, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
