//! Turns that did not begin with a new message: what the CLI does with an open tail (facts 1, 6).

use std::io;

use serde_json::{Value, json};

use super::ending::synthetic;
use super::session::{Session, is_api_error, is_result, now};
use super::turn::{self, Ending, Prompt, Runtime};

const UNKNOWN_OUTCOME: &str = "[Tool call interrupted: the session ended before this call's result was recorded, so its outcome is unknown. Check whether it took effect before relying on it or running it again.]";

/// How the live chain ends.
enum Tail {
    /// With an answer, or with nothing.
    Closed,
    /// With words of the human: the row's uuid and its content.
    Asked(String, Value),
    /// With an API error in place of an answer.
    ApiError,
    /// With finished tools and no word after them.
    ToolsDone,
    /// Inside a tool.
    ToolOpen,
    /// With the mark of an interrupt.
    Interrupted,
}

fn tail(session: &Session) -> Tail {
    let chain = session.chain();
    let Some(last) = chain.iter().rev().find(|row| row["type"] == "user" || row["type"] == "assistant")
    else {
        return Tail::Closed;
    };
    if last["type"] == "assistant" {
        return match last["message"]["content"][0]["type"].as_str() {
            Some("tool_use") => Tail::ToolOpen,
            _ if is_api_error(last) => Tail::ApiError,
            _ => Tail::Closed,
        };
    }
    if !open_calls(session).is_empty() {
        return Tail::ToolOpen;
    }
    if is_result(last) {
        return Tail::ToolsDone;
    }
    let content = last["message"]["content"].clone();
    if super::context::flat(&content).starts_with("[Request interrupted by user") {
        return Tail::Interrupted;
    }
    Tail::Asked(last["uuid"].as_str().unwrap_or_default().to_owned(), content)
}

/// Tool calls of the last message that have no result: their ids and rows.
fn open_calls(session: &Session) -> Vec<(Value, String)> {
    let chain = session.chain();
    let has_result = |id: &Value| {
        chain.iter().any(|row| {
            let blocks = row["message"]["content"].as_array();
            blocks.is_some_and(|blocks| blocks.iter().any(|b| b["tool_use_id"] == *id))
        })
    };
    chain
        .iter()
        .filter(|row| row["type"] == "assistant")
        .filter_map(|row| {
            let call = row["message"]["content"].as_array()?.iter().find(|b| b["type"] == "tool_use")?;
            (!has_result(&call["id"]))
                .then(|| (call["id"].clone(), row["uuid"].as_str().unwrap_or_default().to_owned()))
        })
        .collect()
}

/// Before a new message: calls without a result get one that says so, and a tail without an answer
/// gets a synthetic one.
///
/// # Errors
/// The transcript could not be written.
pub(super) fn close_open_tail(session: &mut Session) -> io::Result<()> {
    match tail(session) {
        Tail::Closed | Tail::ApiError => return Ok(()),
        Tail::ToolOpen => {
            for (id, row) in open_calls(session) {
                session.push(json!({"parentUuid": row, "type": "user", "sourceToolAssistantUUID": row,
                    "toolUseResult": UNKNOWN_OUTCOME, "message": {"role": "user", "content": [{
                        "type": "tool_result", "content": UNKNOWN_OUTCOME, "is_error": true,
                        "tool_use_id": id}]}}))?;
            }
        }
        Tail::Asked(..) | Tail::ToolsDone | Tail::Interrupted => {}
    }
    session.push(json!({"type": "assistant", "message": synthetic("No response requested."),
        "isApiErrorMessage": false, "madeBy": "other"}))?;
    Ok(())
}

/// A message whose uuid stands in the transcript is not run again, unless it is the open tail: then it
/// is answered, but after a synthetic answer and doubled.
///
/// # Errors
/// The transcript could not be written.
pub(super) fn known(rt: &Runtime, message: &Prompt) -> io::Result<Ending> {
    let id = rt.id();
    let open = matches!(tail(&rt.session()), Tail::Asked(uuid, _) if uuid == message.uuid);
    rt.out.replay(&id, &message.uuid, &message.content, true);
    if open {
        close_open_tail(&mut rt.session())?;
        return turn::answer(rt, &message.uuid, Some(&message.content), false);
    }
    // Cut off before it by `--resume-session-at`, a killed message runs again and keeps its row.
    let cut_off = rt.args.resume_at.is_some() && unanswered(&rt.session(), &message.uuid);
    if cut_off {
        rt.session().leaf = Some(message.uuid.clone());
        return turn::answer(rt, &message.uuid, None, false);
    }
    rt.out.lifecycle(&id, &message.uuid, "completed");
    Ok(Ending::Fine)
}

fn unanswered(session: &Session, uuid: &str) -> bool {
    session.children(uuid).all(|row| row["type"] == "attachment")
        && session.chain().iter().all(|row| row["uuid"] != uuid)
}

/// With `CLAUDE_CODE_RESUME_INTERRUPTED_TURN`: goes on with the turn that was cut off, if there is one.
///
/// # Errors
/// The transcript could not be written.
pub(super) fn interrupted(rt: &Runtime) -> io::Result<Option<Ending>> {
    let found = tail(&rt.session());
    let (command, content) = match found {
        Tail::Closed | Tail::Interrupted => return Ok(None),
        Tail::Asked(uuid, content) => (uuid, content),
        Tail::ApiError | Tail::ToolsDone => (go_on(rt)?, Value::Null),
        // The call is thrown away: the branch begins anew at the human's words.
        Tail::ToolOpen => match rewind(&mut rt.session()) {
            Some(asked) => asked,
            None => return Ok(None),
        },
    };
    let id = rt.id();
    rt.out.lifecycle(&id, &command, "started");
    if !content.is_null() {
        turn::enqueue(&mut rt.session(), &content)?;
        rt.out.replay(&id, &command, &content, false);
    }
    turn::answer(rt, &command, None, false).map(Some)
}

fn go_on(rt: &Runtime) -> io::Result<String> {
    let text = std::env::var("CLAUDE_CODE_RESUME_PROMPT")
        .unwrap_or_else(|_| "Continue from where you left off.".to_owned());
    rt.session().push(json!({"type": "user", "isMeta": true, "rowSource": "harness", "turnOrigin": "system",
        "promptSource": "system", "timestamp": now(),
        "message": {"role": "user", "content": [{"type": "text", "text": text}]}}))
}

fn rewind(session: &mut Session) -> Option<(String, Value)> {
    let asked = {
        let chain = session.chain();
        let row = chain
            .iter()
            .rev()
            .find(|row| row["type"] == "user" && !is_result(row) && row["isMeta"] != true)?;
        (row["uuid"].as_str()?.to_owned(), row["message"]["content"].clone())
    };
    session.leaf = Some(asked.0.clone());
    Some(asked)
}
