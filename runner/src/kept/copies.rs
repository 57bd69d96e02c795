//! One kept copy: `<session>.jsonl`, and beside it `<session>.pieces`, which says piece by piece what was copied.
//!
//! A transcript only ever grows, so that a copy is brought up to date by what was appended: first the bytes, synced, then
//! one line with their length and digest. Bytes behind the last line are those of an append that never completed and are
//! cut off by the next one. A transcript that is shorter than its copy, or says something else in the copied part, was
//! damaged: then the copy stays as it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kael_core::disk::{self, Disk, DiskError};
use kael_core::ids::SessionId;
use serde::{Deserialize, Serialize};

use crate::cli::error::CliError;
use crate::companion::Companion;

use super::folder;

/// So much of the copied part is compared with the original before more is appended.
const COMPARED: u64 = 64 * 1024;

/// From so many pieces on they are made one.
const PIECES: usize = 512;

/// One line of `.pieces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    /// Bytes.
    len: u64,
    /// Their SHA-256.
    sha256: String,
    /// The original when they were copied: inode and time of the last change in nanoseconds.
    inode: u64,
    mtime_ns: i64,
}

/// A transcript, as its copy shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// There is no copy of it.
    None,
    /// It is there and begins with what was copied.
    Whole,
    /// It is not there any more.
    Vanished,
    /// It is not what was copied, in words.
    Damaged(String),
}

/// What putting a copy back did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBack {
    /// The original is whole.
    NotNeeded,
    /// The copy stands in its place, and what stood there is kept at the path.
    Done {
        /// Bytes that were put back.
        len: u64,
        /// Where what stood there is now.
        aside: Option<PathBuf>,
    },
}

/// The kept copy of one session's transcript.
#[derive(Debug)]
pub struct Copy {
    session: SessionId,
    live: PathBuf,
    copy: PathBuf,
    pieces: PathBuf,
}

impl Copy {
    /// Where it stands, whether it is there or not.
    #[must_use]
    pub fn of(companion: &Companion, session: SessionId) -> Self {
        let folder = folder(&companion.config.state_dir);
        Self {
            session,
            live: companion.transcript(session),
            copy: folder.join(format!("{session}.jsonl")),
            pieces: folder.join(format!("{session}.pieces")),
        }
    }

    /// The copy's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.copy
    }

    /// The file that says what was copied.
    #[must_use]
    pub fn pieces_path(&self) -> &Path {
        &self.pieces
    }

    /// How the original stands to the copy. Reads the end of the copied part, not the whole.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn state(&self) -> Result<State, CliError> {
        let pieces = self.read_pieces()?;
        self.state_by(&pieces)
    }

    fn state_by(&self, pieces: &[Piece]) -> Result<State, CliError> {
        let Some(last) = pieces.last() else { return Ok(State::None) };
        let copied = length(pieces);
        let metadata = match fs::symlink_metadata(&self.live) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(State::Vanished),
            Err(error) => return Err(DiskError::io("look at", &self.live, error).into()),
        };
        if !metadata.is_file() {
            return Ok(State::Damaged("it is no file any more".to_owned()));
        }
        let len = metadata.len();
        if len < copied {
            return Ok(State::Damaged(format!("it has {len} bytes and had {copied}")));
        }
        if len == copied && (metadata.ino(), mtime_ns(&metadata)) == (last.inode, last.mtime_ns) {
            return Ok(State::Whole);
        }
        let compared = copied.min(COMPARED);
        let end = |path: &Path| disk::digest_of(path, copied - compared, compared);
        if end(&self.live)? != end(&self.copy)? {
            return Ok(State::Damaged("what was written earlier is not there any more as it was".to_owned()));
        }
        Ok(State::Whole)
    }

    /// Brings the copy up to date. Needs the runner's lock.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn update(&self, disk: &Disk) -> Result<State, CliError> {
        let pieces = self.read_pieces()?;
        let state = self.state_by(&pieces)?;
        if matches!(state, State::Vanished | State::Damaged(_)) {
            return Ok(state);
        }
        let Ok(metadata) = fs::symlink_metadata(&self.live) else { return Ok(State::None) };
        let (at, end) = (length(&pieces), metadata.len());
        if end == at || !metadata.is_file() {
            return Ok(state);
        }
        if pieces.is_empty() {
            self.begin(disk)?;
        }
        let copied = disk.copy_tail(&self.live, &self.copy, at, end)?;
        let piece = Piece {
            len: copied.len,
            sha256: copied.sha256,
            inode: metadata.ino(),
            mtime_ns: mtime_ns(&metadata),
        };
        disk.append_line(&self.pieces, &line(&piece)?)?;
        if pieces.len() >= PIECES {
            self.verify()?;
            self.note_rewritten(disk)?;
        }
        Ok(State::Whole)
    }

    /// An empty copy: what a first one that was interrupted has left is nothing yet.
    fn begin(&self, disk: &Disk) -> Result<(), CliError> {
        if let Some(folder) = self.copy.parent() {
            disk.own_private_dir(folder)?;
        }
        disk.remove(&self.pieces)?;
        disk.remove(&self.copy)?;
        Ok(disk.create_new(&self.copy, b"")?)
    }

    /// Whether every piece of the copy is what was copied; the number of bytes that are.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was copied.
    pub fn verify(&self) -> Result<u64, CliError> {
        let pieces = self.read_pieces()?;
        let mut at = 0;
        for piece in &pieces {
            let found = disk::digest_of(&self.copy, at, piece.len)?;
            if found.len != piece.len || found.sha256 != piece.sha256 {
                return Err(CliError::failed(format!(
                    "the kept copy {} is damaged from byte {at} on: nothing was put back",
                    self.copy.display()
                )));
            }
            at += piece.len;
        }
        Ok(at)
    }

    /// What is wrong with the original and what to do about it; nothing while it is whole.
    ///
    /// # Errors
    /// As [`Copy::state`].
    pub fn trouble(&self) -> Result<Option<String>, CliError> {
        let what = match self.state()? {
            State::None | State::Whole => return Ok(None),
            State::Vanished => format!("the transcript {} is gone", self.live.display()),
            State::Damaged(how) => format!("the transcript {} was damaged: {how}", self.live.display()),
        };
        let len = length(&self.read_pieces()?);
        Ok(Some(format!(
            "{what}. A copy of {len} bytes is kept in {}: `kael-runner restore --kept {}` puts it back",
            self.copy.display(),
            self.session
        )))
    }

    /// Puts the copy in the place of an original that is gone or damaged; what stands there is moved aside, into the
    /// folder of the copies. Needs the runner's lock.
    ///
    /// # Errors
    /// When there is no copy, it is damaged, or the files cannot be written; nothing is lost then.
    pub fn put_back(&self, disk: &Disk) -> Result<PutBack, CliError> {
        let state = self.state()?;
        match state {
            State::Whole => return Ok(PutBack::NotNeeded),
            State::None => {
                return Err(CliError::refused(format!(
                    "no copy of session {} is kept in {}: nothing was changed",
                    self.session,
                    self.copy.parent().unwrap_or(&self.copy).display()
                )));
            }
            State::Vanished | State::Damaged(_) => {}
        }
        let len = self.verify()?;
        if let Some(folder) = self.live.parent() {
            disk.private_dir(folder)?;
        }
        let aside = if matches!(state, State::Damaged(_)) { Some(self.set_aside(disk)?) } else { None };
        let mut name = self.live.clone().into_os_string();
        name.push(format!(".{}.putting-back", uuid::Uuid::new_v4().as_simple()));
        let temporary = PathBuf::from(name);
        // Only what was copied completely.
        disk.create_new(&temporary, b"")?;
        let put = disk
            .copy_tail(&self.copy, &temporary, 0, len)
            .and_then(|_| disk.rename_noreplace(&temporary, &self.live));
        if put.is_err() {
            disk.remove(&temporary).unwrap_or_default();
        }
        put?;
        if let Some(folder) = self.live.parent() {
            disk.sync_dir(folder)?;
        }
        self.note_original(disk)?;
        Ok(PutBack::Done { len, aside })
    }

    fn set_aside(&self, disk: &Disk) -> Result<PathBuf, CliError> {
        let folder = self.copy.parent().unwrap_or(Path::new("."));
        let name = (1..)
            .map(|n: u32| folder.join(format!("{}.damaged-{n}", self.session)))
            .find(|path| fs::symlink_metadata(path).is_err())
            .unwrap_or_else(|| folder.join(format!("{}.damaged", self.session)));
        // Copied, not moved: the two folders may be on different disks.
        disk.copy_hashing(&self.live, &name)?;
        disk.remove(&self.live)?;
        Ok(name)
    }

    /// The copy belongs to the file that stands there now.
    fn note_original(&self, disk: &Disk) -> Result<(), CliError> {
        let mut pieces = self.read_pieces()?;
        let metadata =
            fs::symlink_metadata(&self.live).map_err(|error| DiskError::io("look at", &self.live, error))?;
        if let Some(last) = pieces.last_mut() {
            (last.inode, last.mtime_ns) = (metadata.ino(), mtime_ns(&metadata));
        }
        self.write_pieces(disk, &pieces)
    }

    /// Notes the copy as one piece: it was checked, or rewritten as its original was.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_rewritten(&self, disk: &Disk) -> Result<(), CliError> {
        let disk::Copied { sha256, len } = disk::digest(&self.copy)?;
        let (inode, mtime_ns) =
            fs::symlink_metadata(&self.live).map_or((0, 0), |metadata| (metadata.ino(), mtime_ns(&metadata)));
        self.write_pieces(disk, &[Piece { len, sha256, inode, mtime_ns }])
    }

    fn write_pieces(&self, disk: &Disk, pieces: &[Piece]) -> Result<(), CliError> {
        let mut text = String::new();
        for piece in pieces {
            text.push_str(&line(piece)?);
            text.push('\n');
        }
        Ok(disk.replace(&self.pieces, text.as_bytes())?)
    }

    /// A torn last line is none: its bytes are copied again.
    fn read_pieces(&self) -> Result<Vec<Piece>, CliError> {
        let text = match fs::read_to_string(&self.pieces) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(DiskError::io("read", &self.pieces, error).into()),
        };
        Ok(text.lines().map_while(|line| serde_json::from_str(line).ok()).collect())
    }
}

fn line(piece: &Piece) -> Result<String, CliError> {
    serde_json::to_string(piece).map_err(|error| CliError::failed(error.to_string()))
}

fn length(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

fn mtime_ns(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}
