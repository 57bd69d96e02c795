//! The head's own scanner against `serde_json` with borrowed fields and `RawValue` for the rest: the same rows are
//! read, and every field is the same stretch of the row.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::head::{Content, Head, Parent};
use super::json::Span;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Row<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
    #[serde(rename = "parentUuid", borrow)]
    parent: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(rename = "toolUseResult", borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// What stands between a string's quotes; nothing for other values.
fn inside(raw: Option<&RawValue>) -> Option<&str> {
    raw?.get().strip_prefix('"')?.strip_suffix('"')
}

fn string() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap())
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => string(),
        1 => Just("\"\\ud83e\\ude81 \\u0041\\/\"".to_owned()),
        1 => prop::sample::select(vec!["null", "true", "false", "0", "-1.5e3"]).prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[ {} ]", all.join(" ,"))),
            prop::collection::vec((string(), inner), 0..4).prop_map(|all| {
                let all: Vec<String> =
                    all.into_iter().map(|(key, value)| format!("{key}:\t{value}")).collect();
                format!("{{{}}}", all.join(","))
            }),
        ]
    })
}

fn members(
    known: &'static [&'static str],
    inner: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    let key =
        prop_oneof![6 => prop::sample::select(known).prop_map(|key| format!("\"{key}\"")), 1 => string()];
    prop::collection::vec((key, inner), 0..8).prop_map(|all| {
        let mut seen = std::collections::HashSet::new();
        let all: Vec<String> = all
            .into_iter()
            .filter(|(key, _)| seen.insert(key.clone()))
            .map(|(key, value)| format!("{key} : {value}"))
            .collect();
        format!("{{{}}}", all.join(" , "))
    })
}

fn row() -> impl Strategy<Value = String> {
    let block = members(&["type", "text", "input", "id", "name"], value());
    let content = prop_oneof![
        value(),
        prop::collection::vec(block, 0..4).prop_map(|blocks| format!("[{}]", blocks.join(",")))
    ];
    let message = members(&["id", "role", "content", "model", "usage"], content);
    members(
        &["type", "uuid", "parentUuid", "timestamp", "toolUseResult", "message", "isMeta", "cwd"],
        prop_oneof![2 => value(), 2 => message],
    )
}

fn text(span: Option<Span>, row: &str) -> Option<&str> {
    span.map(|span| std::str::from_utf8(span.of(row.as_bytes())).unwrap())
}

/// An absent field is `null` to serde's `Option`, too.
fn some(span: Option<Span>, row: &str) -> Option<&str> {
    text(span, row).filter(|text| *text != "null")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_field_is_what_serde_json_reads(row in row()) {
        let mut head = Head::default();
        prop_assert_eq!(head.parse(row.as_bytes()).ok(), Some(row.len()));
        let theirs: Row<'_> = serde_json::from_str(&row).unwrap();
        prop_assert_eq!(text(head.type_name, &row), inside(theirs.kind));
        prop_assert_eq!(text(head.uuid, &row), inside(theirs.uuid));
        prop_assert_eq!(text(head.timestamp, &row), inside(theirs.timestamp));
        prop_assert_eq!(some(head.tool_use_result, &row), theirs.result.map(RawValue::get));
        prop_assert_eq!(some(head.message, &row), theirs.message.map(RawValue::get));
        let parent = match head.parent { Parent::Row(id) => text(Some(id), &row), Parent::Null | Parent::Absent => None };
        prop_assert_eq!(parent, inside(theirs.parent));
        let message: Message<'_> = theirs.message.and_then(|m| serde_json::from_str(m.get()).ok()).unwrap_or_default();
        if theirs.message.is_some_and(|m| m.get().starts_with('{')) {
            prop_assert_eq!(text(head.message_id, &row), inside(message.id));
            match head.content {
                Content::Absent => prop_assert!(message.content.is_none()),
                Content::Text(span) => prop_assert_eq!(text(Some(span), &row), inside(message.content)),
                Content::Odd(span) => prop_assert_eq!(some(Some(span), &row), message.content.map(RawValue::get)),
                Content::Blocks => {
                    let blocks: Vec<&RawValue> = serde_json::from_str(message.content.unwrap().get()).unwrap();
                    prop_assert_eq!(head.blocks.len(), blocks.len());
                    for (ours, raw) in head.blocks.iter().zip(blocks) {
                        prop_assert_eq!(text(Some(ours.whole), &row), Some(raw.get()));
                        let block: Block<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
                        if raw.get().starts_with('{') {
                            prop_assert_eq!(text(ours.name, &row), inside(block.kind));
                            prop_assert_eq!(text(ours.text, &row), inside(block.text));
                            prop_assert_eq!(some(ours.input, &row), block.input.map(RawValue::get));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_row_to_serde_json_is_none_to_the_head(mut row in row(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = std::mem::take(&mut row).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let mut head = Head::default();
        let ours = head.parse(&bytes).ok() == Some(bytes.len());
        // Bytes that are no UTF-8 and lone surrogates are the one difference: the CLI reads them (facts 4).
        let theirs = serde_json::from_slice::<&RawValue>(&bytes).is_ok_and(|raw| raw.get().starts_with('{'));
        if std::str::from_utf8(&bytes).is_ok() {
            prop_assert_eq!(ours, theirs, "{}", String::from_utf8_lossy(&bytes));
        } else {
            prop_assert!(ours || !theirs);
        }
    }
}
