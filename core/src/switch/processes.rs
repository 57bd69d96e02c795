//! Processes as `/proc` shows them: who runs `claude`, on which session, and its orderly end.
//!
//! A process is named by pid and start time: a pid alone may belong to another one a moment later.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::ids::SessionId;

/// A process that is told apart from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

/// Programs whose first argument is the program that they run.
const INTERPRETERS: [&str; 8] = ["node", "bun", "deno", "sh", "bash", "dash", "python3", "python"];

/// Fields of `/proc/<pid>/stat` after the command's name, which may itself hold spaces and brackets.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// When a process started, in clock ticks since boot.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    stat_fields(pid)?.get(19)?.parse().ok()
}

/// Its parent.
#[must_use]
pub fn parent_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

/// Its session (that of `setsid`).
#[must_use]
pub fn terminal_session_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(3)?.parse().ok()
}

/// Its arguments; none if it is gone or a zombie.
#[must_use]
pub fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = bytes.strip_suffix(&[0]).unwrap_or(&bytes);
    if text.is_empty() {
        return None;
    }
    Some(text.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect())
}

/// The last part of a path.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Process {
    /// The process that has that pid now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: start_time(pid)? })
    }

    /// Whether it still runs: it is there, is the same one, and is no zombie.
    #[must_use]
    pub fn runs(self) -> bool {
        stat_fields(self.pid).is_some_and(|fields| {
            fields.get(19).and_then(|ticks| ticks.parse().ok()) == Some(self.started)
                && !matches!(fields[0].as_str(), "Z" | "X")
        })
    }

    /// Sends a signal to exactly this process. One that is gone already is what was wanted.
    pub fn signal(self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(fd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
        // With the descriptor in hand the pid cannot be given to another one any more.
        if self.runs() {
            pidfd_send_signal(&fd, signal).unwrap_or_default();
        }
    }

    /// Waits until it does not run any more. False when it still does.
    #[must_use]
    pub fn wait(self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let fd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        while self.runs() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // A zombie whose parent stands still is not told by the descriptor on every kernel: look now and then.
            let nap = left.min(Duration::from_millis(50));
            match (&fd, rustix::event::Timespec::try_from(nap)) {
                (Some(fd), Ok(nap)) => {
                    let mut watched = [PollFd::new(fd, PollFlags::IN)];
                    if poll(&mut watched, Some(&nap)).is_err() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                _ => std::thread::sleep(nap),
            }
        }
        true
    }

    /// Asks it to end, waits, and ends it. False when it runs even then.
    #[must_use]
    pub fn end(self, grace: Duration) -> bool {
        self.signal(Signal::TERM);
        // A stopped process takes no notice.
        self.signal(Signal::CONT);
        if self.wait(grace) {
            return true;
        }
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(5))
    }
}

/// Everything below a process, nearest first, itself in front.
#[must_use]
pub fn family(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        for child in children.get(&pid).into_iter().flatten() {
            if !found.contains(child) {
                found.push(*child);
            }
        }
        next += 1;
    }
    found
}

/// Whether a process runs that program or `claude`, by its command line: in front, or behind an interpreter.
#[must_use]
pub fn is_claude(pid: u32, program: &str) -> bool {
    let Some(line) = command_line(pid) else { return false };
    let wanted = base_name(program);
    let fits = |part: Option<&String>| {
        part.is_some_and(|part| [wanted, "claude"].contains(&base_name(part.trim_start_matches('-'))))
    };
    let behind = line.first().is_some_and(|first| INTERPRETERS.contains(&base_name(first)));
    fits(line.first()) || (behind && fits(line.get(1)))
}

/// The process at or below `root` that is `claude`: the nearest one.
#[must_use]
pub fn claude_below(root: u32, program: &str) -> Option<Process> {
    family(root).into_iter().find(|pid| is_claude(*pid, program)).and_then(Process::of)
}

/// The process at or above `pid` that is `claude`: the nearest one.
#[must_use]
pub fn claude_above(pid: u32, program: &str) -> Option<Process> {
    let mut at = pid;
    while at > 1 {
        if is_claude(at, program) {
            return Process::of(at);
        }
        at = parent_of(at)?;
    }
    None
}

/// What a live CLI notes about itself in `<config dir>/sessions/<pid>.json` (measured on 2.1.199 and 2.1.332).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The session it is on.
    pub session: SessionId,
    /// Whether it says that it waits for somebody to say something; none where the version does not tell.
    pub idle: Option<bool>,
}

#[derive(Deserialize)]
struct RawNote {
    #[serde(rename = "sessionId")]
    session: SessionId,
    #[serde(rename = "procStart")]
    start: Option<String>,
    status: Option<String>,
}

/// The note of that process; `project_dir` is `<config dir>/projects/<folder>`.
#[must_use]
pub fn note_of(process: Process, project_dir: &Path) -> Option<Note> {
    let notes = project_dir.parent()?.parent()?.join("sessions");
    let bytes = fs::read(notes.join(format!("{}.json", process.pid))).ok()?;
    let raw: RawNote = serde_json::from_slice(&bytes).ok()?;
    let same = raw.start.is_none_or(|start| start == process.started.to_string());
    same.then(|| Note { session: raw.session, idle: raw.status.map(|status| status == "idle") })
}

/// The session that a command line names: what follows `--resume`, `-r` or `--session-id`.
#[must_use]
pub fn session_in(line: &[String]) -> Option<SessionId> {
    let flags = ["--resume", "-r", "--session-id"];
    let mut found = None;
    for (index, part) in line.iter().enumerate() {
        let value = match part.split_once('=') {
            Some((flag, value)) if flags.contains(&flag) => Some(value),
            _ if flags.contains(&part.as_str()) => line.get(index + 1).map(String::as_str),
            _ => None,
        };
        found = value.and_then(|value| value.parse().ok()).or(found);
    }
    found
}

/// The session a `claude` process is on, by its own note, else by its command line.
#[must_use]
pub fn session_of(process: Process, project_dir: &Path) -> Option<SessionId> {
    note_of(process, project_dir).map(|note| note.session).or_else(|| session_in(&command_line(process.pid)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn shell(script: &str) -> Child {
        Command::new("/bin/sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn a_process_is_asked_then_ended_and_another_one_is_not_touched() {
        let mut gentle = shell("exec sleep 60");
        let mut stubborn = shell("trap '' TERM; while :; do sleep 1; done");
        let (a, b) = (Process::of(gentle.id()).unwrap(), Process::of(stubborn.id()).unwrap());
        // The trap must be there before the signal is.
        while family(b.pid).len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let other = Process { started: a.started + 1, ..a };
        other.signal(Signal::KILL);
        assert!(a.runs() && !other.runs(), "a later process with the same pid is another one");
        assert!(a.end(Duration::from_secs(20)) && !a.runs());
        assert!(!b.wait(Duration::from_millis(50)));
        assert!(b.end(Duration::from_millis(100)) && !b.runs());
        gentle.wait().unwrap();
        stubborn.wait().unwrap();
    }

    #[test]
    fn a_claude_is_found_below_a_shell_and_above_a_hook() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("claude");
        // The last command of the script keeps the shell: its own name stays in the command line.
        fs::write(&program, "#!/bin/sh\nsleep 60\ntrue\n").unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("/bin/sh {} --resume x; true", program.display())])
            .spawn()
            .unwrap();
        let mut claude = None;
        for _ in 0..2000 {
            claude = claude_below(child.id(), "claude").filter(|found| family(found.pid).len() == 2);
            if claude.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let claude = claude.unwrap();
        assert_ne!(claude.pid, child.id());
        let sleep = family(claude.pid)[1];
        assert_eq!(claude_above(sleep, "claude"), Some(claude));
        assert_eq!(claude_above(child.id(), "claude"), None);
        for pid in family(child.id()) {
            Process::of(pid).unwrap().signal(Signal::KILL);
        }
        child.wait().unwrap();
    }

    #[test]
    fn the_session_of_a_command_line() {
        let id = SessionId::generate();
        let of = |parts: &[&str]| session_in(&parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>());
        let text = id.to_string();
        assert_eq!(of(&["claude", "--resume", &text, "--model", "x"]), Some(id));
        assert_eq!(of(&["claude", &format!("--session-id={text}")]), Some(id));
        assert_eq!(of(&["claude", "-r"]), None);
        assert_eq!(of(&["claude", "--resume", "a title"]), None);
    }
}
