//! The runtime text that surrounds a conversation: system prompt, tools, first-turn attachments.
//!
//! Its size is what matters: about 142 KB on the first turn and 40 KB in every request, as measured,
//! so that a dirty session and a rebuilt one differ as they do in life. The words are made up.

use serde_json::{Value, json};

/// The announcement that `CLAUDE_CODE_DISABLE_ATTACHMENTS` takes away along with file mentions: the model is
/// not told then which skills there are.
pub(super) const SKILLS: &str = "skill_listing";

/// Text of about that many characters, always the same.
fn filler(topic: &str, chars: usize) -> String {
    let sentence = format!("When you use {topic}, follow the instructions given for {topic} in this place. ");
    sentence.repeat(chars / sentence.len() + 1)
}

/// The system prompt, with what `--append-system-prompt` adds.
pub(super) fn system_prompt(appended: Option<&str>) -> String {
    let mut text = format!("You are the stand-in for a Claude agent. {}", filler("the terminal", 7200));
    if let Some(appended) = appended {
        text.push('\n');
        text.push_str(appended);
    }
    text
}

/// The tools that a request offers.
pub(super) fn tools() -> Value {
    let tool = |name: &str, size: usize, key: &str| {
        json!({"name": name, "description": filler(name, size), "input_schema": {"type": "object",
            "properties": {key: {"type": "string"}}, "required": [key]}})
    };
    json!([
        tool("Bash", 12_000, "command"),
        tool("Read", 3000, "file_path"),
        tool("Edit", 6000, "file_path"),
        tool("Write", 3000, "file_path"),
        tool("Task", 7000, "prompt"),
    ])
}

/// The attachments that follow the first user row of a session.
pub(super) fn first_turn(cwd: &std::path::Path, model: &str, system: &str) -> Vec<Value> {
    let announced = |attachment: Value, role: &str, text: &str| {
        json!({"attachment": attachment, "type": "attachment", "renderedRole": role,
            "rendered": [{"content": format!("<system-reminder>\n{text}\n</system-reminder>")}]})
    };
    vec![
        announced(
            json!({"type": "environment", "snapshot": {"workingDirectory": cwd, "platform": "linux", "shell": "bash"}}),
            "system",
            &format!(
                "# Environment\n - Primary working directory: {}\n{}",
                cwd.display(),
                filler("files", 600)
            ),
        ),
        announced(
            json!({"type": "model", "identity": {"modelId": model}}),
            "system",
            &format!("The exact model ID is {model}."),
        ),
        announced(
            json!({"type": "agent_listing_delta", "addedTypes": ["claude"]}),
            "system",
            &filler("agents", 1800),
        ),
        announced(
            json!({"type": SKILLS, "content": filler("skills", 6000), "isInitial": true}),
            "system",
            &filler("skills", 6000),
        ),
        json!({"attachment": {"type": "session_context", "context": {}}, "type": "attachment"}),
        announced(json!({"type": "date"}), "system", "Today's date stands in the environment."),
        announced(json!({"type": "remote_session_change", "url": null}), "user", &filler("attribution", 500)),
        json!({"attachment": {"type": "prompt_snapshot", "systemPrompt": [system], "reminderFold": false},
            "type": "attachment"}),
    ]
}

/// Side rows of the first request: its shape and copies of what it sent.
pub(super) fn first_request(request: &Value) -> Vec<Value> {
    let shape = json!({"type": "api-request-shape", "shape": {"system": request["system"], "tools": request["tools"]}});
    let copies = request["messages"].as_array().into_iter().flatten();
    let blobs = copies.map(|message| json!({"type": "api-request-blob", "message": message}));
    std::iter::once(shape).chain(blobs).collect()
}

/// The large attachment behind the first answer.
pub(super) fn after_first_answer(system: &str) -> Value {
    json!({"attachment": {"type": "prompt_snapshot", "systemPrompt": [system], "tools": tools(),
        "cliPrefix": filler("the prefix", 15_000)}, "type": "attachment"})
}
