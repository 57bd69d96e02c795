//! The CLI versions whose behaviour was measured, and the ways of the supervisor that depend on them.
//!
//! Everything here is held against the real CLI by the conformance suite (`tests/conformance/cut_tools.rs`) and by
//! the companion's own tests.

/// Versions that the conformance suite runs on.
pub const KNOWN: &[&str] = &["2.1.199", "2.1.332"];

/// Whether the ways of this release were measured on that version.
#[must_use]
pub fn is_known(version: &str) -> bool {
    KNOWN.contains(&version)
}

/// Whether a turn with tools may be gone on with by `--resume-session-at` and a note: on measured versions, results
/// are kept, nothing is repeated and nothing synthetic is added. A version that could not be asked counts as measured.
#[must_use]
pub fn may_be_cut(version: Option<&str>) -> bool {
    version.is_none_or(is_known)
}

/// Whether a message that is written to a run whose tool is at work is taken into the turn, with a row that tells of it:
/// measured on both. On others it waits for its own turn.
#[must_use]
pub fn absorbs(version: Option<&str>) -> bool {
    version.is_none_or(is_known)
}

/// Whether `--resume-session-at` takes the row of an absorbed message, which is an attachment. 2.1.332 does, and sends
/// such a row along with the result it hangs on even when told to go on at the result; 2.1.199 answers `No message found
/// with message.uuid of` and leaves it behind.
#[must_use]
pub fn goes_on_at_attachment(version: Option<&str>) -> bool {
    version == Some("2.1.332")
}

/// Where a turn goes on whose only tool call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenCall {
    /// At the row of the call: the model sees it, with its result marked as missing.
    AtCall,
    /// At the row of the message: the call is left behind, and the note tells of it.
    AtMessage,
}

/// 2.1.332 takes the row of a call; 2.1.199 answers `No message found with message.uuid of` there.
#[must_use]
pub fn open_call(version: Option<&str>) -> OpenCall {
    match version {
        Some("2.1.332") => OpenCall::AtCall,
        _ => OpenCall::AtMessage,
    }
}
