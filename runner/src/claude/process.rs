//! The process of one invocation: started in a group of its own, fed, watched, and ended if it
//! does not end by itself.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use kael_core::ids::InvocationId;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::adopted;
use super::lines::{Line, next_line};
use super::marked;
use super::stream::{self, ResultLine, StreamEvent};

/// What to start.
#[derive(Debug)]
pub struct Spec {
    /// The program.
    pub binary: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables over the inherited ones.
    pub environment: Vec<(String, String)>,
    /// The folder it runs in.
    pub workdir: PathBuf,
    /// What goes to its standard input.
    pub input: Vec<u8>,
    /// Standard input stays open until the result, so that the run can be interrupted or told more; otherwise it is
    /// closed after the input.
    pub stays_open: bool,
    /// Its marker.
    pub invocation: InvocationId,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The whole run.
    pub turn: Duration,
    /// Without a line from the CLI.
    pub idle: Duration,
    /// From its result, or the end of its output, to its exit.
    pub exit_grace: Duration,
    /// From TERM to KILL.
    pub kill_grace: Duration,
}

/// Why we ended a process that did not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The turn took longer than `turn_timeout`.
    TurnTime,
    /// Nothing came for `idle_timeout`.
    IdleTime,
    /// It had given its result and stayed.
    Lingering,
    /// The runner was told to stop.
    Stop,
    /// A human stopped the turn.
    Human,
}

/// What is known after the process has exited.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The result line, if one came.
    pub result: Option<ResultLine>,
    /// The result line of a turn of its own that the CLI made of a line that was added.
    pub result_of_addition: Option<ResultLine>,
    /// The session the CLI said it ran in.
    pub session: Option<String>,
    /// Whether our message was taken in, as the stream says.
    pub replayed: bool,
    /// What the stream said about refusals of the API.
    pub trouble: Trouble,
    /// How long it ran.
    pub took: Duration,
    /// The end of its standard error.
    pub stderr: String,
    /// Whether and why we ended it.
    pub ended_by: Option<EndedBy>,
}

/// Fields of the stream that say why a turn went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trouble {
    /// The last API error's class and closer name, as the CLI names them.
    pub api_error: Option<(String, Option<String>)>,
    /// A limit of the account refused a request.
    pub limited: bool,
    /// When that limit ends, in seconds since 1970.
    pub resets_at: Option<i64>,
    /// MCP servers that did not start.
    pub failed_servers: Vec<String>,
}

/// A running CLI. Dropping it kills the leader; [`Running::finish`] is the way that leaves nothing.
#[derive(Debug)]
pub struct Running {
    child: Child,
    known: adopted::Known,
    group: Option<Pid>,
    invocation: InvocationId,
    limits: Limits,
    lines: mpsc::Receiver<StreamEvent>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
    /// The open standard input.
    input: Option<mpsc::Sender<Vec<u8>>>,
    stderr: JoinHandle<String>,
    started: Instant,
    last_line: Instant,
    result: Option<ResultLine>,
    /// A line that was added, by its uuid, until the CLI says that it has taken it in.
    added: Option<String>,
    /// The turn's own result, where a line added to it was still to come.
    first_result: Option<ResultLine>,
    /// Tools that were called and have given no result yet.
    tools_at_work: u32,
    session: Option<String>,
    replayed: bool,
    trouble: Trouble,
    output_ended: bool,
    exited: bool,
    ended_by: Option<EndedBy>,
    kill_at: Option<Instant>,
    /// Interrupted; told to end if it has not ended by then.
    interrupted_until: Option<Instant>,
}

/// What interrupts a turn over standard input (facts 5). What was said so far stays in the
/// conversation; a signal would lose it.
const INTERRUPT: &[u8] =
    b"{\"type\":\"control_request\",\"request_id\":\"stop\",\"request\":{\"subtype\":\"interrupt\"}}\n";

/// Lines that may wait for the supervisor; the CLI writes a few a second, and blocks when we do.
const LINES_AHEAD: usize = 64;
/// How long output may still trickle in after the process has exited.
const DRAIN: Duration = Duration::from_millis(500);
/// As much of standard error as an error message may need.
const STDERR_KEPT: usize = 4096;

impl Running {
    /// Starts the process. The invocation must be recorded already.
    pub fn start(spec: Spec, limits: Limits) -> std::io::Result<Self> {
        let mut command = Command::new(&spec.binary);
        for name in super::command::REMOVED {
            command.env_remove(name);
        }
        command
            .args(&spec.arguments)
            .envs(spec.environment)
            .current_dir(&spec.workdir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let pid_of = |child: &Child| child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let (mut child, known) = adopted::start(|| command.spawn(), pid_of)?;
        let group = pid_of(&child);
        let missing = || std::io::Error::other("the process was started without its pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let (sender, lines) = mpsc::channel(LINES_AHEAD);
        // After the input goes one interrupt, and one line more at a time.
        let (input, more) = mpsc::channel(2);
        let now = Instant::now();
        Ok(Self {
            child,
            known,
            group,
            invocation: spec.invocation,
            limits,
            lines,
            reader: tokio::spawn(read(stdout, sender)),
            writer: tokio::spawn(write(stdin, spec.input, more)),
            input: spec.stays_open.then_some(input),
            stderr: tokio::spawn(tail(stderr)),
            started: now,
            last_line: now,
            result: None,
            added: None,
            first_result: None,
            tools_at_work: 0,
            session: None,
            replayed: false,
            trouble: Trouble::default(),
            output_ended: false,
            exited: false,
            ended_by: None,
            kill_at: None,
            interrupted_until: None,
        })
    }

    /// The leader's pid.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The next event; `None` once the process has exited and its output is read. Ends the process
    /// when a limit is over. Cancel-safe.
    pub async fn next(&mut self) -> std::io::Result<Option<StreamEvent>> {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                biased;
                event = self.lines.recv(), if !self.output_ended => {
                    self.last_line = Instant::now();
                    match event {
                        Some(event) => {
                            self.note(&event);
                            return Ok(Some(event));
                        }
                        None if self.exited => return Ok(None),
                        None => self.output_ended = true,
                    }
                }
                status = self.child.wait(), if !self.exited => {
                    status?;
                    if self.output_ended {
                        return Ok(None);
                    }
                    self.exited = true;
                    self.last_line = Instant::now();
                }
                () = tokio::time::sleep_until(deadline) => {
                    if self.exited {
                        // Somebody it left behind holds the pipe open; all it wrote itself is read.
                        return Ok(None);
                    }
                    self.over();
                }
            }
        }
    }

    fn note(&mut self, event: &StreamEvent) {
        match event {
            StreamEvent::Init { session, failed_servers, .. } => {
                self.session.clone_from(session);
                self.trouble.failed_servers.clone_from(failed_servers);
            }
            StreamEvent::Limit { resets_at, .. } => {
                self.trouble.limited = true;
                self.trouble.resets_at = *resets_at;
            }
            StreamEvent::ApiError { error, detail } => {
                self.trouble.api_error = Some((error.clone(), detail.clone()));
            }
            StreamEvent::Replay { uuid } => {
                self.replayed = true;
                if self.added.is_some() && self.added == *uuid {
                    self.added = None;
                }
            }
            StreamEvent::Result(result) => {
                // It stays for the next message as long as one can come.
                self.input = None;
                self.tools_at_work = 0;
                if self.added.is_none() || self.first_result.is_some() {
                    self.result = Some((**result).clone());
                    return;
                }
                // What was added came too late for this turn: the CLI begins another one for it.
                self.first_result = Some((**result).clone());
                if result.is_error {
                    // It would go on from the failure, and the message that failed would be left behind.
                    self.end(EndedBy::Lingering);
                }
            }
            StreamEvent::ToolUse { .. } => self.tools_at_work += 1,
            StreamEvent::ToolDone => self.tools_at_work = self.tools_at_work.saturating_sub(1),
            StreamEvent::Text
            | StreamEvent::MessageStart { .. }
            | StreamEvent::Delta { .. }
            | StreamEvent::Retry { .. }
            | StreamEvent::Other => {}
        }
    }

    fn deadline(&self) -> Instant {
        if self.exited {
            return self.last_line + DRAIN;
        }
        if let Some(kill_at) = self.kill_at {
            return kill_at;
        }
        let done = self.result.is_some() || self.output_ended;
        let quiet = if done { self.limits.exit_grace } else { self.limits.idle };
        let deadline = (self.started + self.limits.turn).min(self.last_line + quiet);
        self.interrupted_until.map_or(deadline, |until| until.min(deadline))
    }

    fn over(&mut self) {
        if self.kill_at.is_some() {
            self.signal(Signal::KILL);
            self.kill_at = Some(Instant::now() + Duration::from_secs(1));
            return;
        }
        let why = if self.result.is_some() || self.output_ended {
            EndedBy::Lingering
        } else if self.started.elapsed() >= self.limits.turn {
            EndedBy::TurnTime
        } else {
            EndedBy::IdleTime
        };
        self.end(why);
    }

    /// Whether a line that is added now is likely to be taken into the turn: the CLI looks for one when a tool is done.
    #[must_use]
    pub fn takes_additions(&self) -> bool {
        self.tools_at_work > 0 && self.added.is_none() && self.input.is_some() && self.ended_by.is_none()
    }

    /// Writes one more message to the running turn. It must be recorded already; what became of it the transcript says
    /// after the exit.
    pub fn add(&mut self, uuid: &str, line: Vec<u8>) {
        if self.input.as_ref().is_some_and(|input| input.try_send(line).is_ok()) {
            self.added = Some(uuid.to_owned());
        }
    }

    /// Stops the turn for a human: interrupts it, and ends the process if it has not ended within
    /// `kill_grace`. Where it cannot be interrupted, or a second time, the process is asked to end at once.
    pub fn stop(&mut self) {
        let interrupted = self.ended_by.is_none()
            && self.input.as_ref().is_some_and(|input| input.try_send(INTERRUPT.to_vec()).is_ok());
        self.ended_by.get_or_insert(EndedBy::Human);
        if interrupted {
            self.interrupted_until = Some(Instant::now() + self.limits.kill_grace);
        } else {
            self.end(EndedBy::Human);
        }
    }

    /// Asks the process and its group to end; they are killed after `kill_grace`.
    pub fn end(&mut self, why: EndedBy) {
        self.ended_by.get_or_insert(why);
        if self.kill_at.is_none() {
            self.signal(Signal::TERM);
            self.kill_at = Some(Instant::now() + self.limits.kill_grace);
        }
    }

    /// Kills it without waiting any longer.
    pub fn end_now(&mut self, why: EndedBy) {
        self.ended_by.get_or_insert(why);
        self.kill_at = Some(Instant::now());
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Gone already is what was wanted.
            kill_process_group(group, signal).unwrap_or_default();
        }
    }

    /// Collects what is known, after [`Running::next`] has returned `None`. Ends whatever the CLI
    /// left behind, in whatever session it is; waits up to `kill_grace` for that.
    pub async fn finish(mut self) -> std::io::Result<Ended> {
        let status = self.child.wait().await?;
        let (invocation, grace) = (self.invocation, self.limits.kill_grace);
        drop(self.known);
        // The marked ones first: those without a marker become ours when their parents end.
        let end = move || marked::end_all(invocation, grace) + adopted::end_all(grace);
        let left = tokio::task::spawn_blocking(end).await;
        if let Ok(left @ 1..) = left {
            tracing::info!(invocation = %self.invocation, left, "ended processes that the CLI left behind");
        }
        self.writer.abort();
        self.reader.abort();
        // The pipe's other end is gone with the last marked process, unless one cleared its
        // environment; it is not waited for.
        let stderr = match tokio::time::timeout(Duration::from_secs(1), &mut self.stderr).await {
            Ok(Ok(text)) => text,
            _ => String::new(),
        };
        self.stderr.abort();
        let (result, result_of_addition) = match self.first_result {
            Some(first) => (Some(first), self.result),
            None => (self.result, None),
        };
        Ok(Ended {
            status,
            result,
            result_of_addition,
            session: self.session,
            replayed: self.replayed,
            trouble: self.trouble,
            took: self.started.elapsed(),
            stderr,
            ended_by: self.ended_by,
        })
    }
}

async fn read(stdout: ChildStdout, events: mpsc::Sender<StreamEvent>) {
    let mut input = BufReader::with_capacity(64 * 1024, stdout);
    loop {
        let event = match next_line(&mut input).await {
            Ok(Some(Line::Whole(line))) => stream::parse(&line),
            Ok(Some(Line::TooLong)) => StreamEvent::Other,
            Ok(None) | Err(_) => return,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Writes the input, then what else comes; closes with the channel.
async fn write(mut stdin: ChildStdin, input: Vec<u8>, mut more: mpsc::Receiver<Vec<u8>>) {
    let mut next = Some(input);
    while let Some(bytes) = next {
        // A process that ends without reading is seen by its exit, not here.
        if stdin.write_all(&bytes).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        next = more.recv().await;
    }
    stdin.shutdown().await.unwrap_or_default();
}

async fn tail(mut stderr: tokio::process::ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read]);
        if kept.len() > STDERR_KEPT {
            kept.drain(..kept.len() - STDERR_KEPT);
        }
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
