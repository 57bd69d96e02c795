//! The streaming reader: one pass over a file, one line in memory at a time.
//!
//! It knows lines, damage and where a row begins and ends; what a row says is `head`'s matter.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::damage::{Damage, DamageKind};
use super::drift::{Known, Shape};
use super::error::TranscriptError;
use super::hashing::Hashing;
use super::head::Head;
use super::json::Scanner;

/// The longest line that is held in memory. Longer ones are damage: memory stays bounded.
pub(crate) const MAX_LINE: usize = 40 << 20;

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// Where a row stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The row's first byte.
    pub(crate) offset: u64,
    /// Its line, counted from 1.
    pub(crate) line: u64,
}

/// What the reader meets, in file order. Every byte of the file belongs to exactly one event.
#[derive(Clone, Copy)]
pub(crate) enum Event<'a> {
    /// A row: a JSON object. `around` counts white space and line ends that go with it.
    Row { place: Place, bytes: &'a [u8], head: &'a Head, around: u64 },
    /// All complete lines were read: what follows may still be written.
    Incomplete,
    /// A blank line.
    Blank { bytes: u64 },
    /// A damaged place.
    Damage(Damage),
}

/// Where reading stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The file's size as it was read.
    pub(crate) offset: u64,
    /// The number of lines begun.
    pub(crate) lines: u64,
    /// Where the last complete line ends: a later read may go on there.
    pub(crate) complete: u64,
    /// The number of lines that end before `complete`.
    pub(crate) complete_lines: u64,
}

/// Reads a transcript's rows.
pub(crate) struct Reader<R> {
    input: R,
    path: PathBuf,
    buffer: Vec<u8>,
    head: Head,
    hasher: Option<Hashing>,
    offset: u64,
    line: u64,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R, path: &Path) -> Self {
        Self {
            input,
            path: path.to_owned(),
            buffer: Vec::new(),
            head: Head::default(),
            hasher: None,
            offset: 0,
            line: 0,
        }
    }

    /// Also computes the SHA-256 of everything that is read, about `bytes` of it.
    pub(crate) fn hashing(mut self, bytes: u64) -> Self {
        self.hasher = Some(Hashing::of(bytes));
        self
    }

    /// The input starts at this byte of the file, after this many lines.
    pub(crate) fn starting_at(mut self, offset: u64, lines: u64) -> Self {
        self.offset = offset;
        self.line = lines;
        self
    }

    /// Reads to the end. The digest is there if [`Reader::hashing`] asked for it.
    pub(crate) fn run(
        mut self,
        mut on: impl FnMut(Event<'_>) -> Result<(), TranscriptError>,
    ) -> Result<(End, Option<[u8; 32]>), TranscriptError> {
        let mut start = 0; // of the line being collected, in the buffer
        let mut filled = 0;
        let mut searched = 0; // up to here there is no newline
        let mut skipping = 0_u64; // bytes of a line that is too long
        let mut end = End { complete: self.offset, complete_lines: self.line, ..End::default() };
        loop {
            if start == filled {
                // Nothing half-read: go on at the front, where the cache is warm.
                (start, filled, searched) = (0, 0, 0);
            }
            if filled == self.buffer.len() {
                if start > 0 {
                    self.buffer.copy_within(start..filled, 0);
                    filled -= start;
                    searched -= start;
                    start = 0;
                } else if filled >= MAX_LINE {
                    skipping += filled as u64;
                    (filled, searched) = (0, 0);
                } else {
                    let wanted = (filled * 2).clamp(CHUNK, MAX_LINE);
                    self.buffer.resize(wanted, 0);
                }
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let room = if room.len() > CHUNK { &mut room[..CHUNK] } else { room };
            let count = match self.input.read(room) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(TranscriptError::io(&self.path, "read")(error)),
            };
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&room[..count]);
            }
            crate::progress::add(count);
            filled += count;
            if count == 0 {
                break;
            }
            while let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..filled]) {
                let newline = searched + at;
                let length = (newline + 1 - start) as u64;
                self.line += 1;
                if skipping > 0 {
                    let bytes = skipping + length;
                    on(self.damage(DamageKind::TooLong, 0, bytes))?;
                    self.offset += bytes;
                    skipping = 0;
                } else {
                    let line = &self.buffer[start..newline];
                    let lines =
                        Line { offset: self.offset, number: self.line, newline: 1, first: self.offset == 0 };
                    lines.read(line, &mut self.head, &mut on)?;
                    self.offset += length;
                }
                start = newline + 1;
                searched = start;
                (end.complete, end.complete_lines) = (self.offset, self.line);
            }
            searched = filled;
        }
        let rest = (filled - start) as u64 + skipping;
        if rest > 0 {
            self.line += 1;
            on(Event::Incomplete)?;
            if skipping > 0 {
                on(self.damage(DamageKind::TooLong, 0, rest))?;
            } else {
                let line =
                    Line { offset: self.offset, number: self.line, newline: 0, first: self.offset == 0 };
                line.read(&self.buffer[start..filled], &mut self.head, &mut on)?;
            }
            self.offset += rest;
        }
        end.offset = self.offset;
        end.lines = self.line;
        Ok((end, self.hasher.and_then(Hashing::finish)))
    }

    fn damage(&self, kind: DamageKind, from: u64, bytes: u64) -> Event<'static> {
        Event::Damage(Damage { kind, line: self.line, offset: self.offset + from, bytes })
    }
}

/// One line, without its newline.
struct Line {
    offset: u64,
    number: u64,
    /// 1 if the line ends in a newline, 0 for the rest of the file.
    newline: u64,
    first: bool,
}

impl Line {
    fn read(
        &self,
        line: &[u8],
        head: &mut Head,
        on: &mut impl FnMut(Event<'_>) -> Result<(), TranscriptError>,
    ) -> Result<(), TranscriptError> {
        let damage = |kind, from: usize, bytes: usize| {
            Event::Damage(Damage {
                kind,
                line: self.number,
                offset: self.offset + from as u64,
                bytes: bytes as u64,
            })
        };
        let mut at = 0;
        if self.first && line.starts_with(b"\xef\xbb\xbf") {
            on(damage(DamageKind::ByteOrderMark, 0, 3))?;
            at = 3;
        }
        let nul = line.iter().skip(at).take_while(|b| **b == 0).count();
        if nul > 0 {
            on(damage(DamageKind::Nul, at, nul))?;
            at += nul;
        }
        if line.ends_with(b"\r") {
            on(damage(DamageKind::CarriageReturn, line.len() - 1, 0))?;
        }
        let mut rows = 0;
        // White space before the first row, and the line's end, go with a row where there is one.
        let mut around = 0;
        loop {
            let rest = line.get(at..).unwrap_or_default();
            let blank = rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
            around += blank as u64;
            at += blank;
            let rest = line.get(at..).unwrap_or_default();
            if rest.is_empty() {
                let left = around + self.newline;
                return if left > 0 { on(Event::Blank { bytes: left }) } else { Ok(()) };
            }
            let parsed = head.parse(rest);
            let Ok(length) = parsed else {
                on(Event::Blank { bytes: around })?;
                // A version writes its next row behind a half that a killed one left (facts 4).
                if let Some(next) = row_behind(rest, head) {
                    on(damage(DamageKind::TornHalf, at, next))?;
                    at += next;
                    around = 0;
                    continue;
                }
                let kind = if self.newline == 0 { DamageKind::TornTail } else { unreadable(rest) };
                return on(damage(kind, at, rest.len() + usize::from(self.newline == 1)));
            };
            if rows == 1 {
                on(damage(DamageKind::GluedRows, at, 0))?;
            }
            rows += 1;
            let place = Place { offset: self.offset + at as u64, line: self.number };
            at += length;
            let last = line.get(at..).unwrap_or_default().iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'));
            if last {
                around += (line.len() - at) as u64 + self.newline;
                if self.newline == 0 {
                    on(damage(DamageKind::NoFinalNewline, line.len(), 0))?;
                }
            }
            let bytes = rest.get(..length).unwrap_or_default();
            on(Event::Row { place, bytes, head, around })?;
            if last {
                return Ok(());
            }
            around = 0;
        }
    }
}

/// Where behind a torn half a whole row begins. Only one that names its session counts, and whose
/// type is known: what is torn may hold objects of its own.
fn row_behind(line: &[u8], head: &mut Head) -> Option<usize> {
    if line.first() != Some(&b'{') {
        return None;
    }
    let starts = memchr::memmem::find_iter(line, b"{\"").filter(|at| *at > 0).take(MAX_STARTS);
    for at in starts {
        let rest = line.get(at..).unwrap_or_default();
        let whole = head.parse(rest).is_ok() && head.session.is_some();
        let known = head.type_name.is_some_and(|name| Known::find(Shape::Row, name.of(rest)).is_some());
        if whole && known {
            return Some(at);
        }
    }
    None
}

/// How many places in a torn line are looked at.
const MAX_STARTS: usize = 256;

/// What kind of damage a line is that does not begin with an object.
fn unreadable(line: &[u8]) -> DamageKind {
    let mut scanner = Scanner::new(line);
    let first = scanner.peek();
    let Ok(value) = scanner.skip() else { return DamageKind::NotJson };
    if scanner.peek().is_some() {
        return DamageKind::NotJson;
    }
    match first {
        Some(b'"' | b'[') if value.len() > 2 => DamageKind::NotARow,
        Some(b'{') => DamageKind::NotJson,
        _ => DamageKind::EmptyValue,
    }
}
