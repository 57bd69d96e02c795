//! The form of an operation on disk: one flat JSON object with the field names that people's scripts know.
//!
//! Inside the program a state carries its own evidence ([`OpState`]); in the file everything stands side by
//! side. Reading checks that what a status needs is there, so that a file which says `activating` without a
//! candidate is reported instead of guessed at. Fields that this version does not know are kept.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::consent::Consent;
use super::record::{Kind, Operation, Transition};
use super::state::{Activation, Candidate, OpState};
use super::status::{Reason, Status};
use crate::clock::Timestamp;
use crate::ids::{OperationId, SessionId};
use crate::pointer::SwapIntent;
use crate::switch::{Credential, FrozenSource};

/// The format this program writes. Files without the field are the original's; files with a greater number
/// are a newer version's and are left alone.
pub(super) const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Form {
    #[serde(default)]
    schema: u32,
    operation_id: OperationId,
    #[serde(default)]
    kind: Kind,
    status: Status,
    #[serde(default)]
    reasons: Vec<Reason>,
    #[serde(default)]
    requested_by: String,
    /// The same instant under the name that the original gave it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested_at: Option<Timestamp>,
    #[serde(default)]
    created_at: Timestamp0,
    #[serde(default)]
    updated_at: Timestamp0,
    #[serde(default)]
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<Consent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollback_consent: Option<Consent>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_len: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_inode: Option<u64>,
    /// Seconds, as people's scripts know it; `source_mtime_ns` is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_mtime: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_mtime_ns: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frozen_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backup_path: Option<PathBuf>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate_path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    candidate_len: Option<u64>,

    /// The pane's process at prepare; empty where there is no pane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cas_pane_pid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cas_pane_pid_after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<Credential>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential_after: Option<Credential>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<SwapIntent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollback_intent: Option<SwapIntent>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stats: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dirty_at_prepare: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manifest: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verification: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    startup_snapshot_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,

    #[serde(default, skip_serializing_if = "Option::is_none")]
    activated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was_activated: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollback_ok: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Reason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_at: Option<Status>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    session_conflict: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conflict_cleared: Option<(Timestamp, String)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    inbound_confirmed: BTreeMap<String, Timestamp>,
    #[serde(default)]
    history: Vec<Transition>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A timestamp that the original's files may lack.
#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(transparent)]
struct Timestamp0(Timestamp);

impl Default for Timestamp0 {
    fn default() -> Self {
        Self(Timestamp::from_millis(0))
    }
}

/// Only as much as tells whether we may read the rest.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: u32,
}

/// Why a file cannot be used.
pub(super) enum FormError {
    /// A newer version's.
    Newer(u32),
    /// Not what an operation looks like.
    Damaged(String),
}

pub(super) fn to_json(operation: &Operation) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(&Form::of(operation))?;
    text.push(b'\n');
    Ok(text)
}

pub(super) fn from_json(bytes: &[u8]) -> Result<Operation, FormError> {
    let damaged = |error: serde_json::Error| FormError::Damaged(error.to_string());
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if head.schema > SCHEMA {
        return Err(FormError::Newer(head.schema));
    }
    let form: Form = serde_json::from_slice(bytes).map_err(damaged)?;
    form.into_operation().map_err(FormError::Damaged)
}

impl Form {
    fn of(operation: &Operation) -> Self {
        let state = &operation.state;
        let mut form = Self {
            schema: SCHEMA,
            operation_id: operation.id,
            kind: operation.kind,
            status: state.status(),
            reasons: operation.reasons.clone(),
            requested_by: operation.requested_by.clone(),
            requested_at: Some(operation.created_at),
            created_at: Timestamp0(operation.created_at),
            updated_at: Timestamp0(operation.updated_at),
            revision: operation.revision,
            consent: operation.consent.clone(),
            rollback_consent: operation.rollback_consent.clone(),
            source_session_id: None,
            source_path: None,
            source_sha256: None,
            source_len: None,
            source_inode: None,
            source_mtime: None,
            source_mtime_ns: None,
            frozen_at: None,
            backup_path: None,
            new_session_id: None,
            candidate_path: None,
            candidate_sha256: None,
            candidate_len: None,
            cas_pane_pid: None,
            cas_pane_pid_after: None,
            credential: None,
            credential_after: None,
            intent: None,
            rollback_intent: None,
            plan_digest: operation.plan_digest.clone(),
            stats: operation.stats.clone(),
            dirty_at_prepare: operation.dirty_at_prepare.clone(),
            manifest: operation.manifest.clone(),
            verification: operation.verification.clone(),
            startup_snapshot_sha256: operation.startup_snapshot_sha256.clone(),
            command: operation.command.clone(),
            activated_at: operation.activated_at(),
            was_activated: None,
            rollback_ok: None,
            error: None,
            failed_at: None,
            session_conflict: false,
            conflict_cleared: operation.conflict_cleared.clone(),
            inbound_confirmed: operation.inbound_confirmed.clone(),
            history: operation.history.clone(),
            extra: operation.extra.clone(),
        };
        if let Some(source) = &operation.source {
            form.put_source(source);
        }
        if let Some(candidate) = state.candidate() {
            form.new_session_id = Some(candidate.session);
            form.candidate_path = Some(candidate.path.clone());
            form.candidate_sha256 = Some(candidate.sha256.clone());
            form.candidate_len = Some(candidate.len);
        }
        match state {
            OpState::Pending | OpState::Scheduled | OpState::Running | OpState::Cancelled => {}
            OpState::Verifying { credential, .. } => form.put_credential(*credential),
            OpState::Activating { credential, intent, .. } => {
                form.put_credential(*credential);
                form.intent.clone_from(intent);
            }
            OpState::Activated(activation) | OpState::RollbackPending(activation) => {
                form.put_activation(activation);
            }
            OpState::RollbackScheduled { activation, back } => {
                form.put_activation(activation);
                form.rollback_intent.clone_from(back);
            }
            OpState::RolledBack { was_activated, after, back, reason, .. } => {
                form.was_activated = Some(*was_activated);
                form.rollback_ok = Some(true);
                form.put_after(*after);
                form.rollback_intent.clone_from(back);
                form.error.clone_from(reason);
            }
            OpState::Failed { at, reason, session_conflict, .. } => {
                form.failed_at = Some(*at);
                form.error = Some(reason.clone());
                form.session_conflict = *session_conflict;
            }
        }
        form
    }

    fn put_source(&mut self, source: &FrozenSource) {
        self.source_session_id = Some(source.session);
        self.source_path = Some(source.path.clone());
        self.source_sha256 = Some(source.sha256.clone());
        self.source_len = Some(source.len);
        self.source_inode = Some(source.inode);
        // Whole seconds and the fraction apart: one division would lose digits.
        let (seconds, rest) =
            (source.mtime_ns.div_euclid(1_000_000_000), source.mtime_ns.rem_euclid(1_000_000_000));
        self.source_mtime = i32::try_from(seconds)
            .ok()
            .zip(u32::try_from(rest).ok())
            .map(|(seconds, rest)| f64::from(seconds) + f64::from(rest) / 1e9);
        self.source_mtime_ns = Some(source.mtime_ns);
        self.frozen_at = Some(source.frozen_at);
        self.backup_path = Some(source.copy.clone());
    }

    fn put_credential(&mut self, credential: Credential) {
        self.cas_pane_pid = Some(pane_text(credential));
        self.credential = Some(credential);
    }

    fn put_after(&mut self, after: Credential) {
        self.cas_pane_pid_after = Some(pane_text(after));
        self.credential_after = Some(after);
    }

    fn put_activation(&mut self, activation: &Activation) {
        self.put_credential(activation.before);
        self.put_after(activation.after);
        self.intent.clone_from(&activation.intent);
    }

    fn into_operation(self) -> Result<Operation, String> {
        let state = self.state()?;
        let source = self.source();
        Ok(Operation {
            id: self.operation_id,
            kind: self.kind,
            reasons: self.reasons,
            requested_by: self.requested_by,
            consent: self.consent,
            rollback_consent: self.rollback_consent,
            created_at: self.created_at.0,
            updated_at: self.updated_at.0,
            source,
            plan_digest: self.plan_digest,
            stats: self.stats,
            dirty_at_prepare: self.dirty_at_prepare,
            manifest: self.manifest,
            verification: self.verification,
            startup_snapshot_sha256: self.startup_snapshot_sha256,
            command: self.command,
            inbound_confirmed: self.inbound_confirmed,
            conflict_cleared: self.conflict_cleared,
            history: self.history,
            state,
            revision: self.revision,
            extra: self.extra,
        })
    }

    /// Only a source that is known in full counts as frozen by us.
    fn source(&self) -> Option<FrozenSource> {
        Some(FrozenSource {
            session: self.source_session_id?,
            path: self.source_path.clone()?,
            copy: self.backup_path.clone()?,
            sha256: self.source_sha256.clone()?,
            len: self.source_len?,
            inode: self.source_inode?,
            mtime_ns: self.source_mtime_ns?,
            frozen_at: self.frozen_at?,
        })
    }

    fn state(&self) -> Result<OpState, String> {
        let lacks = |what: &str| format!("it is {} without {what}", self.status);
        let candidate = || self.candidate().ok_or_else(|| lacks("a candidate"));
        let before =
            || credential(self.credential, self.cas_pane_pid.as_deref()).ok_or_else(|| lacks("a credential"));
        let after = || {
            credential(self.credential_after, self.cas_pane_pid_after.as_deref())
                .ok_or_else(|| lacks("a credential after the switch"))
        };
        let activation = || {
            Ok::<_, String>(Activation {
                candidate: candidate()?,
                before: before()?,
                after: after()?,
                intent: self.intent.clone(),
            })
        };
        Ok(match self.status {
            Status::Pending => OpState::Pending,
            Status::Scheduled => OpState::Scheduled,
            Status::Running => OpState::Running,
            Status::Cancelled => OpState::Cancelled,
            Status::Verifying => OpState::Verifying { candidate: candidate()?, credential: before()? },
            Status::Activating => OpState::Activating {
                candidate: candidate()?,
                credential: before()?,
                intent: self.intent.clone(),
            },
            Status::Activated => OpState::Activated(activation()?),
            Status::RollbackPending => OpState::RollbackPending(activation()?),
            Status::RollbackScheduled => {
                OpState::RollbackScheduled { activation: activation()?, back: self.rollback_intent.clone() }
            }
            Status::RolledBack => OpState::RolledBack {
                candidate: candidate()?,
                was_activated: self.was_activated.unwrap_or(true),
                after: after().or_else(|_| before())?,
                back: self.rollback_intent.clone(),
                reason: self.error.clone(),
            },
            Status::Failed => OpState::Failed {
                at: self.failed_at.unwrap_or(Status::Running),
                reason: self.error.clone().unwrap_or_else(|| Reason::new("no reason was recorded")),
                session_conflict: self.session_conflict,
                candidate: self.candidate(),
            },
        })
    }

    fn candidate(&self) -> Option<Candidate> {
        Some(Candidate {
            session: self.new_session_id?,
            path: self.candidate_path.clone()?,
            sha256: self.candidate_sha256.clone()?,
            len: self.candidate_len.unwrap_or(0),
        })
    }
}

fn pane_text(credential: Credential) -> String {
    credential.pane_pid().map(|pid| pid.to_string()).unwrap_or_default()
}

fn credential(ours: Option<Credential>, pane: Option<&str>) -> Option<Credential> {
    ours.or_else(|| Some(Credential::Tmux { pane_pid: pane?.trim().parse().ok()?, claude: None }))
}
