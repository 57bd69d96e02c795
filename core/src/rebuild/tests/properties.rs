//! Properties over generated transcripts whose generator knows what was said (DESIGN 6).

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// One step of a conversation, or noise.
#[derive(Debug, Clone)]
enum Step {
    Human(String),
    Blocks(Vec<String>),
    Says(Vec<String>),
    Thinks(String),
    Tool(String),
    Meta(String),
    Side(String),
    Attached(String),
    Synthetic,
    ApiError,
    Interrupt,
    Queued(String),
    Absorbed(String),
    Refused(String),
    Answered(String),
    Command(String),
    Replied(String),
    Channel(String),
    Notified,
    Compacted,
    Blank,
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,20}[a-z]",
        "[风筝飞山水]{1,8}",
        "[\u{5d0}-\u{5ea}\u{627}-\u{64a} ]{1,12}[\u{5d0}]",
        any::<String>().prop_map(|text| format!("{text}🪁")),
        Just("<system-reminder>typed</system-reminder>".to_owned()),
        Just("  \u{0}\u{c}padded \n".to_owned()),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => words().prop_map(Step::Human),
        1 => prop::collection::vec(words(), 1..4).prop_map(Step::Blocks),
        4 => prop::collection::vec(words(), 1..3).prop_map(Step::Says),
        1 => words().prop_map(Step::Thinks),
        2 => words().prop_map(Step::Tool),
        1 => words().prop_map(Step::Meta),
        1 => words().prop_map(Step::Side),
        1 => words().prop_map(Step::Attached),
        1 => Just(Step::Synthetic),
        1 => Just(Step::ApiError),
        1 => Just(Step::Interrupt),
        1 => words().prop_map(Step::Queued),
        1 => words().prop_map(Step::Absorbed),
        1 => words().prop_map(Step::Refused),
        1 => words().prop_map(Step::Answered),
        1 => words().prop_map(Step::Command),
        1 => words().prop_map(Step::Replied),
        1 => words().prop_map(Step::Channel),
        1 => Just(Step::Notified),
        1 => Just(Step::Compacted),
        1 => Just(Step::Blank),
    ]
}

fn play(script: &mut Script, steps: &[Step], said: &mut Vec<String>) {
    for step in steps {
        match step {
            Step::Human(text) => {
                script.queue("enqueue", Some(text)).queue("dequeue", None);
                script.human(text);
                said.push(format!("H={text}"));
            }
            Step::Blocks(texts) => {
                let blocks: Vec<_> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
                script.user(json!(blocks), json!({"origin": {"kind": "human"}}));
                // Beside other blocks an editor's block is the runtime's even so.
                let kept: Vec<_> = texts
                    .iter()
                    .filter(|t| texts.len() == 1 || !t.starts_with("<system-reminder>"))
                    .cloned()
                    .collect();
                if !kept.is_empty() {
                    said.push(format!("H:{}", kept.join("|")));
                }
            }
            Step::Says(texts) => {
                let blocks: Vec<_> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
                script.next_message().model(json!(blocks), json!("end_turn"), json!({}));
                said.push(format!("A:{}", texts.join("|")));
            }
            Step::Thinks(text) => {
                script.model(
                    json!([{"type": "thinking", "thinking": text, "signature": "x"}]),
                    json!(null),
                    json!({}),
                );
            }
            Step::Tool(text) => {
                script.calls("Bash", json!({"command": text}));
                script.result("Bash", json!(text), false);
            }
            Step::Meta(text) => {
                script.user(json!(format!("meta {text}")), json!({"isMeta": true}));
            }
            Step::Side(text) => {
                script.user(json!(text), json!({"isSidechain": true}));
            }
            Step::Attached(text) => {
                script.attachment(json!({"type": "file", "filename": text, "content": text}));
            }
            Step::Synthetic => {
                script.synthetic("No response requested.");
            }
            Step::ApiError => {
                script.api_error(500);
            }
            Step::Interrupt => {
                script.interrupt();
            }
            Step::Queued(text) => {
                script.attachment(json!({"type": "queued_command", "prompt": text, "commandMode": "prompt"}));
                // A notification by its words is one in any mode.
                said.push(format!("H={text}"));
            }
            Step::Absorbed(text) => {
                // No two are equal: a row of the same text elsewhere would be taken for this one's.
                let text = format!("absorbed {}: {text}", script.bytes().len());
                script.queue("enqueue", Some(&text));
                script.calls("Bash", json!({}));
                script.queue("remove", None);
                script.result("Bash", json!("x"), false);
                said.push(format!("H={text}"));
            }
            Step::Refused(text) => {
                script.calls("Write", json!({"content": text}));
                let result = format!(
                    "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you \
                     how to proceed, the user said:\n{text}"
                );
                script.result("Write", json!(result), true);
                said.push(format!("H:{text}"));
            }
            Step::Answered(text) => {
                script.calls("AskUserQuestion", json!({}));
                script.user(
                    json!([{"type": "tool_result", "tool_use_id": "toolu_AskUserQuestion", "content": "answered"}]),
                    json!({"toolUseResult": {"questions": [], "answers": {"Q?": text}}}),
                );
                said.push(format!("H:{text}"));
            }
            Step::Command(text) => {
                let tags = "<command-message>greet</command-message>\n<command-name>/greet</command-name>\n";
                script.user(json!(format!("{tags}<command-args>{text}</command-args>")), json!({}));
                script.user(
                    json!([{"type": "text", "text": format!("ARGUMENTS: {text}")}]),
                    json!({"isMeta": true}),
                );
                said.push(format!("H=/greet {text}"));
            }
            Step::Replied(text) => {
                script.calls("mcp__a-companion__reply", json!({"text": text, "chat_id": "1"}));
                script.result("mcp__a-companion__reply", json!("ok"), false);
                said.push(format!("A:{text}"));
            }
            Step::Channel(text) => {
                let text = format!("<channel source=\"telegram\" chat_id=\"1\">\n{text}\n</channel>");
                script.user(json!(text), json!({"isMeta": true}));
                said.push(format!("H={text}"));
            }
            Step::Notified => {
                let text = "<task-notification>\n<task-id>a</task-id>\n</task-notification>\nFull transcript available at: /tmp/a";
                script.queue("enqueue", Some(text)).queue("dequeue", None);
                script.user(json!(text), json!({}));
            }
            Step::Compacted => {
                let before = script.tip().filter(|_| !said.is_empty());
                if let Some(before) = before {
                    script.root().row(json!({"type": "system", "subtype": "compact_boundary",
                        "logicalParentUuid": before}));
                    script.user(json!("This session is being continued"), json!({"isCompactSummary": true}));
                }
            }
            Step::Blank => {
                script.raw(b"\n");
            }
        }
    }
}

/// Steps that leave the conversation answered.
fn complete(steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    steps.push(Step::Human("the last question".to_owned()));
    steps.push(Step::Says(vec!["the last answer".to_owned()]));
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_word_is_carried_and_proved(steps in prop::collection::vec(step(), 0..24)) {
        let steps = complete(&steps);
        let mut script = Script::new();
        let mut expected = Vec::new();
        play(&mut script, &steps, &mut expected);
        let mut ask = Ask::new();
        ask.settings.poison = regex::Regex::new("never").unwrap();
        let rebuilt = ask.rebuild(&script.file());
        prop_assert!(!rebuilt.plan.is_hard_blocked(), "{}", rebuilt.plan.blocked_reason());
        prop_assert_eq!(rebuilt.said(), expected);
        prop_assert!(rebuilt.proof.is_ok(), "{}", rebuilt.proof.err().map(|e| e.to_string()).unwrap_or_default());
    }

    #[test]
    fn a_candidate_rebuilt_gives_the_same_conversation(
        steps in prop::collection::vec(step(), 1..16),
        stamp in any::<bool>(),
        open in any::<bool>(),
    ) {
        let mut script = Script::new();
        let steps = if open { [&complete(&steps)[..], &[Step::Human("still waiting".to_owned())]].concat() } else { complete(&steps) };
        play(&mut script, &steps, &mut Vec::new());
        let mut ask = Ask::new();
        ask.settings.stamp_turns = stamp;
        let first = ask.rebuild(&script.file());
        ask.new_session = "ca0d1da7-0000-4000-8000-000000000003".parse().unwrap();
        let again = ask.rebuild(&Fixture::of(&first.bytes));
        again.proved();
        prop_assert_eq!(again.said(), first.said());
        let identities = |r: &Rebuilt| r.file.manifest.iter().map(|m| (m.source_uuid.clone(), m.injected_sha256.clone(), m.source_timestamp.clone())).collect::<Vec<_>>();
        prop_assert_eq!(identities(&again), identities(&first));
    }

    #[test]
    fn complete_turns_keep_their_items_when_more_are_added(
        steps in prop::collection::vec(step(), 0..12),
        more in prop::collection::vec(step(), 0..12),
    ) {
        let mut script = Script::new();
        play(&mut script, &complete(&steps), &mut Vec::new());
        let ask = Ask::new();
        let first = ask.rebuild(&script.file()).bytes;
        play(&mut script, &complete(&more), &mut Vec::new());
        let second = ask.rebuild(&script.file()).bytes;
        prop_assert!(second.starts_with(&first));
    }

    #[test]
    fn two_plans_of_one_source_give_the_same_bytes(steps in prop::collection::vec(step(), 1..12)) {
        let mut script = Script::new();
        play(&mut script, &steps, &mut Vec::new());
        let fixture = script.file();
        let ask = Ask::new();
        let write = || {
            let plan = ask.plan(&fixture.path);
            let mut bytes = Vec::new();
            write_candidate_to(&plan, &fixture.path, &fixture.path, &mut bytes).unwrap();
            (plan.digest(), bytes)
        };
        prop_assert_eq!(write(), write());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        any_bytes(&bytes);
    }

    #[test]
    fn damaged_transcripts_never_panic(
        steps in prop::collection::vec(step(), 1..8),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
    ) {
        let mut script = Script::new();
        play(&mut script, &complete(&steps), &mut Vec::new());
        let mut bytes = script.bytes().to_vec();
        for (at, byte, insert) in cuts {
            let at = at.index(bytes.len());
            if insert { bytes.insert(at, byte) } else { bytes[at] = byte }
        }
        any_bytes(&bytes);
    }
}

/// A plan of anything accounts for every byte, and an unblocked one can be written and proved.
fn any_bytes(bytes: &[u8]) {
    let fixture = Fixture::of(bytes);
    let ask = Ask::new();
    let plan = ask.plan(&fixture.path);
    assert_eq!(plan.ledger.file_size, bytes.len() as u64);
    let rebuilt = ask.rebuild(&fixture);
    if rebuilt.plan.blocked.is_empty()
        && let Err(failure) = &rebuilt.proof
    {
        // The proof may refuse what the rules let through; that is what it is for.
        assert!(matches!(failure, ProofFailure::Failed { .. }), "{failure}");
    }
    crate::transcript::receipt::read(&fixture.path, 0, "anything").unwrap();
}
