//! A streamed answer: server-sent events put together to one message.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::{Value, json};

/// Reads events until `message_stop`, handing each to `seen`, and returns the message.
///
/// # Errors
/// The stream ended early, broke, or carried an `error` event: `UnexpectedEof` or the reader's error.
pub(super) fn read(stream: impl Read, seen: &mut dyn FnMut(&Value)) -> io::Result<Value> {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let Some(data) = line.strip_prefix("data:") else { continue };
        let event: Value = serde_json::from_str(data.trim())?;
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        if kind == "error" {
            return Err(io::Error::other(event["error"]["message"].to_string()));
        }
        if kind == "ping" {
            continue;
        }
        apply(&mut message, &mut inputs, &kind, &event);
        seen(&event);
        if kind == "message_stop" {
            return Ok(message);
        }
    }
    Err(io::Error::from(io::ErrorKind::UnexpectedEof))
}

fn apply(message: &mut Value, inputs: &mut Vec<String>, kind: &str, event: &Value) {
    let index = event["index"].as_u64().and_then(|i| usize::try_from(i).ok()).unwrap_or(usize::MAX);
    match kind {
        "message_start" => *message = event["message"].clone(),
        "content_block_start" => {
            if let Some(content) = message["content"].as_array_mut() {
                content.push(event["content_block"].clone());
                inputs.push(String::new());
            }
        }
        "content_block_delta" => {
            let delta = &event["delta"];
            if let Some(piece) = delta["partial_json"].as_str()
                && let Some(input) = inputs.get_mut(index)
            {
                input.push_str(piece);
            }
            let Some(block) = message["content"].get_mut(index) else { return };
            for key in ["text", "thinking", "signature"] {
                if let Some(piece) = delta[key].as_str() {
                    let whole = format!("{}{piece}", block[key].as_str().unwrap_or_default());
                    block[key] = json!(whole);
                }
            }
        }
        "content_block_stop" => {
            if let Some(input) = inputs.get(index).filter(|input| !input.is_empty())
                && let Some(block) = message["content"].get_mut(index)
            {
                block["input"] = serde_json::from_str(input).unwrap_or_default();
            }
        }
        "message_delta" => {
            message["stop_reason"] = event["delta"]["stop_reason"].clone();
            for (key, value) in event["usage"].as_object().into_iter().flatten() {
                message["usage"][key] = value.clone();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_a_message_together_and_notices_a_cut() {
        let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\
                     \"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n";
        let tool = "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"input\":{}}}\n\n\
                    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"partial_json\":\"{\\\"a\\\"\"}}\n\n\
                    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"partial_json\":\":1}\"}}\n\n\
                    data: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
        let end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":5}}\n\n\
                   data: {\"type\":\"message_stop\"}\n\n";
        let mut events = 0;
        let whole = read(format!("{start}{tool}{end}").as_bytes(), &mut |_| events += 1).unwrap();
        assert_eq!(events, 7);
        assert_eq!(whole["content"][0]["input"], json!({"a": 1}));
        assert_eq!(whole["usage"], json!({"input_tokens": 7, "output_tokens": 5}));
        let cut = read(format!("{start}{tool}").as_bytes(), &mut |_| ()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
