//! What a human decides about branches, damage and unknown rows: stored, shown, honoured by every plan and rebuild.

use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::mcp::Client;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::transcript::rows;

const SIDE: &str = "51de0000-0000-4000-8000-000000000001";

/// A companion after two turns; no runner lives.
fn companion() -> Companion {
    let companion = Companion::new(
        Subject::StandIn,
        "stable_file_seconds = 0.2",
        "rebuild = \"off\"\nmin_gain_percent = 0",
    );
    for words in ["hello there", "look into the shed"] {
        companion.world.stub.on_text(words, Reply::text(&format!("As for {words}: yes.")));
        companion.run(&["send", words]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    companion
}

/// Puts lines in front of the last row, which stays the leaf.
fn insert(companion: &Companion, lines: &str) {
    let path = companion.world.sandbox.transcript(&companion.session());
    let text = fs::read_to_string(&path).unwrap();
    let last_row =
        text.rfind("{\"type\":\"assistant\"").or_else(|| text.trim_end().rfind('\n').map(|at| at + 1));
    let (front, back) = text.split_at(text[..last_row.unwrap()].rfind('\n').map_or(0, |at| at + 1));
    fs::write(&path, format!("{front}{lines}{back}")).unwrap();
}

/// A human's message on a branch that leaves the conversation at its first answer.
fn with_fork() -> Companion {
    let companion = companion();
    let path = companion.world.sandbox.transcript(&companion.session());
    let all = rows(&path);
    let answer = all.iter().find(|row| row["type"] == "assistant").unwrap();
    let row = json!({
        "type": "user", "uuid": SIDE, "parentUuid": answer["uuid"], "isSidechain": false,
        "sessionId": companion.session(), "timestamp": "2026-11-30T16:00:00.000Z", "promptSource": "sdk",
        "message": {"role": "user", "content": "words of another branch"},
    });
    insert(&companion, &format!("{row}\n"));
    companion
}

fn blocked(companion: &Companion) -> Value {
    let outcome = companion.run(&["plan", "--json"]).expect_code(3);
    serde_json::from_str(&outcome.lines.join("\n")).unwrap()
}

fn said(companion: &Companion) -> Vec<String> {
    let words = |row: &Value| match &row["message"]["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap_or_default().to_owned(),
    };
    rows(&companion.world.sandbox.transcript(&companion.session())).iter().map(words).collect()
}

fn rebuild(companion: &Companion) {
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let latest = companion.json(&["status"])["operation"].clone();
    assert_eq!(latest["status"], "activated", "{latest:#}");
}

#[test]
fn a_fork_is_shown_decided_once_and_honoured_by_the_runners_rebuild() {
    let companion = with_fork();
    let plan = blocked(&companion);
    let key = format!("{SIDE}+1");
    assert_eq!(plan["blocked"][0]["kind"], "fork");
    assert_eq!(plan["blocked"][0]["key"], key.as_str());
    assert_eq!(plan["blocked"][0]["answers"], json!(["drop", "carry"]));
    // Both sides are shown, with the command that decides.
    let text = companion.run(&["plan"]).expect_code(3).lines.join("\n");
    assert!(text.contains("human: words of another branch"), "{text}");
    assert!(text.contains("human: look into the shed") || text.contains("look into the shed"), "{text}");
    assert!(text.contains(&format!("--decide '{key}=drop' or --decide '{key}=carry'")), "{text}");
    let shown = companion.run(&["plan", "--show", "off-chain"]).expect_code(3).lines.join("\n");
    assert!(shown.contains("words of another branch"), "{shown}");

    // The model cannot decide for the human.
    let mut inside = companion.command(&["plan", "--decide", &format!("{key}=drop")]);
    inside.env("KAEL_INVOCATION", "11111111-2222-4333-8444-555555555555");
    assert!(Running::spawn(&mut inside).wait(PATIENCE).expect_code(3).stderr.contains("from inside a turn"));
    blocked(&companion);

    let decided = companion.json(&["plan", "--decide", &format!("{key}=carry")]);
    assert_eq!(decided["decisions"][0]["what"], key.as_str());
    assert_eq!(decided["decisions"][0]["answer"], "carry");
    assert_eq!(decided["decisions"][0]["by"], "a human at the command line");
    assert_ne!(decided["digest"], plan["digest"], "a yes to the plan before does not cover this one");
    let mut client = Client::start(&companion);
    client.initialize();
    let seen = client.done("plan", &json!({}));
    assert_eq!((&seen["blocked_reason"], &seen["decisions"]), (&json!(""), &decided["decisions"]));
    client.end();

    // Another answer replaces it, and `ask` takes it back.
    let dropped = companion.json(&["plan", "--decide", &format!("{key}=drop")]);
    assert_eq!(dropped["off_chain"][0]["fate"], "dropped");
    companion.run(&["plan", "--decide", &format!("{key}=ask")]).expect_code(3);
    companion.json(&["plan", "--decide", &format!("{key}=carry")]);
    rebuild(&companion);
    let carried = said(&companion);
    assert!(carried.iter().any(|text| text.ends_with("]\nwords of another branch")), "{carried:?}");
}

#[test]
fn a_fork_that_is_dropped_is_not_carried() {
    let companion = with_fork();
    companion.json(&["plan", "--decide", &format!("{SIDE}+1=drop")]);
    rebuild(&companion);
    assert_eq!(said(&companion).len(), 4, "{:?}", said(&companion));
}

#[test]
fn damage_and_unknown_rows_are_accepted_by_name_and_count() {
    let companion = companion();
    insert(
        &companion,
        "{\"type\":\"user\",\"message\":\n{\"type\":\"diary-entry\",\"text\":\"dear diary\"}\n",
    );
    let plan = blocked(&companion);
    let kinds: Vec<&str> =
        plan["blocked"].as_array().unwrap().iter().map(|b| b["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["unknown_row", "damage"]);
    assert!(companion.refused(&["plan", "--decide", "damage=2"], 3).contains("1 places are damaged, not 2"));
    assert!(
        companion
            .refused(&["plan", "--decide", "diary-entry=carry"], 3)
            .contains("the answers about diary-entry")
    );
    assert!(
        companion.refused(&["plan", "--decide", "nothing=drop"], 3).contains("nothing is not in question")
    );
    assert!(companion.refused(&["plan", "--decide", "damage"], 2).contains("expected WHAT=drop"));
    // For one plan alone nothing is stored.
    companion.run(&["plan", "--accept-damage", "1"]).expect_code(3);
    assert_eq!(blocked(&companion)["decisions"], json!([]));

    companion.json(&["plan", "--decide", "diary-entry=accept", "--decide", "damage=1"]);
    let text = companion.run(&["plan"]).expect_code(0).lines.join("\n");
    assert!(text.contains("decided        diary-entry=accept (a human at the command line"), "{text}");
    companion.run(&["plan", "--decide", "damage=ask"]).expect_code(3);
    companion.json(&["plan", "--decide", "damage=1"]);
    rebuild(&companion);
    assert_eq!(said(&companion).len(), 4, "{:?}", said(&companion));
    // It was about those very places.
    let path = companion.world.sandbox.transcript(&companion.session());
    fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(b"{\"type\":\n{\"type\":\"mode\"}\n")
        .unwrap();
    assert_eq!(blocked(&companion)["blocked"][0]["kind"], "damage");
}

#[test]
fn a_word_of_the_poison_pattern_is_confirmed_in_spite_of_it() {
    let companion = companion();
    for words in ["what is an AUP", "the AUP again"] {
        companion.world.stub.on_text(words, Reply::text("It is a policy."));
        companion.run(&["send", words]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
    }
    let before = companion.session();
    assert_eq!(blocked(&companion)["blocked"][0]["kind"], "poison");
    // Nobody was shown it: it is refused, and what was said stands in no operation's file.
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let latest = companion.json(&["status"])["operation"].clone();
    assert_eq!(latest["status"], "failed", "{latest:#}");
    assert!(latest.to_string().contains("poison pattern matches"), "{latest:#}");
    assert!(!latest.to_string().contains("AUP"), "{latest:#}");
    assert_eq!(companion.session(), before);

    companion.json(&["request"]);
    let confirmed = companion.json(&["confirm", "--yes"]);
    assert_eq!(confirmed["operation"]["status"], "activated", "{confirmed:#}");
    assert_ne!(companion.session(), before);
}

#[test]
fn a_candidate_is_proved_where_it_is_written() {
    let companion = companion();
    let out = companion.world.sandbox.path("candidate.jsonl");
    let plan = companion.json(&["plan", "--candidate", out.to_str().unwrap()]);
    assert_eq!(plan["candidate_path"], out.to_str().unwrap());
    assert!(plan["proof"]["checks"].as_array().is_some_and(|checks| checks.len() > 8), "{plan:#}");
    assert!(out.is_file());
}
