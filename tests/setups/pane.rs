//! A companion that lives in a tmux pane: the real interactive CLI, on a private socket.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;
use crate::support::wait_until;

/// What the first turns of every companion here are about.
pub const WORDS: [&str; 2] = ["the lamp is green", "look into the shed"];

/// A companion in a pane, and its tmux.
pub struct InPane {
    pub companion: Companion,
    /// The session that it began with.
    pub first: String,
    socket: PathBuf,
}

/// Flags of the companion that must survive every switch.
pub const FLAGS: [&str; 4] = ["--permission-mode", "default", "--allowedTools", "Bash"];

impl InPane {
    /// A companion that has said two things, one of them with a tool. None without tmux or the real CLI.
    pub fn start(runner: &str) -> Option<Self> {
        let subject = Subject::newest_real()?;
        let setup = Self::new(subject, runner)?;
        setup.companion.run(&["hook", "install"]).expect_code(0);
        let first = setup.first.clone();
        setup.open("exec ", &first, "--session-id");
        setup.wait_for_prompt();
        setup.teach();
        for words in WORDS {
            setup.say(words);
        }
        Some(setup)
    }

    /// What the model answers.
    pub fn teach(&self) {
        let stub = &self.companion.world.stub;
        stub.on_text(WORDS[0], Reply::text("Noted: green."));
        stub.on_tool_turn(WORDS[1], Reply::bash("seq 1 4000"), Reply::text("The shed holds ropes."));
    }

    /// Workers of that kind that live: `--guard`, `--operate`, or all.
    pub fn workers(&self, part: &str) -> Vec<i32> {
        let alive = self.companion.world.sandbox.survivors().into_iter();
        let line = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        alive.filter(|pid| line(pid).contains("hook-worker") && line(pid).contains(part)).collect()
    }

    /// Configuration and files; nothing runs yet.
    pub fn new(subject: Subject, runner: &str) -> Option<Self> {
        if !crate::chat::tmux::is_there() {
            return None;
        }
        let companion = Companion::new(subject, "", "");
        let sandbox = &companion.world.sandbox;
        let program = companion.world.subject.program(sandbox);
        let real = fs::canonicalize(&program).unwrap();
        fs::remove_file(&program).unwrap();
        // Refuses to start on another session than the one in the file, if there is such a file.
        let script = format!(
            "#!/bin/sh\nonly={only}\nif [ -e \"$only\" ]; then case \" $* \" in *\" $(cat \"$only\") \"*) ;; *) exit 7;; \
             esac; fi\nexec {real:?} \"$@\"\n",
            only = sandbox.path("only").display(),
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        sandbox.write("home/.claude.json", settled(&fs::canonicalize(sandbox.work()).unwrap()));
        let socket = sandbox.path("tmux.sock");
        let setup = Self { first: uuid::Uuid::new_v4().to_string(), companion, socket };
        setup.configure(&FLAGS, runner);
        Some(setup)
    }

    /// Writes the configuration with these flags behind `--resume`.
    pub fn configure(&self, flags: &[&str], runner: &str) {
        let sandbox = &self.companion.world.sandbox;
        let program = self.companion.world.subject.program(sandbox);
        let mut command = vec![program.to_str().unwrap(), "--resume", "{session_id}"];
        command.extend(flags);
        let text = format!(
            "activation = \"tmux\"\ntmux_target = \"cc:0.0\"\ntmux_socket = {socket:?}\nclaude_workdir = {work:?}\n\
             state_dir = {state:?}\nresume_command = {command}\nactivation_delay_seconds = 0.1\n\
             healthcheck_seconds = 1\nstable_file_seconds = 0.3\n[runner]\nmin_gain_percent = 1\n{runner}\n",
            socket = self.socket,
            work = sandbox.work(),
            state = sandbox.state(),
            command = json!(command),
        );
        sandbox.write("config.toml", text);
    }

    /// tmux on the private socket.
    pub fn command(&self) -> Command {
        let world = &self.companion.world;
        let mut tmux = world.sandbox.command("tmux");
        tmux.env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .env("ANTHROPIC_BASE_URL", world.stub.url())
            .env("ANTHROPIC_API_KEY", KEY)
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("DISABLE_AUTO_COMPACT", "1")
            .env("CLAUDE_CODE_MAX_RETRIES", "0")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket);
        tmux
    }

    pub fn tmux(&self, arguments: &[&str]) -> String {
        let output: Output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Makes the pane `cc:0.0`, which runs `claude` on that session.
    pub fn open(&self, how: &str, session: &str, flag: &str) {
        let line = format!("{how}{}", self.claude_line(session, flag));
        self.tmux(&["new-session", "-d", "-s", "cc", "-x", "120", "-y", "40", "/bin/sh", "-c", &line]);
    }

    /// The command line that starts `claude`, for a shell.
    pub fn claude_line(&self, session: &str, flag: &str) -> String {
        let program = self.companion.world.subject.program(&self.companion.world.sandbox);
        format!("{} {flag} {session} {}", program.display(), FLAGS.join(" "))
    }

    /// What the pane shows.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "cc"])
    }

    /// Until the CLI asks for words.
    pub fn wait_for_prompt(&self) {
        wait_until("the CLI in the pane is ready", || {
            let screen = self.screen();
            screen.contains("❯") && !screen.contains("Yes")
        });
    }

    /// Types words and waits until they are answered and the turn is over.
    pub fn say(&self, words: &str) -> String {
        self.type_in(words);
        wait_until(&format!("an answer to {words:?}"), || {
            let transcript = self.companion.world.sandbox.transcript(&self.session());
            fs::read_to_string(&transcript).is_ok_and(|text| text.contains(words))
                && !kael_runner::setup::turn_is_open(&transcript)
                && self.is_idle()
                && self.workers("").is_empty()
        });
        self.session()
    }

    /// Types words as a person does.
    pub fn type_in(&self, words: &str) {
        self.tmux(&["send-keys", "-t", "cc", "-l", words]);
        // The CLI takes an Enter that comes with the words for a part of a paste.
        wait_until("the words are in the pane", || self.screen().contains(words));
        self.tmux(&["send-keys", "-t", "cc", "Enter"]);
    }

    /// The pane's first process.
    pub fn pane_pid(&self) -> u32 {
        self.tmux(&["display-message", "-p", "-t", "=cc:0.0", "#{pane_pid}"]).parse().unwrap()
    }

    /// The CLI's own note about itself.
    pub fn note(&self) -> Value {
        let notes = self.companion.world.sandbox.home().join(".claude/sessions");
        let files = fs::read_dir(notes).into_iter().flatten().flatten();
        let notes = files.filter(|file| file.path().extension().is_some_and(|e| e == "json"));
        let values =
            notes.filter_map(|file| serde_json::from_slice::<Value>(&fs::read(file.path()).ok()?).ok());
        let alive = |note: &Value| fs::metadata(format!("/proc/{}", note["pid"])).is_ok();
        values.filter(|note| note["sessionId"].is_string()).find(alive).unwrap_or_default()
    }

    pub fn is_idle(&self) -> bool {
        self.note()["status"] == "idle"
    }

    /// The session that the process in the pane is on.
    pub fn session(&self) -> String {
        self.note()["sessionId"].as_str().unwrap_or_default().to_owned()
    }

    /// Arguments of the process in the pane.
    pub fn arguments(&self) -> Vec<String> {
        let line = fs::read(format!("/proc/{}/cmdline", self.note()["pid"])).unwrap();
        let text = String::from_utf8(line).unwrap();
        text.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
    }

    /// The latest operation.
    pub fn operation(&self) -> Value {
        self.companion.json(&["status"])["operation"].clone()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.companion.world.sandbox.state().join("worker.log")).unwrap_or_default()
    }

    /// Waits until the latest operation is in that state.
    pub fn wait_for(&self, status: &str) -> Value {
        let until = std::time::Instant::now() + crate::support::PATIENCE;
        loop {
            let last = self.operation();
            if last["status"] == status {
                return last;
            }
            assert!(
                std::time::Instant::now() < until,
                "it is {last:#}, not {status}; {}\n{}\n{}",
                self.log(),
                self.screen(),
                self.companion.run(&["dirty"]).lines.join("\n")
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

impl Drop for InPane {
    fn drop(&mut self) {
        self.command().arg("kill-server").output().ok();
    }
}

/// The API key that [`settled`] says was agreed to.
const KEY: &str = "sk-ant-key-made-up-0123456789";

/// The CLI's own state of somebody who has started it before and trusts the folder: nothing is asked at start.
pub fn settled(work: &std::path::Path) -> String {
    json!({
        "hasCompletedOnboarding": true,
        "lastOnboardingVersion": "2.1.332",
        "theme": "dark",
        "customApiKeyResponses": { "approved": [&KEY[KEY.len() - 20..]], "rejected": [] },
        "projects": { work.to_str().unwrap(): { "hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true } },
    })
    .to_string()
}
