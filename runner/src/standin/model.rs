//! Who answers: a Messages API server when `ANTHROPIC_BASE_URL` names one, else the brain.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{brain, sse};

/// Pauses before the CLI asks again, in milliseconds (facts 5); later ones are like the last.
const BACKOFF_MS: [u64; 7] = [500, 1000, 2000, 4000, 9000, 18_000, 35_000];

pub(super) enum Model {
    Http(Box<Http>),
    Brain,
}

pub(super) struct Http {
    agent: ureq::Agent,
    base: String,
    key: String,
    session: String,
    retries: u32,
    fallback: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    /// The API's status; none when no answer came at all.
    pub(super) status: Option<u16>,
    /// The API's name for the error.
    pub(super) kind: String,
    /// What the API said.
    pub(super) message: String,
    retry_after: Option<Duration>,
}

/// What the caller hears while the answer comes.
pub(super) struct Listener<'a> {
    /// Every event of a stream.
    pub(super) event: &'a mut dyn FnMut(&Value),
    /// A retry: attempt, pause, the failure before it.
    pub(super) retry: &'a mut dyn FnMut(u32, u32, Duration, &Failure),
}

impl Model {
    /// Chooses by the environment.
    pub(super) fn from_env(session: &str) -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(base) = var("ANTHROPIC_BASE_URL") else { return Self::Brain };
        // A proxy of the machine must not come between a test and its stub.
        let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        Self::Http(Box::new(Http {
            agent,
            base: base.trim_end_matches('/').to_owned(),
            key: var("ANTHROPIC_API_KEY").unwrap_or_default(),
            session: session.to_owned(),
            retries: var("CLAUDE_CODE_MAX_RETRIES").and_then(|n| n.parse().ok()).unwrap_or(10),
            fallback: var("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK").is_none(),
        }))
    }

    /// Gets the answer to a request, as a message in the API's form. Blocks, also through retries.
    pub(super) fn ask(&self, request: &Value, listener: &mut Listener<'_>) -> Result<Value, Failure> {
        match self {
            Self::Http(http) => http.ask(request, listener),
            Self::Brain => {
                if brain::takes_its_time(request) {
                    take_time();
                }
                let message = think(request);
                tell(&message, listener);
                Ok(message)
            }
        }
    }

    /// How error texts name the server.
    pub(super) fn gateway(&self) -> &str {
        match self {
            Self::Http(http) => http.base.split_once("://").map_or(&*http.base, |(_, host)| host),
            Self::Brain => "the brain",
        }
    }
}

/// The events a server would stream for a message's text, a few words at a time.
fn tell(message: &Value, listener: &mut Listener<'_>) {
    let mut start = message.clone();
    start["content"] = json!([]);
    (listener.event)(&json!({"type": "message_start", "message": start}));
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let words = block["text"].as_str().unwrap_or_default();
        for piece in words.split_inclusive(' ') {
            let delta = json!({"type": "text_delta", "text": piece});
            (listener.event)(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
    }
    (listener.event)(&json!({"type": "message_stop"}));
}

/// Thinks for a while: `KAEL_STANDIN_PATIENCE_MS`, else three seconds, and no longer once the file named by
/// `KAEL_STANDIN_GO` is there.
fn take_time() {
    let var = |name| std::env::var(name).ok();
    let given = var("KAEL_STANDIN_PATIENCE_MS").and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_millis(given.unwrap_or(3000));
    let go = var("KAEL_STANDIN_GO");
    while Instant::now() < until && !go.as_ref().is_some_and(|file| std::path::Path::new(file).exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn think(request: &Value) -> Value {
    let answer = brain::answer(request);
    let tokens = |text: &str| text.chars().count() / 4 + 1;
    let read = tokens(&request["messages"].to_string())
        + tokens(&request["system"].to_string())
        + tokens(&request["tools"].to_string());
    let said = tokens(&json!(answer.blocks).to_string());
    json!({"id": format!("msg_{}", uuid::Uuid::new_v4().simple()), "type": "message", "role": "assistant",
        "model": request["model"], "content": answer.blocks, "stop_reason": answer.stop_reason,
        "stop_sequence": null, "usage": {"input_tokens": read, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "output_tokens": said}})
}

impl Http {
    fn ask(&self, request: &Value, listener: &mut Listener<'_>) -> Result<Value, Failure> {
        let mut attempt = 0;
        loop {
            let failure = match self.once(request, listener) {
                Ok(message) => return Ok(message),
                Err(failure) => failure,
            };
            let again = failure.status.is_none_or(|s| matches!(s, 401 | 408 | 409 | 429 | 500..));
            if !again || attempt >= self.retries {
                return Err(failure);
            }
            let step = usize::try_from(attempt).unwrap_or(usize::MAX).min(BACKOFF_MS.len() - 1);
            let pause = failure.retry_after.unwrap_or(Duration::from_millis(BACKOFF_MS[step]));
            attempt += 1;
            (listener.retry)(attempt, self.retries, pause, &failure);
            std::thread::sleep(pause);
        }
    }

    /// A stream that breaks is asked for once more as a whole, whatever the number of retries.
    fn once(&self, request: &Value, listener: &mut Listener<'_>) -> Result<Value, Failure> {
        let mut response = self.post(request)?;
        match sse::read(response.body_mut().as_reader(), listener.event) {
            Ok(message) => Ok(message),
            Err(_) if self.fallback => {
                let mut whole = request.clone();
                whole["stream"] = json!(false);
                let text = self.post(&whole)?.body_mut().read_to_string().map_err(|e| lost(&e))?;
                serde_json::from_str(&text).map_err(|e| lost(&e))
            }
            Err(_) => Err(lost(&"Connection to the API was lost (StreamTruncated)")),
        }
    }

    fn post(&self, request: &Value) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let mut response = self
            .agent
            .post(format!("{}/v1/messages?beta=true", self.base))
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-api-key", &self.key)
            .header(
                "user-agent",
                concat!("claude-cli/2.1.332 (kael stand-in ", env!("CARGO_PKG_VERSION"), ")"),
            )
            .header("x-claude-code-session-id", &self.session)
            .send(request.to_string())
            .map_err(|e| lost(&e))?;
        let status = response.status().as_u16();
        if status < 400 {
            return Ok(response);
        }
        let retry_after = response.headers().get("retry-after");
        let retry_after = retry_after.and_then(|v| v.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        let said = |key: &str, otherwise: &str| error["error"][key].as_str().unwrap_or(otherwise).to_owned();
        Err(Failure {
            status: Some(status),
            kind: said("type", "api_error"),
            message: said("message", &text),
            retry_after,
        })
    }
}

fn lost(error: &dyn std::fmt::Display) -> Failure {
    Failure { status: None, kind: "connection".into(), message: error.to_string(), retry_after: None }
}

impl Failure {
    /// The text that stands in the transcript and in the result (facts 5).
    pub(super) fn text(&self, model: &str, gateway: &str) -> String {
        let message = &self.message;
        match self.status {
            Some(400) if message.contains("prompt is too long") => "Prompt is too long".into(),
            Some(status @ (401 | 403)) => format!("Failed to authenticate. API Error: {status} {message}"),
            Some(404) => format!(
                "There's an issue with the selected model ({model}). It may not exist or you may not have access to it. Run --model to pick a different model."
            ),
            Some(429) => format!("API Error: Request rejected (429) · {message}"),
            Some(status @ 500..) => format!(
                "API Error: {status} {message}. This is a server-side issue, usually temporary — try again in a moment. If it persists, check your inference gateway ({gateway})."
            ),
            Some(status) => format!("API Error: {status} {message}"),
            None => format!("API Error: {message}"),
        }
    }

    /// The CLI's own name for the error.
    pub(super) fn name(&self) -> &'static str {
        match self.status {
            Some(401 | 403) => "authentication_failed",
            Some(404) => "model_not_found",
            Some(429) => "rate_limit",
            Some(500..) | None => "server_error",
            Some(_) => "unknown",
        }
    }

    /// The result's `terminal_reason`.
    pub(super) fn terminal_reason(&self) -> &'static str {
        if self.status == Some(400) && self.message.contains("prompt is too long") {
            "prompt_too_long"
        } else {
            "api_error"
        }
    }
}
