//! Every string of a row with the path that leads to it.

use serde_json::Value;

use super::shapes::at;

/// Whether a path leads to a text where words belong.
pub(super) fn is_spoken_path(kind: &str, path: &[&str], row: &Value) -> bool {
    let base: &[&str] =
        if kind == "attachment" { &["attachment", "prompt"] } else { &["message", "content"] };
    match path.strip_prefix(base) {
        Some([]) => true,
        Some([block, "text"]) => {
            let pointer = format!("/{}/{block}/type", base.join("/"));
            at(row, &pointer).and_then(Value::as_str) == Some("text")
        }
        _ => false,
    }
}

/// Whether a path leads into a tool's result.
pub(super) fn is_result_path(path: &[&str], row: &Value) -> bool {
    match path {
        ["message", "content", block, _, ..] => {
            let pointer = format!("/message/content/{block}/type");
            at(row, &pointer).and_then(Value::as_str).is_some_and(|kind| kind.ends_with("tool_result"))
        }
        _ => false,
    }
}

/// Calls `on` with the path and text of every string. `serde_json` bounds the depth.
pub(super) fn walk<'a>(value: &'a Value, path: &mut Vec<&'a str>, on: &mut dyn FnMut(&[&str], &str)) {
    match value {
        Value::String(text) => on(path, text),
        Value::Object(members) => {
            for (key, value) in members {
                path.push(key);
                walk(value, path, on);
                path.pop();
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                path.push(NUMBERS.get(at).copied().unwrap_or("more"));
                walk(value, path, on);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Names for places in lists; content has few blocks, and what is beyond is looked at as unknown.
const NUMBERS: &[&str] = &[
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
    "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
];
