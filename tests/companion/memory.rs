//! Large transcripts take little memory, and say on a terminal how far they are (DESIGN 13).

use std::fs;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

/// Rows of talk and noise, and in the middle one of 20 MB.
fn large(companion: &Companion, turns: u32) -> (PathBuf, u64) {
    let path = companion.world.sandbox.transcript("5e551011-0000-4000-8000-00000000feed");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut out = BufWriter::new(fs::File::create(&path).unwrap());
    let id = |n: u32| format!("\"00000000-0000-4000-8000-{n:012}\"");
    let mut rows = 0;
    let mut row = |kind: &str, rest: &str| {
        let parent = if rows == 0 { "null".to_owned() } else { id(rows) };
        rows += 1;
        writeln!(
            out,
            "{{\"parentUuid\":{parent},\"isSidechain\":false,\"type\":\"{kind}\",{rest},\"uuid\":{},\"timestamp\":\"2026-11-30T17:00:00.000Z\",\"sessionId\":\"5e551011-0000-4000-8000-00000000feed\"}}",
            id(rows)
        )
        .unwrap();
    };
    for turn in 0..turns {
        row(
            "user",
            &format!(
                "\"promptSource\":\"sdk\",\"message\":{{\"role\":\"user\",\"content\":\"question {turn}\"}}"
            ),
        );
        let size = if turn == turns / 2 { 10 << 20 } else { 300 };
        let output = "x".repeat(size);
        row(
            "assistant",
            &format!(
                "\"message\":{{\"id\":\"msg_{turn}a\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"t{turn}\",\"name\":\"Bash\",\"input\":{{}}}}],\"stop_reason\":\"tool_use\"}}"
            ),
        );
        row(
            "user",
            &format!(
                "\"message\":{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\",\"tool_use_id\":\"t{turn}\",\"content\":\"{output}\"}}]}},\"toolUseResult\":{{\"stdout\":\"{output}\"}}"
            ),
        );
        row(
            "assistant",
            &format!(
                "\"message\":{{\"id\":\"msg_{turn}b\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[{{\"type\":\"text\",\"text\":\"answer {turn}\"}}],\"stop_reason\":\"end_turn\"}}"
            ),
        );
    }
    out.flush().unwrap();
    drop(out);
    (path, u64::from(rows))
}

#[test]
fn a_large_transcript_is_planned_written_and_proved_in_bounded_memory() {
    let companion = Companion::new(Subject::StandIn, "", "min_gain_percent = 0");
    let (path, rows) = large(&companion, 12_000);
    let limit = (64 << 20) + 48 * rows;
    let out = companion.world.sandbox.path("candidate.jsonl");
    let plan = companion.command(&[
        "plan",
        "--json",
        "--transcript",
        path.to_str().unwrap(),
        "--candidate",
        out.to_str().unwrap(),
    ]);
    // What is beyond the limit cannot be allocated; nothing has to be watched.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -d \"$1\" && shift && exec \"$@\"", "sh", &(limit / 1024).to_string()]);
    limited.arg(plan.get_program()).args(plan.get_args());
    if let Some(dir) = plan.get_current_dir() {
        limited.current_dir(dir);
    }
    limited.env_clear();
    limited.envs(plan.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.env("MALLOC_ARENA_MAX", "2");
    let outcome = Running::spawn(&mut limited).wait(Duration::from_secs(240)).expect_code(0);
    let plan: serde_json::Value = serde_json::from_str(&outcome.lines.join("\n")).unwrap();
    assert_eq!(plan["stats"]["selected_turns"], 12_000);
    assert!(plan["proof"]["checks"].is_array());
}

#[test]
fn long_work_shows_on_a_terminal_how_far_it_is_and_nowhere_else() {
    let companion = Companion::new(Subject::StandIn, "", "min_gain_percent = 0");
    let (path, _) = large(&companion, 24_000);
    let words = ["dirty", "--transcript", path.to_str().unwrap()];
    let silent = companion.run(&words).expect_code(0);
    assert_eq!(silent.stderr, "", "no terminal, no sign");

    // `script` gives it a terminal and keeps what stands there.
    let command = companion.command(&words);
    let line: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let typescript = companion.world.sandbox.path("typescript");
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-e", "-c", &line.join(" ")]).arg(&typescript);
    terminal.env_clear();
    terminal.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        terminal.current_dir(dir);
    }
    Running::spawn(&mut terminal).wait(Duration::from_secs(240)).expect_code(0);
    let seen = fs::read_to_string(&typescript).unwrap();
    assert!(seen.contains("measuring: "), "{seen}");
    assert!(seen.contains(" % of "), "{seen}");
    // Nothing of it stays on the screen.
    let last = seen.rfind("measuring: ").unwrap();
    assert!(seen[last..].contains("\r\u{1b}[K"), "{seen}");
    assert!(seen.contains("a rebuild is"), "{seen}");
}
