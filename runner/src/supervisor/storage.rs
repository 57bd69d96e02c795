//! When something that must not fail does, above all the disk: nothing is written any more, and after growing pauses
//! everything is opened and recovered anew. The runner stays, so that it goes on by itself when there is room again.

use std::time::Duration;

use tokio::time::Instant;

use crate::attach::Level;
use crate::cli::error::CliError;

use super::{Stop, Supervisor, notify, pacing};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Whether the storage is in order.
#[derive(Debug, Default)]
pub(super) struct Storage {
    /// Failures since everything was in order.
    failures: u32,
    /// The cause that was told last.
    told: Option<String>,
}

impl Supervisor {
    /// After an error of the loop itself: says so once, then waits.
    pub(super) async fn out_of_order(&mut self, error: &CliError) {
        self.storage.failures = self.storage.failures.saturating_add(1);
        let pause = pacing::growing(FIRST, self.storage.failures, LONGEST, pacing::random());
        let reason = &error.message;
        // What could not be done differs from try to try; why is what a person must know, and once.
        let cause = reason.split_once(": ").map_or(reason.as_str(), |(_, cause)| cause);
        if self.storage.told.as_deref() == Some(cause) {
            tracing::debug!(?pause, "still: {reason}");
        } else {
            self.tell(Level::Error, &format!("nothing is done until this is in order again: {reason}"));
            notify::status(&format!("out of order: {reason}"));
            self.storage.told = Some(cause.to_owned());
        }
        let until = Instant::now() + pause;
        loop {
            // The loop is well, whatever the disk is.
            notify::alive();
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = tokio::time::sleep(self.tick) => {}
                event = self.events.recv() => {
                    if let Some(event) = event
                        && let Err(error) = self.handle(event)
                    {
                        tracing::debug!("{}", error.message);
                    }
                    if self.stop > Stop::No {
                        return;
                    }
                }
            }
        }
    }

    /// Before the next look after a failure: opens everything anew and recovers as a new runner would.
    pub(super) fn mend(&mut self) -> Result<(), CliError> {
        if self.storage.failures == 0 || self.stop > Stop::No {
            return Ok(());
        }
        self.keeper.reopen()?;
        for line in self.keeper.recover()? {
            tracing::info!("{line}");
        }
        // The look that follows reads everything; what it cannot write it says again.
        self.keeper.prove_writable()?;
        tracing::debug!(failures = self.storage.failures, "opened anew");
        self.tell(Level::Info, "everything is in order again: going on");
        self.storage = Storage::default();
        Ok(())
    }
}
