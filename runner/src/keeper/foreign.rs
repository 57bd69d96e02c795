//! After a turn that somebody else's CLI has answered: in a pane, a unit, or a loop of one's own.

use kael_core::ids::{OperationId, SessionId};
use kael_core::operation::OpState;

use crate::cli::error::CliError;

use super::Keeper;

impl Keeper {
    /// Everything that follows such a turn but the switch itself: lines for the human, and the operation that has its
    /// yes and waits to be carried out.
    pub fn after_foreign_turn(&mut self) -> Result<(Vec<String>, Option<OperationId>), CliError> {
        let session = self.current_session()?;
        self.note_arrival(session)?;
        let mut told = self.measure_and_consider(session)?;
        let Some(pending) = self.pending_operation()? else { return Ok((told, None)) };
        if self.agreed(&pending) {
            return Ok((told, Some(pending.id)));
        }
        if self.expiry(&pending) <= self.now() {
            self.expire_question()?;
            return Ok((told, None));
        }
        told.extend(self.new_question()?);
        Ok((told, None))
    }

    /// A turn has ended in a session that we have made: so words reach it.
    fn note_arrival(&self, session: SessionId) -> Result<(), CliError> {
        let Some(mut operation) = self.store.newest_activated()? else { return Ok(()) };
        let OpState::Activated(activation) = operation.state() else { return Ok(()) };
        let front = self.companion.config.activation.as_str();
        if activation.candidate.session != session || operation.inbound_confirmed.contains_key(front) {
            return Ok(());
        }
        operation.inbound_confirmed.insert(front.to_owned(), self.now());
        Ok(self.store.lock()?.save(&mut operation)?)
    }
}
