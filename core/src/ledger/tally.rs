//! What is counted row by row, and what of it waits for a later row to be decided.
//!
//! A message sent by a tool is speech once its result says that it was sent; a queued message is
//! speech where no row of its own follows. Both can lie across the end of one measurement, so the
//! tally is kept whole between turns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Account;
use crate::transcript::head::{BlockKind, Head};
use crate::transcript::index::RowKey;
use crate::transcript::judge::{ItemKind, Judged};
use crate::transcript::media::hex;
use crate::transcript::queue::{Queue, Step};

/// Counts rows in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) account: Account,
    pub(crate) queue: Queue,
    /// Messages sent by tools whose result has not come yet, and their bytes, by the call's id.
    calls: BTreeMap<String, u64>,
}

impl Tally {
    /// Takes in one row. `sent` is called with each call whose message turns out to have been sent.
    pub(crate) fn row(
        &mut self,
        row: &[u8],
        head: &Head,
        judged: &Judged,
        around: u64,
        line: u64,
        sent: &mut dyn FnMut(RowKey),
    ) -> Option<Step> {
        self.account.row(row, head, judged, around);
        self.tools(row, head, judged, sent);
        self.queue.row(row, head, judged, line)
    }

    fn tools(&mut self, row: &[u8], head: &Head, judged: &Judged, sent: &mut dyn FnMut(RowKey)) {
        for part in judged.speech().filter(|part| part.kind == ItemKind::ToolMessage) {
            let call = head.blocks.iter().find(|block| {
                block.kind == BlockKind::ToolUse
                    && block.whole.start <= part.span.start
                    && part.span.end <= block.whole.end
            });
            if let Some(id) = call.and_then(|call| call.id) {
                self.calls.insert(hex(RowKey::of(id.of(row)).bytes()), part.bytes);
            }
        }
        if self.calls.is_empty() {
            return;
        }
        for block in head.blocks.iter().filter(|block| block.kind == BlockKind::ToolResult) {
            let Some(id) = block.id.map(|id| RowKey::of(id.of(row))) else { continue };
            if let Some(bytes) = self.calls.remove(&hex(id.bytes())) {
                if block.is_error {
                    self.account.unsent(bytes);
                } else {
                    sent(id);
                }
            }
        }
    }

    /// The account as of here: a call without a result has not succeeded, a message without a row
    /// is speech where it was queued.
    pub(crate) fn settled(&self) -> Account {
        let mut account = self.account.clone();
        for bytes in self.calls.values() {
            account.unsent(*bytes);
        }
        for unseen in self.queue.unseen() {
            account.queued(unseen.bytes.unwrap_or(0));
        }
        account
    }
}
