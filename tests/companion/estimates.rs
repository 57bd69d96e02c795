//! What a conversation has shown about its tokens is kept over a rebuild.

use std::fs;
use std::io::Write;

use serde_json::json;

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;
use crate::support::transcript::rows;

#[test]
fn figures_of_the_old_session_correct_the_estimates_of_the_new_one() {
    let companion = Companion::new(
        Subject::StandIn,
        "stable_file_seconds = 0.2",
        "rebuild = \"off\"\nmin_gain_percent = 0",
    );
    companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
    companion.run(&["send", "hello"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let path = companion.world.sandbox.transcript(&companion.session());
    let mut parent =
        rows(&path).into_iter().rev().find_map(|row| row["uuid"].as_str().map(str::to_owned)).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut sent = 20_000;
    for turn in 0..8 {
        for who in ["user", "assistant"] {
            let uuid = uuid::Uuid::new_v4().to_string();
            let mut message = json!({"role": who, "content": [{"type": "text", "text": format!("{turn} {}", "风".repeat(400))}]});
            if who == "assistant" {
                message["id"] = json!(format!("msg_{turn}"));
                message["model"] = json!("claude-opus-5-5");
                message["usage"] = json!({"input_tokens": sent, "output_tokens": 5});
            }
            let row = json!({"type": who, "uuid": uuid, "parentUuid": parent, "isSidechain": false,
                "timestamp": format!("2026-11-30T17:{turn:02}:{:02}.000Z", u8::from(who == "assistant")),
                "sessionId": companion.session(), "message": message});
            writeln!(file, "{row}").unwrap();
            parent = uuid;
        }
        // Half of what 800 such characters are estimated at.
        sent += 440;
    }
    let before = companion.json(&["plan"]);
    assert!(
        before["calibration"]["per_mille"].as_u64().is_some_and(|n| (470..=530).contains(&n)),
        "{before:#}"
    );
    companion.json(&["request", "--confirm", "REBUILD"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    companion.run(&["send", "hello again"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let after = companion.json(&["plan"]);
    assert_ne!(after["source_session_id"], before["source_session_id"]);
    assert!(
        after["calibration"]["pairs"].as_u64().is_some_and(|pairs| pairs >= 7),
        "{:#}",
        after["calibration"]
    );
    assert!(
        after["calibration"]["per_mille"].as_u64().is_some_and(|n| n < 600),
        "{:#}",
        after["calibration"]
    );
}
