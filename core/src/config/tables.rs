//! Every key of DESIGN 12: name, type, default, whether its feature is there, and one line about it.
//!
//! This is the only list. Parsing, bounds, the nearest known key, defaults, documentation and the
//! keys that have no effect yet all come from it; a feature that arrives turns `Later` into `Works`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::checks;
use super::choice::{
    Activation, CarryOverflow, Consent, Emergency, InterruptedTool, OffChain, RebuildPolicy, ReplyMode,
    SystemdScope,
};
use super::keys::{Effect, Key, Layer, settings};
use super::setting::{Check, Given, Reader, Setting};

/// Default of `poison_pattern` (DESIGN 6).
const POISON: &str =
    "(AUP|Acceptable Use|policy violation|policy blocked|refusal loop|毒上下文|中毒|拒绝循环)";

/// Tools whose text is a message to a chat (DESIGN 4).
const REPLY_TOOLS: [&str; 2] = ["mcp__*companion*__reply", "mcp__*telegram*__reply"];

/// Tags the runtime is known to put around blocks that no human typed (facts 4 and 11).
const INJECTED_TAGS: [&str; 15] = [
    "system-reminder",
    "command-name",
    "command-message",
    "command-args",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "task-notification",
    "teammate-message",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
];

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

settings! {
    /// The keys at top level, before paths are worked out.
    #[expect(dead_code, reason = "keys of older files are read and checked, and never used")]
    pub(super) struct Top, TopLayer in "" {
        /// Folder of the transcripts; worked out from `claude_workdir` when left out.
        project_dir: Option<PathBuf> = None, Works;
        /// Folder of everything the runner stores; `$XDG_STATE_HOME/kael-runner/<name of the working folder>`.
        state_dir: Option<PathBuf> = None, Works;
        /// Folder the CLI runs in; the configuration's folder when left out.
        claude_workdir: Option<PathBuf> = None, Works, original(Some(PathBuf::from("/root")));
        /// How a switch is made; `run` works with "pointer", the Stop hook with the others.
        activation: Activation = Activation::Tmux, Works;
        /// Command that resumes the session, one argument an element, `{session_id}` alone in one.
        resume_command: Vec<String> = texts(&["claude", "--resume", "{session_id}"]), Works, check(checks::resume_command);
        /// File that names the session to resume; `resume_session` in the state folder when left out.
        resume_pointer_path: Option<PathBuf> = None, Works;
        /// Pane in which `claude` runs (tmux).
        tmux_target: String = "cc:0.0".to_owned(), Works, check(checks::plain_name);
        /// Socket of the tmux server, if it is not the default one (tmux).
        tmux_socket: Option<PathBuf> = None, Works;
        /// Unit in which `claude` runs (systemd).
        systemd_unit: Option<String> = None, Works, check(checks::unit_name);
        /// Manager that owns the unit (systemd).
        systemd_scope: SystemdScope = SystemdScope::System, Works;
        /// Noise, in bytes, from which on a rebuild is due; 0 is off.
        dirty_budget_bytes: u64 = 512 * 1024, Works;
        /// Whether an image that the model opened makes a rebuild due.
        rebuild_on_original_image_view: bool = true, Works;
        /// Most tokens of speech to carry; 0 carries everything.
        carry_max_tokens: u64 = 0, Works, check(checks::zero_or_at_least::<5000>);
        /// What happens above `carry_max_tokens`.
        carry_overflow: CarryOverflow = CarryOverflow::DropOldest, Works;
        /// Longest single item, in characters; 0 cuts nothing.
        max_event_chars: u64 = 0, Works, check(checks::zero_or_at_least::<500>);
        /// Whether what was said and not answered is carried, too.
        include_open_tail: bool = true, Works;
        /// Whether a turn's first human message gets the time it was said.
        stamp_turns: bool = true, Works;
        /// Whether the first reminder of a session is carried as a marked item.
        freeze_startup_snapshot: bool = false, Later, original(true);
        /// Words that block a rebuild when they stand twice in the last ten turns (case does not count).
        poison_pattern: String = POISON.to_owned(), Works, check(checks::pattern);
        /// Pause before a switch (tmux, systemd).
        activation_delay_seconds: Duration = seconds(3), Works;
        /// How long the new process must stay to count as healthy (tmux, systemd).
        healthcheck_seconds: Duration = seconds(5), Works;
        /// How long a transcript must be unchanged to count as quiet.
        stable_file_seconds: Duration = seconds(1), Works;
        /// How long to wait for a transcript to become quiet.
        stable_file_timeout_seconds: Duration = seconds(10), Works;
        /// How long stopping and starting the unit may take (systemd).
        systemd_restart_timeout_seconds: Duration = seconds(180), Works;
        /// Whether `project_dir` must be the one the CLI uses for `claude_workdir`.
        verify_workdir_matches_project: bool = true, Works;
        /// taken from older files, has no effect: `carry_max_tokens` says how much is carried.
        target_tokens: Option<u64> = None, Ignored;
        /// taken from older files, has no effect: a rebuild carries every turn.
        tail_turns: Option<u64> = None, Ignored;
    }
}

settings! {
    /// `[runner]`: the supervisor's policy and its times (DESIGN 12).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RunnerConfig, RunnerLayer in "runner" {
        /// What happens when a rebuild is due.
        rebuild: RebuildPolicy = RebuildPolicy::Ask, Works;
        /// Whose yes a rebuild needs.
        consent: Consent = Consent::Human, Works;
        /// What happens when only a rebuild mends the session.
        emergency: Emergency = Emergency::Ask, Works;
        /// How long a question stays open.
        ask_expires: Duration = seconds(24 * HOUR), Works, check(checks::some_time);
        /// Share of the context that a rebuild must free to be worth it.
        min_gain_percent: u8 = 20, Works;
        /// Context tokens from which on a rebuild is due; 0 is off.
        context_budget_tokens: u64 = 0, Works;
        /// Share of the context window from which on a rebuild is due; 0 is off.
        context_budget_percent: u8 = 60, Works;
        /// Context window in tokens; 0 takes the one the CLI reports.
        context_window: u64 = 0, Works;
        /// Tokens of system prompt, tools and memory files; 0 measures them.
        fixed_overhead_tokens: u64 = 0, Works;
        /// What happens to speech on branches that are not the conversation.
        off_chain: OffChain = OffChain::Ask, Later;
        /// Which texts of a turn are its reply.
        reply: ReplyMode = ReplyMode::All, Works;
        /// Whether messages that arrive while a tool is at work are given to the running turn.
        absorb: bool = false, Works;
        /// Remote messages this close together are one turn.
        debounce: Duration = seconds(1), Later;
        /// How many delivered messages a front asks for again after it reconnects.
        replay_overlap: u64 = 5, Later;
        /// Longest turn.
        turn_timeout: Duration = seconds(30 * MINUTE), Works, check(checks::some_time);
        /// Longest silence of the CLI within a turn.
        idle_timeout: Duration = seconds(10 * MINUTE), Works, check(checks::some_time);
        /// How long a running turn may go on after the order to stop.
        stop_timeout: Duration = seconds(60), Works;
        /// How long a CLI that lost its runner may finish.
        orphan_grace: Duration = seconds(30), Works;
        /// How long the CLI may take to exit after its result.
        exit_grace: Duration = seconds(10), Works;
        /// Pause between TERM and KILL.
        kill_grace: Duration = seconds(5), Works;
        /// Attempts after which a message counts as dead.
        max_attempts: u32 = 5, Works, check(checks::at_least_one);
        /// Failures within two minutes that hold the queue.
        breaker: u32 = 5, Works, check(checks::at_least_one);
        /// What happens when a process ended inside a tool.
        interrupted_tool: InterruptedTool = InterruptedTool::Note, Works;
        /// Whether logs may hold what was said.
        log_content: bool = false, Works;
    }
}

settings! {
    /// `[claude]`: how the CLI is started (DESIGN 12). Its `Debug` leaves the values of `env` out.
    #[derive(Clone, PartialEq, Eq)]
    pub struct ClaudeConfig, ClaudeLayer in "claude" {
        /// Arguments appended to every invocation.
        args: Vec<String> = Vec::new(), Works, check(checks::claude_args);
        /// Environment of the CLI: over the inherited one, under the runner's own.
        env: BTreeMap<String, String> = BTreeMap::new(), Works, check(checks::env_names);
        /// Whether `@path` in a message of a local front reads the file.
        mentions: bool = false, Works;
        /// Whether the CLI may compact by itself, which loses words.
        auto_compact: bool = false, Works;
        /// How often the CLI repeats a failed API call by itself.
        max_retries: u32 = 2, Works;
    }
}

impl fmt::Debug for ClaudeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaudeConfig")
            .field("args", &self.args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("mentions", &self.mentions)
            .field("auto_compact", &self.auto_compact)
            .field("max_retries", &self.max_retries)
            .finish()
    }
}

settings! {
    /// `[transcript]`: what counts as speech where the rows alone do not say (DESIGN 4).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TranscriptConfig, TranscriptLayer in "transcript" {
        /// Tools whose text is a message to a chat; `*` stands for anything.
        reply_tools: Vec<String> = texts(&REPLY_TOOLS), Works;
        /// Tags around whole blocks that no human typed.
        injected_tags: Vec<String> = texts(&INJECTED_TAGS), Works, check(checks::tags);
        /// Unknown row types that hold no speech and do not block a rebuild.
        accept_unknown: Vec<String> = Vec::new(), Works;
    }
}

settings! {
    /// `[telegram]`: the Telegram front, on when the table is there (DESIGN 12).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TelegramConfig, TelegramLayer in "telegram" {
        /// File with the bot's token; else the credential `telegram-token`, else `TELEGRAM_BOT_TOKEN`.
        token_file: Option<PathBuf> = None, Later, check(checks::not_a_token);
        /// User or chat ids that are let in; empty means nobody.
        allow: Vec<i64> = Vec::new(), Later;
        /// Id of the user who answers questions.
        owner: Option<i64> = None, Later;
        /// Address of the Bot API.
        api_url: String = "https://api.telegram.org".to_owned(), Later, check(checks::web_address);
    }
}

settings! {
    /// `[archive]` as written.
    pub(super) struct ArchiveTable, ArchiveLayer in "archive" {
        /// Folder of the archive; `$XDG_DATA_HOME/kael-runner/archive` when left out.
        dir: Option<PathBuf> = None, Later;
        /// When summaries are written.
        summary: String = "idle".to_owned(), Later;
        /// Whether keys and other secrets are masked in archived rounds, too.
        mask_rounds: bool = false, Later;
        /// How long rounds are kept; empty keeps them.
        keep: String = String::new(), Later;
    }
}

settings! {
    /// `[metrics]` as written.
    pub(super) struct MetricsTable, MetricsLayer in "metrics" {
        /// `unix:` and a path, or a loopback address with a port; `unix:<state_dir>/metrics.sock` when left out.
        listen: Option<String> = None, Later;
    }
}

/// Everything one level of a file says: the file itself, or one `[[companion]]`.
#[derive(Clone, Default)]
pub(super) struct Layers {
    pub(super) top: TopLayer,
    pub(super) runner: RunnerLayer,
    pub(super) claude: ClaudeLayer,
    pub(super) transcript: TranscriptLayer,
    /// These three are features that are on when their table is there, even when it is empty.
    pub(super) telegram: Option<TelegramLayer>,
    pub(super) archive: Option<ArchiveLayer>,
    pub(super) metrics: Option<MetricsLayer>,
}

impl Layers {
    /// The tables that can stand in a file, beside `[[companion]]`.
    pub(super) const TABLES: [(&'static str, &'static [Key]); 6] = [
        ("runner", RunnerLayer::KEYS),
        ("claude", ClaudeLayer::KEYS),
        ("transcript", TranscriptLayer::KEYS),
        ("telegram", TelegramLayer::KEYS),
        ("archive", ArchiveLayer::KEYS),
        ("metrics", MetricsLayer::KEYS),
    ];

    /// The layer of a table; naming it turns its feature on.
    pub(super) fn table(&mut self, name: &str) -> Option<&mut dyn Layer> {
        Some(match name {
            "runner" => &mut self.runner,
            "claude" => &mut self.claude,
            "transcript" => &mut self.transcript,
            "telegram" => self.telegram.get_or_insert_default(),
            "archive" => self.archive.get_or_insert_default(),
            "metrics" => self.metrics.get_or_insert_default(),
            _ => return None,
        })
    }

    /// What a companion says, and below it what the file says for all of them.
    pub(super) fn over(&self, below: &Self) -> Self {
        fn both<T: Clone>(above: Option<&T>, below: Option<&T>, over: fn(&T, &T) -> T) -> Option<T> {
            match (above, below) {
                (Some(above), Some(below)) => Some(over(above, below)),
                (above, below) => above.or(below).cloned(),
            }
        }
        Self {
            top: self.top.over(&below.top),
            runner: self.runner.over(&below.runner),
            claude: self.claude.over(&below.claude),
            transcript: self.transcript.over(&below.transcript),
            telegram: both(self.telegram.as_ref(), below.telegram.as_ref(), TelegramLayer::over),
            archive: both(self.archive.as_ref(), below.archive.as_ref(), ArchiveLayer::over),
            metrics: both(self.metrics.as_ref(), below.metrics.as_ref(), MetricsLayer::over),
        }
    }

    /// Names what was given and has no effect yet: keys, and whole tables whose feature comes later.
    pub(super) fn not_yet_effective(&self) -> Vec<String> {
        let keys = (self.top.given())
            .chain(self.runner.given())
            .chain(self.claude.given())
            .chain(self.transcript.given());
        let mut names = later(keys);
        if let Some(layer) = &self.telegram {
            names.extend(later_table("telegram", TelegramLayer::KEYS, layer.given()));
        }
        if let Some(layer) = &self.archive {
            names.extend(later_table("archive", ArchiveLayer::KEYS, layer.given()));
        }
        if let Some(layer) = &self.metrics {
            names.extend(later_table("metrics", MetricsLayer::KEYS, layer.given()));
        }
        names
    }
}

fn later(given: impl Iterator<Item = &'static Key>) -> Vec<String> {
    given.filter(|key| key.effect == Effect::Later).map(Key::path).collect()
}

/// A table without any key that works is named as a whole, also when it is empty.
fn later_table(name: &str, all: &[Key], given: impl Iterator<Item = &'static Key>) -> Vec<String> {
    if all.iter().all(|key| key.effect == Effect::Later) { vec![format!("[{name}]")] } else { later(given) }
}

/// Every key of the configuration, in the order of its documentation, `[[companion]]`'s `name` aside.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TopLayer::KEYS.iter().chain(Layers::TABLES.iter().flat_map(|(_, keys)| keys.iter()))
}
