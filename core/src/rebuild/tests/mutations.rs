//! The proof catches damage to the candidate, to verdicts and to what the rules say.

use serde_json::{Value, json};

use super::*;
use crate::transcript::Rule;

fn script() -> Script {
    let mut script = Script::new();
    script.human("the first question of all");
    script.model(
        json!([{"type": "thinking", "thinking": "a long secret thought", "signature": "x"}]),
        json!("tool_use"),
        json!({}),
    );
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("the output of a tool"), false);
    script.says("the first answer of all");
    script.human("风筝是什么颜色？");
    script.says(" red, with a tail ");
    script
}

/// Changes the candidate's text and proves again, with the digest that goes with the change.
fn damaged(change: impl Fn(&mut Vec<Value>)) -> String {
    let fixture = script().file();
    let ask = Ask::new();
    let mut rebuilt = ask.rebuild(&fixture);
    rebuilt.proved();
    let mut rows = rebuilt.rows();
    change(&mut rows);
    let bytes: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&rebuilt.path, &bytes).unwrap();
    rebuilt.file.len = bytes.len() as u64;
    rebuilt.file.sha256 =
        crate::transcript::media::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes.as_bytes()));
    rebuilt.file.rows = rows.len() as u64;
    let proof = prove(&ProofInput {
        plan: &rebuilt.plan,
        source: &fixture.path,
        candidate: &rebuilt.path,
        candidate_file: &rebuilt.file,
        evidence: &ask.evidence,
    });
    proof.map(|_| String::new()).unwrap_or_else(|failure| failure.to_string())
}

#[test]
fn an_unchanged_candidate_is_proved_whatever_its_key_order() {
    assert_eq!(damaged(|_| {}), "");
}

#[test]
fn damage_to_the_candidate_is_caught() {
    type Change = fn(&mut Vec<Value>);
    let changes: &[(&str, Change)] = &[
        ("a row dropped at the end", |rows| drop(rows.pop())),
        ("a row dropped in the middle", |rows| drop(rows.remove(1))),
        ("two rows swapped", |rows| rows.swap(0, 1)),
        ("an item doubled", |rows| rows.push(rows[3].clone())),
        ("a space trimmed", |rows| rows[3]["message"]["content"][0]["text"] = json!("red, with a tail ")),
        ("a code point changed", |rows| rows[2]["message"]["content"] = json!("风筝是什麼颜色？")),
        ("a link broken", |rows| rows[2]["parentUuid"] = rows[0]["uuid"].clone()),
        ("a root in the middle", |rows| rows[2]["parentUuid"] = Value::Null),
        ("a tool result leaked", |rows| rows[0]["message"]["content"] = json!("the output of a tool")),
        ("a thought added", |rows| {
            let thought = json!({"type": "thinking", "thinking": "x", "signature": "y"});
            rows[1]["message"]["content"].as_array_mut().unwrap().push(thought);
        }),
        ("an empty text added", |rows| {
            rows[1]["message"]["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": " "}));
        }),
        ("usage kept", |rows| rows[1]["message"]["usage"] = json!({"input_tokens": 150_000})),
        ("a role changed", |rows| rows[0]["type"] = json!("assistant")),
        ("a sidechain", |rows| rows[0]["isSidechain"] = json!(true)),
        ("another session", |rows| rows[0]["sessionId"] = json!(SESSION)),
        ("another uuid", |rows| rows[3]["uuid"] = rows[2]["uuid"].clone()),
        ("another source", |rows| rows[0]["kael"]["source"] = json!("x")),
        ("no model", |rows| drop(rows[1]["message"].as_object_mut().unwrap().remove("model"))),
        ("equal times", |rows| rows[1]["timestamp"] = rows[0]["timestamp"].clone()),
        ("a stamp too long", |rows| rows[0]["kael"]["stamp"] = json!(3)),
        ("blocks merged", |rows| {
            rows[0]["message"]["content"] =
                json!([{"type": "text", "text": "the first question"}, {"type": "text", "text": " of all"}]);
        }),
        ("an unknown field", |rows| rows[0]["isMeta"] = json!(true)),
    ];
    for (name, change) in changes {
        let failure = damaged(change);
        assert!(failure.starts_with("the proof fails ("), "{name}: {failure:?}");
    }
}

/// Changes the plan as a wrong rule would have made it, rebuilds and proves.
fn misjudged(script: &Script, evidence: &Evidence, change: impl Fn(&mut Plan)) -> String {
    let fixture = script.file();
    let ask = Ask::new();
    let mut plan = ask.plan(&fixture.path);
    change(&mut plan);
    let path = fixture.beside("candidate.jsonl");
    let file = write_candidate(&crate::disk::Disk::real(), &plan, &fixture.path, &path).unwrap();
    let proof = prove(&ProofInput {
        plan: &plan,
        source: &fixture.path,
        candidate: &path,
        candidate_file: &file,
        evidence,
    });
    proof.map(|_| String::new()).unwrap_or_else(|failure| failure.to_string())
}

#[test]
fn speech_classified_as_noise_is_caught() {
    let none = Evidence::default();
    assert_eq!(misjudged(&script(), &none, |_| {}), "");
    // Each item left out in turn, under every rule there is, listed or not.
    for item in 0..4 {
        for rule in Rule::ALL {
            if matches!(rule, Rule::AcceptedUnknown) {
                continue; // A human said so.
            }
            let failure = misjudged(&script(), &none, |plan| {
                let gone = plan.items.remove(item);
                let row = usize::try_from(gone.line).unwrap() - 1;
                plan.verdicts[row] = rule.number();
            });
            assert!(failure.contains("dropped rows"), "item {item} as {}: {failure:?}", rule.name());
        }
    }
    let failure = misjudged(&script(), &none, |plan| {
        let gone = plan.items.remove(0);
        plan.not_carried.insert(gone.offset, Rule::OffChain);
    });
    assert!(failure.contains("does not list"), "{failure}");
}

#[test]
fn items_in_another_order_are_caught() {
    let none = Evidence::default();
    let failure = misjudged(&script(), &none, |plan| plan.items.swap(0, 2));
    assert!(failure.contains("order"), "{failure}");
    let failure = misjudged(&script(), &none, |plan| plan.items.push(plan.items[0].clone()));
    assert!(failure.contains("order"), "{failure}");
}

#[test]
fn what_inbox_and_outbox_know_must_be_there() {
    let digest =
        |text: &str| crate::transcript::media::hex(&<sha2::Sha256 as sha2::Digest>::digest(text.as_bytes()));
    let sent = |text: &str| Evidence {
        sent: vec![SentEvidence { row_uuid: "u".to_owned(), text_sha256: vec![digest(text)] }],
        received: Vec::new(),
    };
    let received = |text: &str| Evidence {
        sent: Vec::new(),
        received: vec![ReceivedEvidence {
            message_id: "m".to_owned(),
            block_index: 0,
            text_sha256: digest(text),
        }],
    };
    assert_eq!(misjudged(&script(), &sent("the first question of all"), |_| {}), "");
    assert_eq!(misjudged(&script(), &received(" red, with a tail "), |_| {}), "");
    let failure = misjudged(&script(), &sent("never in this file"), |_| {});
    assert!(failure.contains("inbox"), "{failure}");
    let failure = misjudged(&script(), &received("never in this file"), |_| {});
    assert!(failure.contains("outbox"), "{failure}");
}

#[test]
fn the_clis_own_copies_must_be_found_again() {
    let none = Evidence::default();
    let mut copied = script();
    copied.last_prompt("风筝是什么颜色？", "x");
    copied.line(&json!({"type": "api-request-blob", "message": {"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>\nanything\n</system-reminder>"},
        {"type": "text", "text": "the first question of all\n"}]}}));
    assert_eq!(misjudged(&copied, &none, |_| {}), "");
    let mut lost = script();
    lost.line(&json!({"type": "api-request-blob", "message": {"role": "user", "content": "words that only a blob has"}}));
    let failure = misjudged(&lost, &none, |_| {});
    assert!(failure.contains("copies"), "{failure}");
    let mut lost = script();
    lost.last_prompt("words that only a prompt row has", "x");
    let failure = misjudged(&lost, &none, |_| {});
    assert!(failure.contains("line 8 (last-prompt)"), "{failure}");
}

#[test]
fn words_in_a_field_nobody_knows_are_found() {
    let none = Evidence::default();
    let mut odd = script();
    odd.user(json!("hello"), json!({"promptSource": "sdk", "aside": {"whispered": "都是秘密的话"}}));
    odd.says("hi");
    let failure = misjudged(&odd, &none, |_| {});
    assert!(failure.contains("aside.whispered"), "{failure}");
}

#[test]
fn a_source_that_grew_is_caught() {
    let fixture = script().file();
    let ask = Ask::new();
    let rebuilt = ask.rebuild(&fixture);
    let mut bytes = std::fs::read(&fixture.path).unwrap();
    bytes.extend_from_slice(b"{\"type\":\"mode\"}\n");
    std::fs::write(&fixture.path, bytes).unwrap();
    let proof = prove(&ProofInput {
        plan: &rebuilt.plan,
        source: &fixture.path,
        candidate: &rebuilt.path,
        candidate_file: &rebuilt.file,
        evidence: &ask.evidence,
    });
    assert!(proof.unwrap_err().to_string().contains("the source changed"));
}

#[test]
fn the_dropped_side_imports_nothing_from_the_rules() {
    for (name, text) in [
        ("dropped", include_str!("../proof/dropped.rs")),
        ("copies", include_str!("../proof/copies.rs")),
        ("lines", include_str!("../proof/lines.rs")),
        ("shapes", include_str!("../proof/shapes.rs")),
        ("paths", include_str!("../proof/paths.rs")),
        ("places", include_str!("../proof/places.rs")),
        ("noise", include_str!("../proof/noise.rs")),
        ("row", include_str!("../proof/row.rs")),
        ("tree", include_str!("../proof/tree.rs")),
    ] {
        for module in [
            "chain", "forks", "doubts", "queue", "judge", "speech", "head", "reader", "json", "survey",
            "index",
        ] {
            assert!(!text.contains(&format!("transcript::{module}")), "{name} imports {module}");
            assert!(!text.contains(&format!(" {module}::")), "{name} uses {module}");
        }
    }
}
