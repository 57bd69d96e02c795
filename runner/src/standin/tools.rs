//! Bash and Read. They really run: side effects, output and orphans are as with the CLI.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

/// Internal first argument: this process becomes the shell of a tool, in a session of its own.
pub(super) const SHELL: &str = "__tool-shell";

/// The shell that runs at the moment, for a signal that ends the CLI; 0 when none does.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Ends the tool that runs, as 2.1.332 does when it gets a SIGTERM itself (2.1.199 leaves it running).
pub(super) fn end_running() {
    if let Some(pid) = Pid::from_raw(RUNNING.load(Ordering::SeqCst)) {
        // A shell that has not left our session yet leads no group; then nothing is there to end.
        kill_process_group(pid, Signal::KILL).ok();
    }
}

/// What a tool gave back.
pub(super) struct Ran {
    /// The text for the model.
    pub(super) content: String,
    pub(super) is_error: bool,
    /// The row's `toolUseResult`.
    pub(super) detail: Value,
    /// Refused, not run.
    pub(super) denied: bool,
}

/// Runs a tool call if it is allowed.
pub(super) fn run(name: &str, input: &Value, cwd: &Path, allowed: &[String], mode: &str) -> Ran {
    let listed =
        allowed.iter().any(|a| a == name || a.strip_prefix(name).is_some_and(|r| r.starts_with('(')));
    match name {
        "Read" => read(input["file_path"].as_str().unwrap_or_default(), cwd),
        "Bash" if listed || mode == "bypassPermissions" => bash(input, cwd),
        "Bash" => failed("This command requires approval", true),
        other => {
            failed(&format!("<tool_use_error>Error: No such tool available: {other}</tool_use_error>"), false)
        }
    }
}

fn failed(text: &str, denied: bool) -> Ran {
    Ran { content: text.to_owned(), is_error: true, detail: json!(format!("Error: {text}")), denied }
}

fn read(path: &str, cwd: &Path) -> Ran {
    let Ok(text) = std::fs::read_to_string(cwd.join(path)) else {
        return failed(&format!("<tool_use_error>File does not exist: {path}</tool_use_error>"), false);
    };
    let lines: Vec<String> =
        text.lines().enumerate().map(|(at, line)| format!("{}\t{line}", at + 1)).collect();
    let detail = json!({"type": "text", "file": {"filePath": path, "content": text,
        "numLines": lines.len(), "startLine": 1, "totalLines": lines.len()}});
    Ran { content: lines.join("\n"), is_error: false, detail, denied: false }
}

fn bash(input: &Value, cwd: &Path) -> Ran {
    let command = input["command"].as_str().unwrap_or_default();
    let limit = Duration::from_millis(input["timeout"].as_u64().unwrap_or(120_000));
    let (code, stdout, stderr, interrupted) = match shell_out(command, cwd, limit) {
        Ok(done) => done,
        Err(error) => return failed(&format!("cannot start a shell: {error}"), false),
    };
    let mut content = [stdout.as_str(), stderr.as_str()].map(str::trim_end).join("\n").trim().to_owned();
    if interrupted {
        content = format!("Command timed out after {}s\n{content}", limit.as_secs());
    } else if code != 0 {
        content = format!("Exit code {code}\n{content}");
    } else if content.is_empty() {
        content = "(Bash completed with no output)".into();
    }
    let detail = json!({"stdout": stdout.trim_end(), "stderr": stderr.trim_end(), "interrupted": interrupted,
        "isImage": false, "noOutputExpected": false});
    Ran {
        content: content.chars().take(30_000).collect(),
        is_error: code != 0 || interrupted,
        detail,
        denied: false,
    }
}

type ShellDone = (i32, String, String, bool);

fn shell_out(command: &str, cwd: &Path, limit: Duration) -> std::io::Result<ShellDone> {
    // Output goes through files, as with the CLI: a grandchild that keeps them open holds nobody up.
    let folder = std::env::temp_dir().join(format!("stand-in-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir_all(&folder)?;
    let (out, err) = (folder.join("out"), folder.join("err"));
    let mut shell = Command::new(std::env::current_exe()?);
    shell.arg("stand-in-claude").arg(SHELL).arg(command).current_dir(cwd).stdin(Stdio::null());
    let mut child =
        shell.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(&err)?).spawn()?;
    let pid = Pid::from_child(&child);
    RUNNING.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    let until = Instant::now() + limit;
    let (code, interrupted) = loop {
        if let Some(status) = child.try_wait()? {
            break (status.code().unwrap_or(137), false);
        }
        if Instant::now() >= until {
            end_running();
            child.kill()?;
            child.wait()?;
            break (137, true);
        }
        std::thread::sleep(Duration::from_millis(3));
    };
    RUNNING.store(0, Ordering::SeqCst);
    let text = |path: &Path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
    let done = (code, text(&out)?, text(&err)?, interrupted);
    std::fs::remove_dir_all(&folder)?;
    Ok(done)
}

/// The other side of [`SHELL`]: leaves the session and becomes `/bin/sh`.
pub(super) fn shell(command: Option<&OsString>) -> ExitCode {
    if let Err(error) = rustix::process::setsid() {
        eprintln!("the tool's shell cannot leave the session: {error}");
        return ExitCode::from(126);
    }
    let error =
        Command::new("/bin/sh").arg("-c").arg(command.map_or("".as_ref(), OsString::as_os_str)).exec();
    eprintln!("/bin/sh: {error}");
    ExitCode::from(126)
}
