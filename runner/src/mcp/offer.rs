//! How the server gets into an invocation: the CLI's `--mcp-config`, and which of the tools it may use without asking,
//! since nobody answers a pop-up in `claude -p` (DESIGN 9).

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kael_core::config::{Config, Consent};
use serde_json::json;

use super::{NAME, Tool};

/// The CLI's name of a tool.
#[must_use]
pub fn full_name(tool: Tool) -> String {
    format!("mcp__{NAME}__{}", tool.name())
}

/// The tools that are allowed by themselves. The writing ones only register while a human decides; where the model's word
/// decides, the owner must allow them by name in `[claude] args`.
#[must_use]
pub fn allowed(consent: Consent) -> Vec<String> {
    let offered = |tool: &Tool| !tool.writes() || consent == Consent::Human;
    Tool::ALL.into_iter().filter(offered).map(full_name).collect()
}

/// How the server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables it needs.
    pub variables: Vec<(&'static str, String)>,
}

/// The server of a companion.
#[must_use]
pub fn server(config: &Config, program: &Path) -> Server {
    let mut arguments = Vec::new();
    let mut variables = Vec::new();
    let path = config.path.to_string_lossy().into_owned();
    if config.original {
        // Its defaults hold only where it is reached in the original's way.
        variables = vec![("KAEL_RUNNER_CONFIG", String::new()), ("KAEL_REBUILD_CONFIG", path)];
    } else {
        arguments.extend(["--config".to_owned(), path]);
    }
    if let Some(name) = &config.name {
        arguments.extend(["--companion".to_owned(), name.clone()]);
    }
    arguments.push("mcp".to_owned());
    Server { command: program.to_string_lossy().into_owned(), arguments, variables }
}

/// The value of `--mcp-config`: the same from turn to turn, so that the prompt cache holds.
#[must_use]
pub fn config_json(config: &Config, program: &Path) -> String {
    let server = server(config, program);
    let variables: serde_json::Map<String, serde_json::Value> =
        server.variables.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    json!({
        "mcpServers": {
            NAME: {
                "type": "stdio",
                "command": server.command,
                "args": server.arguments,
                "env": variables,
                "alwaysLoad": true,
            },
        },
    })
    .to_string()
}

/// This program. An update puts another file in its place, and then it is that one which is meant.
#[must_use]
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("kael-runner"));
        match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
            Some(replaced) => PathBuf::from(replaced),
            None => path,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_human_s_yes_replaces_the_pop_up() {
        let writing = "mcp__kael-thread-rebuild__thread_rebuild_request".to_owned();
        assert_eq!(allowed(Consent::Human).len(), 7);
        assert!(allowed(Consent::Human).contains(&writing));
        assert_eq!(allowed(Consent::Word).len(), 4);
        assert!(!allowed(Consent::Word).contains(&writing));
    }
}
