//! Prints a transcript's ledger as a table: what was said, what is noise and of which kind, and what
//! never reaches the model.
//!
//! ```text
//! cargo run -p kael-core --example ledger -- ~/.claude/projects/-srv-bot/<session id>.jsonl
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use kael_core::ledger::{LedgerReport, measure};
use kael_core::transcript::{ExtractRules, OwnRows};

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: ledger TRANSCRIPT.jsonl");
        return ExitCode::from(2);
    };
    match measure(&path, &ExtractRules::default(), &OwnRows::default(), None) {
        Ok(report) => {
            print!("{}", table(&report));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table(report: &LedgerReport) -> String {
    let mut lines = Vec::new();
    let mut line = |what: &str, bytes: u64| {
        let share = if report.file_size == 0 { 0.0 } else { percent(bytes, report.file_size) };
        lines.push(format!("{what:<32} {bytes:>14} {share:>7.2} %"));
    };
    line("speech", report.conversation_bytes);
    line("noise", report.total_bytes);
    for (category, bytes) in &report.categories {
        let name = serde_json::to_value(category).ok();
        line(&format!("  {}", name.as_ref().and_then(|name| name.as_str()).unwrap_or("?")), *bytes);
    }
    let bookkeeping: u64 = report.bookkeeping.values().sum();
    line("bookkeeping", bookkeeping);
    for (kind, bytes) in &report.bookkeeping {
        line(&format!("  {kind}"), *bytes);
    }
    line("damage", report.damage_bytes);
    line("file", report.file_size);
    lines.push(String::new());
    lines.push(format!("turns                {}", report.conversation_turns));
    lines.push(format!("noise ratio          {:.4}", report.noise_ratio()));
    let level = report
        .water_level
        .map_or_else(|| "not measured".to_owned(), |usage| format!("{} tokens", usage.total()));
    lines.push(format!("water level          {level}"));
    lines.push(format!("images, previewed    {}", report.preview_image_count));
    lines.push(format!("images, opened       {}", report.original_image_view_count));
    lines.join("\n") + "\n"
}

/// Shares are for reading; a file's size fits a float well enough for two digits.
fn percent(part: u64, whole: u64) -> f64 {
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}
