//! The demo, and whether it would notice that one of its claims is false.

use std::fs;
use std::path::Path;
use std::process::Command;

use kael_runner::demo::claims::{self, Promise};
use kael_runner::demo::record::Record;
use kael_runner::demo::stage::Stage;
use kael_runner::demo::{Language, verdict};
use serde_json::Value;

use crate::support::PATIENCE;
use crate::support::process::{Outcome, Running};
use crate::support::sandbox::Sandbox;

fn demo(sandbox: &Sandbox, locale: &str, arguments: &[&str], typed: &str) -> Outcome {
    let mut command = sandbox.runner();
    command.args(["demo", "--fast"]).args(arguments).env("LC_ALL", locale);
    let mut running = Running::spawn(&mut command);
    running.write(typed);
    running.wait(PATIENCE)
}

/// Numbers, ids and paths differ from run to run; everything else is the demo's shape.
fn shape(sandbox: &Sandbox, outcome: &Outcome) -> String {
    let text = outcome.lines.join("\n").replace(&sandbox.path("").display().to_string(), "<root>/");
    let patterns = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
        (r"\b[0-9a-f]{8}…", "<id>…"),
        (r"kill -9 \d+ \d+", "kill -9 <runner> <claude>"),
        (r"\d+(\.\d)? (B|KiB|MiB)\b", "<size>"),
        (r"\d{4,} → \d{4,}", "<n> → <n>"),
        (r"\d{4,} ?(bytes|tokens|个字节|字节|个 token)", "<n> $1"),
        (r"(from|about|从|约) \d{4,}", "$1 <n>"),
        // How many checks there are is the proof's own business, and tested there.
        (r"(?m)^  (proof|证明)( +)\S.*$", "  $1$2<checks>"),
        (r"\d+ (checks|项检查)", "<n> $1"),
        (r"\d+ %", "<n> %"),
    ];
    patterns.iter().fold(text, |text, (pattern, mask)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *mask).into_owned()
    })
}

#[test]
fn it_tells_the_whole_loop_in_english() {
    let sandbox = Sandbox::new();
    let outcome = demo(&sandbox, "C.UTF-8", &[], "").expect_code(0);
    assert!(!outcome.lines.concat().contains('\u{1b}'), "no colours where no terminal is");
    insta::assert_snapshot!("english", shape(&sandbox, &outcome));
    let proof = outcome.lines.iter().find(|line| line.starts_with("  proof ")).unwrap();
    assert!(proof.contains("texts compared byte for byte:\u{a0}8;"), "{proof}");
    assert!(left_behind(&sandbox).is_empty(), "{:?}", left_behind(&sandbox));
    assert!(sandbox.survivors().is_empty(), "a process outlives the demo");
}

#[test]
fn it_tells_the_whole_loop_in_chinese() {
    let sandbox = Sandbox::new();
    let outcome = demo(&sandbox, "zh_CN.UTF-8", &[], "").expect_code(0);
    insta::assert_snapshot!("chinese", shape(&sandbox, &outcome));
    let proof = outcome.lines.iter().find(|line| line.starts_with("  证明 ")).unwrap();
    let names = proof.replace("CLI", "");
    assert!(
        !names.contains(|letter: char| letter.is_ascii_alphabetic()),
        "a check has no Chinese name: {proof}"
    );
}

#[test]
fn a_reader_can_go_on_typing_afterwards() {
    let sandbox = Sandbox::new();
    let typed = "do you remember my daughter?\n\n/quit\n";
    let outcome = demo(&sandbox, "C.UTF-8", &["--chat"], typed).expect_code(0);
    let last = outcome.lines.join("\n");
    assert!(last.contains("companion  Yes. You said: \"My daughter wants"), "{last}");
    // The end of the input is as good as a word.
    demo(&sandbox, "C.UTF-8", &["--chat"], "").expect_code(0);
}

#[test]
fn files_of_another_demo_are_not_mixed_with_this_one() {
    let sandbox = Sandbox::new();
    sandbox.write("kept/old.txt", "of before");
    let kept = sandbox.path("kept");
    let refused = demo(&sandbox, "C.UTF-8", &["--keep", kept.to_str().unwrap()], "").expect_code(3);
    assert!(refused.stderr.contains("is not empty: name a new folder"), "{}", refused.stderr);
    assert_eq!(fs::read_dir(kept).unwrap().count(), 1);
}

fn left_behind(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("kael-demo-")).collect()
}

/// A copy of the demo's folder that something is done to.
struct Damaged<'a> {
    stage: Stage,
    record: Record,
    original: &'a Record,
}

impl Damaged<'_> {
    fn operation(&self, id: &str) -> Value {
        let path = self.stage.state().join(format!("operations/{id}.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn change_operation(&self, id: &str, change: impl FnOnce(&mut Value)) {
        let mut operation = self.operation(id);
        change(&mut operation);
        let path = self.stage.state().join(format!("operations/{id}.json"));
        fs::write(path, operation.to_string()).unwrap();
    }

    fn rebuild(&self) -> Value {
        self.operation(&self.original.asked.operation)
    }

    fn change(&self, path: &Path, change: impl FnOnce(Vec<String>) -> Vec<String>) {
        let text = fs::read_to_string(path).unwrap();
        let lines = change(text.lines().map(str::to_owned).collect());
        fs::write(path, lines.join("\n") + "\n").unwrap();
    }

    fn live(&self) -> std::path::PathBuf {
        self.stage.transcript(&self.stage.points_to().unwrap())
    }

    fn old(&self) -> std::path::PathBuf {
        self.stage.transcript(self.rebuild()["source_session_id"].as_str().unwrap())
    }

    fn frozen(&self) -> std::path::PathBuf {
        let operation = self.rebuild();
        let name = format!("{}.jsonl", operation["source_session_id"].as_str().unwrap());
        self.stage.state().join("artifacts").join(&self.original.asked.operation).join(name)
    }
}

type Damage = fn(&mut Damaged<'_>);

/// What is done to the files (or to what was seen), and the promise that must fall with it.
const DAMAGES: &[(&str, Promise, Damage)] = &[
    ("a letter of a carried saying", Promise::Lossless, |it| {
        it.change(&it.live(), |mut lines| {
            lines[0] = lines[0].replacen("red kite", "rad kite", 1);
            lines
        });
    }),
    ("two carried sayings change places", Promise::Lossless, |it| {
        it.change(&it.live(), |mut lines| {
            lines.swap(0, 2);
            lines
        });
    }),
    ("a byte that nobody accounts for", Promise::Lossless, |it| {
        let id = it.original.asked.operation.clone();
        it.change_operation(&id, |op| op["dirty_at_prepare"]["damage_bytes"] = 1.into());
    }),
    ("the first sentence is not remembered", Promise::Lossless, |it| {
        it.record.remembered = "The first thing you said was: \"hello\"".to_owned();
    }),
    ("a carried letter, seen by its digest", Promise::Provable, |it| {
        it.change(&it.live(), |mut lines| {
            lines[1] = lines[1].replacen("Noted", "noted", 1);
            lines
        });
    }),
    ("the frozen copy is cut", Promise::Provable, |it| {
        it.change(&it.frozen(), |mut lines| {
            lines.pop();
            lines
        });
    }),
    ("a proof without checks", Promise::Provable, |it| {
        let id = it.original.asked.operation.clone();
        it.change_operation(&id, |op| op["verification"]["proof"]["checks"] = serde_json::json!([]));
    }),
    ("a row more in the old session", Promise::FailSafe, |it| {
        it.change(&it.old(), |mut lines| {
            lines.push("{\"type\":\"user\"}".to_owned());
            lines
        });
    }),
    ("the refused candidate stands in the project folder", Promise::FailSafe, |it| {
        let refused = it.operation(&it.original.foreign.operation);
        fs::write(it.stage.transcript(refused["new_session_id"].as_str().unwrap()), "x").unwrap();
    }),
    ("a message twice in the live session", Promise::ExactlyOnce, |it| {
        let words = it.original.killed.words.clone();
        it.change(&it.live(), |mut lines| {
            let at =
                lines.iter().position(|line| line.contains(&words) && line.contains("\"user\"")).unwrap();
            lines.insert(at, lines[at].clone());
            lines
        });
    }),
    ("the last answer is missing", Promise::ExactlyOnce, |it| {
        let answer = it.original.spoken.last().unwrap().words.clone();
        it.change(&it.live(), |mut lines| {
            lines.retain(|line| !line.contains(&answer));
            lines
        });
    }),
    ("the companion counts one more", Promise::ExactlyOnce, |it| {
        it.record.spoken.last_mut().unwrap().words = "you have told me 8 things.".to_owned();
    }),
    ("the kill came after the answer", Promise::ExactlyOnce, |it| it.record.killed.answered_then = true),
    ("a message still waits in the inbox", Promise::ExactlyOnce, |it| {
        let mut queue = kael_runner::queue::Queue::open(&it.stage.state()).unwrap();
        let new = kael_runner::queue::NewMessage {
            front: "send".into(),
            key: "one-more".into(),
            sender: "user".into(),
            words: "one more".into(),
        };
        queue.accept(&new, kael_core::clock::Timestamp::from_millis(0)).unwrap();
    }),
    ("the stranger's write did not stay", Promise::CompareAndSwap, |it| {
        it.record.foreign.pointer_after = it.original.foreign.mended.clone();
    }),
    ("no conflict is on record", Promise::CompareAndSwap, |it| {
        let id = it.original.foreign.operation.clone();
        it.change_operation(&id, |op| op["session_conflict"] = false.into());
    }),
    ("the pointer's history does not know the stranger", Promise::CompareAndSwap, |it| {
        let foreign = it.original.foreign.session.clone();
        it.change(&it.stage.state().join("resume_session.history"), |mut lines| {
            lines.retain(|line| !line.contains(&foreign));
            lines
        });
    }),
    ("the yes is gone", Promise::Consent, |it| {
        let id = it.original.asked.operation.clone();
        it.change_operation(&id, |op| op["consent"] = Value::Null);
    }),
    ("the yes was to another plan", Promise::Consent, |it| {
        let id = it.original.asked.operation.clone();
        it.change_operation(&id, |op| op["consent"]["plan_digest"] = "0".repeat(64).into());
    }),
    ("the pointer had moved before the yes", Promise::Consent, |it| {
        it.record.asked.session_then = it.original.foreign.session.clone();
    }),
    ("the unknown row did not block", Promise::Drift, |it| it.record.drift.exit_code = 0),
    ("the unknown row was not named", Promise::Drift, |it| it.record.drift.reason = "something".to_owned()),
];

#[test]
fn every_claim_fails_when_it_is_made_false() {
    let sandbox = Sandbox::new();
    let kept = sandbox.path("kept");
    demo(&sandbox, "C.UTF-8", &["--keep", kept.to_str().unwrap()], "").expect_code(0);
    let original = Record::read(&kept).unwrap();
    let whole = claims::check(&Stage { root: kept.clone() }, &original, Language::English);
    assert_eq!(whole.len(), 7, "one for each promise");
    verdict(&whole).unwrap();
    assert!(verdict(&[]).is_err(), "nothing claimed is nothing shown");

    for (number, (what, promise, damage)) in DAMAGES.iter().enumerate() {
        let root = sandbox.path(&format!("damaged-{number}"));
        let copied = Command::new("cp").arg("-a").arg(&kept).arg(&root).status().unwrap();
        assert!(copied.success());
        let mut damaged =
            Damaged { stage: Stage { root: root.clone() }, record: original.clone(), original: &original };
        damage(&mut damaged);
        let claims = claims::check(&damaged.stage, &damaged.record, Language::English);
        let fallen = claims.iter().find(|claim| claim.promise == *promise).unwrap();
        assert!(fallen.result.is_err(), "{what}: {fallen:?}");
        let error = verdict(&claims).unwrap_err();
        assert_eq!(error.kind.exit_code(), 1);
        assert!(error.message.contains(&promise.name(Language::English)), "{what}: {}", error.message);
        fs::remove_dir_all(root).unwrap();
    }
    for promise in whole.iter().map(|claim| claim.promise) {
        assert!(DAMAGES.iter().any(|(_, broken, _)| *broken == promise), "{promise:?} is never made false");
    }
}
