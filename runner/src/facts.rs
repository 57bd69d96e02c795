//! What only the queue knows about a transcript: which rows are ours, and what was said through us.
//! The extractor trusts the first, the proof is held against the second (DESIGN 4, 6).

use std::collections::{BTreeSet, HashMap, HashSet};

use kael_core::ids::SessionId;
use kael_core::operation::OpStore;
use kael_core::rebuild::{Evidence, ReceivedEvidence, SentEvidence};
use kael_core::transcript::OwnRows;
use sha2::{Digest, Sha256};

use crate::cli::error::CliError;
use crate::companion::Companion;
use crate::queue::{AdditionState, Ending, Queue};

/// The rows our inbox sent, by what they are.
pub fn own_rows(queue: &Queue) -> Result<OwnRows, CliError> {
    let mut own = OwnRows::default();
    let all = queue.sent_rows()?;
    let open = queue.open_turn()?.map(|turn| turn.id);
    let taken_out = queue.taken_out()?;
    // The last uuid under which a turn's words were sent; earlier ones stand on branches that were left.
    let last: HashMap<i64, &String> =
        all.iter().filter(|sent| !sent.note).map(|sent| (sent.turn, &sent.row_uuid)).collect();
    for sent in &all {
        let row = sent.row_uuid.clone();
        let left = last.get(&sent.turn).is_some_and(|last| **last != row);
        if sent.note {
            own.notes.insert(row);
        } else if left || taken_out.contains(&sent.turn) {
            own.abandoned.insert(row);
        } else {
            if open == Some(sent.turn) {
                own.resend.insert(row.clone());
            }
            own.human.insert(row);
        }
    }
    for addition in queue.all_additions()? {
        match addition.state {
            AdditionState::Given | AdditionState::Absorbed => own.human.insert(addition.row_uuid),
            AdditionState::Returned => own.abandoned.insert(addition.row_uuid),
            // A turn of its own by now, with a run of its own.
            AdditionState::Own => false,
        };
    }
    Ok(own)
}

/// What was sent into and taken out of the conversation that `session` is the present end of.
pub fn evidence(queue: &Queue, store: &OpStore, session: SessionId) -> Result<Evidence, CliError> {
    let lineage = lineage(store, session)?;
    let mut evidence = Evidence::default();
    let all = queue.all_invocations()?;
    let answered: HashSet<i64> = all
        .iter()
        .filter(|run| run.ending == Some(Ending::Answered) && lineage.contains(&run.session))
        .map(|run| run.turn)
        .collect();
    for (at, invocation) in all.iter().enumerate() {
        // The row of the last attempt that sent the words; a note after it sends none.
        let last =
            !invocation.note && !all[at + 1..].iter().any(|run| run.turn == invocation.turn && !run.note);
        if last && answered.contains(&invocation.turn) {
            evidence.sent.push(SentEvidence {
                row_uuid: invocation.row_uuid.clone(),
                text_sha256: sent_texts(&invocation.line).iter().map(|text| digest(text)).collect(),
            });
        }
    }
    for addition in queue.all_additions()? {
        if addition.state == AdditionState::Absorbed && answered.contains(&addition.turn) {
            evidence.sent.push(SentEvidence {
                row_uuid: addition.row_uuid,
                text_sha256: sent_texts(&addition.line).iter().map(|text| digest(text)).collect(),
            });
        }
    }
    for reply in queue.all_replies()? {
        if answered.contains(&reply.turn) {
            evidence.received.push(ReceivedEvidence {
                message_id: reply.part.message_id,
                block_index: reply.part.block_index,
                text_sha256: digest(&reply.part.words),
            });
        }
    }
    Ok(evidence)
}

/// Every session that is or was this companion's conversation, or that it began.
pub fn known_sessions(companion: &Companion) -> Result<BTreeSet<SessionId>, CliError> {
    let mut known: BTreeSet<SessionId> = companion.queue()?.sessions_run(false)?.into_iter().collect();
    known.extend(companion.pointer.read()?.session());
    for line in companion.pointer.history()? {
        known.extend(line.from);
        known.insert(line.to);
    }
    for operation in companion.store()?.list()?.operations {
        known.extend(operation.source.as_ref().map(|source| source.session));
        known.extend(operation.state().candidate().map(|candidate| candidate.session));
    }
    Ok(known)
}

/// The session and those it was rebuilt from, through all generations.
pub fn lineage(store: &OpStore, session: SessionId) -> Result<HashSet<SessionId>, CliError> {
    let operations = store.list()?.operations;
    let mut known = HashSet::from([session]);
    let mut tip = session;
    // Every step goes to an older session, so this ends after at most as many steps as operations.
    for _ in 0..=operations.len() {
        let older = operations.iter().find(|operation| {
            let state = operation.state();
            state.was_activated() && state.candidate().is_some_and(|candidate| candidate.session == tip)
        });
        match older.and_then(|operation| operation.source.as_ref()) {
            Some(source) if known.insert(source.session) => tip = source.session,
            _ => break,
        }
    }
    Ok(known)
}

fn sent_texts(line: &[u8]) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let blocks = value.pointer("/message/content").and_then(serde_json::Value::as_array);
    blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str().map(str::to_owned)).collect()
}

fn digest(text: &str) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        out.push_str(&format!("{byte:02x}"));
    }
    out
}
