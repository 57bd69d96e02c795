//! The configuration that `init` writes: the commented example, with this companion's folder and command in it.

use std::path::Path;

/// The example that is in the repository, and checked there.
const EXAMPLE: &str = include_str!("../../../examples/pointer.toml");

/// The text for a companion. `state_dir` is written only where the default will not do.
#[must_use]
pub fn configuration(
    workdir: &Path,
    command: &[String],
    config_dir: Option<&str>,
    state_dir: Option<&Path>,
) -> String {
    let mut text = String::from("# Written by `kael-runner init`.\n");
    for line in EXAMPLE.lines().skip_while(|line| line.starts_with('#')) {
        let comment =
            line.split_once(" #").map(|(_, comment)| format!("   # {}", comment.trim())).unwrap_or_default();
        if line.starts_with("claude_workdir = ") {
            text.push_str(&format!("claude_workdir = {}{comment}\n", quoted(&workdir.display().to_string())));
        } else if line.starts_with("resume_command = ") {
            let list: Vec<String> = command.iter().map(|argument| quoted(argument)).collect();
            text.push_str(&format!("resume_command = [{}]{comment}\n", list.join(", ")));
        } else if line.starts_with("#state_dir") || line.starts_with("#project_dir") {
            // The example's paths are made up.
        } else if line.starts_with("# Where things are.") {
            match state_dir {
                Some(dir) => {
                    let dir = quoted(&dir.display().to_string());
                    text.push_str(
                        "# The usual folder belongs to a companion in another folder of this name.\n",
                    );
                    text.push_str(&format!("state_dir = {dir}\n"));
                }
                None => text.push_str(
                    "# state_dir and project_dir are worked out; `kael-runner doctor` shows them.\n",
                ),
            }
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    if let Some(dir) = config_dir {
        text.push_str(&format!("\n[claude.env]\nCLAUDE_CONFIG_DIR = {}\n", quoted(dir)));
    }
    text
}

/// A TOML string: JSON's escapes are among TOML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kael_core::config::{self, Activation, Lookup};

    #[test]
    fn it_is_a_configuration_whatever_the_names_are() {
        let work = Path::new("/srv/风筝 \"box\" \\ #1");
        let command: Vec<String> =
            ["claude", "--resume", "{session_id}", "--append-system-prompt", "be \"kind\"\n# 好"]
                .map(str::to_owned)
                .into();
        let text = configuration(work, &command, Some("/home/me/.other"), Some(Path::new("/s/风筝-2")));
        let lookup = Lookup {
            explicit: None,
            env: &|name| (name == "HOME").then(|| "/home/me".into()),
            cwd: "/".into(),
            called_as_original: false,
        };
        let config = config::parse(&text, Path::new("/c/config.toml"), &lookup).unwrap().remove(0);
        assert_eq!(config.activation, Activation::Pointer);
        assert_eq!(config.claude_workdir, work);
        assert_eq!(config.state_dir, Path::new("/s/风筝-2"));
        assert_eq!(config.resume_command, command);
        assert_eq!(config.claude.env["CLAUDE_CONFIG_DIR"], "/home/me/.other");
        assert!(config.project_dir.starts_with("/home/me/.other/projects"), "{:?}", config.project_dir);
        assert_eq!(text.matches("made up").count() + text.matches("home-me").count(), 0);
    }
}
