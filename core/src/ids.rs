//! Newtypes for every id, so that a session is never passed where an operation is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A text that should have been a UUID and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what} id: expected a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057")]
pub struct InvalidId {
    what: &'static str,
    text: String,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $new:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a fresh id.
            #[must_use]
            pub fn generate() -> Self {
                let new: fn() -> Uuid = $new;
                Self(new())
            }

            /// Wraps a UUID that is already known to name this kind of thing.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID itself.
            #[must_use]
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Accepts the hyphenated form only: other spellings of a UUID would name other files.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = || InvalidId { what: $what, text: text.chars().take(80).collect() };
                if text.len() != 36 {
                    return Err(invalid());
                }
                Uuid::try_parse(text).map(Self).map_err(|_| invalid())
            }
        }
    };
}

uuid_id!(
    /// A Claude Code conversation; its transcript is `<project dir>/<session id>.jsonl`.
    SessionId,
    "session",
    Uuid::new_v4
);
uuid_id!(
    /// One rebuild, repair or rollback. Time-ordered (version 7), so that file names sort by age.
    OperationId,
    "operation",
    Uuid::now_v7
);
uuid_id!(
    /// One run of `claude -p`, and the value of `KAEL_INVOCATION` in its environment.
    InvocationId,
    "invocation",
    Uuid::new_v4
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hyphenated_uuids_name_a_session() {
        let id: SessionId = "01890A5D-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(id.to_string(), "01890a5d-ac96-774b-bcce-b302099a8057");
        for bad in [
            "",
            "01890a5dac96774bbcceb302099a8057",
            "../etc/passwd",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
        ] {
            let error = bad.parse::<SessionId>().unwrap_err();
            assert!(error.to_string().contains("session id"), "{error}");
        }
    }

    #[test]
    fn operation_ids_sort_by_age() {
        let first = OperationId::generate();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(first < OperationId::generate());
    }
}
