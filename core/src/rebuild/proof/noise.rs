//! Nothing is carried that nobody said: each item's texts stand in a place of its row where words
//! belong, and the row does not look like noise.

use std::collections::HashSet;

use serde_json::Value;

use super::carried::{ItemTexts, TextDigest, digest};
use super::shapes::{self, Writer, at};
use crate::rebuild::plan::Plan;
use crate::transcript::ItemKind;

/// Why an item should not have been carried; nothing when it belongs.
pub(super) fn objection(item: &ItemTexts, kind: &str, row: &Value, plan: &Plan) -> Option<&'static str> {
    if row.get("kael").is_some_and(Value::is_object) {
        // What an earlier candidate says was settled and proved when it was written.
        return None;
    }
    let all = |places: Vec<String>| {
        let known: HashSet<TextDigest> = places.iter().map(|text| digest(text)).collect();
        item.texts.iter().all(|text| known.contains(text))
            // Cut by the owner's limit: the whole text stands there.
            || (item.is_cut && known.iter().any(|text| plan.cut_texts.contains(text)))
    };
    let elsewhere = "its words stand in no place where such words belong";
    let found = match (item.kind, kind) {
        (ItemKind::OpenTail, _) => true,
        (ItemKind::Words, "user") => {
            let texts = shapes::spoken_places(kind, row);
            if let Some(what) = runtime(&texts, item, row, plan) {
                return Some(what);
            }
            all(texts.into_iter().map(str::to_owned).collect())
        }
        (ItemKind::Words, "assistant") => {
            if ["isSidechain", "isApiErrorMessage"]
                .iter()
                .any(|key| row.get(*key) == Some(&Value::Bool(true)))
                || at(row, "/message/model").and_then(Value::as_str) == Some("<synthetic>")
            {
                return Some("its row is a subagent's, or the CLI made it up");
            }
            all(shapes::spoken_places(kind, row).into_iter().map(str::to_owned).collect())
        }
        (ItemKind::Command, "system") => {
            all(shapes::spoken_places(kind, row).into_iter().filter_map(shapes::local_command).collect())
        }
        (ItemKind::Command, "user") => {
            all(shapes::spoken_places(kind, row).into_iter().filter_map(shapes::typed_command).collect())
        }
        (ItemKind::Queued, "attachment") => {
            let mode = at(row, "/attachment/commandMode").and_then(Value::as_str);
            if !matches!(mode, None | Some("prompt")) {
                return Some("it was queued by the runtime");
            }
            all(shapes::spoken_places(kind, row).into_iter().map(str::to_owned).collect())
        }
        (ItemKind::Queued, "queue-operation") => {
            let content = row.get("content").and_then(Value::as_str).unwrap_or_default();
            let enqueued = row.get("operation").and_then(Value::as_str) == Some("enqueue");
            enqueued && all(vec![content.to_owned()])
        }
        (ItemKind::Answer, "user") => all(shapes::answers(row).into_iter().flatten().collect()),
        (ItemKind::Refusal, "user") => all(shapes::refusals(row).into_iter().flatten().collect()),
        (ItemKind::Plan | ItemKind::ToolMessage, "assistant") => {
            let calls = shapes::spoken_calls(row, &plan.rules).into_iter();
            all(calls
                .filter(|call| call.is_plan == (item.kind == ItemKind::Plan))
                .map(|call| call.text)
                .collect())
        }
        (ItemKind::Image, "user" | "attachment") => shapes::has_media(row),
        (ItemKind::Summary, "user") => row.get("isCompactSummary") == Some(&Value::Bool(true)),
        (ItemKind::Snapshot, "user" | "attachment") => true,
        _ => false,
    };
    (!found).then_some(elsewhere)
}

/// Whether a user row, or a text of it that is carried, is the runtime's.
fn runtime(texts: &[&str], item: &ItemTexts, row: &Value, plan: &Plan) -> Option<&'static str> {
    let writer = shapes::writer(row, &plan.own);
    if writer == Writer::Other {
        return Some("its row says that no human wrote it");
    }
    let tags = &plan.rules.injected_tags;
    let carried = texts.iter().filter(|text| item.texts.contains(&digest(text)));
    for text in carried {
        let noise = match writer {
            Writer::Ours | Writer::Other => false,
            Writer::Human => texts.len() > 1 && shapes::is_injected(text, tags),
            Writer::Unsaid => {
                shapes::is_runtime_text(text, tags)
                    || shapes::typed_command(text).is_some_and(|typed| shapes::is_bare_command(text, &typed))
            }
        };
        if noise {
            return Some("its text is the runtime's");
        }
    }
    None
}
