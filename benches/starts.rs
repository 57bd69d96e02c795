//! How long others wait for us: the CLI for the MCP server's first answer in every invocation, and for the Stop hook's
//! after every turn.
//!
//! ```text
//! cargo bench -p kael-runner --bench starts
//! ```
//!
//! Thirty starts of each; the bars for the medians are 50 and 100 ms.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 30;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const STOP: &str = r#"{"session_id":"11111111-2222-4333-8444-555555555555","transcript_path":"/nonexistent/x.jsonl","hook_event_name":"Stop"}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("kael-starts-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("config.toml");
    std::fs::write(
        &config,
        format!("activation = \"pointer\"\nclaude_workdir = {folder:?}\nstate_dir = {folder:?}\n"),
    )?;
    let measured: Result<Vec<()>, Box<dyn Error>> = [
        ("mcp", HELLO, "kael-thread-rebuild", Duration::from_millis(50)),
        ("hook-stop", STOP, "suppressOutput", Duration::from_millis(100)),
    ]
    .into_iter()
    .map(|(command, said, answer, bar)| {
        let times: Result<Vec<Duration>, Box<dyn Error>> =
            (0..STARTS).map(|_| start(&config, command, said, answer)).collect();
        let mut times = times?;
        times.sort();
        let (median, slowest) = (times[STARTS / 2], times[STARTS - 1]);
        println!("{command}: median {median:?}, quickest {:?}, slowest {slowest:?}", times[0]);
        println!("bar {bar:?}: {}", if median < bar { "held" } else { "MISSED" });
        Ok(())
    })
    .collect();
    std::fs::remove_dir_all(&folder)?;
    measured.map(drop)
}

fn start(config: &Path, command: &str, said: &str, answer: &str) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let mut server = Command::new(env!("CARGO_BIN_EXE_kael-runner"))
        .arg("--config")
        .arg(config)
        .arg(command)
        .env("HOME", config.parent().unwrap_or(config))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = server.stdin.take().ok_or("no input")?;
    let output = server.stdout.take().ok_or("no output")?;
    writeln!(input, "{said}")?;
    if command == "hook-stop" {
        drop(input);
        return finish(server, output, begun, answer);
    }
    let took = finish_line(output, begun, answer)?;
    drop(input);
    server.wait()?;
    Ok(took)
}

fn finish_line(output: impl std::io::Read, begun: Instant, answer: &str) -> Result<Duration, Box<dyn Error>> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let took = begun.elapsed();
    if line.contains(answer) { Ok(took) } else { Err(format!("no answer: {line}").into()) }
}

/// The hook is waited for to its end.
fn finish(
    mut process: std::process::Child,
    output: impl std::io::Read,
    begun: Instant,
    answer: &str,
) -> Result<Duration, Box<dyn Error>> {
    finish_line(output, begun, answer)?;
    process.wait()?;
    Ok(begun.elapsed())
}
