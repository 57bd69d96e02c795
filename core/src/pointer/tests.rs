//! Reading, swapping, and every point at which a crash or somebody else can strike.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::look::understand;
use super::*;
use crate::clock::Timestamp;
use crate::disk::{Fault, FaultPlan, Gate, Lose, Step, Twin, When, every_stop, scratch};

proptest! {
    #[test]
    fn only_one_whole_id_is_ever_a_session(
        before in "[ \\t\\r\\n]{0,3}", after in "[ \\t\\r\\n]{0,3}", bytes: Vec<u8>, at_byte in 0_usize..36, byte: u8,
    ) {
        let id = SessionId::generate();
        let text = format!("{before}{id}{after}");
        prop_assert_eq!(understand(text.as_bytes()), Look::Session(id));
        let mut text = id.to_string().into_bytes();
        text[at_byte] = byte;
        for bytes in [bytes, text] {
            if let Look::Session(found) = understand(&bytes) {
                let text = String::from_utf8(bytes).unwrap();
                prop_assert_eq!(text.trim().to_ascii_lowercase(), found.to_string());
            }
        }
    }

    #[test]
    fn a_part_of_an_id_is_waited_for_and_more_than_one_is_named(length in 1_usize..36, times in 2_usize..5) {
        let id = SessionId::generate().to_string();
        prop_assert!(understand(&id.as_bytes()[..length]).is_unfinished());
        prop_assert_eq!(understand(id.repeat(times).as_bytes()), Look::Several(times));
        prop_assert_eq!(understand(format!("{id}\n").repeat(times).as_bytes()), Look::Several(times));
    }
}

struct World {
    _keep: tempfile::TempDir,
    path: PathBuf,
    old: SessionId,
    new: SessionId,
}

impl World {
    fn new() -> Self {
        let keep = scratch();
        let path = keep.path().join("resume_session");
        let world = Self { _keep: keep, path, old: SessionId::generate(), new: SessionId::generate() };
        fs::write(&world.path, format!("{}\n", world.old)).unwrap();
        world
    }

    fn pointer(&self) -> Pointer {
        Pointer::new(&self.path, Disk::real())
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Nothing of a swap in progress is left.
    fn assert_tidy(&self, context: &str) {
        for name in self.names() {
            let known = ["", ".lock", ".history", ".prev"].map(|end| format!("resume_session{end}"));
            assert!(known.contains(&name), "{context}: {name} is left");
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_780_000_000_000)
}

fn read_as(content: &[u8]) -> Result<PointerValue, PointerError> {
    let world = World::new();
    fs::write(&world.path, content).unwrap();
    world.pointer().read()
}

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[test]
fn white_space_and_crlf_are_read_over() {
    let id: SessionId = ID.parse().unwrap();
    for text in [format!("{ID}\n"), ID.to_owned(), format!("  {ID}\r\n"), format!("\n\n\t{ID} \n\n")] {
        assert_eq!(read_as(text.as_bytes()).unwrap(), PointerValue::Session(id), "{text:?}");
    }
}

#[test]
fn everything_else_is_a_named_error_with_its_remedy() {
    let twice = format!("{ID}\n{ID}\n");
    let glued = format!("{ID}{ID}");
    let shown = |content: &[u8]| {
        let text = read_as(content).unwrap_err().to_string();
        let start = text.find("resume_session").unwrap();
        text.get(start..).unwrap().to_owned()
    };
    insta::assert_snapshot!(shown(twice.as_bytes()), @"resume_session holds 2 session ids where one belongs; a script appends (`>>`) where it should replace: keep the one to resume (`kael-runner pointer set ID`)");
    insta::assert_snapshot!(shown(glued.as_bytes()), @"resume_session holds 2 session ids where one belongs; a script appends (`>>`) where it should replace: keep the one to resume (`kael-runner pointer set ID`)");
    insta::assert_snapshot!(shown(b"\n"), @"resume_session is empty; write the id of the session to resume into it (`kael-runner pointer set ID`)");
    insta::assert_snapshot!(shown(b"01890a5d-ac96"), @r#"resume_session holds only a part of a session id ("01890a5d-ac96"); whoever wrote it was interrupted: write the whole id (`kael-runner pointer set ID`)"#);
    insta::assert_snapshot!(shown("最新的会话 🦭".as_bytes()), @r#"resume_session does not hold a session id but "最新的会话 🦭"; write the id of the session to resume into it (`kael-runner pointer set ID`)"#);
    for garbage in [&b"\xff\xfe\x00"[..], &[0; 36], &[b'a'; 100_000], b"../../etc/passwd"] {
        assert!(matches!(read_as(garbage), Err(PointerError::Garbage { .. })));
    }
}

#[test]
fn folders_symlinks_and_pipes_are_refused_without_being_opened() {
    let world = World::new();
    let folder = world.path.with_file_name("d");
    fs::create_dir(&folder).unwrap();
    let link = world.path.with_file_name("l");
    symlink(&world.path, &link).unwrap();
    let pipe = world.path.with_file_name("p");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for (path, word) in [(folder, "a folder"), (link, "a symlink"), (pipe, "a special file")] {
        let error = Pointer::new(path, Disk::real()).read().unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("replace it by a file"), "{error}");
    }
}

#[test]
fn a_truncating_writer_is_waited_for() {
    let world = World::new();
    fs::write(&world.path, "").unwrap();
    let (path, new) = (world.path.clone(), world.new);
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        fs::write(path, format!("{new}\n")).unwrap();
    });
    assert_eq!(world.pointer().read().unwrap(), PointerValue::Session(world.new));
    writer.join().unwrap();
    fs::write(&world.path, "").unwrap();
    let start = Instant::now();
    assert!(world.pointer().read().is_err());
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_swap_is_recorded_private_and_keeps_the_old_inode() {
    let world = World::new();
    let pointer = world.pointer();
    assert!(!pointer.used());
    pointer.set(world.old.into_value(), world.new, "ada", now()).unwrap();
    assert_eq!(pointer.read_locked().unwrap(), PointerValue::Session(world.new));
    assert!(pointer.used());
    assert_eq!(fs::metadata(&world.path).unwrap().permissions().mode() & 0o777, 0o600);
    let history = pointer.history().unwrap();
    assert_eq!(history.len(), 1);
    let line = &history[0];
    assert_eq!(
        (line.from, line.to, line.by.as_str(), line.operation),
        (Some(world.old), world.new, "ada", None)
    );
    world.assert_tidy("after a swap");
    let lock = pointer.lock().unwrap();
    assert_eq!(pointer.look_back(&lock).unwrap(), None);
    let late = SessionId::generate();
    fs::write(pointer.beside(".prev"), late.to_string()).unwrap();
    let found = pointer.look_back(&lock).unwrap().unwrap();
    assert_eq!((found.expected, found.session), (world.old, Some(late)));
    pointer.forget_previous(&lock).unwrap();
    assert_eq!(pointer.look_back(&lock).unwrap(), None);
}

#[test]
fn first_creation_never_overwrites() {
    let world = World::new();
    let pointer = world.pointer();
    let error = pointer.set(PointerValue::Absent, world.new, "ada", now()).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    fs::remove_file(&world.path).unwrap();
    pointer.set(PointerValue::Absent, world.new, "ada", now()).unwrap();
    assert_eq!(pointer.read().unwrap(), PointerValue::Session(world.new));
    let same = pointer.set(world.new.into_value(), world.new, "ada", now()).unwrap_err();
    assert!(matches!(same, PointerError::Same { .. }));
    world.assert_tidy("after creation");
}

#[test]
fn a_broken_pointer_is_mended_on_a_human_s_word_and_kept() {
    let twice = format!("{ID}\n{ID}\n");
    for content in ["", "0189", "rubbish", twice.as_str()] {
        let world = World::new();
        fs::write(&world.path, content).unwrap();
        let pointer = world.pointer();
        pointer.set_over(world.new, "ada", now()).unwrap();
        assert_eq!(pointer.read().unwrap(), world.new.into_value());
        assert_eq!(fs::read_to_string(pointer.beside(".broken")).unwrap(), content);
    }
    let world = World::new();
    world.pointer().set_over(world.new, "ada", now()).unwrap();
    let line = &world.pointer().history().unwrap()[0];
    assert_eq!((line.from, line.to), (Some(world.old), world.new));
    fs::remove_file(&world.path).unwrap();
    fs::create_dir(&world.path).unwrap();
    let error = world.pointer().set_over(world.old, "ada", now()).unwrap_err();
    assert!(matches!(error, PointerError::NotAFile { .. }), "{error}");
}

#[test]
fn a_pointer_that_is_mended_in_the_same_instant_is_not_overwritten() {
    for step in 0..8 {
        let world = World::new();
        fs::write(&world.path, "rubbish").unwrap();
        let theirs = SessionId::generate();
        let interloper = Interloper {
            newest: Arc::new(Mutex::new(None)),
            path: world.path.clone(),
            plan: vec![(step, true, theirs)],
            step: Mutex::new(0),
            twin: Disk::faulty(FaultPlan::NONE).1,
        };
        let pointer = Pointer::new(&world.path, Disk::with_gate(Box::new(interloper)));
        let result = pointer.set_over(world.new, "ada", now());
        assert_eq!(pointer.read().unwrap(), theirs.into_value(), "{step} {result:?}");
        assert!(result.unwrap_err().is_conflict());
    }
}

#[test]
fn a_conflict_names_what_was_found_and_keeps_it() {
    let world = World::new();
    let foreign = SessionId::generate();
    fs::write(&world.path, foreign.to_string()).unwrap();
    let error = world.pointer().set(world.old.into_value(), world.new, "ada", now()).unwrap_err();
    let PointerError::Conflict { seen, current, .. } = &error else { panic!("{error}") };
    assert_eq!((seen.as_slice(), current), (&[foreign.to_string()][..], &foreign.to_string()));
    assert!(error.to_string().contains("find out who writes it"), "{error}");
    assert_eq!(world.pointer().history().unwrap(), []);
    world.assert_tidy("after a conflict");
}

#[test]
fn an_intent_that_cannot_be_recorded_leaves_everything_alone() {
    let world = World::new();
    let pointer = world.pointer();
    let lock = pointer.lock().unwrap();
    let error = pointer
        .compare_and_swap(&lock, world.old.into_value(), world.new, &mut |_| Err("disk full".into()))
        .unwrap_err();
    assert!(matches!(error, PointerError::Intent { .. }));
    assert_eq!(pointer.read().unwrap(), PointerValue::Session(world.old));
    world.assert_tidy("after a refused intent");
    let other = Pointer::new(world.path.with_file_name("other"), Disk::real());
    assert!(matches!(other.look_back(&lock), Err(PointerError::WrongLock { .. })));
}

#[test]
fn a_damaged_history_is_named_and_a_torn_last_line_is_not() {
    let world = World::new();
    let pointer = world.pointer();
    pointer.set(world.old.into_value(), world.new, "ada", now()).unwrap();
    let path = pointer.history_path();
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{{\"at\":\"2026-")).unwrap();
    assert_eq!(pointer.history().unwrap().len(), 1);
    pointer.set(world.new.into_value(), world.old, "ada", now()).unwrap();
    assert_eq!(pointer.history().unwrap().len(), 2);
    fs::write(&path, format!("rubbish\n{whole}")).unwrap();
    let error = pointer.history().unwrap_err().to_string();
    assert!(error.contains("line 1 of"), "{error}");
    assert!(fs::read_to_string(&path).unwrap().starts_with("rubbish"));
}

#[test]
fn an_unreadable_or_newer_intent_stops_and_is_left_alone() {
    let world = World::new();
    let pointer = world.pointer();
    let newer = format!(
        r#"{{"schema":9,"by":"x","at":"2026-01-01T00:00:00Z","expected":null,"new":"{ID}","temp_name":"x"}}"#
    );
    for text in ["{", newer.as_str()] {
        fs::write(pointer.beside(".intent"), text).unwrap();
        let error = pointer.set(world.old.into_value(), world.new, "ada", now()).unwrap_err();
        assert!(matches!(error, PointerError::IntentUnreadable { .. }), "{error}");
        assert_eq!(fs::read_to_string(pointer.beside(".intent")).unwrap(), text);
        assert_eq!(pointer.read().unwrap(), PointerValue::Session(world.old));
    }
}

#[test]
fn a_swap_survives_a_stop_at_every_step() {
    for first in [false, true] {
        let walked = every_stop(|plan| {
            let world = World::new();
            let mut expected = PointerValue::Session(world.old);
            if first {
                fs::remove_file(&world.path).unwrap();
                expected = PointerValue::Absent;
            }
            let (disk, twin) = Disk::faulty(plan);
            let result = Pointer::new(&world.path, disk).set(expected, world.new, "ada", now());
            let pointer = world.pointer();
            // A second crash in recovery, anywhere, must not matter either.
            for at in 0..3 {
                let fault = Fault::Stop(When::After, Lose::Nothing);
                let (disk, _) = Disk::faulty(FaultPlan { at, fault });
                let pointer = Pointer::new(&world.path, disk);
                drop(pointer.recover_own_intent(&pointer.lock().unwrap()));
            }
            let lock = pointer.lock().unwrap();
            pointer.recover_own_intent(&lock).unwrap();
            let value = pointer.read().unwrap();
            let history = pointer.history().unwrap();
            if value == PointerValue::Session(world.new) {
                assert_eq!(history.len(), 1, "{plan:?}");
            } else {
                assert!(result.is_err(), "{plan:?}");
                assert_eq!((value, history.len()), (expected, 0), "{plan:?}");
            }
            world.assert_tidy(&format!("{plan:?}"));
            assert_eq!(pointer.look_back(&lock).unwrap(), None, "{plan:?}");
            drop(lock);
            pointer.set(value, SessionId::generate(), "next", now()).unwrap();
            twin.struck()
        });
        assert!(walked > 9 * 10, "{walked}");
    }
}

#[test]
fn a_full_disk_at_any_step_leaves_the_pointer_whole() {
    for at in 0..20 {
        let world = World::new();
        let (disk, twin) = Disk::faulty(FaultPlan { at, fault: Fault::NoSpace });
        let pointer = Pointer::new(&world.path, disk);
        let failed = pointer.set(world.old.into_value(), world.new, "ada", now()).is_err();
        assert!(pointer.read().is_ok(), "{at}");
        twin.make_room();
        pointer.recover_own_intent(&pointer.lock().unwrap()).unwrap();
        if failed && pointer.read().unwrap() == world.old.into_value() {
            pointer.set(world.old.into_value(), world.new, "ada", now()).unwrap();
        }
        assert_eq!(pointer.read().unwrap(), world.new.into_value());
        assert_eq!(pointer.history().unwrap().len(), 1);
        world.assert_tidy(&format!("{at}"));
    }
}

#[test]
fn without_exchange_the_weaker_way_is_taken_and_survives_stops_too() {
    struct NoExchange(Twin);
    impl Gate for NoExchange {
        fn around(&self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
            if step.kind == crate::disk::StepKind::Exchange {
                return Err(io::Error::from(rustix::io::Errno::INVAL));
            }
            self.0.around(step, act)
        }
    }
    let walked = every_stop(|plan| {
        let world = World::new();
        let (_, twin) = Disk::faulty(plan);
        let disk = Disk::with_gate(Box::new(NoExchange(twin.clone())));
        let result = Pointer::new(&world.path, disk).set(world.old.into_value(), world.new, "ada", now());
        let pointer = world.pointer();
        let lock = pointer.lock().unwrap();
        pointer.recover_own_intent(&lock).unwrap();
        let value = pointer.read().unwrap();
        if let Ok(swapped) = &result {
            assert!(!swapped.exchanged);
            assert_eq!(value, PointerValue::Session(world.new));
        }
        assert!([world.old, world.new].map(PointerValue::Session).contains(&value));
        assert_eq!(pointer.history().unwrap().len(), usize::from(value == world.new.into_value()));
        assert_eq!(pointer.look_back(&lock).unwrap(), None, "{plan:?}");
        world.assert_tidy(&format!("{plan:?}"));
        twin.struck()
    });
    assert!(walked > 9 * 10, "{walked}");
    let folder = tempfile::tempdir().unwrap();
    let (_, twin) = Disk::faulty(FaultPlan::NONE);
    assert!(!probe_exchange(&Disk::with_gate(Box::new(NoExchange(twin))), folder.path()).unwrap());
    assert!(probe_exchange(&Disk::real(), folder.path()).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Writes to the pointer like a program that knows nothing of us, right before given steps.
struct Interloper {
    path: PathBuf,
    /// Step, whether by rename, what.
    plan: Vec<(u64, bool, SessionId)>,
    step: Mutex<u64>,
    newest: Arc<Mutex<Option<SessionId>>>,
    twin: Twin,
}

impl Gate for Interloper {
    fn around(&self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut number = self.step.lock().unwrap();
        for (at, by_rename, id) in &self.plan {
            if at == &*number {
                foreign_write(&self.path, *by_rename, *id);
                *self.newest.lock().unwrap() = Some(*id);
            }
        }
        *number += 1;
        if self.twin.struck() {
            // The process is gone; what others would do then is no step of ours.
            *number = u64::MAX / 2;
        }
        self.twin.around(step, act)
    }
}

fn foreign_write(path: &Path, by_rename: bool, id: SessionId) {
    // Later than whatever was written before, also by a coarse clock.
    std::thread::sleep(Duration::from_millis(5));
    if by_rename {
        let temporary = path.with_file_name(format!("foreign-{id}"));
        fs::write(&temporary, format!("{id}\n")).unwrap();
        fs::rename(temporary, path).unwrap();
    } else {
        fs::write(path, format!("{id}\n")).unwrap();
    }
}

/// Runs a swap during which `writes` happen, with a fault, and recovers. The newest foreign write must be
/// current at the end.
fn with_interloper(writes: &[(u64, bool)], plan: FaultPlan) -> bool {
    let world = World::new();
    let writes: Vec<_> = writes.iter().map(|(at, how)| (*at, *how, SessionId::generate())).collect();
    let (_, twin) = Disk::faulty(plan);
    let newest = Arc::new(Mutex::new(None));
    let interloper = Interloper {
        newest: newest.clone(),
        path: world.path.clone(),
        plan: writes.clone(),
        step: Mutex::new(0),
        twin: twin.clone(),
    };
    let disk = Disk::with_gate(Box::new(interloper));
    let result = Pointer::new(&world.path, disk).set(world.old.into_value(), world.new, "ada", now());
    let pointer = world.pointer();
    pointer.recover_own_intent(&pointer.lock().unwrap()).unwrap();
    let context = format!("{writes:?} {plan:?} {result:?}");
    let newest = *newest.lock().unwrap();
    if let Some(newest) = newest {
        assert_eq!(pointer.read().unwrap(), PointerValue::Session(newest), "{context}");
    }
    world.assert_tidy(&context);
    twin.struck()
}

#[test]
fn a_foreign_write_before_any_step_is_current_afterwards() {
    for at in 0..24 {
        for how in [false, true] {
            with_interloper(&[(at, how)], FaultPlan::NONE);
        }
    }
}

#[test]
fn two_foreign_writes_around_the_exchange_leave_the_newer_one_current() {
    for first in 5..14 {
        for second in first + 1..16 {
            for how in [(false, false), (false, true), (true, false), (true, true)] {
                with_interloper(&[(first, how.0), (second, how.1)], FaultPlan::NONE);
            }
        }
    }
}

#[test]
fn a_foreign_write_and_a_crash_leave_the_foreign_write_current() {
    for how in [false, true] {
        for write in 5..16 {
            for at in write..18 {
                for when in [When::Before, When::After] {
                    let fault = Fault::Stop(when, Lose::Nothing);
                    with_interloper(&[(write, how)], FaultPlan { at, fault });
                }
            }
        }
    }
}

impl SessionId {
    const fn into_value(self) -> PointerValue {
        PointerValue::Session(self)
    }
}
