//! Misbehaviour on demand, for tests of what a supervisor does about it: a CLI that hangs, lies or
//! leaves half of its work. The real CLI cannot be made to do these things at will.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, getsid};

use super::tools;

/// Names of quirks, separated by commas.
pub(super) const VARIABLE: &str = "KAEL_STANDIN_QUIRKS";

/// One kind of misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    /// Stays alive after the last result.
    HangAfterResult,
    /// Takes no notice of SIGTERM.
    IgnoreSigterm,
    /// Prints no result line.
    NoResult,
    /// Stops in the middle of the result line.
    HalfResult,
    /// Answers, and writes nothing into the transcript.
    NoRows,
    /// Reports a session id that is not the asked one.
    OtherSession,
    /// Exits with 3 after a turn that went well.
    ExitThree,
    /// Leaves a process in a session of its own that holds stdout open.
    LeaveChild,
    /// Takes nothing into a running turn: what is said meanwhile is always a turn of its own.
    NoAbsorb,
}

const NAMES: [(&str, Quirk); 9] = [
    ("hang-after-result", Quirk::HangAfterResult),
    ("ignore-sigterm", Quirk::IgnoreSigterm),
    ("no-result", Quirk::NoResult),
    ("half-result", Quirk::HalfResult),
    ("no-rows", Quirk::NoRows),
    ("other-session", Quirk::OtherSession),
    ("exit-three", Quirk::ExitThree),
    ("leave-child", Quirk::LeaveChild),
    ("no-absorb", Quirk::NoAbsorb),
];

/// The quirks of this run.
#[derive(Debug, Clone, Default)]
pub(super) struct Quirks(Vec<Quirk>);

impl Quirks {
    /// Reads [`VARIABLE`].
    ///
    /// # Errors
    /// A name that is not known: a test that misspells a quirk must not pass.
    pub(super) fn from_env() -> Result<Self, String> {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    fn parse(names: &str) -> Result<Self, String> {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let quirk = |name: &str| {
            let found = NAMES.iter().find(|(known, _)| *known == name);
            found
                .map(|(_, quirk)| *quirk)
                .ok_or_else(|| format!("{VARIABLE} names an unknown quirk: {name:?}"))
        };
        names.map(quirk).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.0.contains(&quirk)
    }

    /// What happens between the last turn and the exit; gives the exit code.
    ///
    /// # Errors
    /// The child that is to be left could not be started.
    pub(super) fn at_the_end(&self, code: u8) -> std::io::Result<u8> {
        if self.has(Quirk::LeaveChild) {
            let mut child = Command::new(std::env::current_exe()?);
            child.arg("stand-in-claude").arg(tools::SHELL).arg("exec sleep 600").stdin(Stdio::null());
            let pid = Pid::from_child(&child.spawn()?);
            // It is left only once it is out of our process group.
            while getsid(Some(pid)).is_ok_and(|session| session != pid) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        if self.has(Quirk::HangAfterResult) {
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        Ok(if self.has(Quirk::ExitThree) && code == 0 { 3 } else { code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_quirk_is_an_error() {
        assert!(Quirks::parse("no-result, half-result").unwrap().has(Quirk::HalfResult));
        assert!(!Quirks::parse("").unwrap().has(Quirk::NoRows));
        let error = Quirks::parse("no-row").unwrap_err();
        assert_eq!(error, "KAEL_STANDIN_QUIRKS names an unknown quirk: \"no-row\"");
    }
}
