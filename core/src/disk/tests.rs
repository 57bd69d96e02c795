//! The disk's promises, and the twin's: it must lose exactly what was not synced.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::*;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

/// A folder in memory where there is one, for tests that take thousands of synced steps.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every fault at every step, until the plan lies behind the last one.
pub(crate) fn every_stop(mut scenario: impl FnMut(FaultPlan) -> bool) -> u64 {
    let mut walked = 0;
    for lose in [Lose::Nothing, Lose::Data, Lose::Everything] {
        for when in [When::Before, When::Torn, When::After] {
            for at in 0.. {
                if !scenario(FaultPlan { at, fault: Fault::Stop(when, lose) }) {
                    break;
                }
                walked += 1;
            }
        }
    }
    walked
}

#[test]
fn a_symlink_is_replaced_and_its_target_left_alone() {
    let (_keep, dir) = folder();
    let (target, link) = (dir.join("target"), dir.join("link"));
    fs::write(&target, "old").unwrap();
    symlink(&target, &link).unwrap();
    Disk::real().replace(&link, "新しい".as_bytes()).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
    assert_eq!(mode(&link), 0o600);
    assert_eq!(names(&dir), ["link", "target"], "no temporary file is left");
}

#[test]
fn a_folder_in_the_way_is_named_and_kept() {
    let (_keep, dir) = folder();
    let error = Disk::real().replace(&dir, b"x").unwrap_err().to_string();
    assert!(error.contains("is a folder, not a regular file"), "{error}");
    assert!(dir.is_dir());
}

#[test]
fn nothing_is_ever_created_over_something() {
    let (_keep, dir) = folder();
    let path = dir.join("a");
    let disk = Disk::real();
    disk.create_new(&path, b"first").unwrap();
    assert!(disk.create_new(&path, b"second").unwrap_err().is_exists());
    fs::write(dir.join("b"), "b").unwrap();
    assert!(disk.link_or_copy(&dir.join("b"), &path).unwrap_err().is_exists());
    assert!(disk.copy_hashing(&dir.join("b"), &path).unwrap_err().is_exists());
    assert!(disk.rename_noreplace(&dir.join("b"), &path).unwrap_err().is_exists());
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(names(&dir), ["a", "b"]);
}

#[test]
fn a_copy_is_private_and_its_hash_is_the_content_s() {
    let (_keep, dir) = folder();
    let from = dir.join("源");
    let content = "说过的话 🦭 שלום\n".repeat(50_000);
    fs::write(&from, &content).unwrap();
    let copied = Disk::real().copy_hashing(&from, &dir.join("copy")).unwrap();
    assert_eq!(copied.len, content.len() as u64);
    assert_eq!(copied, digest(&from).unwrap());
    assert_eq!(fs::read_to_string(dir.join("copy")).unwrap(), content);
    assert_eq!(mode(&dir.join("copy")), 0o600);
    fs::write(dir.join("abc"), "abc").unwrap();
    assert_eq!(
        digest(&dir.join("abc")).unwrap().sha256,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn lines_are_appended_after_a_torn_one_was_cut() {
    let (_keep, dir) = folder();
    let path = dir.join("lines");
    let disk = Disk::real();
    disk.append_line(&path, "{\"n\":1}").unwrap();
    fs::write(&path, format!("{{\"n\":1}}\n{{\"n\":{}", "2".repeat(9000))).unwrap();
    disk.append_line(&path, "{\"n\":3}").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":3}\n");
    fs::write(&path, "{\"n\":1}").unwrap();
    disk.append_line(&path, "{\"n\":2}").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn new_folders_are_private_and_old_ones_keep_their_mode() {
    let (_keep, dir) = folder();
    let open = dir.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    Disk::real().private_dir(&open.join("a/b")).unwrap();
    assert_eq!((mode(&open), mode(&open.join("a")), mode(&open.join("a/b"))), (0o755, 0o700, 0o700));
    Disk::real().own_private_dir(&open).unwrap();
    assert_eq!(mode(&open), 0o700);
}

#[test]
fn a_lock_excludes_names_its_holder_and_outlives_no_one() {
    let (_keep, dir) = folder();
    let path = dir.join("x.lock");
    let disk = Disk::real();
    let held = disk.lock(&path).unwrap();
    assert!(disk.try_lock(&path).unwrap().is_none());
    assert!(disk.lock_within(&path, Duration::from_millis(30)).unwrap().is_none());
    let text = holder(&path).unwrap();
    assert!(text.starts_with(&std::process::id().to_string()), "{text}");
    let (sender, receiver) = mpsc::channel();
    let waiting = std::thread::spawn({
        let (disk, path) = (disk.clone(), path.clone());
        move || {
            let lock = disk.lock(&path).unwrap();
            sender.send(()).unwrap();
            drop(lock);
        }
    });
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
    drop(held);
    receiver.recv_timeout(Duration::from_secs(5)).unwrap();
    waiting.join().unwrap();
    assert!(path.exists(), "a lock file is never unlinked");
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_replacement_is_whole_wherever_it_stops() {
    let walked = every_stop(|plan| {
        let (_keep, dir) = folder();
        let path = dir.join("f");
        fs::write(&path, "old content").unwrap();
        let (disk, twin) = Disk::faulty(plan);
        let result = disk.replace(&path, b"new content");
        let now = fs::read_to_string(&path).unwrap();
        assert!(now == "old content" || now == "new content", "{plan:?}: {now:?}");
        if result.is_ok() {
            assert_eq!(now, "new content");
        }
        twin.struck()
    });
    // Create, write, sync, rename, sync of the folder: five steps, and nine ways to stop at each.
    assert_eq!(walked, 45);
}

#[test]
fn the_twin_loses_what_a_careless_program_did_not_sync() {
    // The twin must be able to fail a test: rename without sync leaves an empty file.
    let (_keep, dir) = folder();
    let path = dir.join("f");
    fs::write(&path, "old").unwrap();
    let (disk, _) = Disk::faulty(FaultPlan { at: 3, fault: Fault::Stop(When::Before, Lose::Data) });
    let temporary = dir.join("t");
    disk.step_create_and_write_without_sync(&temporary, b"new");
    disk.rename(&temporary, &path).unwrap();
    assert!(disk.sync_dir(&dir).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"");

    let (_keep, dir) = folder();
    let path = dir.join("f");
    fs::write(&path, "old").unwrap();
    let (disk, _) = Disk::faulty(FaultPlan { at: 4, fault: Fault::Stop(When::Before, Lose::Everything) });
    disk.write_new(&dir.join("t"), b"new").unwrap();
    disk.rename(&dir.join("t"), &path).unwrap();
    assert!(disk.sync_dir(&dir).is_err());
    assert_eq!((fs::read(&path).unwrap(), names(&dir)), (b"old".to_vec(), vec!["f".to_owned()]));
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_reopened() {
    let (_keep, dir) = folder();
    let path = dir.join("f");
    fs::write(&path, "old").unwrap();
    for at in [0, 3] {
        let (disk, twin) = Disk::faulty(FaultPlan { at, fault: Fault::SyncFails });
        assert!(disk.replace(&path, b"new").is_err());
        assert!(twin.struck());
        let again = disk.clone().append_line(&dir.join("g"), "{}").unwrap_err();
        assert!(matches!(again, DiskError::Latched { .. }), "{again:?}");
        assert!(again.to_string().contains("check the disk, then start again"), "{again}");
        assert!(!dir.join("g").exists());
    }
    Disk::real().replace(&path, b"new").unwrap();
}

#[test]
fn a_full_disk_leaves_the_old_content_and_is_tried_again() {
    for at in 0..3 {
        let (_keep, dir) = folder();
        let path = dir.join("f");
        fs::write(&path, "old").unwrap();
        let (disk, twin) = Disk::faulty(FaultPlan { at, fault: Fault::NoSpace });
        match disk.replace(&path, b"new") {
            Err(error) => {
                assert!(error.is_no_space(), "{error:?}");
                assert_eq!(fs::read(&path).unwrap(), b"old");
                assert_eq!(names(&dir), ["f"]);
                twin.make_room();
                disk.replace(&path, b"new").unwrap();
            }
            Ok(()) => assert_eq!(at, 2, "the steps after the write need no room"),
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
}

impl Disk {
    fn step_create_and_write_without_sync(&self, path: &Path, bytes: &[u8]) {
        use std::io::Write as _;
        let mut file = self.create(path).unwrap();
        self.step(StepKind::Write, path, None, "write", || file.write_all(bytes)).unwrap();
    }
}
