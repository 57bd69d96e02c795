//! The proof that a candidate holds every word (DESIGN 6): source and candidate are read from disk
//! again, and nothing is believed that the plan says without looking.
//!
//! - `carried`: each item equals its source; ids, times, order, sums and digests hold.
//! - `appended`: the way back is the old transcript, and what was said since behind it.
//! - `dropped`: what is not carried is explained by evidence that does not come from the rules. It
//!   has its own splitter and decoder (`lines`, `row`), its own idea of what a shape looks like
//!   (`shapes`, `noise`) and of which rows are the conversation (`tree`, `places`), and imports nothing from `transcript::chain`, `forks`, `judge` and `speech`.

mod appended;
mod carried;
mod copies;
mod dropped;
mod lines;
mod noise;
mod paths;
mod places;
mod row;
mod shapes;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::candidate::CandidateFile;
use super::plan::Plan;
use crate::transcript::TranscriptError;

pub use appended::{AppendedInput, prove_appended};

/// What a proof is made from.
#[derive(Debug, Clone, Copy)]
pub struct ProofInput<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The source it was made from.
    pub source: &'a Path,
    /// The candidate, where it stands now.
    pub candidate: &'a Path,
    /// What was written there.
    pub candidate_file: &'a CandidateFile,
    /// What inbox and outbox know.
    pub evidence: &'a Evidence,
}

/// What our queues know of a session, independent of its transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Messages our inbox sent into this session.
    pub sent: Vec<SentEvidence>,
    /// Replies our outbox took from it, without parts marked "not kept".
    pub received: Vec<ReceivedEvidence>,
}

/// A message our inbox sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentEvidence {
    /// The uuid of its row.
    pub row_uuid: String,
    /// SHA-256 of each text block as it was sent, in lower-case hexadecimal.
    pub text_sha256: Vec<String>,
}

/// A reply our outbox took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedEvidence {
    /// The API's id of the message.
    pub message_id: String,
    /// The block's place in it.
    pub block_index: u32,
    /// SHA-256 of its text, in lower-case hexadecimal.
    pub text_sha256: String,
}

/// A proof: every check that was made, and on how many things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// SHA-256 of the source as it was read for the proof.
    pub source_sha256: String,
    /// SHA-256 of the candidate.
    pub candidate_sha256: String,
    /// The checks.
    pub checks: Vec<Check>,
}

/// One check that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// On how many things.
    pub count: u64,
}

/// Why something is not proved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProofFailure {
    /// A file could not be read.
    #[error("could not read {} for the proof", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The source could not be read.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The plan is blocked for a reason that concerns the words themselves.
    #[error("the plan is blocked: {0}")]
    Blocked(String),
    /// A check does not hold. Nothing may be switched.
    #[error("the proof fails ({check}): {what}; nothing was switched, the old session stays current")]
    Failed {
        /// The check.
        check: &'static str,
        /// What is wrong, and where.
        what: String,
    },
}

impl ProofFailure {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn failed(check: &'static str, what: String) -> Self {
        Self::Failed { check, what }
    }
}

/// Proves that a candidate holds what its plan says, and that nothing else was said. Blocking; reads
/// both files from disk.
///
/// # Errors
///
/// The first check that does not hold, or a file that cannot be read.
pub fn prove(input: &ProofInput<'_>) -> Result<Proof, ProofFailure> {
    if input.plan.is_hard_blocked() {
        return Err(ProofFailure::Blocked(input.plan.blocked_reason()));
    }
    let mut checks = Vec::new();
    let carried = carried::check(input, &mut checks)?;
    dropped::check(input, &carried, &mut checks)?;
    Ok(Proof {
        source_sha256: input.plan.source_sha256.clone(),
        candidate_sha256: input.candidate_file.sha256.clone(),
        checks,
    })
}
