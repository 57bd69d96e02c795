//! Unfolding: beside its place first, checked, then moved in.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kael_core::config::{self, Config, Lookup};
use kael_core::disk::{Disk, FileLock};
use kael_core::operation::OpStore;
use serde::{Deserialize, Serialize};

use crate::cli::error::{CliError, ErrorKind};
use crate::companion;
use crate::queue::{Queue, Setting};

use super::pack::{digest, digest_file};
use super::{CONFIG, HISTORY, MANIFEST, Manifest, POINTER, SCHEMA, STATE, TRANSCRIPTS, is_ours, portable};

/// In a restored state folder: which archive it came from, so that an interrupted restore can be finished.
const MARK: &str = "restored.json";

/// Where a companion is to live.
#[derive(Debug, Clone)]
pub struct Places {
    /// Its working folder.
    pub workdir: PathBuf,
    /// Its state folder, if not the usual one.
    pub state: Option<PathBuf>,
    /// Its configuration.
    pub config: PathBuf,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    archive_sha256: String,
}

/// Reads an archive whole and checks every digest in it.
pub(super) fn verify(archive: &Path) -> Result<Manifest, CliError> {
    let mut found = Vec::new();
    let manifest = each(archive, |name, content| {
        found.push((name.to_owned(), digest(content)?));
        Ok(())
    })?;
    check(&manifest, &found)?;
    Ok(manifest)
}

/// Unfolds an archive. What is there already is never overwritten; interrupted at any point, the same call finishes it.
///
/// # Errors
/// When the archive is not whole, or something is there already: nothing has changed then but for transcripts that are
/// the same.
pub fn unpack(archive: &Path, places: &Places) -> Result<(Manifest, Config), CliError> {
    let disk = Disk::real();
    let whole = digest_file(archive)?.0;
    let mark = Mark { archive_sha256: whole };
    let (text, config) = configuration(archive, places)?;
    if places.config.exists() && fs::read_to_string(&places.config)? != text {
        return Err(there(&places.config, "name another with --config"));
    }
    let state = &config.state_dir;
    let parent = state.parent().unwrap_or(Path::new("/"));
    disk.private_dir(parent)?;
    let staging = parent.join(format!(".{}.restoring", file_name(state)));
    disk.private_dir(&staging)?;
    let lock = disk.try_lock(&staging.join("lock"))?.ok_or_else(|| {
        CliError::new(ErrorKind::Busy, format!("another restore is at work in {}", staging.display()))
    })?;
    let manifest = if is_restored(state, &mark) {
        verify(archive)?
    } else {
        if state.exists() {
            return Err(there(state, "move it away, or name another with --state"));
        }
        let manifest = unfold(archive, &staging)?;
        bring_in(&disk, &staging, &manifest, &config, &mark)?;
        manifest
    };
    if let Some(folder) = places.config.parent() {
        disk.private_dir(folder)?;
    }
    if !places.config.exists() {
        disk.create_new(&places.config, text.as_bytes())?;
    }
    clear(&disk, &staging, lock)?;
    Ok((manifest, config))
}

fn there(path: &Path, remedy: &str) -> CliError {
    CliError::refused(format!("{} is there already: {remedy}; nothing was changed", path.display()))
}

fn is_restored(state: &Path, mark: &Mark) -> bool {
    let text = fs::read(state.join(MARK)).unwrap_or_default();
    serde_json::from_slice::<Mark>(&text).is_ok_and(|found| found == *mark)
}

/// The configuration in its new places, and what it says.
fn configuration(archive: &Path, places: &Places) -> Result<(String, Config), CliError> {
    let mut text = None;
    let manifest = each(archive, |name, content| {
        if name == CONFIG {
            let mut packed = String::new();
            content.read_to_string(&mut packed)?;
            text = Some(packed);
        }
        Ok(())
    })?;
    let text = text.ok_or_else(|| damaged(archive, "it has no configuration"))?;
    let text = portable::placed(&text, &places.workdir, places.state.as_deref())?;
    let lookup = Lookup {
        explicit: Some(places.config.clone()),
        env: &|name| std::env::var_os(name),
        cwd: std::env::current_dir()?,
        called_as_original: false,
    };
    let all = config::parse(&text, &places.config, &lookup)
        .map_err(|error| CliError::from_error(ErrorKind::Configuration, &error))?;
    let config = all
        .into_iter()
        .find(|config| config.name == manifest.companion)
        .ok_or_else(|| damaged(archive, "its configuration has no such companion"))?;
    Ok((text, config))
}

/// Calls `on` with every file but the manifest, which it returns.
fn each(
    archive: &Path,
    mut on: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<Manifest, CliError> {
    let failed = |error: io::Error| damaged(archive, &error.to_string());
    let file = File::open(archive)
        .map_err(|error| CliError::failed(format!("could not read {}: {error}", archive.display())))?;
    let mut tar = tar::Archive::new(zstd::stream::read::Decoder::new(BufReader::new(file)).map_err(failed)?);
    let mut manifest = None;
    for entry in tar.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.into_owned();
        let name = path.to_str().unwrap_or_default().to_owned();
        if !is_ours(&path) || entry.header().entry_type() != tar::EntryType::Regular {
            return Err(damaged(archive, &format!("{} does not belong in it", path.display())));
        }
        if name == MANIFEST {
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(failed)?;
            manifest = Some(parse(archive, &text)?);
        } else {
            on(&name, &mut entry).map_err(failed)?;
        }
    }
    manifest.ok_or_else(|| damaged(archive, "it ends too early"))
}

fn parse(archive: &Path, text: &[u8]) -> Result<Manifest, CliError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let wrong = |error: serde_json::Error| damaged(archive, &error.to_string());
    let head: Head = serde_json::from_slice(text).map_err(wrong)?;
    if head.schema > SCHEMA {
        return Err(CliError::refused(format!(
            "{} was made by a newer version of kael-runner (form {}): restore it with that one",
            archive.display(),
            head.schema
        )));
    }
    serde_json::from_slice(text).map_err(wrong)
}

fn damaged(archive: &Path, how: &str) -> CliError {
    CliError::failed(format!(
        "{} is not a whole archive of kael-runner ({how}): nothing was changed",
        archive.display()
    ))
}

fn check(manifest: &Manifest, found: &[(String, (String, u64))]) -> Result<(), CliError> {
    let same = manifest.files.len() == found.len()
        && manifest.files.iter().zip(found).all(|(listed, (name, (sha256, len)))| {
            listed.path == *name && listed.sha256 == *sha256 && listed.len == *len
        });
    if same {
        return Ok(());
    }
    let bad = manifest
        .files
        .iter()
        .zip(found)
        .find(|(listed, (name, (sha256, _)))| listed.path != *name || listed.sha256 != *sha256);
    let what = bad.map_or("a file is missing", |(listed, _)| listed.path.as_str());
    Err(CliError::failed(format!("the archive is damaged ({what}): nothing was changed")))
}

/// Writes every file below the staging folder and compares what was written.
fn unfold(archive: &Path, staging: &Path) -> Result<Manifest, CliError> {
    for name in [STATE, TRANSCRIPTS] {
        // What an interrupted restore left.
        match fs::remove_dir_all(staging.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(staging.join(name))?,
        }
    }
    for name in [CONFIG, POINTER, HISTORY] {
        match fs::remove_file(staging.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let mut written = Vec::new();
    let manifest = each(archive, |name, content| {
        let path = staging.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        io::copy(content, &mut file)?;
        file.sync_all()?;
        written.push((name.to_owned(), path));
        Ok(())
    })?;
    let mut found = Vec::new();
    for (name, path) in written {
        found.push((name, digest_file(&path)?));
    }
    check(&manifest, &found)?;
    Ok(manifest)
}

/// Transcripts first, the state last: with its name everything is there.
fn bring_in(
    disk: &Disk,
    staging: &Path,
    manifest: &Manifest,
    config: &Config,
    mark: &Mark,
) -> Result<(), CliError> {
    fs::create_dir_all(&config.claude_workdir).map_err(|error| {
        CliError::failed(format!("could not make {}: {error}", config.claude_workdir.display()))
    })?;
    disk.private_dir(&config.project_dir)?;
    let transcripts: Vec<&str> =
        manifest.files.iter().filter_map(|file| file.path.strip_prefix("transcripts/")).collect();
    for name in &transcripts {
        let (from, to) = (staging.join(TRANSCRIPTS).join(name), config.project_dir.join(name));
        if fs::symlink_metadata(&to).is_ok() && digest_file(&to)? != digest_file(&from)? {
            return Err(there(&to, "it is another transcript of that name; move it away"));
        }
    }
    for name in &transcripts {
        let (from, to) = (staging.join(TRANSCRIPTS).join(name), config.project_dir.join(name));
        if fs::symlink_metadata(&to).is_ok() {
            continue;
        }
        let folder = to.parent().unwrap_or(&config.project_dir);
        disk.private_dir(folder)?;
        // With its whole content at once: a CLI may be reading the folder.
        let temporary = folder.join(format!(".{}.restoring", uuid::Uuid::new_v4().as_simple()));
        let placed =
            disk.copy_hashing(&from, &temporary).and_then(|_| disk.rename_noreplace(&temporary, &to));
        if placed.is_err() {
            fs::remove_file(&temporary).unwrap_or_default();
        }
        placed?;
        disk.sync_dir(folder)?;
    }
    let state = staging.join(STATE);
    relocate(disk, &state, manifest, config)?;
    for (name, to) in [(POINTER, String::new()), (HISTORY, ".history".to_owned())] {
        let from = staging.join(name);
        if from.exists() {
            let mut path = file_name(&config.resume_pointer_path);
            path.push_str(&to);
            disk.rename(&from, &state.join(path))?;
        }
    }
    let text = serde_json::to_vec(mark).map_err(|error| CliError::failed(error.to_string()))?;
    disk.replace(&state.join(MARK), &text)?;
    disk.own_private_dir(&state)?;
    disk.sync_dir(&state)?;
    disk.rename_noreplace(&state, &config.state_dir)?;
    disk.sync_dir(config.state_dir.parent().unwrap_or(Path::new("/")))?;
    Ok(())
}

/// What says where something is, says so of the new places.
fn relocate(disk: &Disk, state: &Path, manifest: &Manifest, config: &Config) -> Result<(), CliError> {
    let mut queue = Queue::open(state)?;
    queue.relocate(&manifest.project_dir, &config.project_dir)?;
    queue.set(Setting::Home, &companion::home(config))?;
    let store = OpStore::open(state, disk.clone())?;
    let guard = store.lock()?;
    let moved = [
        (manifest.state_dir.clone(), config.state_dir.clone()),
        (manifest.project_dir.clone(), config.project_dir.clone()),
    ];
    for mut operation in guard.list()?.operations {
        operation.relocate(&moved);
        guard.save(&mut operation)?;
    }
    Ok(())
}

fn clear(disk: &Disk, staging: &Path, lock: FileLock) -> Result<(), CliError> {
    disk.remove_folder(staging)?;
    drop(lock);
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
