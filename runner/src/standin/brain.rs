//! The stand-in's mind: a pure function from a Messages API request to an answer.
//!
//! It knows nothing but what stands in the request, so a sentence that fell out of the context
//! shows in what it says: asked for the first thing it was told, it quotes the first human text it
//! can see. The same request always gets the same answer.

use serde_json::{Value, json};

use super::context::{Block, Message, Role, conversation, spoken};
use super::questions::{gist, is_chinese, is_question, reply};

/// What the mind says to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Content blocks in the API's form.
    pub blocks: Vec<Value>,
    /// `end_turn` or `tool_use`.
    pub stop_reason: &'static str,
}

impl Answer {
    fn words(text: &str) -> Self {
        Self { blocks: vec![json!({"type": "text", "text": text})], stop_reason: "end_turn" }
    }

    /// All words of the answer.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(|b| b["text"].as_str()).collect::<Vec<_>>().join("\n\n")
    }
}

/// Answers a request.
#[must_use]
pub fn answer(request: &Value) -> Answer {
    let conversation = conversation(request);
    let heard = heard(&conversation);
    let current = heard.iter().rposition(|h| !h.current).map_or(0, |at| at + 1);
    let (past, now) = heard.split_at(current);

    let looked = fresh_results(&conversation).map(|results| {
        let chinese = heard.last().is_some_and(|h| is_chinese(&h.words));
        report(&results, chinese)
    });
    if now.is_empty() {
        return Answer::words(looked.as_deref().unwrap_or("I have nothing to answer yet."));
    }

    let commands: Vec<Value> = now.iter().flat_map(|h| tools(&h.words)).collect();
    if !commands.is_empty() {
        return call(commands, conversation.len());
    }
    let replies = now.iter().enumerate().map(|(offset, h)| reply(&h.words, past, past.len() + offset + 1));
    Answer::words(&looked.into_iter().chain(replies).collect::<Vec<_>>().join("\n\n"))
}

/// Whether the human has just asked the mind to take its time.
#[must_use]
pub fn takes_its_time(request: &Value) -> bool {
    let conversation = conversation(request);
    heard(&conversation).iter().filter(|h| h.current).any(|h| {
        let lower = h.words.to_lowercase();
        ["take your time", "慢慢想"].iter().any(|asked| lower.contains(asked))
    })
}

/// A title or a summary of the conversation, for side calls that offer no tools.
#[must_use]
pub fn summary(request: &Value) -> String {
    let conversation = conversation(request);
    let lines: Vec<String> =
        heard(&conversation).iter().map(|h| format!("- {}", gist(&h.words, 80))).collect();
    format!("The human said:\n{}", lines.join("\n"))
}

/// One thing the human said.
pub(super) struct Heard {
    pub(super) words: String,
    /// Said after the last finished answer.
    current: bool,
}

/// Everything the human said that is in the context. Results of tools are no words.
fn heard(conversation: &[Message]) -> Vec<Heard> {
    let answered = conversation.iter().rposition(|m| m.role == Role::Assistant).map_or(0, |at| at + 1);
    conversation
        .iter()
        .enumerate()
        .filter(|(_, message)| message.role == Role::User)
        .flat_map(|(at, message)| {
            message.texts().map(move |text| Heard { words: spoken(text), current: at >= answered })
        })
        .filter(|h| !h.words.is_empty())
        .collect()
}

fn fresh_results(conversation: &[Message]) -> Option<Vec<&str>> {
    let last = conversation.last().filter(|m| m.role == Role::User)?;
    let results: Vec<&str> = last
        .blocks
        .iter()
        .filter_map(|b| match b {
            Block::ToolResult { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    (!results.is_empty()).then_some(results)
}

/// What came back is measured and not quoted: a quoted line of tool output would be speech.
fn report(results: &[&str], chinese: bool) -> String {
    let lines: usize = results.iter().map(|r| r.lines().count()).sum();
    let chars: usize = results.iter().map(|r| r.chars().count()).sum();
    if chinese {
        format!("看过了：一共 {lines} 行，{chars} 个字符，没有什么异常。")
    } else {
        let calls =
            if results.len() == 1 { "one look".to_owned() } else { format!("{} looks", results.len()) };
        format!("Done, in {calls}: {lines} lines, {chars} characters, nothing alarming in them.")
    }
}

fn call(commands: Vec<Value>, depth: usize) -> Answer {
    let mut blocks = vec![
        json!({"type": "thinking", "thinking": "This needs a look before an answer.", "signature": "c3RhbmQtaW4="}),
    ];
    for (at, mut command) in commands.into_iter().enumerate() {
        command["type"] = json!("tool_use");
        command["id"] = json!(format!("toolu_{depth:06}_{at}"));
        blocks.push(command);
    }
    Answer { blocks, stop_reason: "tool_use" }
}

/// The tool calls that a message asks for: lines `TOOL: <command>` and `READ: <path>`, or a plain
/// "look at ...", "run `...`", "看看...", "运行 `...`".
fn tools(words: &str) -> Vec<Value> {
    let bash = |command: &str| json!({"name": "Bash", "input": {"command": command, "description": "Look"}});
    let mut calls = Vec::new();
    for line in words.lines().map(str::trim) {
        if let Some(command) = line.strip_prefix("TOOL:") {
            calls.push(bash(command.trim()));
        } else if let Some(path) = line.strip_prefix("READ:") {
            calls.push(json!({"name": "Read", "input": {"file_path": path.trim()}}));
        }
    }
    let lower = words.to_lowercase();
    if !calls.is_empty() || is_question(&lower) {
        return calls;
    }
    let asks_to_run = lower.contains("run `") || lower.contains("运行 `") || lower.contains("运行`");
    if asks_to_run && let Some(command) = words.split('`').nth(1) {
        calls.push(bash(command));
    } else if lower.contains("look at ") || lower.contains("look into ") || lower.contains("看看") {
        calls.push(bash("ls -la; for f in *; do [ -f \"$f\" ] && head -c 8000 \"$f\"; done; true"));
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(turns: &[(&str, &str)]) -> Value {
        let messages: Vec<Value> =
            turns.iter().map(|(role, text)| json!({"role": role, "content": text})).collect();
        json!({ "messages": messages })
    }

    #[test]
    fn the_first_thing_is_the_first_thing_in_the_context() {
        let kept = request(&[
            ("user", "<channel source=\"send\" user=\"Wen\">\nmy kite is called Blau\n</channel>"),
            ("assistant", "ok"),
            ("user", "the boat too"),
            ("assistant", "ok"),
            ("user", "what was the first thing I said?"),
        ]);
        assert_eq!(answer(&kept).text(), "The first thing you said was: \"my kite is called Blau\"");
        let forgotten =
            request(&[("user", "the boat too"), ("assistant", "ok"), ("user", "我第一句话是什么？")]);
        assert_eq!(answer(&forgotten).text(), "你说的第一句话是：「the boat too」");
    }

    #[test]
    fn it_counts_and_searches() {
        let past = [
            ("user", "my kite is called Blau"),
            ("assistant", "ok"),
            ("user", "灯笼是绿色的 🏮"),
            ("assistant", "ok"),
        ];
        let ask = |question| {
            let mut turns = past.to_vec();
            turns.push(("user", question));
            answer(&request(&turns)).text()
        };
        assert_eq!(ask("How many things have I told you?"), "Before this one, you have told me 2 things.");
        assert_eq!(ask("do you remember my kite?"), "Yes. You said: \"my kite is called Blau\"");
        assert_eq!(ask("还记得灯笼吗？"), "记得。你说过：「灯笼是绿色的 🏮」");
        assert_eq!(ask("do you remember the volcano?"), "No, I do not remember \"the volcano\".");
        assert_eq!(ask("the sea is calm"), "Noted as number 3: the sea is calm");
    }

    #[test]
    fn work_is_asked_for_then_reported_without_quoting() {
        let asked = request(&[("user", "please\nTOOL: echo secret\nREAD: /tmp/x")]);
        let first = answer(&asked);
        assert_eq!(first.stop_reason, "tool_use");
        assert_eq!(first.blocks[1]["input"]["command"], "echo secret");
        assert_eq!(first.blocks[2]["name"], "Read");
        assert_ne!(first.blocks[1]["id"], first.blocks[2]["id"]);

        let mut done = asked;
        let messages = done["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": first.blocks}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": first.blocks[1]["id"], "content": "secret\n"},
            {"type": "tool_result", "tool_use_id": first.blocks[2]["id"], "content": "a\nb"}]}));
        let second = answer(&done);
        assert_eq!(second.stop_reason, "end_turn");
        assert_eq!(second.text(), "Done, in 2 looks: 3 lines, 10 characters, nothing alarming in them.");
    }

    #[test]
    fn it_takes_its_time_when_it_has_just_been_asked_to() {
        let asked = [("user", "慢慢想，风筝叫什么？")];
        assert!(takes_its_time(&request(&asked)));
        let later = [asked[0], ("assistant", "ok"), ("user", "thank you")];
        assert!(!takes_its_time(&request(&later)));
        assert!(takes_its_time(&request(&[("user", "Take your time: a name?")])));
    }

    #[test]
    fn waiting_messages_are_answered_each() {
        let batch = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "one kite"}, {"type": "text", "text": "两盏灯"}]}]});
        assert_eq!(answer(&batch).text(), "Noted as number 1: one kite\n\n第 2 句，记下了：两盏灯");
    }
}
