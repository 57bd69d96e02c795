//! The way back when the conversation has gone on: the old session, with what was said since behind it.

use std::fs;

use serde_json::{Value, json};

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::mcp::Client;
use crate::support::subject::Subject;

const NOISE: &str = "NOISE-OF-A-TOOL";

fn gone_on(subject: Subject) -> (Companion, String, Value) {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text("kite", Reply::text("A red one."));
    let call = Reply::bash(&format!("seq -f '{NOISE} %g' 1 600"));
    stub.on_tool_turn("shed", call, Reply::text("The shed holds ropes."));
    for words in ["hello there", "look into the shed"] {
        say(&companion, words);
    }
    let old = companion.session();
    companion.json(&["request", "--confirm", "REBUILD"]);
    let rebuilt = companion.json(&["confirm", "--yes"])["operation"].clone();
    assert_eq!(rebuilt["status"], "activated");
    for words in ["my kite is a red one 🪁 风筝", "what about the kite?"] {
        say(&companion, words);
    }
    (companion, old, rebuilt)
}

fn say(companion: &Companion, words: &str) {
    companion.run(&["send", words]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
}

const BACK: [&str; 4] = ["rollback-request", "--carry-new-turns", "--confirm", "ROLLBACK"];

fn nothing_said_since_is_lost(subject: Subject) {
    let (companion, old, _) = gone_on(subject);
    let between = companion.session();
    let plain = companion.refused(&["rollback-request", "--confirm", "ROLLBACK"], 3);
    assert!(
        plain.contains("would leave those words behind") && plain.contains("--carry-new-turns"),
        "{plain}"
    );
    assert_eq!(companion.session(), between);

    let before = fs::read(companion.world.sandbox.transcript(&old)).unwrap();
    let left = fs::read(companion.world.sandbox.transcript(&between)).unwrap();
    let answer = companion.json(&BACK);
    let operation = &answer["operation"];
    assert_eq!(
        (&operation["kind"], &operation["status"]),
        (&json!("return"), &json!("activated")),
        "{answer:#}"
    );
    assert!(answer["next"].as_str().unwrap().contains("with what has been said since"), "{answer:#}");
    let now = companion.session();
    assert!(now != old && now != between);
    // The old part byte for byte; the two sessions before as they were.
    let transcript = companion.world.sandbox.transcript(&now);
    assert!(fs::read(&transcript).unwrap().starts_with(&before));
    assert_eq!(fs::read(companion.world.sandbox.transcript(&old)).unwrap(), before);
    assert_eq!(fs::read(companion.world.sandbox.transcript(&between)).unwrap(), left);
    let checks = operation["verification"]["proof"]["checks"].as_array().unwrap();
    let count = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap()["count"].clone();
    assert_eq!(count("bytes of the old transcript as they were"), before.len());
    assert_eq!(count("items said since, at its end"), 4);
    assert_eq!(count("items of the old conversation, in order"), 4);

    say(&companion, "hello again, and the kite?");
    let asked = companion.world.stub.last_main();
    assert!(asked.occurrences(NOISE) >= 600, "what the rebuild had left out is there again");
    for words in
        ["hello there", "The shed holds ropes.", "my kite is a red one 🪁 风筝", "what about the kite?"]
    {
        assert_eq!(asked.occurrences(words), 1, "{words}: {:#?}", asked.view());
    }
    let status = companion.json(&["status"]);
    assert_eq!(status["hold"], Value::Null, "the first turn after it is as expected: {status:#}");
    assert_eq!(status["operation"]["verification"]["first_turn"]["reaches_root"], true);

    // From there on everything goes on as from any session: a rebuild, and the way back from that.
    companion.json(&["request", "--confirm", "REBUILD"]);
    let rebuilt = companion.json(&["confirm", "--yes"]);
    assert_eq!(rebuilt["operation"]["status"], "activated", "{rebuilt:#}");
    say(&companion, "hello once more");
    let asked = companion.world.stub.last_main();
    assert_eq!((asked.occurrences(NOISE), asked.occurrences("my kite is a red one 🪁 风筝")), (0, 1));
    let again = companion.json(&BACK);
    assert_eq!(again["operation"]["status"], "activated", "{again:#}");
    say(&companion, "and the kite at last?");
    let asked = companion.world.stub.last_main();
    assert!(asked.occurrences(NOISE) >= 600);
    for words in ["hello there", "my kite is a red one 🪁 风筝", "hello once more"] {
        assert_eq!(asked.occurrences(words), 1, "{words}: {:#?}", asked.view());
    }
}

#[test]
fn nothing_said_since_is_lost_on_the_stand_in() {
    nothing_said_since_is_lost(Subject::StandIn);
}

#[test]
fn nothing_said_since_is_lost_on_the_newest_cli() {
    if let Some(subject) = Subject::real("2.1.332") {
        nothing_said_since_is_lost(subject);
    }
}

#[test]
fn nothing_said_since_is_lost_on_the_oldest_cli() {
    if let Some(subject) = Subject::real("2.1.199") {
        nothing_said_since_is_lost(subject);
    }
}

#[test]
fn a_way_back_can_itself_be_taken_back_and_where_nothing_was_said_it_is_the_plain_one() {
    let (companion, old, _) = gone_on(Subject::StandIn);
    let between = companion.session();
    companion.json(&BACK);
    let back = companion.json(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(back["operation"]["status"], "rolled_back", "{back:#}");
    assert_eq!(companion.session(), between);
    say(&companion, "hello again");

    let other = Companion::new(Subject::StandIn, "stable_file_seconds = 0.2", "min_gain_percent = 1");
    other.world.stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("Ropes."));
    say(&other, "look into the shed");
    let first = other.session();
    other.json(&["request", "--confirm", "REBUILD"]);
    other.json(&["confirm", "--yes"]);
    assert_eq!(other.json(&BACK)["operation"]["status"], "rolled_back");
    assert_eq!(other.session(), first);
    drop(old);
}

#[test]
fn what_does_not_add_up_switches_nothing() {
    // The old transcript was written to.
    let (companion, old, _) = gone_on(Subject::StandIn);
    let between = companion.session();
    let path = companion.world.sandbox.transcript(&old);
    let whole = fs::read(&path).unwrap();
    let mut longer = whole.clone();
    longer.extend_from_slice(b"{\"type\":\"mode\",\"mode\":\"normal\"}\n");
    fs::write(&path, &longer).unwrap();
    assert!(companion.refused(&BACK, 3).contains("was written to since it was left"));
    assert_eq!(companion.session(), between);
    // It is gone: the frozen copy says the same.
    fs::remove_file(&path).unwrap();
    assert_eq!(companion.json(&BACK)["operation"]["status"], "activated");
    say(&companion, "hello again, and the kite?");
    assert_eq!(companion.world.stub.last_main().occurrences("my kite is a red one 🪁 风筝"), 1);

    // The frozen copy is damaged.
    let (companion, old, rebuilt) = gone_on(Subject::StandIn);
    let id = rebuilt["operation_id"].as_str().unwrap();
    let frozen = companion.world.sandbox.state().join("artifacts").join(id).join(format!("{old}.jsonl"));
    let mut bytes = fs::read(&frozen).unwrap();
    bytes[10] ^= 1;
    fs::write(&frozen, bytes).unwrap();
    assert!(companion.refused(&BACK, 3).contains("is gone or damaged"));
    companion.run(&["send", "and now?"]).expect_code(0);
}

#[test]
fn a_model_may_ask_for_it_and_a_human_decides() {
    let (companion, old, rebuilt) = gone_on(Subject::StandIn);
    let runner = companion.start();
    let mut client = Client::connect(&companion);
    let id = rebuilt["operation_id"].as_str().unwrap();
    let arguments = json!({ "operation_id": id, "confirmation": "ROLLBACK", "carry_new_turns": true });
    let between = companion.session();
    let asked = client.done("rollback_request", &arguments);
    assert_eq!(
        (&asked["operation"]["kind"], &asked["operation"]["status"]),
        (&json!("return"), &json!("pending"))
    );
    assert_eq!(asked["operation"]["waits_for_human"], true);
    let again = client.done("rollback_request", &arguments);
    assert_eq!(again["operation"]["operation_id"], asked["operation"]["operation_id"], "a second wish joins");
    assert_eq!(companion.session(), between);
    let answer = companion.json(&["confirm", "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    let now = companion.session();
    assert!(now != old && now != between);
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    client.end();
    companion.stop(runner);
}
