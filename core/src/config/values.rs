//! One companion's configuration, with every default and path worked out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use super::choice::{Activation, CarryOverflow, SystemdScope};
use super::tables::{ClaudeConfig, RunnerConfig, TelegramConfig, TranscriptConfig};

/// One companion's configuration. All paths are absolute; `Debug` shows no secrets.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it comes from.
    pub path: PathBuf,
    /// Whether it was reached as the original's configuration, whose defaults then hold (DESIGN 12).
    pub original: bool,
    /// The companion's name, where the file holds several.
    pub name: Option<String>,
    /// Folder of the transcripts.
    pub project_dir: PathBuf,
    /// Whether the file names `project_dir`, instead of leaving it to be worked out.
    pub project_dir_given: bool,
    /// Folder of everything the runner stores.
    pub state_dir: PathBuf,
    /// Folder the CLI runs in.
    pub claude_workdir: PathBuf,
    /// How a switch is made.
    pub activation: Activation,
    /// Argv that resumes the session; exactly one element is `{session_id}`.
    pub resume_command: Vec<String>,
    /// The resume pointer.
    pub resume_pointer_path: PathBuf,
    /// Pane in which `claude` runs (tmux).
    pub tmux_target: String,
    /// Socket of the tmux server, if it is not the default one.
    pub tmux_socket: Option<PathBuf>,
    /// Unit in which `claude` runs; there if `activation` is systemd.
    pub systemd_unit: Option<String>,
    /// Manager that owns the unit.
    pub systemd_scope: SystemdScope,
    /// Noise in bytes from which on a rebuild is due; 0 is off.
    pub dirty_budget_bytes: u64,
    /// Whether an original image view makes a rebuild due.
    pub rebuild_on_original_image_view: bool,
    /// Most tokens of speech to carry: 0 (all), else at least 5000.
    pub carry_max_tokens: u64,
    /// What happens above `carry_max_tokens`.
    pub carry_overflow: CarryOverflow,
    /// Longest item in characters: 0 (no limit), else at least 500.
    pub max_event_chars: u64,
    /// Whether the open tail is carried.
    pub include_open_tail: bool,
    /// Whether a turn's first human message gets its time.
    pub stamp_turns: bool,
    /// Whether the startup snapshot is carried.
    pub freeze_startup_snapshot: bool,
    /// Words that block a rebuild, compiled so that case does not count; never matches the empty text.
    pub poison_pattern: Regex,
    /// Pause before a switch (tmux, systemd).
    pub activation_delay: Duration,
    /// How long a new process must stay (tmux, systemd).
    pub healthcheck: Duration,
    /// How long a transcript must be unchanged to be quiet.
    pub stable_file: Duration,
    /// How long to wait for that.
    pub stable_file_timeout: Duration,
    /// How long stopping and starting the unit may take.
    pub systemd_restart_timeout: Duration,
    /// Whether a given `project_dir` had to be the CLI's for `claude_workdir`.
    pub verify_workdir_matches_project: bool,
    /// `[runner]`.
    pub runner: RunnerConfig,
    /// `[claude]`.
    pub claude: ClaudeConfig,
    /// `[transcript]`.
    pub transcript: TranscriptConfig,
    /// `[telegram]`: the front is on when it is there.
    pub telegram: Option<TelegramConfig>,
    /// `[archive]`: on when it is there.
    pub archive: Option<ArchiveConfig>,
    /// `[metrics]`: on when it is there.
    pub metrics: Option<MetricsConfig>,
    /// What the owner should know and what does not stop anything.
    pub warnings: Vec<String>,
    pub(super) not_yet_effective: Vec<String>,
}

impl Config {
    /// What the file gives and what has no effect yet, since its feature comes later: keys as
    /// `runner.absorb`, whole tables as `[telegram]`.
    #[must_use]
    pub fn not_yet_effective(&self) -> &[String] {
        &self.not_yet_effective
    }
}

/// `[archive]`: the Markdown archive (DESIGN 12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// Folder of the archive.
    pub dir: PathBuf,
    /// When summaries are written.
    pub summary: String,
    /// Whether secrets are masked in archived rounds, too.
    pub mask_rounds: bool,
    /// How long rounds are kept; empty keeps them.
    pub keep: String,
}

/// `[metrics]`: where figures can be read (DESIGN 12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Where to listen.
    pub listen: Listen,
}

/// An address that only this machine can reach (DESIGN 11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Loopback(SocketAddr),
}
