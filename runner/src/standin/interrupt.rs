//! What comes over standard input in the middle of a turn (facts 3, 5): a message, which waits for the end of a tool
//! or of the turn, or an interrupt. At an interrupt what was said so far is written down, then that it was interrupted;
//! a signal would lose it.

use std::collections::VecDeque;
use std::io::{self, BufRead};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use serde_json::{Value, json};

use super::turn::Runtime;
use super::{ending, tools};

/// What the turn is at.
#[derive(Default)]
pub(super) struct Doing(Mutex<State>);

#[derive(Default)]
struct State {
    /// The turn's message; none between turns.
    command: Option<String>,
    /// The answer as far as it has come.
    message: Option<Value>,
    /// The row and the call of the tool at work.
    call: Option<(String, Value)>,
}

impl Doing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn begins, or has ended.
    pub(super) fn turn(&self, command: Option<&str>) {
        *self.state() = State { command: command.map(str::to_owned), ..State::default() };
    }

    /// An event of the answer's stream.
    pub(super) fn event(&self, event: &Value) {
        let mut state = self.state();
        match event["type"].as_str() {
            Some("message_start") => {
                state.message = Some(event["message"].clone());
                if let Some(message) = &mut state.message {
                    message["content"] = json!([]);
                }
            }
            Some("content_block_delta") => {
                let text = event["delta"]["text"].as_str();
                let blocks = state.message.as_mut().and_then(|m| m["content"].as_array_mut());
                if let (Some(text), Some(blocks)) = (text, blocks) {
                    match blocks.iter_mut().find(|block| block["index"] == event["index"]) {
                        Some(block) => {
                            let said = block["text"].as_str().unwrap_or_default().to_owned();
                            block["text"] = json!(said + text);
                        }
                        None => {
                            blocks.push(json!({"type": "text", "text": text, "index": event["index"]}));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// The answer is whole and about to be written down.
    pub(super) fn answered(&self) {
        self.state().message = None;
    }

    /// A tool goes to work, or is done.
    pub(super) fn tool(&self, call: Option<(&str, &Value)>) {
        self.state().call = call.map(|(row, call)| (row.to_owned(), call.clone()));
    }
}

/// The lines of standard input that were not worked on yet.
#[derive(Default)]
pub(super) struct Input(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    coming: Option<mpsc::Receiver<io::Result<String>>>,
    ahead: VecDeque<io::Result<String>>,
}

impl Input {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line; waits for it.
    pub(super) fn next(&self) -> Option<io::Result<String>> {
        let mut lines = self.lines();
        let ahead = lines.ahead.pop_front();
        ahead.or_else(|| lines.coming.as_ref()?.recv().ok())
    }

    /// A message that is there already.
    pub(super) fn waiting_message(&self) -> Option<Value> {
        let mut lines = self.lines();
        while let Some(line) = lines.coming.as_ref().and_then(|coming| coming.try_recv().ok()) {
            lines.ahead.push_back(line);
        }
        let Some(Ok(line)) = lines.ahead.front() else { return None };
        let input: Value = serde_json::from_str(line).ok().filter(|input: &Value| input["type"] == "user")?;
        lines.ahead.pop_front();
        Some(input)
    }
}

/// Reads standard input on a thread of its own and hands its messages on; an interrupt ends the process.
pub(super) fn read_input(rt: &Arc<Runtime>) -> io::Result<()> {
    let (sender, lines) = mpsc::channel();
    rt.input.lines().coming = Some(lines);
    let rt = Arc::clone(rt);
    std::thread::Builder::new().name("input".into()).spawn(move || {
        for line in io::stdin().lock().lines() {
            if let Ok(line) = &line
                && let Ok(input) = serde_json::from_str::<Value>(line)
                && input["type"] == "control_request"
            {
                control(&rt, &input);
                continue;
            }
            if sender.send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn control(rt: &Runtime, input: &Value) {
    // Held until the process ends: nothing else is written down any more.
    let state = rt.doing.state();
    let response =
        json!({"subtype": "success", "request_id": input["request_id"], "response": {"still_queued": []}});
    let id = rt.id();
    rt.out.emit(&id, json!({"type": "control_response", "response": response}));
    let Some(command) = &state.command else { return };
    if input["request"]["subtype"] != "interrupt" {
        return;
    }
    tools::end_running();
    if let Err(error) = write_down(rt, &state) {
        eprintln!("cannot write the interrupt: {error}");
    }
    ending::interrupted(rt, command);
    std::process::exit(1);
}

fn write_down(rt: &Runtime, state: &State) -> io::Result<()> {
    let id = rt.id();
    let mut session = rt.session();
    for block in state.message.iter().flat_map(|m| m["content"].as_array()).flatten() {
        let mut message = state.message.clone().unwrap_or_default();
        message["content"] = json!([{"type": "text", "text": block["text"]}]);
        let row = session
            .push(json!({"type": "assistant", "message": message, "apiBlockIndex": block["index"],
            "requestedModel": rt.model_name, "madeBy": "model", "isAbortedMidStream": true}))?;
        rt.out.message(&id, "assistant", &row, &message);
    }
    let mut text = "[Request interrupted by user]";
    if let Some((row, call)) = &state.call {
        text = "[Request interrupted by user for tool use]";
        let refused = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it \
                       was a file edit, the new_string was NOT written to the file). STOP what you are doing and \
                       wait for the user to tell you how to proceed.";
        let result = json!({"role": "user", "content": [{"type": "tool_result", "content": refused,
            "is_error": true, "tool_use_id": call["id"]}]});
        session.push(json!({"parentUuid": row, "type": "user", "message": result,
            "toolUseResult": "User rejected tool use", "sourceToolAssistantUUID": row}))?;
    }
    let message = json!({"role": "user", "content": [{"type": "text", "text": text}]});
    let row = session.push(json!({"type": "user", "rowSource": "harness", "message": message}))?;
    rt.out.message(&id, "user", &row, &message);
    session.bookkeeping()
}
