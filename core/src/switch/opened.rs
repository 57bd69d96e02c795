//! Whether anybody has opened a file since: the sign that a transcript is really being resumed.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// Watches a file from its making on.
#[derive(Debug)]
pub struct Opened {
    watch: Option<OwnedFd>,
    seen: Cell<bool>,
}

impl Opened {
    /// Begins to watch. Where that is not possible (no inotify left) nothing is ever seen.
    #[must_use]
    pub fn watch(path: &Path) -> Self {
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|fd| inotify::add_watch(&fd, path, WatchFlags::OPEN).map(|_| fd))
            .ok();
        Self { watch, seen: Cell::new(false) }
    }

    /// Whether the file was opened since.
    #[must_use]
    pub fn seen(&self) -> bool {
        if let (false, Some(watch)) = (self.seen.get(), &self.watch) {
            let mut buffer = [MaybeUninit::uninit(); 512];
            let mut reader = inotify::Reader::new(watch, &mut buffer);
            if let Ok(event) = reader.next() {
                self.seen.set(event.events().contains(ReadFlags::OPEN));
            }
        }
        self.seen.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_to_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        std::fs::write(&path, "x").unwrap();
        let opened = Opened::watch(&path);
        assert!(!opened.seen());
        std::fs::read(&path).unwrap();
        assert!(opened.seen() && opened.seen());
        assert!(!Opened::watch(&folder.path().join("absent")).seen());
    }
}
