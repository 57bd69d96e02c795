//! What the CLI takes for itself in a human text: slash commands and mentions (facts 12).

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::context::flat;
use super::ending::synthetic;
use super::session::Session;
use super::turn::{Ending, Prompt, Runtime};

/// Commands that are known here. Any other text with a slash in front reaches the model (measured on
/// 2.1.332: `/foo bar` with a note beside it, `/home/me` as it is).
const CLEAR: &str = "/clear";
const LOCAL: &[&str] = &["/cost", "/usage", "/context"];

/// Runs a text that is a command. `None`: it is a message.
///
/// # Errors
/// The transcript could not be written.
pub(super) fn run(rt: &Runtime, message: &Prompt) -> io::Result<Option<Ending>> {
    let text = flat(&message.content);
    let name = text.split_whitespace().next().unwrap_or_default();
    if !text.starts_with('/') {
        return Ok(None);
    }
    if name == CLEAR {
        let fresh = Session::create(&rt.project, &rt.cwd, uuid::Uuid::new_v4().to_string());
        let old = rt.id();
        rt.out.emit(
            &old,
            json!({"type": "conversation_reset", "new_conversation_id": fresh.id, "trigger": "clear",
            "user_message_uuid": message.uuid}),
        );
        *rt.session() = fresh;
        let mut session = rt.session();
        session.bookkeeping()?;
        drop(session);
        return Ok(Some(done(rt, message, "")));
    }
    if LOCAL.contains(&name) {
        let stdout =
            "<local-command-stdout>Estimated cost: nothing, this is the stand-in</local-command-stdout>";
        let mut session = rt.session();
        session.push(
            json!({"type": "user", "isMeta": true, "rowSource": "harness", "message": {"role": "user",
            "content": "<local-command-caveat>The command below was run directly.</local-command-caveat>"}}),
        )?;
        session.push(json!({"type": "user", "rowSource": "local", "message": {"role": "user",
            "content": format!("<command-name>{name}</command-name>\n<command-args></command-args>")}}))?;
        session.push(json!({"type": "system", "subtype": "local_command", "content": stdout}))?;
        session.bookkeeping()?;
        drop(session);
        rt.out.message(&rt.id(), "assistant", &uuid::Uuid::new_v4().to_string(), &synthetic(stdout));
        return Ok(Some(done(rt, message, "")));
    }
    Ok(None)
}

fn done(rt: &Runtime, message: &Prompt, text: &str) -> Ending {
    let id = rt.id();
    rt.out.result(&id, json!({"type": "result", "subtype": "success", "is_error": false, "duration_api_ms": 0,
        "num_turns": 0, "stop_reason": null, "total_cost_usd": 0, "usage": {"input_tokens": 0, "output_tokens": 0},
        "modelUsage": {}, "permission_denials": [], "result": text, "user_message_uuid": message.uuid}));
    rt.out.lifecycle(&id, &message.uuid, "completed");
    Ending::Fine
}

/// Whether mentions pull in files and skills are announced.
pub(super) fn attachments_on() -> bool {
    std::env::var_os("CLAUDE_CODE_DISABLE_ATTACHMENTS").is_none()
}

/// Attachments of a message: files it mentions, unless that is switched off, and the note about a
/// command that does not exist.
pub(super) fn attachments(text: &str, cwd: &Path) -> Vec<Value> {
    let mut rows = Vec::new();
    let name = text.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    if !name.is_empty() && !name.contains('/') {
        rows.push(json!({"attachment": {"type": "unknown_command_fallback", "commandName": name},
            "type": "attachment"}));
    }
    if !attachments_on() {
        return rows;
    }
    for mention in text.split_whitespace().filter_map(|word| word.strip_prefix('@')) {
        let path = cwd.join(mention);
        let Ok(content) = std::fs::read_to_string(&path) else { continue };
        let numbered: Vec<String> =
            content.lines().enumerate().map(|(at, line)| format!("{}\t{line}", at + 1)).collect();
        let call = json!({"file_path": path}).to_string();
        let called = format!("Called the Read tool with the following input: {call}");
        let result = format!("Result of calling the Read tool:\n{}", numbered.join("\n"));
        let reminder =
            |text: &str| json!({"content": format!("<system-reminder>\n{text}\n</system-reminder>")});
        rows.push(json!({"attachment": {"type": "file", "filename": path,
                "content": {"type": "text", "file": {"filePath": path, "content": content}}, "displayPath": mention},
            "type": "attachment", "rendered": [reminder(&called), reminder(&result)], "renderedRole": "user"}));
    }
    rows
}
