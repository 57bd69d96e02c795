//! Changes of the pointer that belong to no operation: `pointer set`, `adopt`, new sessions. Their intent
//! stands in `<pointer>.intent`.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::look::{Look, look};
use super::{Pointer, PointerError, PointerLock, PointerValue, Recovered, SwapIntent, Swapped};
use crate::clock::Timestamp;
use crate::disk::{DiskError, folder_of};
use crate::ids::SessionId;

#[derive(Serialize, Deserialize)]
struct OwnIntent {
    schema: u32,
    by: String,
    at: Timestamp,
    #[serde(flatten)]
    swap: SwapIntent,
}

/// The format of the intent file that this program writes.
const SCHEMA: u32 = 1;

impl Pointer {
    /// The whole change at once: lock, recovery of an interrupted change, swap, history.
    ///
    /// # Errors
    /// As [`Pointer::compare_and_swap`] and [`Pointer::recover_own_intent`].
    pub fn set(
        &self,
        expected: PointerValue,
        new: SessionId,
        by: &str,
        at: Timestamp,
    ) -> Result<Swapped, PointerError> {
        let lock = self.lock()?;
        self.set_locked(&lock, expected, new, by, at)
    }

    /// [`Pointer::set`] for a caller that holds the lock.
    ///
    /// # Errors
    /// As [`Pointer::set`].
    pub fn set_locked(
        &self,
        lock: &PointerLock,
        expected: PointerValue,
        new: SessionId,
        by: &str,
        at: Timestamp,
    ) -> Result<Swapped, PointerError> {
        self.recover_own_intent(lock)?;
        let path = self.beside(".intent");
        let swapped = self.compare_and_swap(lock, expected, new, &mut |swap| {
            let intent = OwnIntent { schema: SCHEMA, by: by.to_owned(), at, swap: swap.clone() };
            let text = serde_json::to_vec(&intent)?;
            Ok(self.disk.replace(&path, &text)?)
        });
        match swapped {
            Ok(swapped) => {
                self.finish(lock, &swapped.intent, by, None, at)?;
                self.forget_own_intent()?;
                Ok(swapped)
            }
            Err(conflict @ PointerError::Conflict { .. }) => {
                self.forget_own_intent()?;
                Err(conflict)
            }
            // What the exchange did is not known: the intent stays for recovery.
            Err(error) => Err(error),
        }
    }

    /// Sets the pointer whatever it says, on a human's word: the remedy for an empty, torn or doubled pointer. What
    /// is no session id is kept as `<pointer>.broken`. A pointer that does name a session is compared and swapped as
    /// ever, so that a write in the same instant is not lost unseen.
    ///
    /// # Errors
    /// [`PointerError::NotAFile`] for a folder, symlink or device, which a human moves away; else as [`Pointer::set`].
    pub fn set_over(&self, new: SessionId, by: &str, at: Timestamp) -> Result<Swapped, PointerError> {
        let lock = self.lock()?;
        self.recover_own_intent(&lock)?;
        let seen = self.look();
        let expected = match seen {
            Look::Session(id) => PointerValue::Session(id),
            Look::Absent => PointerValue::Absent,
            Look::NotAFile(found) => {
                return Err(PointerError::NotAFile { path: self.path.clone(), found });
            }
            Look::Unreadable(cause) => {
                return Err(PointerError::Unreadable { path: self.path.clone(), cause });
            }
            Look::Empty | Look::Torn(_) | Look::Several(_) | Look::Garbage(_) => {
                let broken = self.beside(".broken");
                self.disk.rename(&self.path, &broken)?;
                let moved = look(&broken);
                if moved != seen {
                    // Somebody mended it in this instant: theirs counts, and goes back where it was.
                    self.disk.rename_noreplace(&broken, &self.path)?;
                    self.sync()?;
                    return Err(self.conflict_with(&seen, &moved));
                }
                self.sync()?;
                PointerValue::Absent
            }
        };
        self.set_locked(&lock, expected, new, by, at)
    }

    /// Completes or takes back a [`Pointer::set`] that was interrupted; `None` when there was none. For the
    /// start of everything that reads the pointer to act on it.
    ///
    /// # Errors
    /// [`PointerError::IntentUnreadable`] leaves the file alone; else as [`Pointer::recover`].
    pub fn recover_own_intent(&self, lock: &PointerLock) -> Result<Option<Recovered>, PointerError> {
        self.check(lock)?;
        let path = self.beside(".intent");
        let name: String = path.file_name().unwrap_or_default().to_string_lossy().chars().take(48).collect();
        self.disk.sweep(&folder_of(&path), |stem| stem == name)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(DiskError::io("read", &path, error).into()),
        };
        let unreadable = |cause: String| PointerError::IntentUnreadable { path: path.clone(), cause };
        let intent: OwnIntent = serde_json::from_slice(&bytes).map_err(|e| unreadable(e.to_string()))?;
        if intent.schema > SCHEMA {
            return Err(unreadable(format!("it was written by a newer version, format {}", intent.schema)));
        }
        let recovered = self.recover(lock, &intent.swap)?;
        if matches!(recovered, Recovered::Activated { .. }) {
            self.finish(lock, &intent.swap, &intent.by, None, intent.at)?;
        }
        self.forget_own_intent()?;
        Ok(Some(recovered))
    }

    fn conflict_with(&self, expected: &Look, seen: &Look) -> PointerError {
        PointerError::Conflict {
            path: self.path.clone(),
            expected: expected.to_string(),
            seen: vec![seen.to_string()],
            current: look(&self.path).to_string(),
        }
    }

    fn forget_own_intent(&self) -> Result<(), PointerError> {
        self.disk.remove(&self.beside(".intent"))?;
        // A name that came back after a power loss would tell an old story.
        self.sync()
    }
}
