//! A place in a script where the stub waits until the test lets it go on.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Cheap to clone; all clones are the same gate. Once open it stays open.
#[derive(Clone, Default)]
pub struct Gate {
    state: Arc<(Mutex<State>, Condvar)>,
    opened: Arc<tokio::sync::Notify>,
}

#[derive(Default, Clone, Copy)]
struct State {
    reached: usize,
    open: bool,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everyone through, now and later.
    pub fn open(&self) {
        self.state.0.lock().unwrap().open = true;
        self.state.1.notify_all();
        self.opened.notify_waiters();
    }

    /// Blocks until the stub stands at this gate (or has passed it).
    pub fn wait_reached(&self, deadline: Duration) {
        self.wait_reached_times(1, deadline);
    }

    /// Blocks until the stub has come to this gate that many times.
    pub fn wait_reached_times(&self, times: usize, deadline: Duration) {
        let until = Instant::now() + deadline;
        let mut state = self.state.0.lock().unwrap();
        while state.reached < times {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the stub did not reach the gate within {deadline:?}");
            state = self.state.1.wait_timeout(state, left).unwrap().0;
        }
    }

    /// The stub's side: marks the gate as reached and waits until it is open.
    pub(crate) async fn pass(&self) {
        {
            self.state.0.lock().unwrap().reached += 1;
            self.state.1.notify_all();
        }
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            // Registered before the look at the flag, so that an opening in between is not missed.
            opened.as_mut().enable();
            if self.state.0.lock().unwrap().open {
                return;
            }
            opened.await;
        }
    }
}
