//! Processes that belong to an invocation, found by the marker in their environment.
//!
//! A killed runner leaves its CLI behind, and the CLI's shells run in sessions of their own
//! (facts 12): neither parentage nor process groups lead to them. The environment does, and
//! children inherit it.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use kael_core::ids::InvocationId;
use kael_core::switch::processes::parent_of;
pub use kael_core::switch::processes::start_time;
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that names the invocation a process belongs to.
pub const MARKER: &str = "KAEL_INVOCATION";

/// The live processes that carry the invocation's marker, this one excepted. Zombies have no
/// environment and are not among them.
#[must_use]
pub fn processes(invocation: InvocationId) -> Vec<Pid> {
    let own = std::process::id();
    let found = carriers(MARKER, &invocation.to_string());
    found.into_iter().filter(|pid| u32::try_from(pid.as_raw_nonzero().get()) != Ok(own)).collect()
}

/// All live processes whose environment has `name=value`.
#[must_use]
pub fn carriers(name: &str, value: &str) -> Vec<Pid> {
    let wanted = format!("{name}={value}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|&pid| {
            environment(pid)
                .is_some_and(|environ| environ.split(|&byte| byte == 0).any(|var| var == wanted.as_bytes()))
        })
        .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        .collect()
}

/// The environment of a process; `None` if it is gone, another user's, or has none (a zombie, the kernel's own).
fn environment(pid: u32) -> Option<Vec<u8>> {
    // Between the two steps of an exec a process has no environment for some microseconds, and would be missed.
    let mut environ = vec![0; 64 * 1024];
    for _ in 0..200 {
        // In one read: an exec between two of them would cut the environment short.
        match File::open(format!("/proc/{pid}/environ")).ok()?.read(&mut environ).ok()? {
            0 => {}
            length if length == environ.len() => {
                environ.resize(length * 2, 0);
                continue;
            }
            length => {
                environ.truncate(length);
                return Some(environ);
            }
        }
        let fields = stat_fields(pid)?;
        let flags: u64 = fields.get(6)?.parse().ok()?;
        if matches!(fields[0].as_str(), "Z" | "X") || flags & OF_THE_KERNEL != 0 {
            return None;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    None
}

/// `PF_KTHREAD` in the flags of `/proc/<pid>/stat`.
const OF_THE_KERNEL: u64 = 0x0020_0000;

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
        if let Some(environ) = environment(pid)
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

/// Whether a process is gone, or only waits to be waited for.
#[must_use]
pub fn has_ended(pid: u32) -> bool {
    stat_fields(pid).is_none_or(|fields| matches!(fields.first().map(String::as_str), Some("Z" | "X")))
}

/// Ends every process of an invocation: asks, waits up to `grace`, then kills. Blocks.
/// Returns how many there were.
///
/// A process is asked before those it has started: a CLI that saw its tool end first would write the tool down as
/// finished.
pub fn end_all(invocation: InvocationId, grace: Duration) -> usize {
    let found = processes(invocation).len();
    let deadline = Instant::now() + grace;
    let mut asked = HashSet::new();
    loop {
        let left = processes(invocation);
        if left.is_empty() {
            return found;
        }
        if Instant::now() >= deadline {
            break;
        }
        let first = roots(&left);
        signal(first.iter().filter(|pid| asked.insert(**pid)), Signal::TERM);
        std::thread::sleep(Duration::from_millis(20));
    }
    // A process may start another between the look and the kill, so look until there is none.
    for _ in 0..50 {
        let left = processes(invocation);
        if left.is_empty() {
            break;
        }
        signal(roots(&left).iter().chain(&left), Signal::KILL);
        std::thread::sleep(Duration::from_millis(20));
    }
    found
}

/// Those of them whose parent is not among them.
fn roots(pids: &[Pid]) -> Vec<Pid> {
    let has_parent_here = |pid: &Pid| {
        let parent = u32::try_from(pid.as_raw_nonzero().get()).ok().and_then(parent_of);
        let parent = parent.and_then(|parent| Pid::from_raw(i32::try_from(parent).ok()?));
        parent.is_some_and(|parent| pids.contains(&parent))
    };
    pids.iter().copied().filter(|pid| !has_parent_here(pid)).collect()
}

fn signal<'a>(pids: impl IntoIterator<Item = &'a Pid>, signal: Signal) {
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
    fn a_process_in_the_middle_of_an_exec_is_not_missed() {
        let id = InvocationId::generate();
        // Becomes another program all the time.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "i=$1; [ $i = 0 ] && exec sleep 60; exec /bin/sh -c \"$0\" \"$0\" $((i - 1))"])
            .args([r#"i=$1; [ $i = 0 ] && exec sleep 60; exec /bin/sh -c "$0" "$0" $((i - 1))"#, "2000"])
            .env(MARKER, id.to_string())
            .spawn()
            .unwrap();
        let missed = (0..3000).filter(|_| missed(&child, id)).count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(missed, 0);
    }

    /// Whether a look missed it. One process is looked at, not the machine's, so that many looks are cheap.
    fn missed(child: &std::process::Child, id: InvocationId) -> bool {
        let wanted = format!("{MARKER}={id}");
        !environment(child.id())
            .is_some_and(|environ| environ.split(|&byte| byte == 0).any(|var| var == wanted.as_bytes()))
    }

    #[test]
    fn a_parent_is_asked_to_end_before_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let id = InvocationId::generate();
        let script =
            "setsid sleep 60 & trap 'kill -0 $! && echo first > order; exit' TERM; touch ready; wait";
        let mut parent = Command::new("/bin/sh")
            .args(["-c", script])
            .env(MARKER, id.to_string())
            .current_dir(folder.path())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while (!folder.path().join("ready").exists() || processes(id).len() < 2) && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        let reaper = std::thread::spawn(move || parent.wait());
        assert_eq!(end_all(id, Duration::from_secs(10)), 2);
        reaper.join().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("order")).unwrap(), "first\n");
        assert!(processes(id).is_empty());
    }

    #[test]
    fn a_start_time_tells_processes_apart() {
        let own = start_time(std::process::id()).unwrap();
        assert!(own > start_time(1).unwrap());
        assert_eq!(start_time(u32::MAX), None);
    }
}
