//! Live CLI processes on a session, by the CLI's own notes.
//!
//! Both supported versions keep `<config dir>/sessions/<pid>.json` while they run, with the fields
//! `pid`, `sessionId` and `procStart` (the process's start time in clock ticks, as text): measured
//! on 2.1.199 and 2.1.332.

use std::path::Path;

use kael_core::ids::SessionId;
use serde::Deserialize;

use super::marked::{has_ended, start_time};

#[derive(Deserialize)]
struct Note {
    pid: u32,
    #[serde(rename = "sessionId")]
    session: String,
    #[serde(rename = "procStart")]
    start: Option<String>,
}

/// The pids of live processes that say they are on this session, ours excepted.
/// `project_dir` is `<config dir>/projects/<folder>`.
#[must_use]
pub fn processes_on(session: SessionId, project_dir: &Path, ours: &[u32]) -> Vec<u32> {
    let Some(notes) = project_dir.parent().and_then(Path::parent).map(|dir| dir.join("sessions")) else {
        return Vec::new();
    };
    let wanted = session.to_string();
    std::fs::read_dir(notes)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
        .filter_map(|entry| serde_json::from_slice::<Note>(&std::fs::read(entry.path()).ok()?).ok())
        .filter(|note| note.session == wanted && !ours.contains(&note.pid))
        .filter(|note| match (start_time(note.pid), &note.start) {
            // One that has ended and was not waited for holds nothing.
            (None, _) => false,
            (Some(_), _) if has_ended(note.pid) => false,
            (Some(_), None) => true,
            (Some(live), Some(noted)) => live.to_string() == *noted,
        })
        .map(|note| note.pid)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_live_process_that_wrote_the_note_counts() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("projects/-bot");
        let notes = dir.path().join("sessions");
        std::fs::create_dir_all(&project).unwrap();
        std::fs::create_dir_all(&notes).unwrap();
        let session = SessionId::generate();
        let own = std::process::id();
        let start = start_time(own).unwrap();
        let note = |pid: u32, session: SessionId, start: u64| {
            let text = format!(r#"{{"pid":{pid},"sessionId":"{session}","procStart":"{start}","cwd":"/"}}"#);
            std::fs::write(notes.join(format!("{pid}.json")), text).unwrap();
        };
        assert!(processes_on(session, &project, &[]).is_empty());
        note(own, session, start);
        note(u32::MAX, session, 1);
        std::fs::write(notes.join("torn.json"), "{").unwrap();
        assert_eq!(processes_on(session, &project, &[]), [own]);
        assert!(processes_on(session, &project, &[own]).is_empty());
        assert!(processes_on(SessionId::generate(), &project, &[]).is_empty());
        note(own, session, start + 1);
        assert!(processes_on(session, &project, &[]).is_empty(), "the pid was reused");
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        while !has_ended(zombie.id()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        note(zombie.id(), session, start_time(zombie.id()).unwrap());
        assert!(processes_on(session, &project, &[]).is_empty(), "it has ended");
        zombie.wait().unwrap();
    }
}
