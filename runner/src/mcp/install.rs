//! `mcp install` and `mcp uninstall`: the server for a `claude` that somebody else starts, registered by the CLI's own
//! command, and its reading tools on the allow list. In turns of ours it is there by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::claude::binary;
use crate::claude::command::REMOVED;
use crate::cli::error::CliError;
use crate::companion::Companion;

use super::permissions;
use super::{NAME, Tool, offer};

/// Where the CLI keeps a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// For the companion's folder alone, and not in it
    Local,
    /// For every folder of the user
    User,
    /// In the companion's folder, for everybody who works there
    Project,
}

impl Scope {
    const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::User => "user",
            Self::Project => "project",
        }
    }

    /// The settings that hold for the same sessions.
    fn settings(self, companion: &Companion) -> PathBuf {
        let config = &companion.config;
        match self {
            Self::Local => config.claude_workdir.join(".claude/settings.local.json"),
            Self::Project => config.claude_workdir.join(".claude/settings.json"),
            Self::User => {
                let config_dir = config.project_dir.parent().and_then(Path::parent);
                config_dir.unwrap_or(Path::new("/")).join("settings.json")
            }
        }
    }
}

/// What was done, or was so already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The registration was changed.
    pub registered: bool,
    /// The allow list was changed.
    pub allowed: bool,
    /// The file of the allow list.
    pub settings: PathBuf,
    /// The server's command line.
    pub command: Vec<String>,
}

/// The tools that may be used without asking: those that only read.
fn reading() -> Vec<String> {
    Tool::ALL.into_iter().filter(|tool| !tool.writes()).map(offer::full_name).collect()
}

/// Registers the server and allows its reading tools. Done twice it is done once.
///
/// # Errors
/// When the CLI refuses, or the settings cannot be understood: they are left as they are.
pub fn install(companion: &Companion, scope: Scope) -> Result<Done, CliError> {
    let settings = scope.settings(companion);
    // First what can be refused without having done anything.
    permissions::check(&settings)?;
    let server = offer::server(&companion.config, offer::program());
    let command: Vec<String> =
        std::iter::once(server.command.clone()).chain(server.arguments.clone()).collect();
    let registered = !is_registered(companion, scope, &server)?;
    if registered {
        unregister(companion, scope)?;
        let mut arguments = vec!["mcp", "add", "--scope", scope.word(), NAME];
        let variables: Vec<String> =
            server.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for variable in &variables {
            arguments.extend(["-e", variable]);
        }
        arguments.push("--");
        arguments.extend(command.iter().map(String::as_str));
        let added = claude(companion, &arguments)?;
        if !added.0 {
            return Err(CliError::failed(format!("the CLI did not take the server: {}", added.1)));
        }
    }
    let allowed = permissions::allow(&companion.disk, &settings, &reading())?;
    Ok(Done { registered, allowed, settings, command })
}

/// Takes both out again.
///
/// # Errors
/// As [`install`].
pub fn uninstall(companion: &Companion, scope: Scope) -> Result<Done, CliError> {
    let settings = scope.settings(companion);
    permissions::check(&settings)?;
    let registered = unregister(companion, scope)?;
    let allowed = permissions::disallow(&companion.disk, &settings, &reading())?;
    Ok(Done { registered, allowed, settings, command: Vec::new() })
}

/// Whether exactly this is registered already, by the CLI's own words.
fn is_registered(companion: &Companion, scope: Scope, server: &offer::Server) -> Result<bool, CliError> {
    let (there, text) = claude(companion, &["mcp", "get", NAME])?;
    let says = |name: &str, value: &str| {
        text.lines().any(|line| line.trim().strip_prefix(name).is_some_and(|rest| rest.trim() == value))
    };
    let scoped = text.lines().any(|line| {
        line.trim()
            .strip_prefix("Scope:")
            .is_some_and(|rest| rest.trim().to_lowercase().starts_with(scope.word()))
    });
    Ok(there
        && scoped
        && says("Command:", &server.command)
        && says("Args:", &server.arguments.join(" "))
        && server.variables.iter().all(|(name, value)| says(&format!("{name}="), value)))
}

fn unregister(companion: &Companion, scope: Scope) -> Result<bool, CliError> {
    Ok(claude(companion, &["mcp", "remove", "--scope", scope.word(), NAME])?.0)
}

/// Runs the companion's CLI in its folder; whether it was content, and what it said.
fn claude(companion: &Companion, arguments: &[&str]) -> Result<(bool, String), CliError> {
    let config = &companion.config;
    let name = config.resume_command.first().map_or("claude", String::as_str);
    let search =
        config.claude.env.get("PATH").map(std::ffi::OsString::from).or_else(|| std::env::var_os("PATH"));
    let binary = binary::resolve(name, &config.claude_workdir, search.as_deref())?;
    let mut command = Command::new(&binary);
    command.args(arguments).current_dir(&config.claude_workdir).envs(&config.claude.env);
    for name in REMOVED {
        command.env_remove(name);
    }
    let out = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| CliError::failed(format!("could not run {}: {error}", binary.display())))?;
    let text = [out.stdout, out.stderr].concat();
    Ok((out.status.success(), String::from_utf8_lossy(&text).trim().to_owned()))
}

/// What was done, for scripts.
#[must_use]
pub fn shown(done: &Done) -> serde_json::Value {
    json!({
        "schema": 1,
        "ok": true,
        "registered": done.registered,
        "allow_list": done.allowed,
        "settings": done.settings,
        "command": done.command,
    })
}
