//! Operations: one rebuild or repair, from the wish to the switch and, if asked, back.
//!
//! *Responsibility.* Which state an operation is in, which state may follow, and that the answer survives a
//! crash at any point. It copies no transcript and writes no pointer itself.
//!
//! *Owner.* The files belong to whoever holds `coordinator.lock`, shown by a [`StoreGuard`]; everybody may
//! read them, and people's scripts do: one JSON file each, names as documented.
//!
//! *Neighbours.* [`crate::switch`] makes a candidate current, [`crate::pointer`] decides after a crash what an
//! interrupted switch did. The runner composes plan, candidate, proof and switch.
//!
//! # States
//!
//! ```text
//! pending -> scheduled -> running -> verifying -> activating -> activated -> rollback_pending
//!    |  ^        |           |          |             |  |          ^              |   |
//!    v  +--------+           v          v             v  v          +--------------+   v
//! cancelled                failed     failed     failed  rolled_back <----- rollback_scheduled -> failed
//! ```
//!
//! [`OpState::apply`] is the only place that knows these arrows. Each variant of [`OpState`] holds what is true in
//! that state, so that "activating without a candidate" cannot be said. The order of work is always: intent
//! durable, then the effect, then the result durable. A crash between the last two leaves an intent without a
//! result, which means *unknown*: [`recover`] asks the world, then goes on or gives up.

mod consent;
mod file;
mod record;
mod recover;
mod request;
mod resume;
mod state;
mod status;
mod store;
mod way_back;
mod worker;

pub use consent::{Consent, ConsentVerdict};
pub use record::{Kind, Operation, Transition};
pub use recover::{RecoverError, RecoveredOp, Recovery, recover};
pub use request::{NewOperation, Requested};
pub use state::{Activation, Candidate, IllegalTransition, OpEvent, OpState};
pub use status::{Reason, Status};
pub use store::{Listing, OpStore, StoreError, StoreGuard, Unreadable};
pub use worker::{Repair, Worker, WorkerError};

#[cfg(test)]
mod tests;
