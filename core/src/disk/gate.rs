//! The gate that every durable step passes: open in the product, counted and closed in tests.

use std::io;
use std::path::Path;

/// The kinds of durable steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// A folder is made.
    MakeDir,
    /// An empty file is made.
    Create,
    /// Bytes are written to a file.
    Write,
    /// A file is cut.
    Truncate,
    /// A file's content is made to survive a power loss.
    SyncFile,
    /// A folder's names are made to survive a power loss.
    SyncDir,
    /// A name moves onto another one, replacing what stood there.
    Rename,
    /// A rename and the sync of its folder, done by the `atomicwrites` crate in one call.
    RenameAndSync,
    /// A name moves where none stands.
    RenameNoreplace,
    /// Two names swap what they name.
    Exchange,
    /// A file gets a second name.
    Link,
    /// A name is taken away.
    Remove,
    /// A database commits a transaction.
    Commit,
}

/// One durable step, about to happen.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// What it does.
    pub kind: StepKind,
    /// What it does it to; of two names, the first.
    pub path: &'a Path,
    /// The second name of a rename, exchange or link.
    pub other: Option<&'a Path>,
}

/// Stands between the product and the file system.
///
/// `act` does the real step. A gate either calls it exactly once and returns what it returned, or
/// refuses. It must not call back into the [`Disk`](super::Disk) it guards.
pub trait Gate: Send + Sync {
    /// Lets one step through, or not.
    ///
    /// # Errors
    /// What `act` returned, or the gate's own refusal.
    fn around(&self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()>;
}

/// The product's gate: always open.
#[derive(Debug)]
pub(super) struct Open;

impl Gate for Open {
    fn around(&self, _: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }
}
