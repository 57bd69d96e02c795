//! The way back that leaves no words behind: the old transcript as it was, and behind it what has been said since, as a
//! candidate's rows.
//!
//! The old part stays byte for byte. The new rows are taken from a proved candidate of the present session; only the
//! first of them changes its parent, from the last row of the old conversation's clean form to the one of its own.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use serde_json::json;

use crate::disk::Disk;
use crate::ids::SessionId;
use crate::transcript::TranscriptError;
use crate::transcript::json::decode;
use crate::transcript::judge::Context;
use crate::transcript::rows::Rows;
use crate::transcript::survey::Survey;
use crate::transcript::{ExtractRules, OwnRows};

use super::candidate::ManifestEntry;
use super::error::RebuildError;

/// What is put together.
#[derive(Debug, Clone, Copy)]
pub struct AppendInput<'a> {
    /// The old transcript, frozen.
    pub old: &'a Path,
    /// A proved candidate of the session that came after it.
    pub since: &'a Path,
    /// That candidate's rows.
    pub manifest: &'a [ManifestEntry],
    /// The first of them that the old transcript does not say.
    pub first: usize,
    /// The session to be made; it is the candidate's.
    pub new_session: SessionId,
    /// The rules of extraction.
    pub rules: &'a ExtractRules,
    /// What the inbox knows.
    pub own: &'a OwnRows,
}

/// The uuids of the appended rows' ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The row of the old transcript that they hang on.
    pub parent: String,
    /// The first of them.
    pub first: String,
}

/// Writes both to a new file, 0600, durably. Blocking.
///
/// # Errors
///
/// When a file cannot be read or written, or the old transcript has no row that the new ones could hang on.
pub fn append(disk: &Disk, input: &AppendInput<'_>, out: &Path) -> Result<Option<Appended>, RebuildError> {
    let sources: HashSet<&str> =
        input.manifest.iter().skip(input.first).map(|entry| entry.source_uuid.as_str()).collect();
    let (Some(hang), Some(first)) = (hang(input, &sources)?, input.manifest.get(input.first)) else {
        return Ok(None);
    };
    let torn = !ends_in_newline(input.old)?;
    disk.write_through(out, &mut |writer| write(input, &hang, torn, writer))
        .map_err(|source| RebuildError::Disk { source })?;
    Ok(Some(Appended { parent: hang.row, first: first.item_id.clone() }))
}

fn write(input: &AppendInput<'_>, hang: &Hang, torn: bool, writer: &mut dyn Write) -> io::Result<()> {
    io::copy(&mut File::open(input.old)?, writer)?;
    if torn {
        writer.write_all(b"\n")?;
    }
    let mut last_prompt = String::new();
    for (at, line) in BufReader::new(File::open(input.since)?).lines().enumerate().skip(input.first) {
        let mut line = line?;
        if at == input.first {
            line = with_parent(&line, &hang.row).unwrap_or(line);
        }
        if hang.is_cut {
            last_prompt = said_by_human(&line).unwrap_or(last_prompt);
        }
        writeln!(writer, "{line}")?;
    }
    if hang.is_cut
        && let Some(last) = input.manifest.last()
    {
        // The old transcript may name its own end, which is not on the way to this one (facts 4).
        let row = json!({
            "type": "last-prompt",
            "lastPrompt": last_prompt.trim(),
            "leafUuid": last.item_id,
            "sessionId": input.new_session,
        });
        writeln!(writer, "{row}")?;
    }
    Ok(())
}

struct Hang {
    row: String,
    /// It is not the end that a CLI would go on from by itself.
    is_cut: bool,
}

/// The end of the old conversation; in front of a message that has no answer there and was sent again since.
fn hang(input: &AppendInput<'_>, sources: &HashSet<&str>) -> Result<Option<Hang>, RebuildError> {
    let mut survey = Survey::of(input.old, Context { rules: input.rules, own: input.own })?;
    let Some(leaf) = survey.leaf() else { return Ok(None) };
    let mut rows = Rows::open(input.old)?;
    let mut id = |survey: &Survey, row| -> Result<Option<String>, TranscriptError> {
        let Some(entry) = survey.index.get(row).copied() else { return Ok(None) };
        let (bytes, head) = rows.read(&entry)?;
        Ok(head.uuid.map(|uuid| decode(uuid.of(bytes)).text.into_owned()))
    };
    let chain = survey.chain()?;
    for row in &chain.rows {
        let Some(uuid) = id(&survey, *row)? else { continue };
        if sources.contains(uuid.as_str()) || input.own.abandoned.contains(&uuid) {
            let Some(before) = survey.index.parent(*row) else { return Ok(None) };
            return Ok(id(&survey, before)?.map(|row| Hang { row, is_cut: true }));
        }
    }
    Ok(id(&survey, leaf)?.map(|row| Hang { row, is_cut: false }))
}

/// The row with another parent; everything else stays byte for byte.
pub(super) fn with_parent(line: &str, parent: &str) -> Option<String> {
    let rest = line.strip_prefix("{\"parentUuid\":")?;
    let rest = match rest.strip_prefix("null") {
        Some(rest) => rest,
        None => rest.strip_prefix('"')?.split_once('"')?.1,
    };
    Some(format!("{{\"parentUuid\":{}{rest}", json!(parent)))
}

fn said_by_human(line: &str) -> Option<String> {
    let row: serde_json::Value = serde_json::from_str(line).ok()?;
    let content = (row["type"] == "user").then(|| &row["message"]["content"])?;
    let first = content.as_array().and_then(|blocks| blocks.first()).map(|block| &block["text"]);
    first.unwrap_or(content).as_str().map(str::to_owned)
}

fn ends_in_newline(path: &Path) -> Result<bool, TranscriptError> {
    use std::io::{Read, Seek, SeekFrom};
    let io = |error| TranscriptError::io(path, "read")(error);
    let mut file = File::open(path).map_err(TranscriptError::io(path, "open"))?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1)).map_err(io)?;
    file.read_exact(&mut last).map_err(io)?;
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parent_changes() {
        assert_eq!(with_parent(r#"{"parentUuid":null,"a":1}"#, "p").unwrap(), r#"{"parentUuid":"p","a":1}"#);
        assert_eq!(
            with_parent(r#"{"parentUuid":"old","a":"parentUuid"}"#, "p").unwrap(),
            r#"{"parentUuid":"p","a":"parentUuid"}"#
        );
        assert_eq!(with_parent(r#"{"a":1}"#, "p"), None);
    }
}
