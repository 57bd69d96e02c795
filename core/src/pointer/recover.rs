//! What a crash left: decided by the intent, the pointer and the temporary file.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::look::{Look, look_patiently};
use super::{Pointer, PointerError, PointerLock, PointerValue, SwapIntent};

/// Which side of the exchange the crash fell on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// The pointer says what it said before; nothing is left of the attempt.
    NotExchanged,
    /// The new session became current. [`Pointer::finish`] is still to be called.
    Activated {
        /// What somebody wrote over it since, in words; it is current.
        replaced_by: Option<String>,
    },
    /// Somebody else's value stood, or was swapped out and has been put back: a session conflict.
    Foreign {
        /// Every foreign value seen. The newest is current.
        seen: Vec<String>,
    },
}

impl Pointer {
    /// Decides what a swap did whose process ended, and puts a foreign value back that it had swapped out.
    /// The same answer comes again until [`Pointer::finish`], however often it is asked or interrupted.
    ///
    /// | temporary file | pointer | so |
    /// |---|---|---|
    /// | new id | expected | not exchanged (or already put back) |
    /// | expected | anything | activated; a foreign value there came later |
    /// | gone | new id / expected / other | activated / not exchanged / foreign |
    /// | a foreign value | new id | it was swapped out: put back, foreign |
    /// | a foreign value | another foreign value | the newer one is made current, foreign |
    /// | empty or torn | expected | the temporary file was never finished: not exchanged |
    ///
    /// # Errors
    /// [`PointerError::Disk`], [`PointerError::HistoryDamaged`]; ask again later.
    pub fn recover(&self, lock: &PointerLock, intent: &SwapIntent) -> Result<Recovered, PointerError> {
        self.check(lock)?;
        let new = PointerValue::Session(intent.new);
        let expected = PointerValue::from(intent.expected);
        let temporary = self.temporary(intent);
        let pointer = self.look();
        let activated = |pointer: &Look| Recovered::Activated {
            replaced_by: (!pointer.is(new)).then(|| pointer.to_string()),
        };
        if self.is_finished(intent)? {
            return Ok(activated(&pointer));
        }

        let waiting = look_patiently(&temporary);
        if waiting == Look::Absent {
            if pointer.is(new) {
                return Ok(activated(&pointer));
            }
            self.discard(&self.aside(intent));
            return Ok(not_ours(&pointer, expected));
        }
        if waiting.is(expected) {
            return Ok(activated(&pointer));
        }
        if waiting.is(new) {
            self.discard(&temporary);
            if pointer.is(new) {
                // First creation by link and unlink, stopped between the two.
                return Ok(activated(&pointer));
            }
            self.discard(&self.aside(intent));
            return Ok(not_ours(&pointer, expected));
        }
        if pointer.is(new) {
            let seen = self.put_back(&temporary, intent.new, waiting)?;
            return Ok(foreign(&seen));
        }
        if waiting.is_unfinished() {
            self.discard(&temporary);
            return Ok(not_ours(&pointer, expected));
        }
        // Two foreign values: the crash fell between two put-backs. Which was which cannot be told from the
        // names any more; the later write is the newest word.
        if modified(&temporary) > modified(&self.path) {
            self.disk.exchange(&temporary, &self.path)?;
            self.sync()?;
            self.discard(&temporary);
            return Ok(foreign(&[pointer, waiting]));
        }
        self.discard(&temporary);
        Ok(foreign(&[waiting, pointer]))
    }
}

fn not_ours(pointer: &Look, expected: PointerValue) -> Recovered {
    if pointer.is(expected) { Recovered::NotExchanged } else { foreign(std::slice::from_ref(pointer)) }
}

fn foreign(seen: &[Look]) -> Recovered {
    Recovered::Foreign { seen: seen.iter().map(ToString::to_string).collect() }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).ok()?.modified().ok()
}
