//! The real CLI resumes candidates of ours, and the API receives exactly what was carried, in order.
//! The README's table of supported versions comes from these tests.
#![expect(clippy::needless_pass_by_value, reason = "a json!() value reads best in its place")]

use std::path::Path;

use kael_core::ids::SessionId;
use kael_core::rebuild::{self, Evidence, PlanInput, ProofInput, RebuildSettings};
use kael_core::transcript::{ExtractRules, OwnRows};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::invocation::World;
use crate::support::subject::Subject;
use crate::support::transcript;

/// A transcript under construction; each row hangs on the one before it.
struct Source {
    rows: Vec<Value>,
    tip: Value,
}

impl Source {
    fn new() -> Self {
        Self { rows: Vec::new(), tip: Value::Null }
    }

    fn row(&mut self, mut row: Value) -> String {
        let id = Uuid::new_v4().to_string();
        let second = self.rows.len();
        for (key, value) in [
            ("parentUuid", self.tip.clone()),
            ("isSidechain", json!(false)),
            ("uuid", json!(id)),
            ("sessionId", json!("5e551011-0000-4000-8000-000000000001")),
            ("timestamp", json!(format!("2026-01-02T03:{:02}:{:02}.000Z", second / 60, second % 60))),
        ] {
            row.as_object_mut().unwrap().entry(key).or_insert(value);
        }
        self.tip = json!(id);
        self.rows.push(row);
        id
    }

    fn user(&mut self, content: Value, more: Value) -> String {
        let mut row = json!({"type": "user", "message": {"role": "user", "content": content}});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.row(row)
    }

    fn human(&mut self, text: &str) -> String {
        self.user(json!(text), json!({"promptSource": "sdk"}))
    }

    fn model(&mut self, blocks: Value) -> String {
        let message = json!({"id": format!("msg_{}", self.rows.len()), "type": "message", "role": "assistant",
            "model": "claude-opus-5-5", "content": blocks, "stop_reason": "end_turn",
            "usage": {"input_tokens": 150_000, "output_tokens": 9}});
        self.row(json!({"type": "assistant", "message": message}))
    }

    fn says(&mut self, text: &str) -> String {
        self.model(json!([{"type": "text", "text": text}]))
    }

    fn tool(&mut self, name: &str, input: Value, result: Value, more: Value) {
        let id = format!("toolu_{}", self.rows.len());
        self.model(json!([{"type": "tool_use", "id": id, "name": name, "input": input}]));
        let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": result});
        block.as_object_mut().unwrap().extend(more["block"].as_object().cloned().unwrap_or_default());
        let row = json!({"toolUseResult": more.get("result").cloned().unwrap_or_else(|| json!("x"))});
        self.user(json!([block]), row);
    }

    fn write(&self, path: &Path) {
        let lines: String = self.rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, lines).unwrap();
    }
}

/// Rebuilds, proves, resumes, and compares what the API received with what was carried.
fn resumes(
    world: &World,
    source: &Path,
    own: &OwnRows,
    change: impl Fn(&mut RebuildSettings),
) -> Vec<String> {
    let mut settings = RebuildSettings::with_poison(regex::Regex::new(rebuild::DEFAULT_POISON).unwrap());
    settings.min_gain_percent = 0;
    settings.stamp_turns = false;
    change(&mut settings);
    let session = SessionId::generate();
    let plan = rebuild::plan(&PlanInput {
        source,
        source_session: SessionId::generate(),
        new_session: session,
        operation: None,
        settings: &settings,
        rules: &ExtractRules::default(),
        own,
        accept_damage: None,
    })
    .unwrap();
    assert!(!plan.is_hard_blocked(), "{}", plan.blocked_reason());
    let path = world.sandbox.transcript(&session.to_string());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = rebuild::write_candidate(&kael_core::disk::Disk::real(), &plan, source, &path).unwrap();
    let evidence = Evidence::default();
    let proof =
        ProofInput { plan: &plan, source, candidate: &path, candidate_file: &file, evidence: &evidence };
    rebuild::prove(&proof).unwrap_or_else(|failure| panic!("{failure}"));

    let carried: Vec<String> = transcript::outline(&path);
    world.resume(&session.to_string(), &Uuid::new_v4().to_string(), "what now").expect_code(0);
    let view = world.stub.last_main().view();
    let mut expected = carried.clone();
    expected.push("U:what now".to_owned());
    assert_eq!(unmerged(&view, &expected), expected);
    carried
}

/// Takes off the newline that the CLI adds to a text where it merges two user rows into one message.
fn unmerged(view: &[String], expected: &[String]) -> Vec<String> {
    let cut = |(at, text): (usize, &String)| {
        let merged = text.starts_with("U:") && view.get(at + 1).is_some_and(|next| next.starts_with("U:"));
        let same = expected.get(at) == Some(text);
        text.strip_suffix('\n').filter(|_| merged && !same).unwrap_or(text).to_owned()
    };
    view.iter().enumerate().map(cut).collect()
}

fn everything() -> Source {
    let mut source = Source::new();
    source.human("  风筝 是什么颜色？\n\n");
    source.model(json!([{"type": "thinking", "thinking": "secret", "signature": "x"},
                        {"type": "text", "text": "\tRed 🪁 "}]));
    source.user(
        json!([{"type": "text", "text": "one"}, {"type": "text", "text": "שלום שוב"}]),
        json!({"promptSource": "sdk"}),
    );
    source.says("two");
    source.tool("Bash", json!({"command": "ls"}), json!("the output of a tool"), json!({}));
    source.user(
        json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a2l0ZQ=="}}]),
        json!({"promptSource": "sdk"}),
    );
    source.says("a kite");
    source.user(json!("<command-name>/cost</command-name><command-args></command-args>"), json!({}));
    source.user(json!("<local-command-stdout>Total cost</local-command-stdout>"), json!({}));
    source.user(
        json!("<command-message>greet</command-message>\n<command-name>/greet</command-name>\n<command-args>Mina</command-args>"),
        json!({}),
    );
    source.says("hello Mina");
    source.tool(
        "Write",
        json!({"content": "x"}),
        json!("The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nwith a pencil"),
        json!({"block": {"is_error": true}}),
    );
    source.tool(
        "AskUserQuestion",
        json!({}),
        json!("answered"),
        json!({"result": {"answers": {"Colour?": "red like the old one"}}}),
    );
    source.row(json!({"type": "attachment", "attachment":
        {"type": "queued_command", "prompt": "steer words", "commandMode": "prompt"}}));
    source.tool("ExitPlanMode", json!({"plan": "1. fold\n2. 飞"}), json!("ok"), json!({}));
    source.says("done");
    source
}

/// One fixture after the other, in the order of what can go wrong.
fn every_fixture(subject: Subject) {
    let world = World::new(subject);
    let at = |name: &str| world.sandbox.path(&format!("source/{name}.jsonl"));
    let own = OwnRows::default();

    let path = at("everything");
    everything().write(&path);
    let carried = resumes(&world, &path, &own, |_| ());
    assert_eq!(carried.len(), 14, "{carried:#?}");

    // Stamped, and with an unanswered message at the end.
    let mut source = everything();
    source.human("are you there?");
    let path = at("open");
    source.write(&path);
    let carried = resumes(&world, &path, &own, |settings| settings.stamp_turns = true);
    assert_eq!(carried.last().unwrap(), "A:[unanswered before the rebuild]");
    assert!(carried[0].starts_with("U:[发生时间: 2026-"), "{carried:?}");

    // Words that a compaction had replaced, in a file that kept stale usage.
    let mut source = Source::new();
    source.human("before the compaction");
    let kept = source.says("yes");
    source.tip = Value::Null;
    source.row(json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": kept}));
    source.user(json!("This session is being continued"), json!({"isCompactSummary": true}));
    source.human("after");
    source.says("here");
    let path = at("compacted");
    source.write(&path);
    let carried = resumes(&world, &path, &own, |_| ());
    assert_eq!(carried, ["U:before the compaction", "A:yes", "U:after", "A:here"]);

    // Four messages and one answer; rows without uuid order of their own: a retry and a lost branch.
    let mut source = Source::new();
    for text in ["one", "two\n", "three", "四"] {
        source.human(text);
    }
    let answer = source.says("all four");
    source.human("ask");
    source.model(json!([{"type": "text", "text": "half an ans"}]));
    source.tip = json!(answer);
    source.human("ask");
    source.says("a whole answer");
    let path = at("retry");
    source.write(&path);
    let carried = resumes(&world, &path, &own, |_| ());
    assert_eq!(carried.last().unwrap(), "A:a whole answer");
    assert_eq!(carried.len(), 7);
}

#[test]
fn the_newest_cli_receives_exactly_what_was_carried() {
    if let Some(subject) = Subject::newest_real() {
        every_fixture(subject);
    }
}

#[test]
fn an_older_cli_receives_exactly_what_was_carried() {
    if let Some(subject) = Subject::real("2.1.199") {
        every_fixture(subject);
    }
}

#[test]
fn the_stand_in_receives_exactly_what_was_carried() {
    every_fixture(Subject::StandIn);
}

/// Turns that a real CLI wrote itself, with tools, queues and copies of its own, through rebuilds.
fn own_turns(subject: Subject) {
    let world = World::new(subject);
    let session = Uuid::new_v4().to_string();
    world.begin(&session, &Uuid::new_v4().to_string(), "你好, the kite is blue").expect_code(0);
    for words in [
        "look into the shed",
        "and a last question, with a long tail that a copy shortens: ".repeat(12).as_str(),
    ] {
        world.resume(&session, &Uuid::new_v4().to_string(), words).expect_code(0);
    }
    let source = world.sandbox.path("source/own.jsonl");
    std::fs::create_dir_all(source.parent().unwrap()).unwrap();
    std::fs::copy(world.sandbox.transcript(&session), &source).unwrap();
    let carried = resumes(&world, &source, &OwnRows::default(), |_| ());
    assert_eq!(carried.iter().filter(|text| text.starts_with("U:")).count(), 3, "{carried:#?}");
}

#[test]
fn what_the_newest_cli_wrote_is_rebuilt_and_resumed() {
    if let Some(subject) = Subject::newest_real() {
        own_turns(subject);
    }
}

#[test]
fn what_an_older_cli_wrote_is_rebuilt_and_resumed() {
    if let Some(subject) = Subject::real("2.1.199") {
        own_turns(subject);
    }
}
