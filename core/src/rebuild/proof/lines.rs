//! The proof's own splitter and decoder: nothing of it is shared with the reader it checks.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{ProofFailure, row};
use crate::transcript::drift::{Known, Shape};
use crate::transcript::hashing::Hashing;
use crate::transcript::media::hex;

/// The longest line that is looked at; the reader counts longer ones as damage.
const MAX_LINE: usize = 40 << 20;

/// A row as the proof's own splitter found it.
pub(super) struct Found<'a> {
    /// Its line, counted from 1.
    pub(super) line: u64,
    /// Its first byte in the file.
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
}

/// Calls `on` with each row and what it reads as (nothing when it cannot be decoded), and returns the
/// file's digest and size.
pub(super) fn each_row(
    path: &Path,
    mut on: impl FnMut(&Found<'_>, Option<row::Read>) -> Result<(), ProofFailure>,
) -> Result<(String, u64), ProofFailure> {
    let file = File::open(path).map_err(ProofFailure::io(path))?;
    let size = file.metadata().map_err(ProofFailure::io(path))?.len();
    let mut input = BufReader::with_capacity(CHUNK, Hashed { file, hashing: Hashing::of(size) });
    let mut line = Vec::new();
    let (mut number, mut offset) = (0, 0);
    loop {
        let length = read_line(&mut input, &mut line).map_err(ProofFailure::io(path))?;
        if length == 0 {
            let digest = input.into_inner().hashing.finish().map(|digest| hex(&digest));
            return Ok((digest.unwrap_or_default(), offset));
        }
        number += 1;
        if length as usize == line.len() {
            let place = |at: usize| offset + at as u64;
            // Nearly every line is one object from its first byte to its line end.
            let whole = line.trim_ascii_end();
            match Some(whole).filter(|whole| whole.starts_with(b"{")).and_then(row::lean) {
                Some(read) => on(&Found { line: number, offset, bytes: whole }, Some(read))?,
                None => {
                    for (at, bytes) in objects(&line, number == 1) {
                        on(&Found { line: number, offset: place(at), bytes }, row::read(bytes))?;
                    }
                }
            }
        }
        offset += length;
    }
}

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// A file that is hashed as it is read.
struct Hashed {
    file: File,
    hashing: Hashing,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        crate::progress::add(count);
        self.hashing.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// Reads a line, however long, and keeps at most [`MAX_LINE`] bytes of it. Returns its whole length.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<u64> {
    line.clear();
    let mut length = 0;
    loop {
        let bytes = match input.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = memchr::memchr(b'\n', bytes).map(|at| at + 1);
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        let room = (MAX_LINE + 1).saturating_sub(line.len());
        line.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
        let taken = piece.len();
        length += taken as u64;
        input.consume(taken);
        if end.is_some() || taken == 0 {
            return Ok(length);
        }
    }
}

/// The JSON objects of a line, with their places: one, or several that were glued together. Behind a
/// half that was torn only a row that says whose it is counts: what is torn may hold objects too.
fn objects(line: &[u8], first: bool) -> Vec<(usize, &[u8])> {
    let mut found = Vec::new();
    let mut at = 0;
    if first && line.starts_with(b"\xef\xbb\xbf") {
        at = 3;
    }
    at += line.iter().skip(at).take_while(|byte| **byte == 0).count();
    loop {
        let rest = line.get(at..).unwrap_or_default();
        let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        at += blank;
        let rest = line.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return found;
        }
        let length = if rest.starts_with(b"{") { object_length(rest) } else { None };
        let Some(length) = length else {
            // A line of another value, or a torn half: what stands behind it?
            let Some(next) = next_row(rest) else { return found };
            at += next;
            continue;
        };
        found.push((at, rest.get(..length).unwrap_or_default()));
        at += length;
    }
}

fn object_length(bytes: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// Where behind a torn half the next whole row begins.
fn next_row(bytes: &[u8]) -> Option<usize> {
    /// Enough to know a row by, whatever holds it.
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "type")]
        kind: String,
        #[serde(rename = "sessionId")]
        _session: String,
    }
    if !bytes.starts_with(b"{") {
        return None;
    }
    let starts = memchr::memmem::find_iter(bytes, b"{\"").filter(|at| *at > 0).take(MAX_STARTS);
    for at in starts {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(length) = object_length(rest) else { continue };
        let named = rest.get(..length).and_then(|row| serde_json::from_slice::<Named>(row).ok());
        if named.is_some_and(|named| Known::find(Shape::Row, named.kind.as_bytes()).is_some()) {
            return Some(at);
        }
    }
    None
}

/// How many places in a torn line are looked at.
const MAX_STARTS: usize = 256;

/// A row as a value. Lone surrogates and bytes that are no UTF-8 become U+FFFD, as in the CLI.
pub(super) fn value(row: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(row) {
        return Some(value);
    }
    let text = String::from_utf8_lossy(row);
    serde_json::from_str(&without_lone_surrogates(&text)).ok()
}

/// Replaces each escape of a lone surrogate.
fn without_lone_surrogates(text: &str) -> String {
    let unit = |at: usize| {
        let hex = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(hex, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    while let Some(found) = text.get(rest..).and_then(|tail| tail.find('\\')) {
        let at = rest + found;
        out.push_str(text.get(rest..at).unwrap_or_default());
        let (escape, length) = match (unit(at), unit(at + 6)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => (text.get(at..at + 12), 12),
            (Some(0xD800..0xE000), _) => (Some("\\ufffd"), 6),
            (Some(_), _) => (text.get(at..at + 6), 6),
            // Any other escape is a backslash and one character of one byte.
            (None, _) => (text.get(at..at + 2), 2),
        };
        out.push_str(escape.unwrap_or_default());
        rest = at + length;
    }
    out.push_str(text.get(rest..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_kept() {
        let row = br#"{"a":"x\ud83e\ude81y\ud83ez\\ud800\ude81","b":"\"\n"}"#;
        let value = value(row).unwrap();
        assert_eq!(value["a"], "x🪁y\u{fffd}z\\ud800\u{fffd}");
        assert_eq!(value["b"], "\"\n");
    }

    #[test]
    fn rows_are_split_as_they_stand() {
        let all = |line: &[u8]| {
            objects(line, true).into_iter().map(|(at, row)| (at, row.len())).collect::<Vec<_>>()
        };
        assert_eq!(all(b"\xef\xbb\xbf{}{\"a\":1} \r\n"), [(3, 2), (5, 7)]);
        assert_eq!(all(b"\0\0{} {"), [(2, 2)]);
        assert_eq!(all(b"[1]\n"), []);
        let torn = br#"{"type":"user","message":{"type":"text","text":"ha{"type":"mode","sessionId":"s"}{}"#;
        assert_eq!(all(torn), [(50, 31), (81, 2)]);
        assert_eq!(all(br#"{"type":"user","message":{"type":"text","text":"half"}"#), []);
        assert_eq!(all(b"{\"a\":\"\xff\\ud800\"}\n"), [(0, 15)]);
    }
}
