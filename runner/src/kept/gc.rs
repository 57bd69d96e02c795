//! Which artifacts and copies may go: those of old operations, never the last evidence.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::{Operation, Status};
use serde::{Deserialize, Serialize};

use crate::cli::error::CliError;
use crate::companion::Companion;

use super::{folder, last_switches, sessions};

/// What may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Artifacts of so many of the newest operations.
    pub operations: usize,
    /// So many bytes of artifacts.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { operations: 10, bytes: 5_000_000_000 }
    }
}

/// Something that goes, or stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thing {
    /// The operation whose artifacts these are; none of a kept copy.
    pub operation: Option<OperationId>,
    /// Where it stands.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Why it goes, or stays.
    pub why: &'static str,
}

/// What was, or would be, cleared away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What goes.
    pub removed: Vec<Thing>,
    /// What stays.
    pub kept: Vec<Thing>,
}

impl Report {
    /// The bytes that go.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.removed.iter().map(|thing| thing.bytes).sum()
    }
}

/// Decides what may go. Looks only.
///
/// # Errors
/// When something cannot be read: nothing goes then.
pub fn collect(companion: &Companion, limits: Limits) -> Result<Report, CliError> {
    let state = &companion.config.state_dir;
    let store = companion.store()?;
    let operations = store.list()?.operations;
    let current = companion.pointer.read()?.session();
    let last: BTreeSet<OperationId> = last_switches(&operations).iter().map(|op| op.id).collect();
    let mut report = Report::default();
    let (mut count, mut bytes) = (0, 0);
    let mut over = false;
    for operation in &operations {
        let path = store.artifacts_dir(operation.id);
        if !path.is_dir() {
            continue;
        }
        let size = size(&path)?;
        let needed = needed(operation, current, &last);
        let fits = !over && count < limits.operations && bytes + size <= limits.bytes;
        // Of what is not needed the oldest go: behind the first that does not fit none stays.
        over |= !fits && needed.is_none();
        let thing = |why| Thing { operation: Some(operation.id), path, bytes: size, why };
        match needed {
            Some(why) => report.kept.push(thing(why)),
            None if fits => report.kept.push(thing("within the limits")),
            None => {
                report.removed.push(thing("an old operation's evidence"));
                continue;
            }
        }
        count += 1;
        bytes += size;
    }
    copies(state, &sessions(companion)?, &mut report)?;
    Ok(report)
}

/// Why an operation's artifacts must stay, if they must.
fn needed(
    operation: &Operation,
    current: Option<SessionId>,
    last: &BTreeSet<OperationId>,
) -> Option<&'static str> {
    let made = operation.state().candidate().map(|candidate| candidate.session);
    let from = operation.source.as_ref().map(|source| source.session);
    if operation.status().is_active() {
        Some("the operation is not at its end")
    } else if operation.has_open_conflict() {
        Some("its session conflict is not cleared")
    } else if last.contains(&operation.id) {
        Some("one of the last two switches")
    } else if current.is_some()
        && (made == current && operation.status() != Status::Failed || from == current)
    {
        Some("it made, or began from, the present session")
    } else {
        None
    }
}

/// Copies of sessions that are not kept any more.
fn copies(state: &Path, wanted: &BTreeSet<SessionId>, report: &mut Report) -> Result<(), CliError> {
    let entries = match fs::read_dir(folder(state)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let path = entry?.path();
        let session = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        // What was set aside, and what is not ours, is a human's to remove.
        let ours = path.extension().is_some_and(|end| end == "jsonl" || end == "pieces");
        let Some(session) = session.filter(|_| ours) else { continue };
        let bytes = path.metadata()?.len();
        let thing = |why| Thing { operation: None, path, bytes, why };
        if wanted.contains(&session) {
            report.kept.push(thing("a copy of a session that may be needed"));
        } else {
            report.removed.push(thing("a copy of a session that is long left"));
        }
    }
    report.removed.sort_by(|a, b| a.path.cmp(&b.path));
    report.kept.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

fn size(folder: &Path) -> Result<u64, CliError> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { size(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
