//! The accounting of every byte of a transcript (DESIGN 5): speech, noise by category, bookkeeping
//! by kind, damage. It judges rows through `transcript` and knows nothing of rebuilds.
//!
//! - `account`: the sums.
//! - `measure`: a full scan, or what was appended since the last one.
//! - `due`: whether it is time for a rebuild, and why.

mod account;
mod due;
mod measure;

pub(crate) use account::Account;
pub use due::{Budgets, due};
pub(crate) use measure::report_of;
pub use measure::{LedgerReport, LedgerState, measure};

#[cfg(test)]
mod tests;
