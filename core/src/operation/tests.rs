//! The table of states and events, the file form, the store's rules, and crashes at every step.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::clock::Timestamp;
use crate::disk::{Disk, Fault, FaultPlan, Lose, When, every_stop};
use crate::ids::{OperationId, SessionId};
use crate::pointer::{Pointer, PointerValue, SwapIntent};
use crate::switch::{
    Adapter, Credential, FrozenSource, NewerTranscripts, PointerSwitch, SwitchCheck, place_candidate,
    preconditions, transcript_path, withdraw_candidate,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_780_000_000_000 + seconds * 1000)
}

fn session(n: u8) -> SessionId {
    format!("00000000-0000-4000-8000-0000000000{n:02x}").parse().unwrap()
}

fn intent() -> SwapIntent {
    SwapIntent { expected: Some(session(1)), new: session(2), temp_name: ".resume_session.x.swap".to_owned() }
}

fn candidate() -> Candidate {
    Candidate {
        session: session(2),
        path: "/state/artifacts/x/y.jsonl".into(),
        sha256: "ab".repeat(32),
        len: 9,
    }
}

fn pointer_at(n: u8) -> Credential {
    Credential::Pointer { session: Some(session(n)) }
}

fn activation() -> Activation {
    Activation { candidate: candidate(), before: pointer_at(1), after: pointer_at(2), intent: Some(intent()) }
}

/// One of every state.
fn states() -> Vec<OpState> {
    let (candidate, credential) = (candidate(), pointer_at(1));
    let states = vec![
        OpState::Pending,
        OpState::Scheduled,
        OpState::Running,
        OpState::Verifying { candidate: candidate.clone(), credential },
        OpState::Activating { candidate: candidate.clone(), credential, intent: Some(intent()) },
        OpState::Activated(activation()),
        OpState::RollbackPending(activation()),
        OpState::RollbackScheduled { activation: activation(), back: Some(intent()) },
        OpState::RolledBack {
            candidate: candidate.clone(),
            was_activated: true,
            after: credential,
            back: Some(intent()),
            reason: None,
        },
        OpState::Failed {
            at: Status::Verifying,
            reason: "the source changed".into(),
            session_conflict: true,
            candidate: Some(candidate),
        },
        OpState::Cancelled,
    ];
    assert_eq!(states.iter().map(OpState::status).collect::<Vec<_>>(), Status::ALL);
    states
}

/// One of every event.
fn events() -> Vec<OpEvent> {
    let events = vec![
        OpEvent::Scheduled,
        OpEvent::Cancelled,
        OpEvent::Started,
        OpEvent::StartFailed,
        OpEvent::Proved { candidate: candidate(), credential: pointer_at(1) },
        OpEvent::Redone,
        OpEvent::ChecksHeld { intent: Some(intent()) },
        OpEvent::Switched { after: pointer_at(2) },
        OpEvent::OldSessionResumed { after: pointer_at(1), reason: None },
        OpEvent::Failed { reason: "no".into(), session_conflict: false },
        OpEvent::RollbackRequested,
    ];
    let names: HashSet<_> = events.iter().map(OpEvent::name).collect();
    assert_eq!(names.len(), 11);
    events
}

#[test]
fn the_whole_table() {
    let mut table = String::new();
    for state in states() {
        for event in events() {
            let to = state.apply(&event).map_or("-".to_owned(), |to| to.status().to_string());
            table.push_str(&format!("{:18} {:20} {to}\n", state.status(), event.name()));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_illegal_event_says_so_and_changes_nothing() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let mut operation = request(&guard, "first");
    let before = operation.clone();
    let error = guard.advance(&mut operation, &OpEvent::Started, at(1)).unwrap_err();
    insta::assert_snapshot!(error, @"an operation that is pending cannot become started; nothing was changed");
    assert_eq!(operation, before);
    assert_eq!(store.load(operation.id).unwrap(), before);
}

fn store() -> (tempfile::TempDir, OpStore) {
    let keep = tempfile::tempdir().unwrap();
    let store = OpStore::open(&keep.path().join("state"), Disk::real()).unwrap();
    (keep, store)
}

fn wish(reason: &str) -> NewOperation {
    NewOperation {
        kind: Kind::Rebuild,
        reason: reason.into(),
        requested_by: "ada at the terminal".to_owned(),
        by_policy: false,
    }
}

fn request(guard: &StoreGuard, reason: &str) -> Operation {
    guard.request(wish(reason), at(0)).unwrap().into_operation()
}

#[test]
fn every_state_is_read_as_it_was_written() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    for state in states() {
        let mut operation = Operation::new(Kind::Repair, "重建 🦭 بناء".into(), "ada", at(0));
        operation.state = state;
        operation.consent = Some(Consent::new("cd", "ada", at(0), Duration::from_secs(60)));
        operation.source = Some(FrozenSource {
            session: session(1),
            path: "/p/a.jsonl".into(),
            copy: "/s/a.jsonl".into(),
            sha256: "00".into(),
            len: 7,
            inode: 8,
            mtime_ns: 1_780_000_000_123_456_789,
            frozen_at: at(3),
        });
        operation.manifest = Some(json!([{"position": 0, "role": "user"}]));
        operation.inbound_confirmed.insert("telegram".to_owned(), at(4));
        operation.extra.insert("field_of_tomorrow".to_owned(), json!({"kept": true}));
        guard.save(&mut operation).unwrap();
        assert_eq!(store.load(operation.id).unwrap(), operation);
        let path = store.path(operation.id);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["status"], json!(operation.status().as_str()));
    }
}

#[test]
fn the_file_has_the_names_that_scripts_know() {
    let mut operation = Operation::new(Kind::Rebuild, "dirty".into(), "policy", at(0));
    operation.id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    for (n, event) in [
        OpEvent::Scheduled,
        OpEvent::Started,
        OpEvent::Proved { candidate: candidate(), credential: Credential::Tmux { pane_pid: 4242 } },
        OpEvent::ChecksHeld { intent: None },
        OpEvent::Switched { after: Credential::Tmux { pane_pid: 4243 } },
    ]
    .iter()
    .enumerate()
    {
        operation.apply(event, at(i64::try_from(n).unwrap())).unwrap();
    }
    operation.dirty_at_prepare = Some(json!({"total_bytes": 600_000}));
    operation.verification = Some(json!({"ok": true}));
    let text = String::from_utf8(file::to_json(&operation).unwrap()).unwrap();
    insta::assert_snapshot!(text);
}

#[test]
fn files_of_the_original_are_read() {
    let (_keep, store) = store();
    let id: OperationId = "06e2ceb9-657e-4f88-b7cd-4cfe0aae2f2f".parse().unwrap();
    let text = json!({
        "operation_id": id, "status": "activated", "reasons": ["manual request"],
        "requested_at": "2026-08-14T16:39:02.123456Z", "created_at": "2026-08-14T16:39:02.123456Z",
        "updated_at": "2026-08-14T16:39:12Z", "source_session_id": session(1), "source_path": "/p/a.jsonl",
        "source_mtime": 1.5, "new_session_id": session(2), "candidate_path": "/p/b.jsonl", "candidate_sha256": "ab",
        "cas_pane_pid": "2999165", "cas_pane_pid_after": "3002492", "tmux_command": "tmux respawn-pane",
    });
    fs::write(store.path(id), text.to_string()).unwrap();
    let operation = store.load(id).unwrap();
    let OpState::Activated(activation) = operation.state() else { panic!("{:?}", operation.state()) };
    assert_eq!(activation.after, Credential::Tmux { pane_pid: 3_002_492 });
    assert_eq!(operation.extra["tmux_command"], json!("tmux respawn-pane"));
    assert_eq!(operation.source, None, "a source without length and inode was not frozen by us");
}

#[test]
fn a_second_request_joins_the_pending_one() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let first = request(&guard, "dirty");
    let joined = guard.request(wish("an image was opened"), at(1)).unwrap();
    let Requested::Joined(joined) = joined else { panic!("{joined:?}") };
    assert_eq!(joined.id, first.id);
    guard.request(wish("dirty"), at(2)).unwrap();
    let mut operation = store.load(first.id).unwrap();
    assert_eq!(operation.reasons, ["dirty".into(), "an image was opened".into()]);
    let repair = NewOperation { kind: Kind::Repair, ..wish("broken") };
    assert!(matches!(guard.request(repair, at(2)), Err(StoreError::Active { .. })));
    guard.advance(&mut operation, &OpEvent::Scheduled, at(3)).unwrap();
    let error = guard.request(wish("again"), at(4)).unwrap_err().to_string();
    assert!(error.contains("is scheduled; only one operation"), "{error}");
    assert_eq!(store.list().unwrap().operations.len(), 1);
}

#[test]
fn reasons_are_cut_to_500_characters() {
    let (_keep, store) = store();
    let operation = request(&store.lock().unwrap(), &format!("  {}  ", "字🦭".repeat(900)));
    assert_eq!(operation.reasons[0].as_str().chars().count(), 500);
    let path = store.path(operation.id);
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    value["reasons"] = json!(["x".repeat(900)]);
    fs::write(&path, value.to_string()).unwrap();
    assert_eq!(store.load(operation.id).unwrap().reasons[0].as_str().len(), 500);
}

#[test]
fn unreadable_files_are_reported_and_left_alone() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let good = request(&guard, "good");
    let folder = store.path(good.id).parent().unwrap().to_owned();
    let spoil = |text: &str| {
        let path = folder.join(format!("{}.json", OperationId::generate()));
        fs::write(&path, text).unwrap();
        path
    };
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let mut bad = vec![
        spoil("{"),
        spoil(""),
        spoil("[]"),
        spoil("\u{0}\u{0}"),
        spoil(&json!({"operation_id": id, "status": "pending"}).to_string()),
    ];
    let named = |status: &str| {
        let id = OperationId::generate();
        let path = folder.join(format!("{id}.json"));
        fs::write(&path, json!({"schema": 1, "operation_id": id, "status": status}).to_string()).unwrap();
        path
    };
    bad.extend([named("activating"), named("activated"), named("dreaming")]);
    let directory = folder.join(format!("{}.json", OperationId::generate()));
    fs::create_dir(&directory).unwrap();
    let link = folder.join(format!("{}.json", OperationId::generate()));
    std::os::unix::fs::symlink(store.path(good.id), &link).unwrap();
    bad.extend([directory, link]);
    fs::write(folder.join("notes.txt"), "not ours").unwrap();
    let before: Vec<_> = bad.iter().map(|path| fs::read(path).ok()).collect();

    let listing = store.list().unwrap();
    assert_eq!(listing.operations.iter().map(|op| op.id).collect::<Vec<_>>(), [good.id]);
    let mut reported: Vec<_> = listing.unreadable.iter().map(|u| u.path.clone()).collect();
    reported.sort();
    bad.sort();
    assert_eq!(reported, bad);
    for unreadable in &listing.unreadable {
        let text = unreadable.error.to_string();
        assert!(text.contains("left as it is"), "{text}");
    }
    // They stand in nobody's way.
    guard.cancel(good.id, at(1)).unwrap();
    request(&guard, "next");
    assert_eq!(before.len(), bad.len());
    assert!(bad.iter().all(|path| fs::symlink_metadata(path).is_ok()));
}

#[test]
fn a_newer_version_s_file_is_neither_read_nor_written() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let mut operation = request(&guard, "old");
    let path = store.path(operation.id);
    let text = json!({"schema": 2, "operation_id": operation.id, "status": "hibernating"}).to_string();
    fs::write(&path, &text).unwrap();
    assert!(matches!(store.load(operation.id), Err(StoreError::Newer { format: 2, .. })));
    assert!(matches!(guard.save(&mut operation), Err(StoreError::Newer { .. })));
    assert!(matches!(guard.request(wish("x"), at(1)), Err(StoreError::Newer { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_stale_copy_is_not_saved_over_a_newer_one() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let mut mine = request(&guard, "x");
    let mut yours = store.load(mine.id).unwrap();
    guard.advance(&mut yours, &OpEvent::Cancelled, at(1)).unwrap();
    let error = guard.advance(&mut mine, &OpEvent::Scheduled, at(2)).unwrap_err();
    assert!(matches!(error, StoreError::Stale { .. }));
    assert_eq!(store.load(mine.id).unwrap().status(), Status::Cancelled);
}

#[test]
fn the_lock_names_its_holder() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let error = store.lock_within(Duration::from_millis(30)).unwrap_err().to_string();
    assert!(error.contains(&format!("held by {}", std::process::id())), "{error}");
    drop(guard);
    store.lock_within(Duration::from_millis(30)).unwrap();
}

#[test]
fn after_a_session_conflict_no_policy_tries_again_until_cleared() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let mut operation = request(&guard, "x");
    let conflict = OpEvent::Failed { reason: "somebody".into(), session_conflict: true };
    for event in [OpEvent::Scheduled, OpEvent::Started, conflict] {
        guard.advance(&mut operation, &event, at(1)).unwrap();
    }
    assert_eq!(store.session_conflict().unwrap(), Some(operation.id));
    let policy = NewOperation { by_policy: true, ..wish("due") };
    let error = guard.request(policy.clone(), at(2)).unwrap_err().to_string();
    assert!(error.contains("find out who changed the session, do not retry"), "{error}");
    // A human may ask, and clears it.
    let asked = request(&guard, "I know");
    guard.cancel(asked.id, at(3)).unwrap();
    guard.clear_conflict(operation.id, "ada", at(4)).unwrap();
    assert!(matches!(guard.clear_conflict(operation.id, "ada", at(5)), Err(StoreError::NoConflict { .. })));
    assert_eq!(store.session_conflict().unwrap(), None);
    guard.request(policy, at(6)).unwrap();
}

#[test]
fn a_yes_is_bound_to_its_plan_and_its_time() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    let operation = request(&guard, "x");
    assert_eq!(operation.consent_for("plan", at(0)), ConsentVerdict::Missing);
    guard.confirm(operation.id, "plan", "ada", at(0), Duration::from_secs(60)).unwrap();
    let mut operation = store.load(operation.id).unwrap();
    assert_eq!(operation.consent_for("plan", at(59)), ConsentVerdict::Given { by: "ada".to_owned() });
    assert_eq!(operation.consent_for("plan", at(60)), ConsentVerdict::Expired { since: at(60) });
    assert_eq!(operation.consent_for("another", at(1)), ConsentVerdict::OtherPlan);
    operation.kind = Kind::Repair;
    assert!(matches!(operation.consent_for("another", at(1)), ConsentVerdict::Given { .. }));
}

#[test]
fn a_read_only_folder_is_an_error_that_names_it() {
    // The super-user may write anywhere: a file where the folder should be does the same.
    let keep = tempfile::tempdir().unwrap();
    let path = keep.path().join("state");
    fs::write(&path, "in the way").unwrap();
    let error = OpStore::open(&path, Disk::real()).unwrap_err().to_string();
    assert!(error.contains("state"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "in the way");
    if !rustix::process::geteuid().is_root() {
        let folder = keep.path().join("closed");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
        assert!(OpStore::open(&folder.join("state"), Disk::real()).is_err());
    }
}

#[test]
fn a_save_survives_a_stop_at_every_step() {
    let walked = every_stop(|plan| {
        let keep = tempfile::tempdir().unwrap();
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
        let keep = tempfile::tempdir().unwrap();
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
        if operation.status() != Status::Running {
            guard.advance(operation, &OpEvent::Started, at(2))?;
            guard.make_artifacts_dir(operation.id)?;
            let copy = guard.artifact(operation.id, self.old);
            let now = crate::clock::Clock::now(&crate::clock::SystemClock);
            operation.source = Some(FrozenSource::freeze(&disk, self.old, &self.source(), &copy, now)?);
            guard.save(operation)?;
        }
        let source = operation.source.clone().unwrap();
        let new = SessionId::generate();
        let path = guard.artifact(operation.id, new);
        disk.create_new(&path, CANDIDATE.as_bytes())?;
        let proved = crate::disk::digest(&path)?;
        let candidate = Candidate { session: new, path, sha256: proved.sha256, len: proved.len };
        let mut adapter = PointerSwitch::locked(&pointer, &disk)?;
        let credential = adapter.credential()?;
        let event = OpEvent::Proved { candidate: candidate.clone(), credential };
        guard.advance(operation, &event, at(3))?;
        preconditions(
            &SwitchCheck {
                source: &source,
                candidate: &candidate,
                credential,
                project_dir: &self.project,
                allowed_newer: &HashSet::new(),
                newer: NewerTranscripts::Conflict,
                live: &|_| None,
            },
            &adapter,
        )?;
        let after = adapter.switch(credential, new, &mut |intent| {
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
                *operation = guard.request_rollback(operation.id, "I liked it better", at(10))?;
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
    let error = guard.request_rollback(first.id, "no", at(60)).unwrap_err();
    assert!(error.to_string().contains(&format!("that is {}", second.id)), "{error}");
    let asked = guard.request_rollback(second.id, "yes", at(60)).unwrap();
    assert_eq!(asked.status(), Status::RollbackPending);
    assert!(matches!(guard.request(wish("x"), at(61)), Err(StoreError::Active { .. })));
    assert_eq!(guard.cancel(second.id, at(62)).unwrap().status(), Status::Activated);
    assert!(matches!(guard.cancel(second.id, at(63)), Err(StoreError::Illegal(_))));
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
