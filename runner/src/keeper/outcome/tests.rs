//! On what real runs of both versions have left.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::claude::process::Trouble;
use crate::claude::stream::{self, StreamEvent};

const NOW: &str = "2026-11-30T14:00:00.000Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn asked() -> SessionId {
    "00000000-0000-4000-8000-000000000000".parse().unwrap()
}

/// A recorded run, as the process reader hands it over.
fn recorded(version: &str, name: &str) -> Ended {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/outcomes")
        .join(version)
        .join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let recording: Value = serde_json::from_str(&text).unwrap();
    let code = i32::try_from(recording["exit"].as_i64().unwrap()).unwrap();
    let mut ended = plain(None);
    ended.status = ExitStatus::from_raw(code << 8);
    ended.stderr = recording["stderr"].as_str().unwrap().to_owned();
    for line in recording["lines"].as_array().unwrap() {
        match stream::parse(line.to_string().as_bytes()) {
            StreamEvent::Init { session, failed_servers, .. } => {
                ended.session = session;
                ended.trouble.failed_servers = failed_servers;
            }
            StreamEvent::Limit { resets_at, .. } => {
                ended.trouble.limited = true;
                ended.trouble.resets_at = resets_at;
            }
            StreamEvent::ApiError { error, detail } => ended.trouble.api_error = Some((error, detail)),
            StreamEvent::Result(result) => ended.result = Some(*result),
            _ => {}
        }
    }
    ended
}

fn plain(result: Option<ResultLine>) -> Ended {
    Ended {
        status: ExitStatus::from_raw(256),
        result,
        result_of_addition: None,
        session: None,
        replayed: false,
        trouble: Trouble::default(),
        took: Duration::from_secs(1),
        stderr: "first\nError: something is wrong".to_owned(),
        ended_by: None,
    }
}

fn there() -> Receipt {
    let mut receipt = Receipt::absent();
    receipt.after = After::ApiErrorOnly { status: None, text: String::new() };
    receipt
}

fn means(run: &Ended) -> Outcome {
    classify(&Some(Ok(run)), &there(), asked(), now())
}

#[test]
fn every_recorded_ending_means_the_same_on_both_versions() {
    let capped = Then::At(now().after(LONGEST_SLEEP));
    let (free, charged) = (Then::Retry { charge: false }, Then::Retry { charge: true });
    for (name, kind, then) in [
        ("overloaded", Kind::ServerError, free),
        ("server-error", Kind::ServerError, free),
        ("unavailable", Kind::ServerError, free),
        ("refused", Kind::Network, free),
        ("cut", Kind::Network, free),
        ("rate-limit", Kind::RateLimit, free),
        // The CLI shows nothing of `retry-after`, nor of a key's limits.
        ("rate-limit-retry-after", Kind::RateLimit, free),
        ("usage-limit-key", Kind::RateLimit, free),
        ("usage-limit", Kind::UsageLimit, capped),
        ("usage-limit-week", Kind::UsageLimit, capped),
        ("unauthorized", Kind::Authentication, Then::Probe),
        ("unauthorized-subscription", Kind::Authentication, Then::Probe),
        ("no-login", Kind::Authentication, Then::Probe),
        ("forbidden", Kind::Authentication, Then::Probe),
        ("no-credit", Kind::Billing, Then::Probe),
        ("no-model", Kind::Model, Then::Hold),
        ("too-long", Kind::TooLong, Then::Rebuild),
        ("too-long-local", Kind::TooLong, Then::Rebuild),
        ("too-large", Kind::TooLarge, Then::Rebuild),
        ("broken-history", Kind::BrokenHistory, Then::Rebuild),
        ("refusal", Kind::Refusal, Then::Deliver),
        ("refusal-empty", Kind::Refusal, Then::Deliver),
        ("max-tokens", Kind::CutOff, Then::Deliver),
        ("window-exceeded", Kind::CutOff, Then::Deliver),
        ("max-turns", Kind::MaxTurns, Then::Deliver),
        ("budget", Kind::Budget, Then::Deliver),
        ("budget-text", Kind::Budget, Then::Deliver),
        ("empty", Kind::Empty, Then::Deliver),
        ("no-session", Kind::SessionNotFound, Then::Hold),
        ("denied", Kind::NoAnswer, charged),
    ] {
        for version in ["2.1.332", "2.1.199"] {
            let outcome = means(&recorded(version, name));
            assert_eq!((outcome.kind, outcome.then), (kind, then), "{name} on {version}");
        }
    }
}

#[test]
fn an_error_in_the_middle_of_a_stream_is_weather_on_both() {
    // 2.1.332 gives it the status that its kind stands for, 2.1.199 none.
    assert_eq!(means(&recorded("2.1.332", "error-event")).kind, Kind::ServerError);
    assert_eq!(means(&recorded("2.1.199", "error-event")).kind, Kind::Network);
}

#[test]
fn an_answer_is_remarked_upon_where_there_is_more_to_say() {
    for version in ["2.1.332", "2.1.199"] {
        let remark = |name: &str| remark(&Some(Ok(&recorded(version, name))));
        assert_eq!(
            remark("denied").unwrap(),
            (Kind::Denied, "not allowed to use Write (--allowedTools in [claude] args says what is)".into())
        );
        assert_eq!(remark("budget-text").unwrap().0, Kind::Budget);
        for (name, server) in [("mcp-missing", "gone"), ("mcp-silent", "silent")] {
            let (kind, line) = remark(name).unwrap();
            assert_eq!(kind, Kind::Answered);
            assert_eq!(line, format!("without the MCP servers {server}, which did not start"));
        }
    }
}

#[test]
fn words_of_the_conversation_are_no_limit() {
    let words = "the limit is reached, it resets 3pm (UTC)";
    let said = ResultLine { subtype: "success".into(), result: Some(words.into()), ..ResultLine::default() };
    assert_eq!(means(&plain(Some(said.clone()))).kind, Kind::NoAnswer);
    // An error of another kind may repeat them.
    let error = ResultLine { is_error: true, api_error_status: Some(500), ..said.clone() };
    assert_eq!(means(&plain(Some(error))).kind, Kind::ServerError);
    let limit = ResultLine { is_error: true, api_error_status: Some(429), ..said };
    assert_eq!(means(&plain(Some(limit))).kind, Kind::UsageLimit);
}

#[test]
fn a_limit_is_slept_out_exactly_and_one_that_is_over_is_not() {
    let at = |seconds: i64| {
        let mut run = recorded("2.1.332", "usage-limit");
        run.trouble.resets_at = Some(now().as_millis() / 1000 + seconds);
        means(&run).then
    };
    assert_eq!(at(90), Then::At(now().after(Duration::from_secs(90))));
    assert_eq!(at(-90), Then::Retry { charge: false });
}

#[test]
fn what_never_arrived_was_not_answered() {
    let run = recorded("2.1.332", "max-turns");
    let outcome = classify(&Some(Ok(&run)), &Receipt::absent(), asked(), now());
    assert_eq!((outcome.kind, outcome.then), (Kind::MaxTurns, Then::Retry { charge: true }));
    let run = recorded("2.1.332", "empty");
    assert_eq!(classify(&Some(Ok(&run)), &Receipt::absent(), asked(), now()).kind, Kind::NoAnswer);
}

#[test]
fn a_missing_result_names_exit_and_reason() {
    let outcome = means(&plain(None));
    assert_eq!(outcome.detail, "the CLI ended without a result (exit status: 1): Error: something is wrong");
    assert_eq!(outcome.then, Then::Retry { charge: true });
    let run = Ended { stderr: format!("No conversation found with session ID: {}", asked()), ..plain(None) };
    assert_eq!(means(&run).kind, Kind::SessionNotFound);
}

#[test]
fn another_session_than_the_asked_one_holds_the_queue() {
    let other = SessionId::generate().to_string();
    let run = plain(Some(ResultLine { session_id: Some(other.clone()), ..ResultLine::default() }));
    let outcome = classify(&Some(Ok(&run)), &Receipt::absent(), asked(), now());
    assert_eq!(outcome.then, Then::Hold);
    assert!(outcome.detail.contains(&format!("pointer set {other}")));
}

#[test]
fn how_the_runner_ended_it_comes_before_what_it_said() {
    let by = |why| means(&Ended { ended_by: Some(why), ..recorded("2.1.332", "overloaded") });
    assert_eq!(by(EndedBy::Stop).then, Then::Retry { charge: false });
    assert_eq!(by(EndedBy::TurnTime).then, Then::Retry { charge: true });
    assert_eq!(by(EndedBy::IdleTime).kind, Kind::IdleTime);
    assert_eq!(by(EndedBy::Lingering).kind, Kind::ServerError);
    let gone = classify(&None, &Receipt::absent(), asked(), now());
    assert_eq!((gone.kind, gone.then), (Kind::RunnerGone, Then::Retry { charge: false }));
}
