//! The repair: a copy of a transcript with every row kept but a failed tail (DESIGN 2, 7). It drops nothing anybody said
//! and needs no plan. For versions of the CLI that have no measured way of going on in the file as it is.
//!
//! Rows stay byte for byte, but for the session they name. Behind tools that have run, the turn is closed by rows of our
//! own, so that no version repeats a tool or puts words of its own there: a result for each call that has none, and the
//! open tail's marker.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::error::RebuildError;
use super::words::OPEN_TAIL;
use crate::clock::Timestamp;
use crate::disk::Disk;
use crate::ids::{OperationId, SessionId};
use crate::transcript::head::Head;
use crate::transcript::media::hex;

/// What is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairCut {
    /// What stood in the file before the message was sent: up to this byte.
    BeforeMessage(u64),
    /// Everything that the message's tools did; it was sent at this byte.
    BehindTools(u64),
}

/// What a repair is made of.
#[derive(Debug)]
pub struct RepairInput<'a> {
    /// The frozen copy.
    pub source: &'a Path,
    /// The session it is a copy of.
    pub session: SessionId,
    /// The session to be.
    pub new_session: SessionId,
    /// The operation.
    pub operation: OperationId,
    /// What is kept.
    pub cut: RepairCut,
    /// What the model is told in place of a result that is missing.
    pub unknown_result: &'a str,
}

/// A repair's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Its length in bytes.
    pub len: u64,
    /// Rows of the source in it.
    pub kept: u64,
    /// Bytes of the source that were left out at its end.
    pub left_out: u64,
    /// Rows of ours at its end.
    pub added: u64,
}

/// Writes the repair to a new file, 0600, durably. Blocking.
///
/// # Errors
///
/// When the source cannot be read or the file cannot be written.
pub fn write_repair(disk: &Disk, input: &RepairInput<'_>, out: &Path) -> Result<Repaired, RebuildError> {
    let tail = Tail::read(input)?;
    let mut kept = 0;
    let mut hasher = Sha256::new();
    let mut len = 0;
    let added = tail.closing_rows(input);
    disk.write_through(out, &mut |file| {
        kept = 0;
        len = 0;
        hasher = Sha256::new();
        let mut put = |line: &[u8]| -> std::io::Result<()> {
            hasher.update(line);
            len += line.len() as u64;
            file.write_all(line)
        };
        for_each_line(input.source, tail.keep, &mut |_, line| {
            kept += 1;
            put(&renamed(line, input))
        })?;
        for row in &added {
            put(format!("{row}\n").as_bytes())?;
        }
        Ok(())
    })
    .map_err(|source| RebuildError::Disk { source })?;
    let size = std::fs::metadata(input.source).map_err(RebuildError::io(input.source, "look at"))?.len();
    Ok(Repaired {
        sha256: hex(&hasher.finalize()),
        len,
        kept,
        left_out: size.saturating_sub(tail.keep),
        added: added.len() as u64,
    })
}

/// Holds the file against its source, both read again: every kept row is there, byte for byte but for the session's name,
/// in order, and nothing but the closing rows follows. Blocking.
///
/// # Errors
///
/// When a file cannot be read, or they do not agree.
pub fn prove_repair(input: &RepairInput<'_>, repaired: &Path, file: &Repaired) -> Result<(), RebuildError> {
    let differs = |what: &str| RebuildError::Differs { path: repaired.to_owned(), what: what.to_owned() };
    let bytes = std::fs::read(repaired).map_err(RebuildError::io(repaired, "read"))?;
    if hex(&Sha256::digest(&bytes)) != file.sha256 {
        return Err(differs("it is not what was written"));
    }
    let back = replace_all(&bytes, &input.new_session.to_string(), &input.session.to_string());
    let mut at = 0;
    let keep = match input.cut {
        RepairCut::BeforeMessage(keep) => keep,
        RepairCut::BehindTools(_) => Tail::read(input)?.keep,
    };
    let compared = for_each_line(input.source, keep, &mut |_, line| {
        let end = at + line.len();
        if back.get(at..end) != Some(line) {
            return Err(std::io::Error::other("a row is not the source's"));
        }
        at = end;
        Ok(())
    });
    compared.map_err(|error| differs(&error.to_string()))?;
    let rest = back.get(at..).unwrap_or_default();
    let rows = rest.split(|byte| *byte == b'\n').filter(|row| !row.is_empty());
    let ours = rows
        .filter_map(|row| serde_json::from_slice::<Value>(row).ok())
        .filter(|row| row["kael"].is_object());
    if ours.count() as u64 != file.added {
        return Err(differs("something else than our rows stands behind the kept ones"));
    }
    Ok(())
}

/// The end of what is kept, and what is open there.
struct Tail {
    keep: u64,
    /// Calls without a result: id and row.
    open: Vec<(String, String)>,
    /// The last row of the tools, and when it was written.
    last: Option<(String, Option<String>)>,
    model: Option<String>,
    has_tools: bool,
}

impl Tail {
    fn read(input: &RepairInput<'_>) -> Result<Self, RebuildError> {
        let mut tail = Self { keep: 0, open: Vec::new(), last: None, model: None, has_tools: false };
        let from = match input.cut {
            RepairCut::BeforeMessage(keep) => {
                tail.keep = keep;
                return Ok(tail);
            }
            RepairCut::BehindTools(from) => from,
        };
        tail.keep = from;
        for_each_line(input.source, u64::MAX, &mut |offset, line| {
            if offset >= from {
                tail.row(offset + line.len() as u64, line);
            }
            Ok(())
        })
        .map_err(RebuildError::io(input.source, "read"))?;
        Ok(tail)
    }

    fn row(&mut self, end: u64, line: &[u8]) {
        let Ok(row) = serde_json::from_slice::<Value>(line) else { return };
        let Some(uuid) = row["uuid"].as_str().filter(|_| row["isSidechain"] != true) else { return };
        let blocks = row["message"]["content"].as_array().into_iter().flatten();
        match row["type"].as_str() {
            Some("assistant")
                if row["isApiErrorMessage"] != true && row["message"]["model"] != "<synthetic>" =>
            {
                let calls = blocks.filter(|block| block["type"] == "tool_use");
                let calls: Vec<_> = calls
                    .filter_map(|call| Some((call["id"].as_str()?.to_owned(), uuid.to_owned())))
                    .collect();
                self.has_tools |= !calls.is_empty();
                self.open.extend(calls);
                self.model = row["message"]["model"].as_str().map(str::to_owned);
            }
            Some("user") => {
                let made_up = |block: &Value| {
                    block["content"].as_str().is_some_and(|text| text.starts_with("[Tool call interrupted:"))
                };
                let done: Vec<&str> = blocks
                    .filter(|block| block["type"] == "tool_result" && !made_up(block))
                    .filter_map(|block| block["tool_use_id"].as_str())
                    .collect();
                if done.is_empty() {
                    // The message itself is kept with what it led to.
                    if self.last.is_some() {
                        return;
                    }
                } else {
                    self.open.retain(|(id, _)| !done.contains(&id.as_str()));
                }
            }
            _ => return,
        }
        self.keep = end;
        self.last = Some((uuid.to_owned(), row["timestamp"].as_str().map(str::to_owned)));
    }

    /// What closes the turn, so that the next message begins another one on every version.
    fn closing_rows(&self, input: &RepairInput<'_>) -> Vec<Value> {
        let Some((last, time)) = self.last.as_ref().filter(|_| self.has_tools) else { return Vec::new() };
        let start: Option<Timestamp> = time.as_deref().and_then(|time| time.parse().ok());
        let start = start.map_or(0, |at| at.as_millis());
        let mut rows: Vec<Value> = Vec::new();
        let mut add = |kind: &str, parent: &str, message: Value, mark: &str| -> String {
            let place = rows.len();
            let uuid =
                Uuid::new_v5(input.new_session.as_uuid(), format!("repair {place}").as_bytes()).to_string();
            let at = Timestamp::from_millis(start + 1 + i64::try_from(place).unwrap_or(0));
            rows.push(json!({
                "parentUuid": parent,
                "isSidechain": false,
                "type": kind,
                "message": message,
                "uuid": uuid,
                "timestamp": at.to_string(),
                "sessionId": input.new_session.to_string(),
                "kael": { "operation": input.operation.to_string(), "source": format!("{last}#{mark}{place}"),
                    "stamp": 0, "generation": 1, "kind": mark },
            }));
            uuid
        };
        let mut tip = last.clone();
        for (id, row) in &self.open {
            let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id,
                "content": input.unknown_result, "is_error": true}]});
            tip = add("user", row, result, "repair");
        }
        let model = self.model.clone().unwrap_or_else(|| "<synthetic>".to_owned());
        let marker =
            json!({"role": "assistant", "model": model, "content": [{"type": "text", "text": OPEN_TAIL}]});
        add("assistant", &tip, marker, "open_tail");
        rows
    }
}

/// Every line with its end, up to a byte.
fn for_each_line(
    path: &Path,
    until: u64,
    each: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(256 << 10, std::fs::File::open(path)?);
    let mut offset = 0;
    let mut line = Vec::new();
    while offset < until {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            break;
        }
        each(offset, &line)?;
        offset += read;
    }
    Ok(())
}

/// A row as it stands in the new session.
fn renamed(line: &[u8], input: &RepairInput<'_>) -> Vec<u8> {
    let old = input.session.to_string();
    let mut head = Head::default();
    let span = head.parse(line).ok().and(head.session);
    match span.filter(|span| span.of(line) == old.as_bytes()) {
        Some(span) => {
            let mut row = line.get(..span.start as usize).unwrap_or_default().to_vec();
            row.extend_from_slice(input.new_session.to_string().as_bytes());
            row.extend_from_slice(line.get(span.end as usize..).unwrap_or_default());
            row
        }
        None => line.to_vec(),
    }
}

/// Ids of sessions are equally long, so that offsets stay.
fn replace_all(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for at in memchr::memmem::find_iter(bytes, from.as_bytes()) {
        if let Some(place) = out.get_mut(at..at + to.len()) {
            place.copy_from_slice(to.as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::scratch;
    use crate::transcript::receipt::{self, After};

    fn uuid(n: u32) -> String {
        format!("00000000-0000-4000-8000-{n:012}")
    }

    fn row(n: u32, parent: Option<u32>, kind: &str, message: Value) -> String {
        let mut row = json!({"parentUuid": parent.map(uuid), "isSidechain": false, "type": kind,
            "uuid": uuid(n), "timestamp": format!("2026-11-30T14:00:{n:02}.000Z"), "sessionId": session(1)});
        row["message"] = message;
        format!("{row}\n")
    }

    fn session(n: u32) -> SessionId {
        format!("11111111-0000-4000-8000-{n:012}").parse().unwrap()
    }

    fn calls(n: u32, parent: u32, id: &str) -> String {
        row(
            n,
            Some(parent),
            "assistant",
            json!({"id": "m", "role": "assistant", "model": "claude-opus-5-5",
            "stop_reason": "tool_use", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]}),
        )
    }

    fn result(n: u32, parent: u32, id: &str) -> String {
        row(
            n,
            Some(parent),
            "user",
            json!({"role": "user", "content": [{"type": "tool_result",
            "tool_use_id": id, "content": "said by 11111111-0000-4000-8000-000000000001"}]}),
        )
    }

    fn said(n: u32, parent: Option<u32>, who: &str, text: &str) -> String {
        row(
            n,
            parent,
            who,
            json!({"role": who, "id": format!("s{n}"), "model": "claude-opus-5-5",
            "stop_reason": "end_turn", "content": [{"type": "text", "text": text}]}),
        )
    }

    fn repaired(text: &str, cut: RepairCut) -> (String, Repaired, tempfile::TempDir) {
        let keep = scratch();
        let (source, out) = (keep.path().join("source"), keep.path().join("out.jsonl"));
        std::fs::write(&source, text).unwrap();
        let operation = OperationId::generate();
        let input = RepairInput {
            source: &source,
            session: session(1),
            new_session: session(2),
            operation,
            cut,
            unknown_result: "nobody knows",
        };
        let file = write_repair(&Disk::real(), &input, &out).unwrap();
        prove_repair(&input, &out, &file).unwrap();
        let written = std::fs::read_to_string(&out).unwrap();
        // One byte of a kept row differs: told.
        std::fs::write(&out, written.replacen("hello", "hullo", 1)).unwrap();
        assert!(prove_repair(&input, &out, &file).is_err());
        std::fs::write(&out, &written).unwrap();
        (written, file, keep)
    }

    #[test]
    fn a_message_is_taken_out_with_all_that_followed() {
        let before = said(1, None, "user", "hello") + &said(2, Some(1), "assistant", "hi");
        let text =
            format!("{before}{}{}", said(3, Some(2), "user", "ask"), "{\"type\":\"last-prompt\"}\n{\"torn");
        let (written, file, _keep) = repaired(&text, RepairCut::BeforeMessage(before.len() as u64));
        assert_eq!(written, before.replace(&session(1).to_string(), &session(2).to_string()));
        assert_eq!((file.kept, file.added, file.left_out), (2, 0, (text.len() - before.len()) as u64));
    }

    #[test]
    fn tools_that_ran_stay_and_what_is_open_is_closed() {
        let before = said(1, None, "user", "hello") + &said(2, Some(1), "assistant", "hi");
        let tools =
            said(3, Some(2), "user", "ask") + &calls(4, 3, "a") + &calls(5, 4, "b") + &result(6, 4, "a");
        let error = json!({"type": "assistant", "uuid": uuid(7), "parentUuid": uuid(6), "isApiErrorMessage": true,
            "message": {"model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}});
        let text = format!("{before}{tools}{error}\n");
        let (written, file, keep) = repaired(&text, RepairCut::BehindTools(before.len() as u64));
        assert_eq!((file.kept, file.added), (6, 2));
        // Only the field that names the session is another; what a tool said about it stays.
        assert_eq!(written.matches("said by 11111111-0000-4000-8000-000000000001").count(), 1);
        assert!(!written.contains("API Error") && written.contains("nobody knows"));
        let receipt = receipt::read(&keep.path().join("out.jsonl"), 0, &uuid(3)).unwrap();
        assert!(matches!(receipt.after, After::ToolsFinished { .. }), "{receipt:?}");
        assert!(receipt.closed && receipt.on_live_chain);
        assert!(receipt.replies.is_empty(), "our rows are nobody's words");
    }
}
