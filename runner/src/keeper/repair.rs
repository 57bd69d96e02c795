//! Versions of the CLI whose ways of going on were not measured: a turn that was cut short goes on in a copy of the
//! session that ends in front of it, or behind what its tools did (DESIGN 9 "Receipts").

use kael_core::operation::{Kind as Operation, NewOperation, OpEvent, OpState, Repair, Requested, Status};
use kael_core::rebuild::RepairCut;
use kael_core::transcript::receipt::{After, Receipt};

use crate::cli::error::CliError;
use crate::queue::{Invocation, Turn};

use super::Keeper;
use super::operations::outcome_line;

/// What became of the wish for a repair.
pub(super) enum Mended {
    /// The pointer names the repaired session.
    Done,
    /// Why not.
    No(String),
}

impl Keeper {
    /// Copies the current session with every row kept but the failed tail of this turn, and makes the copy current. It
    /// drops nothing that anybody said and needs no yes.
    pub(super) fn repair(
        &mut self,
        turn: &Turn,
        sent: &Invocation,
        receipt: &Receipt,
        unknown_result: &str,
    ) -> Result<Mended, CliError> {
        let from = self.first_offset(turn, sent)?;
        let cut = match receipt.after {
            After::ToolsFinished { .. } | After::ToolOpen { .. } => RepairCut::BehindTools(from),
            _ => RepairCut::BeforeMessage(from),
        };
        // A question of our own about a rebuild can be asked again; a human's wish is theirs to take back.
        if let Some(active) = self.store.active()? {
            if active.status() != Status::Pending || !active.requested_by.starts_with("runner") {
                return Ok(Mended::No(format!(
                    "operation {} is {}: say yes or no to it first (`kael-runner confirm`, `kael-runner cancel --confirm \
                     CANCEL`)",
                    active.id,
                    active.status()
                )));
            }
            self.store.lock()?.cancel(active.id, self.now())?;
        }
        let wish = NewOperation {
            kind: Operation::Repair,
            reason: "the turn was cut short, and this version of the CLI was not measured".into(),
            requested_by: "runner".to_owned(),
            by_policy: true,
        };
        let mut operation = match self.store.lock()?.request(wish, self.now())? {
            Requested::Created(operation) => operation,
            other => return Ok(Mended::No(outcome_line(&other.into_operation()))),
        };
        let root = receipt.chain_root(&self.companion.transcript(sent.session))?;
        let wish = Repair { cut, unknown_result, root };
        self.with_worker(|worker| Ok(worker.prepare_repair(&mut operation, &wish)?))?;
        if operation.status() == Status::Verifying {
            operation = self.activate_proved(operation.id)?;
        }
        tracing::warn!(turn = turn.id, operation = %operation.id, "{}", outcome_line(&operation));
        match operation.state() {
            OpState::Activated(_) => Ok(Mended::Done),
            _ => Ok(Mended::No(outcome_line(&operation))),
        }
    }

    /// Repairs that a crash has cut short: the open turn asks for another one where it still needs it.
    pub(super) fn end_broken_repairs(&mut self) -> Result<(), CliError> {
        let Some(mut operation) = self.store.active()?.filter(|op| op.kind == Operation::Repair) else {
            return Ok(());
        };
        match operation.status() {
            Status::Pending => self.store.lock()?.cancel(operation.id, self.now()).map(drop)?,
            Status::Running | Status::Verifying => {
                let reason = "the runner ended before the repair was done".into();
                let failed = OpEvent::Failed { reason, session_conflict: false };
                self.store.lock()?.advance(&mut operation, &failed, self.now())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The file's length before the turn's first run in this session.
    fn first_offset(&self, turn: &Turn, sent: &Invocation) -> Result<u64, CliError> {
        let runs = self.queue.invocations_of(turn.id)?;
        let here = runs.iter().filter(|run| run.session == sent.session);
        Ok(here.map(|run| run.from_offset).min().unwrap_or(sent.from_offset))
    }
}
