//! Plans, writes and proves the clean session of any transcript, into a folder of its own, and says
//! what each step took. Nothing of the transcript is changed.
//!
//! `cargo run --release -p kael-core --example rebuild -- TRANSCRIPT`

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Evidence, PlanInput, ProofInput, RebuildSettings};
use kael_core::transcript::{ExtractRules, OwnRows};

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(std::env::args_os().nth(1).ok_or("name a transcript")?);
    let mut settings = RebuildSettings::with_poison(regex::Regex::new(rebuild::DEFAULT_POISON)?);
    settings.min_gain_percent = 0;
    let begin = Instant::now();
    let plan = rebuild::plan(&PlanInput {
        source: &source,
        source_session: SessionId::generate(),
        new_session: SessionId::generate(),
        operation: None,
        settings: &settings,
        rules: &ExtractRules::default(),
        own: &OwnRows::default(),
        accept_damage: None,
    })?;
    let planned = begin.elapsed();
    println!("{} items in {} turns, {:?}", plan.items.len(), plan.stats.selected_turns, planned);
    for blocked in &plan.blocked {
        println!("blocked: {}", blocked.message);
    }
    if plan.is_hard_blocked() {
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("rebuild-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let candidate = folder.join("candidate.jsonl");
    let begin = Instant::now();
    let file = rebuild::write_candidate(&kael_core::disk::Disk::real(), &plan, &source, &candidate)?;
    println!("candidate: {} bytes, {:?}", file.len, begin.elapsed());
    let begin = Instant::now();
    let proof = rebuild::prove(&ProofInput {
        plan: &plan,
        source: &source,
        candidate: &candidate,
        candidate_file: &file,
        evidence: &Evidence::default(),
    });
    match proof {
        Ok(proof) => {
            println!("proved, {:?}", begin.elapsed());
            for check in proof.checks {
                println!("  {:>10}  {}", check.count, check.name);
            }
        }
        Err(failure) => println!("{failure}"),
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
