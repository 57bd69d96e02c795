//! How a turn ends: its result line, its last rows, its exit code (facts 5).

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::model::Failure;
use super::turn::{Ending, Runtime};

/// Sums of a turn for its result line.
pub(super) struct Tally {
    pub(super) begun: Instant,
    pub(super) api: Duration,
    pub(super) usage: [u64; 4],
    pub(super) rounds: u32,
    pub(super) text: String,
    pub(super) stop_reason: Value,
    pub(super) denials: Vec<Value>,
}

const USAGE: [&str; 4] =
    ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"];

impl Tally {
    pub(super) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            api: Duration::ZERO,
            usage: [0; 4],
            rounds: 0,
            text: String::new(),
            stop_reason: Value::Null,
            denials: Vec::new(),
        }
    }

    pub(super) fn add_usage(&mut self, message: &Value) {
        for (sum, key) in self.usage.iter_mut().zip(USAGE) {
            *sum += message["usage"][key].as_u64().unwrap_or(0);
        }
    }
}

fn result(rt: &Runtime, command: &str, tally: &Tally, fields: &Value) -> Value {
    let cost = cost(tally);
    let total = {
        let mut session = rt.session();
        session.total_cost += cost;
        session.total_cost
    };
    let usage: Value =
        USAGE.iter().zip(tally.usage).map(|(key, sum)| ((*key).to_owned(), json!(sum))).collect();
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let mut result = json!({"type": "result", "subtype": "success", "is_error": false,
        "duration_ms": ms(tally.begun.elapsed()), "duration_api_ms": ms(tally.api), "num_turns": tally.rounds,
        "stop_reason": tally.stop_reason, "total_cost_usd": total, "usage": usage,
        "modelUsage": {&rt.model_name: {"inputTokens": tally.usage[0], "outputTokens": tally.usage[3],
            "cacheCreationInputTokens": tally.usage[1], "cacheReadInputTokens": tally.usage[2], "costUSD": total}},
        "permission_denials": tally.denials, "terminal_reason": "completed", "api_error_status": null,
        "user_message_uuid": command, "user_message_uuids": [command], "result_index": 0});
    for (key, value) in fields.as_object().into_iter().flatten() {
        result[key] = value.clone();
    }
    result
}

/// Four dollars for a million tokens read, twenty for a million written.
#[expect(clippy::cast_precision_loss, reason = "a price, not a count")]
fn cost(tally: &Tally) -> f64 {
    let read: u64 = tally.usage[..3].iter().sum();
    read as f64 * 4e-6 + tally.usage[3] as f64 * 2e-5
}

pub(super) fn finish(rt: &Runtime, command: &str, tally: &Tally) -> io::Result<Ending> {
    let id = rt.id();
    let result = result(rt, command, tally, &json!({"result": tally.text}));
    rt.session().bookkeeping()?;
    rt.out.result(&id, result);
    rt.out.lifecycle(&id, command, "completed");
    Ok(Ending::Fine)
}

/// The result line of a turn that a human interrupted; its rows are written already.
pub(super) fn interrupted(rt: &Runtime, command: &str) {
    let fields = json!({"subtype": "error_during_execution", "is_error": true, "stop_reason": null,
        "terminal_reason": "aborted_streaming"});
    let id = rt.id();
    let result = result(rt, command, &Tally::begin(), &fields);
    rt.out.result(&id, result);
    rt.out.lifecycle(&id, command, "cancelled");
}

pub(super) fn fail(rt: &Runtime, command: &str, tally: &Tally, failure: &Failure) -> io::Result<Ending> {
    let id = rt.id();
    let text = failure.text(&rt.model_name, rt.model.gateway());
    let message = synthetic(&text);
    let row = uuid::Uuid::new_v4().to_string();
    let mut early = json!({"type": "assistant", "message": message, "parent_tool_use_id": null, "uuid": row});
    early["error"] = json!(failure.name());
    early["is_api_error_message"] = json!(true);
    rt.out.emit(&id, early);
    let result = result(
        rt,
        command,
        tally,
        &json!({"is_error": true, "result": text, "api_error_status": failure.status,
            "stop_reason": "stop_sequence", "terminal_reason": failure.terminal_reason()}),
    );
    {
        let mut session = rt.session();
        session.push(
            json!({"uuid": row, "type": "assistant", "message": message, "error": failure.name(),
            "isApiErrorMessage": true, "apiErrorStatus": failure.status, "apiErrorType": failure.kind,
            "madeBy": "model"}),
        )?;
        session.bookkeeping()?;
    }
    rt.out.result(&id, result);
    rt.out.lifecycle(&id, command, "cancelled");
    Ok(Ending::Failed)
}

pub(super) fn too_many_turns(rt: &Runtime, command: &str, tally: &Tally) -> io::Result<Ending> {
    let id = rt.id();
    let text = format!("Reached maximum number of turns ({})", rt.args.max_turns.unwrap_or_default());
    let mut result = result(
        rt,
        command,
        tally,
        &json!({"subtype": "error_max_turns", "is_error": true, "terminal_reason": "max_turns", "errors": [text],
            "num_turns": tally.rounds + 1}),
    );
    if let Some(fields) = result.as_object_mut() {
        fields.remove("result");
    }
    {
        let mut session = rt.session();
        session.push(json!({"attachment": {"type": "max_turns_reached", "maxTurns": rt.args.max_turns},
            "type": "attachment"}))?;
        session.bookkeeping()?;
    }
    rt.out.result(&id, result);
    rt.out.lifecycle(&id, command, "cancelled");
    Ok(Ending::Failed)
}

/// A message that the runtime writes in the model's place.
pub(super) fn synthetic(text: &str) -> Value {
    json!({"id": uuid::Uuid::new_v4(), "type": "message", "role": "assistant", "model": "<synthetic>",
        "content": [{"type": "text", "text": text}], "stop_reason": "stop_sequence", "stop_sequence": "",
        "usage": {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0}})
}
