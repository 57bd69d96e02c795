//! The stand-in's mind: a pure function from a Messages API request to an answer.
//!
//! It knows nothing but what stands in the request, so a sentence that fell out of the context
//! shows in what it says: asked for the first thing it was told, it quotes the first human text it
//! can see. The same request always gets the same answer.

use serde_json::{Value, json};

use super::context::{Block, Message, Role, conversation, spoken};

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

/// A title or a summary of the conversation, for side calls that offer no tools.
#[must_use]
pub fn summary(request: &Value) -> String {
    let conversation = conversation(request);
    let lines: Vec<String> =
        heard(&conversation).iter().map(|h| format!("- {}", gist(&h.words, 80))).collect();
    format!("The human said:\n{}", lines.join("\n"))
}

struct Heard {
    words: String,
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

fn is_question(lower: &str) -> bool {
    FIRST.iter().chain(COUNT).chain(PREVIOUS).any(|p| lower.contains(p)) || topic(lower).is_some()
}

const FIRST: &[&str] = &[
    "first thing i said",
    "first thing i told",
    "first thing i ever",
    "did i say first",
    "did i tell you first",
    "my first message",
    "my very first",
    "第一句话",
    "第一句是",
    "第一件事",
    "最先说",
    "最开始说",
    "一开始说",
];
const COUNT: &[&str] = &[
    "how many things",
    "how many messages",
    "how many sentences",
    "几句话",
    "多少句",
    "几件事",
    "多少条",
    "多少件事",
];
const PREVIOUS: &[&str] =
    &["what did i just say", "the last thing i said", "my last message", "刚才说了什么", "上一句"];
const TOPIC: &[&str] = &[
    "do you remember ",
    "do you still remember ",
    "did i ever mention ",
    "have i told you about ",
    "what did i say about ",
    "what did i tell you about ",
    "还记得",
    "记得",
    "我说过",
    "我提过",
];

fn reply(words: &str, past: &[Heard], number: usize) -> String {
    let lower = words.to_lowercase();
    let chinese = is_chinese(words);
    let has = |patterns: &[&str]| patterns.iter().any(|p| lower.contains(p));
    if has(FIRST) {
        return match past.first() {
            Some(h) if chinese => format!("你说的第一句话是：「{}」", h.words),
            Some(h) => format!("The first thing you said was: \"{}\"", h.words),
            None if chinese => "这就是你说的第一句话。".to_owned(),
            None => "This is the first thing you have said.".to_owned(),
        };
    }
    if has(COUNT) {
        return if chinese {
            format!("在这一句之前，你一共说了 {} 句话。", past.len())
        } else {
            format!("Before this one, you have told me {} things.", past.len())
        };
    }
    if has(PREVIOUS) {
        return match past.last() {
            Some(h) if chinese => format!("你刚才说：「{}」", h.words),
            Some(h) => format!("You just said: \"{}\"", h.words),
            None if chinese => "在这之前你什么都没说。".to_owned(),
            None => "You had said nothing before this.".to_owned(),
        };
    }
    if let Some(topic) = topic(&lower) {
        return match find(&topic, past) {
            Some(h) if chinese => format!("记得。你说过：「{}」", h.words),
            Some(h) => format!("Yes. You said: \"{}\"", h.words),
            None if chinese => format!("不，我不记得「{topic}」。"),
            None => format!("No, I do not remember \"{topic}\"."),
        };
    }
    if chinese {
        format!("第 {number} 句，记下了：{}", gist(words, 60))
    } else {
        format!("Noted as number {number}: {}", gist(words, 60))
    }
}

fn topic(lower: &str) -> Option<String> {
    TOPIC.iter().find_map(|p| {
        let (_, rest) = lower.split_once(p)?;
        let rest = rest.lines().next().unwrap_or_default();
        let rest = rest.trim_end_matches(['?', '？', '吗', '.', '。', '!', '！', ' ']);
        (!rest.is_empty()).then(|| rest.to_owned())
    })
}

/// The latest thing said that speaks of the topic: holds it whole, or holds most of its words.
fn find<'a>(topic: &str, past: &'a [Heard]) -> Option<&'a Heard> {
    let words: Vec<&str> = topic
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| w.chars().count() > 3 || w.chars().any(is_han))
        .collect();
    past.iter().rev().find(|h| {
        let said = h.words.to_lowercase();
        if topic_of_question(&said) {
            return false;
        }
        let hits = words.iter().filter(|w| said.contains(*w)).count();
        said.contains(topic) || (!words.is_empty() && hits * 2 > words.len())
    })
}

/// Earlier questions about a topic repeat its words and would be found in its place.
fn topic_of_question(said: &str) -> bool {
    topic(said).is_some() && (said.contains('?') || said.contains('？') || said.contains('吗'))
}

fn gist(words: &str, most: usize) -> String {
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(most).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

fn is_chinese(words: &str) -> bool {
    words.chars().any(is_han)
}

fn is_han(c: char) -> bool {
    ('\u{3400}'..='\u{9fff}').contains(&c)
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
    fn waiting_messages_are_answered_each() {
        let batch = json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "one kite"}, {"type": "text", "text": "两盏灯"}]}]});
        assert_eq!(answer(&batch).text(), "Noted as number 1: one kite\n\n第 2 句，记下了：两盏灯");
    }
}
