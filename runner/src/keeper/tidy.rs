//! What outlives the CLI's own tidying, kept up to date and cleared away by the lock holder (DESIGN 7).

use kael_core::ids::SessionId;
use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::output::bytes;
use crate::kept::{self, Copy, Limits, PutBack};

use super::Keeper;

impl Keeper {
    /// Copies what was written since the last time out of the CLI's folder.
    ///
    /// # Errors
    /// When it cannot be written; the copies are whole up to where they were.
    pub fn keep(&self) -> Result<(), CliError> {
        kept::keep(&self.companion)
    }

    /// Both that follows an operation: copies, and old evidence cleared away. That it fails undoes nothing.
    pub(super) fn tidy(&self) {
        let done = self.keep().and_then(|()| self.clear_away(Limits::default()));
        match done {
            Ok(report) if report.removed.is_empty() => {}
            Ok(report) => tracing::info!(freed = report.freed(), "old evidence is cleared away"),
            Err(error) => tracing::warn!("copies and old evidence: {}", error.message),
        }
    }

    /// Removes what nobody needs any more.
    pub(super) fn clear_away(&self, limits: Limits) -> Result<kept::Report, CliError> {
        let report = kept::collect(&self.companion, limits)?;
        let disk = &self.companion.disk;
        for thing in &report.removed {
            if thing.operation.is_some() {
                disk.remove_folder(&thing.path)?;
            } else {
                disk.remove(&thing.path)?;
            }
        }
        Ok(report)
    }

    pub(super) fn put_back(&mut self, session: Option<&str>) -> Result<Value, CliError> {
        let session: SessionId = match session {
            Some(session) => crate::companion::Companion::session(session)?,
            None => self.current_session()?,
        };
        self.refuse_over_open_run()?;
        let copy = Copy::of(&self.companion, session);
        let (len, aside) = match copy.put_back(&self.companion.disk)? {
            PutBack::NotNeeded => (0, None),
            PutBack::Done { len, aside } => (len, aside),
        };
        let next = match (len, &aside) {
            (0, _) => format!("the transcript of {session} begins with what was kept: nothing was changed"),
            (len, None) => format!("{} are back in their place; now `kael-runner retry`", bytes(len)),
            (len, Some(aside)) => format!(
                "{} are back in their place, and what stood there is {}; now `kael-runner retry`",
                bytes(len),
                aside.display()
            ),
        };
        Ok(json!({
            "schema": 1,
            "ok": true,
            "session": session,
            "changed": len > 0,
            "bytes": len,
            "aside": aside,
            "next": next,
        }))
    }

    /// While a process of ours writes, its transcript is not ours to touch.
    fn refuse_over_open_run(&self) -> Result<(), CliError> {
        match self.queue.unresolved_invocations()?.first() {
            None => Ok(()),
            Some(run) => Err(CliError::new(
                crate::cli::error::ErrorKind::Busy,
                format!("turn {} is running: wait for its end", run.turn),
            )),
        }
    }
}

/// What `gc` prints.
#[must_use]
pub fn report_json(report: &kept::Report, dry_run: bool) -> Value {
    json!({
        "schema": 1,
        "ok": true,
        "dry_run": dry_run,
        "freed_bytes": report.freed(),
        "removed": report.removed,
        "kept": report.kept,
    })
}
