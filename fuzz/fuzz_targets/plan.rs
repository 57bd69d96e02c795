//! Any bytes: a plan accounts for all of them, says the same twice, and its candidate's rebuild says
//! what the candidate says.

#![no_main]

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Plan, PlanInput, RebuildSettings};
use kael_core::transcript::{ExtractRules, OwnRows};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::LazyLock;

static SETTINGS: LazyLock<RebuildSettings> = LazyLock::new(|| {
    let mut settings = RebuildSettings::with_poison(regex::Regex::new(rebuild::DEFAULT_POISON).unwrap());
    settings.min_gain_percent = 0;
    settings
});

fn plan(path: &Path, session: &str) -> Plan {
    rebuild::plan(&PlanInput {
        source: path,
        source_session: SessionId::generate(),
        new_session: session.parse().unwrap(),
        operation: None,
        settings: &SETTINGS,
        rules: &ExtractRules::default(),
        own: &OwnRows::default(),
        accept_damage: None,
    })
    .unwrap()
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let (source, first) = (folder.path().join("x.jsonl"), folder.path().join("y.jsonl"));
    std::fs::write(&source, bytes).unwrap();
    let session = "ca0d1da7-0000-4000-8000-000000000002";
    let planned = plan(&source, session);
    assert_eq!(planned.ledger.file_size, bytes.len() as u64);
    assert_eq!(plan(&source, session).digest(), planned.digest());
    if planned.is_hard_blocked() {
        return;
    }
    let file = rebuild::write_candidate(&kael_core::disk::Disk::real(), &planned, &source, &first).unwrap();
    let again = plan(&first, "ca0d1da7-0000-4000-8000-000000000003");
    assert_eq!(again.items.len() as u64, file.rows, "every row of a candidate is carried again");
});
