//! The stand-in without any server: what `demo` shows.

use serde_json::{Value, json};

use crate::support::PATIENCE;
use crate::support::process::{Outcome, Running};
use crate::support::sandbox::Sandbox;
use crate::support::transcript::{self, Candidate};

fn say(sandbox: &Sandbox, session: &[&str], text: &str) -> Outcome {
    let mut command = sandbox.runner();
    command
        .args(["stand-in-claude", "-p", "--output-format", "json", "--allowedTools", "Bash"])
        .args(session);
    let mut running = Running::spawn(&mut command);
    running.write(text);
    running.wait(PATIENCE).expect_code(0)
}

fn reply(outcome: &Outcome) -> String {
    outcome.result()["result"].as_str().unwrap().to_owned()
}

#[test]
fn it_remembers_what_is_in_the_context_and_nothing_else() {
    let sandbox = Sandbox::new();
    let session = uuid::Uuid::new_v4().to_string();
    let resume = ["--resume", session.as_str()];
    say(&sandbox, &["--session-id", &session], "我的风筝叫布劳 🪁");
    say(&sandbox, &resume, "the lamp is green");
    sandbox.write("work/notes.txt", "noise\n".repeat(500));
    let looked = say(&sandbox, &resume, "please look at the folder");
    assert!(reply(&looked).contains("nothing alarming"), "{looked:?}");
    assert_eq!(
        reply(&say(&sandbox, &resume, "what was the first thing I said?")),
        "The first thing you said was: \"我的风筝叫布劳 🪁\""
    );
    assert_eq!(reply(&say(&sandbox, &resume, "你还记得风筝吗？")), "记得。你说过：「我的风筝叫布劳 🪁」");
    assert_eq!(
        reply(&say(&sandbox, &resume, "how many things have I told you?")),
        "Before this one, you have told me 5 things."
    );

    let clean = uuid::Uuid::new_v4().to_string();
    Candidate::new(&clean)
        .user(&["the lamp is green"])
        .assistant(&["Noted."])
        .write(&sandbox.transcript(&clean));
    let asked = say(&sandbox, &["--resume", &clean], "what was the first thing I said?");
    assert_eq!(
        reply(&asked),
        "The first thing you said was: \"the lamp is green\"",
        "a forgotten sentence shows"
    );
}

/// A dirty session and a rebuilt one have to differ here as they do in life (facts 3, 9).
#[test]
fn its_transcripts_are_as_noisy_as_the_real_ones() {
    let sandbox = Sandbox::new();
    let session = uuid::Uuid::new_v4().to_string();
    let tokens = |outcome: &Outcome| outcome.result()["usage"]["input_tokens"].as_u64().unwrap();
    let first = say(&sandbox, &["--session-id", &session], "the lamp is green");
    let path = sandbox.transcript(&session);
    let size = std::fs::metadata(&path).unwrap().len();
    assert!((120_000..200_000).contains(&size), "a first turn of {size} bytes");
    assert!((9_000..16_000).contains(&tokens(&first)), "{} tokens on the first turn", tokens(&first));
    let second = say(&sandbox, &["--resume", &session], "and warm");
    let grown = std::fs::metadata(&path).unwrap().len() - size;
    assert!((1_000..6_000).contains(&grown), "a plain turn of {grown} bytes");
    sandbox.write("work/big.txt", "tool output\n".repeat(2000));
    say(&sandbox, &["--resume", &session], "TOOL: cat big.txt");
    let after = say(&sandbox, &["--resume", &session], "and bright");
    assert!(tokens(&after) > tokens(&second) + 4_000, "the output of a tool weighs in the context");

    let types: Vec<Value> = transcript::rows(&path).iter().map(|row| row["type"].clone()).collect();
    for kind in ["queue-operation", "attachment", "api-request-blob", "last-prompt", "cost-state"] {
        assert!(types.contains(&json!(kind)), "no {kind} row");
    }
}
