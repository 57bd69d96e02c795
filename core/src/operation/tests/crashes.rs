//! Crashes, full disks and foreign writers at every step of whole operations.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::disk::{Fault, FaultPlan, Lose, When, every_stop, scratch};
use crate::pointer::{Pointer, PointerValue};
use crate::switch::{
    Adapter, FrozenSource, NewerTranscripts, PointerSwitch, SwitchCheck, place_candidate, preconditions,
    transcript_path, withdraw_candidate,
};

#[test]
fn a_save_survives_a_stop_at_every_step() {
    let walked = every_stop(|plan| {
        let keep = scratch();
        let state = keep.path().join("state");
        let (disk, twin) = Disk::faulty(plan);
        let run = || -> Result<Operation, StoreError> {
            let guard = OpStore::open(&state, disk.clone())?.lock()?;
            let mut operation = guard.request(wish("x"), at(0))?.into_operation();
            guard.advance(&mut operation, &OpEvent::Scheduled, at(1))?;
            Ok(operation)
        };
        let result = run();
        let store = OpStore::open(&state, Disk::real()).unwrap();
        let guard = store.lock().unwrap();
        let listing = store.list().unwrap();
        assert!(listing.unreadable.is_empty(), "{plan:?}: {:?}", listing.unreadable);
        if let Ok(operation) = result {
            assert_eq!(listing.operations, [operation]);
        } else if let Some(found) = listing.operations.first() {
            assert!([Status::Pending, Status::Scheduled].contains(&found.status()));
        }
        let names = fs::read_dir(state.join("operations")).unwrap();
        for name in names {
            let name = name.unwrap().file_name().into_string().unwrap();
            assert!(name.ends_with(".json"), "{plan:?}: {name} is left");
        }
        drop(guard);
        twin.struck()
    });
    assert!(walked > 9 * 12, "{walked}");
}

/// A companion with a conversation, for whole operations.
struct World {
    _keep: tempfile::TempDir,
    state: PathBuf,
    project: PathBuf,
    pointer: PathBuf,
    old: SessionId,
}

const CANDIDATE: &str = "{\"clean\":\"你好 🦭\"}\n";

impl World {
    fn new() -> Self {
        let keep = scratch();
        let (state, project) = (keep.path().join("state"), keep.path().join("project"));
        fs::create_dir(&project).unwrap();
        fs::create_dir(&state).unwrap();
        let pointer = state.join("resume_session");
        let old = SessionId::generate();
        fs::write(&pointer, format!("{old}\n")).unwrap();
        fs::write(transcript_path(&project, old), "{\"noisy\":\"你好 🦭\"}\n".repeat(50)).unwrap();
        Self { _keep: keep, state, project, pointer, old }
    }

    fn source(&self) -> PathBuf {
        transcript_path(&self.project, self.old)
    }

    /// From the wish to the switch, as the coordinator does it.
    fn run(&self, disk: &Disk) -> Result<Operation, Box<dyn std::error::Error>> {
        let store = OpStore::open(&self.state, disk.clone())?;
        let guard = store.lock()?;
        let mut operation = guard.request(wish("due"), at(0))?.into_operation();
        guard.advance(&mut operation, &OpEvent::Scheduled, at(1))?;
        self.carry_out(&guard, &mut operation)?;
        Ok(operation)
    }

    fn carry_out(
        &self,
        guard: &StoreGuard,
        operation: &mut Operation,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let disk = guard.disk().clone();
        let pointer = Pointer::new(&self.pointer, disk.clone());
        if operation.status() == Status::Scheduled {
            guard.advance(operation, &OpEvent::Started, at(2))?;
            guard.make_artifacts_dir(operation.id)?;
            let copy = guard.artifact(operation.id, self.old);
            let now = crate::clock::Clock::now(&crate::clock::SystemClock);
            operation.source = Some(FrozenSource::freeze(&disk, self.old, &self.source(), &copy, now)?);
            guard.save(operation)?;
        }
        let source = operation.source.clone().unwrap();
        let mut adapter = PointerSwitch::locked(&pointer, &disk)?;
        if operation.status() == Status::Running {
            let new = SessionId::generate();
            let path = guard.artifact(operation.id, new);
            disk.create_new(&path, CANDIDATE.as_bytes())?;
            let proved = crate::disk::digest(&path)?;
            let candidate = Candidate { session: new, path, sha256: proved.sha256, len: proved.len };
            let credential = adapter.credential()?;
            guard.advance(operation, &OpEvent::Proved { candidate, credential }, at(3))?;
        }
        let OpState::Verifying { candidate, credential } = operation.state().clone() else { unreachable!() };
        preconditions(
            &SwitchCheck {
                source: &source,
                candidate: &candidate,
                credential,
                project_dir: &self.project,
                allowed_newer: &HashSet::new(),
                newer: NewerTranscripts::Conflict,
                live: &|_| None,
                writer_lives: false,
            },
            &adapter,
        )?;
        let after = adapter.switch(credential, candidate.session, &mut |intent| {
            guard.advance(operation, &OpEvent::ChecksHeld { intent: intent.cloned() }, at(4))?;
            place_candidate(&disk, &candidate, &self.project)?;
            Ok(())
        })?;
        guard.advance(operation, &OpEvent::Switched { after }, at(5))?;
        let OpState::Activated(activation) = operation.state() else { unreachable!() };
        adapter.settle(activation.intent.as_ref(), &operation.requested_by, operation.id, at(5))?;
        Ok(())
    }

    fn recover(&self, disk: &Disk) -> Result<Recovery, Box<dyn std::error::Error>> {
        let store = OpStore::open(&self.state, disk.clone())?;
        let guard = store.lock()?;
        let pointer = Pointer::new(&self.pointer, disk.clone());
        let lock = pointer.lock()?;
        Ok(recover(&guard, &pointer, &lock, &self.project, at(100))?)
    }

    /// Pointer, operation, history and project folder tell one story.
    fn assert_agreement(&self, context: &str) {
        let store = OpStore::open(&self.state, Disk::real()).unwrap();
        let pointer = Pointer::new(&self.pointer, Disk::real());
        let PointerValue::Session(current) = pointer.read().unwrap() else { panic!("{context}: no pointer") };
        let operations = store.list().unwrap().operations;
        let activated = operations.iter().find(|op| op.status() == Status::Activated);
        assert_eq!(current == self.old, activated.is_none(), "{context}");
        let history = pointer.history().unwrap();
        assert_eq!(history.len(), usize::from(activated.is_some()), "{context}");
        let mut expected = vec![self.source()];
        if let Some(activated) = activated {
            assert_eq!(history[0].operation, Some(activated.id));
            let placed = transcript_path(&self.project, activated.state().candidate().unwrap().session);
            assert_eq!(fs::read_to_string(&placed).unwrap(), CANDIDATE, "{context}");
            expected.push(placed);
        }
        expected.sort();
        let mut found: Vec<_> =
            fs::read_dir(&self.project).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        assert_eq!(found, expected, "{context}");
        for entry in fs::read_dir(&self.state).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with('.'), "{context}: {name} is left");
        }
    }
}

#[test]
fn an_operation_survives_a_stop_at_every_step() {
    let walked = every_stop(|plan| {
        let world = World::new();
        let (disk, twin) = Disk::faulty(plan);
        let result = world.run(&disk);
        // Recovery is stopped as well, at its first steps, before it may complete.
        for step in [1, 4] {
            let fault = Fault::Stop(When::After, Lose::Nothing);
            drop(world.recover(&Disk::faulty(FaultPlan { at: step, fault }).0));
        }
        world.recover(&Disk::real()).unwrap();
        let context = format!("{plan:?} {result:?}");
        let store = OpStore::open(&world.state, Disk::real()).unwrap();
        if result.is_ok() {
            assert_eq!(store.latest().unwrap().unwrap().status(), Status::Activated);
        }
        world.assert_agreement(&context);
        // Nothing is stuck: what is still active can be brought to its end.
        if let Some(mut operation) = store.active().unwrap() {
            let guard = store.lock().unwrap();
            if operation.status() == Status::Pending {
                guard.advance(&mut operation, &OpEvent::Scheduled, at(200)).unwrap();
            }
            world.carry_out(&guard, &mut operation).unwrap_or_else(|e| panic!("{context}: {e}"));
            drop(guard);
            world.assert_agreement(&context);
        }
        assert!(store.active().unwrap().is_none(), "{context}");
        twin.struck()
    });
    assert!(walked > 9 * 50, "{walked}");
}

#[test]
fn a_recovery_that_stops_at_any_step_is_done_again() {
    let mut walked = 0;
    for first in (0..).step_by(2) {
        let stop = |at| FaultPlan { at, fault: Fault::Stop(When::After, Lose::Nothing) };
        let mut struck = true;
        for second in 0.. {
            let world = World::new();
            let (disk, twin) = Disk::faulty(stop(first));
            drop(world.run(&disk));
            struck = twin.struck();
            let (disk, twin) = Disk::faulty(stop(second));
            drop(world.recover(&disk));
            world.recover(&Disk::real()).unwrap();
            world.assert_agreement(&format!("{first} {second}"));
            walked += 1;
            if !twin.struck() {
                break;
            }
        }
        if !struck {
            break;
        }
    }
    assert!(walked > 100, "{walked}");
}

#[test]
fn a_full_disk_at_any_step_switches_nothing_by_half() {
    for step in 0.. {
        let world = World::new();
        let (disk, twin) = Disk::faulty(FaultPlan { at: step, fault: Fault::NoSpace });
        let result = world.run(&disk);
        twin.make_room();
        world.recover(&disk).unwrap();
        world.assert_agreement(&format!("{step} {result:?}"));
        if !twin.struck() {
            break;
        }
    }
}

#[test]
fn a_foreign_pointer_during_the_switch_fails_with_a_session_conflict() {
    let world = World::new();
    let disk = Disk::real();
    let store = OpStore::open(&world.state, disk.clone()).unwrap();
    let foreign = SessionId::generate();
    // Ends right after the intent was recorded; then somebody writes the pointer.
    let steps = {
        let other = World::new();
        let (disk, twin) = Disk::faulty(FaultPlan::NONE);
        other.run(&disk).unwrap();
        twin.steps()
    };
    let mut conflicts = 0;
    for step in 0..steps {
        let world = World::new();
        let fault = Fault::Stop(When::Before, Lose::Nothing);
        drop(world.run(&Disk::faulty(FaultPlan { at: step, fault }).0));
        fs::write(&world.pointer, foreign.to_string()).unwrap();
        world.recover(&Disk::real()).unwrap();
        let pointer = Pointer::new(&world.pointer, Disk::real());
        assert_eq!(pointer.read().unwrap(), PointerValue::Session(foreign), "{step}");
        let store = OpStore::open(&world.state, Disk::real()).unwrap();
        if store.session_conflict().unwrap().is_some() {
            conflicts += 1;
        }
        assert_eq!(
            fs::read_dir(&world.project).unwrap().count(),
            1 + usize::from(store.newest_activated().unwrap().is_some())
        );
    }
    assert!(conflicts > 3, "{conflicts}");
    drop((world, store));
}

#[test]
fn only_the_newest_activated_operation_is_rolled_back_and_a_crash_in_it_is_recovered() {
    let fault = Fault::Stop(When::Before, Lose::Everything);
    for step in 0.. {
        let world = World::new();
        let mut first = world.run(&Disk::real()).unwrap();
        let (disk, twin) = Disk::faulty(FaultPlan { at: step, fault });
        let back = |disk: &Disk, operation: &mut Operation| -> Result<(), Box<dyn std::error::Error>> {
            let guard = OpStore::open(&world.state, disk.clone())?.lock()?;
            if operation.status() == Status::Activated {
                *operation = guard.request_rollback(operation.id, "I liked it better", None, at(10))?;
            }
            if operation.status() == Status::RollbackPending {
                guard.advance(operation, &OpEvent::Scheduled, at(11))?;
            }
            let OpState::RollbackScheduled { activation, .. } = operation.state().clone() else {
                return Err("not scheduled".into());
            };
            let mut adapter = PointerSwitch::locked(&Pointer::new(&world.pointer, disk.clone()), disk)?;
            let after = adapter.switch(activation.after, world.old, &mut |intent| {
                guard.advance(operation, &OpEvent::ChecksHeld { intent: intent.cloned() }, at(12))?;
                Ok(())
            })?;
            guard.advance(operation, &OpEvent::OldSessionResumed { after, reason: None }, at(13))?;
            let OpState::RolledBack { back, .. } = operation.state() else { unreachable!() };
            adapter.settle(back.as_ref(), &operation.requested_by, operation.id, at(13))?;
            Ok(())
        };
        let done = back(&disk, &mut first);
        world.recover(&Disk::real()).unwrap();
        let store = OpStore::open(&world.state, Disk::real()).unwrap();
        let mut operation = store.load(first.id).unwrap();
        if operation.status() != Status::RolledBack {
            assert!(done.is_err());
            back(&Disk::real(), &mut operation).unwrap_or_else(|e| panic!("{step}: {e}"));
        }
        let pointer = Pointer::new(&world.pointer, Disk::real());
        assert_eq!(pointer.read().unwrap(), PointerValue::Session(world.old), "{step}");
        assert_eq!(pointer.history().unwrap().len(), 2, "{step}");
        assert!(store.active().unwrap().is_none());
        // What was current once is not removed.
        assert!(transcript_path(&world.project, operation.state().candidate().unwrap().session).exists());
        if !twin.struck() {
            assert!(step > 10);
            break;
        }
    }
}

#[test]
fn a_rollback_names_the_newest_and_can_be_taken_back() {
    let world = World::new();
    let first = world.run(&Disk::real()).unwrap();
    let store = OpStore::open(&world.state, Disk::real()).unwrap();
    let guard = store.lock().unwrap();
    let mut second = request(&guard, "again");
    for event in [
        OpEvent::Scheduled,
        OpEvent::Started,
        OpEvent::Proved { candidate: candidate(), credential: pointer_at(1) },
        OpEvent::ChecksHeld { intent: None },
        OpEvent::Switched { after: pointer_at(2) },
    ] {
        guard.advance(&mut second, &event, at(50)).unwrap();
    }
    let error = guard.request_rollback(first.id, "no", None, at(60)).unwrap_err();
    assert!(error.to_string().contains(&format!("that is {}", second.id)), "{error}");
    let asked = guard.request_rollback(second.id, "yes", None, at(60)).unwrap();
    assert_eq!(asked.status(), Status::RollbackPending);
    assert_eq!(
        (asked.waits_since(), asked.yes()),
        (at(60), None),
        "the yes to the rebuild is none to the rollback"
    );
    assert_eq!(asked.rollback_verdict(at(60)), ConsentVerdict::Missing);
    let hour = Duration::from_secs(3600);
    let agreed = guard.agree(second.id, Consent::without_plan("ada", at(60), hour), at(60)).unwrap();
    assert!(matches!(agreed.rollback_verdict(at(61)), ConsentVerdict::Given { .. }));
    assert!(matches!(agreed.rollback_verdict(at(3660)), ConsentVerdict::Expired { .. }));
    assert!(matches!(guard.request(wish("x"), at(61)), Err(StoreError::Active { .. })));
    assert_eq!(guard.cancel(second.id, at(62)).unwrap().status(), Status::Activated);
    assert!(matches!(guard.cancel(second.id, at(63)), Err(StoreError::Illegal(_))));
    let again = guard.request_rollback(second.id, "once more", None, at(64)).unwrap();
    assert_eq!(again.yes(), None, "an earlier yes was to an earlier wish");
    guard.cancel(second.id, at(65)).unwrap();
    let late = guard.agree(second.id, Consent::without_plan("ada", at(66), hour), at(66)).unwrap_err();
    assert!(matches!(late, StoreError::NotPending { .. }));
}

#[test]
fn a_candidate_that_somebody_wrote_to_is_left_alone() {
    let world = World::new();
    let disk = Disk::real();
    let path = world.state.join("candidate.jsonl");
    fs::write(&path, CANDIDATE).unwrap();
    let found = crate::disk::digest(&path).unwrap();
    let candidate = Candidate { session: SessionId::generate(), path, sha256: found.sha256, len: found.len };
    let placed = place_candidate(&disk, &candidate, &world.project).unwrap();
    append(&placed, "{\"new\":\"words\"}\n");
    assert!(!withdraw_candidate(&disk, &candidate, &world.project).unwrap());
    assert!(placed.exists());
    assert_eq!(fs::read_to_string(&candidate.path).unwrap(), CANDIDATE, "the proved bytes stay as they were");
}

fn append(path: &Path, text: &str) {
    use std::io::Write as _;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}
