//! The CLI's stream-json lines, as far as the supervisor looks at them (facts 5).

use serde::Deserialize;
use serde_json::Value;

/// One line of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEvent {
    /// The run has begun.
    Init {
        /// The session the CLI says it runs in.
        session: Option<String>,
        /// Its version, where it says one.
        version: Option<String>,
        /// MCP servers that did not start.
        failed_servers: Vec<String>,
    },
    /// Our message was taken in.
    Replay {
        /// The uuid of its row.
        uuid: Option<String>,
    },
    /// The assistant asked for a tool.
    ToolUse {
        /// The tool's name.
        name: String,
    },
    /// A tool has given its result.
    ToolDone,
    /// The assistant said something; the words are read from the transcript later.
    Text,
    /// The API begins another message of the conversation (with `--include-partial-messages`).
    MessageStart {
        /// Its id.
        id: String,
    },
    /// A piece of text of the message that began last.
    Delta {
        /// Its content block, counted from 0 over blocks of all kinds.
        block: u32,
        /// The piece.
        text: String,
    },
    /// The CLI repeats a refused request by itself.
    Retry {
        /// Which repetition this is.
        attempt: u64,
        /// The HTTP status that was refused with.
        status: Option<u16>,
    },
    /// A limit of the account refuses requests.
    Limit {
        /// When it ends, in seconds since 1970.
        resets_at: Option<i64>,
        /// Which limit, such as `five_hour`.
        kind: Option<String>,
    },
    /// The CLI ends the turn with an API error of this name, such as `rate_limit`.
    ApiError {
        /// The CLI's name for the class of the error.
        error: String,
        /// A closer name, where the version gives one.
        detail: Option<String>,
    },
    /// The run's own verdict.
    Result(Box<ResultLine>),
    /// Anything else.
    Other,
}

/// The `result` line. What it claims is checked against the transcript.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct ResultLine {
    /// `success` also for API errors: never looked at alone.
    #[serde(default)]
    pub subtype: String,
    /// The field that counts.
    #[serde(default)]
    pub is_error: bool,
    /// The last text, or the error's text.
    #[serde(default)]
    pub result: Option<String>,
    /// The session it ran in.
    #[serde(default)]
    pub session_id: Option<String>,
    /// HTTP status of an API error.
    #[serde(default)]
    pub api_error_status: Option<u16>,
    /// Why it ended.
    #[serde(default)]
    pub terminal_reason: Option<String>,
    /// How the model's last message ended.
    #[serde(default)]
    pub stop_reason: Option<String>,
    /// Calls of tools that were not allowed.
    #[serde(default)]
    pub permission_denials: Vec<Value>,
    /// Token counts of the whole turn.
    #[serde(default)]
    pub usage: Value,
    /// What the CLI thinks this run, or on some versions the session so far, has cost, in US dollars.
    #[serde(default)]
    pub total_cost_usd: Option<f64>,
    /// Reasons without an HTTP status.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Figures by model; the context window is among them.
    #[serde(default, rename = "modelUsage")]
    pub model_usage: serde_json::Map<String, Value>,
}

impl ResultLine {
    /// The largest context window that the used models report, in tokens.
    #[must_use]
    pub fn context_window(&self) -> Option<u64> {
        self.model_usage.values().filter_map(|usage| usage.get("contextWindow")?.as_u64()).max()
    }
}

/// Reads one line. Lines that are not JSON, or of a kind we do not know, are [`StreamEvent::Other`]:
/// the stream decides nothing.
#[must_use]
pub fn parse(line: &[u8]) -> StreamEvent {
    let Ok(value) = serde_json::from_slice::<Value>(line) else { return StreamEvent::Other };
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    match (text("/type").as_deref(), text("/subtype").as_deref()) {
        (Some("system"), Some("init")) => {
            let servers = value.get("mcp_servers").and_then(Value::as_array);
            let failed = servers.into_iter().flatten().filter(|server| server["status"] == "failed");
            StreamEvent::Init {
                session: text("/session_id"),
                version: text("/claude_code_version"),
                failed_servers: failed.filter_map(|s| s["name"].as_str().map(str::to_owned)).collect(),
            }
        }
        (Some("rate_limit_event"), _) if text("/rate_limit_info/status").as_deref() == Some("rejected") => {
            StreamEvent::Limit {
                resets_at: value.pointer("/rate_limit_info/resetsAt").and_then(Value::as_i64),
                kind: text("/rate_limit_info/rateLimitType"),
            }
        }
        (Some("system"), Some("api_retry")) => StreamEvent::Retry {
            attempt: value.get("attempt").and_then(Value::as_u64).unwrap_or(0),
            status: value.get("error_status").and_then(Value::as_u64).and_then(|s| u16::try_from(s).ok()),
        },
        (Some("user"), _) if value.get("isReplay").and_then(Value::as_bool) == Some(true) => {
            StreamEvent::Replay { uuid: text("/uuid") }
        }
        (Some("user"), _) if is_result(&value) => StreamEvent::ToolDone,
        // A subagent's error is the subagent's.
        (Some("assistant"), _) if value["error"].is_string() && !value["parent_tool_use_id"].is_string() => {
            StreamEvent::ApiError { error: text("/error").unwrap_or_default(), detail: text("/api_error") }
        }
        (Some("assistant"), _) => assistant(&value),
        (Some("stream_event"), _) => partial(&value),
        (Some("result"), _) => serde_json::from_value(value)
            .map_or(StreamEvent::Other, |line| StreamEvent::Result(Box::new(line))),
        _ => StreamEvent::Other,
    }
}

/// An event of the API's own stream. What a subagent says is not said to the human.
fn partial(value: &Value) -> StreamEvent {
    if value.get("parent_tool_use_id").is_some_and(|parent| !parent.is_null()) {
        return StreamEvent::Other;
    }
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match (text("/event/type"), text("/event/delta/type")) {
        (Some("message_start"), _) => match text("/event/message/id") {
            Some(id) => StreamEvent::MessageStart { id: id.to_owned() },
            None => StreamEvent::Other,
        },
        (Some("content_block_delta"), Some("text_delta")) => {
            let block = value.pointer("/event/index").and_then(Value::as_u64);
            StreamEvent::Delta {
                block: block.and_then(|block| u32::try_from(block).ok()).unwrap_or(0),
                text: text("/event/delta/text").unwrap_or_default().to_owned(),
            }
        }
        _ => StreamEvent::Other,
    }
}

fn is_result(value: &Value) -> bool {
    let blocks = value.pointer("/message/content").and_then(Value::as_array);
    blocks.into_iter().flatten().any(|block| block["type"] == "tool_result")
}

fn assistant(value: &Value) -> StreamEvent {
    let blocks = value.pointer("/message/content").and_then(Value::as_array);
    for block in blocks.into_iter().flatten() {
        match block.get("type").and_then(Value::as_str) {
            Some("tool_use") => {
                let name = block.get("name").and_then(Value::as_str).unwrap_or("a tool").to_owned();
                return StreamEvent::ToolUse { name };
            }
            Some("text") => return StreamEvent::Text,
            _ => {}
        }
    }
    StreamEvent::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_lines_are_understood() {
        let init =
            parse(br#"{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.332"}"#);
        let version = Some("2.1.332".to_owned());
        assert_eq!(
            init,
            StreamEvent::Init { session: Some("s".into()), version, failed_servers: Vec::new() }
        );
        let replay = parse(br#"{"type":"user","isReplay":true,"uuid":"u"}"#);
        assert_eq!(replay, StreamEvent::Replay { uuid: Some("u".into()) });
        let tool =
            parse(br#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}"#);
        assert_eq!(tool, StreamEvent::ToolUse { name: "Bash".into() });
        let done = parse(br#"{"type":"user","message":{"content":[{"type":"tool_result","content":"x"}]}}"#);
        assert_eq!(done, StreamEvent::ToolDone);
        let retry = parse(br#"{"type":"system","subtype":"api_retry","attempt":2,"error_status":529}"#);
        assert_eq!(retry, StreamEvent::Retry { attempt: 2, status: Some(529) });
    }

    #[test]
    fn pieces_of_text_are_told_from_pieces_of_anything_else() {
        let start = parse(
            br#"{"type":"stream_event","event":{"type":"message_start","message":{"id":"m"}},"parent_tool_use_id":null}"#,
        );
        assert_eq!(start, StreamEvent::MessageStart { id: "m".into() });
        let delta = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":1,
            "delta":{"type":"text_delta","text":"\u98ce\u7b5d"}},"parent_tool_use_id":null}"#;
        assert_eq!(parse(delta.as_bytes()), StreamEvent::Delta { block: 1, text: "风筝".into() });
        let subagent = delta.replace("null", "\"t\"");
        let thinking = delta.replace("text_delta", "thinking_delta");
        for other in [subagent, thinking] {
            assert_eq!(parse(other.as_bytes()), StreamEvent::Other, "{other}");
        }
    }

    #[test]
    fn a_result_is_read_by_its_fields() {
        let line = parse(
            br#"{"type":"result","subtype":"success","is_error":true,"api_error_status":529,"session_id":"s",
                 "result":"API Error: ...","modelUsage":{"m":{"contextWindow":200000},"n":{"contextWindow":1000000}}}"#,
        );
        let StreamEvent::Result(result) = line else { panic!("{line:?}") };
        assert!(result.is_error);
        assert_eq!((result.api_error_status, result.context_window()), (Some(529), Some(1_000_000)));
    }

    #[test]
    fn what_is_not_understood_decides_nothing() {
        for line in
            [&b"garbage"[..], b"", b"[]", b"null", br#"{"type":"result","is_error":"maybe"}"#, b"\xff"]
        {
            assert_eq!(parse(line), StreamEvent::Other);
        }
    }
}
