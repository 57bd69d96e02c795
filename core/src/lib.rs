//! The deciding half of Kael Runner: what a transcript says, what of it is speech, how a clean
//! session is built and proved, which state an operation is in, and what the resume pointer names.
//!
//! Synchronous, no network, no async runtime: everything here can be tested without a process.
//! The other half, `kael-runner`, owns processes, queues and fronts and calls into this crate; this
//! crate calls nobody back.

pub mod clock;
pub mod config;
pub mod disk;
pub mod estimate;
#[cfg(test)]
pub(crate) mod fixture;
pub mod ids;
pub mod ledger;
pub mod operation;
pub mod pointer;
pub mod progress;
pub mod rebuild;
pub mod switch;
pub mod transcript;

/// An error and its causes in one line. Our errors never print their cause themselves.
#[must_use]
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        out.push_str(": ");
        out.push_str(&inner.to_string());
        cause = inner.source();
    }
    out
}
