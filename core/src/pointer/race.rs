//! The race: programs that know no lock write the pointer, 100,000 times, while we swap it.
//!
//! How a loss is seen. The foreign writers take turns among themselves (what they do to each other is no
//! business of ours), so each knows whose write was last. Before it writes, a writer looks whether that last
//! write is still there. If not, we took it away, and then we must have known: it was the value that a
//! successful swap expected, or a conflict named it.
//!
//! The one case that is not covered, and is documented so: a truncating writer that had opened the old inode
//! before the exchange and writes to it after our look. Every inode that we take out is kept here by a second
//! name, so that such a write is found and counted; it must stay a rarity. A write that is found nowhere is a
//! loss.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::look::{Look, look};
use super::*;
use crate::clock::Timestamp;
use crate::disk::{Gate, Step, StepKind, scratch};

/// Gives every inode that leaves the pointer's folder a second name first.
struct Keeper {
    folder: PathBuf,
    next: AtomicU64,
}

impl Gate for Keeper {
    fn around(&self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let is_temporary = step.path.extension().is_some_and(|e| e == "swap");
        if is_temporary && matches!(step.kind, StepKind::Remove | StepKind::Rename) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            fs::hard_link(step.path, self.folder.join(number.to_string()))?;
        }
        act()
    }
}

struct Foreign {
    last: Option<SessionId>,
    /// Writes that were no longer there when the next one came.
    taken: Vec<SessionId>,
    written: u64,
}

struct Outcome {
    swaps: u64,
    conflicts: u64,
    taken: usize,
    late: usize,
    lost: usize,
}

/// What one try to swap did: the expected value was replaced, or these were seen.
enum Tried {
    Swapped,
    Conflict(Vec<String>),
}

fn race(writes: u64, swap: impl Fn(&Pointer, SessionId, SessionId) -> Tried) -> Outcome {
    // In memory where possible: syncs cost nothing there, so more swaps meet more writes.
    let folder = scratch();
    let kept = folder.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let path = folder.path().join("resume_session");
    fs::write(&path, format!("{}\n", SessionId::generate())).unwrap();
    let keeper = Keeper { folder: kept.clone(), next: AtomicU64::new(0) };
    let pointer = Pointer::new(&path, Disk::with_gate(Box::new(keeper)));

    let foreign = Arc::new(Mutex::new(Foreign { last: None, taken: Vec::new(), written: 0 }));
    let writers: Vec<_> = (0..4_u32)
        .map(|number| {
            let (foreign, path) = (foreign.clone(), path.clone());
            std::thread::spawn(move || {
                let mut pause = number + 1;
                loop {
                    {
                        let mut foreign = foreign.lock().unwrap();
                        if foreign.written == writes {
                            return;
                        }
                        if let Some(last) = foreign.last
                            && look(&path) != Look::Session(last)
                        {
                            foreign.taken.push(last);
                        }
                        let id = SessionId::generate();
                        if number.is_multiple_of(2) {
                            fs::write(&path, format!("{id}\n")).unwrap();
                        } else {
                            let temporary = path.with_file_name(format!("foreign-{number}"));
                            fs::write(&temporary, format!("{id}\n")).unwrap();
                            fs::rename(&temporary, &path).unwrap();
                        }
                        foreign.last = Some(id);
                        foreign.written += 1;
                    }
                    pause = pause.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    for _ in 0..pause >> 20 {
                        std::hint::spin_loop();
                    }
                    // On a busy machine the writers would leave the swaps no time.
                    if (pause >> 16).is_multiple_of(8) {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();

    let (mut swaps, mut conflicts, mut known) = (0, 0, HashSet::new());
    let mut late = HashSet::new();
    while !writers.iter().all(std::thread::JoinHandle::is_finished) {
        let Ok(PointerValue::Session(expected)) = pointer.read() else { continue };
        match swap(&pointer, expected, SessionId::generate()) {
            Tried::Swapped => {
                known.insert(expected.to_string());
                swaps += 1;
            }
            Tried::Conflict(seen) => {
                known.extend(seen);
                conflicts += 1;
            }
        }
        if (swaps + conflicts) % 500 == 0 {
            collect_late(&kept, &mut late, 100);
            drop(fs::remove_file(pointer.history_path()));
        }
    }
    for writer in writers {
        writer.join().unwrap();
    }
    collect_late(&kept, &mut late, 0);
    let mut foreign = foreign.lock().unwrap();
    assert_eq!(foreign.written, writes);
    // The last write of all has no successor that looks for it.
    if let Some(last) = foreign.last
        && look(&path) != Look::Session(last)
    {
        foreign.taken.push(last);
    }
    let unseen: Vec<_> =
        foreign.taken.iter().map(ToString::to_string).filter(|id| !known.contains(id)).collect();
    let late = unseen.iter().filter(|id| late.contains(*id)).count();
    Outcome { swaps, conflicts, taken: foreign.taken.len(), late, lost: unseen.len() - late }
}

/// Reads what the inodes that were taken out hold by now, and lets all but the newest `leave` go.
fn collect_late(kept: &Path, late: &mut HashSet<String>, leave: usize) {
    let mut files: Vec<(u64, PathBuf)> = fs::read_dir(kept)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().parse().unwrap(), path))
        .collect();
    files.sort();
    files.truncate(files.len().saturating_sub(leave));
    for (_, path) in files {
        late.insert(look(&path).to_string());
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn no_foreign_write_is_lost_unseen() {
    let writes = 100_000;
    let outcome = race(writes, |pointer, expected, new| {
        let lock = pointer.lock().unwrap();
        match pointer.compare_and_swap(&lock, PointerValue::Session(expected), new, &mut |_| Ok(())) {
            Ok(swapped) => {
                pointer.finish(&lock, &swapped.intent, "race", None, Timestamp::from_millis(0)).unwrap();
                Tried::Swapped
            }
            Err(PointerError::Conflict { seen, .. }) => Tried::Conflict(seen),
            Err(error) => panic!("{error}"),
        }
    });
    let Outcome { swaps, conflicts, taken, late, lost } = outcome;
    println!("{swaps} swaps, {conflicts} conflicts, {taken} foreign writes taken away, {late} of them late");
    assert_eq!(lost, 0, "foreign writes that nobody saw");
    assert!(late <= 20, "{late} writes went to an inode that was no longer current");
    // Otherwise there was no race.
    assert!(swaps > 50 && conflicts > 50 && taken > 50, "{swaps} {conflicts} {taken}");
}

#[test]
fn the_race_can_see_a_loss() {
    // What one would write first: read, compare, rename over it.
    let outcome = race(50_000, |pointer, expected, new| {
        if look(&pointer.path) != Look::Session(expected) {
            return Tried::Conflict(Vec::new());
        }
        let temporary = pointer.path.with_file_name("naive");
        fs::write(&temporary, format!("{new}\n")).unwrap();
        fs::rename(&temporary, &pointer.path).unwrap();
        Tried::Swapped
    });
    println!("naive: {} of {} taken writes lost", outcome.lost, outcome.taken);
    assert!(outcome.lost > 0);
}
