//! Processes that lost their parent and became ours.
//!
//! A tool may leave a process behind that is in a session of its own and has cleared its environment: no group leads to
//! it, and no marker. `run` makes its process a *subreaper*: whatever its descendants leave behind becomes its child, is
//! found among its children, ended after the turn, and reaped, so that no zombie stays either.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpgid, getpgrp, kill_process, waitpid};

/// Whether this process belongs to the runner alone, so that a child which nobody here has started was left behind.
static REAPER: AtomicBool = AtomicBool::new(false);
/// The CLIs that run now. They are in groups of their own, as what they leave behind is.
static STARTED: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

/// Makes this process the parent of everything that its descendants leave behind. For a process that starts nothing but
/// the CLI; a program that uses this library for a part of its work must not call it.
pub fn become_reaper() -> std::io::Result<()> {
    // The kernel looks only at whether there is a value.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    REAPER.store(true, Ordering::SeqCst);
    Ok(())
}

fn started() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that somebody here has started and waits for, until this is dropped.
#[derive(Debug)]
pub struct Known(Option<Pid>);

impl Drop for Known {
    fn drop(&mut self) {
        if let (Some(all), Some(pid)) = (started().as_mut(), self.0) {
            all.remove(&pid);
        }
    }
}

/// Starts a process in a group of its own that is not taken for one that was left behind.
pub fn start<T>(
    spawn: impl FnOnce() -> std::io::Result<T>,
    pid: impl FnOnce(&T) -> Option<Pid>,
) -> std::io::Result<(T, Known)> {
    // Held over the start: nobody may see it before it is known.
    let mut started = started();
    let child = spawn()?;
    let pid = pid(&child);
    started.get_or_insert_default().extend(pid);
    Ok((child, Known(pid)))
}

/// Ends and reaps what was left behind; waits up to `grace` before it kills. Nothing is ended while a CLI runs: it may
/// still want what it left. Blocks. Returns how many there were.
pub fn end_all(grace: Duration) -> usize {
    if !REAPER.load(Ordering::SeqCst) {
        return 0;
    }
    let mut asked = HashSet::new();
    let deadline = Instant::now() + grace;
    // Those whose parent is ended become ours in turn.
    for _ in 0..5000 {
        let Some(left) = left_behind() else { break };
        if left.is_empty() {
            break;
        }
        for pid in left {
            let signal = if Instant::now() < deadline { Signal::TERM } else { Signal::KILL };
            if asked.insert(pid) || signal == Signal::KILL {
                // Gone already is what was wanted.
                kill_process(pid, signal).unwrap_or_default();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    asked.len()
}

/// The children that nobody here has started and that live; the dead ones are reaped. `None` while a CLI runs.
fn left_behind() -> Option<Vec<Pid>> {
    let started = started();
    if started.as_ref().is_some_and(|all| !all.is_empty()) {
        return None;
    }
    let own = getpgrp();
    let strangers = children().into_iter().filter(|pid| getpgid(Some(*pid)).is_ok_and(|group| group != own));
    let alive = strangers.filter(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
    Some(alive.collect())
}

/// The children of all our threads.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}
