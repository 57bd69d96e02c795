//! What a Messages API request says: the conversation in it, without the runtime's reminders.
//!
//! The [brain](super::brain) answers from this view, and tests read from it what reached the API.

use serde_json::Value;

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The human's side; tool results stand here too.
    User,
    /// The model's side.
    Assistant,
}

/// One content block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Words, exactly as the request holds them.
    Text(String),
    /// A thinking block.
    Thinking(String),
    /// A tool call.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments.
        input: Value,
    },
    /// What a tool gave back, flattened to text.
    ToolResult {
        /// The id of the call it belongs to.
        id: String,
        /// The text of the result.
        text: String,
    },
    /// Anything else (images, documents), by its type's name.
    Other(String),
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whose it is.
    pub role: Role,
    /// Its blocks in order, reminders left out.
    pub blocks: Vec<Block>,
}

impl Message {
    /// The text blocks.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

/// Reads the conversation out of a request body. The system prompt, messages with the role `system`
/// (2.1.332 puts its environment text there) and `<system-reminder>` blocks are left out, and so are
/// messages that hold nothing else.
#[must_use]
pub fn conversation(request: &Value) -> Vec<Message> {
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    messages
        .iter()
        .filter_map(|message| {
            let role = match message["role"].as_str()? {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                _ => return None,
            };
            let blocks: Vec<Block> = match &message["content"] {
                Value::String(text) => without_reminders(text).map(Block::Text).into_iter().collect(),
                Value::Array(blocks) => blocks.iter().filter_map(block).collect(),
                _ => Vec::new(),
            };
            (!blocks.is_empty()).then_some(Message { role, blocks })
        })
        .collect()
}

fn block(value: &Value) -> Option<Block> {
    let text_of = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    Some(match value["type"].as_str()? {
        "text" => Block::Text(without_reminders(value["text"].as_str()?)?),
        "thinking" => Block::Thinking(text_of("thinking")),
        "tool_use" => {
            Block::ToolUse { id: text_of("id"), name: text_of("name"), input: value["input"].clone() }
        }
        "tool_result" => Block::ToolResult { id: text_of("tool_use_id"), text: flat(&value["content"]) },
        other => Block::Other(other.to_owned()),
    })
}

/// The text of a `content` value, whichever of its forms it has.
#[must_use]
pub fn flat(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn without_reminders(text: &str) -> Option<String> {
    const CLOSE: &str = "</system-reminder>";
    let mut rest = text;
    while rest.trim_start().starts_with("<system-reminder>") {
        rest = rest.find(CLOSE).map_or("", |at| &rest[at + CLOSE.len()..]);
    }
    if rest.len() == text.len() {
        return Some(text.to_owned());
    }
    let rest = rest.trim_start();
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// The words in a human text as they were typed: without the time stamp a rebuild may put in front
/// and without the envelope that messages of `send` and the fronts travel in.
#[must_use]
pub fn spoken(text: &str) -> String {
    let mut words = text.trim();
    if let Some(rest) = words.strip_prefix("[发生时间:")
        && let Some((_, after)) = rest.split_once("]\n")
    {
        words = after.trim();
    }
    if let Some(rest) = words.strip_prefix("<channel ")
        && let Some((_, inner)) = rest.split_once('>')
        && let Some(inner) = inner.trim_end().strip_suffix("</channel>")
    {
        return inner.trim().replace("<\\/channel", "</channel");
    }
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reminders_and_system_messages_are_not_conversation() {
        let request = json!({"messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nrules\n</system-reminder>\n"},
                {"type": "text", "text": "the lamp is green"}]},
            {"role": "system", "content": "# Environment"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "true"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1",
                "content": [{"type": "text", "text": "out"}]}]},
            {"role": "user", "content": "<system-reminder>x</system-reminder>words after"},
        ]});
        let conversation = conversation(&request);
        assert_eq!(conversation.len(), 4);
        assert_eq!(conversation[0].blocks, [Block::Text("the lamp is green".into())]);
        assert_eq!(conversation[2].blocks, [Block::ToolResult { id: "t1".into(), text: "out".into() }]);
        assert_eq!(conversation[3].blocks, [Block::Text("words after".into())]);
    }

    #[test]
    fn stamps_and_envelopes_come_off() {
        let sent = "[发生时间: 2026-01-02T03:04:05.000Z]\n<channel source=\"send\" user=\"Wen\">\n灯是绿色的 <\\/channel> 🏮\n</channel>";
        assert_eq!(spoken(sent), "灯是绿色的 </channel> 🏮");
        assert_eq!(spoken("[发生时间: unclosed"), "[发生时间: unclosed");
        assert_eq!(spoken("  plain \n"), "plain");
        assert_eq!(spoken("<channel source=\"x\"> no end"), "<channel source=\"x\"> no end");
    }
}
