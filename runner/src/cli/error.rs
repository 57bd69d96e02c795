//! Errors as a person or a script meets them: a kind with its exit code, one message that names
//! what, where and what to do (DESIGN 12).

use kael_core::error_chain;
use kael_core::operation::{StoreError, WorkerError};
use serde_json::{Value, json};

/// What kind of trouble; each has an exit code that scripts and units rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It was tried and failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// It was not tried, on purpose; nothing changed.
    Refused,
    /// Somebody else changed it.
    Conflict,
    /// The configuration is wrong.
    Configuration,
    /// Somebody else is at it.
    Busy,
}

impl ErrorKind {
    /// The process's exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Conflict => 4,
            Self::Configuration => 5,
            Self::Busy => 6,
        }
    }

    const ALL: [Self; 6] =
        [Self::Failed, Self::Usage, Self::Refused, Self::Conflict, Self::Configuration, Self::Busy];
}

/// An error with its exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// What kind.
    pub kind: ErrorKind,
    /// The whole message.
    pub message: String,
}

impl CliError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Something was tried and failed.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Something was not tried, on purpose.
    #[must_use]
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// An error of this kind, told with all its causes.
    pub fn from_error(kind: ErrorKind, error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(kind, error_chain(error))
    }

    /// The form in which a runner hands an error to the command that waits for it.
    #[must_use]
    pub fn to_answer(&self) -> Value {
        json!({ "ok": false, "error": self.message, "exit_code": self.kind.exit_code() })
    }

    /// The error in a runner's answer, if it is one.
    #[must_use]
    pub fn from_answer(answer: &Value) -> Option<Self> {
        if answer.get("ok").and_then(Value::as_bool) == Some(true) {
            return None;
        }
        let code = answer.get("exit_code").and_then(Value::as_u64).unwrap_or(1);
        let kind = ErrorKind::ALL.into_iter().find(|kind| u64::from(kind.exit_code()) == code);
        let message = answer.get("error").and_then(Value::as_str).unwrap_or("the runner gave no reason");
        Some(Self::new(kind.unwrap_or(ErrorKind::Failed), message))
    }
}

/// Errors of our own modules that are failures unless their caller knows better.
macro_rules! failure {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::from_error(ErrorKind::Failed, &error)
            }
        })+
    };
}
failure!(
    crate::queue::QueueError,
    crate::claude::binary::BinaryError,
    std::io::Error,
    kael_core::disk::DiskError,
    kael_core::operation::RecoverError,
    kael_core::transcript::TranscriptError,
    kael_core::rebuild::RebuildError,
);

impl From<kael_core::pointer::PointerError> for CliError {
    fn from(error: kael_core::pointer::PointerError) -> Self {
        let kind = if error.is_conflict() { ErrorKind::Conflict } else { ErrorKind::Failed };
        Self::from_error(kind, &error)
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Active { .. } | StoreError::Busy { .. } => ErrorKind::Busy,
            StoreError::SessionConflict { .. } => ErrorKind::Conflict,
            StoreError::NotFound { .. }
            | StoreError::NotPending { .. }
            | StoreError::NotNewest { .. }
            | StoreError::NoConflict { .. }
            | StoreError::Illegal(_) => ErrorKind::Refused,
            StoreError::Disk(_)
            | StoreError::Damaged { .. }
            | StoreError::Newer { .. }
            | StoreError::Stale { .. } => ErrorKind::Failed,
        };
        Self::from_error(kind, &error)
    }
}

impl From<WorkerError> for CliError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            WorkerError::NoConsent { .. } | WorkerError::GoneOn { .. } => {
                Self::from_error(ErrorKind::Refused, &error)
            }
            WorkerError::Interrupted { .. } => Self::from_error(ErrorKind::Failed, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_through_a_runner() {
        for kind in ErrorKind::ALL {
            let error = CliError::new(kind, "why");
            assert_eq!(CliError::from_answer(&error.to_answer()), Some(error));
        }
        assert_eq!(CliError::from_answer(&json!({ "ok": true })), None);
        assert_eq!(CliError::from_answer(&json!(null)).unwrap().kind, ErrorKind::Failed);
    }

    #[test]
    fn causes_are_told_once() {
        let error = crate::queue::QueueError::Create {
            path: "/q".into(),
            source: std::io::Error::from_raw_os_error(28),
        };
        assert_eq!(
            CliError::from(error).message,
            "could not create /q: No space left on device (os error 28)"
        );
    }
}
