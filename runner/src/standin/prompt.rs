//! From the live chain to the request that the model sees (facts 3, 4).

use serde_json::{Value, json};

use super::session::{Session, is_api_error};

/// The request for the next answer. `extra` is a user text that stands in no row.
pub(super) fn request(session: &Session, model: &str, system: &str, extra: Option<&Value>) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    let chain = session.chain();
    // Announcements of the runtime wait for the user message that they belong to.
    let mut before = announcements(&chain, "user");
    let mut after = announcements(&chain, "system");
    let mut open_message: Option<&str> = None;
    for row in chain {
        match row["type"].as_str() {
            Some("user") => {
                let mut blocks = std::mem::take(&mut before);
                blocks.extend(blocks_of(&row["message"]["content"]));
                push(&mut messages, "user", blocks);
                if !after.is_empty() {
                    let text: Vec<&str> = after.iter().filter_map(|b| b["text"].as_str()).collect();
                    messages.push(json!({"role": "system", "content": text.join("\n\n")}));
                    after.clear();
                }
                open_message = None;
            }
            Some("assistant") if !is_api_error(row) => {
                let blocks: Vec<Value> = blocks_of(&row["message"]["content"])
                    .into_iter()
                    .filter(|b| {
                        b["type"] != "text" || b["text"].as_str().is_some_and(|t| !t.trim().is_empty())
                    })
                    .collect();
                let id = row["message"]["id"].as_str();
                if blocks.is_empty() {
                    continue;
                }
                if id.is_some() && id == open_message {
                    push(&mut messages, "assistant", blocks);
                } else {
                    messages.push(json!({"role": "assistant", "content": blocks}));
                }
                open_message = id;
            }
            Some("attachment") => push(&mut messages, "user", attached(row)),
            _ => {}
        }
    }
    if let Some(content) = extra {
        push(&mut messages, "user", blocks_of(content));
    }
    fill_missing_results(&mut messages);
    json!({"model": model, "max_tokens": 128_000, "system": [{"type": "text", "text": system}],
        "tools": super::noise::tools(), "messages": messages, "stream": true,
        "metadata": {"user_id": json!({"session_id": session.id}).to_string()}})
}

/// The API wants a result for every call: where the chain has none, one is made up.
fn fill_missing_results(messages: &mut [Value]) {
    for at in 1..messages.len() {
        let (before, rest) = messages.split_at_mut(at);
        let (Some(calls), Some(answer)) = (before.last(), rest.first_mut()) else { continue };
        let Some(content) = answer["content"].as_array_mut() else { continue };
        let missing: Vec<Value> = blocks_of(&calls["content"])
            .into_iter()
            .filter(|block| block["type"] == "tool_use")
            .filter(|call| content.iter().all(|block| block["tool_use_id"] != call["id"]))
            .map(|call| {
                json!({"type": "tool_result", "tool_use_id": call["id"], "is_error": true,
                    "content": "[Tool result missing due to internal error]"})
            })
            .collect();
        content.splice(0..0, missing);
    }
}

/// What attachments say: first-turn announcements are placed once, at the first user message.
fn announcements(chain: &[&Value], role: &str) -> Vec<Value> {
    chain
        .iter()
        .filter(|row| row["renderedRole"] == role && row["attachment"]["type"] != "file")
        .flat_map(|row| row["rendered"].as_array().into_iter().flatten())
        .map(|rendered| json!({"type": "text", "text": rendered["content"]}))
        .collect()
}

/// Attachments that stand at their own place: files that a mention pulled in, absorbed messages.
fn attached(row: &Value) -> Vec<Value> {
    match row["attachment"]["type"].as_str() {
        Some("file") => row["rendered"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|r| json!({"type": "text", "text": r["content"]}))
            .collect(),
        Some("queued_command") => {
            let words = super::context::flat(&row["attachment"]["prompt"]);
            vec![json!({"type": "text",
                "text": format!("The user sent a new message while you were working:\n{words}")})]
        }
        _ => Vec::new(),
    }
}

/// Adds blocks to the last message if it is of the same role, else as a new one. Two user texts that
/// meet get a newline between them.
fn push(messages: &mut Vec<Value>, role: &str, blocks: Vec<Value>) {
    if blocks.is_empty() {
        return;
    }
    let last = messages.last_mut().filter(|m| m["role"] == role);
    let Some(content) = last.and_then(|m| m["content"].as_array_mut()) else {
        messages.push(json!({"role": role, "content": blocks}));
        return;
    };
    if role == "user"
        && let Some(text) = content.last_mut().filter(|b| b["type"] == "text")
        && blocks.first().is_some_and(|b| b["type"] == "text")
    {
        let joined = format!("{}\n", text["text"].as_str().unwrap_or_default());
        text["text"] = json!(joined);
    }
    content.extend(blocks);
}

/// A message's content as blocks.
pub(super) fn blocks_of(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    }
}
