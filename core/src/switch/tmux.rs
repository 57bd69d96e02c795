//! A tmux pane in which `claude` lives.
//!
//! The pane is found by exact comparison in tmux's own list: tmux itself takes `cc:0.0` for the beginning of a name,
//! or a pattern, when there is no such session. From then on it is addressed by its `%id`, which nobody else gets.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::place::{EXIT_GRACE, output};
use super::process::SessionProcess;
use super::processes::{self, Process, base_name};
use super::quote::{quoted, quoted_line};
use super::{Credential, SwitchError};
use crate::ids::SessionId;

/// How long a tmux command may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Shells that a person types in; their quoting of words is that of `sh`.
const SHELLS: [&str; 6] = ["bash", "zsh", "sh", "dash", "ksh", "ash"];

/// Where the pane is and what runs in it.
pub struct TmuxPane {
    /// Socket of the server, if it is not the default one.
    pub socket: Option<PathBuf>,
    /// `session:window.pane`, `session`, or `%id`.
    pub target: String,
    /// The argv that resumes a session, `{session_id}` in it.
    pub resume_command: Vec<String>,
    /// The folder it runs in.
    pub workdir: PathBuf,
    /// What `remain-on-exit` was, as long as it is ours, and the shell that the pane began with.
    state: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    remain: Option<String>,
    shell: Option<String>,
}

/// A pane as tmux lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// `%id`.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// Whether that has ended (`remain-on-exit`).
    pub dead: bool,
    /// Its exit status or signal, once it has.
    pub status: String,
    /// `session:window.pane`, as people write it.
    pub name: String,
    window_index: String,
    window_id: String,
    pane_index: String,
    session: String,
    window_name: String,
}

const FORMAT: &str = "#{pane_id} #{pane_pid} #{pane_dead} #{?pane_dead_status,#{pane_dead_status},-} #{window_index} \
                      #{window_id} #{pane_index} #{session_name}:#{window_name}";

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(8, ' ');
        let mut next = || parts.next().map(str::to_owned);
        let (id, pid, dead, status) = (next()?, next()?, next()?, next()?);
        let (window_index, window_id, pane_index, names) = (next()?, next()?, next()?, next()?);
        // A session's name cannot hold a colon; a window's can hold anything.
        let (session, window_name) = names.split_once(':')?;
        Some(Self {
            id,
            pid: pid.parse().ok()?,
            dead: dead == "1",
            status,
            name: format!("{session}:{window_index}.{pane_index}"),
            window_index,
            window_id,
            pane_index,
            session: session.to_owned(),
            window_name: window_name.to_owned(),
        })
    }

    /// Whether the target means this pane, part by part and letter by letter; parts that are left out fit any.
    fn is(&self, target: &str) -> bool {
        let target = target.strip_prefix('=').unwrap_or(target);
        if target.starts_with('%') {
            return self.id == target;
        }
        let Some((session, rest)) = target.split_once(':') else { return self.session == target };
        if session != self.session {
            return false;
        }
        let window_is = |window: &str| {
            window.is_empty()
                || [&self.window_index, &self.window_id, &self.window_name].iter().any(|own| *own == window)
        };
        let whole = window_is(rest);
        let parts = rest
            .rsplit_once('.')
            .is_some_and(|(window, pane)| window_is(window) && (pane == self.pane_index || pane == self.id));
        whole || parts
    }
}

impl TmuxPane {
    /// A pane; nothing is looked at.
    #[must_use]
    pub fn new(socket: Option<PathBuf>, target: &str, resume_command: &[String], workdir: PathBuf) -> Self {
        Self {
            socket,
            target: target.to_owned(),
            resume_command: resume_command.to_vec(),
            workdir,
            state: RefCell::default(),
        }
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String, SwitchError> {
        let mut command = Command::new("tmux");
        command.arg("-u");
        if let Some(socket) = &self.socket {
            command.arg("-S").arg(socket);
        }
        output(command.args(arguments), PATIENCE)
    }

    /// The pane that the target means; exactly one must.
    ///
    /// # Errors
    /// [`SwitchError::Setup`] with what there is instead.
    pub fn find(&self) -> Result<Listed, SwitchError> {
        let text = self.tmux(&["list-panes", "-a", "-F", FORMAT])?;
        let all: Vec<Listed> = text.lines().filter_map(Listed::parse).collect();
        let mut fitting: Vec<&Listed> = all.iter().filter(|pane| pane.is(&self.target)).collect();
        // A pane that several sessions show is one pane.
        fitting.sort_by(|a, b| a.id.cmp(&b.id));
        fitting.dedup_by(|a, b| a.id == b.id);
        match fitting.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(SwitchError::Setup(format!(
                "there is no tmux pane that is exactly {}: there {}; correct tmux_target",
                self.target,
                names(all.iter())
            ))),
            several => Err(SwitchError::Setup(format!(
                "tmux_target {} means several panes: {}; name one of them",
                self.target,
                names(several.iter().copied())
            ))),
        }
    }

    fn claude_in(&self, pane: &Listed) -> Option<Process> {
        let program = self.resume_command.first().map_or("claude", String::as_str);
        if pane.dead { None } else { processes::claude_below(pane.pid, program) }
    }

    /// What the pane is told to run: in the working folder, every argument quoted.
    fn command_line(&self, session: SessionId) -> String {
        let id = session.to_string();
        let argv: Vec<String> =
            self.resume_command.iter().map(|part| part.replace("{session_id}", &id)).collect();
        format!("cd -- {} && exec {}", quoted(&self.workdir.to_string_lossy()), quoted_line(&argv))
    }

    /// The arguments behind `respawn-pane`: a program with its arguments, which tmux runs without a shell of its own.
    fn respawn(&self, session: SessionId) -> Vec<String> {
        let line = self.command_line(session);
        match &self.state.borrow().shell {
            // Typed into a shell it was; so it gets that shell's set-up again, and the person gets it back at the end.
            Some(shell) => {
                let line = line.replacen("exec ", "", 1);
                vec![shell.clone(), "-i".into(), "-c".into(), format!("{line}\nexec {} -i", quoted(shell))]
            }
            None => vec!["/bin/sh".into(), "-c".into(), line],
        }
    }

    fn keep_pane(&self, pane: &Listed) -> Result<(), SwitchError> {
        let was = self.tmux(&["show-options", "-p", "-q", "-v", "-t", &pane.id, "remain-on-exit"])?;
        self.tmux(&["set-option", "-p", "-t", &pane.id, "remain-on-exit", "on"])?;
        let mut kept = self.state.borrow_mut();
        if kept.remain.is_none() {
            kept.remain = Some(was);
        }
        Ok(())
    }
}

impl SessionProcess for TmuxPane {
    fn credential(&self) -> Result<Credential, SwitchError> {
        let pane = self.find()?;
        match self.claude_in(&pane) {
            Some(claude) => Ok(Credential::Tmux { pane_pid: pane.pid, claude: Some(claude) }),
            None if pane.dead => Err(SwitchError::Setup(format!(
                "the process in tmux pane {} has ended (status {}): start claude there",
                pane.name, pane.status
            ))),
            None => Err(SwitchError::Setup(format!(
                "tmux pane {} runs {}, not claude: it is not touched; start claude there or correct tmux_target",
                pane.name,
                processes::command_line(pane.pid).map_or_else(|| "nothing".to_owned(), |line| line.join(" "))
            ))),
        }
    }

    fn claude(&self) -> Result<Option<Process>, SwitchError> {
        let pane = self.find()?;
        Ok(self.claude_in(&pane))
    }

    fn probe(&self) -> Result<Vec<String>, SwitchError> {
        self.credential()?;
        Ok(Vec::new())
    }

    fn end(&self, expected: Credential) -> Result<(), SwitchError> {
        let pane = self.find()?;
        let found = Credential::Tmux { pane_pid: pane.pid, claude: self.claude_in(&pane) };
        let Some(claude) = expected.claude().filter(|_| found == expected && !pane.dead) else {
            return Err(SwitchError::Replaced { noted: expected, found: found.to_string() });
        };
        self.keep_pane(&pane)?;
        let first = Process::of(pane.pid).filter(|first| *first != claude);
        if let Some(first) = first {
            self.state.borrow_mut().shell = interactive_shell(first.pid);
            // A loop around claude would start it again.
            first.signal(Signal::STOP);
        }
        let helpers: Vec<Process> = helpers_of(claude);
        if !claude.end(EXIT_GRACE) {
            if let Some(first) = first {
                first.signal(Signal::CONT);
            }
            return Err(SwitchError::Setup(format!("claude ({}) could not be ended", claude.pid)));
        }
        // Servers that it has started end with it; one that does not would answer in its place.
        for helper in helpers {
            if !helper.wait(Duration::from_secs(2)) && !helper.end(Duration::from_secs(1)) {
                return Err(SwitchError::Setup(format!(
                    "process {} of claude could not be ended",
                    helper.pid
                )));
            }
        }
        if let Some(first) = first {
            // HUP is what a shell gets when its terminal goes: it writes its history.
            first.signal(Signal::HUP);
            first.signal(Signal::CONT);
            if !first.wait(Duration::from_secs(2)) && !first.end(Duration::from_secs(1)) {
                return Err(SwitchError::Setup(format!(
                    "process {} of the pane could not be ended",
                    first.pid
                )));
            }
        }
        Ok(())
    }

    fn start(&self, session: SessionId) -> Result<(), SwitchError> {
        let mut pane = self.find()?;
        // tmux notices the end of a process a moment after it.
        for _ in 0..100 {
            if pane.dead || self.claude_in(&pane).is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            pane = self.find()?;
        }
        if !pane.dead {
            let found = Credential::Tmux { pane_pid: pane.pid, claude: self.claude_in(&pane) };
            return Err(SwitchError::Setup(format!(
                "something else was started in tmux pane {} meanwhile ({found}): it is left alone",
                pane.name
            )));
        }
        if self.state.borrow().remain.is_none() {
            self.keep_pane(&pane)?;
        }
        // Without -k: tmux refuses if somebody else was faster.
        let respawn = self.respawn(session);
        let mut arguments = vec!["respawn-pane", "-t", &pane.id];
        arguments.extend(respawn.iter().map(String::as_str));
        self.tmux(&arguments).map(drop)
    }

    fn obituary(&self) -> String {
        match self.find() {
            Ok(pane) if pane.dead => format!("the pane's process has ended (status {})", pane.status),
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    fn restore(&self) {
        let Some(was) = self.state.borrow_mut().remain.take() else { return };
        let Ok(pane) = self.find() else { return };
        let set = if was.is_empty() {
            self.tmux(&["set-option", "-p", "-u", "-t", &pane.id, "remain-on-exit"])
        } else {
            self.tmux(&["set-option", "-p", "-t", &pane.id, "remain-on-exit", &was])
        };
        // A pane that stays when its process ends is no harm.
        drop(set);
    }
}

/// Processes below it that live in its terminal: MCP servers and channel plugins, not what a tool has put into a
/// session of its own.
fn helpers_of(claude: Process) -> Vec<Process> {
    let terminal = processes::terminal_session_of(claude.pid);
    let below = processes::family(claude.pid).into_iter().skip(1);
    below.filter(|pid| processes::terminal_session_of(*pid) == terminal).filter_map(Process::of).collect()
}

/// The shell that a person types in, if that is what the process is.
fn interactive_shell(pid: u32) -> Option<String> {
    let line = processes::command_line(pid)?;
    let name = base_name(line.first()?.trim_start_matches('-')).to_owned();
    let bare = line.iter().skip(1).all(|argument| ["-i", "-l", "--login"].contains(&argument.as_str()));
    if !bare || !SHELLS.contains(&name.as_str()) {
        return None;
    }
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.into_os_string().into_string().ok()
}

fn names<'a>(panes: impl Iterator<Item = &'a Listed>) -> String {
    let list: Vec<&str> = panes.map(|pane| pane.name.as_str()).collect();
    if list.is_empty() { "are none".to_owned() } else { format!("are {}", list.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_means_a_pane_letter_by_letter() {
        let pane = Listed::parse("%7 4242 0 - 3 @5 1 cc-work:a.b: c").unwrap();
        assert_eq!((pane.pid, pane.dead, pane.name.as_str()), (4242, false, "cc-work:3.1"));
        for fits in [
            "%7",
            "cc-work",
            "cc-work:3",
            "cc-work:3.1",
            "=cc-work:3.1",
            "cc-work:@5.%7",
            "cc-work:a.b: c.1",
            "cc-work:.1",
        ] {
            assert!(pane.is(fits), "{fits}");
        }
        for other in
            ["cc", "cc:3.1", "cc-w*:3.1", "cc-work:0.1", "cc-work:3.0", "cc-work:a.1", "%70", "3.1", ""]
        {
            assert!(!pane.is(other), "{other}");
        }
        assert_eq!(Listed::parse("no pane"), None);
    }
}
