//! Taking something that was said out of a companion: the conversation, its copies, and everything kept about it.
//!
//! This is the only thing in the product that rewrites old transcripts. It is done by a human, outside of any turn, while no
//! runner lives and nothing is open. What is kept of it says that something was forgotten, when, and how the digests of
//! files changed; never what.
//!
//! | module | what |
//! |---|---|
//! | `words` | what is to be forgotten, in all its spellings |
//! | `json` | JSON without it, everything else byte for byte |
//! | `files` | which files, one rewritten |
//!
//! Each file is replaced whole, the queue in one transaction, and doing it again does what is left: an interruption is
//! mended by the same command. What is covered is this companion's own: its sessions' transcripts, its state folder with
//! queue, operations, artifacts, kept copies and logs. Not covered: paraphrases, what a tool wrote elsewhere, backups, and
//! blocks of a disk that are free but not overwritten.

mod files;
mod json;
mod words;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use kael_core::rebuild::{self, Show};
use serde::{Deserialize, Serialize};

use crate::cli::error::{CliError, ErrorKind};
use crate::facts;
use crate::keeper::Keeper;
use crate::kept::{self, Copy};
use crate::queue::Setting;

pub use files::Holder;
pub use json::Kind;
pub use words::Words;

/// In the state folder: that something was forgotten, one JSON line an event.
const LOG: &str = "forgotten.jsonl";

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Event {
    forget: String,
    at: kael_core::clock::Timestamp,
    event: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_sha256: Option<String>,
}

/// Where the words stand.
#[derive(Debug, Default)]
pub struct Found {
    /// In lines of the present transcript.
    pub in_conversation: u64,
    /// Files, the present transcript among them.
    pub files: Vec<Holder>,
    /// Values of the queue.
    pub in_queue: u64,
    /// Files of others that hold the words, too, and are left alone.
    pub elsewhere: Vec<PathBuf>,
}

impl Found {
    /// Whether there is nothing to forget.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.in_queue == 0
    }
}

/// What certain lines of the present transcript say.
///
/// # Errors
/// When nothing is said in them.
pub fn words_of_lines(keeper: &Keeper, (from, to): (u64, u64)) -> Result<Words, CliError> {
    let plan = keeper.plan_now(None)?;
    let source = keeper.companion.transcript(plan.source_session);
    let mut lines = Vec::new();
    let mut ids = HashSet::new();
    let mut derived = Vec::new();
    rebuild::show(&plan, &source, Show::Carried, &mut |item| {
        if (from..=to).contains(&item.line) {
            lines.push(item.line);
            ids.extend(item.source);
            derived.push(item.text);
        }
        true
    })?;
    if lines.is_empty() {
        return Err(CliError::refused(format!(
            "nothing is said in the lines {from} to {to} of {}: `kael-runner plan --show carried` lists what is, with its \
             lines",
            source.display()
        )));
    }
    let (mut texts, more) = files::said_in(&source, &lines)?;
    ids.extend(more);
    if texts.is_empty() {
        texts = derived;
    }
    Words::rows(&texts, ids)
}

/// Refuses where something is under way that a rewritten transcript could confuse.
///
/// # Errors
/// Busy, with what to do first.
pub fn refuse_unless_quiet(keeper: &Keeper) -> Result<(), CliError> {
    let busy = |why: String| Err(CliError::new(ErrorKind::Busy, why));
    if let Some(turn) = keeper.queue.open_turn()? {
        return busy(format!(
            "turn {} is open: let it be answered first, or give it up with `kael-runner skip`; nothing was changed",
            turn.id
        ));
    }
    if let Some(operation) = keeper.store.active()? {
        return busy(format!(
            "operation {} is {}: bring it to its end first, or take it back with `kael-runner cancel`; nothing was changed",
            operation.id,
            operation.status()
        ));
    }
    Ok(())
}

/// Looks for the words everywhere.
///
/// # Errors
/// When something cannot be read.
pub fn look(keeper: &mut Keeper, words: &Words) -> Result<Found, CliError> {
    let mut found = Found::default();
    let companion = keeper.companion.clone();
    let current = companion.pointer.read()?.session().map(|session| companion.transcript(session));
    for path in own_files(keeper)? {
        let Some(holder) = files::look(words, &path)? else { continue };
        if Some(&holder.path) == current.as_ref() {
            found.in_conversation = holder.lines;
        }
        found.files.push(holder);
    }
    found.in_queue =
        keeper.queue.rewrite(&|text, there| replaced(words, text, there), &|id| words.is_there(id), true)?;
    let own: HashSet<PathBuf> = found.files.iter().map(|holder| holder.path.clone()).collect();
    for path in neighbours(&companion.config.project_dir) {
        if !own.contains(&path) && files::look(words, &path)?.is_some() {
            found.elsewhere.push(path);
        }
    }
    Ok(found)
}

fn replaced(words: &Words, text: &[u8], there: bool) -> Option<Vec<u8>> {
    json::without(words, text, if there { Kind::There } else { Kind::Plain })
}

/// Forgets them.
///
/// # Errors
/// When something cannot be written. What is done is done; the same command does the rest.
pub fn forget(keeper: &mut Keeper, words: &Words, found: &Found) -> Result<(), CliError> {
    let id = uuid::Uuid::new_v4().to_string();
    note(keeper, &id, "begun", None)?;
    let companion = keeper.companion.clone();
    for holder in &found.files {
        note(keeper, &id, "file", Some(holder))?;
        files::rewrite(words, &companion.disk, &holder.path)?;
    }
    keeper.queue.rewrite(&|text, there| replaced(words, text, there), &|id| words.is_there(id), false)?;
    keeper.queue.clear(Setting::Ledger)?;
    correct(keeper)?;
    note(keeper, &id, "done", None)
}

/// What is said of the rewritten files is said of what they are now.
fn correct(keeper: &Keeper) -> Result<(), CliError> {
    let mut digests: HashMap<String, String> = HashMap::new();
    for event in events(keeper)? {
        if let (Some(old), Some(new)) = (event.old_sha256, event.new_sha256) {
            // What was rewritten twice goes from its first digest to the last.
            for latest in digests.values_mut().filter(|latest| **latest == old) {
                latest.clone_from(&new);
            }
            digests.insert(old, new);
        }
    }
    let guard = keeper.store.lock()?;
    for mut operation in guard.list()?.operations {
        if operation.rewritten(&digests)? {
            guard.save(&mut operation)?;
        }
    }
    let mut copied = BTreeSet::new();
    files_in(&kept::folder(&keeper.companion.config.state_dir), &mut copied);
    for path in copied {
        let session = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let Some(session) = session.filter(|_| path.extension().is_some_and(|end| end == "jsonl")) {
            Copy::of(&keeper.companion, session).note_rewritten(&keeper.companion.disk)?;
        }
    }
    Ok(())
}

/// An interrupted one, if there is: since when.
///
/// # Errors
/// When the log cannot be read.
pub fn unfinished(keeper: &Keeper) -> Result<Option<kael_core::clock::Timestamp>, CliError> {
    let events = events(keeper)?;
    let last = events.iter().rev().find(|event| event.event == "begun");
    let done = |id: &str| events.iter().any(|event| event.event == "done" && event.forget == id);
    Ok(last.filter(|begun| !done(&begun.forget)).map(|begun| begun.at))
}

fn events(keeper: &Keeper) -> Result<Vec<Event>, CliError> {
    match fs::read_to_string(keeper.companion.config.state_dir.join(LOG)) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn note(keeper: &Keeper, forget: &str, event: &str, holder: Option<&Holder>) -> Result<(), CliError> {
    let event = Event {
        forget: forget.to_owned(),
        at: keeper.companion.clock.now(),
        event: event.to_owned(),
        path: holder.map(|holder| holder.path.clone()),
        old_sha256: holder.map(|holder| holder.old_sha256.clone()),
        new_sha256: holder.map(|holder| holder.new_sha256.clone()),
    };
    let line = serde_json::to_string(&event).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(keeper.companion.disk.append_line(&keeper.companion.config.state_dir.join(LOG), &line)?)
}

/// The companion's own files: transcripts of its sessions and of their subagents, and everything in the state folder but
/// SQLite's files, which are rewritten by SQLite, and the log of forgetting.
fn own_files(keeper: &Keeper) -> Result<Vec<PathBuf>, CliError> {
    let companion = &keeper.companion;
    let mut paths = Vec::new();
    for session in facts::known_sessions(companion)? {
        files::below(&companion.transcript(session), &mut paths)?;
        files::below(&companion.config.project_dir.join(session.to_string()), &mut paths)?;
    }
    let mut state = Vec::new();
    files::below(&companion.config.state_dir, &mut state)?;
    paths.extend(state.into_iter().filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !name.contains(".sqlite") && !name.ends_with(".pieces") && name != LOG
    }));
    Ok(paths)
}

/// Other transcripts of the folder, and the CLI's own record of what was typed.
fn neighbours(project_dir: &Path) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    files_in(project_dir, &mut paths);
    let typed = project_dir.ancestors().nth(2).map(|folder| folder.join("history.jsonl"));
    paths.extend(typed.filter(|path| path.is_file()));
    paths
}

fn files_in(folder: &Path, out: &mut BTreeSet<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    out.extend(entries.map(|entry| entry.path()).filter(|path| {
        path.extension().is_some_and(|end| end == "jsonl")
            && fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
    }));
}
