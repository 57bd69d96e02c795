//! Signals, turned into events by a thread of their own.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use tokio::sync::mpsc;

use super::Event;

/// Listens until dropped.
#[derive(Debug)]
pub struct SignalThread {
    handle: Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl SignalThread {
    /// Starts to listen for TERM, INT, HUP and USR1.
    pub fn start(events: mpsc::UnboundedSender<Event>) -> std::io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGHUP => Event::Reload,
                    SIGUSR1 => Event::PrintStatus,
                    _ => Event::Stop,
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // Its only way to end badly is a panic, which has been printed.
            thread.join().unwrap_or_default();
        }
    }
}
