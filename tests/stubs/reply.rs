//! What the stub answers: a script step.

use std::time::Duration;

use serde_json::{Value, json};

use super::gate::Gate;

/// Built up by methods: `Reply::text("hello").delay(..)`.
#[derive(Clone)]
pub struct Reply {
    pub(crate) what: What,
    pub(crate) delay: Duration,
    pub(crate) gate: Option<Gate>,
    pub(crate) pause: Option<(usize, Gate)>,
    pub(crate) cut_after: Option<usize>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) usage: Option<Value>,
}

#[derive(Clone)]
pub(crate) enum What {
    /// Content blocks in the API's form.
    Blocks(Vec<Value>),
    /// The stand-in's brain decides.
    Brain,
    Error {
        status: u16,
        kind: String,
        message: String,
        headers: Vec<(String, String)>,
    },
    /// An `error` event inside a stream that began well.
    ErrorEvent(String),
    /// Takes the request and never answers.
    Hang,
}

impl Reply {
    fn new(what: What) -> Self {
        Self {
            what,
            delay: Duration::ZERO,
            gate: None,
            pause: None,
            cut_after: None,
            stop_reason: None,
            usage: None,
        }
    }

    /// An answer without blocks yet.
    pub fn empty() -> Self {
        Self::new(What::Blocks(Vec::new()))
    }

    /// One text block.
    pub fn text(text: &str) -> Self {
        Self::empty().and_text(text)
    }

    /// What the stand-in's brain says.
    pub fn brain() -> Self {
        Self::new(What::Brain)
    }

    /// An API error: `error("overloaded_error")` with its status.
    pub fn error(status: u16, kind: &str, message: &str) -> Self {
        Self::new(What::Error { status, kind: kind.into(), message: message.into(), headers: Vec::new() })
    }

    /// An `error` event in the middle of the stream.
    pub fn error_event(kind: &str) -> Self {
        Self::new(What::ErrorEvent(kind.into()))
    }

    /// Never answers.
    pub fn hang() -> Self {
        Self::new(What::Hang)
    }

    /// One Bash call.
    pub fn bash(command: &str) -> Self {
        Self::empty().and_tool("Bash", json!({"command": command, "description": "work"}))
    }

    /// Adds a block in the API's form.
    pub fn and_block(mut self, block: Value) -> Self {
        let What::Blocks(blocks) = &mut self.what else { panic!("only an answer has blocks") };
        blocks.push(block);
        self
    }

    /// Adds a text block.
    pub fn and_text(self, text: &str) -> Self {
        self.and_block(json!({"type": "text", "text": text}))
    }

    /// Adds a thinking block with a signature.
    pub fn and_thinking(self, thinking: &str) -> Self {
        self.and_block(json!({"type": "thinking", "thinking": thinking, "signature": "c3R1Yg=="}))
    }

    /// Adds a tool call; its id is given by the stub. The stop reason becomes `tool_use`.
    pub fn and_tool(mut self, name: &str, input: Value) -> Self {
        self.stop_reason = Some("tool_use".into());
        let mut block = json!({"type": "tool_use", "name": name});
        block["input"] = input;
        self.and_block(block)
    }

    /// A header of an error, such as `retry-after`.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let What::Error { headers, .. } = &mut self.what else { panic!("only an error has headers") };
        headers.push((name.into(), value.into()));
        self
    }

    /// `max_tokens`, `refusal`, ...
    pub fn stop_reason(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.into());
        self
    }

    /// Another usage than the estimate.
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Waits before the first byte.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits before the first byte until the gate opens.
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Streams that many events, then waits for the gate.
    pub fn pause_after(mut self, events: usize, gate: &Gate) -> Self {
        self.pause = Some((events, gate.clone()));
        self
    }

    /// Streams that many events, then breaks the connection.
    pub fn cut_after(mut self, events: usize) -> Self {
        self.cut_after = Some(events);
        self
    }
}

/// The events of a streamed message, in order: `(name, data)`.
pub(crate) fn events(message: &Value) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    let mut push = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        events.push((name.to_owned(), data));
    };
    let mut head = message.clone();
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    head["usage"]["output_tokens"] = json!(1);
    push("message_start", json!({ "message": head }));
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let (start, deltas) = block_events(block);
        push("content_block_start", json!({"index": index, "content_block": start}));
        for delta in deltas {
            push("content_block_delta", json!({"index": index, "delta": delta}));
        }
        push("content_block_stop", json!({ "index": index }));
    }
    push(
        "message_delta",
        json!({"delta": {"stop_reason": message["stop_reason"], "stop_sequence": null},
            "usage": {"output_tokens": message["usage"]["output_tokens"]}}),
    );
    push("message_stop", json!({}));
    events
}

fn block_events(block: &Value) -> (Value, Vec<Value>) {
    let pieces = |text: &str| {
        let chars: Vec<char> = text.chars().collect();
        chars.chunks(chars.len().div_ceil(4).max(1)).map(|c| c.iter().collect::<String>()).collect::<Vec<_>>()
    };
    let text_of = |key: &str| block[key].as_str().unwrap_or_default();
    match text_of("type") {
        "text" => (
            json!({"type": "text", "text": ""}),
            pieces(text_of("text")).iter().map(|p| json!({"type": "text_delta", "text": p})).collect(),
        ),
        "thinking" => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                json!({"type": "thinking_delta", "thinking": text_of("thinking")}),
                json!({"type": "signature_delta", "signature": text_of("signature")}),
            ],
        ),
        "tool_use" => {
            let mut start = block.clone();
            start["input"] = json!({});
            let input = block["input"].to_string();
            (
                start,
                pieces(&input)
                    .iter()
                    .map(|p| json!({"type": "input_json_delta", "partial_json": p}))
                    .collect(),
            )
        }
        _ => (block.clone(), Vec::new()),
    }
}
