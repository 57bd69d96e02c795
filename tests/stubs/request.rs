//! One request as the stub received it, with the views that tests assert on.

use std::collections::BTreeMap;
use std::time::Instant;

use kael_runner::standin::context::{self, Block, Message, Role};
use serde_json::Value;

/// Whole, as it came in.
#[derive(Clone, Debug)]
pub struct Request {
    /// Position among everything the stub received, from 0.
    pub index: usize,
    /// When it arrived.
    pub at: Instant,
    /// `POST`, `HEAD`, ...
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Header names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The JSON body, or null.
    pub body: Value,
}

impl Request {
    /// A message request of the main conversation: it offers tools and streams or falls back from
    /// streaming; title, summary and counting requests are none.
    pub fn is_main(&self) -> bool {
        self.method == "POST"
            && self.path.split('?').next() == Some("/v1/messages")
            && self.body["tools"].as_array().is_some_and(|tools| !tools.is_empty())
    }

    /// The session that asks, from the CLI's header.
    pub fn session(&self) -> Option<&str> {
        self.headers.get("x-claude-code-session-id").map(String::as_str)
    }

    /// The conversation, reminders left out.
    pub fn conversation(&self) -> Vec<Message> {
        context::conversation(&self.body)
    }

    /// `U:a A:b U:c`, one entry a block; thinking, tool calls and results as `A:<thinking>`,
    /// `A:<Bash>`, `U:<result>`.
    pub fn view(&self) -> Vec<String> {
        self.conversation()
            .iter()
            .flat_map(|message| {
                let who = if message.role == Role::User { "U" } else { "A" };
                message.blocks.iter().map(move |block| match block {
                    Block::Text(text) => format!("{who}:{text}"),
                    Block::Thinking(_) => format!("{who}:<thinking>"),
                    Block::ToolUse { name, .. } => format!("{who}:<{name}>"),
                    Block::ToolResult { .. } => format!("{who}:<result>"),
                    Block::Other(kind) => format!("{who}:<{kind}>"),
                })
            })
            .collect()
    }

    /// All texts of one side, in order.
    pub fn texts(&self, role: Role) -> Vec<String> {
        self.conversation()
            .iter()
            .filter(|m| m.role == role)
            .flat_map(|m| m.texts().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// The human text that stands last; inside a tool loop that is still the turn's own text.
    pub fn last_human(&self) -> String {
        self.texts(Role::User).pop().unwrap_or_default()
    }

    /// Whether the last message carries results of tools.
    pub fn ends_with_results(&self) -> bool {
        self.conversation().last().is_some_and(|m| {
            m.role == Role::User && m.blocks.iter().any(|b| matches!(b, Block::ToolResult { .. }))
        })
    }

    /// How often a text occurs anywhere in the body, escaped as JSON writes it.
    pub fn occurrences(&self, text: &str) -> usize {
        let quoted = Value::from(text).to_string();
        self.body.to_string().matches(&quoted[1..quoted.len() - 1]).count()
    }

    /// Tokens as the stub counts them: a quarter of everything sent.
    pub fn tokens(&self) -> u64 {
        let size = |key: &str| self.body[key].to_string().chars().count();
        ((size("system") + size("tools") + size("messages")) / 4) as u64
    }
}
