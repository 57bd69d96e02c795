//! Any bytes, and any damage to the candidate: the proof never panics, and a candidate that was
//! changed in what it says is never proved.

#![no_main]

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, CandidateFile, Evidence, PlanInput, ProofInput, RebuildSettings};
use kael_core::transcript::{ExtractRules, OwnRows};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

static SETTINGS: LazyLock<RebuildSettings> = LazyLock::new(|| {
    let mut settings = RebuildSettings::with_poison(regex::Regex::new(rebuild::DEFAULT_POISON).unwrap());
    settings.min_gain_percent = 0;
    settings
});

fuzz_target!(|input: (usize, u8, &[u8])| {
    let (place, byte, bytes) = input;
    let folder = tempfile::tempdir().unwrap();
    let (source, candidate) = (folder.path().join("x.jsonl"), folder.path().join("y.jsonl"));
    std::fs::write(&source, bytes).unwrap();
    let plan = rebuild::plan(&PlanInput {
        source: &source,
        source_session: SessionId::generate(),
        new_session: "ca0d1da7-0000-4000-8000-000000000002".parse().unwrap(),
        operation: None,
        settings: &SETTINGS,
        rules: &ExtractRules::default(),
        own: &OwnRows::default(),
        accept_damage: None,
    })
    .unwrap();
    let file = rebuild::write_candidate(&kael_core::disk::Disk::real(), &plan, &source, &candidate).unwrap();
    let evidence = Evidence::default();
    let prove = |file: &CandidateFile| {
        rebuild::prove(&ProofInput {
            plan: &plan,
            source: &source,
            candidate: &candidate,
            candidate_file: file,
            evidence: &evidence,
        })
    };
    let proved = prove(&file).is_ok();
    let mut changed = std::fs::read(&candidate).unwrap();
    if changed.is_empty() {
        return;
    }
    let at = place % changed.len();
    if changed[at] == byte {
        return;
    }
    changed[at] = byte;
    std::fs::write(&candidate, &changed).unwrap();
    assert!(!(proved && prove(&file).is_ok()), "a changed candidate was proved");
    // Past the digest: whatever stands there now, it is looked at without a panic.
    let mut forged = file.clone();
    forged.sha256 = Sha256::digest(&changed).iter().map(|byte| format!("{byte:02x}")).collect();
    prove(&forged).ok();
});
