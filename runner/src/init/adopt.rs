//! `adopt SESSION`: the pointer to a conversation that exists, set by compare-and-swap after a look at it.

use kael_core::ids::SessionId;
use kael_core::pointer::PointerValue;
use serde_json::{Value, json};

use crate::claude::live;
use crate::cli::error::{CliError, ErrorKind};
use crate::cli::output::{Output, bytes};
use crate::cli::{operations, plan};
use crate::companion::Companion;
use crate::queue::RequestKind;

use super::found;

/// Runs the command.
///
/// # Errors
/// The transcript is not there, cannot be read or is in use; or the pointer is not what it was when this began.
/// Nothing is changed then.
pub fn run(companion: &Companion, session: SessionId, output: &Output) -> Result<(), CliError> {
    let before = companion.pointer.read()?;
    let transcript = companion.transcript(session);
    if !transcript.is_file() {
        return Err(CliError::refused(format!(
            "there is no transcript {}: the pointer was not changed{}",
            transcript.display(),
            others(companion)
        )));
    }
    refuse_in_use(companion, session)?;
    let plan = plan::make(companion, Some(&transcript), None).map_err(|error| CliError {
        kind: error.kind,
        message: format!("{}: the pointer was not changed", error.message),
    })?;
    if plan.ledger.conversation_turns == 0 {
        return Err(CliError::refused(format!(
            "nothing was said in {}: the pointer was not changed; without one the first message begins a new session",
            transcript.display()
        )));
    }
    let arguments = json!({
        "session": session,
        "expected": before.session(),
        "by": "adopt",
    });
    let answer = operations::perform(companion, RequestKind::PointerSet, &arguments)?;
    // That a rebuild would not gain enough yet is the usual state of a session, and no news.
    let blocked = if plan.is_hard_blocked() { plan.blocked_reason() } else { String::new() };
    let (turns, size) = (plan.ledger.conversation_turns, plan.ledger.file_size);
    let value = json!({
        "schema": 1,
        "ok": true,
        "session": session,
        "before": before.session(),
        "changed": answer["changed"],
        "turns": turns,
        "bytes": size,
        "blocked_reason": blocked,
    });
    output.print(&value, || {
        let was = match before {
            PointerValue::Session(old) if old != session => format!(" (it was {old})"),
            _ => String::new(),
        };
        let mut lines =
            vec![format!("adopted: the next turn resumes {session}{was}: {turns} turns in {}", bytes(size))];
        lines.push(match (&value["blocked_reason"], noise(&plan.ledger.to_json(&transcript, 0, &[]))) {
            (Value::String(reason), _) if !reason.is_empty() => {
                format!("a rebuild of it is not possible yet: {reason}")
            }
            (_, percent) => {
                format!("a rebuild of it is possible: {percent:.1} % of what the model reads is noise")
            }
        });
        lines.join("\n")
    })
}

fn noise(ledger: &Value) -> f64 {
    ledger["noise_ratio"].as_f64().unwrap_or(0.0) * 100.0
}

/// What else could be adopted.
fn others(companion: &Companion) -> String {
    let sessions = found::sessions(&companion.config.project_dir);
    if sessions.is_empty() {
        return format!("; {} holds no session", companion.config.project_dir.display());
    }
    let list: Vec<String> = sessions.iter().take(3).map(|session| session.id.to_string()).collect();
    format!("; the newest there are {}", list.join(", "))
}

fn refuse_in_use(companion: &Companion, session: SessionId) -> Result<(), CliError> {
    let id = session.to_string();
    let mut pids = live::processes_on(session, &companion.config.project_dir, &[]);
    // Older versions leave no note, but the command line may name the session.
    let named = found::running()
        .into_iter()
        .filter(|process| process.arguments.iter().any(|word| word.contains(&id)));
    pids.extend(named.map(|process| process.pid));
    pids.sort_unstable();
    pids.dedup();
    if pids.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    Err(CliError::new(
        ErrorKind::Busy,
        format!(
            "a claude process ({}) is on session {session}: end it first, two writers would tear the conversation; the \
             pointer was not changed",
            list.join(", ")
        ),
    ))
}
