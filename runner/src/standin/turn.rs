//! One turn: a message is written down, answered, and the answer written down.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};

use super::args::Args;
use super::context::flat;
use super::ending::{self, Tally};
use super::interrupt::{Doing, Input};
use super::model::{Listener, Model};
use super::output::Output;
use super::quirks::Quirk;
use super::session::Session;
use super::{commands, noise, prompt, resume, session, tools};

/// All that a run works with.
pub(super) struct Runtime {
    pub(super) args: Args,
    pub(super) out: Output,
    pub(super) session: Arc<Mutex<Session>>,
    pub(super) model: Model,
    pub(super) model_name: String,
    pub(super) cwd: PathBuf,
    /// What it is at, for an interrupt.
    pub(super) doing: Doing,
    /// Standard input, as far as it came as messages.
    pub(super) input: Input,
    /// The project folder, for a session that `/clear` begins.
    pub(super) project: PathBuf,
}

/// A user message of the input.
pub(super) struct Prompt {
    pub(super) uuid: String,
    pub(super) content: Value,
}

/// How the last turn ended; the exit code follows from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Fine,
    Failed,
}

impl Runtime {
    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> String {
        self.session().id.clone()
    }

    /// The system prompt: the one frozen at the session's first turn, else the present one (facts 3).
    fn system(&self) -> String {
        let session = self.session();
        let frozen = session
            .chain()
            .iter()
            .find_map(|row| row["attachment"]["systemPrompt"][0].as_str().map(str::to_owned));
        frozen.unwrap_or_else(|| noise::system_prompt(self.args.append_system_prompt.as_deref()))
    }

    fn init(&self) {
        let tools: Vec<Value> =
            noise::tools().as_array().into_iter().flatten().map(|tool| tool["name"].clone()).collect();
        let init = json!({"type": "system", "subtype": "init", "cwd": self.cwd, "tools": tools,
            "mcp_servers": [], "model": self.model_name, "permissionMode": self.args.permission_mode,
            "apiKeySource": "none", "claude_code_version": super::VERSION});
        self.out.emit(&self.id(), init);
    }
}

/// Handles one message of the input from its arrival to its result.
///
/// # Errors
/// The transcript could not be written.
pub(super) fn message(rt: &Runtime, message: &Prompt) -> io::Result<Ending> {
    rt.doing.turn(Some(&message.uuid));
    let ending = whole_turn(rt, message);
    rt.doing.turn(None);
    ending
}

fn whole_turn(rt: &Runtime, message: &Prompt) -> io::Result<Ending> {
    let id = rt.id();
    let known = rt.session().row(&message.uuid).is_some();
    if known {
        return resume::known(rt, message);
    }
    rt.out.lifecycle(&id, &message.uuid, "queued");
    rt.out.lifecycle(&id, &message.uuid, "started");
    if let Some(ending) = commands::run(rt, message)? {
        return Ok(ending);
    }
    rt.init();
    let text = flat(&message.content);
    let first = {
        let mut session = rt.session();
        enqueue(&mut session, &message.content)?;
        // A branch that was asked for by `--resume-session-at` begins clean.
        if rt.args.resume_at.is_none() {
            resume::close_open_tail(&mut session)?;
        }
        // The bookkeeping keeps the last text that a person could have typed.
        if !text.trim_start().starts_with('<') {
            session.last_prompt.clone_from(&text);
        }
        session.push(json!({"uuid": message.uuid, "promptId": uuid::Uuid::new_v4(), "type": "user",
            "message": {"role": "user", "content": message.content}, "permissionMode": rt.args.permission_mode,
            "promptSource": "sdk", "rowSource": "local", "turnOrigin": "sdk"}))?;
        session.chain().iter().all(|row| row["attachment"]["type"] != "prompt_snapshot")
    };
    rt.out.replay(&id, &message.uuid, &message.content, false);
    if first {
        let system = rt.system();
        let mut session = rt.session();
        for row in noise::first_turn(&rt.cwd, &rt.model_name, &system) {
            if commands::attachments_on() || row["attachment"]["type"] != noise::SKILLS {
                session.push(row)?;
            }
        }
    }
    for row in commands::attachments(&text, &rt.cwd) {
        rt.session().push(row)?;
    }
    answer(rt, &message.uuid, None, first)
}

/// Rows about a message that was taken from the queue; blocks are not copied (facts 12).
pub(super) fn enqueue(session: &mut Session, content: &Value) -> io::Result<()> {
    let mut row = json!({"type": "queue-operation", "operation": "enqueue", "timestamp": session::now()});
    if content.is_string() {
        row["content"] = content.clone();
    }
    session.note(row)?;
    session.note(json!({"type": "queue-operation", "operation": "dequeue", "timestamp": session::now()}))
}

/// Asks until the model has finished, running its tools in between. `extra` is a user text that stands
/// in no row.
pub(super) fn answer(rt: &Runtime, command: &str, extra: Option<&Value>, first: bool) -> io::Result<Ending> {
    let id = rt.id();
    let system = rt.system();
    let mut tally = Tally::begin();
    loop {
        tally.rounds += 1;
        let request = prompt::request(&rt.session(), &rt.model_name, &system, extra);
        if first && tally.rounds == 1 {
            let mut session = rt.session();
            for row in noise::first_request(&request) {
                session.note(row)?;
            }
        }
        rt.session()
            .note(json!({"type": "api-request", "id": uuid::Uuid::new_v4(), "timestamp": session::now()}))?;
        let asked = Instant::now();
        let answer = rt.model.ask(
            &request,
            &mut Listener {
                event: &mut |event| {
                    rt.doing.event(event);
                    rt.out.partial(&id, event);
                },
                retry: &mut |attempt, most, pause, failure| {
                    rt.out.emit(&id, json!({"type": "system", "subtype": "api_retry", "attempt": attempt,
                        "max_retries": most, "retry_delay_ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                        "error_status": failure.status, "error": failure.name()}));
                },
            },
        );
        tally.api += asked.elapsed();
        let message = match answer {
            Ok(message) => message,
            Err(failure) => return ending::fail(rt, command, &tally, &failure),
        };
        rt.doing.answered();
        tally.add_usage(&message);
        tally.stop_reason = message["stop_reason"].clone();
        let calls = write_down(rt, &message, &mut tally)?;
        if first && tally.rounds == 1 && calls.is_empty() {
            rt.session().push(noise::after_first_answer(&system))?;
        }
        if calls.is_empty() {
            return ending::finish(rt, command, &tally);
        }
        for (row, call) in calls {
            run_tool(rt, &row, &call, &mut tally)?;
        }
        if rt.args.max_turns.is_some_and(|most| tally.rounds >= most) {
            return ending::too_many_turns(rt, command, &tally);
        }
        if !rt.out.quirks.has(Quirk::NoAbsorb) {
            absorb(rt)?;
        }
    }
}

/// Takes what was said while the tools ran into the turn (facts 3). It gets no row of its own.
fn absorb(rt: &Runtime) -> io::Result<()> {
    let id = rt.id();
    while let Some(input) = rt.input.waiting_message() {
        let uuid = input["uuid"].as_str().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
        let content = &input["message"]["content"];
        let blocks = prompt::blocks_of(content);
        rt.out.lifecycle(&id, &uuid, "queued");
        {
            let mut session = rt.session();
            let at = session::now();
            session.note(json!({"type": "queue-operation", "operation": "enqueue", "timestamp": at}))?;
            session.note(json!({"type": "queue-operation", "operation": "remove", "timestamp": at,
                "content": flat(content), "reason": "absorbed_mid_turn", "commandUuid": uuid}))?;
            session.push(json!({"type": "attachment", "attachment": {"type": "queued_command",
                "prompt": blocks, "source_uuid": uuid, "commandMode": "prompt", "rowSource": "local",
                "timestamp": at, "hostsOwnTurn": true}}))?;
        }
        rt.out.replay(&id, &uuid, content, false);
        rt.out.lifecycle(&id, &uuid, "started");
        rt.out.lifecycle(&id, &uuid, "completed");
    }
    Ok(())
}

/// One row a block, all under the message's id; returns the tool calls with their rows.
fn write_down(rt: &Runtime, message: &Value, tally: &mut Tally) -> io::Result<Vec<(String, Value)>> {
    let id = rt.id();
    let mut calls = Vec::new();
    tally.text.clear();
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let mut part = message.clone();
        part["content"] = json!([block]);
        let row = uuid::Uuid::new_v4().to_string();
        // The stream runs ahead of the file, and does not know yet how the message will end.
        let mut early = part.clone();
        early["stop_reason"] = Value::Null;
        rt.out.message(&id, "assistant", &row, &early);
        rt.session()
            .push(json!({"uuid": row, "message": part, "apiBlockIndex": index, "type": "assistant",
            "requestedModel": rt.model_name, "madeBy": "model"}))?;
        match block["type"].as_str() {
            Some("text") => block["text"].as_str().unwrap_or_default().clone_into(&mut tally.text),
            Some("tool_use") => calls.push((row, block.clone())),
            _ => {}
        }
    }
    Ok(calls)
}

fn run_tool(rt: &Runtime, row: &str, call: &Value, tally: &mut Tally) -> io::Result<()> {
    let name = call["name"].as_str().unwrap_or_default();
    rt.doing.tool(Some((row, call)));
    let ran = tools::run(name, &call["input"], &rt.cwd, &rt.args.allowed, &rt.args.permission_mode);
    rt.doing.tool(None);
    if ran.denied {
        tally
            .denials
            .push(json!({"tool_name": name, "tool_use_id": call["id"], "tool_input": call["input"]}));
    }
    let message = json!({"role": "user", "content": [{"tool_use_id": call["id"], "type": "tool_result",
        "content": ran.content, "is_error": ran.is_error}]});
    let uuid = uuid::Uuid::new_v4().to_string();
    rt.session().push(json!({"uuid": uuid, "parentUuid": row, "type": "user", "message": message,
        "toolUseResult": ran.detail, "sourceToolAssistantUUID": row}))?;
    rt.out.message(&rt.id(), "user", &uuid, &message);
    Ok(())
}
