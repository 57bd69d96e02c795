//! What real versions of the CLI wrote (tests/fixtures/transcripts): each is carried, or blocks where only a human can
//! decide.

use std::path::{Path, PathBuf};

use super::*;
use crate::transcript::OffChain;

fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/transcripts");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

#[test]
fn every_sample_is_carried_or_waits_for_a_human() {
    let mut table = Vec::new();
    for path in samples() {
        let plan = Ask::new().plan(&path);
        let hard: Vec<String> = plan
            .blocked
            .iter()
            .filter(|blocked| blocked.kind.is_hard())
            .map(|blocked| format!("{:?} at line {}", blocked.kind, blocked.line.unwrap_or(0)))
            .collect();
        let result =
            if hard.is_empty() { "carried".to_owned() } else { format!("blocks: {}", hard.join(", ")) };
        let (turns, items) = (plan.stats.selected_turns, plan.items.len());
        table.push(format!("{:<32} {turns:>2} turns {items:>2} items  {result}", name(&path)));
    }
    insta::assert_snapshot!("samples", table.join("\n"));
}

/// The words of each sample, with the forks carried, as the candidate says them.
#[test]
fn every_sample_says_what_was_said() {
    let mut all = Vec::new();
    for path in samples() {
        let mut ask = Ask::new();
        ask.settings.off_chain = OffChain::Carry;
        let fixture = Fixture::of(&std::fs::read(&path).unwrap());
        if ask.plan(&fixture.path).is_hard_blocked() {
            continue;
        }
        let rebuilt = ask.rebuild(&fixture);
        rebuilt.proved();
        all.push(format!("== {}", name(&path)));
        all.extend(rebuilt.said().into_iter().map(|text| {
            let short: String = text.chars().take(100).collect();
            short.replace('\n', "⏎")
        }));
    }
    insta::assert_snapshot!("samples_said", all.join("\n"));
}
