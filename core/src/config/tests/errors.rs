//! Every form of error, as its reader sees it.

use super::super::*;
use super::{error, one, parse_here};

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

proptest::proptest! {
    /// A file that was cut, or written over in places, gives errors with places that exist.
    #[test]
    fn damaged_files_are_refused_or_read_and_never_panic(
        at in 0_usize..super::defaults::EVERY_KEY.len(),
        length in 0_usize..40,
        noise in "\\PC{0,6}|[\\[\\]\"'=#\n.{}]{0,6}",
    ) {
        let whole: Vec<char> = super::defaults::EVERY_KEY.chars().collect();
        let mut text: String = whole.iter().take(at).collect();
        text.push_str(&noise);
        text.extend(whole.iter().skip(at + length));
        if let Err(ConfigError::Invalid { problems, .. }) = parse_here(&text) {
            proptest::prop_assert!(!problems.is_empty());
            let lines = text.split('\n').count();
            for (line, column) in problems.iter().filter_map(|problem| problem.at) {
                proptest::prop_assert!((1..=lines).contains(&line) && column >= 1, "{line}:{column}");
            }
        }
    }
}
