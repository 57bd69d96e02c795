//! Going back without leaving words behind: a session that is the old one with what has been said since (DESIGN 7).
//!
//! An operation of its own, through the same states and checks as a rebuild; the session it leaves stays as it is.

use serde_json::json;

use super::record::{Kind, Operation};
use super::state::Candidate;
use super::worker::{Failure, Worker};
use crate::disk;
use crate::ids::SessionId;
use crate::rebuild::{
    self, AppendInput, AppendedInput, ManifestEntry, PlanInput, ProofInput, RebuildSettings,
};
use crate::switch::SourceChange;
use crate::transcript::receipt;

impl Worker<'_> {
    /// Builds and proves the candidate of a [`Kind::Return`] from the frozen copy of the present session.
    pub(super) fn build_way_back(
        &self,
        operation: &mut Operation,
        session: SessionId,
    ) -> Result<Candidate, Failure> {
        debug_assert_eq!(operation.kind, Kind::Return);
        let Some(source) = operation.source.clone() else {
            return Err(Failure::because("nothing is frozen"));
        };
        let undone = self.guard.newest_activated()?;
        let undone = undone.filter(|op| op.state().candidate().is_some_and(|made| made.session == session));
        let (Some(made), Some(old), Some(manifest)) = (
            undone.as_ref().and_then(|op| op.state().candidate()),
            undone.as_ref().and_then(|op| op.source.as_ref()),
            undone.as_ref().and_then(|op| op.manifest.clone()),
        ) else {
            return Err(Failure::because(format!(
                "session {session} was not made by the newest rebuild: there is no way back from it"
            )));
        };
        let carried: Vec<ManifestEntry> = serde_json::from_value(manifest)?;
        let front = disk::digest_of(&source.copy, 0, made.len)?;
        if front.sha256 != made.sha256 {
            return Err(Failure::because(
                "the session does not begin with what the rebuild carried any more",
            ));
        }
        if !old.copy_is_whole() {
            return Err(Failure::because(format!(
                "the frozen copy of the old session, {}, is gone or damaged",
                old.copy.display()
            )));
        }
        match old.compare()? {
            SourceChange::None => {}
            SourceChange::Changed(_) if !old.path.exists() => {}
            SourceChange::Grew { .. } | SourceChange::Changed(_) => {
                return Err(Failure::because(format!(
                    "the old session's transcript {} was written to since it was left: look at it first",
                    old.path.display()
                )));
            }
        }
        // Nothing that was said may be left behind, so that no limit holds for the part in between.
        let settings = RebuildSettings {
            min_gain_percent: 0,
            carry_max_tokens: 0,
            max_event_chars: 0,
            context_window: 0,
            ..self.settings.clone()
        };
        let new_session = SessionId::generate();
        let plan = rebuild::plan(&PlanInput {
            source: &source.copy,
            source_session: session,
            new_session,
            operation: Some(operation.id),
            settings: &RebuildSettings { freeze_startup_snapshot: false, ..settings.clone() },
            rules: self.rules,
            own: self.own,
            accept_damage: None,
        })?;
        if plan.is_hard_blocked() {
            return Err(Failure::because(plan.blocked_reason()));
        }
        operation.plan_digest = Some(plan.digest());
        operation.dirty_at_prepare = Some(plan.ledger.to_json(&source.copy, 0, &[]));
        let since = self.guard.artifacts_dir(operation.id).join("since.jsonl");
        let written = rebuild::write_candidate(self.disk, &plan, &source.copy, &since)?;
        let whole = rebuild::prove(&ProofInput {
            plan: &plan,
            source: &source.copy,
            candidate: &since,
            candidate_file: &written,
            evidence: self.evidence,
        })?;
        let first = plan.items.iter().take_while(|item| item.offset < made.len).count();
        let in_front = written.manifest.iter().take(first).map(|entry| &entry.source_uuid);
        if !in_front.eq(carried.iter().map(|entry| &entry.source_uuid)) {
            return Err(Failure::because(
                "the conversation was taken back to before the rebuild since: the way back cannot carry that",
            ));
        }
        let input = AppendInput {
            old: &old.copy,
            since: &since,
            manifest: &written.manifest,
            first,
            new_session,
            rules: self.rules,
            own: self.own,
        };
        let path = self.guard.artifact(operation.id, new_session);
        let Some(appended) = rebuild::append(self.disk, &input, &path)? else {
            return Err(Failure::because(
                "nothing has been said since the rebuild, or the old session has no row to go on from",
            ));
        };
        let (checks, fork, said) = rebuild::prove_appended(&AppendedInput {
            input: &input,
            parent: &appended.parent,
            old: (&old.sha256, old.len),
            carried: &carried,
            file: &path,
            settings: &settings,
        })?;
        let level = fork.ledger.water_level.map(|usage| usage.total());
        let new: u64 = plan.items.iter().skip(first).map(|item| item.tokens).sum();
        let estimated = level.map_or(0, |level| level + new);
        let window = self.settings.context_window;
        if window > 0 && estimated > window {
            return Err(Failure::because(format!(
                "the old session with what has been said since takes about {estimated} tokens, and the window is {window}"
            )));
        }
        let root = receipt::read(&path, 0, &appended.first)?.chain_root(&path)?;
        operation.stats = Some(json!(fork.stats));
        operation.manifest = Some(json!(said));
        let checks = [whole.checks, checks].concat();
        operation.verification = Some(json!({
            "proof": { "source_sha256": whole.source_sha256, "checks": checks },
            "since_first": first,
            "root": root,
            "estimated_tokens": estimated,
        }));
        let new_id = new_session.to_string();
        operation.command =
            self.resume_command.iter().map(|part| part.replace("{session_id}", &new_id)).collect();
        let file = disk::digest(&path)?;
        Ok(Candidate { session: new_session, path, sha256: file.sha256, len: file.len })
    }
}
