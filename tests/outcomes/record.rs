//! One run for each way of ending badly.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::invocation::World;
use crate::support::process::Outcome;
use crate::support::subject::Subject;

/// When the made-up limits are over: 2033-05-18, far from any clock.
const RESET: &str = "2000000000";

/// What is different from a plain turn.
struct Case {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    reply: fn() -> Option<Reply>,
    seed: fn() -> Reply,
}

const PLAIN: Case = Case { name: "", args: &[], env: &[], reply: || None, seed: || Reply::text("seeded") };

/// A subscription's login, made up: with it the CLI reads the limits in the headers.
const SUBSCRIPTION: &[(&str, &str)] =
    &[("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-made-up"), ("ANTHROPIC_API_KEY", "")];

fn error(status: u16, kind: &str, message: &str) -> Option<Reply> {
    Some(Reply::error(status, kind, message))
}

fn limited() -> Reply {
    Reply::error(429, "rate_limit_error", "This request would exceed your account's rate limit.")
        .header("anthropic-ratelimit-unified-status", "rejected")
        .header("anthropic-ratelimit-unified-reset", RESET)
        .header("anthropic-ratelimit-unified-representative-claim", "five_hour")
        .header("anthropic-ratelimit-unified-overage-status", "rejected")
        .header("anthropic-ratelimit-unified-overage-disabled-reason", "org_level_disabled")
        .header("retry-after", "1800")
}

const BUSY: &str = "Overloaded";

const CASES: &[Case] = &[
    Case { name: "overloaded", reply: || error(529, "overloaded_error", BUSY), ..PLAIN },
    Case { name: "server-error", reply: || error(500, "api_error", "Internal server error"), ..PLAIN },
    Case { name: "unavailable", reply: || error(503, "api_error", "Service unavailable"), ..PLAIN },
    Case { name: "refused", ..PLAIN },
    Case {
        name: "cut",
        env: &[("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1")],
        reply: || Some(Reply::text("never whole").cut_after(3)),
        ..PLAIN
    },
    Case {
        name: "error-event",
        env: &[("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1")],
        reply: || Some(Reply::error_event("overloaded_error")),
        ..PLAIN
    },
    Case { name: "rate-limit", reply: || error(429, "rate_limit_error", "Too many requests"), ..PLAIN },
    Case {
        name: "rate-limit-retry-after",
        reply: || {
            error(429, "rate_limit_error", "Too many requests").map(|r| r.header("retry-after", "1800"))
        },
        ..PLAIN
    },
    Case { name: "usage-limit-key", reply: || Some(limited()), ..PLAIN },
    Case { name: "usage-limit", env: SUBSCRIPTION, reply: || Some(limited()), ..PLAIN },
    Case {
        name: "usage-limit-week",
        env: SUBSCRIPTION,
        reply: || Some(limited().header("anthropic-ratelimit-unified-representative-claim", "seven_day")),
        ..PLAIN
    },
    Case { name: "unauthorized", reply: || error(401, "authentication_error", "invalid x-api-key"), ..PLAIN },
    Case {
        name: "unauthorized-subscription",
        env: SUBSCRIPTION,
        reply: || error(401, "authentication_error", "OAuth token has expired"),
        ..PLAIN
    },
    Case { name: "no-login", env: &[("ANTHROPIC_API_KEY", "")], ..PLAIN },
    Case { name: "forbidden", reply: || error(403, "permission_error", "not allowed to use this"), ..PLAIN },
    Case { name: "no-model", reply: || error(404, "not_found_error", "model: made-up"), ..PLAIN },
    Case {
        name: "too-long",
        reply: || error(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"),
        ..PLAIN
    },
    Case {
        name: "too-long-local",
        seed: || {
            Reply::text("seeded").usage(json!({"input_tokens": 999_500, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0, "output_tokens": 5}))
        },
        ..PLAIN
    },
    Case {
        name: "too-large",
        reply: || error(413, "request_too_large", "Request exceeds the maximum size"),
        ..PLAIN
    },
    Case {
        name: "broken-history",
        reply: || {
            error(
                400,
                "invalid_request_error",
                "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
            )
        },
        ..PLAIN
    },
    Case {
        name: "no-credit",
        reply: || {
            error(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.")
        },
        ..PLAIN
    },
    Case {
        name: "refusal",
        reply: || Some(Reply::text("I would rather not.").stop_reason("refusal")),
        ..PLAIN
    },
    Case { name: "refusal-empty", reply: || Some(Reply::empty().stop_reason("refusal")), ..PLAIN },
    Case { name: "empty", reply: || Some(Reply::empty()), ..PLAIN },
    Case {
        name: "window-exceeded",
        reply: || Some(Reply::text("as far as I").stop_reason("model_context_window_exceeded")),
        ..PLAIN
    },
    Case { name: "max-tokens", reply: || Some(Reply::text("and so on").stop_reason("max_tokens")), ..PLAIN },
    Case {
        name: "max-turns",
        args: &["--max-turns", "1"],
        reply: || {
            Some(Reply::text("I look.").and_tool("Bash", json!({"command": "echo hi", "description": "x"})))
        },
        ..PLAIN
    },
    Case {
        name: "budget",
        args: &["--max-budget-usd", "0.000001"],
        reply: || {
            Some(Reply::text("I look.").and_tool("Bash", json!({"command": "echo hi", "description": "x"})))
        },
        ..PLAIN
    },
    Case { name: "budget-text", args: &["--max-budget-usd", "0.000001"], ..PLAIN },
    Case {
        name: "denied",
        reply: || {
            Some(
                Reply::text("I write.").and_tool("Write", json!({"file_path": "/nowhere/x", "content": "x"})),
            )
        },
        ..PLAIN
    },
    Case {
        name: "mcp-missing",
        args: &["--mcp-config", r#"{"mcpServers":{"gone":{"command":"/nowhere/server","args":[]}}}"#],
        ..PLAIN
    },
    Case {
        name: "mcp-silent",
        args: &["--mcp-config", r#"{"mcpServers":{"silent":{"command":"sleep","args":["60"]}}}"#],
        env: &[("MCP_TIMEOUT", "1500")],
        ..PLAIN
    },
    Case { name: "no-session", args: &["--resume", "11111111-2222-4333-8444-555555555555"], ..PLAIN },
];

/// What a supervisor sees of the run, without what differs from run to run.
fn recording(world: &World, outcome: &Outcome, asked: usize) -> Value {
    let lines: Vec<Value> = outcome.json().into_iter().filter_map(telling).collect();
    let mut stderr = outcome.stderr.clone();
    stderr.truncate(400);
    let text = json!({
        "exit": outcome.code(),
        "stderr": stderr,
        "requests": world.stub.main_requests().len() - asked,
        "lines": lines,
    })
    .to_string();
    let mut text = text.replace(world.sandbox.path("").to_str().unwrap().trim_end_matches('/'), "<root>");
    for (pattern, mask) in [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "00000000-0000-4000-8000-000000000000"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:1"),
        (
            r#""(duration_ms|duration_api_ms|ttft_ms|ttft_stream_ms|time_to_request_ms|retry_delay_ms)":[\d.]+"#,
            r#""$1":1"#,
        ),
        (r#"_bytes":\d+"#, r#"_bytes":1"#),
    ] {
        text = regex::Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    serde_json::from_str(&text).unwrap()
}

/// The lines that a classification may look at.
fn telling(mut line: Value) -> Option<Value> {
    match (line["type"].as_str()?, line["subtype"].as_str()) {
        ("system", Some("init")) => {
            Some(json!({"type": "system", "subtype": "init", "session_id": line["session_id"],
                "mcp_servers": line["mcp_servers"]}))
        }
        ("system", Some("api_retry")) | ("rate_limit_event" | "assistant" | "auth_status", _) => Some(line),
        ("result", _) => {
            for field in ["fast_mode_state", "uuid"] {
                line.as_object_mut()?.remove(field);
            }
            Some(line)
        }
        _ => None,
    }
}

fn file(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/outcomes")
        .join(version)
        .join(format!("{name}.json"))
}

/// Fields by which a run is classified; figures and texts of the stub's are not among them.
fn essence(recording: &Value) -> Value {
    let lines = recording["lines"].as_array().unwrap();
    let result = lines.iter().find(|line| line["type"] == "result");
    let fields =
        ["subtype", "is_error", "api_error_status", "terminal_reason", "stop_reason", "result", "errors"];
    json!({
        "exit": recording["exit"],
        "result": result.map(|r| fields.iter().map(|f| ((*f).to_owned(), r[*f].clone())).collect::<Value>()),
        "limit": lines.iter().find(|line| line["type"] == "rate_limit_event").map(|l| l["rate_limit_info"].clone()),
        "denials": result.map(|r| r["permission_denials"].clone()),
    })
}

fn run(subject: &Subject, case: &Case) {
    let path = file(subject.version(), case.name);
    let records = std::env::var_os("KAEL_RECORD").is_some();
    if records && path.exists() {
        return;
    }
    let world = World::new(subject.clone());
    let session = uuid::Uuid::new_v4().to_string();
    world.stub.on_text("seed", (case.seed)());
    world.begin(&session, &uuid::Uuid::new_v4().to_string(), "seed").expect_code(0);
    if let Some(reply) = (case.reply)() {
        world.stub.on(move |request| {
            Some(if request.ends_with_results() { Reply::text("That did not work.") } else { reply.clone() })
        });
    }
    if case.name == "refused" {
        world.stub.refuse();
    }
    let asked = world.stub.main_requests().len();
    let mut invocation = world.invoke();
    if !case.args.contains(&"--resume") {
        invocation = invocation.args(["--resume", &session]);
    }
    invocation = invocation.args(case.args.iter().copied());
    for (name, value) in case.env {
        invocation = invocation.env(name, value);
    }
    let outcome = invocation.send(&uuid::Uuid::new_v4().to_string(), "ask").run();
    let seen = recording(&world, &outcome, asked);
    if records {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, serde_json::to_string_pretty(&seen).unwrap() + "\n").unwrap();
        return;
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(essence(&seen), essence(&kept), "{} on {}", case.name, subject.version());
}

fn every_case(subject: Option<Subject>) {
    let Some(subject) = subject else { return };
    // All of them take minutes; a change of the CLI that matters shows in these already.
    let often = [
        "overloaded",
        "usage-limit",
        "no-login",
        "too-long-local",
        "max-turns",
        "refusal-empty",
        "no-session",
    ];
    let full = std::env::var_os("KAEL_TEST_FULL").is_some() || std::env::var_os("KAEL_RECORD").is_some();
    for case in CASES.iter().filter(|case| full || often.contains(&case.name)) {
        run(&subject, case);
    }
}

#[test]
fn the_newest_cli_ends_as_recorded() {
    every_case(Subject::newest_real());
}

#[test]
fn the_oldest_cli_ends_as_recorded() {
    every_case(Subject::real("2.1.199"));
}

#[test]
fn a_probe_of_the_login_leaves_no_transcript() {
    for version in ["2.1.332", "2.1.199"] {
        let Some(subject) = Subject::real(version) else { continue };
        let world = World::new(subject);
        let session = uuid::Uuid::new_v4().to_string();
        let mut command = world.claude();
        command.args(["-p", "--output-format", "stream-json", "--verbose", "--no-session-persistence"]);
        command.args(["--session-id", &session]);
        let mut running = crate::support::process::Running::spawn(&mut command);
        running.write("Reply with: ok").close();
        let outcome = running.wait(crate::support::PATIENCE).expect_code(0);
        assert_eq!(outcome.result()["is_error"], false);
        assert!(!world.sandbox.transcript(&session).exists());
    }
}
