//! A clean session from a transcript (DESIGN 6): plan, candidate, proof.
//!
//! - `plan`: reads a transcript and says what would be carried, what dropped and why, and what
//!   speaks against it. Holds spans, no speech. `items` collects, `turns` selects, `gain` weighs.
//! - `append`: the old transcript with what was said since, for the way back.
//! - `objections`: what speaks against it, and how a human decides about it.
//! - `show`: the items behind the figures, one by one.
//! - `candidate`: writes the plan's items as the new session's rows. `words` forms their texts.
//! - `repair`: a copy with every row kept but a failed tail.
//! - `proof`: reads source and candidate from disk again. Its dropped side imports nothing from
//!   `transcript::chain`, `forks`, `judge` and `speech`.

mod append;
mod blocked;
mod candidate;
mod error;
mod gain;
mod items;
mod json;
mod objections;
mod plan;
pub mod proof;
mod repair;
mod settings;
mod show;
#[cfg(test)]
mod tests;
mod turns;
mod words;

pub use append::{AppendInput, Appended, append};
pub use blocked::{BlockKind, Blocked};
pub use candidate::{CandidateFile, ManifestEntry, redigest, write_candidate, write_candidate_to};
pub use error::RebuildError;
pub use gain::Gain;
pub use items::PlannedItem;
pub use plan::{DropCount, Plan, PlanStats, plan};
pub use proof::{
    AppendedInput, Evidence, Proof, ProofFailure, ProofInput, ReceivedEvidence, SentEvidence, prove,
    prove_appended,
};
pub use repair::{RepairCut, RepairInput, Repaired, prove_repair, write_repair};
pub use settings::{CarryOverflow, DEFAULT_POISON, PlanInput, RebuildSettings};
pub use show::{Show, Shown, show};
