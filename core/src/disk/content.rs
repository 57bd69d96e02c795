//! Content and names: hashing, copying, what an interrupted append or replacement leaves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::DiskError;

/// Copying and hashing go through the memory in pieces of this many bytes, whatever the file's size.
const CHUNK: usize = 256 * 1024;

/// What a copy, or a look at a whole file, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// SHA-256 of the content, in lower-case hexadecimal.
    pub sha256: String,
    /// Bytes.
    pub len: u64,
}

/// SHA-256 and length of a file, read in pieces.
///
/// # Errors
/// [`DiskError`] when it cannot be read, or is no regular file.
pub fn digest(path: &Path) -> Result<Copied, DiskError> {
    hash(&mut open_plain(path)?, &mut io::sink()).map_err(|e| DiskError::io("read", path, e))
}

/// SHA-256 of so many bytes from a place in a file on; the length says how many there were.
///
/// # Errors
/// As [`digest`].
pub fn digest_of(path: &Path, from: u64, len: u64) -> Result<Copied, DiskError> {
    let failed = |error| DiskError::io("read", path, error);
    let mut file = open_plain(path)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    hash(&mut file.take(len), &mut io::sink()).map_err(failed)
}

/// The folder that holds the name.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

/// A name beside `path` that nobody has used: a leftover of a crash is never reopened.
pub(crate) fn fresh_sibling(path: &Path) -> Result<PathBuf, DiskError> {
    let name = path
        .file_name()
        .ok_or_else(|| DiskError::io("name", path, io::Error::from(io::ErrorKind::InvalidFilename)))?;
    let name: String = name.to_string_lossy().chars().take(48).collect();
    Ok(folder_of(path).join(format!(".{name}.{}.tmp", Uuid::new_v4().as_simple())))
}

/// Of which file a name of [`fresh_sibling`]'s is a temporary one.
pub(super) fn sibling_of(name: &str) -> Option<&str> {
    let (stem, random) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    (random.len() == 32 && random.bytes().all(|b| b.is_ascii_hexdigit())).then_some(stem)
}

/// Opens a regular file for reading, never through a symlink in its last part.
pub(crate) fn open_plain(path: &Path) -> Result<File, DiskError> {
    let kind = fs::symlink_metadata(path).map_err(|e| DiskError::io("open", path, e))?.file_type();
    if !kind.is_file() {
        let found = if kind.is_dir() {
            "a folder"
        } else if kind.is_symlink() {
            "a symlink"
        } else {
            "a special file"
        };
        return Err(DiskError::NotAFile { path: path.to_owned(), found });
    }
    OpenOptions::new()
        .read(true)
        .custom_flags((rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed())
        .open(path)
        .map_err(|e| DiskError::io("open", path, e))
}

pub(super) fn copy(source: &mut File, target: &mut File) -> io::Result<Copied> {
    // Shared blocks are a snapshot, so the hash is taken from the copy.
    if rustix::fs::ioctl_ficlone(&*target, &*source).is_ok() {
        target.rewind()?;
        return hash(target, &mut io::sink());
    }
    target.set_len(0)?;
    hash(source, target)
}

/// The next so many bytes of the source, or as many as there are.
pub(super) fn copy_some(source: &mut File, wanted: u64, target: &mut File) -> io::Result<Copied> {
    hash(&mut source.take(wanted), target)
}

fn hash(source: &mut dyn Read, target: &mut dyn Write) -> io::Result<Copied> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut len = 0;
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let Some(piece) = buffer.get(..read) else { break };
        hasher.update(piece);
        target.write_all(piece)?;
        len += read as u64;
    }
    Ok(Copied { sha256: hex(&hasher.finalize()), len })
}

/// Lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Where the terminated lines end, and what stands after them.
pub(super) fn unterminated_tail(file: &mut File) -> io::Result<(u64, Vec<u8>)> {
    let len = file.metadata()?.len();
    let mut start = len;
    let mut tail = Vec::new();
    while start > 0 {
        let step = start.min(4096);
        start -= step;
        let mut piece = vec![0; usize::try_from(step).unwrap_or(0)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece)?;
        piece.append(&mut tail);
        tail = piece;
        if let Some(at) = tail.iter().rposition(|b| *b == b'\n') {
            let rest = tail.split_off(at + 1);
            return Ok((len - rest.len() as u64, rest));
        }
    }
    Ok((0, tail))
}
