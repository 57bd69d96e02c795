//! One companion: its configuration and where its things are. Opening it changes nothing and needs
//! no lock; the [`Keeper`](crate::keeper::Keeper) is the one who holds the lock and acts.

use std::path::PathBuf;
use std::sync::Arc;

use kael_core::clock::{Clock, SystemClock};
use kael_core::config::Config;
use kael_core::disk::{self, Disk};
use kael_core::ids::SessionId;
use kael_core::operation::OpStore;
use kael_core::pointer::Pointer;

use crate::cli::error::{CliError, ErrorKind};
use crate::queue::{Queue, Setting};

/// A companion's configuration, files and clock.
#[derive(Clone)]
pub struct Companion {
    /// Its configuration.
    pub config: Arc<Config>,
    /// The storage layer.
    pub disk: Disk,
    /// Its resume pointer.
    pub pointer: Pointer,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
}

impl Companion {
    /// The companion of this configuration, on the real disk and clock.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let disk = Disk::real();
        let pointer = Pointer::new(config.resume_pointer_path.clone(), disk.clone());
        Self { config: Arc::new(config), disk, pointer, clock: Arc::new(SystemClock) }
    }

    /// The same companion with a storage layer that has not failed yet.
    #[must_use]
    pub fn on_fresh_disk(&self) -> Self {
        let disk = Disk::real();
        let pointer = Pointer::new(self.config.resume_pointer_path.clone(), disk.clone());
        Self { config: self.config.clone(), disk, pointer, clock: self.clock.clone() }
    }

    /// Makes the state folder and the pointer's folder (0700) where they are missing.
    pub fn create_folders(&self) -> Result<(), CliError> {
        self.disk.private_dir(&self.config.state_dir)?;
        if let Some(folder) = self.config.resume_pointer_path.parent() {
            self.disk.private_dir(folder)?;
        }
        Ok(())
    }

    /// Opens the queue, creating it where it is missing. One that belongs to a companion in another folder is left
    /// alone: two folders of the same name have the same state folder, unless they are told otherwise.
    pub fn queue(&self) -> Result<Queue, CliError> {
        self.create_folders()?;
        let mut queue = Queue::open_on(&self.config.state_dir, &self.disk)?;
        let own = home(&self.config);
        let owner: Option<PathBuf> = queue.get(Setting::Home)?;
        match owner {
            Some(owner) if owner == own => {}
            Some(owner) if owner.is_dir() => {
                return Err(CliError::new(
                    ErrorKind::Configuration,
                    format!(
                        "the state folder {} belongs to the companion in {}, and this one works in {}: give it a \
                         state_dir of its own in {}",
                        self.config.state_dir.display(),
                        owner.display(),
                        own.display(),
                        self.config.path.display()
                    ),
                ));
            }
            // New, or its folder was moved here.
            Some(_) | None => queue.set(Setting::Home, &own)?,
        }
        Ok(queue)
    }

    /// Whether the state folder is used by a companion in another folder.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        // Looked at without making anything.
        self.config.state_dir.join("queue.sqlite").is_file()
            && self.queue().is_err_and(|error| error.kind == ErrorKind::Configuration)
    }

    /// Opens the operations.
    pub fn store(&self) -> Result<OpStore, CliError> {
        self.create_folders()?;
        Ok(OpStore::open(&self.config.state_dir, self.disk.clone())?)
    }

    /// The transcript of a session.
    #[must_use]
    pub fn transcript(&self, session: SessionId) -> PathBuf {
        self.config.project_dir.join(format!("{session}.jsonl"))
    }

    /// The file whose lock makes a process the runner of this pointer.
    #[must_use]
    pub fn runner_lock(&self) -> PathBuf {
        let mut path = self.config.resume_pointer_path.clone().into_os_string();
        path.push(".runner");
        path.into()
    }

    /// Who holds the runner's lock, for a message.
    #[must_use]
    pub fn holder(&self) -> String {
        disk::holder(&self.runner_lock()).unwrap_or_else(|| "another process".to_owned())
    }

    /// Whether some process holds the runner's lock.
    pub fn runner_lives(&self) -> Result<bool, CliError> {
        Ok(disk::is_locked(&self.runner_lock())?)
    }

    /// The session of this text, or a usage error.
    pub fn session(text: &str) -> Result<SessionId, CliError> {
        text.parse().map_err(|error| CliError::from_error(ErrorKind::Usage, &error))
    }
}

/// The folder that tells this companion from others: the one it works in, by its real path.
#[must_use]
pub fn home(config: &Config) -> PathBuf {
    config.claude_workdir.canonicalize().unwrap_or_else(|_| config.claude_workdir.clone())
}
