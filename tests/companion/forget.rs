//! Words that a human takes back for good: out of the conversation, its copies, and everything kept about it.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

const SECRET: &str = "the code of the door is magenta 七 \"four\"";
/// What of it every spelling has.
const TRACE: &str = "the door is magenta";

fn told(subject: Subject) -> Companion {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    let stub = &companion.world.stub;
    stub.on_text("magenta", Reply::text(&format!("I see: {SECRET}. I shall remember it.")));
    stub.on_text("kite", Reply::text("A red one."));
    let call = Reply::bash(&format!("echo '{SECRET}'; seq 1 4000"));
    stub.on_tool_turn("shed", call, Reply::text("It holds ropes."));
    say(&companion, "my kite is a red one");
    say(&companion, &format!("listen: {SECRET}, and do not tell"));
    say(&companion, "look into the shed");
    companion
}

fn say(companion: &Companion, words: &str) {
    companion.run(&["send", words]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
}

fn rebuild(companion: &Companion) -> Value {
    companion.json(&["request", "--confirm", "REBUILD"]);
    let answer = companion.json(&["confirm", "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    answer["operation"].clone()
}

fn forget(companion: &Companion, words: &str) -> Outcome {
    let mut running = Running::spawn(&mut companion.command(&["forget", "-", "--yes", "--json"]));
    running.write(words);
    running.wait(PATIENCE)
}

/// Files below a folder whose bytes hold the text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file()
            && fs::read(&path).unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

fn words_are_gone_and_the_companion_goes_on(subject: Subject) {
    let companion = told(subject);
    let first = rebuild(&companion);
    let old = first["source_session_id"].as_str().unwrap().to_owned();
    say(&companion, &format!("once more: {SECRET}"));
    say(&companion, "look into the shed");
    let root = companion.world.sandbox.path("");
    assert!(holding(&root, TRACE).len() >= 6, "{:#?}", holding(&root, TRACE));
    let lengths: Vec<u64> = [old.as_str(), &companion.session()]
        .map(|session| fs::metadata(companion.world.sandbox.transcript(session)).unwrap().len())
        .to_vec();

    let done = forget(&companion, SECRET).expect_code(0);
    let answer: Value = serde_json::from_str(&done.lines.join("")).unwrap();
    assert!(answer["conversation_lines"].as_u64().unwrap() >= 4, "{answer:#}");
    assert_eq!(answer["elsewhere"], json!([]));
    assert_eq!(holding(&root, TRACE), Vec::<String>::new());
    let after: Vec<u64> = [old.as_str(), &companion.session()]
        .map(|session| fs::metadata(companion.world.sandbox.transcript(session)).unwrap().len())
        .to_vec();
    assert_eq!(lengths, after, "every row stays where it was");

    // That something was forgotten is on record, and not what.
    let log = fs::read_to_string(companion.world.sandbox.state().join("forgotten.jsonl")).unwrap();
    assert!(log.contains("\"event\":\"begun\"") && log.contains("\"event\":\"done\""), "{log}");
    assert!(log.contains("old_sha256") && log.contains("new_sha256"));

    say(&companion, "what about the kite?");
    let asked = companion.world.stub.last_main();
    assert_eq!((asked.occurrences(TRACE), asked.occurrences("my kite is a red one")), (0, 1));
    assert!(asked.occurrences("listen: [forgotten], and do not tell") == 1, "{:#?}", asked.view());
    // The proof holds what is carried against inbox, outbox and the CLI's own copies.
    let plan = companion.json(&["plan"]);
    assert_eq!(plan["blocked_reason"], "", "{plan:#}");
    let second = rebuild(&companion);
    say(&companion, "and the kite now?");
    let asked = companion.world.stub.last_main();
    assert_eq!((asked.occurrences(TRACE), asked.occurrences("my kite is a red one")), (0, 1));
    assert_eq!(asked.occurrences("[forgotten]"), 4, "{:#?}", asked.view());
    // What the operations say of their files holds: the older one's manifest, the newer one's way back.
    let (frozen, live) = companion.frozen_and_live(&second, second["source_session_id"].as_str().unwrap());
    assert!(frozen == live);
    let first = companion.json(&["status", "--operation", first["operation_id"].as_str().unwrap()]);
    let digest = |path: &str| {
        use sha2::Digest;
        let bytes = fs::read(first["operation"][path].as_str().unwrap()).unwrap();
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(first["operation"]["source_sha256"], digest("backup_path"));
    assert_eq!(first["operation"]["candidate_sha256"], digest("candidate_path"));
    assert_eq!(
        first["operation"]["verification"]["proof"]["candidate_sha256"],
        first["operation"]["candidate_sha256"]
    );
    for entry in first["operation"]["manifest"].as_array().unwrap() {
        use sha2::Digest;
        let listen = format!("listen: {SECRET}, and do not tell");
        let told = sha2::Sha256::digest(listen.as_bytes());
        let told: String = told.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_ne!(entry["source_sha256"], told, "a digest of the words would tell who guesses them");
    }
    // The kept copies are those of the rewritten transcripts: nothing is in trouble, and they can be put back.
    let session = companion.session();
    fs::remove_file(companion.world.sandbox.transcript(&session)).unwrap();
    companion.json(&["restore", "--kept"]);
    assert_eq!(holding(&root, TRACE), Vec::<String>::new());
}

#[test]
fn forgotten_words_are_nowhere_on_the_stand_in() {
    words_are_gone_and_the_companion_goes_on(Subject::StandIn);
}

#[test]
fn forgotten_words_are_nowhere_on_the_newest_cli() {
    if let Some(subject) = Subject::real("2.1.332") {
        words_are_gone_and_the_companion_goes_on(subject);
    }
}

#[test]
fn forgotten_words_are_nowhere_on_the_oldest_cli() {
    if let Some(subject) = Subject::real("2.1.199") {
        words_are_gone_and_the_companion_goes_on(subject);
    }
}

/// All that was said in some lines, short words among them, which are not looked for anywhere else.
fn a_span_goes(subject: Subject) {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    let stub = &companion.world.stub;
    stub.on_text("is it", Reply::text("yes"));
    stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("yes"));
    for words in
        ["is it red?", "is it blue, my kite that hangs in the attic?", "is it red?", "look into the shed"]
    {
        say(&companion, words);
    }
    let shown = companion.run(&["plan", "--show", "carried", "--json"]).expect_code(0).json();
    let at = shown.iter().position(|item| item["text"].as_str().unwrap().contains("attic")).unwrap();
    let line = |at: usize| shown[at]["line"].as_u64().unwrap();
    // The question and its answer.
    let lines = format!("{}-{}", line(at), line(at + 1));
    companion.run(&["forget", "--lines", &lines, "--yes"]).expect_code(0);
    let root = companion.world.sandbox.path("");
    assert_eq!(holding(&root, "hangs in the attic"), Vec::<String>::new());
    say(&companion, "is it red, after all?");
    let asked = companion.world.stub.last_main();
    assert_eq!(asked.occurrences("hangs in the attic"), 0);
    assert_eq!(
        asked.texts(kael_runner::standin::context::Role::Assistant),
        ["yes", "…", "yes", "yes"],
        "{:#?}",
        asked.view()
    );
    rebuild(&companion);
    say(&companion, "is it red still?");
    assert_eq!(companion.world.stub.last_main().occurrences("hangs in the attic"), 0);
}

#[test]
fn a_span_goes_on_the_stand_in() {
    a_span_goes(Subject::StandIn);
}

#[test]
fn a_span_goes_on_the_newest_cli() {
    if let Some(subject) = Subject::newest_real() {
        a_span_goes(subject);
    }
}

#[test]
fn it_is_refused_where_it_could_do_harm() {
    let companion = told(Subject::StandIn);
    let before = fs::read(companion.world.sandbox.transcript(&companion.session())).unwrap();
    assert!(companion.refused(&["forget", "is", "--yes"], 2).contains("too short"));
    assert!(companion.refused(&["forget", "--yes"], 2).contains("required"));
    assert!(companion.refused(&["forget", SECRET], 2).contains("say --yes"), "no terminal to ask at");
    assert!(companion.refused(&["forget", "nobody ever said so", "--yes"], 3).contains("stand nowhere"));
    assert!(
        companion.refused(&["forget", "--lines", "1-1", "--yes"], 3).contains("nothing is said in the lines")
    );
    assert!(companion.refused(&["forget", "--lines", "9-3", "--yes"], 2).contains("expected a line"));
    let inside = Running::spawn(
        companion
            .command(&["forget", SECRET, "--yes"])
            .env("KAEL_INVOCATION", uuid::Uuid::new_v4().to_string()),
    );
    let refused = inside.wait(PATIENCE).expect_code(3).stderr;
    assert!(refused.contains("called from inside a turn"), "{refused}");

    companion.json(&["request"]);
    assert!(companion.refused(&["forget", SECRET, "--yes"], 6).contains("bring it to its end first"));
    companion.run(&["cancel", "--confirm", "CANCEL"]).expect_code(0);
    let gate = Gate::new();
    companion.world.stub.on_text("slow one", Reply::text("At last.").gate(&gate));
    let runner = companion.start();
    assert!(companion.refused(&["forget", SECRET, "--yes"], 6).contains("stop that one first"));
    companion.run(&["send", "a slow one"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    runner.signal(Signal::KILL);
    runner.wait(PATIENCE);
    let sandbox = &companion.world.sandbox;
    for pid in sandbox.survivors().into_iter().filter_map(rustix::process::Pid::from_raw) {
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
    wait_until("nobody is left", || sandbox.survivors().is_empty());
    assert!(companion.refused(&["forget", SECRET, "--yes"], 6).contains("is open"));
    companion.world.stub.clear_rules();
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let after = fs::read(sandbox.transcript(&companion.session())).unwrap();
    assert!(after.starts_with(&before), "nothing of all that changed a byte");
}

/// Killed at later and later moments; each time the same command does what is left.
#[test]
fn interrupted_it_is_finished_by_the_same_command() {
    for delay in [0, 5, 10, 15, 20, 30, 40, 60, 90] {
        let companion = told(Subject::StandIn);
        rebuild(&companion);
        let root = companion.world.sandbox.path("");
        let running = Running::spawn(&mut companion.command(&["forget", SECRET, "--yes"]));
        std::thread::sleep(std::time::Duration::from_millis(delay));
        running.signal(Signal::KILL);
        let first = running.wait(PATIENCE).code();
        let second = companion.run(&["forget", SECRET, "--yes"]);
        let expected = if first == 0 { 3 } else { 0 };
        assert!([expected, 0].contains(&second.code()), "{first}: {second:?}");
        assert_eq!(holding(&root, TRACE), Vec::<String>::new(), "killed after {delay} ms");
        say(&companion, "look into the shed");
        companion.world.stub.clear_rules();
        rebuild(&companion);
        say(&companion, "what about the kite?");
        assert_eq!(companion.world.stub.last_main().occurrences(TRACE), 0);
    }
}
