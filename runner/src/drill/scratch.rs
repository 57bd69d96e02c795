//! What a drill makes, and how all of it goes away again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kael_core::config::{self, Activation, Config, Lookup, SystemdScope, project_dir};
use kael_core::disk::{Disk, FileLock};
use kael_core::ids::SessionId;
use kael_core::switch::{quoted, quoted_line, systemctl};
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::claude::marked;
use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;
use crate::setup;

/// In the environment of everything that a drill starts.
pub(super) const MARK: &str = "KAEL_DRILL";
/// Folders of drills in the working folder.
const PREFIX: &str = ".kael-drill-";

/// One drill's folder, session and place.
pub(super) struct Scratch {
    pub(super) id: String,
    folder: PathBuf,
    project: PathBuf,
    activation: Activation,
    scope: SystemdScope,
    env: BTreeMap<String, String>,
    _lock: FileLock,
}

impl Scratch {
    /// Makes the folder and the configuration of a companion in it that differs from the real one only in where it is.
    pub(super) fn make(real: &Config, flags: &[String]) -> Result<Self, CliError> {
        let id = uuid::Uuid::new_v4().as_simple().to_string();
        let folder = real.claude_workdir.join(format!("{PREFIX}{id}"));
        let disk = Disk::real();
        disk.private_dir(&folder)?;
        disk.private_dir(&folder.join("state"))?;
        let lock = disk.lock(&folder.join("state/drill.lock"))?;
        let work = folder.canonicalize()?;
        let env =
            |name: &str| real.claude.env.get(name).map(OsString::from).or_else(|| std::env::var_os(name));
        let project = project_dir::derive(&work, &env)
            .ok_or_else(|| CliError::failed("HOME is not set: the CLI's folder is not known"))?;
        let mut command =
            vec![setup::program_of(real).to_owned(), "--resume".to_owned(), "{session_id}".to_owned()];
        if real.activation == Activation::Systemd {
            let streaming =
                ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
            command.extend(streaming.map(str::to_owned));
        }
        command.extend(flags.iter().cloned());
        let mut text = format!(
            "activation = {:?}\nclaude_workdir = {}\nstate_dir = {}\nresume_command = {}\nactivation_delay_seconds = 0\n\
             healthcheck_seconds = {}\nstable_file_seconds = {}\n",
            real.activation.as_str(),
            json!(work),
            json!(work.join("state")),
            json!(command),
            real.healthcheck.as_secs_f64(),
            real.stable_file.as_secs_f64(),
        );
        match real.activation {
            Activation::Pointer => {}
            Activation::Tmux => {
                let socket = json!(work.join("state/tmux.sock"));
                text.push_str(&format!("tmux_target = \"drill:0.0\"\ntmux_socket = {socket}\n"));
            }
            Activation::Systemd => {
                let unit = unit_name(&id);
                text.push_str(&format!(
                    "systemd_unit = {unit:?}\nsystemd_scope = {:?}\n",
                    real.systemd_scope.as_str()
                ));
            }
        }
        // Two short turns are never worth a rebuild; here it is the point.
        text.push_str("[runner]\nrebuild = \"off\"\nmin_gain_percent = 0\n[claude.env]\n");
        for (name, value) in &real.claude.env {
            text.push_str(&format!("{} = {}\n", json!(name), json!(value)));
        }
        disk.create_new(&folder.join("state/config.toml"), text.as_bytes())?;
        let (activation, scope) = (real.activation, real.systemd_scope);
        Ok(Self { id, folder, project, activation, scope, env: real.claude.env.clone(), _lock: lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The companion of the drill.
    pub(super) fn companion(&self) -> Result<Companion, CliError> {
        let lookup = Lookup {
            explicit: Some(self.folder.join("state/config.toml")),
            env: &|name| std::env::var_os(name),
            cwd: self.folder.clone(),
            called_as_original: false,
        };
        let mut all =
            config::load(&lookup).map_err(|error| CliError::from_error(ErrorKind::Configuration, &error))?;
        let config = all.pop().ok_or_else(|| CliError::failed("the drill has no configuration"))?;
        Ok(Companion::new(config))
    }

    /// Starts the pane or unit on that session and waits until it is well.
    pub(super) fn open(&self, companion: &Companion, session: SessionId) -> Result<(), CliError> {
        let config = &companion.config;
        let id = session.to_string();
        let argv: Vec<String> =
            config.resume_command.iter().map(|part| part.replace("{session_id}", &id)).collect();
        match self.activation {
            Activation::Pointer => return Ok(()),
            Activation::Tmux => {
                let line = format!(
                    "cd -- {} && exec {}",
                    quoted(&self.folder.to_string_lossy()),
                    quoted_line(&argv)
                );
                let mut tmux = self.tmux();
                tmux.args(["-f", "/dev/null", "new-session", "-d", "-s", "drill", "-x", "120", "-y", "40"]);
                run(tmux.args(["/bin/sh", "-c", &line]).env(MARK, &self.id).envs(&self.env))?;
            }
            Activation::Systemd => {
                fs::write(self.unit_file()?, self.unit(companion)?)?;
                run(systemctl(self.scope).arg("daemon-reload"))?;
                run(systemctl(self.scope).args(["start", &unit_name(&self.id)]))?;
            }
        }
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while setup::session_now(config) != Some(session) {
            if std::time::Instant::now() >= until {
                return Err(CliError::failed("claude did not start in the drill's pane or unit within 60 s"));
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Ok(())
    }

    fn unit(&self, companion: &Companion) -> Result<String, CliError> {
        let config = &companion.config;
        let program = std::env::current_exe()?;
        let input = self.folder.join("state/input");
        let script = format!(
            "mkfifo -m 600 {input} 2>/dev/null; session=$({program} --config {config} pointer show --locked) || exit 78; \
             exec {before} \"$session\" {after} 0<>{input}",
            input = quoted(&input.to_string_lossy()),
            program = quoted(&program.to_string_lossy()),
            config = quoted(&config.path.to_string_lossy()),
            before = quoted_line(&config.resume_command[..2.min(config.resume_command.len())]),
            after = quoted_line(config.resume_command.get(3..).unwrap_or_default()),
        );
        let file = self.folder.join("state/start");
        companion.disk.replace(&file, format!("#!/bin/sh\n{script}\n").as_bytes())?;
        let mut unit = format!(
            "[Unit]\nDescription=A drill of kael-runner\n[Service]\nType=exec\nWorkingDirectory={}\nExecStart=/bin/sh \
             {}\nSuccessExitStatus=143\nTimeoutStopSec=30\nStandardOutput=null\nStandardError=null\nEnvironment={MARK}={}\n",
            self.folder.display(),
            file.display(),
            self.id
        );
        // What this command runs with, the unit needs as well; in a file of its own, as it may hold a key.
        let names = std::env::vars().filter(|(name, _)| {
            name == "PATH"
                || name == "HOME"
                || name.starts_with("ANTHROPIC_")
                || name.starts_with("CLAUDE_")
                || name.starts_with("DISABLE_")
        });
        let all: BTreeMap<String, String> = names.chain(self.env.clone()).collect();
        let lines: String = all.iter().map(|(name, value)| format!("{name}={}\n", json!(value))).collect();
        let environment = self.folder.join("state/environment");
        companion.disk.replace(&environment, lines.as_bytes())?;
        unit.push_str(&format!("EnvironmentFile={}\n", environment.display()));
        Ok(unit)
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.folder.join("state/tmux.sock"));
        tmux
    }

    fn unit_file(&self) -> Result<PathBuf, CliError> {
        unit_folder(self.scope).map(|folder| folder.join(unit_name(&self.id)))
    }

    /// Ends pane or unit, in an orderly way.
    pub(super) fn close(&mut self) {
        close(&self.folder, &self.id, self.activation, self.scope);
    }

    /// Takes everything away; what could not be, in words.
    pub(super) fn clean(mut self) -> Vec<String> {
        self.close();
        remove(&self.folder, &self.project, &self.id)
    }
}

fn unit_name(id: &str) -> String {
    format!("kael-drill-{id}.service")
}

/// Where units of now and only now are.
fn unit_folder(scope: SystemdScope) -> Result<PathBuf, CliError> {
    let folder = match scope {
        SystemdScope::System => PathBuf::from("/run/systemd/system"),
        SystemdScope::User => std::env::var_os("XDG_RUNTIME_DIR")
            .map(|dir| PathBuf::from(dir).join("systemd/user"))
            .ok_or_else(|| {
                CliError::failed("XDG_RUNTIME_DIR is not set: there is no manager of this user")
            })?,
    };
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn run(command: &mut Command) -> Result<(), CliError> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    Err(CliError::failed(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn close(folder: &Path, id: &str, activation: Activation, scope: SystemdScope) {
    // What is not there any more needs no end.
    match activation {
        Activation::Pointer => {}
        Activation::Tmux => {
            drop(
                Command::new("tmux")
                    .arg("-S")
                    .arg(folder.join("state/tmux.sock"))
                    .arg("kill-server")
                    .output(),
            );
        }
        Activation::Systemd => {
            drop(run(systemctl(scope).args(["stop", &unit_name(id)])));
            if let Ok(units) = unit_folder(scope)
                && fs::remove_file(units.join(unit_name(id))).is_ok()
            {
                drop(run(systemctl(scope).arg("daemon-reload")));
                drop(run(systemctl(scope).args(["reset-failed", &unit_name(id)])));
            }
        }
    }
    // The end of a pane is the end of its processes, in a moment; a helper in a session of its own needs more.
    for round in 0..100 {
        let left = marked::carriers(MARK, id);
        if left.is_empty() {
            return;
        }
        let signal = if round < 60 { Signal::TERM } else { Signal::KILL };
        if round == 20 || round >= 60 {
            for pid in left {
                kill_process(pid, signal).unwrap_or_default();
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn remove(folder: &Path, project: &Path, id: &str) -> Vec<String> {
    let mut left: Vec<String> =
        marked::carriers(MARK, id).iter().map(|pid| format!("process {}", pid.as_raw_nonzero())).collect();
    for path in [folder, project] {
        // Only folders that carry the drill's own name: never the live session's.
        if !path.to_string_lossy().contains(id) {
            continue;
        }
        match fs::remove_dir_all(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => left.push(format!("{}: {error}", path.display())),
        }
    }
    left
}

/// Takes away what an earlier drill left that was killed.
pub(super) fn sweep(real: &Config) {
    for entry in fs::read_dir(&real.claude_workdir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix(PREFIX) else { continue };
        let folder = entry.path();
        // One that runs holds its lock.
        if id.len() != 32 || kael_core::disk::is_locked(&folder.join("state/drill.lock")).unwrap_or(false) {
            continue;
        }
        close(&folder, id, real.activation, real.systemd_scope);
        let env =
            |name: &str| real.claude.env.get(name).map(OsString::from).or_else(|| std::env::var_os(name));
        let project = folder.canonicalize().ok().and_then(|work| project_dir::derive(&work, &env));
        let left = remove(&folder, &project.unwrap_or_default(), id);
        eprintln!(
            "! took away what an earlier drill had left{}",
            if left.is_empty() { "" } else { ", most of it" }
        );
    }
}
