//! No turn goes on from rows that hang on nothing: the model would not see what was said before, and nobody would be told.

use kael_core::ids::SessionId;
use kael_core::pointer::PointerValue;
use kael_core::transcript::receipt::{self, Footing};
use serde::{Deserialize, Serialize};

use crate::cli::error::CliError;
use crate::queue::Setting;

use super::Keeper;

/// The end of a transcript that stood on the conversation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Known {
    session: SessionId,
    len: u64,
}

/// Where the next turn of a session may begin.
pub(super) enum Ground {
    /// At its end.
    End,
    /// At this row of the model's; what stands behind it has no history.
    At(String),
    /// Nowhere, for this reason.
    Nowhere(String),
}

impl Keeper {
    /// Looks at the end of a session before something is sent to it.
    pub(super) fn ground(&mut self, session: SessionId) -> Result<Ground, CliError> {
        let path = self.companion.transcript(session);
        let Some(known) = self.known_footing(session)? else {
            // It was resumed by others so far; from here on it is watched.
            self.note_footing(session)?;
            return Ok(Ground::End);
        };
        Ok(match receipt::footing(&path, known)? {
            Footing::Firm => Ground::End,
            Footing::Cut { last_assistant: Some(at), tools: false } => {
                tracing::warn!(
                    %session,
                    "the CLI left rows that hang on nothing, as when it could not write: the turn goes on in front of them"
                );
                Ground::At(at)
            }
            Footing::Cut { tools, .. } => {
                let what = if tools {
                    "tools ran there, and what they did is not in the conversation"
                } else {
                    "and no row in front of them can be gone on from"
                };
                Ground::Nowhere(format!(
                    "the end of session {session} hangs on nothing, as when the CLI could not write a row: {what}. The model \
                     would not see what was said before. Look at {}, give the turn up with `kael-runner skip`, and make a \
                     clean session with `kael-runner request --confirm REBUILD`, or go back with `kael-runner pointer set`",
                    path.display()
                ))
            }
        })
    }

    /// After an answered turn: holds the queue if it was answered without its history. Returns a line for the human.
    pub(super) fn watch_footing(&mut self) -> Result<Option<String>, CliError> {
        let PointerValue::Session(session) = self.companion.pointer.read()? else { return Ok(None) };
        let known = self.known_footing(session)?.unwrap_or(0);
        match receipt::footing(&self.companion.transcript(session), known)? {
            Footing::Firm => {
                self.note_footing(session)?;
                Ok(None)
            }
            Footing::Cut { .. } => {
                let line = format!(
                    "the last turn was answered without the conversation before it: rows in session {session} hang on \
                     nothing. With `kael-runner retry` the next turn goes on from the last row that has its history"
                );
                self.hold(&line)?;
                Ok(Some(line))
            }
        }
    }

    fn known_footing(&self, session: SessionId) -> Result<Option<u64>, CliError> {
        let known: Option<Known> = self.queue.get(Setting::Footing)?;
        Ok(known.filter(|known| known.session == session).map(|known| known.len))
    }

    fn note_footing(&mut self, session: SessionId) -> Result<(), CliError> {
        // A session without a file has nothing to stand on yet.
        let Ok(meta) = self.companion.transcript(session).metadata() else { return Ok(()) };
        Ok(self.queue.set(Setting::Footing, &Known { session, len: meta.len() })?)
    }
}
