//! What of a message and of a transcript reaches the API.

use std::path::PathBuf;

use serde_json::json;

use super::{fresh, stays_unsaid, view};
use crate::support::invocation::World;
use crate::support::transcript::{self, Candidate};

pub(super) fn a_minimal_candidate_resumes_block_for_block(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    let path = world.sandbox.transcript(&session);
    Candidate::new(&session)
        .user(&["שלום, the kite is blue"])
        .assistant(&["noted", "and a second block"])
        .user(&["two", "blocks 🪁"])
        .assistant(&["好"])
        .write(&path);
    let candidate = std::fs::read(&path).unwrap();
    world.resume(&session, &uuid, "what now").expect_code(0);
    assert_eq!(
        view(world),
        [
            "U:שלום, the kite is blue",
            "A:noted",
            "A:and a second block",
            "U:two",
            "U:blocks 🪁",
            "A:好",
            "U:what now"
        ]
    );
    let after = std::fs::read(&path).unwrap();
    assert!(after.starts_with(&candidate), "rows of a candidate, with fields of ours, stay as they were");
    let last = transcript::rows(&path)[3]["uuid"].as_str().unwrap().to_owned();
    // 2.1.199 puts attachments between the candidate and the new row.
    assert!(transcript::ancestry(&path, &uuid).contains(&last), "the turn does not hang on the candidate");
}

pub(super) fn a_message_of_two_blocks_stays_two_blocks(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    let outcome =
        world.invoke().args(["--session-id", &session]).send_blocks(&uuid, &["one kite", "two boats"]).run();
    outcome.expect_code(0);
    assert_eq!(view(world), ["U:one kite", "U:two boats"]);
    let row = transcript::row(&world.sandbox.transcript(&session), &uuid).unwrap();
    assert_eq!(
        row["message"]["content"],
        json!([{"type": "text", "text": "one kite"}, {"type": "text", "text": "two boats"}])
    );
    let enqueued = transcript::rows(&world.sandbox.transcript(&session));
    let enqueued = enqueued.iter().find(|r| r["operation"] == "enqueue").unwrap();
    assert!(enqueued["content"].is_null(), "blocks are not copied into the queue row: {enqueued}");
}

pub(super) fn mentions_are_off_by_environment(world: &World) {
    world.sandbox.write("work/note.txt", "the secret word is plum\n");
    let loud = fresh();
    world.begin(&loud, &fresh(), "look @note.txt please").expect_code(0);
    assert_eq!(world.stub.last_main().occurrences("the secret word is plum"), 1);

    let (session, text) =
        (fresh(), "<channel source=\"send\" user=\"Wen\">\nlook @note.txt please\n</channel>");
    let quiet = world.invoke().env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1").args(["--session-id", &session]);
    quiet.send(&fresh(), text).run().expect_code(0);
    assert_eq!(view(world), [format!("U:{text}")]);
    stays_unsaid(world, &["the secret word is plum"]);
    // The same variable takes away the list of skills.
    let announced = |session: &str| {
        let rows = transcript::rows(&world.sandbox.transcript(session));
        rows.iter().any(|row| row["attachment"]["type"] == "skill_listing")
    };
    assert!(announced(&loud) && !announced(&session));
}

pub(super) fn a_command_in_an_envelope_is_words(world: &World) {
    let session = fresh();
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let text = "<channel source=\"send\" user=\"Wen\" message_id=\"k1\">\n/clear\n</channel>";
    let outcome = world.resume(&session, &fresh(), text).expect_code(0);
    assert_eq!(outcome.result()["session_id"], json!(session));
    assert_eq!(world.stub.last_main().last_human(), text);
}

pub(super) fn a_bare_clear_is_a_command(world: &World) {
    let (session, uuid) = (fresh(), fresh());
    world.begin(&session, &fresh(), "seed").expect_code(0);
    let outcome = world.resume(&session, &uuid, "/clear").expect_code(0);
    let result = outcome.result();
    assert_ne!(result["session_id"], json!(session));
    assert_eq!(result["result"], "");
    assert_eq!(world.stub.main_requests().len(), 1);
    assert!(transcript::row(&world.sandbox.transcript(&session), &uuid).is_none());
}

fn branches(world: &World, session: &str) -> (String, PathBuf) {
    let path = world.sandbox.transcript(session);
    Candidate::new(session)
        .user(&["root"])
        .assistant(&["ok"])
        .user(&["left"])
        .assistant(&["left it is"])
        .write(&path);
    let rows = transcript::rows(&path);
    let mut extra = String::new();
    let mut parent = rows[1]["uuid"].clone();
    for row in &rows[2..] {
        let mut row = row.clone();
        row["uuid"] = json!(fresh());
        row["parentUuid"] = parent;
        let right = row["message"].to_string().replace("left", "right");
        row["message"] = serde_json::from_str(&right).unwrap();
        parent = row["uuid"].clone();
        extra.push_str(&format!("{row}\n"));
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(extra.as_bytes());
    std::fs::write(&path, bytes).unwrap();
    (rows[3]["uuid"].as_str().unwrap().to_owned(), path)
}

pub(super) fn the_last_row_of_the_file_decides_the_branch(world: &World) {
    let session = fresh();
    branches(world, &session);
    world.resume(&session, &fresh(), "where am I").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:right", "A:right it is", "U:where am I"]);
}

pub(super) fn last_prompt_decides_the_branch(world: &World) {
    let session = fresh();
    let (left, path) = branches(world, &session);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let row = json!({"type": "last-prompt", "lastPrompt": "left", "leafUuid": left, "sessionId": session});
    text.insert_str(0, &format!("{row}\n"));
    std::fs::write(&path, text).unwrap();
    world.resume(&session, &fresh(), "where am I").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:left", "A:left it is", "U:where am I"]);
}

pub(super) fn a_torn_tail_is_ignored(world: &World) {
    let session = fresh();
    let path = world.sandbox.transcript(&session);
    Candidate::new(&session).user(&["root"]).assistant(&["ok"]).write(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend(b"{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"to\xe7\x81");
    std::fs::write(&path, bytes).unwrap();
    let uuid = fresh();
    world.resume(&session, &uuid, "go on").expect_code(0);
    assert_eq!(view(world), ["U:root", "A:ok", "U:go on"]);
    assert!(transcript::row(&path, &uuid).is_some(), "the next rows begin on a line of their own");
}
