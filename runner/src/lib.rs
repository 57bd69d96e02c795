//! The acting half of Kael Runner: processes, queues, fronts and the command line.
//!
//! Fronts put messages into the [`queue`]; the [`supervisor`] takes them out, has the [`claude`]
//! CLI answer them and stores the replies; the [`keeper`] is the one that may touch operations and
//! the pointer, and asks `kael-core` for every decision about a transcript.

pub mod attach;
pub mod backup;
pub mod chat;
pub mod claude;
pub mod cli;
pub mod companion;
pub mod decisions;
pub mod demo;
pub mod doorbell;
pub mod drill;
pub mod envelope;
pub mod facts;
pub mod forget;
pub mod hook;
pub mod init;
pub mod keeper;
pub mod kept;
pub mod mcp;
pub mod migrate;
pub mod queue;
pub mod settings;
pub mod setup;
pub mod standin;
pub mod supervisor;
pub mod versions;
