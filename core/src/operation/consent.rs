//! A human's yes, bound to exactly one plan and to a time.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The record of a yes. A plan with another digest (other source, other drops) needs another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Digest of the plan that was shown.
    pub plan_digest: String,
    /// Who said yes, and how: a terminal, a button, `policy auto`.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// From then on it does not count any more.
    pub expires_at: Timestamp,
}

/// Whether a plan may drop what it drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsentVerdict {
    /// Yes.
    Given {
        /// Who said so.
        by: String,
    },
    /// Nobody was asked, or nobody has answered.
    Missing,
    /// The yes is too old.
    Expired {
        /// Since when.
        since: Timestamp,
    },
    /// The yes was to another plan: the conversation went on, or the rules changed.
    OtherPlan,
}

impl Consent {
    /// A yes that counts for `lifetime` from `at` on.
    #[must_use]
    pub fn new(plan_digest: &str, by: &str, at: Timestamp, lifetime: Duration) -> Self {
        Self { plan_digest: plan_digest.to_owned(), by: by.to_owned(), at, expires_at: at.after(lifetime) }
    }

    /// Whether this yes covers that plan at that time.
    #[must_use]
    pub fn verdict(&self, plan_digest: &str, now: Timestamp) -> ConsentVerdict {
        if self.plan_digest != plan_digest {
            ConsentVerdict::OtherPlan
        } else if now >= self.expires_at {
            ConsentVerdict::Expired { since: self.expires_at }
        } else {
            ConsentVerdict::Given { by: self.by.clone() }
        }
    }
}

impl fmt::Display for ConsentVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given { by } => write!(f, "confirmed by {by}"),
            Self::Missing => f.write_str("not confirmed yet"),
            Self::Expired { since } => write!(f, "the confirmation expired at {since}; confirm again"),
            Self::OtherPlan => f.write_str(
                "the confirmation was for another plan; look at the present one and confirm again",
            ),
        }
    }
}
