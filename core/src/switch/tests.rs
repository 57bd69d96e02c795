//! What stops a switch, what is only told, and what the look after it finds.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, Fault, FaultPlan, digest, every_stop, scratch};
use crate::ids::{OperationId, SessionId};
use crate::operation::Candidate;
use crate::pointer::Pointer;

struct World {
    keep: tempfile::TempDir,
    project: PathBuf,
    pointer: Pointer,
    source: FrozenSource,
    candidate: Candidate,
    allowed: HashSet<SessionId>,
    newer: NewerTranscripts,
}

impl World {
    fn new() -> Self {
        let keep = scratch();
        let project = keep.path().join("project");
        fs::create_dir(&project).unwrap();
        let (old, new) = (SessionId::generate(), SessionId::generate());
        let live = transcript_path(&project, old);
        fs::write(&live, "{\"words\":\"مرحبا\"}\n".repeat(9)).unwrap();
        let pointer_path = keep.path().join("resume_session");
        fs::write(&pointer_path, format!("{old}\n")).unwrap();
        let copy = keep.path().join("copy.jsonl");
        let source = FrozenSource::freeze(&Disk::real(), old, &live, &copy, SystemClock.now()).unwrap();
        let path = keep.path().join("candidate.jsonl");
        fs::write(&path, "{\"words\":\"مرحبا\"}\n").unwrap();
        let found = digest(&path).unwrap();
        let candidate = Candidate { session: new, path, sha256: found.sha256, len: found.len };
        let pointer = Pointer::new(pointer_path, Disk::real());
        Self {
            keep,
            project,
            pointer,
            source,
            candidate,
            allowed: HashSet::new(),
            newer: NewerTranscripts::Conflict,
        }
    }

    fn check(&self, live: &dyn LiveProcesses) -> Result<Vec<Warning>, PreconditionFailure> {
        let adapter = PointerSwitch::locked(&self.pointer, &Disk::real()).unwrap();
        preconditions(
            &SwitchCheck {
                source: &self.source,
                candidate: &self.candidate,
                credential: Credential::Pointer { session: Some(self.source.session) },
                project_dir: &self.project,
                allowed_newer: &self.allowed,
                newer: self.newer,
                live,
                writer_lives: false,
            },
            &adapter,
        )
    }

    fn refused(&self) -> PreconditionFailure {
        self.check(&|_| None).unwrap_err()
    }

    /// A transcript of another conversation, written well after the freeze.
    fn other_conversation(&self) -> (SessionId, PathBuf) {
        let id = SessionId::generate();
        let path = transcript_path(&self.project, id);
        fs::write(&path, "{}\n").unwrap();
        touch(&path, Duration::from_secs(5));
        (id, path)
    }
}

fn touch(path: &Path, later: Duration) {
    let file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + later).unwrap();
}

fn append(path: &Path, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn when_everything_holds_there_is_nothing_to_say() {
    assert_eq!(World::new().check(&|_| None).unwrap(), []);
}

#[test]
fn every_change_of_the_source_is_seen() {
    let text = |change: &dyn Fn(&FrozenSource)| {
        let world = World::new();
        change(&world.source);
        let failure = world.refused();
        assert!(!failure.session_conflict(), "{failure}");
        let text = failure.to_string();
        text.rsplit_once(": ").unwrap().1.to_owned()
    };
    insta::assert_snapshot!(text(&|s| append(&s.path, "{}\n")), @"3 bytes were appended");
    insta::assert_snapshot!(text(&|s| fs::remove_file(&s.path).unwrap()), @"it is not there any more");
    let cut = text(&|s| fs::OpenOptions::new().write(true).open(&s.path).unwrap().set_len(5).unwrap());
    assert!(cut.starts_with("it was cut from"), "{cut}");
    insta::assert_snapshot!(text(&|s| touch(&s.path, Duration::from_secs(1))), @"it was written to since it was frozen");
    let replaced = text(&|s| {
        let other = s.path.with_extension("new");
        fs::copy(&s.path, &other).unwrap();
        fs::rename(&other, &s.path).unwrap();
    });
    assert!(replaced.starts_with("it is another file now"), "{replaced}");
    let same_time = text(&|s| {
        // Same length, same inode, same time, other content: only the digest tells.
        let time = fs::metadata(&s.path).unwrap().modified().unwrap();
        let mut content = fs::read(&s.path).unwrap();
        content[3] ^= 1;
        fs::write(&s.path, content).unwrap();
        fs::OpenOptions::new().append(true).open(&s.path).unwrap().set_modified(time).unwrap();
    });
    assert_eq!(same_time, "its content differs from the frozen copy");
    insta::assert_snapshot!(text(&|s| {
        fs::remove_file(&s.path).unwrap();
        fs::create_dir(&s.path).unwrap();
    }), @"it is a folder now");
}

#[test]
fn a_changed_candidate_is_refused() {
    let world = World::new();
    append(&world.candidate.path, " ");
    assert!(matches!(world.refused(), PreconditionFailure::Candidate { .. }));
    fs::remove_file(&world.candidate.path).unwrap();
    assert!(matches!(world.refused(), PreconditionFailure::Candidate { .. }));
}

#[test]
fn another_credential_is_a_session_conflict() {
    for content in ["01890a5d-ac96-774b-bcce-b302099a8057", "rubbish"] {
        let world = World::new();
        fs::write(world.pointer.path(), content).unwrap();
        let failure = world.refused();
        assert!(failure.session_conflict());
        let text = failure.to_string();
        assert!(text.contains(content) && text.contains("do not retry"), "{text}");
    }
}

#[test]
fn another_conversation_is_a_conflict_or_a_warning_and_our_own_are_neither() {
    let mut world = World::new();
    let (other, path) = world.other_conversation();
    assert!(world.refused().session_conflict());
    world.newer = NewerTranscripts::Warn;
    assert_eq!(world.check(&|_| None).unwrap(), [Warning::NewerTranscript { path }]);
    world.newer = NewerTranscripts::Conflict;
    world.allowed.insert(other);
    world.check(&|_| None).unwrap();
    // Neither older ones, nor other files, nor folders count.
    let older = transcript_path(&world.project, SessionId::generate());
    fs::write(&older, "{}\n").unwrap();
    fs::OpenOptions::new()
        .append(true)
        .open(&older)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(60))
        .unwrap();
    fs::write(world.project.join("notes.txt"), "").unwrap();
    fs::create_dir(world.project.join("folder.jsonl")).unwrap();
    touch(&world.project.join("notes.txt"), Duration::from_secs(5));
    world.check(&|_| None).unwrap();
    // A transcript with a name that is no session id is one all the same.
    let odd = world.project.join("agent-7.jsonl");
    fs::write(&odd, "{}\n").unwrap();
    touch(&odd, Duration::from_secs(5));
    assert!(matches!(world.refused(), PreconditionFailure::Newer { paths } if paths == [odd]));
}

#[test]
fn a_live_process_on_the_session_is_named() {
    let world = World::new();
    let session = world.source.session;
    let failure = world.check(&|id| (id == session).then(|| "process 4711 (claude)".to_owned())).unwrap_err();
    assert!(failure.session_conflict());
    assert!(failure.to_string().contains("process 4711 (claude) holds session"), "{failure}");
}

#[test]
fn growth_during_the_switch_is_seen_and_can_be_undone_while_nothing_ran() {
    let world = World::new();
    let placed = place_candidate(&Disk::real(), &world.candidate, &world.project).unwrap();
    let look = || after_switch(&world.source, &world.candidate, &placed, false).unwrap();
    assert_eq!(look(), AfterSwitch::Clean);
    append(&world.source.path, "{}\n");
    let AfterSwitch::SourceChanged { change, can_undo: true } = look() else { panic!() };
    assert_eq!(change, "3 bytes were appended");
    append(&placed, "{}\n");
    assert!(matches!(look(), AfterSwitch::SourceChanged { can_undo: false, .. }));
}

#[test]
fn a_source_that_moves_while_it_is_copied_is_not_frozen() {
    struct Appends(PathBuf);
    impl crate::disk::Gate for Appends {
        fn around(
            &self,
            step: &crate::disk::Step<'_>,
            act: &mut dyn FnMut() -> std::io::Result<()>,
        ) -> std::io::Result<()> {
            if step.kind == crate::disk::StepKind::SyncFile {
                append(&self.0, "late words\n");
            }
            act()
        }
    }
    let keep = tempfile::tempdir().unwrap();
    let live = keep.path().join("a.jsonl");
    fs::write(&live, "words\n").unwrap();
    let disk = Disk::with_gate(Box::new(Appends(live.clone())));
    let copy = keep.path().join("copy");
    let error =
        FrozenSource::freeze(&disk, SessionId::generate(), &live, &copy, SystemClock.now()).unwrap_err();
    assert!(matches!(error, SwitchError::SourceMoved { .. }), "{error}");
    assert!(!copy.exists());
}

#[test]
fn placing_overwrites_nothing_and_refuses_what_was_not_proved() {
    let world = World::new();
    let target = transcript_path(&world.project, world.candidate.session);
    fs::write(&target, "somebody's").unwrap();
    let error = place_candidate(&Disk::real(), &world.candidate, &world.project).unwrap_err();
    assert!(matches!(&error, SwitchError::Disk(disk) if disk.is_exists()), "{error}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "somebody's");
    assert!(!withdraw_candidate(&Disk::real(), &world.candidate, &world.project).unwrap());
    fs::remove_file(&target).unwrap();
    append(&world.candidate.path, "x");
    let error = place_candidate(&Disk::real(), &world.candidate, &world.project).unwrap_err();
    assert!(matches!(error, SwitchError::CandidateDiffers { .. }));
    assert_eq!(fs::read_dir(&world.project).unwrap().count(), 1, "only the source is there");
}

#[test]
fn a_placing_that_stops_anywhere_leaves_all_or_nothing() {
    every_stop(|plan| {
        let world = World::new();
        let (disk, twin) = Disk::faulty(plan);
        let result = place_candidate(&disk, &world.candidate, &world.project);
        let target = transcript_path(&world.project, world.candidate.session);
        match fs::read(&target) {
            Ok(content) => assert_eq!(content, fs::read(&world.candidate.path).unwrap(), "{plan:?}"),
            Err(_) => assert!(result.is_err(), "{plan:?}"),
        }
        assert!(withdraw_candidate(&Disk::real(), &world.candidate, &world.project).unwrap());
        assert_eq!(fs::read_dir(&world.project).unwrap().count(), 1, "{plan:?}");
        twin.struck()
    });
}

#[test]
fn the_pointer_adapter_refuses_other_credentials_and_says_what_the_disk_cannot() {
    let world = World::new();
    let (disk, _) = Disk::faulty(FaultPlan { at: 6, fault: Fault::Unsupported });
    let mut adapter = PointerSwitch::locked(&world.pointer, &disk).unwrap();
    let told = adapter.probe().unwrap();
    assert!(told[0].contains("cannot exchange two names"), "{told:?}");
    assert_eq!(adapter.probe().unwrap(), Vec::<String>::new());
    let error = adapter
        .switch(Credential::Tmux { pane_pid: 1, claude: None }, world.candidate.session, &mut |_| Ok(()))
        .unwrap_err();
    assert!(matches!(error, SwitchError::OtherAdapter { .. }));
    let expected = adapter.credential().unwrap();
    let mut intent = None;
    adapter
        .switch(expected, world.candidate.session, &mut |swap| {
            intent = swap.cloned();
            Ok(())
        })
        .unwrap();
    assert!(adapter.healthy(world.candidate.session).unwrap());
    let operation = OperationId::generate();
    for _ in 0..2 {
        adapter.settle(intent.as_ref(), "ada", operation, SystemClock.now()).unwrap();
    }
    assert_eq!(world.pointer.history().unwrap().len(), 1);
    let error = adapter.switch(expected, SessionId::generate(), &mut |_| Ok(())).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    drop(world.keep);
}

#[test]
fn a_transcript_is_quiet_when_nothing_changes_for_long_enough() {
    let world = World::new();
    let path = &world.source.path;
    wait_until_quiet(path, Duration::from_millis(50), Duration::from_secs(5)).unwrap();
    let error = wait_until_quiet(path, Duration::from_secs(5), Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("stable_file_timeout_seconds"), "{error}");
}
