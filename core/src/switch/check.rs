//! The checks immediately before a switch, and the one right after it.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Adapter, Credential, FrozenSource, SourceChange};
use crate::disk::{DiskError, digest};
use crate::ids::SessionId;
use crate::operation::Candidate;

/// Modification times come from a clock that ticks every few milliseconds and may lag behind the one that
/// gave `frozen_at`.
const CLOCK_SLACK_NS: i64 = 20_000_000;

/// Tells whether a live process holds a session; the runner knows how.
pub trait LiveProcesses {
    /// Who holds the session, in words for people; none if nobody does.
    fn holder(&self, session: SessionId) -> Option<String>;
}

impl<F: Fn(SessionId) -> Option<String>> LiveProcesses for F {
    fn holder(&self, session: SessionId) -> Option<String> {
        self(session)
    }
}

/// What another transcript that became newer than the source means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewerTranscripts {
    /// Under our supervisor: the pointer decides which session is the companion's, so it is only told.
    Warn,
    /// Where nothing else tells which session is the current one.
    Conflict,
}

/// What is compared before a switch.
pub struct SwitchCheck<'a> {
    /// The source as it was frozen.
    pub source: &'a FrozenSource,
    /// The candidate as it was proved.
    pub candidate: &'a Candidate,
    /// What was current at prepare.
    pub credential: Credential,
    /// The folder of the transcripts.
    pub project_dir: &'a Path,
    /// Sessions of our own pointers, candidates and recorded invocations: these may be newer.
    pub allowed_newer: &'a HashSet<SessionId>,
    /// What any other newer one means.
    pub newer: NewerTranscripts,
    /// Who is alive.
    pub live: &'a dyn LiveProcesses,
    /// Whether the source's CLI still lives, so that it may append what is no speech.
    pub writer_lives: bool,
}

/// Something to tell that does not stop the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Another transcript became newer than the source.
    NewerTranscript {
        /// Which.
        path: PathBuf,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerTranscript { path } => {
                write!(
                    f,
                    "{} became newer than the source; another conversation runs in this folder",
                    path.display()
                )
            }
        }
    }
}

/// Why nothing was switched.
#[derive(Debug, thiserror::Error)]
pub enum PreconditionFailure {
    /// The live source is not what was frozen.
    #[error("the source {} changed since it was frozen: {change}", path.display())]
    Source {
        /// The source.
        path: PathBuf,
        /// How, in words.
        change: String,
    },
    /// The candidate is not what was proved.
    #[error("the candidate {} changed since it was proved", path.display())]
    Candidate {
        /// The candidate.
        path: PathBuf,
    },
    /// Something else is current.
    #[error(
        "session conflict: {noted} was current at prepare, {found} is now; find out who changed it, do not retry"
    )]
    Credential {
        /// At prepare.
        noted: Credential,
        /// Now, in words.
        found: String,
    },
    /// Another conversation became active.
    #[error(
        "session conflict: {} became newer than the source since prepare; find out who writes there, do not retry",
        paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Newer {
        /// Which transcripts.
        paths: Vec<PathBuf>,
    },
    /// Somebody runs the session.
    #[error("session conflict: {holder} holds session {session}; end it first")]
    Held {
        /// The session.
        session: SessionId,
        /// Who, in words.
        holder: String,
    },
    /// Something could not be looked at, so it does not hold.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl PreconditionFailure {
    /// Whether somebody else changed the session, so that no policy may try again by itself.
    #[must_use]
    pub const fn session_conflict(&self) -> bool {
        match self {
            Self::Credential { .. } | Self::Newer { .. } | Self::Held { .. } => true,
            Self::Source { .. } | Self::Candidate { .. } | Self::Disk(_) => false,
        }
    }
}

/// Checks everything that must hold immediately before a switch; call it with the adapter's lock held. Reads source
/// and candidate once, whole.
///
/// # Errors
/// The first [`PreconditionFailure`]: the operation fails, and nothing is switched.
pub fn preconditions(
    check: &SwitchCheck<'_>,
    adapter: &dyn Adapter,
) -> Result<Vec<Warning>, PreconditionFailure> {
    let source = check.source;
    source_is_unchanged(source, &compare(source, check.writer_lives)?)?;
    let candidate = &check.candidate.path;
    match digest(candidate) {
        Ok(found) if found.sha256 == check.candidate.sha256 => {}
        Ok(_) | Err(DiskError::NotAFile { .. }) => {
            return Err(PreconditionFailure::Candidate { path: candidate.clone() });
        }
        Err(error) if error.is_not_found() => {
            return Err(PreconditionFailure::Candidate { path: candidate.clone() });
        }
        Err(error) => return Err(error.into()),
    }
    let credential = |found: String| PreconditionFailure::Credential { noted: check.credential, found };
    match adapter.credential() {
        Ok(found) if found == check.credential => {}
        Ok(found) => return Err(credential(found.to_string())),
        Err(error) => return Err(credential(error.to_string())),
    }
    let newer = newer_transcripts(check)?;
    if check.newer == NewerTranscripts::Conflict && !newer.is_empty() {
        return Err(PreconditionFailure::Newer { paths: newer });
    }
    if let Some(holder) = check.live.holder(source.session) {
        return Err(PreconditionFailure::Held { session: source.session, holder });
    }
    // Reading large files takes a while, and the source is what matters most: its facts once more, at the end.
    let last = if check.writer_lives { source.compare_speech()? } else { source.compare_facts()? };
    source_is_unchanged(source, &last)?;
    Ok(newer.into_iter().map(|path| Warning::NewerTranscript { path }).collect())
}

fn compare(source: &FrozenSource, writer_lives: bool) -> Result<SourceChange, DiskError> {
    if writer_lives { source.compare_speech() } else { source.compare() }
}

fn source_is_unchanged(source: &FrozenSource, change: &SourceChange) -> Result<(), PreconditionFailure> {
    if *change == SourceChange::None {
        return Ok(());
    }
    Err(PreconditionFailure::Source { path: source.path.clone(), change: change.to_string() })
}

/// Transcripts directly in the project folder that were written after the source was frozen and are newer than it.
fn newer_transcripts(check: &SwitchCheck<'_>) -> Result<Vec<PathBuf>, DiskError> {
    let folder = check.project_dir;
    let failed = |source| DiskError::io("read the folder", folder, source);
    let frozen_at = check.source.frozen_at.as_millis().saturating_mul(1_000_000) - CLOCK_SLACK_NS;
    let limit = check.source.mtime_ns.max(frozen_at);
    let mut newer = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "jsonl") || path == check.source.path {
            continue;
        }
        let session = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if session.is_some_and(|id: SessionId| {
            id == check.source.session || id == check.candidate.session || check.allowed_newer.contains(&id)
        }) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        let written = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        if metadata.is_file() && written > limit {
            newer.push(path);
        }
    }
    newer.sort();
    Ok(newer)
}

/// What the look right after a switch found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterSwitch {
    /// The source is still what was frozen.
    Clean,
    /// The source changed during the switch: a session conflict. If nothing ran on the new session yet, the switch is
    /// to be undone; else it is to be told.
    SourceChanged {
        /// How, in words.
        change: String,
        /// Whether the new session's transcript is still the candidate, so that undoing loses nothing.
        can_undo: bool,
    },
}

/// Compares the source again right after the switch; `placed` is the candidate in the project folder, and
/// `writer_lived` as [`SwitchCheck::writer_lives`].
///
/// # Errors
/// [`DiskError`] when it cannot be looked at.
pub fn after_switch(
    source: &FrozenSource,
    candidate: &Candidate,
    placed: &Path,
    writer_lived: bool,
) -> Result<AfterSwitch, DiskError> {
    let change = match compare(source, writer_lived)? {
        SourceChange::None => return Ok(AfterSwitch::Clean),
        change => change.to_string(),
    };
    let can_undo = digest(placed).is_ok_and(|found| found.sha256 == candidate.sha256);
    Ok(AfterSwitch::SourceChanged { change, can_undo })
}
