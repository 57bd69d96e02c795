//! How far long reading has come: one count for the whole process, for signs of life on a terminal.

use std::sync::atomic::{AtomicU64, Ordering};

static READ: AtomicU64 = AtomicU64::new(0);

/// How many bytes of transcripts, copies and candidates this process has read so far.
#[must_use]
pub fn bytes_read() -> u64 {
    READ.load(Ordering::Relaxed)
}

pub(crate) fn add(bytes: usize) {
    READ.fetch_add(bytes as u64, Ordering::Relaxed);
}
