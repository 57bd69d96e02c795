//! One run of `claude -p`, of either subject, against the stub.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::PATIENCE;
use super::process::{Outcome, Running};
use super::sandbox::Sandbox;
use super::subject::Subject;
use crate::stubs::messages_api::Stub;

/// A sandbox, a stub and a subject that belong together.
pub struct World {
    pub subject: Subject,
    pub sandbox: Sandbox,
    pub stub: Stub,
}

/// Built up, then run or spawned.
pub struct Invocation<'a> {
    world: &'a World,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    lines: Vec<Value>,
    folder: PathBuf,
}

impl World {
    /// A fresh world for this subject.
    pub fn new(subject: Subject) -> Self {
        Self { subject, sandbox: Sandbox::new(), stub: Stub::start() }
    }

    /// The subject itself, ready to be given arguments.
    pub fn claude(&self) -> Command {
        self.equip(self.sandbox.command(self.subject.program(&self.sandbox)))
    }

    /// The product, in an environment in which the subject is the `claude` on the path.
    pub fn runner(&self) -> Command {
        let mut runner = self.equip(self.sandbox.runner());
        let program = self.subject.program(&self.sandbox);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", program.parent().unwrap().display());
        runner.env("PATH", path);
        runner
    }

    /// Writes a configuration for pointer mode with every path in the sandbox, and `more` behind the keys
    /// of the top level (tables go there too).
    pub fn write_config(&self, more: &str) -> PathBuf {
        let quoted = |path: PathBuf| json!(path).to_string();
        let text = format!(
            "activation = \"pointer\"\nclaude_workdir = {}\nstate_dir = {}\nresume_pointer_path = {}\n\
             resume_command = [{}, \"--resume\", \"{{session_id}}\"]\n{more}\n",
            quoted(self.sandbox.work()),
            quoted(self.sandbox.state()),
            quoted(self.sandbox.path("pointer/resume_session")),
            quoted(self.subject.program(&self.sandbox)),
        );
        self.sandbox.write("config.toml", text)
    }

    /// Nothing leaves the machine, nothing is retried or compacted behind the test's back.
    fn equip(&self, mut command: Command) -> Command {
        command
            .env("ANTHROPIC_BASE_URL", self.stub.url())
            .env("ANTHROPIC_API_KEY", "sk-ant-made-up")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("DISABLE_AUTO_COMPACT", "1")
            .env("CLAUDE_CODE_MAX_RETRIES", "0");
        command
    }

    /// A run that streams both ways, as the supervisor's do.
    pub fn invoke(&self) -> Invocation<'_> {
        let flags = "-p --input-format stream-json --output-format stream-json --verbose \
                     --replay-user-messages --allowedTools Bash Read";
        let args = flags.split_whitespace().map(str::to_owned).collect();
        Invocation { world: self, args, envs: Vec::new(), lines: Vec::new(), folder: self.sandbox.work() }
    }

    /// The first turn of a new session under an id of ours.
    pub fn begin(&self, session: &str, uuid: &str, text: &str) -> Outcome {
        self.invoke().args(["--session-id", session]).send(uuid, text).run()
    }

    /// One turn of a session.
    pub fn resume(&self, session: &str, uuid: &str, text: &str) -> Outcome {
        self.invoke().args(["--resume", session]).send(uuid, text).run()
    }
}

impl Invocation<'_> {
    /// Adds arguments.
    pub fn args<'s>(mut self, args: impl IntoIterator<Item = &'s str>) -> Self {
        self.args.extend(args.into_iter().map(str::to_owned));
        self
    }

    /// Adds a variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs in another folder than the sandbox's `work`.
    pub fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = folder.to_owned();
        self
    }

    /// Resumes the turn that was interrupted.
    pub fn resume_interrupted(self) -> Self {
        self.env("CLAUDE_CODE_RESUME_INTERRUPTED_TURN", "1")
    }

    /// Sends a message with a plain string.
    pub fn send(self, uuid: &str, text: &str) -> Self {
        self.send_content(uuid, json!(text))
    }

    /// Sends one message with a text block for each text.
    pub fn send_blocks(self, uuid: &str, texts: &[&str]) -> Self {
        let blocks: Value = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        self.send_content(uuid, blocks)
    }

    fn send_content(mut self, uuid: &str, content: Value) -> Self {
        let mut line = json!({"type": "user", "message": {"role": "user"}, "parent_tool_use_id": null,
            "session_id": "", "uuid": uuid});
        line["message"]["content"] = content;
        self.lines.push(line);
        self
    }

    /// Starts it with its messages written and stdin still open.
    pub fn spawn(self) -> Running {
        let mut command = self.world.claude();
        command.args(&self.args).envs(self.envs).current_dir(&self.folder);
        let mut running = Running::spawn(&mut command);
        for line in &self.lines {
            running.write(format!("{line}\n"));
        }
        running
    }

    /// Runs it to its end.
    pub fn run(self) -> Outcome {
        self.spawn().wait(PATIENCE)
    }
}
