//! One look at a pointer file, as a value: nothing that can stand there is an error yet.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{PointerError, PointerValue};
use crate::disk::{DiskError, open_plain};
use crate::ids::SessionId;

/// How long an empty or torn pointer is read again: far longer than a truncating writer needs.
const PATIENCE: Duration = Duration::from_millis(200);

/// A pointer is 37 bytes; whatever is longer than this is something else and is not read.
const LIMIT: u64 = 4096;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    Absent,
    Session(SessionId),
    Empty,
    Torn(String),
    Several(usize),
    NotAFile(&'static str),
    Garbage(String),
    Unreadable(String),
}

impl Look {
    pub(super) fn is(&self, value: PointerValue) -> bool {
        match value {
            PointerValue::Absent => *self == Self::Absent,
            PointerValue::Session(id) => *self == Self::Session(id),
        }
    }

    pub(super) const fn is_unfinished(&self) -> bool {
        matches!(self, Self::Empty | Self::Torn(_))
    }

    pub(super) fn into_value(self, path: &Path) -> Result<PointerValue, PointerError> {
        let path = path.to_owned();
        Err(match self {
            Self::Absent => return Ok(PointerValue::Absent),
            Self::Session(id) => return Ok(PointerValue::Session(id)),
            Self::Empty => PointerError::Empty { path },
            Self::Torn(text) => PointerError::Torn { path, text },
            Self::Several(count) => PointerError::Several { path, count },
            Self::NotAFile(found) => PointerError::NotAFile { path, found },
            Self::Garbage(start) => PointerError::Garbage { path, start },
            Self::Unreadable(cause) => PointerError::Unreadable { path, cause },
        })
    }
}

impl From<PointerValue> for Look {
    fn from(value: PointerValue) -> Self {
        match value {
            PointerValue::Absent => Self::Absent,
            PointerValue::Session(id) => Self::Session(id),
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("no file"),
            Self::Session(id) => id.fmt(f),
            Self::Empty => f.write_str("an empty file"),
            Self::Torn(text) => write!(f, "a part of an id ({text:?})"),
            Self::Several(count) => write!(f, "{count} ids"),
            Self::NotAFile(found) => f.write_str(found),
            Self::Garbage(start) => write!(f, "{start:?}"),
            Self::Unreadable(cause) => write!(f, "an unreadable file ({cause})"),
        }
    }
}

/// Looks once.
pub(super) fn look(path: &Path) -> Look {
    let file = match open_plain(path) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Look::Absent,
        Err(DiskError::NotAFile { found, .. }) => return Look::NotAFile(found),
        Err(DiskError::Io { source, .. }) => return Look::Unreadable(source.to_string()),
        Err(other @ DiskError::Latched { .. }) => return Look::Unreadable(other.to_string()),
    };
    let mut bytes = Vec::new();
    if let Err(error) = file.take(LIMIT + 1).read_to_end(&mut bytes) {
        return Look::Unreadable(error.to_string());
    }
    understand(&bytes)
}

/// Looks until there is something whole, at most [`PATIENCE`].
pub(super) fn look_patiently(path: &Path) -> Look {
    let start = Instant::now();
    loop {
        let seen = look(path);
        let waited = start.elapsed();
        if !seen.is_unfinished() || waited >= PATIENCE {
            return seen;
        }
        if waited < Duration::from_millis(1) {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(super) fn understand(bytes: &[u8]) -> Look {
    let shown = |text: &str| Look::Garbage(text.chars().take(80).collect());
    let Ok(text) = std::str::from_utf8(bytes) else { return shown(&String::from_utf8_lossy(bytes)) };
    if bytes.len() as u64 > LIMIT {
        return shown(text);
    }
    let text = text.trim();
    if text.is_empty() {
        return Look::Empty;
    }
    if let Ok(id) = text.parse() {
        return Look::Session(id);
    }
    if let Some(count) = several(text) {
        return Look::Several(count);
    }
    if is_part_of_an_id(text) { Look::Torn(text.to_owned()) } else { shown(text) }
}

/// How many ids the text is, be they in lines or run together.
fn several(text: &str) -> Option<usize> {
    let mut count = 0;
    for word in text.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let (id, after) = rest.split_at_checked(36)?;
            id.parse::<SessionId>().ok()?;
            count += 1;
            rest = after;
        }
    }
    (count > 1).then_some(count)
}

/// Whether the text could become an id if its writer went on.
fn is_part_of_an_id(text: &str) -> bool {
    text.len() < 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
