//! While the login is refused: a throw-away run now and then, in a folder and a session of its own, so that the
//! conversation is not tried with (DESIGN 9 "Outcomes").

use std::time::Duration;

use kael_core::ids::{InvocationId, SessionId};

use crate::claude::command;
use crate::claude::process::{EndedBy, Limits, Running, Spec};
use crate::cli::error::CliError;
use crate::queue::{HeldUntil, Hold, NextRetry, Setting, Wait};

use super::{Stop, Supervisor, notify, pacing};

const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(1800);
/// A probe that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// What is asked; the answer is not read.
const QUESTION: &str = "This is an automatic check of the login. Reply with: ok";

impl Supervisor {
    /// Plans the next probe if the queue is held for one and none is planned.
    pub(super) fn plan_probe(&mut self) -> Result<(), CliError> {
        let hold: Option<Hold> = self.keeper.queue.get(Setting::Hold)?;
        let Some(hold) = hold.filter(|hold| hold.until == HeldUntil::Probe) else {
            self.probes = 0;
            self.probe_at = None;
            return Ok(());
        };
        if self.probe_at.is_none() {
            self.probes += 1;
            let at = self.now().after(pacing::growing(FIRST, self.probes, LONGEST, pacing::random()));
            self.probe_at = Some(at);
            let next = NextRetry { at, why: Wait::Probe, reason: hold.reason };
            self.keeper.queue.set(Setting::NextRetry, &next)?;
        }
        Ok(())
    }

    /// Asks something nobody has said. An answer ends the hold.
    pub(super) async fn probe(&mut self) -> Result<(), CliError> {
        self.probe_at = None;
        let works = match self.ask_in_vain().await {
            Ok(works) => works,
            Err(error) => {
                tracing::debug!("the probe could not be run: {}", error.message);
                false
            }
        };
        if works && self.keeper.end_hold(HeldUntil::Probe)? {
            self.keeper.queue.clear(Setting::NextRetry)?;
            self.pacing.reset();
            self.retry_at = None;
            tracing::info!("the API takes the login again: the queue goes on");
        }
        Ok(())
    }

    async fn ask_in_vain(&mut self) -> Result<bool, CliError> {
        let config = self.keeper.companion.config.clone();
        let binary = self.binary()?;
        let folder = config.state_dir.join("probe");
        self.keeper.companion.disk.private_dir(&folder)?;
        let invocation = InvocationId::generate();
        let environment = command::environment_of(&config.claude, invocation);
        let mut arguments: Vec<String> =
            ["-p", "--output-format", "stream-json", "--verbose", "--no-session-persistence"]
                .map(str::to_owned)
                .to_vec();
        arguments.extend(["--session-id".to_owned(), SessionId::generate().to_string()]);
        arguments.extend(config.claude.args.iter().cloned());
        let spec = Spec {
            binary,
            arguments,
            environment,
            workdir: folder,
            input: QUESTION.as_bytes().to_vec(),
            stays_open: false,
            invocation,
        };
        let limits = Limits {
            turn: PATIENCE,
            idle: PATIENCE,
            exit_grace: config.runner.exit_grace,
            kill_grace: config.runner.kill_grace,
        };
        let mut running = Running::start(spec, limits)?;
        loop {
            notify::alive();
            tokio::select! {
                () = tokio::time::sleep(self.tick) => {}
                line = running.next() => if line?.is_none() { break },
                event = self.events.recv() => {
                    if let Some(event) = event {
                        self.handle(event)?;
                    }
                    if self.stop > Stop::No {
                        running.end_now(EndedBy::Stop);
                    }
                }
            }
        }
        let ended = running.finish().await?;
        Ok(ended.result.is_some_and(|result| !result.is_error))
    }
}
