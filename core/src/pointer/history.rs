//! `<pointer>.history`: one JSON line for every swap that was finished, and the look at the old inode.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::look::{Look, look_patiently};
use super::{Pointer, PointerError, PointerLock, SwapIntent};
use crate::clock::Timestamp;
use crate::disk::DiskError;
use crate::ids::{OperationId, SessionId};

/// One finished change of the pointer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When it was finished.
    pub at: Timestamp,
    /// The session before; none for the first creation.
    pub from: Option<SessionId>,
    /// The session since.
    pub to: SessionId,
    /// The operation that did it, if one did.
    pub operation: Option<OperationId>,
    /// Who or what asked for it.
    pub by: String,
    /// The swap's own name (its temporary file's), by which a repeated `finish` knows its line.
    #[serde(default)]
    pub swap: String,
}

/// Something was written to the old inode after the pointer had moved on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateWrite {
    /// What the old inode held when it was swapped out.
    pub expected: SessionId,
    /// What it holds now, in words.
    pub found: String,
    /// The session that was written, if it is one.
    pub session: Option<SessionId>,
}

impl Pointer {
    /// Writes the history line of a swap and keeps the old inode as `<pointer>.prev`. Call it only after
    /// the operation is durably activated. Doing it again changes nothing.
    ///
    /// # Errors
    /// [`PointerError::Disk`], [`PointerError::HistoryDamaged`]; call it again later.
    pub fn finish(
        &self,
        lock: &PointerLock,
        intent: &SwapIntent,
        by: &str,
        operation: Option<OperationId>,
        at: Timestamp,
    ) -> Result<(), PointerError> {
        self.check(lock)?;
        let written = self.is_finished(intent)?;
        if !written {
            let line = HistoryLine {
                at,
                from: intent.expected,
                to: intent.new,
                operation,
                by: by.to_owned(),
                swap: intent.temp_name.clone(),
            };
            let text = serde_json::to_string(&line)
                .map_err(|e| DiskError::io("write", &self.beside(".history"), io::Error::from(e)))?;
            self.disk.append_line(&self.beside(".history"), &text)?;
        }
        let previous = self.beside(".prev");
        let (temporary, aside) = (self.temporary(intent), self.aside(intent));
        if fs::symlink_metadata(&temporary).is_ok() {
            self.disk.rename(&temporary, &previous)?;
            self.sync()?;
        } else if fs::symlink_metadata(&aside).is_ok() {
            self.disk.rename(&aside, &previous)?;
            self.sync()?;
        } else if !written && self.disk.remove(&previous)? {
            // A swap whose old inode could not be kept: an older one must not be taken for it.
            self.sync()?;
        }
        Ok(())
    }

    /// Every finished change, oldest first. A torn last line (a crash in the middle of `finish`, which is
    /// repeated) is left out.
    ///
    /// # Errors
    /// [`PointerError::HistoryDamaged`] for a line before the last one.
    pub fn history(&self) -> Result<Vec<HistoryLine>, PointerError> {
        let path = self.beside(".history");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(DiskError::io("read", &path, error).into()),
        };
        let mut lines = Vec::new();
        let mut pieces = bytes.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
        while let Some((at, piece)) = pieces.next() {
            match serde_json::from_slice(piece) {
                Ok(line) => lines.push(line),
                Err(_) if pieces.peek().is_none() && !piece.ends_with(b"\n") => {}
                Err(error) => {
                    let cause = error.to_string();
                    return Err(PointerError::HistoryDamaged { path, line: at + 1, cause });
                }
            }
        }
        Ok(lines)
    }

    /// Looks again at the inode that the last swap took out: a program that had opened the pointer before
    /// the switch may have written to it since. For the next turn, after recovery.
    ///
    /// # Errors
    /// As [`Pointer::history`].
    pub fn look_back(&self, lock: &PointerLock) -> Result<Option<LateWrite>, PointerError> {
        self.check(lock)?;
        let found = look_patiently(&self.beside(".prev"));
        if found == Look::Absent {
            return Ok(None);
        }
        let Some(expected) = self.history()?.last().and_then(|line| line.from) else { return Ok(None) };
        if found == Look::Session(expected) {
            return Ok(None);
        }
        let session = if let Look::Session(id) = found { Some(id) } else { None };
        Ok(Some(LateWrite { expected, found: found.to_string(), session }))
    }

    /// Removes `<pointer>.prev` once a late write in it has been told to somebody.
    ///
    /// # Errors
    /// [`PointerError::Disk`].
    pub fn forget_previous(&self, lock: &PointerLock) -> Result<(), PointerError> {
        self.check(lock)?;
        if self.disk.remove(&self.beside(".prev"))? { self.sync() } else { Ok(()) }
    }

    /// Whether the history has the line of that swap.
    pub(super) fn is_finished(&self, intent: &SwapIntent) -> Result<bool, PointerError> {
        Ok(self.history()?.iter().any(|line| line.swap == intent.temp_name))
    }

    /// `<pointer>.history`.
    #[must_use]
    pub fn history_path(&self) -> PathBuf {
        self.beside(".history")
    }
}
