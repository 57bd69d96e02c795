//! `pointer show|set|history`; `watch` is in a file of its own.

use kael_core::ids::SessionId;
use kael_core::pointer::PointerValue;
use serde_json::json;

use crate::companion::Companion;
use crate::queue::RequestKind;

use super::args;
use super::error::CliError;
use super::output::Output;

/// Runs the command.
pub fn run(companion: &Companion, args: args::Pointer, output: &Output) -> Result<(), CliError> {
    match args {
        args::Pointer::Show { locked } => show(companion, locked, output),
        args::Pointer::Set { session, expect } => set(companion, &session, expect.as_deref(), output),
        args::Pointer::History => history(companion, output),
        args::Pointer::Watch => super::watch::run(companion, output),
    }
}

fn show(companion: &Companion, locked: bool, output: &Output) -> Result<(), CliError> {
    let _lock = locked.then(|| companion.pointer.lock()).transpose()?;
    match companion.pointer.read()? {
        PointerValue::Session(session) => {
            output.print(&json!({ "schema": 1, "ok": true, "session": session }), || session.to_string())
        }
        PointerValue::Absent => Err(CliError::failed(format!(
            "there is no resume pointer {} yet: the first message to `kael-runner run` makes one",
            companion.config.resume_pointer_path.display()
        ))),
    }
}

fn set(companion: &Companion, session: &str, expect: Option<&str>, output: &Output) -> Result<(), CliError> {
    super::refuse_inside_invocation("pointer set")?;
    let session: SessionId = Companion::session(session)?;
    let transcript = companion.transcript(session);
    if !transcript.is_file() {
        return Err(CliError::refused(format!(
            "there is no transcript {}: the pointer was not changed",
            transcript.display()
        )));
    }
    let expected = match expect {
        None => json!("anything"),
        Some("none") => json!(null),
        Some(text) => json!(Companion::session(text)?),
    };
    let arguments = json!({ "session": session, "expected": expected });
    let answer = super::operations::perform(companion, RequestKind::PointerSet, &arguments)?;
    output.print(&answer, || format!("the next turn resumes {session}"))
}

fn history(companion: &Companion, output: &Output) -> Result<(), CliError> {
    let history = companion.pointer.history()?;
    output.print(&json!({ "schema": 1, "history": history }), || {
        if history.is_empty() {
            return "the pointer was never changed by us".to_owned();
        }
        let lines = history.iter().map(|line| {
            let from = line.from.map_or_else(|| "(absent)".to_owned(), |from: SessionId| from.to_string());
            let operation = line.operation.map(|id| format!("  operation {id}")).unwrap_or_default();
            format!("{}  {from} -> {}  by {}{operation}", line.at, line.to, line.by)
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}
