//! What outlives the CLI's own tidying: copies of transcripts outside its folder, and the clearing away of evidence that
//! nobody needs any more (DESIGN 7).
//!
//! | module | what |
//! |---|---|
//! | `copies` | one kept copy: grows with its transcript, checked piece by piece, put back where the original is gone |
//! | `gc` | which artifacts and copies may go |
//!
//! *Owner.* Everything here is done by the holder of the runner's lock; looking needs none. Copies stand in `<state>/kept`:
//! of the pointer's transcript, and of those before and after the last two switches.

mod copies;
mod gc;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kael_core::ids::SessionId;
use kael_core::operation::Operation;

use crate::cli::error::CliError;
use crate::companion::Companion;

pub use copies::{Copy, PutBack, State};
pub use gc::{Limits, Report, collect};

/// So many of the newest switches keep their transcripts and artifacts whatever is cleared away.
pub const LAST_SWITCHES: usize = 2;

/// Where the copies of a companion stand.
#[must_use]
pub fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("kept")
}

/// The operations whose switches were the last.
pub(crate) fn last_switches(operations: &[Operation]) -> Vec<&Operation> {
    let mut switched: Vec<&Operation> = operations.iter().filter(|op| op.state().was_activated()).collect();
    switched.sort_by_key(|op| std::cmp::Reverse((op.activated_at(), op.created_at, op.id)));
    switched.truncate(LAST_SWITCHES);
    switched
}

/// The sessions whose transcripts are kept.
pub fn sessions(companion: &Companion) -> Result<BTreeSet<SessionId>, CliError> {
    let mut wanted: BTreeSet<SessionId> = companion.pointer.read()?.session().into_iter().collect();
    let operations = companion.store()?.list()?.operations;
    for operation in last_switches(&operations) {
        wanted.extend(operation.source.as_ref().map(|source| source.session));
        wanted.extend(operation.state().candidate().map(|candidate| candidate.session));
    }
    Ok(wanted)
}

/// Brings the copies up to date; the cost is that of what was written since. The copy of a transcript that is not what
/// it was is left as it is.
///
/// # Errors
/// When a copy cannot be written.
pub fn keep(companion: &Companion) -> Result<(), CliError> {
    for session in sessions(companion)? {
        let copy = Copy::of(companion, session);
        match copy.update(&companion.disk)? {
            // The CLI removes old transcripts; for the present one the next turn is held.
            State::Vanished | State::Damaged(_) => {
                tracing::debug!("{}", copy.trouble()?.unwrap_or_default());
            }
            State::None | State::Whole => {}
        }
    }
    Ok(())
}
