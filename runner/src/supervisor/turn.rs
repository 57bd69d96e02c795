//! One turn: form it, get it into the conversation, read what came of it.

use std::path::Path;

use kael_core::ids::InvocationId;
use kael_core::transcript::receipt::Receipt;
use tokio::time::Instant;

use crate::attach::{Level, Outcome, ServerLine};
use crate::claude::binary;
use crate::claude::command::{self, REMOVED};
use crate::claude::hush;
use crate::claude::marked;
use crate::claude::process::{Ended, EndedBy, Limits, Running, Spec};
use crate::claude::stream::StreamEvent;
use crate::cli::error::CliError;
use crate::cli::logs;
use crate::keeper::{Kind, Next, Settled};
use crate::queue::{Invocation, NextRetry, Route, Wait};

use super::{Event, Stop, Supervisor, notify, pacing};

impl Supervisor {
    /// Tries once to get the open turn (or a new one of all queued messages) answered.
    pub(super) async fn turn(&mut self) -> Result<(), CliError> {
        let Some(turn) = self.keeper.open_or_form_turn()? else { return Ok(()) };
        self.learn_version();
        let settled = match self.keeper.next_attempt(&turn)? {
            Next::Run(mut invocation) => {
                self.keeper.step_over_the_dead(&mut invocation)?;
                return self.attempt(&invocation).await;
            }
            Next::Answered(settled) => settled,
            Next::Hold(reason) => return self.keeper.hold(&reason),
        };
        self.after_attempt(turn.id, settled)?;
        self.after_additions(None)
    }

    /// Which version runs decides how a turn goes on. One that cannot be asked is reported by the attempt.
    fn learn_version(&mut self) {
        let Ok(binary) = self.binary() else { return };
        let environment =
            command::environment_of(&self.keeper.companion.config.claude, InvocationId::generate());
        let version = self.versions.version(&binary, &environment, REMOVED);
        self.keeper.note_version(version.as_deref());
    }

    async fn attempt(&mut self, invocation: &Invocation) -> Result<(), CliError> {
        let binary = match self.binary() {
            Ok(binary) => binary,
            Err(error) => {
                let settled = Settled::TryAgain { kind: Kind::CannotStart, detail: error.message, at: None };
                return self.after_attempt(invocation.turn, settled);
            }
        };
        self.keeper.queue.record_invocation(invocation)?;
        self.publish_said()?;
        self.hub.publish(&ServerLine::TurnStarted { turn: invocation.turn, since: self.now() });
        let ended = self.invoke(&binary, invocation).await;
        let settled =
            self.keeper.settle(invocation, ended.as_ref().map_err(|error| error.message.clone()))?;
        self.after_attempt(invocation.turn, settled)?;
        self.after_additions(ended.as_ref().ok().map(|ended| (invocation.id, ended)))
    }

    /// What became of messages that were given to a turn that ran: those that the CLI made a turn of are one here.
    fn after_additions(&mut self, ended: Option<(InvocationId, &Ended)>) -> Result<(), CliError> {
        for (turn, settled) in self.keeper.settle_additions(ended)? {
            self.hub.publish(&ServerLine::TurnStarted { turn, since: self.now() });
            self.after_attempt(turn, settled)?;
        }
        Ok(())
    }

    fn after_attempt(&mut self, turn: i64, settled: Settled) -> Result<(), CliError> {
        match settled {
            Settled::Answered(receipt) => self.done(turn, Outcome::Answered, &receipt)?,
            Settled::Stopped(receipt) => self.done(turn, Outcome::Stopped, &receipt)?,
            // What is given up was to blame for its failures; the next one begins without them.
            Settled::TryAtOnce => {
                self.publish_end(turn, Outcome::TryAgain, Vec::new())?;
                self.go_on()?;
            }
            Settled::Dead => {
                self.publish_end(turn, Outcome::GivenUp, Vec::new())?;
                self.go_on()?;
            }
            Settled::TryAgain { kind, detail, at: Some(at) } => {
                tracing::debug!(turn, kind = kind.word(), "a limit");
                self.publish_end(turn, Outcome::TryAgain, Vec::new())?;
                self.wait_until(&NextRetry { at, why: Wait::Limit, reason: detail })?;
            }
            Settled::TryAgain { kind, detail, at: None } => {
                self.publish_end(turn, Outcome::TryAgain, Vec::new())?;
                let runner = &self.keeper.companion.config.runner;
                let (breaker, most) = (runner.breaker, runner.max_attempts);
                let pause = self.pacing.failed(breaker, self.now(), pacing::random());
                if kind == Kind::CannotStart && self.pacing.failures() >= most {
                    // An updater puts a missing program back within seconds; this is something else.
                    return self.keeper.hold(&format!("{detail}; then run `kael-runner retry`"));
                }
                let why = if pause.tripped { Wait::Breaker } else { Wait::Pause };
                let at = self.now().after(pause.length);
                self.wait_until(&NextRetry { at, why, reason: detail })?;
            }
            Settled::Held => self.publish_end(turn, Outcome::Held, Vec::new())?,
        }
        Ok(())
    }

    /// The turn is over and will not be tried again.
    fn done(&mut self, turn: i64, outcome: Outcome, receipt: &Receipt) -> Result<(), CliError> {
        self.go_on()?;
        self.log_content(turn)?;
        let mut kept: Vec<String> = receipt.replies.iter().map(|part| part.message_id.clone()).collect();
        kept.dedup();
        self.publish_end(turn, outcome, kept)?;
        if outcome == Outcome::Answered
            && let Some(text) = self.keeper.queue.turn_mark(turn)?
        {
            self.hub.publish(&ServerLine::Line { level: Level::Warning, text });
        }
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

    /// What was said in an answered turn, where the owner wants it in the logs.
    fn log_content(&self, turn: i64) -> Result<(), CliError> {
        if !self.keeper.companion.config.runner.log_content {
            return Ok(());
        }
        for message in self.keeper.queue.messages_of(turn)? {
            logs::said(turn, "human", &message.words);
        }
        for reply in self.keeper.queue.replies_to(turn)? {
            logs::said(turn, "companion", &reply.part.words);
        }
        Ok(())
    }

    /// The CLI as it is now: its updater may have replaced it since the last turn.
    pub(super) fn binary(&self) -> Result<std::path::PathBuf, CliError> {
        let config = &self.keeper.companion.config;
        let name = config.resume_command.first().map_or("claude", String::as_str);
        let configured = config.claude.env.get("PATH").map(std::ffi::OsString::from);
        let search = configured.or_else(|| std::env::var_os("PATH"));
        Ok(binary::resolve(name, &config.claude_workdir, search.as_deref())?)
    }

    async fn invoke(&mut self, binary: &Path, invocation: &Invocation) -> Result<Ended, CliError> {
        let config = self.keeper.companion.config.clone();
        let environment = command::environment(&config.claude, invocation);
        let attached = self.hub.attached() > 0;
        let spec = Spec {
            binary: binary.to_owned(),
            arguments: command::arguments(&config, invocation, attached),
            environment,
            workdir: config.claude_workdir.clone(),
            input: invocation.line.clone(),
            // A repeated message that the CLI swallows gives no result to close on (facts 1).
            stays_open: (attached || config.runner.absorb) && invocation.route != Route::ResumeInterrupted,
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
            // Only a help for finding it again; a full disk must not end a turn that runs.
            if let Err(error) = self.keeper.queue.note_process(invocation.id, pid, marked::start_time(pid)) {
                tracing::warn!("{}", kael_core::error_chain(&error));
            }
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
            // A long turn is no reason for the service manager to lose patience.
            notify::alive();
            let mut look_again = self.tick;
            if config.runner.absorb && self.stop == Stop::No && running.takes_additions() {
                match self.keeper.add_to(invocation)? {
                    Some(addition) => running.add(&addition.row_uuid, addition.line),
                    // What is held back because more of it may come is looked at once that is over.
                    None => {
                        let until = self.keeper.look()?.debounced_at.filter(|at| *at > self.now());
                        look_again = until.map_or(look_again, |at| at.since(self.now()).min(look_again));
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(look_again) => {}
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
        let mut ended = running.finish().await?;
        let own =
            std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
        let variables: Vec<(String, String)> = own.chain(config.claude.env.clone()).collect();
        let secrets = hush::secrets(variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        ended.stderr = hush::hush(&ended.stderr, &secrets, &invocation.line);
        Ok(ended)
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
        StreamEvent::Limit { kind, .. } => tracing::debug!(turn, kind, "a limit of the account"),
        StreamEvent::ApiError { error, .. } => tracing::debug!(turn, error, "the API refused"),
        StreamEvent::Replay { .. }
        | StreamEvent::Text
        | StreamEvent::ToolDone
        | StreamEvent::MessageStart { .. }
        | StreamEvent::Delta { .. }
        | StreamEvent::Result(_)
        | StreamEvent::Other => {}
    }
}
