//! One turn: form it, get it into the conversation, read what came of it.

use std::path::Path;

use kael_core::transcript::receipt::Receipt;
use tokio::time::Instant;

use crate::attach::{Level, Outcome, ServerLine};
use crate::claude::binary;
use crate::claude::command::{self, REMOVED};
use crate::claude::marked;
use crate::claude::process::{Ended, EndedBy, Limits, Running, Spec};
use crate::claude::stream::StreamEvent;
use crate::cli::error::CliError;
use crate::keeper::{Next, Settled};
use crate::queue::{Invocation, Route};

use super::pause::pause_after;
use super::{Event, Stop, Supervisor};

impl Supervisor {
    /// Tries once to get the open turn (or a new one of all queued messages) answered.
    pub(super) async fn turn(&mut self) -> Result<(), CliError> {
        let Some(turn) = self.keeper.open_or_form_turn()? else { return Ok(()) };
        let settled = match self.keeper.next_attempt(&turn)? {
            Next::Run(invocation) => {
                let binary = match self.binary() {
                    Ok(binary) => binary,
                    Err(error) => return self.keeper.hold(&error.message),
                };
                self.keeper.queue.record_invocation(&invocation)?;
                self.publish_said()?;
                self.hub.publish(&ServerLine::TurnStarted { turn: turn.id, since: self.now() });
                let ended = self.invoke(&binary, &invocation).await;
                self.keeper.settle(&invocation, ended.as_ref().map_err(|error| error.message.clone()))?
            }
            Next::Answered(settled) => settled,
            Next::Hold(reason) => return self.keeper.hold(&reason),
        };
        match settled {
            Settled::Answered(receipt) => self.done(turn.id, Outcome::Answered, &receipt),
            Settled::Stopped(receipt) => self.done(turn.id, Outcome::Stopped, &receipt),
            Settled::TryAgain { detail } => {
                self.failures += 1;
                let (spread, _) = uuid::Uuid::new_v4().as_u64_pair();
                let pause = pause_after(self.failures, (spread >> 32) as u32);
                self.retry_at = Some(self.now().after(pause));
                self.publish_end(turn.id, Outcome::TryAgain, Vec::new())?;
                let (failures, seconds) = (self.failures, pause.as_secs_f64());
                self.tell(
                    Level::Warning,
                    &format!(
                        "turn {} is not answered ({failures}. time): {detail}; it is tried again in {seconds:.0} s",
                        turn.id
                    ),
                );
                Ok(())
            }
            Settled::Held => self.publish_end(turn.id, Outcome::Held, Vec::new()),
        }
    }

    /// The turn is over and will not be tried again.
    fn done(&mut self, turn: i64, outcome: Outcome, receipt: &Receipt) -> Result<(), CliError> {
        self.failures = 0;
        self.retry_at = None;
        let mut kept: Vec<String> = receipt.replies.iter().map(|part| part.message_id.clone()).collect();
        kept.dedup();
        self.publish_end(turn, outcome, kept)?;
        let told = self.keeper.after_turn(receipt)?;
        // What it says about a rebuild that is asked for now stands in the question, with its figures.
        let asks = self.hub.asked().is_none() && self.keeper.look()?.question.is_some();
        for line in told {
            match asks {
                true => tracing::info!("{line}"),
                false => self.tell(Level::Info, &line),
            }
        }
        Ok(())
    }

    /// The CLI as it is now: its updater may have replaced it since the last turn.
    fn binary(&self) -> Result<std::path::PathBuf, CliError> {
        let config = &self.keeper.companion.config;
        let name = config.resume_command.first().map_or("claude", String::as_str);
        let configured = config.claude.env.get("PATH").map(std::ffi::OsString::from);
        let search = configured.or_else(|| std::env::var_os("PATH"));
        Ok(binary::resolve(name, &config.claude_workdir, search.as_deref())?)
    }

    async fn invoke(&mut self, binary: &Path, invocation: &Invocation) -> Result<Ended, CliError> {
        let config = self.keeper.companion.config.clone();
        let environment = command::environment(&config.claude, invocation);
        let version = self.versions.version(binary, &environment, REMOVED);
        self.keeper.note_version(version.as_deref());
        let attached = self.hub.attached() > 0;
        let spec = Spec {
            binary: binary.to_owned(),
            arguments: command::arguments(&config, invocation, attached),
            environment,
            workdir: config.claude_workdir.clone(),
            input: invocation.line.clone(),
            // A repeated message that the CLI swallows gives no result to close on (facts 1).
            stoppable: attached && invocation.route != Route::ResumeInterrupted,
            invocation: invocation.id,
        };
        let limits = Limits {
            turn: config.runner.turn_timeout,
            idle: config.runner.idle_timeout,
            exit_grace: config.runner.exit_grace,
            kill_grace: config.runner.kill_grace,
        };
        let mut running = Running::start(spec, limits).map_err(|error| {
            CliError::failed(format!(
                "could not start {} in {}: {error}",
                binary.display(),
                config.claude_workdir.display()
            ))
        })?;
        if let Some(pid) = running.pid() {
            self.keeper.queue.note_process(invocation.id, pid, marked::start_time(pid))?;
        }
        tracing::info!(turn = invocation.turn, invocation = %invocation.id, session = %invocation.session, "the turn is running");
        let mut stop_at: Option<Instant> = None;
        let mut message = String::new();
        let mut ring = [0; 64];
        loop {
            match self.stop {
                Stop::No => {}
                Stop::AfterTurn => {
                    let at = *stop_at.get_or_insert_with(|| Instant::now() + config.runner.stop_timeout);
                    if at <= Instant::now() {
                        running.end(EndedBy::Stop);
                    }
                }
                Stop::Now => running.end_now(EndedBy::Stop),
            }
            let asked_to_stop = self.stop;
            tokio::select! {
                event = running.next() => match event? {
                    Some(event) => {
                        log(invocation.turn, &event);
                        self.publish_event(invocation.turn, event, &mut message);
                    }
                    None => break,
                },
                event = self.events.recv() => match event {
                    Some(Event::StopTurn(turn)) if turn == invocation.turn => {
                        // First that it was wanted, then the deed: after a crash the turn stays stopped.
                        self.keeper.queue.note_stop(invocation.id)?;
                        running.stop();
                    }
                    Some(event) => self.handle(event)?,
                    None => {}
                },
                // What is said meanwhile waits for the next turn, but is heard by everyone now.
                rung = self.bell.recv(&mut ring) => {
                    rung?;
                    self.publish_said()?;
                }
                () = sleep_until(stop_at), if asked_to_stop == Stop::AfterTurn => {}
            }
        }
        Ok(running.finish().await?)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) if at > Instant::now() => tokio::time::sleep_until(at).await,
        // The process has been told to end; its own limits are running now.
        Some(_) => std::future::pending().await,
        None => tokio::task::yield_now().await,
    }
}

fn log(turn: i64, event: &StreamEvent) {
    match event {
        StreamEvent::ToolUse { name } => tracing::info!(turn, tool = %name, "a tool is at work"),
        StreamEvent::Retry { attempt, status } => {
            tracing::warn!(turn, attempt, status, "the CLI repeats a refused request");
        }
        StreamEvent::Init { version, .. } => tracing::debug!(turn, version, "the CLI has started"),
        StreamEvent::Replay { .. }
        | StreamEvent::Text
        | StreamEvent::MessageStart { .. }
        | StreamEvent::Delta { .. }
        | StreamEvent::Result(_)
        | StreamEvent::Other => {}
    }
}
