//! Every key: known, reaching its field, with its documented default.

use std::time::Duration;

use super::super::*;
use super::{error, one, parse_here};

/// DESIGN 12's tables, written out, with a value for each key that is not its default.
pub(super) const EVERY_KEY: &str = r#"
project_dir = "/home/me/.claude/projects/-srv-companion"
state_dir = "/srv/state"
claude_workdir = "/srv/companion"
activation = "pointer"
resume_command = ["nice", "claude", "--resume", "{session_id}"]
resume_pointer_path = "/srv/pointer"
tmux_target = "kael:1.2"
tmux_socket = "/run/tmux"
systemd_unit = "kael.service"
systemd_scope = "user"
dirty_budget_bytes = 1
rebuild_on_original_image_view = false
carry_max_tokens = 5000
carry_overflow = "block"
max_event_chars = 500
include_open_tail = false
stamp_turns = false
freeze_startup_snapshot = true
poison_pattern = "中毒"
activation_delay_seconds = 0
healthcheck_seconds = 5.5
stable_file_seconds = "500ms"
stable_file_timeout_seconds = "1m"
systemd_restart_timeout_seconds = "1h30m"
verify_workdir_matches_project = false
target_tokens = 1000
tail_turns = 3

[runner]
rebuild = "auto"
consent = "word"
emergency = "auto"
ask_expires = 60
min_gain_percent = 0
context_budget_tokens = 100000
context_budget_percent = 100
context_window = 200000
fixed_overhead_tokens = 20000
off_chain = "carry"
reply = "final"
absorb = true
debounce = 0
replay_overlap = 0
turn_timeout = "1h"
idle_timeout = "1m"
stop_timeout = 0
orphan_grace = "1s"
exit_grace = "2s"
kill_grace = "3s"
max_attempts = 1
breaker = 2
interrupted_tool = "rerun"
log_content = true

[claude]
args = ["--model", "opus"]
env = { LANG = "zh_CN.UTF-8", "X_Y" = "🦊" }
mentions = true
auto_compact = true
max_retries = 0

[transcript]
reply_tools = ["mcp__chat__say"]
injected_tags = ["mine"]
accept_unknown = ["weather"]

[telegram]
token_file = "~/token"
allow = [1, -100200]
owner = 1
api_url = "http://127.0.0.1:8081"

[archive]
dir = "~/archive"
summary = "never"
mask_rounds = true
keep = "1y"

[metrics]
listen = "127.0.0.1:9464"
"#;

#[test]
fn every_key_of_the_documentation_is_known_and_no_other() {
    let (table, _) = toml::de::DeTable::parse_recoverable(EVERY_KEY);
    let mut written = Vec::new();
    for (name, value) in table.get_ref() {
        match value.get_ref().as_table() {
            Some(inner) => {
                written.extend(inner.keys().map(|key| format!("{}.{}", name.get_ref(), key.get_ref())));
            }
            None => written.push(name.get_ref().to_string()),
        }
    }
    let mut known: Vec<String> = keys().map(Key::path).collect();
    written.sort();
    known.sort();
    assert_eq!(written, known);
    assert!(keys().all(|key| !key.doc().is_empty() && !key.doc().contains('\n')));
}

/// Every field differs from its default, so that a key that reached the wrong field would show.
#[test]
fn every_key_reaches_its_field() {
    insta::assert_snapshot!(format!("{:#?}", one(EVERY_KEY)), @r#"
        Config {
            path: "/srv/kael/config.toml",
            original: false,
            name: None,
            project_dir: "/home/me/.claude/projects/-srv-companion",
            project_dir_given: true,
            state_dir: "/srv/state",
            claude_workdir: "/srv/companion",
            activation: Pointer,
            resume_command: [
                "nice",
                "claude",
                "--resume",
                "{session_id}",
            ],
            resume_pointer_path: "/srv/pointer",
            tmux_target: "kael:1.2",
            tmux_socket: Some(
                "/run/tmux",
            ),
            systemd_unit: Some(
                "kael.service",
            ),
            systemd_scope: User,
            dirty_budget_bytes: 1,
            rebuild_on_original_image_view: false,
            carry_max_tokens: 5000,
            carry_overflow: Block,
            max_event_chars: 500,
            include_open_tail: false,
            stamp_turns: false,
            freeze_startup_snapshot: true,
            poison_pattern: Regex(
                "中毒",
            ),
            activation_delay: 0ns,
            healthcheck: 5.5s,
            stable_file: 500ms,
            stable_file_timeout: 60s,
            systemd_restart_timeout: 5400s,
            verify_workdir_matches_project: false,
            runner: RunnerConfig {
                rebuild: Auto,
                consent: Word,
                emergency: Auto,
                ask_expires: 60s,
                min_gain_percent: 0,
                context_budget_tokens: 100000,
                context_budget_percent: 100,
                context_window: 200000,
                fixed_overhead_tokens: 20000,
                off_chain: Carry,
                reply: Final,
                absorb: true,
                debounce: 0ns,
                replay_overlap: 0,
                turn_timeout: 3600s,
                idle_timeout: 60s,
                stop_timeout: 0ns,
                orphan_grace: 1s,
                exit_grace: 2s,
                kill_grace: 3s,
                max_attempts: 1,
                breaker: 2,
                interrupted_tool: Rerun,
                log_content: true,
            },
            claude: ClaudeConfig {
                args: [
                    "--model",
                    "opus",
                ],
                env: [
                    "LANG",
                    "X_Y",
                ],
                mentions: true,
                auto_compact: true,
                max_retries: 0,
            },
            transcript: TranscriptConfig {
                reply_tools: [
                    "mcp__chat__say",
                ],
                injected_tags: [
                    "mine",
                ],
                accept_unknown: [
                    "weather",
                ],
            },
            telegram: Some(
                TelegramConfig {
                    token_file: Some(
                        "/home/me/token",
                    ),
                    allow: [
                        1,
                        -100200,
                    ],
                    owner: Some(
                        1,
                    ),
                    api_url: "http://127.0.0.1:8081",
                },
            ),
            archive: Some(
                ArchiveConfig {
                    dir: "/home/me/archive",
                    summary: "never",
                    mask_rounds: true,
                    keep: "1y",
                },
            ),
            metrics: Some(
                MetricsConfig {
                    listen: Loopback(
                        127.0.0.1:9464,
                    ),
                },
            ),
            warnings: [
                "`target_tokens`: taken from older files, has no effect: `carry_max_tokens` says how much is carried.",
                "`tail_turns`: taken from older files, has no effect: a rebuild carries every turn.",
            ],
            not_yet_effective: [
                "freeze_startup_snapshot",
                "runner.off_chain",
                "runner.debounce",
                "runner.replay_overlap",
                "[telegram]",
                "[archive]",
                "[metrics]",
            ],
        }
        "#);
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = one("");
    insta::assert_snapshot!(format!("{config:#?}"), @r#"
        Config {
            path: "/srv/kael/config.toml",
            original: false,
            name: None,
            project_dir: "/home/me/.claude/projects/-srv-kael",
            project_dir_given: false,
            state_dir: "/home/me/.local/state/kael-runner/kael",
            claude_workdir: "/srv/kael",
            activation: Tmux,
            resume_command: [
                "claude",
                "--resume",
                "{session_id}",
            ],
            resume_pointer_path: "/home/me/.local/state/kael-runner/kael/resume_session",
            tmux_target: "cc:0.0",
            tmux_socket: None,
            systemd_unit: None,
            systemd_scope: System,
            dirty_budget_bytes: 524288,
            rebuild_on_original_image_view: true,
            carry_max_tokens: 0,
            carry_overflow: DropOldest,
            max_event_chars: 0,
            include_open_tail: true,
            stamp_turns: true,
            freeze_startup_snapshot: false,
            poison_pattern: Regex(
                "(AUP|Acceptable Use|policy violation|policy blocked|refusal loop|毒上下文|中毒|拒绝循环)",
            ),
            activation_delay: 3s,
            healthcheck: 5s,
            stable_file: 1s,
            stable_file_timeout: 10s,
            systemd_restart_timeout: 180s,
            verify_workdir_matches_project: true,
            runner: RunnerConfig {
                rebuild: Ask,
                consent: Human,
                emergency: Ask,
                ask_expires: 86400s,
                min_gain_percent: 20,
                context_budget_tokens: 0,
                context_budget_percent: 60,
                context_window: 0,
                fixed_overhead_tokens: 0,
                off_chain: Ask,
                reply: All,
                absorb: false,
                debounce: 1s,
                replay_overlap: 5,
                turn_timeout: 1800s,
                idle_timeout: 600s,
                stop_timeout: 60s,
                orphan_grace: 30s,
                exit_grace: 10s,
                kill_grace: 5s,
                max_attempts: 5,
                breaker: 5,
                interrupted_tool: Note,
                log_content: false,
            },
            claude: ClaudeConfig {
                args: [],
                env: [],
                mentions: false,
                auto_compact: false,
                max_retries: 2,
            },
            transcript: TranscriptConfig {
                reply_tools: [
                    "mcp__*companion*__reply",
                    "mcp__*telegram*__reply",
                ],
                injected_tags: [
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
                ],
                accept_unknown: [],
            },
            telegram: None,
            archive: None,
            metrics: None,
            warnings: [],
            not_yet_effective: [],
        }
        "#);
    let shown: Vec<String> = keys()
        .filter(|key| !key.default_toml().is_empty() && !key.path().ends_with("_tags"))
        .map(|key| match key.original_default_toml() {
            Some(original) => format!("{} = {}   (original: {original})", key.path(), key.default_toml()),
            None => format!("{} = {}", key.path(), key.default_toml()),
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
        activation = "tmux"
        resume_command = ["claude", "--resume", "{session_id}"]
        tmux_target = "cc:0.0"
        systemd_scope = "system"
        dirty_budget_bytes = 524288
        rebuild_on_original_image_view = true
        carry_max_tokens = 0
        carry_overflow = "drop_oldest"
        max_event_chars = 0
        include_open_tail = true
        stamp_turns = true
        freeze_startup_snapshot = false   (original: true)
        poison_pattern = "(AUP|Acceptable Use|policy violation|policy blocked|refusal loop|毒上下文|中毒|拒绝循环)"
        activation_delay_seconds = "3s"
        healthcheck_seconds = "5s"
        stable_file_seconds = "1s"
        stable_file_timeout_seconds = "10s"
        systemd_restart_timeout_seconds = "3m"
        verify_workdir_matches_project = true
        runner.rebuild = "ask"
        runner.consent = "human"
        runner.emergency = "ask"
        runner.ask_expires = "1d"
        runner.min_gain_percent = 20
        runner.context_budget_tokens = 0
        runner.context_budget_percent = 60
        runner.context_window = 0
        runner.fixed_overhead_tokens = 0
        runner.off_chain = "ask"
        runner.reply = "all"
        runner.absorb = false
        runner.debounce = "1s"
        runner.replay_overlap = 5
        runner.turn_timeout = "30m"
        runner.idle_timeout = "10m"
        runner.stop_timeout = "1m"
        runner.orphan_grace = "30s"
        runner.exit_grace = "10s"
        runner.kill_grace = "5s"
        runner.max_attempts = 5
        runner.breaker = 5
        runner.interrupted_tool = "note"
        runner.log_content = false
        claude.args = []
        claude.env = {}
        claude.mentions = false
        claude.auto_compact = false
        claude.max_retries = 2
        transcript.reply_tools = ["mcp__*companion*__reply", "mcp__*telegram*__reply"]
        transcript.accept_unknown = []
        telegram.allow = []
        telegram.api_url = "https://api.telegram.org"
        archive.summary = "idle"
        archive.mask_rounds = false
        archive.keep = ""
        "#);
}

/// The documentation prints defaults as TOML: what it prints must be accepted.
#[test]
fn every_shown_default_is_read_back() {
    for key in keys() {
        for shown in [Some(key.default_toml()), key.original_default_toml()].into_iter().flatten() {
            if !shown.is_empty() {
                parse_here(&format!("{} = {shown}", key.path())).unwrap();
            }
        }
    }
}

#[test]
fn the_words_that_block_a_rebuild_are_found_in_any_case() {
    let pattern = one("").poison_pattern;
    assert!(pattern.is_match("an ACCEPTABLE use question") && pattern.is_match("这是毒上下文"));
    assert!(!pattern.is_match("good morning"));
}

#[test]
fn keys_without_effect_yet_are_named_when_they_are_given() {
    assert!(one("").not_yet_effective().is_empty());
    let config = one(
        "tail_turns = 3\nfreeze_startup_snapshot = true\n[runner]\nabsorb = false\nrebuild = \"ask\"\n[telegram]\n",
    );
    assert_eq!(config.not_yet_effective(), ["freeze_startup_snapshot", "[telegram]"]);
    insta::assert_snapshot!(config.warnings.join("\n"), @"`tail_turns`: taken from older files, has no effect: a rebuild carries every turn.");
}

#[test]
fn durations_are_seconds_or_texts() {
    let config =
        one("stable_file_seconds = 0x10\nhealthcheck_seconds = 0.25\n[runner]\nturn_timeout = \"1h30m\"\n");
    assert_eq!(config.stable_file, Duration::from_secs(16));
    assert_eq!(config.healthcheck, Duration::from_millis(250));
    assert_eq!(config.runner.turn_timeout, Duration::from_secs(5400));
}

#[test]
fn metrics_listen_where_only_this_machine_reaches_them() {
    let listen =
        |text: &str| one(&format!("state_dir = \"/s\"\n[metrics]\n{text}\n")).metrics.unwrap().listen;
    assert_eq!(listen(""), Listen::Unix("/s/metrics.sock".into()));
    assert_eq!(listen("listen = \"unix:<state_dir>/m.sock\""), Listen::Unix("/s/m.sock".into()));
    assert_eq!(listen("listen = \"unix:~/m.sock\""), Listen::Unix("/home/me/m.sock".into()));
    assert_eq!(listen("listen = \"localhost:1\""), Listen::Loopback("127.0.0.1:1".parse().unwrap()));
    assert_eq!(listen("listen = \"[::1]:1\""), Listen::Loopback("[::1]:1".parse().unwrap()));
    insta::assert_snapshot!(error("[metrics]\nlisten = \"9464\"\n"), @r#"/srv/kael/config.toml:2:10: `metrics.listen`: expected "unix:PATH" or a loopback address such as "127.0.0.1:9464""#);
}

/// systemd kills what it still finds after `TimeoutStopSec`: a turn must have ended by then.
#[test]
fn the_unit_waits_longer_than_a_stop_takes_by_default() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../systemd/kael-runner@.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    let runner = one("").runner;
    let stop = runner.stop_timeout + runner.exit_grace + runner.kill_grace;
    assert!(Duration::from_secs(value.trim_end_matches('s').parse().unwrap()) > stop, "{value} {stop:?}");
}
