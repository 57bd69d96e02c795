//! The proof of the way back: the old part row by row, and the whole says what was said.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::disk;
use crate::ids::SessionId;
use crate::rebuild::append::{AppendInput, with_parent};
use crate::rebuild::candidate::write_candidate_to;
use crate::rebuild::settings::{PlanInput, RebuildSettings};
use crate::rebuild::{ManifestEntry, Plan};

use super::{Check, ProofFailure};

const CHECK: &str = "the way back";

/// What is held against each other.
#[derive(Debug, Clone, Copy)]
pub struct AppendedInput<'a> {
    /// What was put together.
    pub input: &'a AppendInput<'a>,
    /// The row that the new ones must hang on.
    pub parent: &'a str,
    /// SHA-256 and length of the old transcript when it was frozen.
    pub old: (&'a str, u64),
    /// What the rebuild that is taken back had carried.
    pub carried: &'a [ManifestEntry],
    /// The file, where it stands now.
    pub file: &'a Path,
    /// How a later rebuild would read it.
    pub settings: &'a RebuildSettings,
}

/// Proves it. Everything is read from disk again. Returns the checks, and what a rebuild of the file would carry.
///
/// # Errors
///
/// The first check that does not hold.
pub fn prove_appended(
    proof: &AppendedInput<'_>,
) -> Result<(Vec<Check>, Plan, Vec<ManifestEntry>), ProofFailure> {
    let fail = |what: String| ProofFailure::failed(CHECK, what);
    let (sha256, len) = proof.old;
    let front = disk::digest_of(proof.file, 0, len).map_err(|error| fail(crate::error_chain(&error)))?;
    if front.sha256 != sha256 || front.len != len {
        return Err(fail("its front is not the old transcript".to_owned()));
    }
    let mut checks = vec![Check { name: "bytes of the old transcript as they were", count: len }];
    checks.push(Check { name: "rows taken from the proved candidate", count: rows(proof)? });

    let other = SessionId::generate();
    let plan = crate::rebuild::plan(&PlanInput {
        source: proof.file,
        source_session: proof.input.new_session,
        new_session: other,
        operation: None,
        settings: proof.settings,
        rules: proof.input.rules,
        own: proof.input.own,
        accept_damage: None,
    })
    .map_err(|error| fail(crate::error_chain(&error)))?;
    if plan.is_hard_blocked() {
        return Err(ProofFailure::Blocked(plan.blocked_reason()));
    }
    let said = write_candidate_to(&plan, proof.file, proof.file, &mut io::sink())
        .map_err(|error| fail(crate::error_chain(&error)))?
        .manifest;
    let new = proof.input.manifest.get(proof.input.first..).unwrap_or_default();
    let (before, since) = said.split_at(said.len().saturating_sub(new.len()));
    if !since.iter().map(key).eq(new.iter().map(key)) {
        return Err(fail("it does not end in what has been said since".to_owned()));
    }
    checks.push(Check { name: "items said since, at its end", count: new.len() as u64 });
    let mut left = before.iter();
    // Our marker behind an unanswered message stands only in the clean form.
    let old = proof.carried.iter().filter(|entry| !entry.source_uuid.ends_with("#open_tail"));
    let mut count = 0;
    for entry in old {
        if !left.any(|other| key(other) == key(entry)) {
            return Err(fail(format!(
                "item {} of the rebuild that is taken back is not said in it",
                entry.position
            )));
        }
        count += 1;
    }
    checks.push(Check { name: "items of the old conversation, in order", count });
    Ok((checks, plan, said))
}

/// What makes two items the same: who said it, where it comes from, and the words.
fn key(entry: &ManifestEntry) -> (&str, &str, &str) {
    (&entry.role, &entry.source_uuid, &entry.source_sha256)
}

/// The rows behind the old part are the candidate's, but for the first one's parent.
fn rows(proof: &AppendedInput<'_>) -> Result<u64, ProofFailure> {
    let open = |path: &Path| fs::File::open(path).map_err(ProofFailure::io(path));
    let since = BufReader::new(open(proof.input.since)?).lines().skip(proof.input.first);
    let mut file = open(proof.file)?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(proof.old.1)).map_err(ProofFailure::io(proof.file))?;
    let mut appended = BufReader::new(file).lines().peekable();
    if matches!(appended.peek(), Some(Ok(line)) if line.is_empty()) {
        // The old transcript did not end its last line.
        appended.next();
    }
    let mut count = 0;
    for line in since {
        let mut line = line.map_err(ProofFailure::io(proof.input.since))?;
        if count == 0 {
            line = with_parent(&line, proof.parent).unwrap_or_default();
        }
        let found = appended.next().transpose().map_err(ProofFailure::io(proof.file))?;
        if found.as_deref() != Some(line.as_str()) {
            return Err(ProofFailure::failed(
                CHECK,
                format!("row {count} behind the old part is another one"),
            ));
        }
        count += 1;
    }
    match appended.next().transpose().map_err(ProofFailure::io(proof.file))? {
        Some(line) if !names_the_end(&line) => {
            Err(ProofFailure::failed(CHECK, "it has more rows than were said since".to_owned()))
        }
        _ => Ok(count),
    }
}

/// The one row of ours that is no item: it says where the conversation ends.
fn names_the_end(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|row| row["type"] == "last-prompt")
}
