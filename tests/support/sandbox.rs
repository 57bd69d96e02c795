//! A private home, working folder and state folder, removed with everything that runs in it.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use kael_runner::claude::marked;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Set in the environment of everything started here, so that the end of the test finds it again,
/// in whatever session or process group it is by then.
const MARK: &str = "KAEL_TEST_SANDBOX";

/// One test's world on disk.
pub struct Sandbox {
    dir: TempDir,
    mark: String,
}

impl Sandbox {
    /// Makes the folders.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("kael-test-").tempdir().unwrap();
        for name in ["home", "work", "state", "bin"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, mark: uuid::Uuid::new_v4().to_string() }
    }

    /// A path below the sandbox's root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// `HOME`.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Where the CLI runs: the companion's `claude_workdir`.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// For `state_dir`.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Writes a file below the root and returns its path.
    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Where the CLI keeps the transcripts of [`Sandbox::work`].
    pub fn project_dir(&self) -> PathBuf {
        // Temporary folders have short names without anything but ASCII: the simple rule is enough
        // here, and stays independent of the product's.
        let real = fs::canonicalize(self.work()).unwrap();
        let name: String =
            real.to_str().unwrap().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.home().join(".claude/projects").join(name)
    }

    /// The transcript of a session.
    pub fn transcript(&self, session: &str) -> PathBuf {
        self.project_dir().join(format!("{session}.jsonl"))
    }

    /// A command with an empty environment but for what a process cannot do without.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TMPDIR", self.dir.path())
            .env(MARK, &self.mark)
            .current_dir(self.work());
        command
    }

    /// The product's own binary.
    pub fn runner(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_kael-runner"))
    }

    /// Processes started in this sandbox that still live.
    pub fn survivors(&self) -> Vec<i32> {
        marked::carriers(MARK, &self.mark).into_iter().map(|pid| pid.as_raw_nonzero().get()).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // A process killed here may have forked just before: look until nobody is left.
        for _ in 0..20 {
            let survivors = self.survivors();
            if survivors.is_empty() {
                break;
            }
            for pid in survivors.into_iter().filter_map(Pid::from_raw) {
                // ESRCH only says that it ended by itself in between.
                kill_process(pid, Signal::KILL).ok();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
