//! Where the supervisor tells what happens. Telling never waits: who cannot keep up is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kael_core::clock::Timestamp;
use kael_core::ids::OperationId;
use tokio::sync::broadcast;

use super::protocol::ServerLine;

/// Lines that a client may be behind before it is dropped: a few seconds of streamed text, and at
/// some hundred bytes a line a bound on what all of them together cost.
const BEHIND: usize = 2048;

/// A line for everyone, in its wire form.
#[derive(Debug, Clone)]
pub struct Published {
    /// The JSON line, with its newline.
    pub text: Arc<str>,
    /// Nothing follows it.
    pub last: bool,
}

/// A turn that is under way, as somebody who attaches in the middle of it needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    /// Its number.
    pub turn: i64,
    /// Since when.
    pub since: Timestamp,
    /// The tool at work.
    pub tool: Option<String>,
    /// What was streamed so far: API message, block, text.
    pub parts: Vec<(String, u32, String)>,
}

/// What is so now, apart from what is stored in the queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The newest message that was told; newer ones are still to come as live lines.
    pub last_message: i64,
    /// The newest reply that was told.
    pub last_reply: i64,
    /// The turn under way.
    pub running: Option<Running>,
    /// The open question.
    pub question: Option<ServerLine>,
    /// Why the queue is held, or that it is paused.
    pub standing: Option<ServerLine>,
}

/// The supervisor's end and the server's; cheap to clone.
#[derive(Debug, Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    now: Mutex<Snapshot>,
    lines: broadcast::Sender<Published>,
}

impl Hub {
    /// A hub for which everything up to these places in inbox and outbox counts as told.
    #[must_use]
    pub fn new(last_message: i64, last_reply: i64) -> Self {
        let (lines, _) = broadcast::channel(BEHIND);
        let now = Snapshot { last_message, last_reply, ..Snapshot::default() };
        Self { inner: Arc::new(Inner { now: Mutex::new(now), lines }) }
    }

    fn now(&self) -> MutexGuard<'_, Snapshot> {
        // Nothing that could panic runs under the lock but allocation.
        self.inner.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everyone attached. What is so and what is told change together, so that whoever
    /// attaches meanwhile neither misses nor doubles a line.
    pub fn publish(&self, line: &ServerLine) {
        let mut now = self.now();
        now.apply(line);
        if self.inner.lines.receiver_count() > 0
            && let Ok(json) = serde_json::to_string(line)
        {
            let published =
                Published { text: Arc::from(format!("{json}\n")), last: matches!(line, ServerLine::Bye) };
            // Its only failure is that the last one has just gone.
            self.inner.lines.send(published).map(drop).unwrap_or_default();
        }
    }

    /// What is so now, and everything told from now on.
    #[must_use]
    pub fn subscribe(&self) -> (Snapshot, broadcast::Receiver<Published>) {
        let now = self.now();
        (now.clone(), self.inner.lines.subscribe())
    }

    /// How many are attached.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.inner.lines.receiver_count()
    }

    /// The newest message and the newest reply that were told.
    #[must_use]
    pub fn told(&self) -> (i64, i64) {
        let now = self.now();
        (now.last_message, now.last_reply)
    }

    /// What is so now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.now().clone()
    }

    /// What is standing (a hold, a pause), for those who attach later; tells nobody.
    pub fn set_standing(&self, line: Option<ServerLine>) {
        self.now().standing = line;
    }

    /// The operation that is asked about.
    #[must_use]
    pub fn asked(&self) -> Option<OperationId> {
        match &self.now().question {
            Some(ServerLine::Question { operation, .. }) => Some(*operation),
            _ => None,
        }
    }
}

impl Snapshot {
    fn apply(&mut self, line: &ServerLine) {
        match line {
            ServerLine::Said { message, .. } => self.last_message = self.last_message.max(*message),
            ServerLine::Reply { reply, .. } => self.last_reply = self.last_reply.max(*reply),
            ServerLine::TurnStarted { turn, since } => {
                self.running = Some(Running { turn: *turn, since: *since, tool: None, parts: Vec::new() });
            }
            ServerLine::Tool { name, .. } => {
                if let Some(running) = &mut self.running {
                    running.tool = Some(name.clone());
                }
            }
            ServerLine::Part { message_id, block, text, .. } => {
                if let Some(running) = &mut self.running {
                    running.tool = None;
                    match running.parts.last_mut() {
                        Some((id, at, said)) if id == message_id && at == block => said.push_str(text),
                        _ => running.parts.push((message_id.clone(), *block, text.clone())),
                    }
                }
            }
            ServerLine::TurnEnded { .. } => self.running = None,
            ServerLine::Question { .. } => self.question = Some(line.clone()),
            ServerLine::QuestionClosed { .. } => self.question = None,
            ServerLine::Hello { .. }
            | ServerLine::Line { .. }
            | ServerLine::Accepted { .. }
            | ServerLine::Result { .. }
            | ServerLine::Error { .. }
            | ServerLine::Bye => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::Outcome;

    fn part(text: &str) -> ServerLine {
        ServerLine::Part { turn: 1, message_id: "m".into(), block: 0, text: text.into() }
    }

    #[tokio::test]
    async fn who_attaches_in_the_middle_neither_misses_nor_doubles_a_piece() {
        let hub = Hub::new(0, 0);
        hub.publish(&ServerLine::TurnStarted { turn: 1, since: Timestamp::from_millis(0) });
        hub.publish(&part("a "));
        hub.publish(&part("kite"));
        let (now, mut lines) = hub.subscribe();
        hub.publish(&part(" flies"));
        let running = now.running.unwrap();
        assert_eq!(running.parts, [("m".to_owned(), 0, "a kite".to_owned())]);
        assert!(lines.recv().await.unwrap().text.contains(" flies"));
        assert_eq!(hub.attached(), 1);
        hub.publish(&ServerLine::TurnEnded { turn: 1, outcome: Outcome::Answered, kept: Vec::new() });
        assert_eq!(hub.snapshot().running, None);
    }

    #[tokio::test]
    async fn telling_waits_for_nobody_and_who_is_too_far_behind_is_told_so() {
        let hub = Hub::new(0, 0);
        let (_, mut slow) = hub.subscribe();
        for _ in 0..BEHIND + 1 {
            hub.publish(&part("x"));
        }
        assert!(matches!(slow.recv().await, Err(broadcast::error::RecvError::Lagged(_))));
        drop(slow);
        hub.publish(&part("nobody listens"));
    }
}
