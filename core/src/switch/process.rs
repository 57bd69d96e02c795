//! The process half of a switch: where `claude` lives for long, in a tmux pane or a systemd unit.

use super::processes::Process;
use super::{Credential, SwitchError};
use crate::ids::SessionId;

/// The place in which a long-lived `claude` runs. All of its errors are values, and all of its steps can be repeated.
pub trait SessionProcess {
    /// What runs there now. A place that does not run `claude` is refused.
    ///
    /// # Errors
    /// [`SwitchError::Setup`], naming the place and the remedy.
    fn credential(&self) -> Result<Credential, SwitchError>;

    /// The `claude` that runs there, if one does.
    ///
    /// # Errors
    /// [`SwitchError::Setup`] when it cannot be told.
    fn claude(&self) -> Result<Option<Process>, SwitchError>;

    /// What is to be known about the place before a switch; changes nothing.
    ///
    /// # Errors
    /// [`SwitchError::Setup`] when a switch could not work.
    fn probe(&self) -> Result<Vec<String>, SwitchError>;

    /// Ends exactly that process, in an orderly way, and waits until it has exited; the place stays.
    ///
    /// # Errors
    /// [`SwitchError::Replaced`] before anything was touched, when something else runs there.
    fn end(&self, expected: Credential) -> Result<(), SwitchError>;

    /// Starts `claude` on that session, in a place where nothing runs. Whether it runs well is not known yet.
    ///
    /// # Errors
    /// [`SwitchError::Replaced`] when somebody has started something there meanwhile.
    fn start(&self, session: SessionId) -> Result<(), SwitchError>;

    /// Why nothing runs there, in words; empty when that cannot be told.
    fn obituary(&self) -> String;

    /// Puts back what was changed about the place itself, once the switch is over.
    fn restore(&self);
}
