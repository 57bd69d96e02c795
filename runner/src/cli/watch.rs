//! `pointer watch`: what the pointer names, now and at every change, without polling.

use std::mem::MaybeUninit;
use std::path::Path;

use kael_core::error_chain;
use kael_core::pointer::{PointerError, PointerValue};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use serde_json::{Value, json};

use crate::companion::Companion;

use super::error::CliError;
use super::output::Output;

/// Prints until it is ended from outside, or until the pointer's folder is gone.
pub fn run(companion: &Companion, output: &Output) -> Result<(), CliError> {
    let path = &companion.config.resume_pointer_path;
    companion.create_folders()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    // The folder and not the file: the file is exchanged for another one at every change.
    let inotify = inotify::init(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    let wanted = WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVE
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&inotify, folder, wanted).map_err(|error| {
        CliError::failed(format!("could not watch {}: {}", folder.display(), std::io::Error::from(error)))
    })?;
    // Watch first, then look: a change between the two is seen twice and told once.
    let mut told = tell(companion, None, output)?;
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut buffer);
    loop {
        let event = match events.next() {
            Ok(event) => event,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(std::io::Error::from(error).into()),
        };
        let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        if event.events().intersects(gone) {
            return Err(CliError::failed(format!("the pointer's folder {} is gone", folder.display())));
        }
        let ours = event.file_name().is_some_and(|file| file.to_bytes() == name.as_encoded_bytes());
        if ours || event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
            told = tell(companion, Some(&told), output)?;
        }
    }
}

/// Prints what the pointer names, unless that is what was told last.
fn tell(companion: &Companion, told: Option<&Value>, output: &Output) -> Result<Value, CliError> {
    // Under the lock, so that a value which a switch is about to take back is not told.
    let read: Result<PointerValue, PointerError> = companion.pointer.read_locked();
    let (session, error) = match &read {
        Ok(value) => (value.session(), None),
        Err(error) => (None, Some(error_chain(error))),
    };
    let value = json!({ "session": session, "error": error });
    if told == Some(&value) {
        return Ok(value);
    }
    let at = companion.clock.now();
    let line = json!({ "schema": 1, "at": at, "session": session, "error": error });
    output.print(&line, || match (session, &error) {
        (Some(session), _) => format!("{at}  {session}"),
        (None, Some(error)) => format!("{at}  {error}"),
        (None, None) => format!("{at}  (absent)"),
    })?;
    Ok(value)
}
