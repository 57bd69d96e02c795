//! A human's yes, bound to a time and, where there is one, to exactly one plan.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The record of a yes. A plan with another digest (other source, other drops) needs another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Digest of the plan that was shown. None for a rollback, which has no plan, and for a yes that was given before
    /// there was a plan ([`Consent::by_word`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_digest: Option<String>,
    /// Who said yes, and how: a terminal, a button, `policy auto`.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// From then on it does not count any more.
    pub expires_at: Timestamp,
    /// It was only the word that a model gave. A human agreed to that beforehand with `consent = "word"`, and it counts
    /// only while that stands in the configuration: whoever runs operations looks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_word: bool,
    /// Given by a human who was shown what speaks against the plan, to what may be confirmed in spite of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_spite: bool,
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
        Self { plan_digest: Some(plan_digest.to_owned()), ..Self::without_plan(by, at, lifetime) }
    }

    /// A yes to something that has no plan: a rollback.
    #[must_use]
    pub fn without_plan(by: &str, at: Timestamp, lifetime: Duration) -> Self {
        Self {
            plan_digest: None,
            by: by.to_owned(),
            at,
            expires_at: at.after(lifetime),
            by_word: false,
            in_spite: false,
        }
    }

    /// The word of a model, to whatever the plan is when it is carried out: the turn in which the word is given adds to
    /// the conversation, so no plan of that moment could be meant.
    #[must_use]
    pub fn by_word(by: &str, at: Timestamp, lifetime: Duration) -> Self {
        Self { by_word: true, ..Self::without_plan(by, at, lifetime) }
    }

    /// The same yes of a human who was shown what speaks against the plan.
    #[must_use]
    pub fn in_spite(self) -> Self {
        Self { in_spite: true, ..self }
    }

    /// Whether this yes covers that plan at that time.
    #[must_use]
    pub fn verdict(&self, plan_digest: &str, now: Timestamp) -> ConsentVerdict {
        if self.plan_digest.as_deref().is_some_and(|bound| bound != plan_digest) {
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
