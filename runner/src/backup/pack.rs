//! Packing: everything that makes up a companion, under its lock.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kael_core::disk;
use sha2::{Digest, Sha256};

use crate::cli::error::CliError;
use crate::companion::Companion;
use crate::facts;
use crate::keeper::Keeper;

use super::{
    CONFIG, HISTORY, MANIFEST, Manifest, POINTER, Packed, SCHEMA, STATE, TRANSCRIPTS, portable, unpack,
};

/// What of the state folder makes up the companion; locks, sockets, logs and SQLite's side files do not.
const IN_STATE: [&str; 5] = ["operations", "artifacts", "kept", "history", "forgotten.jsonl"];
const QUEUE: &str = "queue.sqlite";
/// Fast, and much smaller than the transcripts.
const LEVEL: i32 = 3;

/// Packs a companion into a new file. The keeper holds the lock and has brought everything to a definite state.
///
/// # Errors
/// When the file exists, something cannot be read or written, or the archive reads back differently. No file is left
/// under the name then.
pub fn pack(keeper: &Keeper, to: &Path) -> Result<Manifest, CliError> {
    let companion = &keeper.companion;
    if fs::symlink_metadata(to).is_ok() {
        return Err(CliError::refused(format!("{} is there already: name a new file", to.display())));
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = folder.join(format!(".{}.packing", uuid::Uuid::new_v4().as_simple()));
    let done = write(companion, keeper, &temporary).and_then(|manifest| {
        companion.disk.sync_file(&temporary)?;
        let read = unpack::verify(&temporary)?;
        if read != manifest {
            return Err(CliError::failed("the archive reads back differently: is the disk sound?"));
        }
        companion.disk.rename_noreplace(&temporary, to)?;
        companion.disk.sync_dir(folder)?;
        Ok(manifest)
    });
    if done.is_err() {
        fs::remove_file(&temporary).unwrap_or_default();
    }
    done
}

fn write(companion: &Companion, keeper: &Keeper, to: &Path) -> Result<Manifest, CliError> {
    let config = &companion.config;
    let text = fs::read_to_string(&config.path)
        .map_err(|error| CliError::failed(format!("could not read {}: {error}", config.path.display())))?;
    let (text, left_out) = portable::without_secrets(&text, config.name.as_deref())?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)
        .map_err(|error| CliError::failed(format!("could not create {}: {error}", to.display())))?;
    let mut archive = Archive::begin(file)?;
    archive.bytes(CONFIG, text.as_bytes())?;
    let session = companion.pointer.read()?.session();
    if let Some(session) = session {
        archive.bytes(POINTER, format!("{session}\n").as_bytes())?;
    }
    let mut history = config.resume_pointer_path.clone().into_os_string();
    history.push(".history");
    archive.file_if_there(HISTORY, Path::new(&history))?;

    let snapshot = config.state_dir.join(format!(".{}.snapshot", uuid::Uuid::new_v4().as_simple()));
    let copied = keeper.queue.snapshot(&snapshot).map_err(CliError::from);
    let copied = copied.and_then(|()| archive.file(&format!("{STATE}/{QUEUE}"), &snapshot));
    fs::remove_file(&snapshot).unwrap_or_default();
    copied?;
    for name in IN_STATE {
        archive.tree(&format!("{STATE}/{name}"), &config.state_dir.join(name))?;
    }
    let mut sessions: BTreeSet<_> = facts::known_sessions(companion)?;
    sessions.extend(session);
    for session in sessions {
        archive.file_if_there(&format!("{TRANSCRIPTS}/{session}.jsonl"), &companion.transcript(session))?;
        // Transcripts of subagents and long results of tools.
        let beside = config.project_dir.join(session.to_string());
        archive.tree(&format!("{TRANSCRIPTS}/{session}"), &beside)?;
    }
    let manifest = Manifest {
        schema: SCHEMA,
        created_at: companion.clock.now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        companion: config.name.clone(),
        session,
        claude_workdir: config.claude_workdir.clone(),
        project_dir: config.project_dir.clone(),
        state_dir: config.state_dir.clone(),
        left_out,
        files: std::mem::take(&mut archive.files),
    };
    archive.end(&manifest)?;
    Ok(manifest)
}

struct Archive {
    tar: tar::Builder<zstd::stream::write::Encoder<'static, BufWriter<File>>>,
    files: Vec<Packed>,
}

impl Archive {
    fn begin(file: File) -> io::Result<Self> {
        let encoder = zstd::stream::write::Encoder::new(BufWriter::new(file), LEVEL)?;
        Ok(Self { tar: tar::Builder::new(encoder), files: Vec::new() })
    }

    fn bytes(&mut self, name: &str, content: &[u8]) -> Result<(), CliError> {
        self.stream(name, content, content.len() as u64)
    }

    fn file(&mut self, name: &str, path: &Path) -> Result<(), CliError> {
        let file = File::open(path)
            .map_err(|e| CliError::failed(format!("could not read {}: {e}", path.display())))?;
        let len = file.metadata()?.len();
        self.stream(name, file, len)
    }

    /// Only regular files: a link would lead out of the companion.
    fn file_if_there(&mut self, name: &str, path: &Path) -> Result<(), CliError> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_file() => self.file(name, path),
            _ => Ok(()),
        }
    }

    fn tree(&mut self, name: &str, path: &Path) -> Result<(), CliError> {
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
            return self.file(name, path);
        }
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(CliError::failed(format!("could not read {}: {error}", path.display())));
            }
        };
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        paths.sort();
        for inner in paths {
            let Some(last) = inner.file_name().and_then(|name| name.to_str()) else { continue };
            let (name, kind) = (format!("{name}/{last}"), fs::symlink_metadata(&inner)?.file_type());
            if kind.is_dir() {
                self.tree(&name, &inner)?;
            } else if kind.is_file() {
                self.file(&name, &inner)?;
            }
        }
        Ok(())
    }

    fn stream(&mut self, name: &str, content: impl Read, len: u64) -> Result<(), CliError> {
        let failed = |error: io::Error| CliError::failed(format!("could not pack {name}: {error}"));
        let mut content = Hashed { inner: content.take(len), sha256: Sha256::new(), len: 0 };
        let mut header = tar::Header::new_gnu();
        header.set_size(len);
        header.set_mode(0o600);
        header.set_entry_type(tar::EntryType::Regular);
        self.tar.append_data(&mut header, name, &mut content).map_err(failed)?;
        if content.len != len {
            return Err(CliError::failed(format!("{name} became shorter while it was packed: try again")));
        }
        let sha256 = content.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.files.push(Packed { path: name.to_owned(), len, sha256 });
        Ok(())
    }

    fn end(mut self, manifest: &Manifest) -> Result<(), CliError> {
        let text =
            serde_json::to_vec_pretty(manifest).map_err(|error| CliError::failed(error.to_string()))?;
        self.bytes(MANIFEST, &text)?;
        let mut file = self.tar.into_inner()?.finish()?;
        Ok(file.flush()?)
    }
}

/// Digests what goes through it.
struct Hashed<R> {
    inner: R,
    sha256: Sha256,
    len: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.sha256.update(buffer.get(..count).unwrap_or_default());
        self.len += count as u64;
        Ok(count)
    }
}

/// SHA-256 and length of what is still to be read.
pub(super) fn digest(content: impl Read) -> io::Result<(String, u64)> {
    let mut content = Hashed { inner: content, sha256: Sha256::new(), len: 0 };
    io::copy(&mut content, &mut io::sink())?;
    Ok((content.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), content.len))
}

/// The same of a file.
pub(super) fn digest_file(path: &Path) -> Result<(String, u64), CliError> {
    let found = disk::digest(path)?;
    Ok((found.sha256, found.len))
}
