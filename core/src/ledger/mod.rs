//! The accounting of every byte of a transcript (DESIGN 5): speech, noise by category, bookkeeping
//! by kind, damage. It judges rows through `transcript` and knows nothing of rebuilds.
//!
//! - `account`: the sums. `tally`: what of them waits for a later row to be decided.
//! - `measure`: a full scan, or what was appended since the last one.
//! - `near`: the rows where the next ones hang.
//! - `due`: whether it is time for a rebuild, and why.

mod account;
mod due;
mod measure;
mod near;
mod tally;

pub(crate) use account::Account;
pub use due::{Budgets, due};
pub(crate) use measure::report_of;
pub use measure::{LedgerReport, LedgerState, measure};
pub(crate) use tally::Tally;

#[cfg(test)]
mod tests;
