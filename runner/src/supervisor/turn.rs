//! One turn: form it, get it into the conversation, read what came of it.

use std::path::Path;

use tokio::time::Instant;

use crate::claude::binary;
use crate::claude::command::{self, REMOVED};
use crate::claude::marked;
use crate::claude::process::{Ended, EndedBy, Limits, Running, Spec};
use crate::claude::stream::StreamEvent;
use crate::cli::error::CliError;
use crate::keeper::{Next, Settled};
use crate::queue::Invocation;

use super::pause::pause_after;
use super::{Stop, Supervisor};

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
                let ended = self.invoke(&binary, &invocation).await;
                self.keeper.settle(&invocation, ended.as_ref().map_err(|error| error.message.clone()))?
            }
            Next::Answered(settled) => settled,
            Next::Hold(reason) => return self.keeper.hold(&reason),
        };
        match settled {
            Settled::Answered(receipt) => {
                self.failures = 0;
                self.retry_at = None;
                for line in self.keeper.after_turn(&receipt)? {
                    tracing::info!("{line}");
                }
            }
            Settled::TryAgain { detail } => {
                self.failures += 1;
                let (spread, _) = uuid::Uuid::new_v4().as_u64_pair();
                let pause = pause_after(self.failures, (spread >> 32) as u32);
                tracing::warn!(
                    turn = turn.id,
                    failures = self.failures,
                    ?pause,
                    "the turn is not answered: {detail}"
                );
                self.retry_at = Some(self.now().after(pause));
            }
            Settled::Held => {}
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
        let spec = Spec {
            binary: binary.to_owned(),
            arguments: command::arguments(&config, invocation),
            environment,
            workdir: config.claude_workdir.clone(),
            input: invocation.line.clone(),
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
                    Some(event) => log(invocation.turn, &event),
                    None => break,
                },
                event = self.events.recv() => {
                    if let Some(event) = event {
                        self.handle(event)?;
                    }
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
        StreamEvent::Replay { .. } | StreamEvent::Text | StreamEvent::Result(_) | StreamEvent::Other => {}
    }
}
