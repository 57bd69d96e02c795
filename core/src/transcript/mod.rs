//! What a transcript says (DESIGN 4).
//!
//! ```text
//! file -> reader -> head -> judge --> survey (index, ledger, drops, damage)
//!                             |            |
//!                             |          chain, forks: which rows are the conversation
//!                             +-> speech: the words of those rows, read a second time
//! ```
//!
//! - `json`, `head`, `reader`, `rows`: bytes to rows; nothing here knows what a row means.
//! - `drift`: every shape we know. `judge`: what of a row is speech, one rule each (`rules`).
//! - `index`, `chain`, `forks`, `queue`: which rows count.
//! - `receipt`: what became of one message of ours.
//!
//! The ledger takes its classes from the judgement, the rebuild its items; the dropped side of the
//! proof takes nothing from `chain`, `forks`, `judge` and `speech`.

pub(crate) mod chain;
mod damage;
mod doubts;
pub mod drift;
mod error;
pub(crate) mod forks;
pub(crate) mod hashing;
pub(crate) mod head;
pub(crate) mod index;
pub(crate) mod json;
pub(crate) mod judge;
pub(crate) mod media;
pub(crate) mod queue;
pub(crate) mod reader;
pub mod receipt;
pub(crate) mod rows;
pub(crate) mod rules;
pub(crate) mod speech;
pub(crate) mod survey;

pub use damage::{Damage, DamageKind, DamageReport};
pub use error::TranscriptError;
pub use forks::{Branch, Decision, Decisions, Fate, OffChain};
pub use judge::{ItemKind, Role};
pub use rules::{Category, ExtractRules, OwnRows, Rule};
pub use survey::{Dropped, UnknownShape};

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;
