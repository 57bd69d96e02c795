//! Processes that belong to an invocation, found by the marker in their environment.
//!
//! A killed runner leaves its CLI behind, and the CLI's shells run in sessions of their own
//! (facts 12): neither parentage nor process groups lead to them. The environment does, and
//! children inherit it.

use std::time::{Duration, Instant};

use kael_core::ids::InvocationId;
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that names the invocation a process belongs to.
pub const MARKER: &str = "KAEL_INVOCATION";

/// The live processes that carry the invocation's marker, this one excepted. Zombies have no
/// environment and are not among them.
#[must_use]
pub fn processes(invocation: InvocationId) -> Vec<Pid> {
    let wanted = format!("{MARKER}={invocation}");
    let own = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|&pid| pid != own)
        .filter(|pid| {
            // Processes of other users cannot be read, and are not ours.
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|var| var == wanted.as_bytes()))
        })
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        .collect()
}

/// The invocation that this process runs inside of, by its own environment or an ancestor's.
#[must_use]
pub fn enclosing_invocation() -> Option<String> {
    if let Ok(own) = std::env::var(MARKER) {
        return Some(own);
    }
    invocation_from(parent_of(std::process::id())?)
}

/// Whether another process runs inside of an invocation.
#[must_use]
pub fn is_inside_invocation(pid: u32) -> bool {
    invocation_from(pid).is_some()
}

fn invocation_from(mut pid: u32) -> Option<String> {
    let prefix = format!("{MARKER}=");
    while pid > 1 {
        if let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ"))
            && let Some(var) = environ.split(|&byte| byte == 0).find(|var| var.starts_with(prefix.as_bytes()))
        {
            return Some(String::from_utf8_lossy(&var[prefix.len()..]).into_owned());
        }
        pid = parent_of(pid)?;
    }
    None
}

/// Fields of `/proc/<pid>/stat` after the command's name, which may itself hold spaces and brackets.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

fn parent_of(pid: u32) -> Option<u32> {
    stat_fields(pid)?.get(1)?.parse().ok()
}

/// When a process started, in clock ticks since boot: with it a pid can be told from a reused one.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    stat_fields(pid)?.get(19)?.parse().ok()
}

/// Ends every process of an invocation: asks, waits up to `grace`, then kills. Blocks.
/// Returns how many there were.
pub fn end_all(invocation: InvocationId, grace: Duration) -> usize {
    let found = processes(invocation);
    if found.is_empty() {
        return 0;
    }
    signal(&found, Signal::TERM);
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline {
        if processes(invocation).is_empty() {
            return found.len();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // A process may start another between the look and the kill, so look until there is none.
    for _ in 0..50 {
        let left = processes(invocation);
        if left.is_empty() {
            break;
        }
        signal(&left, Signal::KILL);
        std::thread::sleep(Duration::from_millis(20));
    }
    found.len()
}

fn signal(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        // A process that is gone already is what was wanted.
        kill_process(pid, signal).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn marked_processes_are_found_in_other_sessions_and_ended() {
        let id = InvocationId::generate();
        // The shell ignores TERM and its child is in a session of its own.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; setsid sleep 60 & sleep 60"])
            .env(MARKER, id.to_string())
            .process_group(0)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while processes(id).len() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(processes(id).len(), 3);
        let reaper = std::thread::spawn(move || child.wait());
        assert_eq!(end_all(id, Duration::from_millis(200)), 3);
        assert!(processes(id).is_empty());
        reaper.join().unwrap().unwrap();
        assert_eq!(end_all(id, Duration::ZERO), 0);
    }

    #[test]
    fn a_start_time_tells_processes_apart() {
        let own = start_time(std::process::id()).unwrap();
        assert!(own > start_time(1).unwrap());
        assert_eq!(start_time(u32::MAX), None);
    }
}
