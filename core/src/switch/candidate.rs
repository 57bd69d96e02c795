//! The candidate's way from the artifacts into the project folder, and back out.

use std::path::{Path, PathBuf};

use super::SwitchError;
use crate::disk::{Disk, DiskError, digest, folder_of, fresh_sibling};
use crate::ids::SessionId;
use crate::operation::Candidate;

/// The transcript of a session: directly in the project folder, and nowhere else.
#[must_use]
pub fn transcript_path(project_dir: &Path, session: SessionId) -> PathBuf {
    project_dir.join(format!("{session}.jsonl"))
}

/// Gives the proved candidate its name in the project folder, durably, and only there if nothing has that name.
///
/// It is copied (sharing blocks where the file system can) and not linked: the CLI appends to its transcript, and
/// the proved bytes in the artifacts are evidence that must stay as they are. The name appears with the whole content
/// at once, because some versions of the CLI read every transcript of the folder (facts 1).
///
/// # Errors
/// [`DiskError::is_exists`] inside [`SwitchError::Disk`] when something has that name, which is left alone;
/// [`SwitchError::CandidateDiffers`] when the bytes are not the proved ones.
pub fn place_candidate(
    disk: &Disk,
    candidate: &Candidate,
    project_dir: &Path,
) -> Result<PathBuf, SwitchError> {
    let target = transcript_path(project_dir, candidate.session);
    let temporary = fresh_sibling(&target)?;
    let copied = disk.copy_hashing(&candidate.path, &temporary)?;
    let placed = if copied.sha256 == candidate.sha256 {
        disk.rename_noreplace(&temporary, &target).map_err(SwitchError::from)
    } else {
        Err(SwitchError::CandidateDiffers { path: candidate.path.clone() })
    };
    if placed.is_err() {
        // The first error is the one that matters; recovery sweeps what is left.
        drop(disk.remove(&temporary));
    }
    placed?;
    disk.sync_dir(project_dir)?;
    Ok(target)
}

/// Takes a candidate that did not become current out of the project folder, if it is still as it was put there.
/// Returns false, and leaves it alone, when somebody wrote to it. What an interrupted placing left is removed too.
///
/// # Errors
/// [`DiskError`] when it cannot be read or removed.
pub fn withdraw_candidate(disk: &Disk, candidate: &Candidate, project_dir: &Path) -> Result<bool, DiskError> {
    let target = transcript_path(project_dir, candidate.session);
    let name = format!("{}.jsonl", candidate.session);
    disk.sweep(project_dir, |stem| stem == name)?;
    let found = match digest(&target) {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return Ok(true),
        Err(DiskError::NotAFile { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    if found.sha256 != candidate.sha256 {
        return Ok(false);
    }
    disk.remove(&target)?;
    disk.sync_dir(&folder_of(&target))?;
    Ok(true)
}
