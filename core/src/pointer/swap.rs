//! Compare-and-swap by exchanging names; the module's header tells the idea.

use std::path::Path;

use uuid::Uuid;

use super::look::{Look, look, look_patiently};
use super::{IntentError, Pointer, PointerError, PointerLock, PointerValue, SwapIntent};
use crate::disk::{Disk, DiskError, folder_of};
use crate::ids::SessionId;

/// How often a foreign write is put back before we give up and list what was seen.
const PUT_BACK_LIMIT: usize = 8;

/// A swap that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swapped {
    /// As it was recorded; [`Pointer::finish`] wants it.
    pub intent: SwapIntent,
    /// False where the file system could not exchange names and the weaker guarantee holds.
    pub exchanged: bool,
}

impl Pointer {
    /// Makes `new` current if the pointer says `expected`.
    ///
    /// `record_intent` is called once, before anything is touched, and must make the intent durable. The
    /// swap is durable on return. The temporary file, which now holds the old inode, stays until
    /// [`Pointer::finish`]. Blocks up to 200 ms for each foreign writer that is in the middle of a write.
    ///
    /// # Errors
    /// [`PointerError::Conflict`], [`PointerError::Same`] and [`PointerError::Intent`]: the pointer says what
    /// others wrote last. Any other error leaves open on which side of the exchange it fell:
    /// [`Pointer::recover`] tells.
    pub fn compare_and_swap(
        &self,
        lock: &PointerLock,
        expected: PointerValue,
        new: SessionId,
        record_intent: &mut dyn FnMut(&SwapIntent) -> Result<(), IntentError>,
    ) -> Result<Swapped, PointerError> {
        self.check(lock)?;
        if expected == PointerValue::Session(new) {
            return Err(PointerError::Same { path: self.path.clone() });
        }
        let seen = self.look();
        if !seen.is(expected) {
            return Err(self.conflict(expected, &[seen]));
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name: String = name.chars().take(48).collect();
        let intent = SwapIntent {
            expected: expected.session(),
            new,
            temp_name: format!(".{name}.{}.swap", Uuid::new_v4().as_simple()),
        };
        record_intent(&intent).map_err(|source| PointerError::Intent { path: self.path.clone(), source })?;

        let temporary = self.temporary(&intent);
        self.disk.write_new(&temporary, format!("{new}\n").as_bytes())?;
        match expected {
            PointerValue::Absent => self.create(&temporary, intent),
            PointerValue::Session(_) => self.exchange(&temporary, intent),
        }
    }

    fn create(&self, temporary: &Path, intent: SwapIntent) -> Result<Swapped, PointerError> {
        match self.disk.rename_noreplace(temporary, &self.path) {
            Ok(()) => {
                self.sync()?;
                Ok(Swapped { intent, exchanged: true })
            }
            Err(error) if error.is_exists() => {
                self.discard(temporary);
                Err(self.conflict(PointerValue::Absent, &[self.look()]))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn exchange(&self, temporary: &Path, intent: SwapIntent) -> Result<Swapped, PointerError> {
        let expected = PointerValue::from(intent.expected);
        match self.disk.exchange(temporary, &self.path) {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {
                self.discard(temporary);
                return Err(self.conflict(expected, &[self.look()]));
            }
            Err(error) if error.is_unsupported() => return self.rename(temporary, intent),
            Err(error) => return Err(error.into()),
        }
        // The one look that makes this a compare-and-swap: at what the exchange brought out.
        let out = look_patiently(temporary);
        if out.is(expected) {
            self.sync()?;
            return Ok(Swapped { intent, exchanged: true });
        }
        let seen = self.put_back(temporary, intent.new, out)?;
        Err(self.conflict(expected, &seen))
    }

    /// Puts `out`, which stands in the temporary file, back into the pointer, where `new` stands.
    /// Returns every foreign value seen. The newest of them is current afterwards.
    pub(super) fn put_back(
        &self,
        temporary: &Path,
        new: SessionId,
        out: Look,
    ) -> Result<Vec<Look>, PointerError> {
        let mut seen = vec![out.clone()];
        let mut placed = Look::Session(new);
        let mut in_hand = out;
        for _ in 0..PUT_BACK_LIMIT {
            match self.disk.exchange(temporary, &self.path) {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {
                    // Somebody removed the pointer: the newest of all changes, so it stays removed.
                    seen.push(Look::Absent);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            let came_out = look_patiently(temporary);
            if came_out == placed {
                break;
            }
            // Not what we had put there: a newer foreign write. It goes back in next time round.
            seen.push(came_out.clone());
            placed = in_hand;
            in_hand = came_out;
        }
        self.sync()?;
        self.discard(temporary);
        Ok(seen)
    }

    /// The weaker way of file systems without `RENAME_EXCHANGE`: read again, then rename.
    fn rename(&self, temporary: &Path, intent: SwapIntent) -> Result<Swapped, PointerError> {
        let expected = PointerValue::from(intent.expected);
        let seen = self.look();
        if !seen.is(expected) {
            self.discard(temporary);
            return Err(self.conflict(expected, &[seen]));
        }
        // Where there are no hard links either, the old inode cannot be kept.
        match self.disk.link(&self.path, &self.aside(&intent)) {
            Ok(()) | Err(DiskError::Io { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.disk.rename(temporary, &self.path)?;
        self.sync()?;
        Ok(Swapped { intent, exchanged: false })
    }

    pub(super) fn sync(&self) -> Result<(), PointerError> {
        Ok(self.disk.sync_dir(&folder_of(&self.path))?)
    }

    /// Removes a temporary file that never became, or is no longer, the pointer. What it holds is in
    /// the caller's list, so a failure loses nothing and must not hide the conflict.
    pub(super) fn discard(&self, temporary: &Path) {
        drop(self.disk.remove(temporary));
    }

    fn conflict(&self, expected: PointerValue, seen: &[Look]) -> PointerError {
        PointerError::Conflict {
            path: self.path.clone(),
            expected: Look::from(expected).to_string(),
            seen: seen.iter().map(ToString::to_string).collect(),
            current: look(&self.path).to_string(),
        }
    }
}

/// Whether the file system of that folder can exchange two names; for `doctor`. Two files are made
/// there and removed.
///
/// # Errors
/// [`DiskError`] when the folder cannot be written.
pub fn probe_exchange(disk: &Disk, folder: &Path) -> Result<bool, DiskError> {
    let name = |n: u8| folder.join(format!(".kael-probe.{}.{n}", Uuid::new_v4().as_simple()));
    let (a, b) = (name(1), name(2));
    disk.write_new(&a, b"1")?;
    let tried = disk.write_new(&b, b"2").and_then(|()| disk.exchange(&a, &b));
    drop(disk.remove(&a));
    drop(disk.remove(&b));
    match tried {
        Ok(()) => Ok(true),
        Err(error) if error.is_unsupported() => Ok(false),
        Err(error) => Err(error),
    }
}
