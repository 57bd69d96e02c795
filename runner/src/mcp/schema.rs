//! JSON Schemas of what the tools answer. Only what is always there is required; everything else may be added to.

use rmcp::model::JsonObject;
use serde_json::{Value, json};

type Field = (&'static str, &'static str, &'static str);

/// An object with these fields (name, JSON type, meaning), of which the first `required` are always there.
fn object(fields: &[Field], required: usize) -> JsonObject {
    let mut properties = JsonObject::new();
    for (name, kind, meaning) in fields {
        let kinds: Vec<&str> = kind.split('|').collect();
        let kind = if kinds.len() == 1 { json!(kind) } else { json!(kinds) };
        properties.insert((*name).to_owned(), json!({ "type": kind, "description": meaning }));
    }
    let names: Vec<&str> = fields.iter().take(required).map(|field| field.0).collect();
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("required".to_owned(), json!(names));
    schema
}

const LEFT_OUT: Field = ("left_out", "object", "how many entries of which list were left out");

pub(super) fn doctor() -> JsonObject {
    object(
        &[
            ("ok", "boolean", "whether no check fails"),
            ("checks", "array", "each with name, ok (null: a note) and detail, which holds the remedy"),
            ("project_dir", "string", "folder of the transcripts"),
            ("claude_binary", "string|null", "the CLI that would run"),
            ("active_operation", "string|null", "the operation that something is still to be done for"),
            LEFT_OUT,
        ],
        5,
    )
}

pub(super) fn dirty() -> JsonObject {
    object(
        &[
            ("should_rebuild", "boolean", "whether a rebuild is due"),
            ("reasons", "array", "why it is due"),
            ("total_bytes", "integer", "noise, as the budget counts it"),
            ("conversation_bytes", "integer", "what was said"),
            ("conversation_turns", "integer", "turns of the conversation"),
            ("noise_ratio", "number", "noise as a part of the whole, 0 to 1"),
            ("dirty_budget_bytes", "integer", "noise from which on a rebuild is due; 0 is off"),
            ("categories", "object", "noise by category"),
            ("source_path", "string", "the transcript"),
            LEFT_OUT,
        ],
        9,
    )
}

pub(super) fn plan() -> JsonObject {
    object(
        &[
            ("ok", "boolean", "whether nothing speaks against a rebuild"),
            ("blocked_reason", "string", "what speaks against it; empty: nothing"),
            ("stats", "object", "turns carried, left out, estimated tokens"),
            ("gain", "object", "tokens before and after"),
            ("drops", "array", "what is dropped, by rule"),
            ("source_session_id", "string", "the session that would be rebuilt"),
            ("source_path", "string", "its transcript"),
            LEFT_OUT,
        ],
        7,
    )
}

fn operation(kind: &str) -> Value {
    let mut schema = object(
        &[
            ("operation_id", "string", "its id"),
            ("status", "string", "pending, activated, failed, rolled_back, cancelled, ..."),
            ("reasons", "array", "why it was asked for"),
            ("requested_by", "string", "who asked"),
            ("waits_for_human", "boolean", "whether nothing happens before a human says yes"),
            ("expires_at", "string", "when the question to the human runs out"),
            ("agreed_by", "string", "who said yes"),
            ("error", "string", "why it failed"),
            ("new_session_id", "string", "the clean session"),
            ("stats", "object", "turns carried, left out, estimated tokens"),
            ("history", "array", "what happened, in order"),
        ],
        5,
    );
    if kind == "optional" {
        schema.insert("type".to_owned(), json!(["object", "null"]));
    }
    Value::Object(schema)
}

fn answer(kind: &str) -> JsonObject {
    let mut schema = object(
        &[
            ("ok", "boolean", "true"),
            ("next", "string", "what happens now, and what you should do"),
            LEFT_OUT,
        ],
        2,
    );
    if let Some(properties) = schema.get_mut("properties") {
        properties["operation"] = operation(kind);
    }
    schema.insert("required".to_owned(), json!(["ok", "operation", "next"]));
    schema
}

/// Of the writing tools.
pub(super) fn registered() -> JsonObject {
    answer("required")
}

/// Of the status tool: there may be no operation yet.
pub(super) fn status() -> JsonObject {
    answer("optional")
}
