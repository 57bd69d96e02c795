//! Asking for an operation, confirming it, taking it back.

use super::consent::Consent;
use super::record::{Kind, Operation};
use super::state::OpEvent;
use super::status::{Reason, Status};
use super::store::{StoreError, StoreGuard};
use crate::clock::Timestamp;
use crate::ids::OperationId;

/// A wish for an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOperation {
    /// What for.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
    /// Who or what asks.
    pub requested_by: String,
    /// Whether a policy asks and no human: then an open session conflict refuses it.
    pub by_policy: bool,
}

/// What became of a wish.
#[derive(Debug, Clone, PartialEq)]
pub enum Requested {
    /// A new operation is pending.
    Created(Operation),
    /// One was pending already; the reason was added to it.
    Joined(Operation),
}

impl Requested {
    /// The operation, new or not.
    #[must_use]
    pub fn into_operation(self) -> Operation {
        match self {
            Self::Created(operation) | Self::Joined(operation) => operation,
        }
    }
}

impl StoreGuard {
    /// Notes a wish. One operation is active at a time: a second request of the same kind joins the pending one.
    ///
    /// # Errors
    /// [`StoreError::Active`] when one is beyond pending, [`StoreError::SessionConflict`] for a policy,
    /// [`StoreError::Newer`] when a newer version's operations are here; or as [`StoreGuard::save`].
    pub fn request(&self, wish: NewOperation, at: Timestamp) -> Result<Requested, StoreError> {
        let listing = self.list()?;
        for unreadable in listing.unreadable {
            if let newer @ StoreError::Newer { .. } = unreadable.error {
                return Err(newer);
            }
        }
        if let Some(conflict) = listing.operations.iter().find(|op| op.has_open_conflict())
            && wish.by_policy
        {
            return Err(StoreError::SessionConflict { id: conflict.id });
        }
        let active = listing.operations.into_iter().find(|op| op.status().is_active());
        let Some(mut active) = active else {
            let mut operation = Operation::new(wish.kind, wish.reason, &wish.requested_by, at);
            self.save(&mut operation)?;
            return Ok(Requested::Created(operation));
        };
        if active.status() != Status::Pending || active.kind != wish.kind {
            return Err(StoreError::Active { id: active.id, status: active.status() });
        }
        if !active.reasons.contains(&wish.reason) {
            active.reasons.push(wish.reason);
            active.updated_at = at;
            self.save(&mut active)?;
        }
        Ok(Requested::Joined(active))
    }

    /// Records a yes to what the operation waits for: to the rebuild until it is switched, to the rollback while
    /// that is pending.
    ///
    /// # Errors
    /// [`StoreError::NotPending`] when the operation is beyond that; or as [`StoreGuard::save`].
    pub fn agree(&self, id: OperationId, yes: Consent, at: Timestamp) -> Result<Operation, StoreError> {
        let mut operation = self.load(id)?;
        match operation.status() {
            Status::Pending | Status::Verifying => operation.consent = Some(yes),
            Status::RollbackPending => operation.rollback_consent = Some(yes),
            status @ (Status::Scheduled
            | Status::Running
            | Status::Activating
            | Status::Activated
            | Status::RollbackScheduled
            | Status::RolledBack
            | Status::Failed
            | Status::Cancelled) => return Err(StoreError::NotPending { id, status }),
        }
        operation.updated_at = at;
        self.save(&mut operation)?;
        Ok(operation)
    }

    /// Takes a pending operation, a proved one that is not switched yet, or a pending rollback, back.
    ///
    /// # Errors
    /// [`StoreError::Illegal`] when it is beyond that; or as [`StoreGuard::save`].
    pub fn cancel(&self, id: OperationId, at: Timestamp) -> Result<Operation, StoreError> {
        let mut operation = self.load(id)?;
        // A proved candidate is more than a wish; dropping it is a failed switch with that reason.
        let event = if operation.status() == Status::Verifying {
            OpEvent::Failed { reason: "taken back before the switch".into(), session_conflict: false }
        } else {
            OpEvent::Cancelled
        };
        self.advance(&mut operation, &event, at)?;
        Ok(operation)
    }
}
