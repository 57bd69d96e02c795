//! The configuration as a whole: every key, every form of error, search order, examples.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

/// An environment made up of these variables alone.
fn env<const N: usize>(vars: [(&'static str, String); N]) -> impl Fn(&str) -> Option<OsString> {
    move |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
}

/// Parses as the file `/srv/kael/config.toml` of a user whose home is `/home/me`.
fn parse_here(text: &str) -> Result<Vec<Config>, ConfigError> {
    let env = env([("HOME", "/home/me".to_owned())]);
    let lookup = Lookup { explicit: None, env: &env, cwd: PathBuf::from("/"), called_as_original: false };
    parse(text, Path::new("/srv/kael/config.toml"), &lookup)
}

fn one(text: &str) -> Config {
    let mut configs = parse_here(text).unwrap();
    assert_eq!(configs.len(), 1);
    configs.remove(0)
}

fn error(text: &str) -> String {
    parse_here(text).unwrap_err().to_string()
}

/// DESIGN 12's tables, written out, with a value for each key that is not its default.
const EVERY_KEY: &str = r#"
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
                written.extend(inner.keys().map(|key| format!("{}.{}", name.get_ref(), key.get_ref())))
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
                "tmux_target",
                "tmux_socket",
                "systemd_unit",
                "systemd_scope",
                "freeze_startup_snapshot",
                "activation_delay_seconds",
                "healthcheck_seconds",
                "systemd_restart_timeout_seconds",
                "runner.emergency",
                "runner.off_chain",
                "runner.absorb",
                "runner.debounce",
                "runner.replay_overlap",
                "runner.breaker",
                "runner.interrupted_tool",
                "runner.log_content",
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
    assert_eq!(config.not_yet_effective(), ["freeze_startup_snapshot", "runner.absorb", "[telegram]"]);
    insta::assert_snapshot!(config.warnings.join("\n"), @"`tail_turns`: taken from older files, has no effect: a rebuild carries every turn.");
}

#[test]
fn all_that_is_wrong_is_said_at_once_in_the_order_of_the_file() {
    insta::assert_snapshot!(error(r#"
dirty_budget_byte = 1
carry_max_tokens = 4999
max_event_chars = -5
stamp_turns = "yes"
小凯 = true

[runner]
rebuild = "aut"
min_gain_percent = 101
turn_timeout = "20 minutes"
breaker = 0
dirty_budget_bytes = 3
absrob = true

[metrcis]
"#), @r#"
        /srv/kael/config.toml:2:1: `dirty_budget_byte`: unknown key; did you mean `dirty_budget_bytes`?
        /srv/kael/config.toml:3:20: `carry_max_tokens`: 4999 is too small: at least 5000, or 0 for no limit
        /srv/kael/config.toml:4:19: `max_event_chars`: expected a whole number, 0 or more, found the integer -5
        /srv/kael/config.toml:5:15: `stamp_turns`: expected true or false, found a string
        /srv/kael/config.toml:6:1: not TOML: invalid unquoted key, expected letters, numbers, `-`, `_`
        /srv/kael/config.toml:9:11: `runner.rebuild`: expected "off", "ask" or "auto", found "aut"; did you mean "auto"?
        /srv/kael/config.toml:10:20: `runner.min_gain_percent`: expected a percentage from 0 to 100, found the integer 101
        /srv/kael/config.toml:11:16: `runner.turn_timeout`: the units of a duration are ms, s, m, h and d
        /srv/kael/config.toml:12:11: `runner.breaker`: must be at least 1
        /srv/kael/config.toml:13:1: `runner.dirty_budget_bytes`: unknown key in [runner]; `dirty_budget_bytes` stands at top level, above the first table
        /srv/kael/config.toml:14:1: `runner.absrob`: unknown key; did you mean `absorb`?
        /srv/kael/config.toml:16:2: `metrcis`: unknown key; did you mean `metrics`?
        "#);
}

#[test]
fn wrong_types_say_what_was_expected_and_found() {
    insta::assert_snapshot!(error(r#"
project_dir = 5
resume_command = "claude --resume {session_id}"
claude_workdir = "~someone/x"
tmux_socket = ""
poison_pattern = true
healthcheck_seconds = [1]
stable_file_seconds = -1
stable_file_timeout_seconds = nan
activation = 1.5
runner = 3
archive = []
target_tokens = 1979-05-27

[claude]
args = ["--verbose", 7]
env = { A = 1 }
max_retries = 5000000000

[transcript]
injected_tags = ["<reminder>"]

[telegram]
allow = [1, "@friend"]

[metrics]
listen = "0.0.0.0:9464"
"#), @r#"
        /srv/kael/config.toml:2:15: `project_dir`: expected a path in quotes, found the integer 5
        /srv/kael/config.toml:3:18: `resume_command`: expected a list of texts, found a string
        /srv/kael/config.toml:4:18: `claude_workdir`: only `~` alone is expanded, not `~someone`; write the path out
        /srv/kael/config.toml:5:15: `tmux_socket`: an empty path names nothing; leave the key out for its default
        /srv/kael/config.toml:6:18: `poison_pattern`: expected a text in quotes, found the boolean true
        /srv/kael/config.toml:7:23: `healthcheck_seconds`: expected a duration: seconds, or a text such as "20m", found an array
        /srv/kael/config.toml:8:23: `stable_file_seconds`: expected a duration: seconds, or a text such as "20m", found the integer -1
        /srv/kael/config.toml:9:31: `stable_file_timeout_seconds`: a duration must be finite
        /srv/kael/config.toml:10:14: `activation`: expected "pointer", "tmux" or "systemd", found the float 1.5
        /srv/kael/config.toml:11:10: `runner`: expected a table, written [runner], found the integer 3
        /srv/kael/config.toml:12:11: `archive`: expected a table, written [archive], found an array
        /srv/kael/config.toml:13:17: `target_tokens`: expected a whole number, 0 or more, found a datetime
        /srv/kael/config.toml:16:22: `claude.args`: expected a text in quotes, found the integer 7
        /srv/kael/config.toml:17:13: `claude.env`: expected a text in quotes, found the integer 1
        /srv/kael/config.toml:18:15: `claude.max_retries`: expected a whole number from 0 to 4294967295, found the integer 5000000000
        /srv/kael/config.toml:21:17: `transcript.injected_tags`: a tag is its name alone, without `<` and `>`
        /srv/kael/config.toml:24:13: `telegram.allow`: expected a whole number, found a string
        /srv/kael/config.toml:27:10: `metrics.listen`: other machines could reach this address; use 127.0.0.1, [::1] or a unix socket
        "#);
}

#[test]
fn keys_in_the_wrong_table_are_sent_to_the_right_one() {
    insta::assert_snapshot!(error("rebuild = \"auto\"\nname = \"kael\"\n[runner]\nstamp_turns = true\nmentions = true\nzzzzzzzzz = 1\n"), @"
        /srv/kael/config.toml:1:1: `rebuild`: unknown key here; `rebuild` belongs in [runner]
        /srv/kael/config.toml:2:1: `name`: unknown key here; `name` belongs in [[companion]]
        /srv/kael/config.toml:4:1: `runner.stamp_turns`: unknown key in [runner]; `stamp_turns` stands at top level, above the first table
        /srv/kael/config.toml:5:1: `runner.mentions`: unknown key here; `mentions` belongs in [claude]
        /srv/kael/config.toml:6:1: `runner.zzzzzzzzz`: unknown key; the nearest known one is `absorb`
        ");
}

#[test]
fn faults_of_the_syntax_are_placed_and_do_not_quote_the_line() {
    insta::assert_snapshot!(error("dirty_budget_byte = 1\nactivation = \"pointer\nstate_dir = \"/x\"\n"), @r#"
        /srv/kael/config.toml:1:1: `dirty_budget_byte`: unknown key; did you mean `dirty_budget_bytes`?
        /srv/kael/config.toml:2:22: not TOML: invalid basic string, expected `"`
        "#);
    insta::assert_snapshot!(error("activation = \"pointer\"\nactivation = \"tmux\"\n"), @"/srv/kael/config.toml:2:1: `activation`: not TOML: duplicate key");
    insta::assert_snapshot!(error("[runner\nrebuild = \"ask\"\n"), @"/srv/kael/config.toml:1:8: not TOML: unclosed table, expected `]`");
    insta::assert_snapshot!(error("stamp_turns = yes\nstate_dir = \n"), @"
        /srv/kael/config.toml:1:15: not TOML: string values must be quoted, expected literal string
        /srv/kael/config.toml:2:13: not TOML: string values must be quoted, expected literal string
        ");
    let said = error("[telegram]\ntoken_file = \"123456:AAHsecretsecretsecretsecret\n");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn columns_count_characters() {
    let error = parse_here("claude = { env = { \"小凯🦊\" = 1 } }\n").unwrap_err();
    let ConfigError::Invalid { problems, .. } = error else { panic!("{error}") };
    assert_eq!(problems[0].at, Some((1, 28)));
}

#[test]
fn a_resume_command_that_would_not_resume_the_pointers_session_is_refused() {
    let said = |command: &str| {
        let text = format!("activation = \"pointer\"\nresume_command = {command}\n");
        parse_here(&text).err().map(|error| error.to_string()).unwrap_or_default()
    };
    insta::assert_snapshot!(said(r#"["claude", "--continue"]"#), @"/srv/kael/config.toml:2:18: `resume_command`: `--continue` continues the newest session of the folder, whichever that is; use `--resume`, `{session_id}` so that the pointer decides");
    insta::assert_snapshot!(said(r#"["claude", "-c"]"#), @"/srv/kael/config.toml:2:18: `resume_command`: `-c` continues the newest session of the folder, whichever that is; use `--resume`, `{session_id}` so that the pointer decides");
    insta::assert_snapshot!(said(r#"["claude", "--resume={session_id}"]"#), @r#"/srv/kael/config.toml:2:18: `resume_command`: `{session_id}` must stand alone in its element: write "--resume", "{session_id}""#);
    insta::assert_snapshot!(said(r#"["claude", "--resume", "{session_id}", "--session-id", "x"]"#), @"/srv/kael/config.toml:2:18: `resume_command`: `--session-id` together with `--resume` starts a fork or nothing at all; leave `--session-id` out, the runner puts it there for a new session");
    insta::assert_snapshot!(said(r#"["claude", "--resume"]"#), @"/srv/kael/config.toml:2:18: `resume_command`: needs `{session_id}` as an element of its own: without it no session would be resumed");
    insta::assert_snapshot!(said(r#"["claude", "--resume", "{session_id}", "{session_id}"]"#), @"/srv/kael/config.toml:2:18: `resume_command`: holds `{session_id}` more than once; it stands for one argument");
    insta::assert_snapshot!(said("[]"), @r#"/srv/kael/config.toml:2:18: `resume_command`: needs a program in front, as in ["claude", "--resume", "{session_id}"]"#);
    insta::assert_snapshot!(said(r#"["my-claude", "{session_id}"]"#), @r#"/srv/kael/config.toml:2:18: `resume_command`: with `activation = "pointer"` it needs the pair "--resume", "{session_id}": for a new session the runner puts `--session-id` in its place"#);
    assert_eq!(said(r#"["/usr/bin/claude", "--model", "opus", "--resume", "{session_id}"]"#), "");
    // In tmux a shell may start it; its `-c` is not the CLI's.
    one(r#"resume_command = ["bash", "-c", "exec claude --resume \"$0\"", "{session_id}"]"#);
    insta::assert_snapshot!(error(r#"resume_command = ["bash", "-c", "exec claude --continue", "{session_id}"]"#), @"/srv/kael/config.toml:1:18: `resume_command`: `--continue` continues the newest session of the folder, whichever that is; use `--resume`, `{session_id}` so that the pointer decides");
    insta::assert_snapshot!(error("[claude]\nargs = [\"--session-id=x\"]\n"), @"/srv/kael/config.toml:2:8: `claude.args`: `--session-id` decides which session runs, which is the runner's part; leave it out");
}

#[test]
fn keys_that_must_fit_together_are_held_against_each_other() {
    insta::assert_snapshot!(error("activation = \"systemd\"\n"), @r#"/srv/kael/config.toml:1:14: `activation`: `activation = "systemd"` needs `systemd_unit`, the unit in which claude runs"#);
    insta::assert_snapshot!(error("activation = \"systemd\"\nsystemd_unit = \"--all\"\n"), @"/srv/kael/config.toml:2:16: `systemd_unit`: must not begin with `-`: it would be read as an option");
    insta::assert_snapshot!(error("poison_pattern = \"(中毒\"\n"), @"/srv/kael/config.toml:1:18: `poison_pattern`: not a regular expression: unclosed group");
    insta::assert_snapshot!(error("poison_pattern = \"a*\"\n"), @"/srv/kael/config.toml:1:18: `poison_pattern`: matches the empty text, so every turn would be a hit and no rebuild possible");
    insta::assert_snapshot!(error("activation = \"pointer\"\nclaude_workdir = \"/srv/a\"\nproject_dir = \"/home/me/.claude/projects/-srv-b\"\n"), @"/srv/kael/config.toml:3:15: `project_dir`: the CLI keeps the transcripts of claude_workdir /srv/a in /home/me/.claude/projects/-srv-a, not in /home/me/.claude/projects/-srv-b; leave project_dir out, correct one of the two, or set verify_workdir_matches_project = false");
    insta::assert_snapshot!(error("claude_workdir = \"/srv/a\"\nproject_dir = \"/elsewhere/-srv-b\"\n"), @"/srv/kael/config.toml:2:15: `project_dir`: the CLI keeps the transcripts of claude_workdir /srv/a in a folder named -srv-a, not in /elsewhere/-srv-b; leave project_dir out, correct one of the two, or set verify_workdir_matches_project = false");
    // Where the runner does not start the CLI, its home is not known and the name decides.
    let config = one("claude_workdir = \"/srv/a\"\nproject_dir = \"/elsewhere/-srv-a\"\n");
    assert!(config.project_dir_given);
    one("verify_workdir_matches_project = false\nclaude_workdir = \"/srv/a\"\nproject_dir = \"/x\"\n");
}

/// The CLI runs with `[claude] env`, so that its transcripts are where that says.
#[test]
fn the_clis_own_environment_decides_where_transcripts_are() {
    let config = one("claude_workdir = \"/srv/a\"\n[claude]\nenv = { CLAUDE_CONFIG_DIR = \"/srv/cli\" }\n");
    assert_eq!(config.project_dir, Path::new("/srv/cli/projects/-srv-a"));
    assert!(!config.project_dir_given);
}

#[test]
fn without_a_home_what_cannot_be_worked_out_is_named() {
    let env = |_: &str| None;
    let lookup = Lookup { explicit: None, env: &env, cwd: PathBuf::from("/"), called_as_original: false };
    let parse = |text: &str| parse(text, Path::new("/srv/kael/config.toml"), &lookup);
    insta::assert_snapshot!(parse("[archive]\n").unwrap_err(), @"
        /srv/kael/config.toml: `archive.dir`: HOME is not set, so that there is no default; give it
        /srv/kael/config.toml: `project_dir`: neither HOME nor CLAUDE_CONFIG_DIR is set, so that it cannot be worked out; give it
        /srv/kael/config.toml: `state_dir`: HOME is not set, so that there is no default; give it
        ");
    let text = "state_dir = \"/s\"\nclaude_workdir = \"/srv/a\"\nproject_dir = \"/p/-srv-a\"\nactivation = \"pointer\"\n";
    assert_eq!(parse(text).unwrap()[0].state_dir, Path::new("/s"));
}

#[test]
fn secrets_are_in_no_message_and_no_debug_output() {
    let token = "123456:AAHsecretsecretsecretsecret";
    for text in [
        format!("[telegram]\ntoken = \"{token}\"\n"),
        format!("[telegram]\ntoken_file = \"{token}\"\n"),
        format!("[telegram]\nallow = [\"{token}\"]\n"),
        format!("[telegram]\napi_url = \"https://{token}@example.org\"\n"),
        format!("[telegram]\nowner = \"{token}\"\n"),
        format!("telegram = \"{token}\"\n"),
        format!("stamp_turns = \"{token}\"\n"),
        format!("[claude]\nenv = [\"{token}\"]\n"),
        format!("[claude]\nenv = {{ \"A={token}\" = \"x\" }}\n"),
    ] {
        let error = parse_here(&text).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    insta::assert_snapshot!(error(&format!("[telegram]\ntoken = \"{token}\"\n")), @"/srv/kael/config.toml:2:1: `telegram.token`: unknown key; a token does not stand in the configuration: put it in a file of its own (mode 0600) and name that with `token_file`");
    insta::assert_snapshot!(error(&format!("[telegram]\ntoken_file = \"{token}\"\n")), @"/srv/kael/config.toml:2:14: `telegram.token_file`: this looks like the token itself: put it in a file of its own (mode 0600) and name that; a token that stood here should be replaced");
    insta::assert_snapshot!(error("[telegram]\napi_url = \"https://a:b@example.org\"\n"), @"/srv/kael/config.toml:2:11: `telegram.api_url`: an address with a name or password in it would show up in logs; leave them out");
    let config = one(&format!("[claude]\nenv = {{ ANTHROPIC_API_KEY = \"{token}\" }}\n"));
    assert_eq!(config.claude.env["ANTHROPIC_API_KEY"], token);
    assert!(!format!("{config:?}").contains("secret"));
}

#[test]
fn companions_have_their_own_folders_and_the_files_keys_as_defaults() {
    let configs = parse_here(
        r#"
state_dir = "/var/lib/kael"
dirty_budget_bytes = 1
[runner]
rebuild = "auto"
max_attempts = 2
[[companion]]
name = "小凯"
claude_workdir = "/srv/kai"
[companion.runner]
rebuild = "off"
[[companion]]
name = "mira"
claude_workdir = "/srv/mira"
state_dir = "mira-state"
dirty_budget_bytes = 2
[companion.telegram]
"#,
    )
    .unwrap();
    let [kai, mira] = configs.as_slice() else { panic!("{configs:?}") };
    assert_eq!(kai.name.as_deref(), Some("小凯"));
    assert_eq!(kai.state_dir, Path::new("/var/lib/kael/小凯"));
    assert_eq!(kai.resume_pointer_path, Path::new("/var/lib/kael/小凯/resume_session"));
    assert_eq!(kai.project_dir, Path::new("/home/me/.claude/projects/-srv-kai"));
    assert_eq!(
        (kai.runner.rebuild, kai.runner.max_attempts, kai.dirty_budget_bytes),
        (RebuildPolicy::Off, 2, 1)
    );
    assert!(kai.telegram.is_none());
    assert_eq!(mira.state_dir, Path::new("/srv/kael/mira-state"));
    assert_eq!(
        (mira.runner.rebuild, mira.runner.max_attempts, mira.dirty_budget_bytes),
        (RebuildPolicy::Auto, 2, 2)
    );
    assert!(mira.telegram.is_some());

    let configs = parse_here("[[companion]]\nname = \"a\"\n[[companion]]\nname = \"b\"\n").unwrap();
    assert_eq!(configs[1].state_dir, Path::new("/home/me/.local/state/kael-runner/b"));
}

#[test]
fn companions_that_would_share_something_are_refused() {
    insta::assert_snapshot!(error(r#"
resume_pointer_path = "/srv/pointer"
[[companion]]
name = "a"
[[companion]]
name = "b"
state_dir = "/home/me/.local/state/kael-runner/a"
stamp_turn = true
[[companion]]
name = "a"
[[companion]]
name = "../etc"
[[companion]]
claude_workdir = "/srv"
[companion.runner]
rebuild = "never"
[[companion]]
name = 5
companion = []
"#), @r#"
        /srv/kael/config.toml:6:8: `companion["b"].resume_pointer_path`: /srv/pointer already belongs to companion "a"; each has its own
        /srv/kael/config.toml:6:8: `companion["b"].state_dir`: /home/me/.local/state/kael-runner/a already belongs to companion "a"; each has its own
        /srv/kael/config.toml:8:1: `companion["b"].stamp_turn`: unknown key; did you mean `stamp_turns`?
        /srv/kael/config.toml:10:8: `companion["a"].name`: two companions have this name
        /srv/kael/config.toml:12:8: `companion[3].name`: a companion's name names its folder: letters, digits, `-`, `_` and `.` only, and neither `.` nor `-` in front
        /srv/kael/config.toml:13:1: `companion[4]`: needs a `name`, which names its folder
        /srv/kael/config.toml:16:11: `companion[4].runner.rebuild`: expected "off", "ask" or "auto", found "never"
        /srv/kael/config.toml:18:8: `companion[5].name`: expected a text in quotes, found the integer 5
        /srv/kael/config.toml:19:1: `companion[5].companion`: a companion holds no further ones
        "#);
    insta::assert_snapshot!(error("[companion]\nname = \"a\"\n"), @"/srv/kael/config.toml:1:1: `companion`: each companion is a table of its own, written [[companion]]");
    insta::assert_snapshot!(error("companion = [1]\n"), @"/srv/kael/config.toml:1:14: `companion[0]`: expected a table, written [[companion]], found the integer 1");
    // What the file says wrongly for all of them is said once.
    insta::assert_snapshot!(error("activation = \"systemd\"\n[[companion]]\nname = \"a\"\n[[companion]]\nname = \"b\"\n"), @r#"/srv/kael/config.toml:1:14: `activation`: `activation = "systemd"` needs `systemd_unit`, the unit in which claude runs"#);
}

/// A home with a working folder, and what a search in it finds.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("work")).unwrap();
        fs::create_dir_all(home.path().join(".config/kael-runner")).unwrap();
        Self(home)
    }

    fn write(&self, name: &str, budget: u64) {
        fs::write(self.0.path().join(name), format!("dirty_budget_bytes = {budget}\n")).unwrap();
    }

    fn load(&self, explicit: Option<&str>, vars: [(&'static str, &str); 2]) -> Result<Config, String> {
        let home = self.0.path();
        let vars = vars.map(|(name, value)| (name, value.to_owned()));
        let given = env(vars);
        let env = |name: &str| if name == "HOME" { Some(home.into()) } else { given(name) };
        let lookup = Lookup {
            explicit: explicit.map(PathBuf::from),
            env: &env,
            cwd: home.join("work"),
            called_as_original: false,
        };
        load(&lookup).map(|mut configs| configs.remove(0)).map_err(|error| {
            let source =
                std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{source}").replace(&home.display().to_string(), "~")
        })
    }
}

#[test]
fn places_are_searched_in_the_documented_order() {
    let home = Home::new();
    let none = [("A", ""), ("B", "")];
    let both = [("KAEL_RUNNER_CONFIG", "../runner.toml"), ("KAEL_REBUILD_CONFIG", "../rebuild.toml")];
    insta::assert_snapshot!(home.load(None, none).unwrap_err(), @"
        no configuration found; copy examples/pointer.toml to one of these places, or name a file with --config:
          ~/work/config.toml
          ~/.config/kael-runner/config.toml
          /etc/kael-runner/config.toml
          /etc/kael-thread-rebuild/config.toml
        ");

    home.write(".config/kael-runner/config.toml", 5);
    assert_eq!(home.load(None, none).unwrap().dirty_budget_bytes, 5);
    home.write("work/config.toml", 4);
    assert_eq!(home.load(None, none).unwrap().dirty_budget_bytes, 4);
    home.write("rebuild.toml", 3);
    let config = home.load(None, [("KAEL_RUNNER_CONFIG", ""), both[1]]).unwrap();
    assert_eq!((config.dirty_budget_bytes, config.original), (3, true));
    // A file that was named and is not there does not fall through to another one.
    insta::assert_snapshot!(home.load(None, both).unwrap_err(), @"cannot read the configuration ~/work/../runner.toml (named by KAEL_RUNNER_CONFIG): No such file or directory (os error 2)");
    home.write("runner.toml", 2);
    let config = home.load(None, both).unwrap();
    assert_eq!((config.dirty_budget_bytes, config.original), (2, false));
    home.write("explicit.toml", 1);
    let config = home.load(Some("../explicit.toml"), both).unwrap();
    assert_eq!((config.dirty_budget_bytes, config.original), (1, false));
    insta::assert_snapshot!(home.load(Some("absent.toml"), both).unwrap_err(), @"cannot read the configuration ~/work/absent.toml (named by --config): No such file or directory (os error 2)");
    insta::assert_snapshot!(home.load(Some("."), both).unwrap_err(), @"cannot read the configuration ~/work (named by --config): Is a directory (os error 21)");

    fs::write(home.0.path().join("work/config.toml"), b"stamp_turns = true\n# caf\xe9\n").unwrap();
    insta::assert_snapshot!(home.load(None, none).unwrap_err(), @"~/work/config.toml:2:6: not TOML: the file is not UTF-8 from here on");
}

#[test]
fn the_originals_configuration_has_the_originals_defaults() {
    let env = env([("HOME", "/root".to_owned()), ("XDG_STATE_HOME", "/elsewhere".to_owned())]);
    let mut lookup = Lookup { explicit: None, env: &env, cwd: PathBuf::from("/"), called_as_original: false };
    let etc = Path::new("/etc/kael-thread-rebuild/config.toml");
    let config = parse("", etc, &lookup).unwrap().remove(0);
    assert!(config.original && config.freeze_startup_snapshot);
    assert_eq!(config.claude_workdir, Path::new("/root"));
    assert_eq!(config.state_dir, Path::new("/root/.local/state/kael-thread-rebuild"));
    assert_eq!(
        config.resume_pointer_path,
        Path::new("/root/.local/state/kael-thread-rebuild/resume_session")
    );
    assert_eq!(config.project_dir, Path::new("/root/.claude/projects/-root"));
    assert!(config.not_yet_effective().is_empty(), "a default is not given");

    let other = Path::new("/srv/x.toml");
    assert!(!parse("", other, &lookup).unwrap()[0].original);
    lookup.called_as_original = true;
    assert!(parse("", other, &lookup).unwrap()[0].original);
}

#[test]
fn the_examples_are_right_also_with_their_commented_keys() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for (name, activation) in [
        ("pointer", Activation::Pointer),
        ("tmux", Activation::Tmux),
        ("systemd", Activation::Systemd),
        ("telegram", Activation::Pointer),
    ] {
        let text = fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
        let config = one(&text);
        assert_eq!(config.activation, activation, "{name}");
        assert_eq!(config.telegram.is_some(), name == "telegram");
        assert_eq!(config.claude_workdir, Path::new("/home/me/companion"));
        assert_eq!(config.state_dir, Path::new("/home/me/.local/state/kael-runner/companion"));
        assert_eq!(config.warnings, [""; 0]);

        let whole: Vec<&str> = text
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .collect();
        let with_all = one(&whole.join("\n"));
        assert_eq!(with_all.state_dir, config.state_dir, "{name}");
        assert_eq!(with_all.project_dir, config.project_dir, "{name}");
        assert_eq!(with_all.resume_pointer_path, config.resume_pointer_path, "{name}");
    }
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
