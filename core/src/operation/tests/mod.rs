//! The table of states and events, the file form, the store's rules, and crashes at every step.

mod crashes;
mod rules;

use std::collections::HashSet;

use super::*;
use crate::clock::Timestamp;
use crate::disk::Disk;
use crate::ids::SessionId;
use crate::pointer::SwapIntent;
use crate::switch::Credential;

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
