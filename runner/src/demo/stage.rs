//! The demo's companion: folders of its own, an ordinary configuration, the stand-in under the name `claude`, and
//! the product's own commands, run as a person runs them.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::claude::marked;
use crate::cli::error::{CliError, ErrorKind};
use crate::queue::Queue;

/// Longest wait for anything in the demo; it is far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The folders of the demo.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Everything is below this.
    pub root: PathBuf,
}

/// What a command said.
pub struct Said {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub text: String,
    /// What it printed to standard error, without the word in front.
    pub error: String,
}

/// A runner in the background; ended with the demo however that ends.
pub struct Runner(Child);

impl Stage {
    /// Makes home, working folder with something to look at, configuration, and the stand-in called `claude`, which
    /// thinks until [`Stage::enough`] when it is asked to take its time.
    pub fn set(root: PathBuf) -> Result<Self, CliError> {
        let stage = Self { root };
        for folder in ["home", "bin", "shed"] {
            fs::create_dir_all(stage.root.join(folder))?;
        }
        for (side, text) in inventory() {
            fs::write(stage.root.join("shed").join(format!("{side}.txt")), text)?;
        }
        let program = stage.root.join("bin/claude");
        std::os::unix::fs::symlink(std::env::current_exe()?, &program)?;
        let text = format!(
            "# The demo's companion: an ordinary configuration, with a small budget so that the demo is short.\n\
             activation = \"pointer\"\nclaude_workdir = {:?}\nstate_dir = {:?}\n\
             resume_command = [{program:?}, \"--resume\", \"{{session_id}}\"]\n\
             dirty_budget_bytes = 40960\nstable_file_seconds = 0.3\n\
             [runner]\nrebuild = \"ask\"\n\
             [claude]\nargs = [\"--allowedTools\", \"Bash\"]\n\
             [claude.env]\nKAEL_STANDIN_PATIENCE_MS = \"60000\"\nKAEL_STANDIN_GO = {:?}\n",
            stage.root.join("shed"),
            stage.root.join("state"),
            stage.root.join("go"),
        );
        fs::write(stage.root.join("config.toml"), text)?;
        Ok(stage)
    }

    /// The companion's state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The file of the resume pointer.
    #[must_use]
    pub fn pointer(&self) -> PathBuf {
        self.state().join("resume_session")
    }

    /// The transcript of a session. There is one project folder, made by the first turn.
    #[must_use]
    pub fn transcript(&self, session: &str) -> PathBuf {
        let projects = self.root.join("home/.claude/projects");
        let folder = fs::read_dir(projects).ok().and_then(|mut all| all.next()?.ok());
        folder.map(|entry| entry.path()).unwrap_or_default().join(format!("{session}.jsonl"))
    }

    /// Who was asked to take their time has had enough of it.
    pub fn enough(&self) -> Result<(), CliError> {
        Ok(fs::write(self.root.join("go"), "")?)
    }

    /// What the pointer's file holds.
    pub fn points_to(&self) -> Result<String, CliError> {
        Ok(fs::read_to_string(self.pointer())?.trim().to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Result<Command, CliError> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .env_clear()
            .env("HOME", self.root.join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(self.root.join("shed"))
            .arg("--config")
            .arg(self.root.join("config.toml"))
            .args(arguments)
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Result<Said, CliError> {
        let output = self.command(arguments)?.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
        let error = text(&output.stderr);
        Ok(Said {
            code: output.status.code().unwrap_or(-1),
            text: text(&output.stdout),
            error: error.strip_prefix("error: ").unwrap_or(&error).to_owned(),
        })
    }

    /// Runs a command that must succeed.
    pub fn done(&self, arguments: &[&str]) -> Result<String, CliError> {
        let said = self.run(arguments)?;
        if said.code == 0 {
            return Ok(said.text);
        }
        Err(CliError::failed(format!("`kael-runner {}` failed: {}", arguments.join(" "), said.error)))
    }

    /// Runs a command and reads its JSON, whatever its exit code is.
    pub fn json(&self, arguments: &[&str]) -> Result<(Value, i32), CliError> {
        let said = self.run(&[arguments, &["--json"]].concat())?;
        let text = if said.text.is_empty() { &said.error } else { &said.text };
        let value = serde_json::from_str(text).map_err(|_| {
            CliError::failed(format!("`kael-runner {}` printed no JSON: {text}", arguments.join(" ")))
        })?;
        Ok((value, said.code))
    }

    /// The chat with the runner, in this terminal, until its human leaves.
    pub fn attach(&self) -> Result<(), CliError> {
        let mut command = self.command(&["attach"])?;
        let passed = ["TERM", "COLORTERM", "NO_COLOR"];
        command.envs(passed.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let status = command.stdin(Stdio::inherit()).status()?;
        if status.success() { Ok(()) } else { Err(CliError::failed(format!("the chat ended with {status}"))) }
    }

    /// Starts the runner and waits until it listens.
    pub fn start(&self) -> Result<Runner, CliError> {
        let path = self.root.join("runner.log");
        let log = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        let mut command = self.command(&["run"])?;
        // Ctrl-C is the demo's, which ends the runner itself.
        command.stderr(log).stdout(Stdio::null()).process_group(0);
        let mut runner = Runner(command.spawn()?);
        self.wait("the runner listens", || {
            if let Some(status) = runner.0.try_wait()? {
                let said = fs::read_to_string(&path)?;
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(CliError::failed(format!("the runner ended at once ({status}): {last}")));
            }
            Ok(self.json(&["status"])?.0["runner"]["lives"] == true)
        })?;
        Ok(runner)
    }

    /// Waits until a condition holds.
    pub fn wait(
        &self,
        what: &str,
        mut holds: impl FnMut() -> Result<bool, CliError>,
    ) -> Result<(), CliError> {
        let deadline = Instant::now() + PATIENCE;
        // What is waited for is there at once or, on a machine that is busy, later: looking often would keep it busy.
        let mut pause = Duration::from_millis(5);
        while !holds()? {
            if Instant::now() > deadline {
                return Err(CliError::failed(format!("waited {PATIENCE:?} in vain until {what}")));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The processes of the turn that is running now.
    pub fn at_work(&self) -> Result<Vec<Pid>, CliError> {
        let queue = Queue::open(&self.state())?;
        let open = queue.unresolved_invocations()?;
        Ok(open.iter().flat_map(|invocation| marked::processes(invocation.id)).collect())
    }
}

impl Runner {
    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// `kill -9`, for the runner and for those.
    pub fn kill(mut self, others: &[Pid]) -> Result<(), CliError> {
        self.0.kill()?;
        self.0.wait()?;
        for &pid in others {
            // One that has just ended by itself was not in the middle of anything; the claims will say so.
            kill_process(pid, Signal::KILL).unwrap_or_default();
        }
        Ok(())
    }

    /// Tells it to stop and waits until it has.
    pub fn stop(self) -> Result<(), CliError> {
        drop(self);
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// Uses `folder`, which must be empty or absent: files of an earlier demo would be taken for this one's.
pub fn fresh_folder(folder: &Path) -> Result<PathBuf, CliError> {
    fs::create_dir_all(folder)?;
    if fs::read_dir(folder)?.next().is_some() {
        return Err(CliError::new(
            ErrorKind::Refused,
            format!("{} is not empty: name a new folder with --keep, or empty this one", folder.display()),
        ));
    }
    Ok(folder.canonicalize()?)
}

/// A folder of random name that is removed when the demo ends.
pub struct Temporary(pub PathBuf);

impl Temporary {
    /// Makes it.
    pub fn make() -> Result<Self, CliError> {
        use std::os::unix::fs::DirBuilderExt;
        let name = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("kael-demo-{}", &name[..12]));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path.canonicalize()?))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Reads one line of standard input; `None` at its end.
pub fn typed_line() -> Result<Option<String>, CliError> {
    let mut line = Vec::new();
    for byte in std::io::stdin().lock().bytes() {
        match byte? {
            b'\n' => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            byte => line.push(byte),
        }
    }
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// What lies in the shed. Looking at it is what makes the noise.
fn inventory() -> [(&'static str, String); 2] {
    ["left", "right"].map(|side| {
        let shelf = |n| format!("{side} shelf {n}: a box of nails, some rope, a tin of paint\n");
        (side, (1..=240).map(shelf).collect())
    })
}
