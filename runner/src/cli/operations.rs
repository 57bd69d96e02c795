//! The commands that change something: asked of a living runner, or done here when none lives.

use std::io::{BufRead, IsTerminal, Write};

use kael_core::operation::{Kind, OpState, OpStore, Operation};
use kael_core::switch::processes;
use serde_json::{Value, json};

use crate::companion::Companion;
use crate::doorbell::{self, WaitingBell};
use crate::keeper::{Keeper, outcome_line};
use crate::queue::RequestKind;
use kael_core::config::Activation;

use super::args::Command;
use super::error::{CliError, ErrorKind};
use super::output::Output;

/// Runs the command. Called by the original's name it prints the operation alone, as that did.
pub fn run(companion: &Companion, command: Command, output: &Output, original: bool) -> Result<(), CliError> {
    let (kind, arguments) = request(companion, command)?;
    let mut answer = perform(companion, kind, &arguments)?;
    if original && answer["operation"].is_object() {
        answer = answer["operation"].take();
    }
    output.print(&answer, || {
        let id = answer.pointer("/operation/operation_id").and_then(Value::as_str);
        let next = answer["next"].as_str().unwrap_or("done");
        id.map_or_else(|| next.to_owned(), |id| format!("operation {id}: {next}"))
    })
}

fn request(companion: &Companion, command: Command) -> Result<(RequestKind, Value), CliError> {
    let by = "a human at the command line";
    Ok(match command {
        Command::Request(args) => {
            let confirmed = word(args.confirm.as_deref(), "REBUILD", "request")?;
            if confirmed {
                super::refuse_inside_invocation("request --confirm REBUILD")?;
            }
            (RequestKind::Request, json!({ "reason": args.reason, "by": by, "confirmed": confirmed }))
        }
        Command::Confirm(args) => {
            super::refuse_inside_invocation("confirm")?;
            let digest = if args.yes { None } else { ask(companion, args.operation.as_deref())? };
            (RequestKind::Confirm, json!({ "operation": args.operation, "by": by, "digest": digest }))
        }
        Command::Cancel(args) => {
            word(Some(&args.confirm), "CANCEL", "cancel")?;
            (RequestKind::Cancel, json!({ "operation": args.operation }))
        }
        Command::Prepare(args) => {
            if let Some(transcript) = &args.transcript {
                must_be_current(companion, transcript)?;
            }
            (RequestKind::Prepare, json!({ "operation": args.operation }))
        }
        Command::Activate(args) => {
            super::refuse_inside_invocation("activate")?;
            (RequestKind::Activate, json!({ "operation": args.operation }))
        }
        Command::RollbackRequest(args) => {
            super::refuse_inside_invocation("rollback-request")?;
            word(Some(&args.confirm), "ROLLBACK", "rollback-request")?;
            let carry = args.carry_new_turns;
            (RequestKind::Rollback, json!({ "operation": args.operation, "carry_new_turns": carry }))
        }
        Command::Clear(args) => {
            super::refuse_inside_invocation("clear")?;
            (RequestKind::Clear, json!({ "operation": args.operation, "by": by }))
        }
        Command::Retry => (RequestKind::Retry, json!({})),
        Command::Skip => {
            super::refuse_inside_invocation("skip")?;
            (RequestKind::Skip, json!({}))
        }
        Command::Pause => (RequestKind::Pause, json!({})),
        Command::Continue => (RequestKind::Continue, json!({})),
        other => return Err(CliError::failed(format!("{other:?} is not a request"))),
    })
}

/// Whether the word was given; another one is an error, so that a typing mistake is not a no.
fn word(given: Option<&str>, wanted: &str, command: &str) -> Result<bool, CliError> {
    match given {
        None => Ok(false),
        Some(word) if word == wanted => Ok(true),
        Some(word) => Err(CliError::new(
            ErrorKind::Usage,
            format!("--confirm must be exactly {wanted}, not {word:?}: nothing was done ({command})"),
        )),
    }
}

fn must_be_current(companion: &Companion, transcript: &std::path::Path) -> Result<(), CliError> {
    let session = companion.pointer.read()?.session();
    let current = session.map(|session| companion.transcript(session));
    let same = current.as_ref().is_some_and(
        |current| matches!((current.canonicalize(), transcript.canonicalize()), (Ok(a), Ok(b)) if a == b),
    );
    if same {
        return Ok(());
    }
    Err(CliError::refused(format!(
        "{} is not the transcript that the pointer names ({}): only that one can be switched; `plan --transcript` takes any",
        transcript.display(),
        current.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    )))
}

/// Shows what waits for a yes and asks; gives the digest of the plan that was shown, if it is about one.
fn ask(companion: &Companion, named: Option<&str>) -> Result<Option<String>, CliError> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::new(
            ErrorKind::Usage,
            "`confirm` asks at a terminal: say --yes where there is none",
        ));
    }
    let store = companion.store()?;
    let pending = match named {
        Some(id) => Some(find(&store, id)?),
        None => store.active()?,
    };
    if let OpState::RollbackPending(activation) = pending.as_ref().map_or(&OpState::Pending, Operation::state)
    {
        eprintln!(
            "  back from {} to {}; what was said since the rebuild would not be there, so it is refused if anything was",
            activation.after, activation.before
        );
        say_yes("Go back to the session before?")?;
        return Ok(None);
    }
    if pending.as_ref().is_some_and(|operation| operation.kind == Kind::Return) {
        say_yes("Go back to the session before, with what has been said since?")?;
        return Ok(None);
    }
    crate::setup::wait_idle(&companion.config, None, &|line| eprintln!("{line}"))?;
    let plan = super::plan::make(companion, None, None)?;
    if !plan.blocked_record(true).is_empty() {
        return Err(CliError::refused(format!("a rebuild is not possible now: {}", plan.blocked_reason())));
    }
    for line in crate::keeper::figures(&plan) {
        eprintln!("{line}");
    }
    let against = plan.blocked_reason();
    if !against.is_empty() {
        eprintln!("  against it: {against}");
    }
    say_yes(if against.is_empty() {
        "Rebuild the session?"
    } else {
        "Rebuild the session in spite of that?"
    })?;
    Ok(Some(plan.digest()))
}

/// Asks, and is content with a yes only.
pub fn say_yes(question: &str) -> Result<(), CliError> {
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "j" | "ja" | "是" | "好") {
        return Ok(());
    }
    Err(CliError::refused("not confirmed: nothing was done, the question stays open"))
}

/// Has a request carried out, by the living runner or here.
pub fn perform(companion: &Companion, kind: RequestKind, arguments: &Value) -> Result<Value, CliError> {
    refuse_inside_claude(companion, kind)?;
    loop {
        if let Some(mut keeper) = Keeper::try_take(companion.clone())? {
            for line in keeper.recover()? {
                if companion.config.activation != Activation::Pointer {
                    eprintln!("{line}");
                }
            }
            if switches(kind, arguments) {
                crate::setup::wait_idle(&companion.config, None, &|line| eprintln!("{line}"))?;
            }
            crate::setup::follow(companion)?;
            let answer = keeper.perform(kind, arguments);
            doorbell::ring_waiting(&companion.config.state_dir);
            return answer;
        }
        if let Some(answer) = ask_runner(companion, kind, arguments, &|line| eprintln!("{line}"))? {
            return CliError::from_answer(&answer).map_or(Ok(answer), Err);
        }
    }
}

/// A human decides; the model in the pane or unit, with its shell, must not do it for them.
fn refuse_inside_claude(companion: &Companion, kind: RequestKind) -> Result<(), CliError> {
    let for_humans = matches!(
        kind,
        RequestKind::Request
            | RequestKind::Confirm
            | RequestKind::Activate
            | RequestKind::Rollback
            | RequestKind::PointerSet
            | RequestKind::Clear
    );
    let Some(process) = crate::setup::process_of(&companion.config).filter(|_| for_humans) else {
        return Ok(());
    };
    let inside = processes::claude_above(std::process::id(), crate::setup::program_of(&companion.config));
    if inside.is_none() || process.claude().ok().flatten() != inside {
        return Ok(());
    }
    Err(CliError::refused(
        "this is for a human and was called from inside the companion's own claude: nothing was done. The model may ask \
         with the tool thread_rebuild_request",
    ))
}

/// Whether a request may end a long-lived process at once, so that its turn has to be over.
fn switches(kind: RequestKind, arguments: &Value) -> bool {
    match kind {
        RequestKind::Confirm | RequestKind::Activate | RequestKind::Rollback | RequestKind::Prepare => true,
        RequestKind::Request => arguments["confirmed"] == true,
        _ => false,
    }
}

/// Leaves the request with the runner and waits; `None` when the runner went away without an answer.
/// `tell` is told once if that takes long.
pub fn ask_runner(
    companion: &Companion,
    kind: RequestKind,
    arguments: &Value,
    tell: &dyn Fn(String),
) -> Result<Option<Value>, CliError> {
    let mut queue = companion.queue()?;
    let bell = WaitingBell::hang(&companion.config.state_dir)?;
    let id = queue.leave_request(kind, arguments, companion.clock.now())?;
    doorbell::ring(&companion.config.state_dir);
    let started = std::time::Instant::now();
    let mut told = false;
    loop {
        if let Some(answer) = queue.request_answer(id)? {
            return Ok(Some(answer));
        }
        if !companion.runner_lives()? && queue.withdraw_request(id)? {
            return Ok(None);
        }
        if !told && started.elapsed() > std::time::Duration::from_secs(2) {
            tell(format!("waiting for the runner ({}) to finish its turn", companion.holder()));
            told = true;
        }
        bell.wait(None)?;
    }
}

/// The operation of this id, or the start of a message that says what ids look like.
pub fn find(store: &OpStore, id: &str) -> Result<Operation, CliError> {
    let id = id.parse().map_err(|error| CliError::from_error(ErrorKind::Usage, &error))?;
    Ok(store.load(id)?)
}

/// An operation for people.
#[must_use]
pub fn text(operation: &Operation) -> String {
    let mut lines =
        vec![format!("operation {} {}: {}", operation.id, operation.status(), outcome_line(operation))];
    for reason in &operation.reasons {
        lines.push(format!("  asked for by {}: {reason}", operation.requested_by));
    }
    for step in &operation.history {
        lines.push(format!("  {}  {} -> {}  ({})", step.at, step.from, step.to, step.event));
    }
    lines.join("\n")
}
