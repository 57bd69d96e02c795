//! The tools' arguments, as the original has them.

use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::answer::Refusal;
use super::tools::Tool;

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Which transcript to look at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    /// A transcript directly in the project folder; empty: the present session's.
    #[serde(default)]
    pub transcript_path: String,
}

/// A wish for a rebuild.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Why, in your own few words; the first 500 characters are kept. Quote nobody.
    pub reason: String,
    /// Exactly `REBUILD`.
    pub confirmation: String,
}

/// Which operation to look at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// An `operation_id`; empty: the latest operation.
    #[serde(default)]
    pub operation_id: String,
}

/// A wish to take an operation back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The pending operation's `operation_id`.
    pub operation_id: String,
    /// Exactly `CANCEL`.
    pub confirmation: String,
}

/// A wish for the session before.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The `operation_id` of the newest activated operation.
    pub operation_id: String,
    /// Take along what has been said since; without it the wish is refused once something was.
    #[serde(default)]
    pub carry_new_turns: bool,
    /// Exactly `ROLLBACK`.
    pub confirmation: String,
}

/// The arguments of a call, or what is wrong with them in words a model can act on.
pub fn read<T: DeserializeOwned>(tool: Tool, arguments: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let schema = tool.input_schema();
        let names: Vec<&str> = match schema.get("properties").and_then(Value::as_object) {
            Some(properties) => properties.keys().map(String::as_str).collect(),
            None => Vec::new(),
        };
        let takes = if names.is_empty() { "no arguments".to_owned() } else { names.join(", ") };
        Refusal::new(
            format!("the arguments do not fit: {error}. Nothing was done"),
            format!("call {} again with its own arguments: {takes}", tool.name()),
        )
    })
}

/// The word that a writing tool asks for; anything else is a mistake, and nothing is done.
pub fn word(given: &str, wanted: &str) -> Result<(), Refusal> {
    if given == wanted {
        return Ok(());
    }
    Err(Refusal::new(
        format!("confirmation must be exactly {wanted}, not {given:?}. Nothing was done"),
        format!("if the human really wants this, call again with confirmation = \"{wanted}\"; else leave it"),
    ))
}
