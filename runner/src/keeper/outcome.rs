//! What an unanswered run means, from the fields of its result and from its receipt, never from
//! words in its output (DESIGN 9 "Outcomes").

use kael_core::ids::SessionId;
use kael_core::transcript::receipt::{After, Receipt};

use crate::claude::process::{Ended, EndedBy};

/// What to do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Try again after a pause; counts against `max_attempts` when charged.
    Retry {
        /// The message, and not the weather, may be to blame.
        charge: bool,
    },
    /// Trying again cannot help until a human has done something.
    Hold,
}

/// A run that left its turn unanswered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened, for a human; holds nothing of the conversation.
    pub detail: String,
    /// What to do.
    pub then: Then,
}

/// How the run itself ended: `Ok` with what is known, or why it did not even start. `None`: it was
/// the run of an earlier runner, of which nothing but the transcript is left.
pub type Run<'a> = Option<Result<&'a Ended, String>>;

/// Says what a run that did not answer its turn means.
#[must_use]
pub fn classify(run: &Run<'_>, receipt: &Receipt, asked: SessionId) -> Failure {
    let retry = |charge, detail: String| Failure { detail, then: Then::Retry { charge } };
    let hold = |detail: String| Failure { detail, then: Then::Hold };
    let ended = match run {
        None => return retry(false, "the runner ended before the CLI did".to_owned()),
        Some(Err(reason)) => return hold(reason.clone()),
        Some(Ok(ended)) => ended,
    };
    if let Some(reported) = reported_session(ended)
        && reported != asked.to_string()
        && receipt.after == After::Absent
    {
        return hold(format!(
            "the CLI was asked for session {asked} and ran in {reported}: the pointer stays. If {reported} is the \
             conversation, run `kael-runner pointer set {reported}`, then `kael-runner retry`"
        ));
    }
    match ended.ended_by {
        Some(EndedBy::Stop) => return retry(false, "the runner was told to stop during the turn".to_owned()),
        Some(EndedBy::Human) => return retry(false, "a human stopped the turn".to_owned()),
        Some(EndedBy::TurnTime) => return retry(true, "the turn took longer than turn_timeout".to_owned()),
        Some(EndedBy::IdleTime) => return retry(true, "the CLI was silent for idle_timeout".to_owned()),
        Some(EndedBy::Lingering) | None => {}
    }
    match &ended.result {
        Some(result) if result.is_error => {
            api_error(result.api_error_status, result.terminal_reason.as_deref(), ended)
        }
        Some(_) => retry(
            true,
            "the CLI reports success, but the transcript holds no answer: nothing is taken for a reply"
                .to_owned(),
        ),
        None => retry(true, format!("the CLI ended without a result ({}){}", ended.status, stderr(ended))),
    }
}

fn reported_session(ended: &Ended) -> Option<&str> {
    ended.result.as_ref().and_then(|result| result.session_id.as_deref()).or(ended.session.as_deref())
}

fn api_error(status: Option<u16>, reason: Option<&str>, ended: &Ended) -> Failure {
    let retry = |charge, detail: String| Failure { detail, then: Then::Retry { charge } };
    let hold = |detail: &str| Failure { detail: detail.to_owned(), then: Then::Hold };
    match (status, reason) {
        (_, Some("prompt_too_long")) => hold(
            "the conversation no longer fits into the model's window: `kael-runner request --confirm REBUILD` slims it, \
             then `kael-runner retry`",
        ),
        (Some(401 | 403), _) => hold(
            "the API refuses the login: log in again (`claude /login`, or a new key), then `kael-runner retry`",
        ),
        (Some(404), _) => hold(
            "the API does not know the model: correct --model in [claude] args, then `kael-runner retry`",
        ),
        (Some(429), _) => retry(false, "the API's rate or usage limit is reached".to_owned()),
        (Some(status @ 500..), _) => retry(false, format!("the API answered {status}")),
        (Some(status), _) => retry(true, format!("the API answered {status}")),
        (None, _) => retry(
            ended.result.as_ref().is_none_or(|result| result.subtype != "success"),
            match &ended.result {
                Some(result) if result.subtype != "success" => format!("the CLI gave up: {}", result.subtype),
                _ => "the API could not be reached".to_owned(),
            },
        ),
    }
}

fn stderr(ended: &Ended) -> String {
    match ended.stderr.lines().last() {
        Some(line) if !line.trim().is_empty() => format!(": {}", line.chars().take(300).collect::<String>()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::stream::ResultLine;
    use std::os::unix::process::ExitStatusExt;

    fn ended(result: Option<ResultLine>) -> Ended {
        Ended {
            status: std::process::ExitStatus::from_raw(256),
            result,
            session: None,
            replayed: false,
            stderr: "first\nError: something is wrong".to_owned(),
            ended_by: None,
        }
    }

    fn refused(status: Option<u16>, reason: &str) -> Ended {
        ended(Some(ResultLine {
            subtype: "success".to_owned(),
            is_error: true,
            api_error_status: status,
            terminal_reason: Some(reason.to_owned()),
            ..ResultLine::default()
        }))
    }

    fn then(run: &Ended) -> Then {
        classify(&Some(Ok(run)), &Receipt::absent(), SessionId::generate()).then
    }

    #[test]
    fn the_weather_is_not_charged_and_what_only_a_human_can_mend_holds() {
        let retry = |charge| Then::Retry { charge };
        for (status, wanted) in [
            (Some(529), retry(false)),
            (Some(500), retry(false)),
            (Some(429), retry(false)),
            (None, retry(false)),
            (Some(400), retry(true)),
            (Some(401), Then::Hold),
            (Some(403), Then::Hold),
            (Some(404), Then::Hold),
        ] {
            assert_eq!(then(&refused(status, "api_error")), wanted, "{status:?}");
        }
        assert_eq!(then(&refused(Some(400), "prompt_too_long")), Then::Hold);
        assert_eq!(
            then(&ended(Some(ResultLine { subtype: "success".into(), ..ResultLine::default() }))),
            retry(true)
        );
    }

    #[test]
    fn a_missing_result_names_exit_and_reason() {
        let run = ended(None);
        let failure = classify(&Some(Ok(&run)), &Receipt::absent(), SessionId::generate());
        assert_eq!(
            failure.detail,
            "the CLI ended without a result (exit status: 1): Error: something is wrong"
        );
    }

    #[test]
    fn another_session_than_the_asked_one_holds_the_queue() {
        let other = SessionId::generate().to_string();
        let run = ended(Some(ResultLine { session_id: Some(other.clone()), ..ResultLine::default() }));
        let failure = classify(&Some(Ok(&run)), &Receipt::absent(), SessionId::generate());
        assert_eq!(failure.then, Then::Hold);
        assert!(failure.detail.contains(&format!("pointer set {other}")));
    }
}
