//! The stand-in without any server: what `demo` shows.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::invocation::World;
use crate::support::process::{Outcome, Running};
use crate::support::sandbox::Sandbox;
use crate::support::subject::Subject;
use crate::support::transcript::{self, Candidate};
use crate::support::{PATIENCE, wait_until};

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

/// What a supervisor may meet, made to happen.
#[test]
fn it_misbehaves_when_it_is_told_to() {
    let run = |quirk: &str| {
        let sandbox = Sandbox::new();
        let session = uuid::Uuid::new_v4().to_string();
        let mut command = sandbox.runner();
        command
            .args(["stand-in-claude", "-p", "--output-format", "json", "--session-id", &session, "hello"])
            .env("KAEL_STANDIN_QUIRKS", quirk);
        let mut running = Running::spawn(&mut command);
        running.close();
        if quirk == "hang-after-result,ignore-sigterm" {
            running.wait_line("result", PATIENCE, |line| line.contains("\"result\""));
            running.signal(Signal::TERM);
            std::thread::sleep(Duration::from_millis(200));
            assert!(!sandbox.survivors().is_empty(), "it took notice of the SIGTERM");
            running.signal(Signal::KILL);
        }
        let outcome = running.wait(PATIENCE);
        let written = sandbox.transcript(&session).exists();
        if quirk == "leave-child" {
            wait_until("the child that was left", || sandbox.survivors().len() == 1);
        }
        let left = sandbox.survivors().len();
        (outcome, session, written, left)
    };
    let (fine, session, written, left) = run("");
    assert_eq!(
        (fine.code(), fine.result()["session_id"].clone(), written, left),
        (0, json!(session), true, 0)
    );
    assert!(run("no-result").0.lines.is_empty());
    let half = run("half-result").0;
    assert!(half.lines[0].starts_with('{') && half.json().is_empty(), "{half:?}");
    assert!(!run("no-rows").2);
    let (other, session, ..) = run("other-session");
    assert_ne!(other.result()["session_id"], json!(session));
    assert_eq!(run("exit-three").0.code(), 3);
    assert_eq!(run("leave-child").3, 1);
    assert_eq!(run("hang-after-result,ignore-sigterm").0.code(), -9);
    assert_eq!(run("no-such-quirk").0.code(), 1);
}

#[test]
fn a_world_has_the_subject_on_the_path_of_the_product() {
    let world = World::new(Subject::StandIn);
    let config = std::fs::read_to_string(world.write_config("[runner]\nrebuild = \"auto\"")).unwrap();
    assert!(
        config.contains("resume_pointer_path = \"/") && config.ends_with("rebuild = \"auto\"\n"),
        "{config}"
    );
    let runner = world.runner();
    let path = runner.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap();
    let first = std::env::split_paths(path).next().unwrap();
    assert_eq!(first.join("claude"), world.subject.program(&world.sandbox));
}
