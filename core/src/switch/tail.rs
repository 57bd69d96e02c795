//! What a live CLI may append to a transcript without anything being said: notes at the end of a turn and at its
//! exit (facts: `turn_duration`, `last-prompt`, `cost-state`). Under our own supervisor the writer has exited before
//! the freeze; in a pane or unit it writes some of these after the freeze, and once more when it is ended.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::disk::DiskError;
use crate::transcript::drift::{Shape, TABLE, Verdict};

/// How far before the frozen end the last row of the conversation is looked for.
const LOOK_BACK: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    uuid: Option<String>,
    #[serde(rename = "leafUuid")]
    leaf: Option<String>,
}

/// Whether the file's first `len` bytes are those of `sha256`, and nothing but bookkeeping follows them. Else what
/// does, in words.
pub(crate) fn only_bookkeeping_follows(
    path: &Path,
    len: u64,
    sha256: &str,
) -> Result<Result<(), String>, DiskError> {
    let failed = |source| DiskError::io("read", path, source);
    let mut file = File::open(path).map_err(failed)?;
    if prefix_digest(&mut file, len).map_err(failed)? != sha256 {
        return Ok(Err("its beginning differs from the frozen copy".to_owned()));
    }
    let start = len.saturating_sub(LOOK_BACK);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    let border = usize::try_from(len - start).unwrap_or(usize::MAX).min(bytes.len());
    let (before, after) = bytes.split_at(border);
    let mut last = before.split(|&byte| byte == b'\n').rev().find_map(uuid_of);
    if !after.is_empty() && !before.is_empty() && !before.ends_with(b"\n") {
        return Ok(Err("its last line was continued".to_owned()));
    }
    for line in after.split(|&byte| byte == b'\n') {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match harmless(line, last.as_deref()) {
            Ok(Some(uuid)) => last = Some(uuid),
            Ok(None) => {}
            Err(what) => return Ok(Err(what)),
        }
    }
    Ok(Ok(()))
}

fn prefix_digest(file: &mut File, len: u64) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut left = file.by_ref().take(len);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match left.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    Ok(hasher.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
}

fn uuid_of(line: &[u8]) -> Option<String> {
    serde_json::from_slice::<Row>(line).ok()?.uuid
}

/// The row's own uuid, if it has one; else what it does to the conversation.
fn harmless(line: &[u8], last: Option<&str>) -> Result<Option<String>, String> {
    let Ok(row) = serde_json::from_slice::<Row>(line) else {
        return Err("a line that cannot be read was appended".to_owned());
    };
    let dropped = |shape: Shape, name: &str| {
        TABLE.iter().any(|known| {
            known.shape == shape && known.name == name && matches!(known.verdict, Verdict::Drop(_))
        })
    };
    let subtype = row.subtype.as_deref().unwrap_or_default();
    match row.kind.as_str() {
        // Which row the next resume begins from: harmless while that is still the last one.
        "last-prompt" if row.leaf.is_none() || row.leaf.as_deref() == last => Ok(None),
        "last-prompt" => Err("the conversation was rewound".to_owned()),
        "system" if subtype.ends_with("compact_boundary") => Err("the conversation was compacted".to_owned()),
        "system" if dropped(Shape::System, subtype) => Ok(row.uuid),
        kind if dropped(Shape::Row, kind) => Ok(row.uuid),
        kind => Err(format!("a row of type {kind} was appended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_at_the_end_of_a_turn_are_no_speech_and_everything_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let first = "{\"type\":\"user\",\"uuid\":\"a\"}\n{\"type\":\"assistant\",\"uuid\":\"b\"}\n";
        let sha256 = {
            std::fs::write(&path, first).unwrap();
            crate::disk::digest(&path).unwrap().sha256
        };
        let look = |tail: &str| {
            std::fs::write(&path, format!("{first}{tail}")).unwrap();
            only_bookkeeping_follows(&path, first.len() as u64, &sha256).unwrap()
        };
        let turn = "{\"type\":\"system\",\"subtype\":\"turn_duration\",\"uuid\":\"c\"}\n";
        for fine in [
            String::new(),
            "{\"type\":\"cost-state\"}\n".to_owned(),
            "{\"type\":\"last-prompt\",\"leafUuid\":\"b\"}\n".to_owned(),
            format!("{turn}{{\"type\":\"last-prompt\",\"leafUuid\":\"c\"}}\n"),
        ] {
            assert_eq!(look(&fine), Ok(()), "{fine}");
        }
        for (bad, why) in [
            ("{\"type\":\"user\",\"uuid\":\"d\"}\n", "type user"),
            ("{\"type\":\"assistant\",\"uuid\":\"d\"}\n", "type assistant"),
            ("{\"type\":\"queue-operation\"}\n", "type queue-operation"),
            ("{\"type\":\"attachment\"}\n", "type attachment"),
            ("{\"type\":\"never-seen\"}\n", "type never-seen"),
            ("{\"type\":\"last-prompt\",\"leafUuid\":\"a\"}\n", "rewound"),
            ("{\"type\":\"system\",\"subtype\":\"compact_boundary\"}\n", "compacted"),
            ("{\"type\":\"us", "cannot be read"),
        ] {
            assert!(look(bad).unwrap_err().contains(why), "{bad}");
        }
        std::fs::write(&path, first.replace('a', "x")).unwrap();
        assert!(only_bookkeeping_follows(&path, first.len() as u64, &sha256).unwrap().is_err());
    }
}
