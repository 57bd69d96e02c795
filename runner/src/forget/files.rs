//! Files without the words: which ones, and how one is rewritten.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use kael_core::disk::{self, Disk, DiskError};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::cli::error::CliError;

use super::json::{self, Kind};
use super::words::Words;

/// A file that holds the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Where it stands.
    pub path: PathBuf,
    /// In how many of its lines.
    pub lines: u64,
    /// SHA-256 of it as it is.
    pub old_sha256: String,
    /// SHA-256 of it without the words.
    pub new_sha256: String,
}

/// Every regular file below a folder, or the file itself; links are not followed.
pub fn below(path: &Path, out: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let failed = |error| CliError::from(DiskError::io("look at", path, error));
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if metadata.is_file() {
        out.push(path.to_owned());
    } else if metadata.is_dir() {
        let mut inner: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            inner.push(entry.map_err(failed)?.path());
        }
        inner.sort();
        for path in inner {
            below(&path, out)?;
        }
    }
    Ok(())
}

/// Whether the words stand in a file, and what it would be without them.
pub fn look(words: &Words, path: &Path) -> Result<Option<Holder>, CliError> {
    let mut hashed = Hashed(Sha256::new());
    let lines = write_without(words, path, &mut hashed).map_err(|e| DiskError::io("read", path, e))?;
    if lines == 0 {
        return Ok(None);
    }
    let new_sha256 = hashed.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let old_sha256 = disk::digest(path)?.sha256;
    Ok(Some(Holder { path: path.to_owned(), lines, old_sha256, new_sha256 }))
}

/// Rewrites a file, whole or not at all.
pub fn rewrite(words: &Words, disk: &Disk, path: &Path) -> Result<(), CliError> {
    Ok(disk.rewrite(path, |out| write_without(words, path, out).map(drop))?)
}

/// Writes the file without the words and says in how many lines they stood.
fn write_without(words: &Words, path: &Path, out: &mut dyn Write) -> io::Result<u64> {
    let mut input = BufReader::with_capacity(1 << 18, fs::File::open(path)?);
    // One value over many lines, as operations are; everything else goes line by line.
    if path.extension().is_some_and(|end| end == "json") {
        let mut text = Vec::new();
        input.read_to_end(&mut text)?;
        let new = json::without(words, &text, Kind::Plain);
        out.write_all(new.as_deref().unwrap_or(&text))?;
        return Ok(u64::from(new.is_some()));
    }
    let mut lines = 0;
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
        let (text, ending) = line.split_at(end);
        match json::row(words, text) {
            Some(new) => {
                lines += 1;
                out.write_all(&new)?;
            }
            None => out.write_all(text)?,
        }
        out.write_all(ending)?;
        line.clear();
    }
    Ok(lines)
}

struct Hashed(Sha256);

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What certain lines of a transcript say, and the ids of their rows, sources and messages.
pub fn said_in(path: &Path, lines: &[u64]) -> Result<(Vec<String>, Vec<String>), CliError> {
    let (mut texts, mut ids) = (Vec::new(), Vec::new());
    let failed = |error| CliError::from(DiskError::io("read", path, error));
    let input = BufReader::new(fs::File::open(path).map_err(failed)?);
    for (number, line) in (1_u64..).zip(input.split(b'\n')) {
        let line = line.map_err(failed)?;
        if !lines.contains(&number) {
            continue;
        }
        let Ok(row) = serde_json::from_slice::<Value>(&line) else { continue };
        let id = |pointer: &str| row.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        ids.extend(
            ["/uuid", "/kael/source", "/message/id", "/attachment/source_uuid"].iter().filter_map(|p| id(p)),
        );
        let stamp = row["kael"]["stamp"].as_u64().and_then(|stamp| usize::try_from(stamp).ok()).unwrap_or(0);
        let said = row.pointer("/message/content").or_else(|| row.pointer("/attachment/prompt"));
        let said = said.or_else(|| row.get("content"));
        let blocks: Vec<&str> = match said {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(blocks)) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
            _ => Vec::new(),
        };
        for (at, text) in blocks.into_iter().enumerate() {
            let text = if at == 0 { text.get(stamp..).unwrap_or(text) } else { text };
            texts.push(unwrapped(text));
        }
    }
    Ok((texts, ids))
}

/// The words in an envelope; the envelope itself stays.
fn unwrapped(text: &str) -> String {
    let inside = text
        .strip_prefix("<channel ")
        .and_then(|rest| rest.split_once(">\n"))
        .and_then(|(_, rest)| rest.strip_suffix("\n</channel>"));
    inside.map_or_else(|| text.to_owned(), crate::envelope::unescape)
}
