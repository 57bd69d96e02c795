//! What every way of switching has in common.

use super::{Credential, SwitchError};
use crate::clock::Timestamp;
use crate::ids::{OperationId, SessionId};
use crate::pointer::{IntentError, SwapIntent};

/// Makes the intent of a switch durable: with none before anything is touched where a process has to be ended
/// first, and with the swap before the pointer is touched.
pub type IntentRecorder<'a> = dyn FnMut(Option<&SwapIntent>) -> Result<(), IntentError> + 'a;

/// One way of making a session the current one. Every failure is a value: whatever happens, the operation
/// reaches a final state.
pub trait Adapter {
    /// What is current now; compared with what was noted at prepare.
    ///
    /// # Errors
    /// [`SwitchError`] when it cannot be told.
    fn credential(&self) -> Result<Credential, SwitchError>;

    /// Whether a switch could work at all, with what is to be known about it; changes nothing.
    ///
    /// # Errors
    /// [`SwitchError`] when it could not.
    fn probe(&self) -> Result<Vec<String>, SwitchError>;

    /// Makes `to` current if `expected` still is. `record` is called before anything is touched, and where a process
    /// is ended first a second time before the pointer is.
    /// Done when it is durable; returns what is current then.
    ///
    /// # Errors
    /// [`SwitchError::is_conflict`]: somebody else's session is current and was left so. Any other error leaves open
    /// whether the switch happened, and recovery decides.
    fn switch(
        &mut self,
        expected: Credential,
        to: SessionId,
        record: &mut IntentRecorder<'_>,
    ) -> Result<Credential, SwitchError>;

    /// Whether that session is current and well.
    ///
    /// # Errors
    /// [`SwitchError`] when it cannot be told.
    fn healthy(&self, session: SessionId) -> Result<bool, SwitchError>;

    /// Tidies up after a switch that the operation has durably noted. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`SwitchError`]; recovery does it again.
    fn settle(
        &mut self,
        intent: Option<&SwapIntent>,
        by: &str,
        operation: OperationId,
        at: Timestamp,
    ) -> Result<(), SwitchError>;
}
