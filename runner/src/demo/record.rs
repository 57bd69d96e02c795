//! What the demo has seen while it ran: what was said, and what the commands answered. The claims are held against
//! this and the files; `--keep` leaves it beside them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::error::CliError;

/// Who spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// The human.
    Human,
    /// The companion.
    Companion,
}

/// One thing that was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spoken {
    /// By whom.
    pub by: Speaker,
    /// The words, as they were typed or printed.
    pub words: String,
}

/// The question, and the yes to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Asked {
    /// What the pointer's file held while the question was open.
    pub session_then: String,
    /// The operation that was asked for.
    pub operation: String,
    /// How many of `spoken` had been said by then.
    pub spoken_then: usize,
}

/// A turn that was killed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Killed {
    /// The message.
    pub words: String,
    /// How many rows of the transcript held it after the kill.
    pub rows_then: usize,
    /// Whether an answer stood there.
    pub answered_then: bool,
    /// The state of the message in the inbox.
    pub inbox_then: String,
}

/// A foreign write, and what our switch did about it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Foreign {
    /// The session that the stranger wrote.
    pub session: String,
    /// The operation that was to switch.
    pub operation: String,
    /// Exit code of `confirm`.
    pub exit_code: i32,
    /// What the pointer's file held afterwards.
    pub pointer_after: String,
    /// The session that was current before, and was put back.
    pub mended: String,
}

/// A row that nobody knows, and what `plan` said of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Drift {
    /// The line on which it stands.
    pub line: u64,
    /// Exit code of `plan`.
    pub exit_code: i32,
    /// Why it is blocked.
    pub reason: String,
}

/// Everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// All that was said, in order.
    pub spoken: Vec<Spoken>,
    /// The answer to the question about the first sentence.
    pub remembered: String,
    /// The question and the yes.
    pub asked: Asked,
    /// The kill.
    pub killed: Killed,
    /// The foreign write.
    pub foreign: Foreign,
    /// The unknown row.
    pub drift: Drift,
}

impl Record {
    /// Name of the file that `--keep` leaves.
    pub const FILE: &str = "told.json";

    /// Notes what somebody said.
    pub fn note(&mut self, by: Speaker, words: &str) {
        self.spoken.push(Spoken { by, words: words.to_owned() });
    }

    /// Leaves the record in the demo's folder.
    pub fn leave(&self, root: &Path) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| CliError::failed(format!("could not write down what was said: {error}")))?;
        Ok(std::fs::write(root.join(Self::FILE), text)?)
    }

    /// Reads it again.
    pub fn read(root: &Path) -> Result<Self, CliError> {
        let path = root.join(Self::FILE);
        serde_json::from_slice(&std::fs::read(&path)?)
            .map_err(|error| CliError::failed(format!("could not read {}: {error}", path.display())))
    }
}
