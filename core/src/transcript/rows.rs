//! Reading single rows again: what the index leaves out is taken from the file where it is needed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::TranscriptError;
use super::head::Head;
use super::index::Entry;

/// Reads rows by their place, cheapest in file order.
pub(crate) struct Rows {
    path: PathBuf,
    file: File,
    /// What was read last: bytes of the file from `start`.
    window: Vec<u8>,
    start: u64,
    head: Head,
}

/// How much is read at once: rows with words are few and far between.
const WINDOW: usize = 16 << 10;

impl Rows {
    pub(crate) fn open(path: &Path) -> Result<Self, TranscriptError> {
        let file = super::survey::open(path)?;
        Ok(Self { path: path.to_owned(), file, window: Vec::new(), start: 0, head: Head::default() })
    }

    /// The row of an index entry.
    pub(crate) fn read(&mut self, entry: &Entry) -> Result<(&[u8], &Head), TranscriptError> {
        self.at(entry.offset(), entry.length() as usize)
    }

    /// The row at a place that was read before.
    pub(crate) fn at(&mut self, offset: u64, length: usize) -> Result<(&[u8], &Head), TranscriptError> {
        let from = self.place(offset, length)?;
        let bytes = self.window.get(from..from + length).unwrap_or_default();
        let changed = || TranscriptError::Changed { path: self.path.clone(), offset };
        if bytes.len() != length || self.head.parse(bytes).ok() != Some(length) {
            return Err(changed());
        }
        Ok((bytes, &self.head))
    }

    /// Makes sure that the bytes are in the window and says where.
    fn place(&mut self, offset: u64, length: usize) -> Result<usize, TranscriptError> {
        if let Some(from) = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok())
            && from.checked_add(length).is_some_and(|end| end <= self.window.len())
        {
            return Ok(from);
        }
        let wanted = length.max(WINDOW);
        self.window.resize(wanted, 0);
        self.window.shrink_to(wanted);
        let mut filled = 0;
        while let Some(room) = self.window.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.file.read_at(room, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TranscriptError::io(&self.path, "read")(error)),
            }
        }
        self.window.truncate(filled);
        self.start = offset;
        Ok(0)
    }
}
