//! The CLI: the program, its version, its login, and what its settings do to a companion.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kael_core::config::{Activation, Config};
use kael_core::transcript::drift;
use serde_json::Value;

use crate::claude::binary::{self, VersionCache};
use crate::claude::command::REMOVED;
use crate::companion::Companion;
use crate::versions;

use super::{Check, config_dir};

pub(super) fn find(config: &Config) -> Result<PathBuf, String> {
    let name = config.resume_command.first().map_or("claude", String::as_str);
    let configured = config.claude.env.get("PATH").map(std::ffi::OsString::from);
    let search = configured.or_else(|| std::env::var_os("PATH"));
    binary::resolve(name, &config.claude_workdir, search.as_deref()).map_err(|error| error.to_string())
}

pub(super) fn program(config: &Config, binary: &Result<PathBuf, String>) -> Check {
    let binary = match binary {
        Ok(binary) => binary,
        Err(error) => {
            return Check::fail("cli", error.clone(), "install Claude Code or correct resume_command");
        }
    };
    let env: Vec<(String, String)> = config.claude.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    match VersionCache::default().version(binary, &env, REMOVED) {
        None => Check::fail(
            "cli",
            format!("{} --version prints no version", binary.display()),
            "is it Claude Code? correct the first element of resume_command",
        ),
        Some(version) if versions::is_known(&version) => {
            Check::pass("cli", format!("{} is {version}, which was measured", binary.display()))
        }
        Some(version) => Check::warn(
            "cli",
            format!("{} is {version}; measured were {}", binary.display(), versions::KNOWN.join(" and ")),
            "watch the first rebuild: rebuild = \"auto\" asks instead until this version is known",
        ),
    }
}

/// Which versions' transcripts the table of known shapes was checked against.
pub(super) fn shapes(config: &Config, binary: &Result<PathBuf, String>) -> Check {
    let all = drift::CHECKED_VERSIONS.join(", ");
    let env: Vec<(String, String)> = config.claude.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let version =
        binary.as_ref().ok().and_then(|binary| VersionCache::default().version(binary, &env, REMOVED));
    match version {
        Some(version) if !drift::is_checked(&version) => Check::warn(
            "shapes",
            format!("transcripts of {version} were not looked at; known are those of {all}"),
            "nothing yet: a shape that is new blocks a rebuild, with its line",
        ),
        _ => Check::pass("shapes", format!("the shapes of rows were checked against {all}")),
    }
}

/// Whether there is something to log in with; with `live` whether it works, for the price of one short turn.
pub(super) fn login(companion: &Companion, binary: &Result<PathBuf, String>, live: bool) -> Option<Check> {
    let config = &companion.config;
    let binary = binary.as_ref().ok()?;
    if live {
        return Some(try_login(companion, binary));
    }
    let given = |name: &str| config.claude.env.contains_key(name) || std::env::var_os(name).is_some();
    let known = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX",
    ];
    if let Some(name) = known.into_iter().find(|name| given(name)) {
        return Some(Check::pass("login", format!("{name} is set; `doctor --live` tries it")));
    }
    let settings = Settings::read(config);
    if settings.get("apiKeyHelper").is_some() {
        return Some(Check::pass("login", "apiKeyHelper is set; `doctor --live` tries it"));
    }
    let file = config_dir(config).join(".credentials.json");
    if file.is_file() {
        return Some(Check::pass("login", format!("{} is there; `doctor --live` tries it", file.display())));
    }
    Some(Check::warn(
        "login",
        format!("there is neither {} nor a key in the environment", file.display()),
        "run `claude` once as this user and log in; `kael-runner doctor --live` tries it",
    ))
}

fn try_login(companion: &Companion, binary: &std::path::Path) -> Check {
    const PATIENCE: Duration = Duration::from_secs(120);
    let folder = companion.config.state_dir.join("probe");
    let failed = |why: String| {
        Check::fail(
            "login",
            why,
            "run `claude` as this user and log in; then `kael-runner retry` if the queue is held",
        )
    };
    if let Err(error) = companion.disk.private_dir(&folder) {
        return failed(kael_core::error_chain(&error));
    }
    let mut command = Command::new(binary);
    for name in REMOVED {
        command.env_remove(name);
    }
    let child = command
        .args(["-p", "--output-format", "json", "--no-session-persistence", "--max-turns", "1"])
        .arg("This is an automatic check of the login. Reply with: ok")
        .envs(&companion.config.claude.env)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return failed(format!("could not run {}: {error}", binary.display())),
    };
    let until = Instant::now() + PATIENCE;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            child.kill().unwrap_or_default();
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let Ok(output) = child.wait_with_output() else {
        return failed("the CLI could not be waited for".to_owned());
    };
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if result["is_error"] == false {
        return Check::pass("login", "works: one short turn was answered");
    }
    let why = result["result"].as_str().unwrap_or("no answer");
    failed(format!("one short turn was not answered: {}", why.chars().take(200).collect::<String>()))
}

/// The CLI's settings, as far as they reach a companion: the user's, the project's, the project's local ones.
pub(super) struct Settings {
    layers: Vec<Value>,
    user: PathBuf,
}

impl Settings {
    pub(super) fn read(config: &Config) -> Self {
        let user = config_dir(config).join("settings.json");
        let project = config.claude_workdir.join(".claude");
        let files = [project.join("settings.local.json"), project.join("settings.json"), user.clone()];
        let layers = files.iter().filter_map(|file| serde_json::from_slice(&std::fs::read(file).ok()?).ok());
        Self { layers: layers.collect(), user }
    }

    /// What the nearest file says.
    fn get(&self, name: &str) -> Option<&Value> {
        self.layers.iter().find_map(|layer| layer.get(name))
    }

    fn env(&self, name: &str) -> bool {
        self.layers.iter().any(|layer| {
            layer["env"].get(name).is_some_and(|value| !matches!(value.as_str(), Some("" | "0" | "false")))
        })
    }
}

pub(super) fn clean_up(settings: &Settings) -> Check {
    let days = settings.get("cleanupPeriodDays").and_then(Value::as_u64).unwrap_or(30);
    if days >= 365 {
        return Check::pass("clean-up", format!("the CLI keeps transcripts for {days} days"));
    }
    Check::warn(
        "clean-up",
        format!("the CLI deletes transcripts that were not touched for {days} days (cleanupPeriodDays)"),
        format!("put \"cleanupPeriodDays\": 3650 into {}", settings.user.display()),
    )
}

fn switched_on(config: &Config, settings: &Settings, name: &str) -> bool {
    let on = |value: &str| !matches!(value, "" | "0" | "false");
    config.claude.env.get(name).is_some_and(|value| on(value))
        || std::env::var(name).is_ok_and(|value| on(&value))
        || settings.env(name)
        || super::place::has_in_environment(config, name)
}

pub(super) fn updates(config: &Config, settings: &Settings) -> Check {
    if switched_on(config, settings, "DISABLE_AUTOUPDATER")
        || settings.get("autoUpdates") == Some(&Value::Bool(false))
    {
        return Check::pass("auto-update", "off");
    }
    Check::warn(
        "auto-update",
        "the CLI updates itself: a version that was not measured may come at any time",
        "set DISABLE_AUTOUPDATER = \"1\" in [claude.env], or in env of the CLI's settings",
    )
}

pub(super) fn compaction(config: &Config, settings: &Settings) -> Check {
    let off = if config.activation == Activation::Pointer {
        !config.claude.auto_compact
    } else {
        switched_on(config, settings, "DISABLE_AUTO_COMPACT")
            || switched_on(config, settings, "DISABLE_COMPACT")
            || settings.get("autoCompactEnabled") == Some(&Value::Bool(false))
    };
    if off {
        return Check::pass("auto-compact", "off");
    }
    Check::warn(
        "auto-compact",
        "the CLI may compact the conversation by itself, which replaces words by a summary",
        match config.activation {
            Activation::Pointer => "set auto_compact = false in [claude]",
            _ => "start claude with DISABLE_AUTO_COMPACT=1, or set it in env of the CLI's settings",
        },
    )
}
