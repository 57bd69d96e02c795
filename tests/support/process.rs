//! A child process whose output is collected while it runs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

/// Runs in a process group of its own, which is killed when this value is dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Collected,
    stderr: Collected,
    started: Instant,
}

/// What a process left.
pub struct Outcome {
    pub status: ExitStatus,
    /// Lines of stdout.
    pub lines: Vec<String>,
    pub stderr: String,
    pub took: Duration,
}

struct Collected {
    lines: Arc<(Mutex<Vec<String>>, Condvar)>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the command with all three streams piped.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            stdin: child.stdin.take(),
            stdout: Collected::from(child.stdout.take().unwrap()),
            stderr: Collected::from(child.stderr.take().unwrap()),
            child,
            started: Instant::now(),
        }
    }

    /// Writes to its stdin. A process that has already ended is not an error of the writer.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let stdin = self.stdin.as_mut().expect("stdin is closed");
        if stdin.write_all(bytes.as_ref()).is_ok() {
            stdin.flush().ok();
        }
        self
    }

    /// Closes its stdin.
    pub fn close(&mut self) -> &mut Self {
        self.stdin = None;
        self
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is gone");
    }

    /// Blocks until a line of stdout satisfies the predicate, and returns it.
    pub fn wait_line(&self, what: &str, deadline: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.stdout.wait_line(what, deadline, wanted)
    }

    /// The same for stderr.
    pub fn wait_stderr(&self, what: &str, deadline: Duration, wanted: impl Fn(&str) -> bool) -> String {
        self.stderr.wait_line(what, deadline, wanted)
    }

    /// Closes stdin and waits for the end of the process. After the deadline it is killed and the
    /// test fails.
    pub fn wait(mut self, deadline: Duration) -> Outcome {
        self.stdin = None;
        let until = Instant::now() + deadline;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < until,
                "the process did not end within {deadline:?}; stdout {:#?}, stderr {:#?}",
                self.stdout.lines.0.lock().unwrap(),
                self.stderr.lines.0.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.started.elapsed();
        // Survivors of its group may hold the pipes open: they go first, or the readers never end.
        self.kill_group();
        Outcome {
            status,
            lines: self.stdout.finish(Duration::from_secs(2)),
            stderr: self.stderr.finish(Duration::from_secs(2)).join("\n"),
            took,
        }
    }

    fn kill_group(&self) {
        // The group may be empty already.
        kill_process_group(self.pid(), Signal::KILL).ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
        self.child.wait().ok();
    }
}

impl Collected {
    fn from(stream: impl std::io::Read + Send + 'static) -> Self {
        let lines: Arc<(Mutex<Vec<String>>, Condvar)> = Arc::default();
        let sink = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                sink.0.lock().unwrap().push(text);
                sink.1.notify_all();
                line.clear();
            }
        });
        Self { lines, reader: Some(reader) }
    }

    fn wait_line(&self, what: &str, deadline: Duration, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + deadline;
        let mut lines = self.lines.0.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(|line| wanted(line)) {
                return line.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} within {deadline:?}; it has {lines:#?}");
            lines = self.lines.1.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// A process in a session of its own may keep the pipe; what came until then is the output.
    fn finish(&mut self, patience: Duration) -> Vec<String> {
        let until = Instant::now() + patience;
        if let Some(reader) = self.reader.take() {
            while !reader.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.lines.0.lock().unwrap().clone()
    }
}

impl Outcome {
    /// The exit code; -9 and the like for a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| -self.status.signal().unwrap_or_default())
    }

    /// The lines of stdout that are JSON.
    pub fn json(&self) -> Vec<Value> {
        self.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The lines of stdout with this `type`.
    pub fn of_type(&self, kind: &str) -> Vec<Value> {
        self.json().into_iter().filter(|line| line["type"] == kind).collect()
    }

    /// The `result` line.
    pub fn result(&self) -> Value {
        let mut results = self.of_type("result");
        assert_eq!(results.len(), 1, "one result line expected: {self:?}");
        results.remove(0)
    }

    /// Fails unless the exit code is this one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} after {:?}; stderr: {}", self.status, self.took, self.stderr)?;
        for line in &self.lines {
            writeln!(f, "  {}", line.chars().take(400).collect::<String>())?;
        }
        Ok(())
    }
}
