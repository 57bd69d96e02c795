//! Coming from `kael-thread-rebuild`: what will differ, and the links by which this program answers to its names.
//!
//! Its configuration works as it stands, its operations are read where they lie. `check` says what is not as it was and
//! whether the setup passes the list by which an installation was always accepted; it changes nothing.

mod links;

use std::path::Path;

use kael_core::config::{Activation, Config, Consent};
use kael_core::operation::OpStore;
use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::{dirty, doctor, plan};
use crate::companion::Companion;

pub use links::{Link, install};

/// What a check found.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What is not as it was, and what to do about it.
    pub differs: Vec<String>,
    /// Operations in the state folder that can be read, and what is wrong with the others.
    pub operations: usize,
    /// Files in it that cannot.
    pub unreadable: Vec<String>,
    /// The acceptance list: name, whether it holds, and what was found.
    pub acceptance: Vec<(&'static str, bool, String)>,
}

/// Looks at a setup of the original's.
///
/// # Errors
/// When its operations cannot be listed.
pub fn check(companion: &Companion) -> Result<Checked, CliError> {
    let config = &companion.config;
    let listing = OpStore::read_only(&config.state_dir, companion.disk.clone()).list()?;
    let scratch = std::env::temp_dir().join(format!("kael-migrate-{}", uuid::Uuid::new_v4().as_simple()));
    let acceptance = acceptance(&aside(companion, &scratch));
    companion.disk.remove_folder(&scratch)?;
    Ok(Checked {
        differs: differs(config),
        operations: listing.operations.len(),
        unreadable: listing.unreadable.iter().map(|found| kael_core::error_chain(&found.error)).collect(),
        acceptance,
    })
}

/// The companion with a state folder of its own for the looks that need one, where it has none of ours yet: a check leaves
/// nothing behind in its place.
fn aside(companion: &Companion, scratch: &Path) -> Companion {
    let mut config = (*companion.config).clone();
    if !config.state_dir.join("queue.sqlite").exists() {
        if !config.resume_pointer_path.exists() {
            config.resume_pointer_path = scratch.join("resume_session");
        }
        config.state_dir = scratch.to_owned();
    }
    Companion::new(config)
}

fn differs(config: &Config) -> Vec<String> {
    let mut all: Vec<String> = config.warnings.clone();
    if config.runner.consent == Consent::Human {
        all.push(
            "a request by the model waits for a human's yes (`kael-runner confirm`); consent = \"word\" in the table \
             [runner] makes its word enough, as it was"
                .to_owned(),
        );
    }
    all.push(
        "a transcript row of an unknown shape blocks a rebuild, with its line; before, it was passed over"
            .to_owned(),
    );
    all.push(
        "a rebuild that would free less than min_gain_percent (20) of the context is not made".to_owned(),
    );
    if !config.verify_workdir_matches_project {
        all.push("verify_workdir_matches_project = false: project_dir is believed, as it was".to_owned());
    }
    if config.activation != Activation::Pointer {
        all.push(
            "the old process is ended and has exited, and the transcript is compared again, before the new one starts"
                .to_owned(),
        );
    }
    all.push("files are made 0600 and folders 0700".to_owned());
    all
}

/// The list by which an installation of the original was accepted.
fn acceptance(companion: &Companion) -> Vec<(&'static str, bool, String)> {
    let doctor = doctor::collect(companion);
    let source = dirty::find_source(companion, None).or_else(|error| newest(companion).ok_or(error));
    let (dirty, plan) = match &source {
        Ok(source) => (
            dirty::measure(companion, source).map_or(Value::Null, |found| found.1),
            plan::make(companion, Some(source), None)
                .and_then(|plan| plan::describe(companion, &plan, source))
                .unwrap_or_default(),
        ),
        Err(_) => (Value::Null, Value::Null),
    };
    let stats = &plan["stats"];
    let target = match companion.config.activation {
        Activation::Tmux => doctor["tmux_target_alive"] == true && doctor["tmux_pane_pid"].is_u64(),
        Activation::Systemd | Activation::Pointer => {
            !doctor["credential"].is_null() || doctor["pointer"].is_string()
        }
    };
    let line = |name: &'static str, holds: bool, found: &Value| (name, holds, found.to_string());
    vec![
        line("project_dir_exists", doctor["project_dir_exists"] == true, &doctor["project_dir"]),
        line(
            "transcript_count > 0",
            doctor["transcript_count"].as_u64().unwrap_or(0) > 0,
            &doctor["transcript_count"],
        ),
        line("target alive, with pid", target, &doctor["credential"]),
        line(
            "claude_binary absolute",
            doctor["claude_binary"].as_str().is_some_and(|path| Path::new(path).is_absolute()),
            &doctor["claude_binary"],
        ),
        line("source_session_id set", plan["source_session_id"].is_string(), &plan["source_session_id"]),
        line("blocked_reason empty", plan["blocked_reason"] == "", &plan["blocked_reason"]),
        line(
            "selected_turns == source_turns",
            stats["selected_turns"].is_u64() && stats["selected_turns"] == stats["source_turns"],
            &stats["selected_turns"],
        ),
        line("dropped_oldest_turns == 0", stats["dropped_oldest_turns"] == 0, &stats["dropped_oldest_turns"]),
        line(
            "startup_frozen",
            stats["startup_frozen"] == companion.config.freeze_startup_snapshot,
            &stats["startup_frozen"],
        ),
        line(
            "noise_ratio plausible",
            dirty["noise_ratio"].as_f64().is_some_and(|ratio| (0.0..=1.0).contains(&ratio)),
            &dirty["noise_ratio"],
        ),
        line("should_rebuild plausible", is_plausible(&dirty), &dirty["should_rebuild"]),
    ]
}

/// Due exactly where there is a reason, and over the budget there is one.
fn is_plausible(dirty: &Value) -> bool {
    let reasons = dirty["reasons"].as_array().map_or(0, Vec::len);
    dirty["should_rebuild"].as_bool().is_some_and(|due| due == (reasons > 0))
}

/// Where no pointer is kept, as in the original's setups: the newest transcript.
fn newest(companion: &Companion) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(&companion.config.project_dir).ok()?.flatten();
    let transcripts = entries.map(|entry| entry.path()).filter(|path| {
        let named = path.file_stem().and_then(|stem| stem.to_str());
        path.extension().is_some_and(|end| end == "jsonl")
            && named.is_some_and(|name| name.parse::<kael_core::ids::SessionId>().is_ok())
    });
    transcripts.max_by_key(|path| path.metadata().and_then(|found| found.modified()).ok())
}

/// What was found, for scripts.
#[must_use]
pub fn shown(checked: &Checked) -> Value {
    json!({
        "schema": 1,
        "ok": checked.acceptance.iter().all(|(_, holds, _)| *holds) && checked.unreadable.is_empty(),
        "differs": checked.differs,
        "operations": checked.operations,
        "unreadable": checked.unreadable,
        "acceptance": checked.acceptance.iter()
            .map(|(name, holds, found)| json!({ "name": name, "ok": holds, "found": found }))
            .collect::<Vec<_>>(),
    })
}
