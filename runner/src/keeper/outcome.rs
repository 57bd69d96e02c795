//! What a run means for its turn, from the fields of its result and from its receipt, never from words in its output
//! (DESIGN 9 "Outcomes"). The fields are those that real runs have shown: `tests/fixtures/outcomes`.

use std::time::Duration;

use kael_core::clock::Timestamp;
use kael_core::ids::SessionId;
use kael_core::transcript::receipt::{After, Receipt};
use serde::{Deserialize, Serialize};

use crate::claude::process::{Ended, EndedBy};
use crate::claude::stream::ResultLine;

use super::limits;

/// No limit is slept through for longer than this without another look: a stated time may be wrong.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// What happened, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The turn was answered, and nothing is to be said about it.
    Answered,
    /// The API is overloaded or failed by itself (5xx).
    ServerError,
    /// The API could not be reached, or the connection broke.
    Network,
    /// Too many requests, without a time at which that ends.
    RateLimit,
    /// The account's limit is reached, until a stated time.
    UsageLimit,
    /// The login is missing, expired or refused.
    Authentication,
    /// The account has no credit.
    Billing,
    /// The model is not known to the API, or not for this account.
    Model,
    /// The conversation does not fit into the model's window.
    TooLong,
    /// The request is larger than the API takes.
    TooLarge,
    /// The API cannot read the conversation's tool calls.
    BrokenHistory,
    /// The API refuses the request for another reason.
    BadRequest,
    /// The CLI does not know the session.
    SessionNotFound,
    /// The CLI ran in another session than the asked one.
    OtherSession,
    /// The CLI could not be started.
    CannotStart,
    /// The turn took too long.
    TurnTime,
    /// The CLI was silent for too long.
    IdleTime,
    /// The CLI ended without a result.
    Crash,
    /// The CLI gave up for a reason of its own.
    GaveUp,
    /// The CLI reports success, and no answer is in the transcript.
    NoAnswer,
    /// The runner was told to stop.
    Stopped,
    /// A human stopped the turn.
    StoppedByHuman,
    /// The runner itself ended first.
    RunnerGone,
    /// The model refused.
    Refusal,
    /// `--max-turns` ended the turn.
    MaxTurns,
    /// `--max-budget-usd` ended the turn.
    Budget,
    /// The answer is longer than the model may write.
    CutOff,
    /// The model said nothing.
    Empty,
    /// A tool was not allowed.
    Denied,
}

impl Kind {
    /// The word in `status` and in the queue's file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::ServerError => "server_error",
            Self::Network => "network",
            Self::RateLimit => "rate_limit",
            Self::UsageLimit => "usage_limit",
            Self::Authentication => "authentication",
            Self::Billing => "billing",
            Self::Model => "model",
            Self::TooLong => "too_long",
            Self::TooLarge => "too_large",
            Self::BrokenHistory => "broken_history",
            Self::BadRequest => "bad_request",
            Self::SessionNotFound => "session_not_found",
            Self::OtherSession => "other_session",
            Self::CannotStart => "cannot_start",
            Self::TurnTime => "turn_time",
            Self::IdleTime => "idle_time",
            Self::Crash => "crash",
            Self::GaveUp => "gave_up",
            Self::NoAnswer => "no_answer",
            Self::Stopped => "stopped",
            Self::StoppedByHuman => "stopped_by_human",
            Self::RunnerGone => "runner_gone",
            Self::Refusal => "refusal",
            Self::MaxTurns => "max_turns",
            Self::Budget => "budget",
            Self::CutOff => "cut_off",
            Self::Empty => "empty",
            Self::Denied => "denied",
        }
    }

    /// Only a clean session mends it.
    #[must_use]
    pub const fn needs_rebuild(self) -> bool {
        matches!(self, Self::TooLong | Self::TooLarge | Self::BrokenHistory)
    }
}

/// What to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The turn is over: what was said is its answer, and the human is told why there is no more.
    Deliver,
    /// Try again after a pause; counts against `max_attempts` when charged.
    Retry {
        /// The message, and not the weather, may be to blame.
        charge: bool,
    },
    /// Try again then.
    At(Timestamp),
    /// Rebuild the session under `emergency`, then try once more.
    Rebuild,
    /// Hold the queue, and find out by throw-away runs when the reason is gone.
    Probe,
    /// Trying again cannot help until a human has done something.
    Hold,
}

/// What a run means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What happened, in one word.
    pub kind: Kind,
    /// For a human; holds nothing of the conversation.
    pub detail: String,
    /// What to do.
    pub then: Then,
}

/// How the run itself ended: `Ok` with what is known, or why it did not even start. `None`: it was
/// the run of an earlier runner, of which nothing but the transcript is left.
pub type Run<'a> = Option<Result<&'a Ended, String>>;

fn outcome(kind: Kind, then: Then, detail: impl Into<String>) -> Outcome {
    Outcome { kind, detail: detail.into(), then }
}

/// Says what a run that did not answer its turn means.
#[must_use]
pub fn classify(run: &Run<'_>, receipt: &Receipt, asked: SessionId, now: Timestamp) -> Outcome {
    let retry = |charge| Then::Retry { charge };
    let ended = match run {
        None => return outcome(Kind::RunnerGone, retry(false), "the runner ended before the CLI did"),
        Some(Err(reason)) => return outcome(Kind::CannotStart, retry(false), reason.clone()),
        Some(Ok(ended)) => ended,
    };
    if not_found(ended, asked) {
        return outcome(
            Kind::SessionNotFound,
            Then::Hold,
            format!(
                "the CLI does not know session {asked}, which the pointer names: is claude_workdir still the folder it was \
                 begun in, and CLAUDE_CONFIG_DIR the same? No new session is begun by itself. Then run `kael-runner retry`"
            ),
        );
    }
    if let Some(reported) = reported_session(ended)
        && reported != asked.to_string()
        && receipt.after == After::Absent
    {
        return outcome(
            Kind::OtherSession,
            Then::Hold,
            format!(
                "the CLI was asked for session {asked} and ran in {reported}: the pointer stays. If {reported} is the \
                 conversation, run `kael-runner pointer set {reported}`, then `kael-runner retry`"
            ),
        );
    }
    match ended.ended_by {
        Some(EndedBy::Stop) => {
            return outcome(Kind::Stopped, retry(false), "the runner was told to stop during the turn");
        }
        Some(EndedBy::Human) => {
            return outcome(Kind::StoppedByHuman, retry(false), "a human stopped the turn");
        }
        Some(EndedBy::TurnTime) => {
            return outcome(Kind::TurnTime, retry(true), "the turn took longer than turn_timeout");
        }
        Some(EndedBy::IdleTime) => {
            return outcome(Kind::IdleTime, retry(true), "the CLI was silent for idle_timeout");
        }
        Some(EndedBy::Lingering) | None => {}
    }
    match &ended.result {
        Some(result) if result.is_error => {
            let outcome = of_error(result, ended, now);
            // What never arrived cannot have been answered.
            match (outcome.then, &receipt.after) {
                (Then::Deliver, After::Absent) => Outcome { then: retry(true), ..outcome },
                _ => outcome,
            }
        }
        Some(result) if said_nothing(result) && receipt.after != After::Absent => {
            outcome(Kind::Empty, Then::Deliver, "the model said nothing")
        }
        Some(_) => outcome(
            Kind::NoAnswer,
            retry(true),
            "the CLI reports success, but the transcript holds no answer: nothing is taken for a reply",
        ),
        None => outcome(
            Kind::Crash,
            retry(true),
            format!("the CLI ended without a result ({}){}", ended.status, stderr(ended)),
        ),
    }
}

/// What is to be said beside the answer of a turn that was answered.
#[must_use]
pub fn remark(run: &Run<'_>) -> Option<(Kind, String)> {
    let Some(Ok(ended)) = run else { return None };
    let mut kind = Kind::Answered;
    let mut remarks = Vec::new();
    if let Some(result) = &ended.result {
        if let Some((ending, line)) = limited_by_owner(result) {
            kind = ending;
            remarks.push(line.to_owned());
        }
        let mut tools: Vec<&str> =
            result.permission_denials.iter().filter_map(|denial| denial["tool_name"].as_str()).collect();
        tools.sort_unstable();
        tools.dedup();
        if !tools.is_empty() {
            kind = Kind::Denied;
            remarks.push(format!(
                "not allowed to use {} (--allowedTools in [claude] args says what is)",
                tools.join(", ")
            ));
        }
    }
    if !ended.trouble.failed_servers.is_empty() {
        remarks.push(format!(
            "without the MCP servers {}, which did not start",
            ended.trouble.failed_servers.join(", ")
        ));
    }
    (!remarks.is_empty()).then(|| (kind, remarks.join("; ")))
}

fn limited_by_owner(result: &ResultLine) -> Option<(Kind, &'static str)> {
    match result.subtype.as_str() {
        "error_max_turns" => Some((Kind::MaxTurns, "ended by --max-turns before it was finished")),
        "error_max_budget_usd" => Some((Kind::Budget, "ended by --max-budget-usd before it was finished")),
        _ => None,
    }
}

/// The CLI's own nudge for a visible answer was in vain, too.
fn said_nothing(result: &ResultLine) -> bool {
    result.subtype == "success" && result.result.as_deref() == Some("")
}

fn not_found(ended: &Ended, asked: SessionId) -> bool {
    let sentence = format!("No conversation found with session ID: {asked}");
    match &ended.result {
        Some(result) => result.subtype == "error_during_execution" && result.errors.contains(&sentence),
        None => ended.stderr.lines().any(|line| line == sentence),
    }
}

fn reported_session(ended: &Ended) -> Option<&str> {
    ended.result.as_ref().and_then(|result| result.session_id.as_deref()).or(ended.session.as_deref())
}

fn of_error(result: &ResultLine, ended: &Ended, now: Timestamp) -> Outcome {
    let retry = |charge| Then::Retry { charge };
    let (error, detail) = match &ended.trouble.api_error {
        Some((error, detail)) => (error.as_str(), detail.as_deref().unwrap_or_default()),
        None => ("", ""),
    };
    if let Some((kind, line)) = limited_by_owner(result) {
        return outcome(kind, Then::Deliver, line);
    }
    if result.stop_reason.as_deref() == Some("refusal") {
        return outcome(
            Kind::Refusal,
            Then::Deliver,
            "the model refuses to answer this (stop_reason \"refusal\")",
        );
    }
    if error == "max_output_tokens" {
        return outcome(
            Kind::CutOff,
            Then::Deliver,
            "cut off: the answer is longer than the model may write",
        );
    }
    match (result.api_error_status, result.terminal_reason.as_deref(), error) {
        (_, Some("prompt_too_long" | "blocking_limit"), _) => {
            outcome(Kind::TooLong, Then::Rebuild, "the conversation no longer fits into the model's window")
        }
        (Some(413), ..) => outcome(
            Kind::TooLarge,
            Then::Rebuild,
            "the conversation with its images is larger than the API takes (413)",
        ),
        // 2.1.199 has no name for it; the sentence is the CLI's own, in the place where no model's words can be.
        (Some(400), ..)
            if detail == "tool_history_mismatch"
                || result.result.as_deref() == Some("API Error: 400 due to tool use concurrency issues.") =>
        {
            outcome(
                Kind::BrokenHistory,
                Then::Rebuild,
                "the API cannot read the tool calls in the conversation (400)",
            )
        }
        (_, _, "billing_error") => {
            outcome(Kind::Billing, Then::Probe, "the account has no credit left: top it up")
        }
        (Some(401 | 403), ..) | (_, _, "authentication_failed") => outcome(
            Kind::Authentication,
            Then::Probe,
            "the API refuses the login: log in again (`claude /login`, or a new key)",
        ),
        (Some(404), ..) | (_, _, "model_not_found") => outcome(
            Kind::Model,
            Then::Hold,
            "the API does not know the model: correct --model in [claude] args, then `kael-runner retry`",
        ),
        (Some(429), ..) | (_, _, "rate_limit") => limit(result, ended, now),
        (Some(status @ 500..), ..) => {
            outcome(Kind::ServerError, retry(false), format!("the API answered {status}"))
        }
        (Some(status), ..) => outcome(Kind::BadRequest, retry(true), format!("the API answered {status}")),
        (None, ..) if result.subtype != "success" => {
            outcome(Kind::GaveUp, retry(true), format!("the CLI gave up: {}", result.subtype))
        }
        (None, ..) => outcome(Kind::Network, retry(false), "the API could not be reached"),
    }
}

fn limit(result: &ResultLine, ended: &Ended, now: Timestamp) -> Outcome {
    let field = ended.trouble.resets_at.map(|seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
    let text = || limits::reset_in(result.result.as_deref()?, now);
    match field.or_else(text) {
        Some(reset) if reset > now => outcome(
            Kind::UsageLimit,
            Then::At(reset.min(now.after(LONGEST_SLEEP))),
            format!("the account's usage limit is reached; it resets at {reset}"),
        ),
        _ => outcome(Kind::RateLimit, Then::Retry { charge: false }, "the API's rate limit is reached (429)"),
    }
}

fn stderr(ended: &Ended) -> String {
    match ended.stderr.lines().last() {
        Some(line) if !line.trim().is_empty() => format!(": {}", line.chars().take(300).collect::<String>()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
