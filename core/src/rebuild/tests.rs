//! dev

use super::*;
use crate::ids::SessionId;
use crate::transcript::{ExtractRules, OwnRows};

#[test]
fn dev_samples() {
    let Ok(dir) = std::env::var("DEV_SAMPLES") else { return };
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let settings = RebuildSettings::with_poison(regex::Regex::new(settings::DEFAULT_POISON).unwrap());
    let rules = ExtractRules::default();
    let own = OwnRows::default();
    for file in files {
        if file.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        let new: SessionId = "00000000-0000-4000-8000-0000000000aa".parse().unwrap();
        let input = PlanInput {
            source: &file,
            source_session: new,
            new_session: new,
            operation: None,
            settings: &settings,
            rules: &rules,
            own: &own,
            accept_damage: None,
        };
        let plan = plan(&input).unwrap();
        println!(
            "=== {} items {} stats {:?}",
            file.file_name().unwrap().to_string_lossy(),
            plan.items.len(),
            plan.stats
        );
        for b in &plan.blocked {
            println!("  BLOCK {:?} {}", b.kind, b.message);
        }
        println!("  off {:?}", plan.off_chain);
        println!("  stitched {:?} gain {:?}", plan.stitched, plan.gain);
        for d in &plan.drops {
            println!(
                "   drop {} {} {} {:?}",
                d.rule.name(),
                d.count,
                d.bytes,
                &d.lines[..d.lines.len().min(6)]
            );
        }
        let mut out = Vec::new();
        let written = write_candidate_to(&plan, &file, &file, &mut out).unwrap();
        println!("  rows {}", written.rows);
        let dir = tempfile::tempdir().unwrap();
        let cand = dir.path().join("c.jsonl");
        let cf = write_candidate(&plan, &file, &cand).unwrap();
        println!(
            "  PROOF {:?}",
            prove(&ProofInput {
                plan: &plan,
                source: &file,
                candidate: &cand,
                candidate_file: &cf,
                evidence: &Evidence::default()
            })
            .map(|p| p.checks.iter().map(|c| format!("{}={}", c.name, c.count)).collect::<Vec<_>>())
            .map_err(|e| e.to_string())
        );
        if std::env::var("DEV_SHOW").is_ok() {
            println!("{}", String::from_utf8(out).unwrap());
        }
    }
}
