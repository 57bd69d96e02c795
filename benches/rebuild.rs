//! Speed and memory of a rebuild against the limit of the machine (DESIGN 13), on generated
//! transcripts: what must be done anyway (one pass of SHA-256, `cp`, `sync`) is measured beside it in
//! the same run, and so is `sha256sum; cp; sync`.
//!
//! ```text
//! cargo bench -p kael-core --bench rebuild            # 10 and 100 MB
//! KAEL_BENCH_MB=10,100,1000 cargo bench -p kael-core --bench rebuild
//! ```
//!
//! Each figure is the best of three. Memory is the peak of a process of its own.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kael_core::disk::Disk;
use kael_core::ids::SessionId;
use kael_core::ledger;
use kael_core::rebuild::{self, Evidence, PlanInput, ProofInput, RebuildSettings};
use kael_core::transcript::{ExtractRules, OwnRows, receipt};
use sha2::{Digest, Sha256};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    if args.next().as_deref() == Some("--child") {
        let what = args.next().ok_or("what?")?;
        let path = PathBuf::from(args.next().ok_or("which file?")?);
        match what.as_str() {
            "rebuild" => drop(full_rebuild(&path)?),
            "line" | "plan" => drop(plan(&path)?),
            "generate" => drop(generate(&path, 100 << 20)?),
            "large" => drop(generate(&path, 1000 << 20)?),
            _ => drop(measure(&path, None)?),
        }
        println!("{}", peak_kib()?);
        return Ok(());
    }
    let sizes = std::env::var("KAEL_BENCH_MB").unwrap_or_else(|_| "10,100".to_owned());
    let folder = std::env::temp_dir().join(format!("kael-bench-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let done = sizes.split(',').try_for_each(|size| one_size(&folder, size.trim().parse()?));
    let line = done.and_then(|()| long_line(&folder));
    std::fs::remove_dir_all(&folder)?;
    line
}

fn one_size(folder: &Path, megabytes: u64) -> Outcome<()> {
    let path = folder.join(format!("{megabytes}.jsonl"));
    let rows = generate(&path, megabytes << 20)?;
    let size = path.metadata()?.len();
    println!("== {megabytes} MB: {size} bytes, {rows} rows");
    hash_pass(&path)?; // into the page cache

    let limit = best(|| {
        let begin = Instant::now();
        hash_pass(&path)?;
        let copy = folder.join("copy");
        std::fs::copy(&path, &copy)?;
        File::open(&copy)?.sync_all()?;
        let took = begin.elapsed();
        std::fs::remove_file(&copy)?;
        Ok(took)
    })?;
    say("limit: sha2, cp, sync", limit, None);
    let shell = best(|| {
        let copy = folder.join("copy");
        let begin = Instant::now();
        let script = "sha256sum \"$1\" >/dev/null && cp \"$1\" \"$2\" && sync \"$2\"";
        Command::new("sh").args(["-c", script, "sh"]).args([&path, &copy]).status()?;
        let took = begin.elapsed();
        std::fs::remove_file(&copy)?;
        Ok(took)
    })?;
    say("sha256sum; cp; sync", shell, Some(limit));
    let mut steps = Vec::new();
    let whole = best(|| {
        steps = full_rebuild(&path)?;
        Ok(steps.iter().map(|(_, took)| *took).sum())
    })?;
    say("full rebuild", whole, Some(limit));
    for (step, took) in steps {
        say(&format!("  {step}"), took, None);
    }
    let scan = best(|| timed(|| measure(&path, None)))?;
    say("full scan", scan, Some(limit));
    let state = measure(&path, None)?.state;
    let before = size;
    let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
    let (ours, more) = turns(1 << 20, rows + 1, true);
    file.write_all(&more)?;
    drop(file);
    let check = best(|| timed(|| measure(&path, Some(&state))))?;
    println!(
        "{:<34} {:>10.2?}   {:.2} % of a full scan",
        "check after 1 MB more",
        check,
        percent(check, scan)
    );
    let read = best(|| timed(|| Ok(receipt::read(&path, before, &ours)?)))?;
    println!(
        "{:<34} {:>10.2?}   {:.2} % of a full scan",
        "receipt of a turn of 1 MB",
        read,
        percent(read, scan)
    );
    for what in ["scan", "rebuild"] {
        let peak = child(what, &path)?;
        let bar = (64 << 10) + rows * 48 / 1024;
        println!("{:<34} {:>7} KiB   bar {bar} KiB", format!("peak memory: {what}"), peak);
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// A file with one line of 20 MB in it.
fn long_line(folder: &Path) -> Outcome<()> {
    let path = folder.join("line.jsonl");
    let rows = generate(&path, 100 << 20)?;
    let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
    let result = "x".repeat(20 << 20);
    writeln!(
        file,
        r#"{{"type":"user","uuid":"big","parentUuid":null,"sessionId":"s","message":{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":"{result}"}}]}}}}"#
    )?;
    let (_, more) = turns(100 << 20, rows + 2, false);
    file.write_all(&more)?;
    drop(file);
    println!("== {} bytes with a line of 20 MB", path.metadata()?.len());
    println!(
        "{:<34} {:>7} KiB   bar {} KiB",
        "peak memory: plan",
        child("line", &path)?,
        (64 << 10) + 2 * rows * 48 / 1024
    );
    Ok(())
}

fn timed<T>(what: impl FnOnce() -> Outcome<T>) -> Outcome<Duration> {
    let begin = Instant::now();
    what()?;
    Ok(begin.elapsed())
}

fn best(mut what: impl FnMut() -> Outcome<Duration>) -> Outcome<Duration> {
    let mut best = what()?;
    for _ in 0..2 {
        best = best.min(what()?);
    }
    Ok(best)
}

fn percent(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() * 100.0 / whole.as_secs_f64()
}

fn say(what: &str, took: Duration, limit: Option<Duration>) {
    let times = limit.map(|limit| format!("{:.2} times the limit", took.as_secs_f64() / limit.as_secs_f64()));
    println!("{what:<34} {took:>10.2?}   {}", times.unwrap_or_default());
}

fn hash_pass(path: &Path) -> Outcome<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().into()),
            count => hasher.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn settings() -> Outcome<RebuildSettings> {
    let mut settings = RebuildSettings::with_poison(regex::Regex::new(rebuild::DEFAULT_POISON)?);
    settings.min_gain_percent = 0;
    Ok(settings)
}

fn plan(path: &Path) -> Outcome<rebuild::Plan> {
    Ok(rebuild::plan(&PlanInput {
        source: path,
        source_session: SessionId::generate(),
        new_session: SessionId::generate(),
        operation: None,
        settings: &settings()?,
        rules: &ExtractRules::default(),
        own: &OwnRows::default(),
        accept_damage: None,
    })?)
}

/// Everything from freezing to the last sync, step by step.
fn full_rebuild(path: &Path) -> Outcome<Vec<(&'static str, Duration)>> {
    let folder = path.with_extension(format!("artifacts-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let (copy, candidate) = (folder.join("source.jsonl"), folder.join("candidate.jsonl"));
    let mut steps = Vec::new();
    let mut begin = Instant::now();
    let mut step = |what| {
        steps.push((what, begin.elapsed()));
        begin = Instant::now();
    };
    let frozen = Disk::real().copy_hashing(path, &copy)?;
    step("freeze (copy, hash, sync)");
    let plan = plan(&copy)?;
    if plan.is_hard_blocked() || plan.source_sha256 != frozen.sha256 {
        return Err(format!("blocked: {}", plan.blocked_reason()).into());
    }
    step("plan");
    let file = rebuild::write_candidate(&Disk::real(), &plan, &copy, &candidate)?;
    step("candidate (write, sync)");
    let evidence = Evidence::default();
    rebuild::prove(&ProofInput {
        plan: &plan,
        source: &copy,
        candidate: &candidate,
        candidate_file: &file,
        evidence: &evidence,
    })?;
    step("proof");
    std::fs::remove_dir_all(&folder)?;
    Ok(steps)
}

fn measure(path: &Path, state: Option<&ledger::LedgerState>) -> Outcome<ledger::LedgerReport> {
    let report = ledger::measure(path, &ExtractRules::default(), &OwnRows::default(), state)?;
    if report.full_scan == state.is_some() {
        return Err("the incremental path was not taken".into());
    }
    Ok(report)
}

fn child(what: &str, path: &Path) -> Outcome<u64> {
    let output = Command::new(std::env::current_exe()?).args(["--child", what]).arg(path).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// The most memory this process has used.
fn peak_kib() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn generate(path: &Path, bytes: u64) -> Outcome<u64> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut written, mut rows) = (0, 0);
    while written < bytes {
        let (_, piece) = turns((bytes - written).min(4 << 20), rows + 1, rows > 0);
        written += piece.len() as u64;
        rows += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        file.write_all(&piece)?;
    }
    file.flush()?;
    Ok(rows)
}

/// Turns of about this many bytes: a question, thinking, calls of tools with their results (twice, as
/// the CLI writes them), attachments, an answer, and a `last-prompt` at the end. Lines are numbered from
/// `next`; the first row hangs on the last one before the `last-prompt` in front of it if `continues`. Also the first human row's uuid.
fn turns(bytes: u64, mut next: u64, continues: bool) -> (String, Vec<u8>) {
    let id = |row: u64| format!("00000000-0000-4000-8000-{row:012x}");
    let mut out = Vec::new();
    let mut parent = if continues { format!("\"{}\"", id(next - 2)) } else { "null".to_owned() };
    let mut first = None;
    let mut seed = next;
    while (out.len() as u64) < bytes {
        let mut row = |kind: &str, rest: String| {
            let uuid = id(next);
            let line = format!(
                "{{\"parentUuid\":{parent},\"isSidechain\":false,\"userType\":\"external\",\"cwd\":\"/srv/bot\",\"sessionId\":\"5e551011-0000-4000-8000-000000000001\",\"version\":\"2.1.332\",\"gitBranch\":\"\",\"type\":\"{kind}\",{rest},\"uuid\":\"{uuid}\",\"timestamp\":\"2026-11-30T17:00:00.000Z\"}}\n"
            );
            out.extend_from_slice(line.as_bytes());
            parent = format!("\"{uuid}\"");
            next += 1;
            uuid
        };
        let human = row(
            "user",
            format!(
                "\"promptSource\":\"sdk\",\"message\":{{\"role\":\"user\",\"content\":\"question {seed}: {}\"}}",
                "风筝是什么颜色？ what colour? ".repeat(4)
            ),
        );
        first.get_or_insert(human);
        let message = seed;
        let model = |blocks: String, stop: &str| {
            format!(
                "\"requestId\":\"req_{message}\",\"message\":{{\"id\":\"msg_{message}\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-test-1\",\"content\":[{blocks}],\"stop_reason\":\"{stop}\",\"usage\":{{\"input_tokens\":10,\"cache_read_input_tokens\":20000,\"cache_creation_input_tokens\":5,\"output_tokens\":7}}}}"
            )
        };
        let thought = "wind and paper, ".repeat(40);
        row(
            "assistant",
            model(
                format!("{{\"type\":\"thinking\",\"thinking\":\"{thought}\",\"signature\":\"c2ln\"}}"),
                "tool_use",
            ),
        );
        for call in 0..3_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tool = format!("toolu_{seed}_{call}");
            row(
                "assistant",
                model(
                    format!(
                        "{{\"type\":\"tool_use\",\"id\":\"{tool}\",\"name\":\"Bash\",\"input\":{{\"command\":\"ls -l\"}}}}"
                    ),
                    "tool_use",
                ),
            );
            let lines = usize::try_from(seed >> 58).unwrap_or(0) * 4 + 8;
            let result = "drwxr-xr-x 2 bot bot 4096 kite.txt\\n".repeat(lines);
            row(
                "user",
                format!(
                    "\"message\":{{\"role\":\"user\",\"content\":[{{\"tool_use_id\":\"{tool}\",\"type\":\"tool_result\",\"content\":\"{result}\",\"is_error\":false}}]}},\"toolUseResult\":{{\"stdout\":\"{result}\",\"stderr\":\"\",\"interrupted\":false}}"
                ),
            );
        }
        row(
            "attachment",
            format!("\"attachment\":{{\"type\":\"task_reminder\",\"content\":[\"{thought}\"]}}"),
        );
        row(
            "assistant",
            model(
                format!(
                    "{{\"type\":\"text\",\"text\":\"answer {seed}: {}\"}}",
                    "It is red, 红的。 ".repeat(16)
                ),
                "end_turn",
            ),
        );
    }
    let leaf = id(next - 1);
    out.extend_from_slice(
        format!("{{\"type\":\"last-prompt\",\"lastPrompt\":\"question\",\"leafUuid\":\"{leaf}\",\"sessionId\":\"5e551011-0000-4000-8000-000000000001\"}}\n").as_bytes(),
    );
    (first.unwrap_or_default(), out)
}
