//! How long the MCP server takes from its start to its first answer: every invocation of the CLI waits for it.
//!
//! ```text
//! cargo bench -p kael-runner --bench mcp_start
//! ```
//!
//! Thirty starts; the bar is 50 ms for the median.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 30;
const BAR: Duration = Duration::from_millis(50);
const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("kael-mcp-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("config.toml");
    std::fs::write(
        &config,
        format!("activation = \"pointer\"\nclaude_workdir = {folder:?}\nstate_dir = {folder:?}\n"),
    )?;
    let measured: Result<Vec<Duration>, Box<dyn Error>> = (0..STARTS).map(|_| start(&config)).collect();
    std::fs::remove_dir_all(&folder)?;
    let mut measured = measured?;
    measured.sort();
    let median = measured[STARTS / 2];
    println!("mcp start: median {median:?}, quickest {:?}, slowest {:?}", measured[0], measured[STARTS - 1]);
    println!("bar {BAR:?}: {}", if median < BAR { "held" } else { "MISSED" });
    Ok(())
}

fn start(config: &std::path::Path) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let mut server = Command::new(env!("CARGO_BIN_EXE_kael-runner"))
        .arg("--config")
        .arg(config)
        .arg("mcp")
        .env("HOME", config.parent().unwrap_or(config))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = server.stdin.take().ok_or("no input")?;
    let output = server.stdout.take().ok_or("no output")?;
    writeln!(input, "{HELLO}")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let took = begun.elapsed();
    drop(input);
    server.wait()?;
    if line.contains("kael-thread-rebuild") { Ok(took) } else { Err(format!("no answer: {line}").into()) }
}
