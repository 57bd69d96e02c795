//! The one storage layer: every durable step of the product (write, sync, rename, exchange, link,
//! remove) goes through a [`Disk`].
//!
//! *Responsibility.* Make each step durable in the right order, with private modes (folders 0700,
//! files 0600), fresh temporary names, and symlinks replaced instead of followed. After a failed
//! `fsync` nothing more is written until the disk is opened again, because the kernel reports such a
//! failure once and then forgets it: a second `fsync` that succeeds proves nothing.
//!
//! *Owner.* Whoever holds a `Disk` value; clones share one latch. Files are read with `std::fs`, not
//! through here: reading needs no protocol.
//!
//! *Neighbours.* [`crate::pointer`], [`crate::operation`] and [`crate::switch`] write only through
//! this module. A test hands them [`Disk::faulty`] instead of [`Disk::real`]: the same code runs on
//! the same real files, but the twin counts the steps and stops before, in the middle of, or after
//! any of them, and takes away what had not been synced.
//!
//! *What is assumed of the disk.* `rename`, `RENAME_EXCHANGE` and `link` are atomic for everybody who
//! looks; a file's content survives a power loss once its `fsync` returned, a name once the `fsync`
//! of its folder did, and nothing else is promised. No assumption is made about the order in which
//! unsynced changes reach the disk.

mod content;
mod error;
mod faulty;
mod gate;
mod lock;
mod store;

pub use content::{Copied, digest, digest_of};
pub(crate) use content::{folder_of, fresh_sibling, open_plain};
pub use error::DiskError;
pub use faulty::{Fault, FaultPlan, Lose, Twin, When};
pub use gate::{Gate, Step, StepKind};
pub use lock::{FileLock, holder, is_locked};
pub use store::Disk;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{every_stop, scratch};
