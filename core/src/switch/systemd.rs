//! A systemd unit in which `claude` lives. It reads the resume pointer when it starts.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use super::place::output;
use super::process::SessionProcess;
use super::processes::{self, Process};
use super::{Credential, SwitchError};
use crate::config::SystemdScope;
use crate::ids::SessionId;

/// How long a question to the manager may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Which unit, and of which manager.
pub struct SystemdUnit {
    /// Its name.
    pub unit: String,
    /// Whose it is.
    pub scope: SystemdScope,
    /// What runs in it: the program of `resume_command`.
    pub program: String,
    /// How long stopping, and starting, may take.
    pub limit: Duration,
}

/// A unit as its manager shows it.
#[derive(Debug, Clone, Default)]
pub struct Shown(HashMap<String, String>);

impl Shown {
    /// A property, empty where there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Its main process.
    #[must_use]
    pub fn main_pid(&self) -> Option<u32> {
        self.get("MainPID").parse().ok().filter(|pid| *pid != 0)
    }
}

/// The manager's tool for this scope.
#[must_use]
pub fn systemctl(scope: SystemdScope) -> Command {
    let mut command = Command::new("systemctl");
    if scope == SystemdScope::User {
        command.arg("--user");
    }
    // It may ask a person for a password otherwise.
    command.arg("--no-ask-password");
    command
}

impl SystemdUnit {
    fn ask(&self, arguments: &[&str], limit: Duration) -> Result<String, SwitchError> {
        output(systemctl(self.scope).args(arguments).arg("--").arg(&self.unit), limit)
    }

    /// The unit as it is.
    ///
    /// # Errors
    /// [`SwitchError::Setup`] when the manager does not answer or does not know it.
    pub fn show(&self) -> Result<Shown, SwitchError> {
        let text = self.ask(
            &["show", "--property=LoadState,ActiveState,SubState,Result,MainPID,TimeoutStopUSec,WorkingDirectory,FragmentPath"],
            PATIENCE,
        )?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let shown = Shown(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        match shown.get("LoadState") {
            "loaded" => Ok(shown),
            state => Err(SwitchError::Setup(format!(
                "unit {} is {} for the {} manager: correct systemd_unit or systemd_scope",
                self.unit,
                if state.is_empty() { "unknown" } else { state },
                self.scope.as_str()
            ))),
        }
    }

    fn claude_of(&self, shown: &Shown) -> Option<Process> {
        processes::claude_below(shown.main_pid()?, &self.program)
    }

    /// What the manager says about a unit that does not run, with the remedy.
    fn trouble(&self, shown: &Shown) -> String {
        let user = if self.scope == SystemdScope::User { "--user " } else { "" };
        match shown.get("Result") {
            "start-limit-hit" => format!(
                "unit {} was started too often and is held back (start-limit-hit): `systemctl {user}reset-failed {}`",
                self.unit, self.unit
            ),
            result => format!(
                "unit {} is {} ({}, {result}): `systemctl {user}status {}` tells why",
                self.unit,
                shown.get("ActiveState"),
                shown.get("SubState"),
                self.unit
            ),
        }
    }
}

impl SessionProcess for SystemdUnit {
    fn credential(&self) -> Result<Credential, SwitchError> {
        let shown = self.show()?;
        let Some(main_pid) = shown.main_pid() else { return Err(SwitchError::Setup(self.trouble(&shown))) };
        match self.claude_of(&shown) {
            Some(claude) => Ok(Credential::Systemd { main_pid, claude: Some(claude) }),
            None => Err(SwitchError::Setup(format!(
                "unit {} runs {}, not claude: it is not touched; correct systemd_unit",
                self.unit,
                processes::command_line(main_pid).map_or_else(|| "nothing".to_owned(), |line| line.join(" "))
            ))),
        }
    }

    fn claude(&self) -> Result<Option<Process>, SwitchError> {
        Ok(self.claude_of(&self.show()?))
    }

    fn probe(&self) -> Result<Vec<String>, SwitchError> {
        self.credential()?;
        let shown = self.show()?;
        let mut notes = Vec::new();
        if let Some(stop) = microseconds(shown.get("TimeoutStopUSec"))
            && stop > self.limit
        {
            notes.push(format!(
                "unit {} may take {} s to stop (TimeoutStopSec), longer than systemd_restart_timeout_seconds ({} s): raise \
                 that one",
                self.unit,
                stop.as_secs(),
                self.limit.as_secs()
            ));
        }
        Ok(notes)
    }

    fn end(&self, expected: Credential) -> Result<(), SwitchError> {
        let shown = self.show()?;
        let found =
            Credential::Systemd { main_pid: shown.main_pid().unwrap_or(0), claude: self.claude_of(&shown) };
        let Some(claude) = expected.claude().filter(|_| found == expected) else {
            return Err(SwitchError::Replaced { noted: expected, found: found.to_string() });
        };
        // The manager runs ExecStop, waits TimeoutStopSec, and ends what is left of the unit.
        self.ask(&["stop"], self.limit)?;
        if claude.wait(Duration::from_secs(5)) {
            return Ok(());
        }
        Err(SwitchError::Setup(format!(
            "unit {} is stopped, but its claude ({}) still runs: KillMode=none or process keeps it alive",
            self.unit, claude.pid
        )))
    }

    fn start(&self, _session: SessionId) -> Result<(), SwitchError> {
        let mut shown = self.show()?;
        let until = Instant::now() + self.limit;
        while shown.get("ActiveState") == "deactivating" && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            shown = self.show()?;
        }
        if let Some(pid) = shown.main_pid() {
            return Err(SwitchError::Setup(format!(
                "unit {} was started by somebody else meanwhile (process {pid}): it is left alone",
                self.unit
            )));
        }
        // Our stops and starts count against the unit's limit, which is there for units that fail by themselves; what a
        // failed start of ours left is forgotten with it.
        if shown.get("ActiveState") == "failed" {
            self.ask(&["reset-failed"], PATIENCE)?;
        }
        let Err(first) = self.ask(&["start"], self.limit) else { return Ok(()) };
        let limited =
            self.show()?.get("Result") == "start-limit-hit" || first.to_string().contains("too often");
        if limited {
            self.ask(&["reset-failed"], PATIENCE)?;
            return self.ask(&["start"], self.limit).map(drop);
        }
        Err(first)
    }

    fn obituary(&self) -> String {
        match self.show() {
            Ok(shown) if ["failed", "inactive"].contains(&shown.get("ActiveState")) => self.trouble(&shown),
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    fn restore(&self) {}
}

/// `1min 30s`, as the manager shows times; none for `infinity` and what is not understood.
fn microseconds(text: &str) -> Option<Duration> {
    let units = [("min", 60_000_000_u64), ("ms", 1_000), ("us", 1), ("h", 3_600_000_000), ("s", 1_000_000)];
    let mut total = 0_u64;
    for part in text.split_whitespace() {
        let (name, factor) = units.iter().find(|(name, _)| part.ends_with(name))?;
        let number: f64 = part.strip_suffix(name)?.parse().ok()?;
        total =
            total.checked_add(Duration::from_micros(*factor).mul_f64(number).as_micros().try_into().ok()?)?;
    }
    Some(Duration::from_micros(total)).filter(|total| !total.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_manager() {
        assert_eq!(microseconds("1min 30s"), Some(Duration::from_secs(90)));
        assert_eq!(microseconds("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(microseconds("infinity"), None);
        assert_eq!(microseconds(""), None);
    }
}
