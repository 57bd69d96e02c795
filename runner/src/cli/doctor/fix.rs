//! `doctor --fix`: what can be mended without taking anything from anybody.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use kael_core::config::Activation;
use serde_json::json;

use crate::cli::operations::perform;
use crate::companion::Companion;
use crate::hook::settings::{self as hook, Change};
use crate::keeper::Keeper;
use crate::kept::{self, Copy};
use crate::queue::RequestKind;

use super::files;

/// Mends, and says what was done or why not, a line each.
pub(super) fn mend(companion: &Companion) -> Vec<String> {
    let mut done = modes(companion);
    done.extend(operations(companion));
    done.extend(transcripts(companion));
    if companion.config.activation != Activation::Pointer {
        done.extend(stop_hook(companion));
    }
    done
}

fn modes(companion: &Companion) -> Vec<String> {
    let open = files::open_to_others(companion);
    let close = |(path, mode): (std::path::PathBuf, u32)| {
        let closed = mode & 0o700;
        let result = fs::set_permissions(&path, fs::Permissions::from_mode(closed));
        match result {
            Ok(()) => format!("{}: mode {mode:o} is {closed:o} now", path.display()),
            Err(error) => format!("not {}: {error}", path.display()),
        }
    };
    open.into_iter().map(close).collect()
}

fn operations(companion: &Companion) -> Vec<String> {
    if files::switching(companion).is_none() {
        return Vec::new();
    }
    // A worker that was just killed holds its lock for a moment longer.
    let taken = Keeper::try_take_within(companion.clone(), Duration::from_secs(1));
    let recovered = taken.and_then(|keeper| match keeper {
        Some(mut keeper) => keeper.recover(),
        None => Ok(vec![format!("not the operation: {} is at work", companion.holder())]),
    });
    recovered.unwrap_or_else(|error| vec![format!("not the operation: {}", error.message)])
}

/// Transcripts that the CLI removed, or that were damaged, from their kept copies.
fn transcripts(companion: &Companion) -> Vec<String> {
    let mut done = Vec::new();
    for session in kept::sessions(companion).unwrap_or_default() {
        let trouble = Copy::of(companion, session).trouble();
        if trouble.is_ok_and(|trouble| trouble.is_none()) {
            continue;
        }
        let answer = perform(companion, RequestKind::PutBack, &json!({ "session": session }));
        done.push(match answer {
            Ok(answer) => {
                format!("the transcript of {session}: {}", answer["next"].as_str().unwrap_or("put back"))
            }
            Err(error) => format!("not the transcript of {session}: {}", error.message),
        });
    }
    done
}

fn stop_hook(companion: &Companion) -> Vec<String> {
    let path = hook::default_file(companion);
    match hook::install(companion, &path) {
        Ok(Change::None) => Vec::new(),
        Ok(_) => vec![format!("the Stop hook is in {}", path.display())],
        Err(error) => vec![format!("not the hook: {}", error.message)],
    }
}
