//! The CLI versions whose behaviour was measured; the ways of the supervisor rest on them.

/// Versions that the conformance suite runs on.
pub const KNOWN: &[&str] = &["2.1.199", "2.1.332"];

/// Whether the ways of this release were measured on that version.
#[must_use]
pub fn is_known(version: &str) -> bool {
    KNOWN.contains(&version)
}
