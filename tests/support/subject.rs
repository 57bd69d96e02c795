//! The two things that are called `claude` here: the real CLI and the stand-in.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::sandbox::Sandbox;

const PINS: &str = include_str!("../claude-versions.txt");

/// What a scenario runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `kael-runner stand-in-claude`, reached through a link named `claude`.
    StandIn,
    /// The real CLI in this version.
    Real { version: String, binary: PathBuf },
}

impl Subject {
    /// The real CLI, if it is on this machine. Absent it is said so, and where CI runs it fails: a
    /// suite that silently tests less is worse than a red one.
    pub fn real(version: &str) -> Option<Self> {
        assert!(
            PINS.lines().any(|line| line.split_whitespace().next() == Some(version)),
            "{version} is not pinned in tests/claude-versions.txt"
        );
        let cache = std::env::var_os("KAEL_CLAUDE_CACHE")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/claude"), PathBuf::from);
        let binary = cache.join(version).join("claude");
        if binary.exists() {
            return Some(Self::Real { version: version.to_owned(), binary });
        }
        let missing = format!(
            "the real Claude Code {version} is not at {}: run .ci/fetch-claude (needs npm and the network)",
            binary.display()
        );
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        eprintln!("SKIPPED: {missing}");
        None
    }

    /// The newest pinned version.
    pub fn newest_real() -> Option<Self> {
        Self::real(
            PINS.lines().find(|l| !l.starts_with('#')).and_then(|l| l.split_whitespace().next()).unwrap(),
        )
    }

    /// The version whose behaviour to expect.
    pub fn version(&self) -> &str {
        match self {
            Self::StandIn => "2.1.332",
            Self::Real { version, .. } => version,
        }
    }

    /// A program named `claude` in the sandbox.
    pub fn program(&self, sandbox: &Sandbox) -> PathBuf {
        let link = sandbox.path("bin/claude");
        let target = match self {
            Self::StandIn => Path::new(env!("CARGO_BIN_EXE_kael-runner")),
            Self::Real { binary, .. } => binary,
        };
        if !link.exists() {
            symlink(target, &link).unwrap();
        }
        link
    }
}
