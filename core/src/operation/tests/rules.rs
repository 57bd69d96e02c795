//! The file form and the store's rules.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ids::OperationId;
use crate::switch::FrozenSource;

#[test]
fn every_state_is_read_as_it_was_written() {
    let (_keep, store) = store();
    let guard = store.lock().unwrap();
    for state in states() {
        let mut operation = Operation::new(Kind::Repair, "重建 🦭 بناء".into(), "ada", at(0));
        operation.state = state;
        operation.consent = Some(Consent::new("cd", "ada", at(0), Duration::from_secs(60)));
        operation.rollback_consent = Some(Consent::by_word("the model", at(0), Duration::from_secs(60)));
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
        OpEvent::Proved {
            candidate: candidate(),
            credential: Credential::Tmux { pane_pid: 4242, claude: None },
        },
        OpEvent::ChecksHeld { intent: None },
        OpEvent::Switched { after: Credential::Tmux { pane_pid: 4243, claude: None } },
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
    assert_eq!(activation.after, Credential::Tmux { pane_pid: 3_002_492, claude: None });
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
    assert_eq!(Reason::new("a\x1b[31mb\nc").as_str(), "a [31mb c");
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
    let minute = Duration::from_secs(60);
    guard.agree(operation.id, Consent::new("plan", "ada", at(0), minute), at(0)).unwrap();
    let mut operation = store.load(operation.id).unwrap();
    assert_eq!(operation.consent_for("plan", at(59)), ConsentVerdict::Given { by: "ada".to_owned() });
    assert_eq!(operation.consent_for("plan", at(60)), ConsentVerdict::Expired { since: at(60) });
    assert_eq!(operation.consent_for("another", at(1)), ConsentVerdict::OtherPlan);
    guard.advance(&mut operation, &OpEvent::Scheduled, at(2)).unwrap();
    let error = guard.agree(operation.id, Consent::new("plan", "ada", at(3), minute), at(3)).unwrap_err();
    assert!(matches!(error, StoreError::NotPending { .. }), "{error}");
    operation.consent = Some(Consent::by_word("the model", at(0), minute));
    assert!(matches!(operation.consent_for("any plan", at(59)), ConsentVerdict::Given { .. }));
    assert_eq!(operation.consent_for("any plan", at(60)), ConsentVerdict::Expired { since: at(60) });
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
fn a_store_that_is_only_read_makes_nothing() {
    let keep = tempfile::tempdir().unwrap();
    let store = OpStore::read_only(&keep.path().join("state"), Disk::real());
    assert!(store.list().unwrap().operations.is_empty());
    assert!(store.latest().unwrap().is_none());
    assert!(matches!(store.load(OperationId::generate()), Err(StoreError::NotFound { .. })));
    assert!(store.lock().is_err());
    assert_eq!(fs::read_dir(keep.path()).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn any_life_is_read_as_it_was_written(steps in proptest::collection::vec(0_usize..11, 0..40)) {
        let events = events();
        let mut operation = Operation::new(Kind::Rebuild, "x".into(), "ada", at(0));
        for step in steps {
            let before = operation.clone();
            if operation.apply(&events[step], at(1)).is_err() {
                prop_assert_eq!(&operation, &before);
            }
        }
        for (n, step) in operation.history.iter().enumerate() {
            prop_assert_eq!(step.n as usize, n + 1);
            prop_assert_eq!(step.from, n.checked_sub(1).map_or(Status::Pending, |n| operation.history[n].to));
        }
        let text = file::to_json(&operation).unwrap();
        prop_assert_eq!(file::from_json(&text).ok().unwrap(), operation);
    }

    #[test]
    fn any_bytes_are_an_operation_or_an_error(bytes: Vec<u8>, cut in 0_usize..600, at_byte in 0_usize..600) {
        drop(file::from_json(&bytes));
        let mut text = file::to_json(&Operation::new(Kind::Rebuild, "x".into(), "ada", at(0))).unwrap();
        if let Some(byte) = text.get_mut(at_byte) {
            *byte ^= 0x15;
        }
        text.truncate(cut);
        drop(file::from_json(&text));
    }
}
