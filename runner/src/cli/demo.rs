//! `demo`: the main job, offline, in a folder of its own, with the stand-in for the CLI. Everything runs as it
//! does for a person: a runner in the background, `send`, `status`, `pointer history`. It fails if one of its claims
//! is false.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::args;
use super::error::CliError;
use super::output::bytes;

/// What the human says. The answers come from what the stand-in has in its context.
const TALK: &[&str] = &[
    "My daughter wants to build a red kite with a long tail.",
    "Please look at the shed and tell me what is there.",
    "风筝的线要白色的。",
    "Please look at the shed once more, I moved some things.",
    "We fly it on Sunday if the wind is right. 🪁",
    "Please look at the shed a last time.",
];
const LAST: &str = "What was the first thing I said?";

/// Runs the command.
pub fn run(args: &args::Demo) -> Result<(), CliError> {
    let temporary;
    let root = match &args.keep {
        Some(folder) => {
            fs::create_dir_all(folder)?;
            folder.canonicalize()?
        }
        None => {
            temporary = Temporary::make()?;
            temporary.0.clone()
        }
    };
    let stage = Stage { root, pause: if args.fast { Duration::ZERO } else { Duration::from_millis(1200) } };
    stage.set()?;
    let failed = stage.play()?;
    if let Some(folder) = &args.keep {
        println!("\nThe companion's files are in {}.", folder.display());
    }
    match failed {
        0 => Ok(()),
        n => Err(CliError::failed(format!("{n} of the demo's claims are false"))),
    }
}

/// A folder that is removed when the demo ends.
struct Temporary(PathBuf);

impl Temporary {
    fn make() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("kael-demo-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// The runner in the background; ended with the demo however that ends.
struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_or_default();
        }
        self.0.wait().map(drop).unwrap_or_default();
    }
}

struct Stage {
    root: PathBuf,
    pause: Duration,
}

impl Stage {
    /// Home, working folder with something to look at, configuration, and the stand-in called `claude`.
    fn set(&self) -> Result<(), CliError> {
        for folder in ["home", "bin", "shed"] {
            fs::create_dir_all(self.root.join(folder))?;
        }
        let inventory: String =
            (1..=900).map(|n| format!("shelf {n}: a box of nails, some rope, a tin of paint\n")).collect();
        fs::write(self.root.join("shed/inventory.txt"), inventory)?;
        let program = self.root.join("bin/claude");
        if !program.exists() {
            std::os::unix::fs::symlink(std::env::current_exe()?, &program)?;
        }
        let text = format!(
            "activation = \"pointer\"\nclaude_workdir = {:?}\nstate_dir = {:?}\n\
             resume_command = [{:?}, \"--resume\", \"{{session_id}}\"]\ndirty_budget_bytes = 40000\n\
             [runner]\nrebuild = \"auto\"\nmin_gain_percent = 1\n\
             [claude]\nargs = [\"--allowedTools\", \"Bash\"]\n",
            self.root.join("shed"),
            self.root.join("state"),
            program,
        );
        Ok(fs::write(self.root.join("config.toml"), text)?)
    }

    fn command(&self, arguments: &[&str]) -> Result<Command, CliError> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env_clear()
            .env("HOME", self.root.join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .arg("--config")
            .arg(self.root.join("config.toml"))
            .args(arguments)
            .stdin(Stdio::null());
        Ok(command)
    }

    fn json(&self, arguments: &[&str]) -> Result<Value, CliError> {
        let output = self.command(&[arguments, &["--json"]].concat())?.output()?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            CliError::failed(format!(
                "{arguments:?} failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))
        })
    }

    fn say(&self, words: &str) -> Result<String, CliError> {
        println!("\n  you        {words}");
        std::io::stdout().flush()?;
        let output = self.command(&["send", "--wait", "--timeout", "60", words])?.output()?;
        if !output.status.success() {
            return Err(CliError::failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let reply = String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned();
        println!("  companion  {}", reply.replace('\n', "\n             "));
        std::thread::sleep(self.pause);
        Ok(reply)
    }

    fn play(&self) -> Result<usize, CliError> {
        println!("A companion lives in one conversation. Its tools make noise; the runner keeps the words.");
        let log = fs::File::create(self.root.join("runner.log"))?;
        let started = self.command(&["run"])?.stderr(log).stdout(Stdio::null()).spawn()?;
        let runner = Runner(started);
        let mut replies = Vec::new();
        let mut first_session = None;
        let mut largest = 0;
        for words in TALK {
            replies.push(self.say(words)?);
            let session = self.session()?;
            let size = self.transcript(&session).metadata()?.len();
            largest = largest.max(size);
            match &first_session {
                None => first_session = Some(session),
                Some(before) if *before != session => {
                    println!("  runner     rebuilt: {} of transcript became {}", bytes(largest), bytes(size));
                    first_session = Some(session);
                }
                Some(_) => println!("  runner     the transcript has {}", bytes(size)),
            }
        }
        let remembered = self.say(LAST)?;
        println!();
        let failed = self.check(&remembered, largest)?;
        drop(runner);
        Ok(failed)
    }

    fn session(&self) -> Result<String, CliError> {
        // A rebuild follows the reply, so the answer is final only when nothing is active any more.
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.json(&["status"])?;
            let busy = matches!(
                status.pointer("/operation/status").and_then(Value::as_str),
                Some("pending" | "scheduled" | "running" | "verifying" | "activating")
            );
            if let (false, Some(session)) = (busy, status.pointer("/pointer/session").and_then(Value::as_str))
            {
                return Ok(session.to_owned());
            }
            if Instant::now() > deadline {
                return Err(CliError::failed("the runner's operation did not end"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn transcript(&self, session: &str) -> PathBuf {
        let projects = self.root.join("home/.claude/projects");
        let folder =
            fs::read_dir(projects).ok().and_then(|mut all| all.next()?.ok()).map(|entry| entry.path());
        folder.unwrap_or_default().join(format!("{session}.jsonl"))
    }

    /// The claims, each looked at in the files.
    fn check(&self, remembered: &str, largest: u64) -> Result<usize, CliError> {
        let history = self.json(&["pointer", "history"])?;
        let lines = history["history"].as_array().cloned().unwrap_or_default();
        let switches: Vec<&Value> = lines.iter().filter(|line| line["operation"].is_string()).collect();
        let session = self.session()?;
        let clean = fs::read_to_string(self.transcript(&session))?;
        let operation = match switches.last() {
            Some(line) => {
                self.json(&["status", "--operation", line["operation"].as_str().unwrap_or_default()])?
            }
            None => Value::Null,
        };
        let old = switches.last().and_then(|line| line["from"].as_str()).unwrap_or_default().to_owned();
        let frozen = operation
            .pointer("/operation/operation_id")
            .and_then(Value::as_str)
            .map(|id| self.root.join("state/artifacts").join(id).join(format!("{old}.jsonl")));
        let untouched = frozen.is_some_and(|frozen| same_bytes(&frozen, &self.transcript(&old)));
        let words_once = TALK.iter().all(|words| rows_with(&clean, words) == 1);
        let candidate_bytes = operation.pointer("/operation/verification").is_some();
        let claims = [
            (format!("the pointer moved by itself, {} times", switches.len()), !switches.is_empty()),
            ("every sentence is in the clean session, once".to_owned(), words_once),
            ("no tool output of before the switch is in it".to_owned(), !tool_output_before(&clean)),
            (
                "the proof is on record".to_owned(),
                candidate_bytes && operation["operation"]["status"] == "activated",
            ),
            ("the old transcript is byte-identical to its frozen copy".to_owned(), untouched),
            ("the companion still knows the first sentence".to_owned(), remembered.contains(TALK[0])),
            (
                format!("the session shrank: {} at most, {} now", bytes(largest), bytes(clean.len() as u64)),
                (clean.len() as u64) < largest,
            ),
        ];
        for (claim, holds) in &claims {
            println!("  {} {claim}", if *holds { "✓" } else { "✗" });
        }
        Ok(claims.iter().filter(|(_, holds)| !holds).count())
    }
}

fn same_bytes(a: &Path, b: &Path) -> bool {
    matches!((fs::read(a), fs::read(b)), (Ok(a), Ok(b)) if a == b)
}

/// How many user rows hold these words.
fn rows_with(transcript: &str, words: &str) -> usize {
    let quoted = Value::from(words).to_string();
    let inside = quoted.trim_matches('"');
    transcript.lines().filter(|line| line.contains("\"type\":\"user\"") && line.contains(inside)).count()
}

/// Whether one of the rows that the rebuild wrote holds a tool's call or result.
fn tool_output_before(transcript: &str) -> bool {
    transcript
        .lines()
        .filter(|line| line.contains("\"kael\""))
        .any(|line| line.contains("\"tool_result\"") || line.contains("\"tool_use\""))
}
