//! What lies on the disk: configuration, folders, pointer, operations, room; and the clock.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kael_core::config::{Config, project_dir as rule};
use kael_core::error_chain as chain;
use kael_core::operation::{OpStore, Operation};
use kael_core::pointer::{PointerValue, probe_exchange};

use crate::cli::error::CliError;
use crate::companion::Companion;
use crate::kept::Copy;

use super::{Check, file_name, transcripts};

const MEBI: u64 = 1024 * 1024;

pub(super) fn configuration(config: &Config) -> Check {
    let later = config.not_yet_effective();
    let mut odd = config.warnings.clone();
    if !later.is_empty() {
        odd.push(format!("understood, and without effect yet: {}", later.join(", ")));
    }
    if odd.is_empty() {
        Check::pass("configuration", config.path.display().to_string())
    } else {
        Check::warn(
            "configuration",
            format!("{}: {}", config.path.display(), odd.join("; ")),
            "take these keys out",
        )
    }
}

pub(super) fn workdir(config: &Config) -> Check {
    let dir = &config.claude_workdir;
    if dir.is_dir() {
        Check::pass("workdir", dir.display().to_string())
    } else {
        Check::fail(
            "workdir",
            format!("{} is not a folder", dir.display()),
            "create it or correct claude_workdir",
        )
    }
}

pub(super) fn project_dir(config: &Config) -> Check {
    let dir = &config.project_dir;
    let expected = config.claude_workdir.canonicalize().ok().map(|real| rule::encode(&real));
    if expected.is_some() && expected != file_name(dir) {
        return Check::warn(
            "project_dir",
            format!(
                "{} is not the folder of the CLI for claude_workdir ({})",
                dir.display(),
                expected.unwrap_or_default()
            ),
            "leave project_dir out, or correct claude_workdir: transcripts would be looked for in the wrong place",
        );
    }
    if dir.is_dir() {
        Check::pass("project_dir", format!("{} with {} transcripts", dir.display(), transcripts(dir)))
    } else {
        Check::pass("project_dir", format!("{} is not there yet: the first turn makes it", dir.display()))
    }
}

pub(super) fn pointer(companion: &Companion) -> Check {
    match companion.pointer.read() {
        Err(error) => {
            Check::fail("pointer", chain(&error), "look at it, then `kael-runner pointer set SESSION`")
        }
        Ok(PointerValue::Session(session)) => {
            let transcript = companion.transcript(session);
            if let Ok(Some(trouble)) = Copy::of(companion, session).trouble() {
                let remedy = "`kael-runner doctor --fix` puts the copy back";
                return Check::fail("pointer", format!("names session {session}, but {trouble}"), remedy);
            }
            if transcript.is_file() {
                return Check::pass("pointer", format!("names session {session}"));
            }
            Check::fail(
                "pointer",
                format!("names session {session}, but {} is not there", transcript.display()),
                "point to one that is, with `kael-runner pointer set`",
            )
        }
        Ok(PointerValue::Absent) if companion.pointer.used() => Check::fail(
            "pointer",
            format!("{} is gone although it has a history", companion.config.resume_pointer_path.display()),
            "put it back with `kael-runner pointer set SESSION`",
        ),
        Ok(PointerValue::Absent) => {
            let first = match companion.config.activation {
                kael_core::config::Activation::Pointer => "the first message begins a new session",
                _ => "the first end of a turn notes which session runs",
            };
            Check::pass("pointer", format!("absent: {first}"))
        }
    }
}

/// Paths that others can get at, with their modes.
pub(super) fn open_to_others(companion: &Companion) -> Vec<(std::path::PathBuf, u32)> {
    let state = &companion.config.state_dir;
    let inside = std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(state.clone()).chain(inside);
    all.filter_map(|path| {
        let meta = path.symlink_metadata().ok().filter(|meta| !meta.is_symlink())?;
        let mode = meta.permissions().mode() & 0o777;
        (mode & 0o077 != 0).then_some((path, mode))
    })
    .collect()
}

pub(super) fn state(companion: &Companion) -> Check {
    let dir = &companion.config.state_dir;
    if let Err(error) = companion.queue() {
        return Check::fail("state", error.message, format!("make {} writable for this user", dir.display()));
    }
    match open_to_others(companion).first() {
        None => Check::pass("state", dir.display().to_string()),
        Some((path, mode)) => Check::fail(
            "state",
            format!("{} can be read by others (mode {mode:o})", path.display()),
            "`kael-runner doctor --fix`, or chmod 700 folders and 600 files there",
        ),
    }
}

pub(super) fn exchange(companion: &Companion) -> Check {
    let folder = companion.config.resume_pointer_path.parent().unwrap_or(Path::new("."));
    match probe_exchange(&companion.disk, folder) {
        Ok(true) => Check::pass("exchange", "the file system exchanges names atomically"),
        Ok(false) => Check::warn(
            "exchange",
            "the file system of the pointer has no atomic exchange: a write by others in the instant of a switch may be \
             lost unseen (weaker guarantee)",
            "keep the pointer on a local disk",
        ),
        Err(error) => {
            Check::fail("exchange", chain(&error), "make the pointer's folder writable for this user")
        }
    }
}

/// An operation in the middle of a switch.
pub(super) fn switching(companion: &Companion) -> Option<Operation> {
    companion.store().ok()?.active().ok()?.filter(|active| active.status().is_switching())
}

/// One at which nobody works.
fn interrupted(companion: &Companion) -> Option<Operation> {
    switching(companion).filter(|_| companion.runner_lives().is_ok_and(|lives| !lives))
}

pub(super) fn operations(store: &Result<OpStore, CliError>, companion: &Companion) -> Vec<Check> {
    let store = match store {
        Ok(store) => store,
        Err(error) => {
            return vec![Check::fail("operations", error.message.clone(), "mend what is named there")];
        }
    };
    let mut checks = vec![match (store.session_conflict(), interrupted(companion)) {
        (Err(error), _) => Check::fail("operations", chain(&error), "look at that file"),
        (Ok(Some(id)), _) => Check::fail(
            "operations",
            format!("operation {id} met somebody else's change"),
            "find out who changed the session, do not retry, then `kael-runner clear`",
        ),
        (Ok(None), Some(operation)) => Check::fail(
            "operations",
            format!("operation {} is {} and nobody works on it", operation.id, operation.status()),
            "`kael-runner doctor --fix` brings it to its end",
        ),
        (Ok(None), None) => Check::pass("operations", format!("in {}", companion.config.state_dir.display())),
    }];
    checks.push(match companion.runner_lives() {
        Ok(true) => Check::pass("runner", format!("up ({})", companion.holder())),
        Ok(false) => Check::pass("runner", "not running"),
        Err(error) => Check::fail("runner", error.message, "make the lock file readable for this user"),
    });
    checks
}

/// A rebuild needs the transcript twice more, and nothing may be stored when there is no room at all.
pub(super) fn room(companion: &Companion) -> Check {
    let config = &companion.config;
    let session = companion.pointer.read().ok().and_then(|value| value.session());
    let size = session.and_then(|id| companion.transcript(id).metadata().ok()).map_or(0, |meta| meta.len());
    let wanted = size.saturating_mul(3).max(200 * MEBI);
    let mut least: Option<(u64, &Path)> = None;
    for dir in [config.state_dir.as_path(), config.project_dir.as_path()] {
        let Ok(stat) = rustix::fs::statvfs(dir) else { continue };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if least.is_none_or(|(known, _)| free < known) {
            least = Some((free, dir));
        }
    }
    let Some((free, dir)) = least else { return Check::pass("disk room", "the folders are not there yet") };
    let said = format!("{} MiB free at {}", free / MEBI, dir.display());
    let remedy = "make room there: a rebuild keeps a copy of the session beside the new one";
    if free < 20 * MEBI {
        Check::fail("disk room", said, remedy)
    } else if free < wanted {
        Check::warn("disk room", format!("{said}, {} MiB are wanted", wanted / MEBI), remedy)
    } else {
        // The figure changes all the time; that it is enough is what counts.
        Check::pass("disk room", "enough")
    }
}

pub(super) fn clock(config: &Config) -> Check {
    let now = SystemTime::now();
    let remedy = "set the clock (`timedatectl`): timestamps order the rows of a session";
    // Nothing was released before that.
    if now < SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_547_200) {
        return Check::fail("clock", "the clock stands before the release of this program", remedy);
    }
    let newest = std::fs::read_dir(&config.project_dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .max();
    match newest {
        Some((at, path)) if at > now + Duration::from_secs(120) => {
            Check::warn("clock", format!("{} was written in the future", path.display()), remedy)
        }
        _ => Check::pass("clock", "plausible"),
    }
}
