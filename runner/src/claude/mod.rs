//! One run of the Claude Code CLI: its command line and environment, its stream, its process and
//! what may be left of it afterwards.
//!
//! Nothing here decides what a run means. The supervisor does, from the transcript, after the
//! process has exited: standard output runs ahead of the file (facts 8).

pub mod adopted;
pub mod binary;
pub mod command;
pub mod hush;
pub mod lines;
pub mod live;
pub mod marked;
pub mod process;
pub mod stream;
