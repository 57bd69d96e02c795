//! Switches: making a candidate current.
//!
//! *Responsibility.* The checks that must hold immediately before a switch and right after it, the way of a
//! candidate from the artifacts into the project folder, and the adapters: how a session becomes the one that is
//! resumed. The pointer adapter is a compare-and-swap; nothing is killed. In a tmux pane or systemd unit `claude` lives
//! on between turns: there [`ProcessSwitch`] ends it, compares the source, swaps the pointer and starts it on the new
//! session; [`SessionProcess`] is the place, the pointer the record of which session runs there.
//!
//! *Neighbours.* [`crate::operation`] keeps the state, [`crate::pointer`] swaps. Whether a live process holds the
//! session is not knowable here (processes are the runner's): it is asked through [`LiveProcesses`].
//!
//! The order of one switch, with the pointer's lock held from the second step on:
//!
//! 1. the operation is `verifying`: source frozen, candidate proved in the artifacts, credential noted;
//! 2. [`preconditions`];
//! 3. [`Adapter::switch`]: records the intent (the operation becomes `activating`, and then [`place_candidate`] gives
//!    the candidate its name in the project folder), and swaps;
//! 4. [`after_switch`]: the source has not grown meanwhile;
//! 5. the operation becomes `activated`, durably; then [`Adapter::settle`].

mod adapter;
mod candidate;
mod check;
mod credential;
mod error;
mod opened;
mod place;
mod pointer_switch;
mod process;
mod process_switch;
pub mod processes;
mod quote;
mod source;
mod systemd;
mod tail;
mod tmux;

pub use adapter::{Adapter, IntentRecorder};
pub use candidate::{place_candidate, transcript_path, withdraw_candidate};
pub use check::{
    AfterSwitch, LiveProcesses, NewerTranscripts, PreconditionFailure, SwitchCheck, Warning, after_switch,
    preconditions,
};
pub use credential::Credential;
pub use error::SwitchError;
pub use pointer_switch::PointerSwitch;
pub use process::SessionProcess;
pub use process_switch::ProcessSwitch;
pub use quote::{quoted, quoted_line};
pub use source::{FrozenSource, SourceChange, wait_until_quiet};
pub use systemd::{SystemdUnit, systemctl};
pub(crate) use tail::only_bookkeeping_follows;
pub use tmux::{Listed, TmuxPane};

#[cfg(test)]
mod tests;
