//! Rebuilds of small transcripts. `said` forms what a candidate says; each file looks at one matter.

mod calibration;
mod clauses;
mod decisions;
mod doubts;
mod generations;
mod hidden;
mod limits;
mod mutations;
mod properties;
mod queue;
mod speech;
mod structure;
mod switches;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::*;
use crate::fixture::{Fixture, SESSION, Script};
use crate::ids::SessionId;
use crate::transcript::{ExtractRules, OwnRows};

pub(super) const NEW_SESSION: &str = "ca0d1da7-0000-4000-8000-000000000002";

/// Everything a rebuild is asked to do, changeable by tests.
pub(super) struct Ask {
    pub(super) settings: RebuildSettings,
    pub(super) rules: ExtractRules,
    pub(super) own: OwnRows,
    pub(super) evidence: Evidence,
    pub(super) accept_damage: Option<u64>,
    pub(super) new_session: SessionId,
}

impl Ask {
    pub(super) fn new() -> Self {
        let mut settings = RebuildSettings::with_poison(regex::Regex::new(DEFAULT_POISON).unwrap());
        settings.stamp_turns = false;
        settings.min_gain_percent = 0;
        Self {
            settings,
            rules: ExtractRules::default(),
            own: OwnRows::default(),
            evidence: Evidence::default(),
            accept_damage: None,
            new_session: NEW_SESSION.parse().unwrap(),
        }
    }

    pub(super) fn plan(&self, source: &std::path::Path) -> Plan {
        plan(&PlanInput {
            source,
            source_session: SESSION.parse().unwrap(),
            new_session: self.new_session,
            operation: None,
            settings: &self.settings,
            rules: &self.rules,
            own: &self.own,
            accept_damage: self.accept_damage,
        })
        .unwrap()
    }

    /// Plans, writes and proves.
    pub(super) fn rebuild(&self, fixture: &Fixture) -> Rebuilt {
        let plan = self.plan(&fixture.path);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = fixture.beside(&format!("candidate-{number}.jsonl"));
        let file = write_candidate(&crate::disk::Disk::real(), &plan, &fixture.path, &path).unwrap();
        let proof = prove(&ProofInput {
            plan: &plan,
            source: &fixture.path,
            candidate: &path,
            candidate_file: &file,
            evidence: &self.evidence,
        });
        let bytes = std::fs::read(&path).unwrap();
        Rebuilt { plan, path, bytes, file, proof }
    }
}

pub(super) struct Rebuilt {
    pub(super) plan: Plan,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) file: CandidateFile,
    pub(super) proof: Result<Proof, ProofFailure>,
}

impl Rebuilt {
    /// The candidate's rows.
    pub(super) fn rows(&self) -> Vec<Value> {
        let text = String::from_utf8(self.bytes.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the candidate says: a letter for the role, and its texts.
    pub(super) fn said(&self) -> Vec<String> {
        said(&self.rows())
    }

    pub(super) fn proved(&self) -> &Proof {
        match &self.proof {
            Ok(proof) => proof,
            Err(failure) => panic!("{failure}"),
        }
    }
}

pub(super) fn said(rows: &[Value]) -> Vec<String> {
    rows.iter()
        .map(|row| {
            let who = if row["type"] == "user" { "H" } else { "A" };
            let texts = match &row["message"]["content"] {
                Value::String(text) => format!("={text}"),
                Value::Array(blocks) => {
                    let texts = blocks.iter().map(|block| block["text"].as_str().unwrap().to_owned());
                    format!(":{}", texts.collect::<Vec<_>>().join("|"))
                }
                other => panic!("{other}"),
            };
            format!("{who}{texts}")
        })
        .collect()
}

/// What a script's rebuild says; it must be unblocked and proved.
pub(super) fn carried(script: &Script) -> Vec<String> {
    carried_with(script, &Ask::new())
}

pub(super) fn carried_with(script: &Script, ask: &Ask) -> Vec<String> {
    let rebuilt = ask.rebuild(&script.file());
    assert_eq!(rebuilt.plan.blocked_reason(), "");
    rebuilt.proved();
    rebuilt.said()
}

/// Why a script's rebuild is blocked.
pub(super) fn blocked(script: &Script) -> Vec<(BlockKind, Option<u64>)> {
    let plan = Ask::new().plan(&script.file().path);
    plan.blocked.iter().map(|blocked| (blocked.kind, blocked.line)).collect()
}
