//! A session that the API refuses as it is: only a clean one mends it (DESIGN 9 "Outcomes").

use kael_core::config::Emergency;
use kael_core::transcript::receipt::After;

use crate::cli::error::CliError;
use crate::queue::{HeldUntil, Invocation, LastOutcome, Setting};

use super::outcome::Kind;
use super::{Keeper, Settled};

impl Keeper {
    /// Rebuilds under `emergency`; the turn is then tried once more. A second refusal, or a rebuild that is not possible,
    /// holds the queue.
    pub(super) fn emergency(
        &mut self,
        invocation: &Invocation,
        kind: Kind,
        detail: &str,
    ) -> Result<Settled, CliError> {
        let mut past = self.queue.invocations_of(invocation.turn)?.into_iter();
        if past.any(|run| run.session != invocation.session && !run.new_session) {
            self.hold(&format!(
                "{detail}, also after the rebuild: set carry_max_tokens and rebuild again, or give the turn up with \
                 `kael-runner skip`; then run `kael-runner retry`"
            ))?;
            return Ok(Settled::Held);
        }
        let policy = self.companion.config.runner.emergency;
        let operation = match self.request(detail, "runner", true) {
            Ok(operation) => operation,
            Err(error) => {
                self.hold(&format!("{detail}, and no rebuild can be made: {}", error.message))?;
                return Ok(Settled::Held);
            }
        };
        if policy == Emergency::Auto {
            let before = self.current_session()?;
            let line = match self.confirm(operation.id, "emergency = \"auto\"", None, false) {
                Ok(_) => self.operate(operation.id)?,
                Err(error) => error.message,
            };
            if self.current_session()? != before {
                tracing::warn!(outcome = kind.word(), "{detail}: {line}");
                return Ok(Settled::TryAtOnce);
            }
            self.hold(&format!(
                "{detail}, and the rebuild did not help: {line}. Then run `kael-runner retry`"
            ))?;
            return Ok(Settled::Held);
        }
        self.hold_until(
            &format!(
                "{detail}. A rebuild mends it and the message is tried again: `kael-runner plan` shows what it would \
                 carry, `kael-runner confirm` says yes ({})",
                operation.id
            ),
            HeldUntil::Rebuild,
        )?;
        Ok(Settled::Held)
    }

    /// Whether the open turn waits for nothing but a rebuild: then one may be made over it, because the message stands
    /// nowhere that matters (the rebuild leaves it out and it is sent again).
    pub(super) fn mends_open_turn(&self) -> Result<bool, CliError> {
        let Some(turn) = self.queue.open_turn()? else { return Ok(false) };
        let last: Option<LastOutcome> = self.queue.get(Setting::LastOutcome)?;
        let kinds = [Kind::TooLong, Kind::TooLarge, Kind::BrokenHistory];
        let wants = last.is_some_and(|last| {
            last.turn == turn.id
                && kinds.iter().any(|kind| kind.needs_rebuild() && kind.word() == last.outcome)
        });
        if !wants || !self.queue.unresolved_invocations()?.is_empty() {
            return Ok(false);
        }
        let Some(run) = self.queue.invocations_of(turn.id)?.pop() else { return Ok(false) };
        Ok(matches!(
            self.read_receipt(&run)?.after,
            After::ApiErrorOnly { .. } | After::Nothing | After::Absent | After::Interrupted
        ))
    }
}
