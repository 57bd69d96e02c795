//! Where a configuration is found, and what that changes; the examples.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::*;
use super::{env, one};

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
        no configuration found: `kael-runner init` writes one; or put one at one of these places, or name a file with --config:
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
