//! The pointer adapter: current is what the pointer says.

use super::adapter::IntentRecorder;
use super::{Adapter, Credential, SwitchError};
use crate::clock::Timestamp;
use crate::disk::{Disk, folder_of};
use crate::ids::{OperationId, SessionId};
use crate::pointer::{Pointer, PointerLock, PointerValue, SwapIntent, probe_exchange};

/// Holds the pointer's lock for its whole life, so that checks, swap and history line are one piece for everybody
/// who knows the lock. A reader with `--locked` waits meanwhile.
#[derive(Debug)]
pub struct PointerSwitch {
    pointer: Pointer,
    disk: Disk,
    lock: PointerLock,
}

impl PointerSwitch {
    /// Takes the pointer's lock.
    ///
    /// # Errors
    /// [`SwitchError::Pointer`] when the lock file cannot be opened.
    pub fn locked(pointer: &Pointer, disk: &Disk) -> Result<Self, SwitchError> {
        Ok(Self { lock: pointer.lock()?, pointer: pointer.clone(), disk: disk.clone() })
    }

    /// The lock that is held, for calls to the pointer itself.
    #[must_use]
    pub const fn lock(&self) -> &PointerLock {
        &self.lock
    }

    /// The pointer.
    #[must_use]
    pub const fn pointer(&self) -> &Pointer {
        &self.pointer
    }
}

impl Adapter for PointerSwitch {
    fn credential(&self) -> Result<Credential, SwitchError> {
        Ok(self.pointer.read()?.into())
    }

    fn probe(&self) -> Result<Vec<String>, SwitchError> {
        self.pointer.read()?;
        let folder = folder_of(self.pointer.path());
        if probe_exchange(&self.disk, &folder)? {
            return Ok(Vec::new());
        }
        Ok(vec![format!(
            "the file system of {} cannot exchange two names: a foreign write to the pointer in the instant of a switch \
             can be lost there; move resume_pointer_path to a local disk",
            folder.display()
        )])
    }

    fn switch(
        &mut self,
        expected: Credential,
        to: SessionId,
        record: &mut IntentRecorder<'_>,
    ) -> Result<Credential, SwitchError> {
        let Credential::Pointer { session } = expected else {
            return Err(SwitchError::OtherAdapter { found: expected });
        };
        self.pointer.compare_and_swap(&self.lock, session.into(), to, &mut |intent| record(Some(intent)))?;
        Ok(PointerValue::Session(to).into())
    }

    fn healthy(&self, session: SessionId) -> Result<bool, SwitchError> {
        Ok(self.pointer.read()? == PointerValue::Session(session))
    }

    fn settle(
        &mut self,
        intent: Option<&SwapIntent>,
        by: &str,
        operation: OperationId,
        at: Timestamp,
    ) -> Result<(), SwitchError> {
        if let Some(intent) = intent {
            self.pointer.finish(&self.lock, intent, by, Some(operation), at)?;
        }
        Ok(())
    }
}
