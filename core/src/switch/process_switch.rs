//! The adapter of tmux and systemd setups: end the process, compare the source, swap the pointer, start on the
//! new session; or on the old one again, whatever goes wrong on the way.

use std::time::{Duration, Instant};

use super::adapter::IntentRecorder;
use super::opened::Opened;
use super::process::SessionProcess;
use super::processes::{self, Process};
use super::{Adapter, Credential, FrozenSource, SourceChange, SwitchError, transcript_path};
use crate::clock::Timestamp;
use crate::ids::{OperationId, SessionId};
use crate::pointer::{IntentError, Pointer, PointerError, PointerValue, SwapIntent};

/// How long `claude` may take to open the transcript after its start, on a busy machine.
const STARTUP: Duration = Duration::from_secs(45);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(50);

/// How a process setup is switched.
pub struct ProcessSwitch<'a> {
    /// Pane or unit.
    pub process: &'a dyn SessionProcess,
    /// The pointer: in these setups the record of which session runs, and for a unit what it starts with.
    pub pointer: &'a Pointer,
    /// The folder of the transcripts.
    pub project_dir: &'a std::path::Path,
    /// The session that runs now, and again if anything goes wrong.
    pub before: SessionId,
    /// What was frozen of it; none when a rebuild is taken back.
    pub source: Option<&'a FrozenSource>,
    /// How long the new process must stay.
    pub health: Duration,
    /// Who switches, for the pointer's history of a way back.
    pub by: String,
    /// When, for the same.
    pub at: Timestamp,
}

impl Adapter for ProcessSwitch<'_> {
    fn credential(&self) -> Result<Credential, SwitchError> {
        self.process.credential()
    }

    fn probe(&self) -> Result<Vec<String>, SwitchError> {
        self.process.probe()
    }

    fn switch(
        &mut self,
        expected: Credential,
        to: SessionId,
        record: &mut IntentRecorder<'_>,
    ) -> Result<Credential, SwitchError> {
        let failed =
            |source: IntentError| PointerError::Intent { path: self.pointer.path().to_owned(), source };
        record(None).map_err(failed)?;
        match self.process.end(expected) {
            Ok(()) => {}
            Err(replaced @ SwitchError::Replaced { .. }) => return Err(replaced),
            Err(error) => return Err(self.go_back(to, &crate::error_chain(&error), false)),
        }
        if let Some(source) = self.source {
            match source.compare_speech() {
                Ok(SourceChange::None) => {}
                Ok(change) => {
                    let why = format!("the old session was written to while its process ended ({change})");
                    return Err(self.go_back(to, &why, false));
                }
                Err(error) => return Err(self.go_back(to, &crate::error_chain(&error), false)),
            }
        }
        if let Err(error) = self.swap(to, record) {
            return Err(self.go_back(to, &crate::error_chain(&error), error.is_conflict()));
        }
        match self.run(to) {
            Ok(credential) => Ok(credential),
            Err(why) => Err(self.go_back(to, &why, false)),
        }
    }

    fn healthy(&self, session: SessionId) -> Result<bool, SwitchError> {
        let Some(claude) = self.process.claude()? else { return Ok(false) };
        Ok(processes::session_of(claude, self.project_dir) == Some(session))
    }

    fn settle(
        &mut self,
        intent: Option<&SwapIntent>,
        by: &str,
        operation: OperationId,
        at: Timestamp,
    ) -> Result<(), SwitchError> {
        self.process.restore();
        if let Some(intent) = intent {
            let lock = self.pointer.lock()?;
            self.pointer.finish(&lock, intent, by, Some(operation), at)?;
        }
        Ok(())
    }
}

impl ProcessSwitch<'_> {
    /// The lock is let go before the process starts: a unit's start script waits for it.
    fn swap(&self, to: SessionId, record: &mut IntentRecorder<'_>) -> Result<(), PointerError> {
        let lock = self.pointer.lock()?;
        let expected = PointerValue::Session(self.before);
        self.pointer.compare_and_swap(&lock, expected, to, &mut |intent| record(Some(intent)))?;
        Ok(())
    }

    /// Has `claude` run that session: leaves it alone where it does, starts it where nothing runs.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn run(&self, session: SessionId) -> Result<Credential, String> {
        let chain = |error: SwitchError| crate::error_chain(&error);
        if let Some(claude) = self.process.claude().map_err(chain)? {
            match processes::session_of(claude, self.project_dir) {
                // One that is on its way out is none.
                Some(found) if found == session && !claude.wait(self.health) => {
                    return self.process.credential().map_err(chain);
                }
                Some(found) if found == session => {}
                Some(found) => return Err(format!("claude ({}) runs there on session {found}", claude.pid)),
                None => return Err(format!("a claude ({}) of an unknown session runs there", claude.pid)),
            }
        }
        let opened = Opened::watch(&transcript_path(self.project_dir, session));
        self.process.start(session).map_err(chain)?;
        self.wait_healthy(session, &opened)
    }

    /// Until the new process has been seen with the session's id, has opened its transcript, and has stayed.
    fn wait_healthy(&self, session: SessionId, opened: &Opened) -> Result<Credential, String> {
        let until = Instant::now() + STARTUP + self.health;
        let mut well: Option<(Process, Instant)> = None;
        loop {
            let claude = self.process.claude().map_err(|error| crate::error_chain(&error))?;
            match (claude, well) {
                (Some(claude), Some((known, since))) if claude == known => {
                    if since.elapsed() >= self.health {
                        return self.process.credential().map_err(|error| crate::error_chain(&error));
                    }
                }
                (None, Some(_)) | (Some(_), Some(_)) => {
                    return Err(format!("the process on session {session} ended at once{}", self.why()));
                }
                (Some(claude), None) if self.resumes(claude, session, opened) => {
                    well = Some((claude, Instant::now()));
                    continue;
                }
                (Some(_), None) | (None, None) => {}
            }
            // An obituary tells that there is nothing to wait for.
            let why = self.process.obituary();
            if claude.is_none() && !why.is_empty() {
                return Err(format!("the process on session {session} ended at once: {why}"));
            }
            if Instant::now() >= until {
                return Err(format!(
                    "no claude was seen to resume session {session} within {} s{}",
                    (STARTUP + self.health).as_secs(),
                    self.why()
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the process is on that session: its command line holds the id, and it has opened the transcript or
    /// says itself that it is on it.
    fn resumes(&self, claude: Process, session: SessionId, opened: &Opened) -> bool {
        let id = session.to_string();
        let named = processes::command_line(claude.pid)
            .is_some_and(|line| line.iter().any(|part| *part == id || part.ends_with(&format!("={id}"))));
        let noted =
            || processes::note_of(claude, self.project_dir).is_some_and(|note| note.session == session);
        named && (opened.seen() || noted())
    }

    fn why(&self) -> String {
        let why = self.process.obituary();
        if why.is_empty() { why } else { format!(": {why}") }
    }

    /// Makes the session of before run again, and says so as the error that it is.
    fn go_back(&self, to: SessionId, reason: &str, conflict: bool) -> SwitchError {
        let reason = reason.to_owned();
        match self.resume_old(to) {
            Ok(after) => SwitchError::WentBack { reason, after, conflict },
            Err((then, theirs)) => SwitchError::Stranded { reason, then, conflict: conflict || theirs },
        }
    }

    /// Ends what runs on the session that is given up, points back, and starts the session of before: or the one that
    /// somebody else has made current meanwhile.
    ///
    /// # Errors
    /// Why not, in words, and whether somebody else is behind it.
    pub fn resume_old(&self, given_up: SessionId) -> Result<Credential, (String, bool)> {
        let plain = |error: SwitchError| (crate::error_chain(&error), error.is_conflict());
        // Where it cannot be looked at (its pane is gone), the pointer goes back all the same; the start below says why.
        if let Ok(Some(claude)) = self.process.claude()
            && processes::session_of(claude, self.project_dir) == Some(given_up)
        {
            let there = self.process.credential().map_err(plain)?;
            self.process.end(there).map_err(plain)?;
        }
        let current = self.pointer.read().map_err(|error| plain(error.into()))?;
        let wanted = match current {
            PointerValue::Session(theirs) if theirs != given_up && theirs != self.before => theirs,
            PointerValue::Session(session) if session == self.before => self.before,
            PointerValue::Session(_) | PointerValue::Absent => {
                let set = self.pointer.set(current, self.before, &self.by, self.at);
                set.map_err(|error| plain(error.into()))?;
                self.before
            }
        };
        let after = self.run(wanted).map_err(|why| (why, false))?;
        self.process.restore();
        Ok(after)
    }
}
