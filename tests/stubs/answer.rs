//! From a script step to the bytes of an answer.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};

use super::gate::Gate;
use super::messages_api::{answer, error};
use super::reply::{Reply, What, events};
use super::request::Request;

/// The answer as one message, with ids of its own and figures that grow with the request.
pub(crate) fn whole(number: u64, request: &Request, reply: &Reply, mut blocks: Vec<Value>) -> Value {
    let mut stop_reason = reply.stop_reason.clone().unwrap_or_else(|| "end_turn".into());
    for (at, block) in blocks.iter_mut().enumerate() {
        if block["type"] == "tool_use" {
            block["id"] = json!(format!("toolu_stub{number:06}{at:02}"));
            stop_reason = "tool_use".into();
        }
    }
    let said = serde_json::to_string(&blocks).unwrap().chars().count();
    // As with a warm prompt cache: most of the request is read from it, the rest is new.
    let total = request.tokens();
    let usage = reply.usage.clone().unwrap_or_else(|| {
        json!({"input_tokens": total / 10, "cache_creation_input_tokens": total / 5,
            "cache_read_input_tokens": total - total / 10 - total / 5, "output_tokens": said / 4 + 1})
    });
    json!({"id": format!("msg_stub{number:06}"), "type": "message", "role": "assistant",
        "model": request.body["model"], "content": blocks, "stop_reason": stop_reason,
        "stop_sequence": null, "usage": usage})
}

enum Step {
    Frame(String),
    Pause(Gate),
    Cut,
}

pub(crate) fn stream_answer(reply: &Reply, message: &Value) -> Response {
    let mut frames = events(message);
    if let What::ErrorEvent(kind) = &reply.what {
        frames.truncate(3);
        frames.push(("error".into(), error(kind, "made up by the stub")));
    }
    let mut steps = Vec::new();
    for (at, (name, data)) in frames.into_iter().enumerate() {
        if reply.cut_after == Some(at) {
            steps.push(Step::Cut);
            break;
        }
        if let Some((after, gate)) = &reply.pause
            && *after == at
        {
            steps.push(Step::Pause(gate.clone()));
        }
        steps.push(Step::Frame(format!("event: {name}\ndata: {data}\n\n")));
    }
    let frames = stream::unfold(steps.into_iter(), |mut steps| async move {
        loop {
            match steps.next()? {
                Step::Frame(frame) => return Some((Ok(Bytes::from(frame)), steps)),
                Step::Pause(gate) => gate.pass().await,
                Step::Cut => {
                    // What was sent before has to leave the buffers, or the answer would have no head.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let broken = io::Error::new(io::ErrorKind::ConnectionReset, "cut by the script");
                    return Some((Err(broken), Vec::new().into_iter()));
                }
            }
        }
    });
    let mut response = answer(StatusCode::OK, Body::from_stream(frames));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}
