//! What to do next, decided from one look at the world and nothing else.

use kael_core::clock::Timestamp;
use kael_core::ids::OperationId;

/// What the loop sees when it looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// We were told to stop.
    pub stopping: bool,
    /// A command waits for an answer.
    pub request: bool,
    /// An operation that has its yes and waits to be run.
    pub confirmed_operation: Option<OperationId>,
    /// A human asked us to take no turn.
    pub paused: bool,
    /// Something is wrong that a human must look at.
    pub held: bool,
    /// A turn that is not answered yet.
    pub open_turn: bool,
    /// When a throw-away run finds out whether the reason of the hold is gone.
    pub probe_at: Option<Timestamp>,
    /// The open turn is not to be tried again before this.
    pub retry_at: Option<Timestamp>,
    /// Messages that may form the next turn.
    pub queued: usize,
    /// When the youngest queued message has waited long enough for company.
    pub debounced_at: Option<Timestamp>,
    /// The operation that waits for a human's yes.
    pub question: Option<OperationId>,
    /// When a pending question runs out.
    pub question_expires_at: Option<Timestamp>,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Leave the loop.
    Stop,
    /// Answer the oldest request.
    Answer,
    /// Run this operation.
    Operate(OperationId),
    /// Withdraw the question that has run out.
    Expire,
    /// Find out whether the login works again.
    Probe,
    /// Try to get the open turn, or a new one, answered.
    Turn,
    /// Wait for a ring, or until then.
    Wait(Option<Timestamp>),
}

/// Decides. Requests come before anything else, for somebody waits for them; an operation comes
/// before the next turn, or the next attempt of an open one, so that what was confirmed is what is
/// rebuilt. No invocation is unresolved here: the loop decides between them.
#[must_use]
pub fn decide(view: &View, now: Timestamp) -> Decision {
    if view.stopping {
        return Decision::Stop;
    }
    if view.request {
        return Decision::Answer;
    }
    if view.question_expires_at.is_some_and(|at| at <= now) {
        return Decision::Expire;
    }
    if let Some(operation) = view.confirmed_operation {
        return Decision::Operate(operation);
    }
    if view.held && !view.paused && view.probe_at.is_some_and(|at| at <= now) {
        return Decision::Probe;
    }
    let blocked = view.paused || view.held;
    // A limit or a breaker holds back new turns, too.
    let not_before = if view.open_turn { view.retry_at } else { view.debounced_at.max(view.retry_at) };
    if !blocked && (view.open_turn || view.queued > 0) {
        match not_before {
            Some(at) if at > now => {}
            _ => return Decision::Turn,
        }
    }
    let wake = if blocked { None } else { not_before };
    let probe = view.probe_at.filter(|_| view.held && !view.paused);
    Decision::Wait([wake, probe, view.question_expires_at].into_iter().flatten().min())
}

/// Whether there is nothing left that this loop could do without somebody else acting first.
#[must_use]
pub fn idle(view: &View) -> bool {
    let work = view.open_turn || view.queued > 0;
    !view.request && view.confirmed_operation.is_none() && (!work || view.paused || view.held)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_order_of_things() {
        let operation = OperationId::generate();
        let everything = View {
            stopping: true,
            request: true,
            confirmed_operation: Some(operation),
            queued: 1,
            question_expires_at: Some(at(1)),
            ..View::default()
        };
        let mut view = everything;
        assert_eq!(decide(&view, at(5)), Decision::Stop);
        view.stopping = false;
        assert_eq!(decide(&view, at(5)), Decision::Answer);
        view.request = false;
        assert_eq!(decide(&view, at(5)), Decision::Expire);
        view.question_expires_at = None;
        assert_eq!(decide(&view, at(5)), Decision::Operate(operation));
        view.confirmed_operation = None;
        assert_eq!(decide(&view, at(5)), Decision::Turn);
        view.queued = 0;
        assert_eq!(decide(&view, at(5)), Decision::Wait(None));
        assert!(idle(&view));
    }

    #[test]
    fn a_hold_keeps_turns_back_and_not_what_may_mend_it() {
        let held = View { held: true, open_turn: true, ..View::default() };
        assert_eq!(decide(&held, at(5)), Decision::Wait(None));
        assert!(idle(&held));
        let operation = OperationId::generate();
        let mended = View { confirmed_operation: Some(operation), ..held };
        assert_eq!(decide(&mended, at(5)), Decision::Operate(operation));
        assert!(!idle(&mended));
    }

    #[test]
    fn retries_and_company_are_waited_for() {
        let view = View { open_turn: true, retry_at: Some(at(9)), queued: 3, ..View::default() };
        assert_eq!(decide(&view, at(5)), Decision::Wait(Some(at(9))));
        assert_eq!(decide(&view, at(9)), Decision::Turn);
        assert!(!idle(&view));
        let view = View {
            queued: 1,
            debounced_at: Some(at(9)),
            question_expires_at: Some(at(7)),
            ..View::default()
        };
        assert_eq!(decide(&view, at(5)), Decision::Wait(Some(at(7))));
        let paused = View { paused: true, queued: 1, ..View::default() };
        assert_eq!(decide(&paused, at(5)), Decision::Wait(None));
    }
}
