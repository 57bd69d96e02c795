//! Several companions in one file.

use std::path::Path;

use super::super::*;
use super::{error, parse_here};

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
