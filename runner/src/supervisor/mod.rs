//! The loop of one companion (DESIGN 9): wait for a message, a decision or a signal; decide; act.
//!
//! One task owns the state. Signals and the doorbell send it events, the CLI's process is read by
//! it during a turn, and everything that touches queue, operations or pointer goes through its
//! [`Keeper`]. What to do next is decided by a pure function of one look (`decide`).

mod decide;
mod notify;
mod pacing;
mod probe;
mod publish;
mod reload;
mod signals;
mod storage;
mod turn;

use std::time::Duration;

use kael_core::clock::Timestamp;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;

use crate::attach::{self, AttachServer, Hub, Level};
use crate::claude::binary::VersionCache;
use crate::cli::error::CliError;
use crate::companion::Companion;
use crate::doorbell;
use crate::keeper::Keeper;
use crate::queue::{Hold, NextRetry, Setting, Wait};

pub use decide::View;
use decide::{Decision, decide, idle};
use pacing::Pacing;
use signals::SignalThread;
use storage::Storage;

/// What may happen while the loop waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// TERM or INT: finish the turn and leave; the second time leave at once.
    Stop,
    /// HUP.
    Reload,
    /// USR1.
    PrintStatus,
    /// A human wants this turn stopped.
    StopTurn(i64),
}

/// How urgently we were told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    AfterTurn,
    Now,
}

/// The loop's state.
pub struct Supervisor {
    keeper: Keeper,
    versions: VersionCache,
    events: mpsc::UnboundedReceiver<Event>,
    bell: UnixDatagram,
    stop: Stop,
    until_idle: bool,
    pacing: Pacing,
    retry_at: Option<Timestamp>,
    probe_at: Option<Timestamp>,
    probes: u32,
    storage: Storage,
    tick: Duration,
    hub: Hub,
    /// What was told about holds and pauses.
    standing: Option<String>,
    sender: mpsc::UnboundedSender<Event>,
    _attached: AttachServer,
    _signals: SignalThread,
}

impl Supervisor {
    /// Takes the companion's lock, recovers what an earlier runner left, and gets ready to listen.
    /// Must be called inside a tokio runtime.
    pub fn start(companion: Companion, until_idle: bool) -> Result<Self, CliError> {
        let mut keeper = Keeper::take(companion)?;
        // Listen first, then look: a writer that rings between the two is not missed.
        let bell = UnixDatagram::from_std(doorbell::listen(&keeper.companion.config.state_dir)?)?;
        // Unbounded: a person sends a handful of signals, and the sender must never block.
        let (sender, events) = mpsc::unbounded_channel();
        let signals = SignalThread::start(sender.clone())?;
        for line in keeper.recover()? {
            tracing::info!("{line}");
        }
        let hub = attach::hub_of(&keeper.queue)?;
        let stopper = sender.clone();
        let stop_turn = Box::new(move |turn| stopper.send(Event::StopTurn(turn)).unwrap_or_default());
        let attached = AttachServer::start(keeper.companion.clone(), hub.clone(), stop_turn)?;
        // A limit does not end because the runner was started again; a pause does.
        let waits: Option<NextRetry> = keeper.queue.get(Setting::NextRetry)?;
        let retry_at = waits.filter(|next| next.why == Wait::Limit).map(|next| next.at);
        if retry_at.is_none() {
            keeper.queue.clear(Setting::NextRetry)?;
        }
        Ok(Self {
            keeper,
            versions: VersionCache::default(),
            events,
            bell,
            stop: Stop::No,
            until_idle,
            pacing: Pacing::default(),
            retry_at,
            probe_at: None,
            probes: 0,
            storage: Storage::default(),
            tick: notify::tick(),
            hub,
            standing: None,
            sender,
            _attached: attached,
            _signals: signals,
        })
    }

    /// Where the one in whose process we run tells us to stop.
    #[must_use]
    pub fn sender(&self) -> mpsc::UnboundedSender<Event> {
        self.sender.clone()
    }

    /// Runs until told to stop, or with `until_idle` until nothing is left to do.
    pub async fn run(mut self) -> Result<(), CliError> {
        notify::ready();
        tracing::info!(pointer = %self.keeper.companion.config.resume_pointer_path.display(), "ready");
        let result = self.turn_until_stopped().await;
        notify::stopping();
        result
    }

    async fn turn_until_stopped(&mut self) -> Result<(), CliError> {
        loop {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // A script that waits for the end wants to know now.
                Err(error) if self.until_idle || self.stop > Stop::No => return Err(error),
                Err(error) => self.out_of_order(&error).await,
            }
            notify::alive();
        }
    }

    /// One look, one decision, one act. False: it is time to leave.
    async fn step(&mut self) -> Result<bool, CliError> {
        while let Ok(event) = self.events.try_recv() {
            self.handle(event)?;
        }
        self.mend()?;
        self.plan_probe()?;
        let view = self.look()?;
        self.publish_state(&view)?;
        match decide(&view, self.now()) {
            Decision::Stop => return Ok(false),
            Decision::Answer => {
                if self.keeper.answer_next_request()? {
                    self.go_on()?;
                }
                self.ring_waiting();
            }
            Decision::Operate(operation) => {
                notify::status("rebuilding the session");
                let line = self.keeper.operate(operation)?;
                self.tell(Level::Info, &line);
                self.ring_waiting();
            }
            Decision::Probe => {
                notify::status("finding out whether the login works again");
                self.probe().await?;
                self.ring_waiting();
            }
            Decision::Expire => self.keeper.expire_question()?,
            Decision::Turn => {
                notify::status("a turn is running");
                self.turn().await?;
                self.ring_waiting();
                // After who waits for the reply has it. That it fails is no reason to stop answering.
                if let Err(error) = self.keeper.keep() {
                    tracing::warn!("the transcript is not copied: {}", error.message);
                }
            }
            Decision::Wait(until) => {
                for line in self.keeper.new_question()? {
                    tracing::info!("{line}");
                }
                if self.until_idle && idle(&view) {
                    self.leave_idle()?;
                    return Ok(false);
                }
                notify::status("waiting for a message");
                self.wait(until).await?;
            }
        }
        Ok(true)
    }

    fn now(&self) -> Timestamp {
        self.keeper.companion.clock.now()
    }

    fn ring_waiting(&self) {
        doorbell::ring_waiting(&self.keeper.companion.config.state_dir);
    }

    fn look(&self) -> Result<View, CliError> {
        let mut view = self.keeper.look()?;
        view.stopping = self.stop > Stop::No;
        view.retry_at = self.retry_at;
        view.probe_at = self.probe_at;
        Ok(view)
    }

    /// Nothing keeps the next attempt back any more.
    fn go_on(&mut self) -> Result<(), CliError> {
        self.pacing.reset();
        self.retry_at = None;
        if self.keeper.queue.get::<NextRetry>(Setting::NextRetry)?.is_some() {
            self.keeper.queue.clear(Setting::NextRetry)?;
        }
        Ok(())
    }

    /// Nothing is tried before then, and `status` says so. Told once as long as the reason stays the same.
    fn wait_until(&mut self, next: &NextRetry) -> Result<(), CliError> {
        let before: Option<NextRetry> = self.keeper.queue.get(Setting::NextRetry)?;
        let told = before.is_some_and(|before| (before.why, &before.reason) == (next.why, &next.reason));
        if told {
            tracing::debug!(at = %next.at, "still: {}", next.reason);
        } else {
            let text = format!(
                "the turn is not answered: {}; it is tried again at {} (`kael-runner retry`: at once)",
                next.reason,
                next.at.local()
            );
            self.tell(Level::Warning, &text);
        }
        self.retry_at = Some(next.at);
        Ok(self.keeper.queue.set(Setting::NextRetry, next)?)
    }

    fn leave_idle(&self) -> Result<(), CliError> {
        match self.keeper.queue.get::<Hold>(Setting::Hold)? {
            Some(hold) => Err(CliError::failed(format!("the queue is held: {}", hold.reason))),
            None => Ok(()),
        }
    }

    async fn wait(&mut self, until: Option<Timestamp>) -> Result<(), CliError> {
        let left = until.map_or(self.tick, |at| at.since(self.now()).min(self.tick));
        let mut ring = [0; 64];
        tokio::select! {
            rung = self.bell.recv(&mut ring) => {
                rung?;
                // One look answers all rings so far.
                while self.bell.try_recv(&mut ring).is_ok() {}
            }
            event = self.events.recv() => {
                if let Some(event) = event {
                    self.handle(event)?;
                }
            }
            () = tokio::time::sleep(left) => {}
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), CliError> {
        match event {
            Event::Stop => {
                self.stop = if self.stop == Stop::No { Stop::AfterTurn } else { Stop::Now };
                tracing::info!(at_once = self.stop == Stop::Now, "told to stop");
            }
            Event::Reload => self.reload(),
            Event::PrintStatus => {
                let status = crate::cli::status::collect(&self.keeper.companion)?;
                eprintln!("{}", crate::cli::status::text(&status));
            }
            // It has ended meanwhile.
            Event::StopTurn(turn) => tracing::debug!(turn, "the turn that is to be stopped does not run"),
        }
        Ok(())
    }
}
