//! What each tool does. Reading goes through the same functions as the commands; writing registers in the operation
//! store under its lock, and rings.

use std::path::PathBuf;

use kael_core::config;
use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::{Consent, Kind, NewOperation, Operation, Status, StoreGuard};
use kael_core::pointer::PointerValue;
use serde_json::{Map, Value, json};

use crate::cli::error::{CliError, ErrorKind};
use crate::cli::{dirty, doctor, plan};
use crate::companion::Companion;
use crate::doorbell;
use crate::keeper::{gone_on, register_carry_back};

use super::LOCK_PATIENCE;
use super::answer::{Refusal, about, capped, waits_for_human};
use super::arguments as takes;
use super::arguments::{read, word};
use super::tools::Tool;

/// Who asks, for the record.
const BY: &str = "the model, by its tools";

/// Whether a word given by the model is a yes.
pub fn by_word(companion: &Companion) -> bool {
    companion.config.runner.consent == config::Consent::Word
}

/// Carries a call out. Blocks: a plan reads the whole transcript.
pub fn call(companion: &Companion, tool: Tool, arguments: Map<String, Value>) -> Result<Value, Refusal> {
    let answer = match tool {
        Tool::Doctor => {
            let takes::Nothing {} = read(tool, arguments)?;
            doctor::collect(companion)
        }
        Tool::Dirty => {
            let source = source(companion, &read::<takes::Transcript>(tool, arguments)?.transcript_path)?;
            dirty::measure(companion, &source)?.1
        }
        Tool::Plan => {
            let source = source(companion, &read::<takes::Transcript>(tool, arguments)?.transcript_path)?;
            let plan = plan::make(companion, Some(&source), None)?;
            plan::describe(companion, &plan, &source)?
        }
        Tool::Status => status(companion, &read::<takes::Status>(tool, arguments)?.operation_id)?,
        Tool::Request => request(companion, &read(tool, arguments)?)?,
        Tool::Cancel => cancel(companion, &read(tool, arguments)?)?,
        Tool::RollbackRequest => roll_back(companion, &read(tool, arguments)?)?,
    };
    Ok(capped(answer))
}

/// The transcript that was named; else the pointer's; else, where no pointer is kept or the first turn is running, that
/// of the session the CLI says it is in.
fn source(companion: &Companion, named: &str) -> Result<PathBuf, Refusal> {
    if !named.is_empty() {
        return Ok(dirty::find_source(companion, Some(named.as_ref()))?);
    }
    if companion.pointer.read().is_ok_and(|value| value == PointerValue::Absent) {
        let session =
            std::env::var("CLAUDE_CODE_SESSION_ID").ok().and_then(|id| id.parse::<SessionId>().ok());
        if let Some(path) = session.map(|id| companion.transcript(id)).filter(|path| path.is_file()) {
            return Ok(path);
        }
        return Err(Refusal::new(
            "there is no session to look at yet: the first turn has not been written down",
            "leave it for a later turn, or name a transcript with transcript_path",
        ));
    }
    Ok(dirty::find_source(companion, None)?)
}

fn status(companion: &Companion, id: &str) -> Result<Value, Refusal> {
    let store = companion.store()?;
    let operation = if id.is_empty() { store.latest()? } else { Some(store.load(parse(id)?)?) };
    Ok(match operation {
        Some(operation) => about(companion, &operation),
        None => json!({
            "ok": true,
            "operation": null,
            "next": "There is no operation yet. Nothing is to be done.",
        }),
    })
}

fn request(companion: &Companion, wish: &takes::Request) -> Result<Value, Refusal> {
    word(&wish.confirmation, "REBUILD")?;
    if wish.reason.trim().is_empty() {
        return Err(Refusal::new(
            "there is no reason. Nothing was done",
            "say in a few words why a rebuild is wanted",
        ));
    }
    let by_word = by_word(companion);
    register(companion, |guard| {
        let wish = NewOperation {
            kind: Kind::Rebuild,
            reason: wish.reason.as_str().into(),
            requested_by: BY.to_owned(),
            // Where no human is asked, an open session conflict must stop it.
            by_policy: by_word,
        };
        let operation = guard.request(wish, companion.clock.now())?.into_operation();
        if by_word && operation.yes().is_none() {
            return Ok(guard.agree(operation.id, word_given(companion), companion.clock.now())?);
        }
        Ok(operation)
    })
}

fn cancel(companion: &Companion, wish: &takes::Cancel) -> Result<Value, Refusal> {
    word(&wish.confirmation, "CANCEL")?;
    let id = parse(&wish.operation_id)?;
    register(companion, |guard| {
        let operation = guard.load(id)?;
        let pending =
            matches!(operation.status(), Status::Pending | Status::Verifying | Status::RollbackPending);
        if pending && !by_word(companion) && !waits_for_human(companion, &operation) {
            return Err(Refusal::new(
                format!(
                    "a human has agreed to operation {id}, so it is not yours to take back. Nothing was done"
                ),
                "tell the human, who can take it back with `kael-runner cancel`",
            ));
        }
        Ok(guard.cancel(id, companion.clock.now())?)
    })
}

fn roll_back(companion: &Companion, wish: &takes::Rollback) -> Result<Value, Refusal> {
    word(&wish.confirmation, "ROLLBACK")?;
    let id = parse(&wish.operation_id)?;
    register(companion, |guard| {
        let operation = guard.load(id)?;
        if operation.status() == Status::RollbackPending {
            return Ok(operation);
        }
        if wish.carry_new_turns && gone_on(companion, &operation) {
            let reason = "the way back with what has been said since is asked for by the model";
            let wanted = register_carry_back(guard, id, reason, BY, companion.clock.now())?;
            if by_word(companion) && wanted.yes().is_none() {
                return Ok(guard.agree(wanted.id, word_given(companion), companion.clock.now())?);
            }
            return Ok(wanted);
        }
        let yes = by_word(companion).then(|| word_given(companion));
        Ok(guard.request_rollback(id, "a rollback is asked for by the model", yes, companion.clock.now())?)
    })
}

fn word_given(companion: &Companion) -> Consent {
    let lifetime = companion.config.runner.ask_expires;
    Consent::by_word("the model's word (consent = \"word\")", companion.clock.now(), lifetime)
}

/// Notes something in the store under its lock and wakes the runner, which may be waiting for this very turn to end:
/// nothing here waits for it.
fn register(
    companion: &Companion,
    note: impl FnOnce(&StoreGuard) -> Result<Operation, Refusal>,
) -> Result<Value, Refusal> {
    let guard = companion.store()?.lock_within(LOCK_PATIENCE)?;
    let operation = note(&guard)?;
    drop(guard);
    doorbell::ring(&companion.config.state_dir);
    Ok(about(companion, &operation))
}

fn parse(id: &str) -> Result<OperationId, CliError> {
    id.parse().map_err(|error| CliError::from_error(ErrorKind::Usage, &error))
}
