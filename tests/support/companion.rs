//! A companion in a sandbox: its configuration, its runner, and the commands a person types.

use std::fs;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::PATIENCE;
use super::invocation::World;
use super::process::{Outcome, Running};
use super::subject::Subject;
use super::wait_until;

/// A world with a configured companion in it.
pub struct Companion {
    pub world: World,
}

impl Companion {
    /// A companion with these lines in its configuration: `top` at top level, `runner` in `[runner]`.
    pub fn new(subject: Subject, top: &str, runner: &str) -> Self {
        let companion = Self { world: World::new(subject) };
        companion.configure(top, runner);
        companion
    }

    /// Writes the configuration anew.
    pub fn configure(&self, top: &str, runner: &str) {
        let sandbox = &self.world.sandbox;
        let program = self.world.subject.program(sandbox);
        let text = format!(
            "activation = \"pointer\"\n\
             claude_workdir = {work:?}\n\
             state_dir = {state:?}\n\
             resume_command = [{program:?}, \"--resume\", \"{{session_id}}\"]\n\
             {top}\n\
             [runner]\n\
             exit_grace = \"5s\"\n\
             kill_grace = \"2s\"\n\
             orphan_grace = \"2s\"\n\
             {runner}\n\
             [claude]\n\
             args = [\"--allowedTools\", \"Bash\"]\n\
             max_retries = 0\n\
             [claude.env]\n\
             ANTHROPIC_BASE_URL = {url:?}\n\
             ANTHROPIC_API_KEY = \"sk-ant-made-up\"\n\
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"\n\
             DISABLE_TELEMETRY = \"1\"\n\
             DISABLE_AUTOUPDATER = \"1\"\n",
            work = sandbox.work(),
            state = sandbox.state(),
            url = self.world.stub.url(),
        );
        sandbox.write("config.toml", text);
    }

    /// A command of the product, with the configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.sandbox.runner();
        command.arg("--config").arg(self.world.sandbox.path("config.toml")).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Outcome {
        Running::spawn(self.command(arguments).env("KAEL_LOG", "info")).wait(PATIENCE)
    }

    /// Runs a command that must succeed and gives its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let outcome = self.run(&[arguments, &["--json"]].concat()).expect_code(0);
        serde_json::from_str(&outcome.lines.join("\n")).unwrap()
    }

    /// Runs a command that must fail with this code and gives its error.
    pub fn refused(&self, arguments: &[&str], code: i32) -> String {
        self.run(arguments).expect_code(code).stderr
    }

    /// Starts a runner in the background and waits until it holds its lock and listens.
    pub fn start(&self) -> Running {
        let running = Running::spawn(&mut self.command(&["run"]));
        let bell = self.world.sandbox.state().join("doorbell");
        wait_until("the runner listens", || {
            bell.exists() && self.json(&["status"])["runner"]["lives"] == true
        });
        running
    }

    /// Tells a runner to stop and waits until it has; it must leave nothing and exit with 0.
    pub fn stop(&self, runner: Running) {
        runner.signal(Signal::TERM);
        runner.wait(PATIENCE).expect_code(0);
    }

    /// Says something and gives the reply as it was printed.
    pub fn say(&self, words: &str) -> String {
        self.run(&["send", "--wait", "--timeout", "60", words]).expect_code(0).lines.join("\n")
    }

    /// The session the pointer names.
    pub fn session(&self) -> String {
        self.run(&["pointer", "show", "--locked"]).expect_code(0).lines.join("")
    }

    /// Each change of the pointer: from, to, by an operation.
    pub fn history(&self) -> Vec<(Option<String>, String, bool)> {
        let history = self.json(&["pointer", "history"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        history["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| (text(&line["from"]), text(&line["to"]).unwrap(), line["operation"].is_string()))
            .collect()
    }

    /// The frozen copy that an operation made of its source, and the source as it is now.
    pub fn frozen_and_live(&self, operation: &Value, source: &str) -> (Vec<u8>, Vec<u8>) {
        let id = operation["operation_id"].as_str().unwrap();
        let frozen = self.world.sandbox.state().join("artifacts").join(id).join(format!("{source}.jsonl"));
        (fs::read(frozen).unwrap(), fs::read(self.world.sandbox.transcript(source)).unwrap())
    }

    /// Looks at the status until it is as wanted.
    pub fn wait_for_status(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(what, || {
            last = self.json(&["status"]);
            wanted(&last)
        });
        last
    }
}
