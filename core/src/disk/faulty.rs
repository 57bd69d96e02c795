//! The fault-injecting twin: the real steps on real files, up to a planned fault.
//!
//! It keeps two pictures of every folder that was touched: the live one is the file system itself,
//! the durable one is in memory and moves on only when something is synced. When the plan says stop,
//! what was not synced can be taken away, as a power loss would; from then on every step is refused,
//! because the process it plays is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::content::folder_of;
use super::{Gate, Step, StepKind};

/// One planned fault. Steps are counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// At which step it strikes.
    pub at: u64,
    /// What strikes.
    pub fault: Fault,
}

/// What can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process ends, or the machine.
    Stop(When, Lose),
    /// From that step on, until [`Twin::make_room`], nothing that needs room succeeds.
    NoSpace,
    /// The first sync from that step on fails.
    SyncFails,
    /// That step, and only that one, fails with "operation not supported".
    Unsupported,
}

/// On which side of the step the stop falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It does not happen.
    Before,
    /// Half of what it writes is written; steps that write nothing happen.
    Torn,
    /// It happens, and nobody is told.
    After,
}

/// What is lost with the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lose {
    /// Nothing: only the process ended.
    Nothing,
    /// Content that was not synced; names survive (a renamed file without content).
    Data,
    /// Content and names that were not synced.
    Everything,
}

impl FaultPlan {
    /// No fault: for counting the steps.
    pub const NONE: Self = Self { at: u64::MAX, fault: Fault::SyncFails };
}

/// Tells what the planned fault did, and plays the gate of its [`Disk`](super::Disk).
#[derive(Clone)]
pub struct Twin {
    state: Arc<Mutex<State>>,
}

struct State {
    plan: FaultPlan,
    steps: u64,
    struck: bool,
    stopped: bool,
    has_room: bool,
    durable: Durable,
}

impl Twin {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                plan,
                steps: 0,
                struck: false,
                stopped: false,
                has_room: true,
                durable: Durable::default(),
            })),
        }
    }

    /// Steps that were asked for so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Whether the planned fault has struck; if not, the plan lies behind the last step.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.lock().struck
    }

    /// Ends [`Fault::NoSpace`].
    pub fn make_room(&self) {
        self.lock().has_room = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for Twin {
    fn around(&self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        if step.kind == StepKind::RenameAndSync {
            // One call in the product, two points at which a machine can end.
            let to = step.other.unwrap_or(step.path);
            let rename = Step { kind: StepKind::Rename, ..*step };
            state.around(&rename, &mut || fs::rename(step.path, to))?;
            let folder = folder_of(to);
            let sync = Step { kind: StepKind::SyncDir, path: &folder, other: None };
            return state.around(&sync, &mut || File::open(&folder)?.sync_all());
        }
        state.around(step, act)
    }
}

impl State {
    fn around(&mut self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        if self.stopped {
            return Err(gone());
        }
        let number = self.steps;
        self.steps += 1;
        self.durable.before(step)?;
        let is_sync = matches!(step.kind, StepKind::SyncFile | StepKind::SyncDir);
        match self.plan.fault {
            Fault::Stop(when, lose) if number == self.plan.at => {
                self.struck = true;
                self.stopped = true;
                let was = fs::metadata(step.path).map_or(0, |m| m.len());
                if when != When::Before && act().is_ok() {
                    if when == When::Torn && step.kind == StepKind::Write {
                        let file = OpenOptions::new().write(true).open(step.path)?;
                        let is = file.metadata()?.len();
                        file.set_len(was + is.saturating_sub(was) / 2)?;
                    }
                    self.durable.after(step)?;
                }
                self.durable.lose(lose)?;
                Err(gone())
            }
            Fault::NoSpace if number >= self.plan.at && !is_sync => {
                if !self.struck {
                    self.struck = true;
                    self.has_room = false;
                }
                let needs_room = matches!(
                    step.kind,
                    StepKind::Create
                        | StepKind::Write
                        | StepKind::MakeDir
                        | StepKind::Link
                        | StepKind::Commit
                );
                if needs_room && !self.has_room {
                    return Err(io::Error::from(io::ErrorKind::StorageFull));
                }
                self.perform(step, act)
            }
            Fault::SyncFails if number >= self.plan.at && is_sync && !self.struck => {
                self.struck = true;
                Err(io::Error::other("input/output error (planned)"))
            }
            Fault::Unsupported if number == self.plan.at => {
                self.struck = true;
                Err(io::Error::from(io::ErrorKind::Unsupported))
            }
            Fault::Stop(..) | Fault::NoSpace | Fault::SyncFails | Fault::Unsupported => {
                self.perform(step, act)
            }
        }
    }

    fn perform(&mut self, step: &Step<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()?;
        self.durable.after(step)
    }
}

fn gone() -> io::Error {
    io::Error::other("the process has ended (planned)")
}

/// What would be there after a power loss.
#[derive(Default)]
struct Durable {
    /// Folder, then name, then inode. Other things than regular files have inode 0.
    folders: HashMap<PathBuf, BTreeMap<OsString, u64>>,
    /// Synced content by inode. The open file keeps the inode's number from being used again.
    files: HashMap<u64, (File, Vec<u8>)>,
    /// Names that changed since their folder was synced.
    unsynced_names: BTreeSet<PathBuf>,
    /// Inodes that changed since they were synced.
    unsynced_files: BTreeSet<u64>,
}

impl Durable {
    fn before(&mut self, step: &Step<'_>) -> io::Result<()> {
        if step.kind == StepKind::Commit {
            return Ok(());
        }
        if step.kind == StepKind::SyncDir {
            return self.first_look(step.path);
        }
        for path in [Some(step.path), step.other].into_iter().flatten() {
            self.first_look(&folder_of(path))?;
        }
        Ok(())
    }

    /// What is there when a folder is first touched is taken for durable.
    fn first_look(&mut self, folder: &Path) -> io::Result<()> {
        if !self.folders.contains_key(folder) && folder.is_dir() {
            self.take_names(folder)?;
        }
        Ok(())
    }

    fn take_names(&mut self, folder: &Path) -> io::Result<()> {
        let mut names = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let inode = if metadata.is_file() { metadata.ino() } else { 0 };
            // The files of a database stay closed to us: closing them again would drop its locks.
            let of_database = entry.file_name().to_string_lossy().contains(".sqlite");
            if inode != 0 && !of_database && !self.files.contains_key(&inode) {
                self.take_content(&entry.path())?;
            }
            names.insert(entry.file_name(), inode);
        }
        self.folders.insert(folder.to_owned(), names);
        self.unsynced_names.retain(|path| folder_of(path) != folder);
        Ok(())
    }

    fn take_content(&mut self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let inode = file.metadata()?.ino();
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        self.files.insert(inode, (file, content));
        self.unsynced_files.remove(&inode);
        Ok(())
    }

    fn after(&mut self, step: &Step<'_>) -> io::Result<()> {
        match step.kind {
            // The database has made it durable itself.
            StepKind::Commit => {}
            StepKind::SyncFile => self.take_content(step.path)?,
            StepKind::SyncDir => self.take_names(step.path)?,
            StepKind::Write | StepKind::Truncate => {
                self.unsynced_files.insert(fs::metadata(step.path)?.ino());
            }
            StepKind::Create => {
                self.take_content(step.path)?;
                self.unsynced_names.insert(step.path.to_owned());
            }
            StepKind::MakeDir
            | StepKind::Rename
            | StepKind::RenameAndSync
            | StepKind::RenameNoreplace
            | StepKind::Exchange
            | StepKind::Link
            | StepKind::Remove => {
                self.unsynced_names.insert(step.path.to_owned());
                self.unsynced_names.extend(step.other.map(Path::to_owned));
            }
        }
        Ok(())
    }

    fn lose(&mut self, lose: Lose) -> io::Result<()> {
        if lose == Lose::Nothing {
            return Ok(());
        }
        for inode in std::mem::take(&mut self.unsynced_files) {
            if let Some((file, content)) = self.files.get_mut(&inode) {
                file.set_len(0)?;
                file.rewind()?;
                file.write_all(content)?;
            }
        }
        if lose == Lose::Data {
            return Ok(());
        }
        for path in std::mem::take(&mut self.unsynced_names) {
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path)?,
                Ok(_) => fs::remove_file(&path)?,
                Err(_) => {}
            }
            let name = path.file_name().unwrap_or_default();
            let inode = self.folders.get(&folder_of(&path)).and_then(|names| names.get(name));
            if let Some((_, content)) = inode.and_then(|inode| self.files.get(inode))
                && folder_of(&path).is_dir()
            {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
                file.write_all(content)?;
            }
        }
        Ok(())
    }
}
