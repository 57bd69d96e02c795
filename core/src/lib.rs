//! The deciding half of Kael Runner: what a transcript says, what of it is speech, how a clean
//! session is built and proved, which state an operation is in, and what the resume pointer names.
//!
//! Synchronous, no network, no async runtime: everything here can be tested without a process.
//! The other half, `kael-runner`, owns processes, queues and fronts and calls into this crate; this
//! crate calls nobody back.

pub mod clock;
pub mod estimate;
#[cfg(test)]
pub(crate) mod fixture;
pub mod ids;
pub mod ledger;
pub mod rebuild;
pub mod transcript;
