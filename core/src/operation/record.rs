//! [`Operation`]: a state, with the evidence gathered on the way and the numbered list of what happened.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::consent::{Consent, ConsentVerdict};
use super::state::{IllegalTransition, OpEvent, OpState};
use super::status::{Reason, Status};
use crate::clock::Timestamp;
use crate::ids::OperationId;
use crate::rebuild::{ManifestEntry, RebuildError};
use crate::switch::FrozenSource;

/// What an operation is for. A plain rollback is no kind of its own: it is the second half of the life of the
/// operation that it takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A clean session with every word of the conversation; drops noise, so it needs consent.
    #[default]
    Rebuild,
    /// A copy with every row kept but a failed tail; drops nothing anybody said.
    Repair,
    /// The session of before the newest rebuild, with what has been said since appended.
    Return,
}

/// One step of an operation's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Counted from one; the order does not rest on the clock.
    pub n: u32,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub event: String,
    /// The state before.
    pub from: Status,
    /// The state after.
    pub to: Status,
}

/// One rebuild or repair. Holds digests and counts, never speech.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its id, and its file's name.
    pub id: OperationId,
    /// What it is for.
    pub kind: Kind,
    /// Why it was asked for; a second request adds its reason.
    pub reasons: Vec<Reason>,
    /// Who or what asked for it.
    pub requested_by: String,
    /// The human's yes, if there is one.
    pub consent: Option<Consent>,
    /// The human's yes to take it back, if a rollback is wanted and there is one.
    pub rollback_consent: Option<Consent>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// The source, once it is frozen.
    pub source: Option<FrozenSource>,
    /// Digest of the plan that is carried out.
    pub plan_digest: Option<String>,
    /// The plan's statistics, as `plan` prints them.
    pub stats: Option<Value>,
    /// The ledger at prepare, as `dirty` prints it.
    pub dirty_at_prepare: Option<Value>,
    /// One entry per carried item: position, role, source and digests.
    pub manifest: Option<Value>,
    /// The proof: the list of checks with their counts.
    pub verification: Option<Value>,
    /// Digest of the frozen startup snapshot, if one is carried.
    pub startup_snapshot_sha256: Option<String>,
    /// The argv that resumes the new session.
    pub command: Vec<String>,
    /// Per front, when the first human message arrived in the new session.
    pub inbound_confirmed: BTreeMap<String, Timestamp>,
    /// When, and by whom, a `session_conflict` was cleared.
    pub conflict_cleared: Option<(Timestamp, String)>,
    /// What happened, in order.
    pub history: Vec<Transition>,
    pub(super) state: OpState,
    /// Counts the saves, so that a copy that was read before somebody else's save is not saved over it.
    pub(super) revision: u64,
    /// Fields of the file that this version does not know; written back as they were.
    pub(super) extra: Map<String, Value>,
}

impl Operation {
    pub(super) fn new(kind: Kind, reason: Reason, requested_by: &str, at: Timestamp) -> Self {
        Self {
            id: OperationId::generate(),
            kind,
            reasons: vec![reason],
            requested_by: requested_by.to_owned(),
            consent: None,
            rollback_consent: None,
            created_at: at,
            updated_at: at,
            source: None,
            plan_digest: None,
            stats: None,
            dirty_at_prepare: None,
            manifest: None,
            verification: None,
            startup_snapshot_sha256: None,
            command: Vec::new(),
            inbound_confirmed: BTreeMap::new(),
            conflict_cleared: None,
            history: Vec::new(),
            state: OpState::Pending,
            revision: 0,
            extra: Map::new(),
        }
    }

    /// The state with what is true in it.
    #[must_use]
    pub const fn state(&self) -> &OpState {
        &self.state
    }

    /// The state's name.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.state.status()
    }

    /// The operation as its file holds it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        super::file::to_json(self)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Corrects where files are said to be, after folders moved: from, to. The frozen source is compared with the file
    /// that stands in its place now; if that says the same it counts as the one that was frozen. Nothing is saved.
    pub fn relocate(&mut self, moved: &[(PathBuf, PathBuf)]) {
        let place = |path: &mut PathBuf| {
            let new = moved.iter().find_map(|(from, to)| Some(to.join(path.strip_prefix(from).ok()?)));
            if let Some(new) = new {
                *path = new;
            }
        };
        if let Some(source) = &mut self.source {
            place(&mut source.path);
            place(&mut source.copy);
            source.recognise();
        }
        if let Some(candidate) = self.state.candidate_mut() {
            place(&mut candidate.path);
        }
    }

    /// Corrects what is said of files that were rewritten on purpose: digests before and after. The manifest is taken
    /// anew from the candidate. Says whether something changed; nothing is saved.
    ///
    /// # Errors
    /// When the candidate cannot be read.
    pub fn rewritten(&mut self, digests: &HashMap<String, String>) -> Result<bool, RebuildError> {
        let mut changed = false;
        let mut correct = |digest: &mut String| {
            if let Some(new) = digests.get(digest.as_str()) {
                digest.clone_from(new);
                changed = true;
            }
        };
        if let Some(source) = &mut self.source {
            correct(&mut source.sha256);
            source.recognise();
        }
        if let Some(snapshot) = &mut self.startup_snapshot_sha256 {
            correct(snapshot);
        }
        if let Some(proof) = self.verification.as_mut().and_then(|all| all.get_mut("proof")) {
            for name in ["source_sha256", "candidate_sha256"] {
                if let Some(Value::String(digest)) = proof.get_mut(name) {
                    correct(digest);
                }
            }
        }
        if let Some(candidate) = self.state.candidate_mut() {
            correct(&mut candidate.sha256);
        }
        if let Some(candidate) = self.state.candidate().filter(|candidate| candidate.path.is_file())
            && let Some(manifest) = &mut self.manifest
            && let Ok(mut entries) = serde_json::from_value::<Vec<ManifestEntry>>(manifest.clone())
            && crate::rebuild::redigest(&mut entries, &candidate.path)?
        {
            *manifest = serde_json::json!(entries);
            changed = true;
        }
        Ok(changed)
    }

    /// Applies an event and notes it in the history; nothing is saved.
    ///
    /// # Errors
    /// [`IllegalTransition`]; the operation is unchanged then.
    pub fn apply(&mut self, event: &OpEvent, at: Timestamp) -> Result<(), IllegalTransition> {
        let from = self.status();
        self.state = self.state.apply(event)?;
        let n = self.history.last().map_or(0, |last| last.n) + 1;
        self.history.push(Transition { n, at, event: event.name().to_owned(), from, to: self.status() });
        self.updated_at = at;
        Ok(())
    }

    /// Whether that plan may be carried out now. A repair drops nothing and needs no yes.
    #[must_use]
    pub fn consent_for(&self, plan_digest: &str, now: Timestamp) -> ConsentVerdict {
        match (self.kind, &self.consent) {
            (Kind::Repair, _) => ConsentVerdict::Given { by: "its kind: a repair drops nothing".to_owned() },
            (Kind::Rebuild | Kind::Return, None) => ConsentVerdict::Missing,
            (Kind::Rebuild | Kind::Return, Some(consent)) => consent.verdict(plan_digest, now),
        }
    }

    /// The yes that counts in the present state: that to the rollback once one is wanted, else that to the plan.
    #[must_use]
    pub const fn yes(&self) -> Option<&Consent> {
        match self.status() {
            Status::RollbackPending | Status::RollbackScheduled => self.rollback_consent.as_ref(),
            Status::Pending
            | Status::Scheduled
            | Status::Running
            | Status::Verifying
            | Status::Activating
            | Status::Activated
            | Status::RolledBack
            | Status::Failed
            | Status::Cancelled => self.consent.as_ref(),
        }
    }

    /// Whether the session of before may be made current again now.
    #[must_use]
    pub fn rollback_verdict(&self, now: Timestamp) -> ConsentVerdict {
        self.rollback_consent.as_ref().map_or(ConsentVerdict::Missing, |yes| yes.verdict("", now))
    }

    /// Since when a yes is waited for: since it was asked for, or since the rollback was.
    #[must_use]
    pub fn waits_since(&self) -> Timestamp {
        let asked = self.history.iter().rev().find(|step| step.to == Status::RollbackPending);
        match (self.status(), asked) {
            (Status::RollbackPending, Some(step)) => step.at,
            _ => self.created_at,
        }
    }

    /// Whether it failed because somebody else changed the session, and no human has cleared that.
    #[must_use]
    pub const fn has_open_conflict(&self) -> bool {
        matches!(self.state, OpState::Failed { session_conflict: true, .. })
            && self.conflict_cleared.is_none()
    }

    /// When it last became activated.
    #[must_use]
    pub fn activated_at(&self) -> Option<Timestamp> {
        let last = self.history.iter().rev().find(|step| step.to == Status::Activated)?;
        Some(last.at)
    }
}
