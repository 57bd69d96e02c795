//! A whole companion in one file, and back out of it: on another machine or in another folder.
//!
//! The file is a tar archive, compressed with zstd: the configuration without secrets, the state folder with a consistent
//! snapshot of the queue, the pointer with its history, and the transcripts of every session the companion has had. Last
//! comes `manifest.json` with length and SHA-256 of everything else: an archive that ends before it is none.
//!
//! | module | what |
//! |---|---|
//! | `pack` | writes an archive under a temporary name, reads it back whole, then gives it its name |
//! | `unpack` | unfolds one beside its place, checks every digest, corrects the places, then moves it in |
//! | `portable` | the configuration: secrets out, places in |
//!
//! *Owner.* Packing holds the runner's lock, so that nothing is between two steps. Nothing that is there is overwritten.

mod pack;
mod portable;
mod unpack;

use std::path::{Component, Path, PathBuf};

use kael_core::clock::Timestamp;
use kael_core::ids::SessionId;
use serde::{Deserialize, Serialize};

pub use pack::pack;
pub use unpack::{Places, unpack};

/// The form this release writes; a greater one is a newer release's.
const SCHEMA: u32 = 1;

const MANIFEST: &str = "manifest.json";
const CONFIG: &str = "config.toml";
const POINTER: &str = "pointer";
const HISTORY: &str = "pointer.history";
const STATE: &str = "state";
const TRANSCRIPTS: &str = "transcripts";

/// What an archive holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    schema: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// By which version.
    pub version: String,
    /// The companion's name, where the configuration has several.
    pub companion: Option<String>,
    /// The session its pointer names.
    pub session: Option<SessionId>,
    /// Where its things were.
    claude_workdir: PathBuf,
    project_dir: PathBuf,
    state_dir: PathBuf,
    /// Secrets that are not in it.
    pub left_out: Vec<String>,
    /// Everything else in it.
    pub files: Vec<Packed>,
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// Its name in the archive.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// SHA-256 of its content.
    pub sha256: String,
}

/// Whether an archive of ours has a file of this name: none leads out of the folder it is unfolded in.
fn is_ours(path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let mut parts = path.components().filter_map(|part| part.as_os_str().to_str());
    let deep = parts.clone().count() > 1;
    plain
        && match parts.next() {
            Some(MANIFEST | CONFIG | POINTER | HISTORY) => !deep,
            Some(STATE | TRANSCRIPTS) => deep,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_elsewhere() {
        for good in ["manifest.json", "state/queue.sqlite", "transcripts/a/subagents/b.jsonl"] {
            assert!(is_ours(Path::new(good)), "{good}");
        }
        for bad in ["/etc/passwd", "state/../../x", "state", "config.toml/x", "other", "./state/x", ""] {
            assert!(!is_ours(Path::new(bad)), "{bad}");
        }
    }
}
