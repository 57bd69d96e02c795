//! A real terminal: tmux on a private socket, killed at the end.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::PATIENCE;
use crate::support::companion::Companion;

/// One pane that runs one command of the product.
pub struct Pane {
    socket: String,
    tmpdir: PathBuf,
}

/// Whether there is a tmux. Absent it is said so, and where CI runs it fails: a suite that silently
/// tests less is worse than a red one.
pub fn is_there() -> bool {
    let there = Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success());
    if !there {
        let missing = "tmux is not installed: the chat is not tested in a terminal";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        eprintln!("SKIPPED: {missing}");
    }
    there
}

impl Pane {
    /// Runs a command of the product in a terminal of that size. The shell around it says so when it
    /// has ended, and with which code.
    pub fn open(companion: &Companion, arguments: &[&str], columns: u16, rows: u16) -> Self {
        let tmpdir = companion.world.sandbox.path("tmux");
        std::fs::create_dir_all(&tmpdir).unwrap();
        let pane = Self { socket: format!("kael-test-{}", uuid::Uuid::new_v4()), tmpdir };
        let command = companion.command(arguments);
        let mut line = format!("{:?}", command.get_program());
        for argument in command.get_args() {
            line.push_str(&format!(" {argument:?}"));
        }
        line.push_str("; echo ended with $?; exec sleep 600");
        let mut tmux = pane.command();
        tmux.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TERM", "xterm-256color")
            .current_dir(companion.world.sandbox.work())
            .args(["-f", "/dev/null", "new-session", "-d", "-s", "chat"])
            .args(["-x", &columns.to_string(), "-y", &rows.to_string(), "/bin/sh", "-c", &line]);
        let output = tmux.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        pane
    }

    fn command(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TMUX_TMPDIR", &self.tmpdir)
            .args(["-u", "-L", &self.socket]);
        tmux
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        output
    }

    /// Types characters as they are.
    pub fn type_in(&self, text: &str) -> &Self {
        self.tmux(&["send-keys", "-t", "chat", "-l", text]);
        self
    }

    /// Presses keys by their names: `Enter`, `C-c`, `Up`.
    pub fn press(&self, keys: &[&str]) -> &Self {
        self.tmux(&[&["send-keys", "-t", "chat"], keys].concat());
        self
    }

    /// Pastes as a terminal does: in brackets, if the program has asked for them.
    pub fn paste(&self, text: &str) -> &Self {
        self.tmux(&["set-buffer", "--", text]);
        self.tmux(&["paste-buffer", "-p", "-r", "-t", "chat"]);
        self
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) -> &Self {
        self.tmux(&["resize-window", "-t", "chat", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        self
    }

    /// What the terminal shows, without the spaces at the ends of its rows.
    pub fn screen(&self) -> String {
        self.capture(&[])
    }

    /// The same with everything that has scrolled away, broken rows joined.
    pub fn all(&self) -> String {
        self.capture(&["-S", "-", "-J"])
    }

    fn capture(&self, options: &[&str]) -> String {
        let output = self.tmux(&[&["capture-pane", "-p", "-t", "chat"], options].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<&str> = text.lines().map(str::trim_end).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// Row and column of the cursor.
    pub fn cursor(&self) -> (u16, u16) {
        let output = self.tmux(&["display-message", "-p", "-t", "chat", "#{cursor_y} #{cursor_x}"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let (row, column) = text.trim().split_once(' ').unwrap();
        (row.parse().unwrap(), column.parse().unwrap())
    }

    /// Waits until the screen is as wanted, and gives it.
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(
                Instant::now() < until,
                "waited {PATIENCE:?} in vain for {what}; the screen:\n{}",
                self.all()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // It is gone already if the test has ended it.
        self.command().arg("kill-server").output().ok();
    }
}
