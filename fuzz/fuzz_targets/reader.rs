//! Any bytes: the ledger accounts for each of them, a continued measurement agrees with a whole one,
//! and a receipt is read without a panic.

#![no_main]

use kael_core::ledger::{self, LedgerReport};
use kael_core::transcript::{ExtractRules, OwnRows, receipt};
use libfuzzer_sys::fuzz_target;

fn sum(report: &LedgerReport) -> u64 {
    report.total_bytes
        + report.conversation_bytes
        + report.bookkeeping.values().sum::<u64>()
        + report.damage_bytes
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    let (rules, own) = (ExtractRules::default(), OwnRows::default());
    let measure = |state| ledger::measure(&path, &rules, &own, state).unwrap();

    let cut = bytes.len() / 2;
    std::fs::write(&path, &bytes[..cut]).unwrap();
    let half = measure(None);
    assert_eq!(sum(&half), cut as u64);
    std::fs::write(&path, bytes).unwrap();
    let whole = measure(None);
    assert_eq!(sum(&whole), bytes.len() as u64);
    let continued = measure(Some(&half.state));
    let figures = |report: &LedgerReport| {
        (
            report.total_bytes,
            report.conversation_bytes,
            report.conversation_turns,
            report.categories.clone(),
            report.bookkeeping.clone(),
            report.damage_bytes,
        )
    };
    assert_eq!(figures(&continued), figures(&whole));
    receipt::read(&path, cut as u64, "00000000-0000-4000-8000-000000000003").unwrap();
});
