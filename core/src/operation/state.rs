//! The states, the events, and the one function that leads from state to state.

use std::path::PathBuf;

use super::status::{Reason, Status};
use crate::ids::SessionId;
use crate::pointer::SwapIntent;
use crate::switch::Credential;

/// A proved candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The session it will be.
    pub session: SessionId,
    /// Where the proved bytes are: in the artifacts, also after the switch.
    pub path: PathBuf,
    /// Their SHA-256.
    pub sha256: String,
    /// Their number.
    pub len: u64,
}

/// A switch that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// What became current.
    pub candidate: Candidate,
    /// What was current before, as noted at prepare.
    pub before: Credential,
    /// What is current since; a rollback compares it.
    pub after: Credential,
    /// The swap of the pointer.
    pub intent: Option<SwapIntent>,
}

/// An operation's state, with what is true in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpState {
    /// Asked for. Waits for consent and for the end of the turn.
    Pending,
    /// Somebody is about to start it.
    Scheduled,
    /// The source is being frozen, planned and copied into a candidate.
    Running,
    /// The candidate is proved; the checks before the switch are next.
    Verifying {
        /// The candidate, in the artifacts.
        candidate: Candidate,
        /// What was current at prepare.
        credential: Credential,
    },
    /// The intent is durable. Whether the switch happened is not known before the next state.
    Activating {
        /// The candidate, on its way into the project folder.
        candidate: Candidate,
        /// What was current at prepare.
        credential: Credential,
        /// The swap of the pointer; none while a process is being ended first.
        intent: Option<SwapIntent>,
    },
    /// The new session is current.
    Activated(Activation),
    /// A human wants the old session back.
    RollbackPending(Activation),
    /// The old session is being made current again.
    RollbackScheduled {
        /// What is to be taken back.
        activation: Activation,
        /// The swap back, once the checks before it held.
        back: Option<SwapIntent>,
    },
    /// The old session is current again.
    RolledBack {
        /// The candidate that is not current any more.
        candidate: Candidate,
        /// Whether it had been current, durably.
        was_activated: bool,
        /// What is current now.
        after: Credential,
        /// The swap back; none where a failed switch was undone, or a process restarted.
        back: Option<SwapIntent>,
        /// Why, where a failed switch was undone.
        reason: Option<Reason>,
    },
    /// It did not work out. What was current before this operation's failed step still is.
    Failed {
        /// In which state it failed.
        at: Status,
        /// Why.
        reason: Reason,
        /// Somebody else changed the session: no policy tries again until a human clears it.
        session_conflict: bool,
        /// The candidate, if there was one.
        candidate: Option<Candidate>,
    },
    /// Taken back before anything was done.
    Cancelled,
}

/// What happened to an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpEvent {
    /// Hook, runner or command line took it on (also a rollback).
    Scheduled,
    /// A human took the wish back (also that for a rollback).
    Cancelled,
    /// The worker works.
    Started,
    /// The worker did not start, or is gone; nothing was done yet.
    StartFailed,
    /// The candidate was written and proved.
    Proved {
        /// The candidate.
        candidate: Candidate,
        /// What was current at prepare.
        credential: Credential,
    },
    /// Recovery begins again from the frozen copy.
    Redone,
    /// Everything that must hold immediately before a switch holds; the intent is recorded with this event.
    ChecksHeld {
        /// The swap of the pointer; none where a process is ended first: then it is noted by a second such event.
        intent: Option<SwapIntent>,
    },
    /// The new session was seen to be current and healthy.
    Switched {
        /// What is current now.
        after: Credential,
    },
    /// The old session was seen to be current again.
    OldSessionResumed {
        /// What is current now.
        after: Credential,
        /// Why, if nobody asked for it.
        reason: Option<Reason>,
    },
    /// Anything else.
    Failed {
        /// Why.
        reason: Reason,
        /// Whether somebody else changed the session.
        session_conflict: bool,
    },
    /// A human wants the old session back.
    RollbackRequested,
}

impl OpEvent {
    /// Its name in histories and messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Cancelled => "cancelled",
            Self::Started => "started",
            Self::StartFailed => "start_failed",
            Self::Proved { .. } => "proved",
            Self::Redone => "redone",
            Self::ChecksHeld { .. } => "checks_held",
            Self::Switched { .. } => "switched",
            Self::OldSessionResumed { .. } => "old_session_resumed",
            Self::Failed { .. } => "failed",
            Self::RollbackRequested => "rollback_requested",
        }
    }
}

/// An event that cannot happen in that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation that is {from} cannot become {event}; nothing was changed")]
pub struct IllegalTransition {
    /// The state.
    pub from: Status,
    /// The event's name.
    pub event: &'static str,
}

impl OpState {
    /// Its name.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::Pending => Status::Pending,
            Self::Scheduled => Status::Scheduled,
            Self::Running => Status::Running,
            Self::Verifying { .. } => Status::Verifying,
            Self::Activating { .. } => Status::Activating,
            Self::Activated(_) => Status::Activated,
            Self::RollbackPending(_) => Status::RollbackPending,
            Self::RollbackScheduled { .. } => Status::RollbackScheduled,
            Self::RolledBack { .. } => Status::RolledBack,
            Self::Failed { .. } => Status::Failed,
            Self::Cancelled => Status::Cancelled,
        }
    }

    /// The candidate, where there is one.
    #[must_use]
    pub const fn candidate(&self) -> Option<&Candidate> {
        match self {
            Self::Verifying { candidate, .. }
            | Self::Activating { candidate, .. }
            | Self::RolledBack { candidate, .. } => Some(candidate),
            Self::Activated(activation)
            | Self::RollbackPending(activation)
            | Self::RollbackScheduled { activation, .. } => Some(&activation.candidate),
            Self::Failed { candidate, .. } => candidate.as_ref(),
            Self::Pending | Self::Scheduled | Self::Running | Self::Cancelled => None,
        }
    }

    /// The same, to correct what is said of its file.
    pub(super) const fn candidate_mut(&mut self) -> Option<&mut Candidate> {
        match self {
            Self::Verifying { candidate, .. }
            | Self::Activating { candidate, .. }
            | Self::RolledBack { candidate, .. } => Some(candidate),
            Self::Activated(activation)
            | Self::RollbackPending(activation)
            | Self::RollbackScheduled { activation, .. } => Some(&mut activation.candidate),
            Self::Failed { candidate, .. } => candidate.as_mut(),
            Self::Pending | Self::Scheduled | Self::Running | Self::Cancelled => None,
        }
    }

    /// Whether the candidate was ever current, durably noted; then its transcript is history, not a stray.
    #[must_use]
    pub const fn was_activated(&self) -> bool {
        match self {
            Self::Activated(_) | Self::RollbackPending(_) | Self::RollbackScheduled { .. } => true,
            Self::RolledBack { was_activated, .. } => *was_activated,
            Self::Failed { at, .. } => matches!(at, Status::RollbackScheduled),
            Self::Pending
            | Self::Scheduled
            | Self::Running
            | Self::Verifying { .. }
            | Self::Activating { .. }
            | Self::Cancelled => false,
        }
    }

    /// The state after the event. Pure; the whole table is a snapshot in the tests.
    ///
    /// # Errors
    /// [`IllegalTransition`] when the event cannot happen in this state.
    pub fn apply(&self, event: &OpEvent) -> Result<Self, IllegalTransition> {
        use OpEvent as E;
        let illegal = Err(IllegalTransition { from: self.status(), event: event.name() });
        let failed = |reason: &Reason, session_conflict: bool| {
            Ok(Self::Failed {
                at: self.status(),
                reason: reason.clone(),
                session_conflict,
                candidate: self.candidate().cloned(),
            })
        };
        match self {
            Self::Pending => match event {
                E::Scheduled => Ok(Self::Scheduled),
                E::Cancelled => Ok(Self::Cancelled),
                E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::Failed { .. }
                | E::RollbackRequested => illegal,
            },
            Self::Scheduled => match event {
                E::Started => Ok(Self::Running),
                E::StartFailed => Ok(Self::Pending),
                E::Scheduled
                | E::Cancelled
                | E::Proved { .. }
                | E::Redone
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::Failed { .. }
                | E::RollbackRequested => illegal,
            },
            Self::Running => match event {
                E::Proved { candidate, credential } => {
                    Ok(Self::Verifying { candidate: candidate.clone(), credential: *credential })
                }
                E::Redone => Ok(Self::Running),
                E::Failed { reason, session_conflict } => failed(reason, *session_conflict),
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::RollbackRequested => illegal,
            },
            Self::Verifying { candidate, credential } => match event {
                E::ChecksHeld { intent } => Ok(Self::Activating {
                    candidate: candidate.clone(),
                    credential: *credential,
                    intent: intent.clone(),
                }),
                E::Redone => Ok(Self::Running),
                E::Failed { reason, session_conflict } => failed(reason, *session_conflict),
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::RollbackRequested => illegal,
            },
            Self::Activating { candidate, credential, intent } => match event {
                // Where a process is ended first: the pointer is about to be swapped, too.
                E::ChecksHeld { intent } => Ok(Self::Activating {
                    candidate: candidate.clone(),
                    credential: *credential,
                    intent: intent.clone(),
                }),
                E::Switched { after } => Ok(Self::Activated(Activation {
                    candidate: candidate.clone(),
                    before: *credential,
                    after: *after,
                    intent: intent.clone(),
                })),
                E::OldSessionResumed { after, reason } => Ok(Self::RolledBack {
                    candidate: candidate.clone(),
                    was_activated: false,
                    after: *after,
                    back: None,
                    reason: reason.clone(),
                }),
                E::Failed { reason, session_conflict } => failed(reason, *session_conflict),
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::RollbackRequested => illegal,
            },
            Self::Activated(activation) => match event {
                E::RollbackRequested => Ok(Self::RollbackPending(activation.clone())),
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::Failed { .. } => illegal,
            },
            Self::RollbackPending(activation) => match event {
                E::Scheduled => Ok(Self::RollbackScheduled { activation: activation.clone(), back: None }),
                E::Cancelled => Ok(Self::Activated(activation.clone())),
                E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::Failed { .. }
                | E::RollbackRequested => illegal,
            },
            Self::RollbackScheduled { activation, back } => match event {
                E::ChecksHeld { intent } => {
                    Ok(Self::RollbackScheduled { activation: activation.clone(), back: intent.clone() })
                }
                E::OldSessionResumed { after, reason } => Ok(Self::RolledBack {
                    candidate: activation.candidate.clone(),
                    was_activated: true,
                    after: *after,
                    back: back.clone(),
                    reason: reason.clone(),
                }),
                E::Failed { reason, session_conflict } => failed(reason, *session_conflict),
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::Switched { .. }
                | E::RollbackRequested => illegal,
            },
            Self::RolledBack { .. } | Self::Failed { .. } | Self::Cancelled => match event {
                E::Scheduled
                | E::Cancelled
                | E::Started
                | E::StartFailed
                | E::Proved { .. }
                | E::Redone
                | E::ChecksHeld { .. }
                | E::Switched { .. }
                | E::OldSessionResumed { .. }
                | E::Failed { .. }
                | E::RollbackRequested => illegal,
            },
        }
    }
}
