//! Which rows are the conversation: compactions, forked and continued sessions, torn rows (DESIGN 4).

use serde_json::{Value, json};

use super::*;
use crate::fixture::uuid;
use crate::transcript::Fate;

fn compaction(script: &mut Script, kept: &str, more: &Value) {
    let mut boundary = json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": kept,
                              "content": "Conversation compacted"});
    if let (Some(boundary), Some(more)) = (boundary.as_object_mut(), more.as_object()) {
        boundary.extend(more.clone());
    }
    script.root().row(boundary);
    script.user(
        json!("This session is being continued from a previous conversation. The human said: 风筝"),
        json!({"isCompactSummary": true, "isVisibleInTranscriptOnly": true}),
    );
}

/// A session of little overhead, so that what comes back is less than what is loaded.
fn small() -> Ask {
    let mut ask = Ask::new();
    ask.settings.fixed_overhead_tokens = 1;
    ask
}

#[test]
fn several_compactions_in_one_file_give_all_words_once() {
    let mut script = Script::new();
    script.human("first 风筝");
    let one = script.says("one");
    compaction(&mut script, &one, &json!({}));
    script.user(json!("<local-command-stdout>Compacted</local-command-stdout>"), json!({}));
    script.human("second");
    let two = script.says("two");
    compaction(&mut script, &two, &json!({}));
    script.human("third");
    script.says("three");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said(), ["H=first 风筝", "A:one", "H=second", "A:two", "H=third", "A:three"]);
    assert_eq!(rebuilt.plan.compactions, 2);
}

#[test]
fn rows_that_a_compaction_preserved_are_not_repeated() {
    // As a version writes it: the incoming message stands in front of the boundary and is kept, with
    // the last answer, through the names in the boundary.
    let mut script = Script::new();
    script.human("seed one kite");
    let seed = script.says("one");
    script.last_prompt("seed one kite", &seed);
    script.human("second");
    let head = script.says("two");
    let tail = script.human("after big");
    compaction(
        &mut script,
        &tail,
        &json!({"compactMetadata": {"trigger": "auto", "preTokens": 150_014,
            "preservedSegment": {"headUuid": head, "anchorUuid": uuid(7), "tailUuid": tail},
            "preservedMessages": {"anchorUuid": uuid(7), "uuids": [head, tail], "allUuids": [head, tail]}}}),
    );
    script.attachment(json!({"type": "file", "filename": "/srv/bot/notes.txt"}));
    let here = script.says("here");
    script.last_prompt("after big", &here);
    // A version may also write a preserved row once more, under its old uuid.
    let copy = script.bytes().split(|b| *b == b'\n').nth(5).unwrap().to_vec();
    script.raw(&copy).raw(b"\n");
    assert_eq!(
        carried_with(&script, &small()),
        ["H=seed one kite", "A:one", "H=second", "A:two", "H=after big", "A:here"]
    );
}

#[test]
fn a_boundary_whose_logical_parent_is_missing_is_stitched() {
    let mut script = Script::new();
    script.human("before");
    script.says("yes");
    compaction(&mut script, &uuid(99), &json!({}));
    script.human("after");
    script.says("here");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said(), ["H=before", "A:yes", "H=after", "A:here"]);
    assert_eq!(rebuilt.plan.stitched, [3]);
}

#[test]
fn a_summary_whose_history_is_gone_is_carried_and_only_the_first() {
    let mut script = Script::new();
    compaction(&mut script, &uuid(99), &json!({}));
    script.human("go on");
    let one = script.says("here");
    compaction(&mut script, &one, &json!({}));
    script.human("and on");
    script.says("still here");
    let said = carried_with(&script, &small());
    assert!(said[0].starts_with("H=[summary by the CLI; the words are not in this file]\nThis session"));
    assert_eq!(said[1..], ["H=go on", "A:here", "H=and on", "A:still here"]);
    // In the next generation it is still one summary, with one head.
    let first = Ask::new().rebuild(&script.file());
    let again = Ask::new().rebuild(&Fixture::of(&first.bytes));
    again.proved();
    assert_eq!(again.said(), first.said());
}

#[test]
fn a_forked_copy_of_a_session_is_a_conversation_of_its_own() {
    let mut script = Script::new();
    script.human("seed");
    script.says("yes");
    script.human("more");
    script.says("and more");
    // The live chain copied: same uuids, another sessionId, `forkedFrom` in newer versions.
    let fork = String::from_utf8(script.bytes().to_vec()).unwrap();
    let fork = fork.replace(SESSION, "5e551011-0000-4000-8000-00000000f0f0").replace(
        "\"isSidechain\":false",
        "\"forkedFrom\":{\"sessionId\":\"5e551011-0000-4000-8000-000000000001\",\"messageUuid\":\"words that are none\"},\"isSidechain\":false",
    );
    let mut forked = Script::new();
    forked.raw(fork.as_bytes());
    assert_eq!(carried(&forked), carried(&script));
}

#[test]
fn a_session_continued_in_the_same_file_is_one_conversation() {
    let other = json!({"sessionId": "5e551011-0000-4000-8000-00000000c0c0", "promptSource": "sdk"});
    let mut script = Script::new();
    script.human("seed");
    script.says("yes");
    script.user(json!("under another id"), other.clone());
    script.model(
        json!([{"type": "text", "text": "still here"}]),
        json!("end_turn"),
        json!({"sessionId": other["sessionId"]}),
    );
    assert_eq!(carried(&script), ["H=seed", "A:yes", "H=under another id", "A:still here"]);
    // A gap is joined to the last row of its own session.
    script.on(&uuid(77)).user(json!("after a gap"), other);
    script.says("here");
    let plan = Ask::new().plan(&script.file().path);
    assert_eq!((plan.stitched.clone(), plan.items.len()), (vec![5], 6));
}

#[test]
fn two_answers_to_one_message_after_a_kill_are_no_fork() {
    let mut script = Script::new();
    script.human("seed");
    script.says("yes");
    let ask = script.human("ask");
    script.model(json!([{"type": "text", "text": "half an ans"}]), json!(null), json!({}));
    script.on(&ask).next_message().says("a whole answer");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.plan.blocked_reason(), "");
    assert_eq!(rebuilt.said(), ["H=seed", "A:yes", "H=ask", "A:a whole answer"]);
    assert_eq!(rebuilt.plan.off_chain[0].fate, Fate::AssistantOnly);
}

#[test]
fn two_writers_leave_a_branch_to_decide_about() {
    let mut script = Script::new();
    script.human("seed");
    let answer = script.says("yes");
    script.human("mine 我的");
    script.says("for me");
    script.on(&answer).human("theirs");
    script.next_message().says("for them");
    assert_eq!(blocked(&script), [(BlockKind::Fork, Some(3))]);
    let plan = Ask::new().plan(&script.file().path);
    let mut shown = Vec::new();
    show(&plan, &script.file().path, Show::OffChain, &mut |item| {
        shown.push((item.line, item.text));
        true
    })
    .unwrap();
    assert_eq!(shown, [(3, "mine 我的".to_owned()), (4, "for me".to_owned())]);
}

#[test]
fn a_row_behind_a_torn_half_is_read() {
    let mut script = Script::new();
    script.human("hello there");
    script
        .raw(br#"{"type":"user","uuid":"x","message":{"role":"user","content":[{"type":"text","text":"tor"#);
    script.human("after the crash");
    script.says("yes");
    let fixture = script.file();
    let mut ask = Ask::new();
    let plan = ask.plan(&fixture.path);
    assert_eq!(
        plan.blocked_reason(),
        "line 2: a row that was torn, with the next one behind it (88 bytes); one place of this transcript cannot be \
         read and may have held words: look at it, then accept the loss with `kael-runner plan --decide \
         damage=1`, or for this plan alone with --accept-damage 1"
    );
    ask.accept_damage = Some(1);
    assert_eq!(carried_with(&script, &ask), ["H=hello there", "H=after the crash", "A:yes"]);
}

#[test]
fn damage_of_many_kinds_together_loses_nothing_that_can_be_read() {
    let mut script = Script::new();
    script.raw(b"\xef\xbb\xbf");
    script.human("first 一");
    script.raw(b"\n \r\nnull\n[]\n\0\0\0\n");
    script.says("one");
    let mut glued = Script::new();
    glued.raw(script.bytes());
    let mut rest = script.clone();
    rest.human("second");
    rest.says("two");
    let tail: Vec<u8> =
        rest.bytes()[script.bytes().len()..].iter().copied().filter(|b| *b != b'\n').collect();
    glued.raw(b"\0").raw(&tail).raw(b"\r\n{\"type\":\"user\",\"mess");
    let rebuilt = Ask::new().rebuild(&glued.file());
    rebuilt.proved();
    assert_eq!(rebuilt.plan.blocked_reason(), "");
    assert_eq!(rebuilt.said(), ["H=first 一", "A:one", "H=second", "A:two"]);
    assert_eq!(rebuilt.plan.damage.counts.len(), 6, "{:?}", rebuilt.plan.damage.counts);
}

#[test]
fn copies_in_side_rows_are_no_speech() {
    let mut script = Script::new();
    script.human("hello there");
    script.row(json!({"type": "progress", "data": {"type": "agent_progress", "message": {
        "type": "user", "message": {"role": "user", "content": "nested words of a subagent"}}}}));
    script.line(&json!({"type": "api-request-blob", "message": {"role": "user", "content": "hello there"}}));
    script.says("hi");
    script.last_prompt("hello there", &uuid(1));
    assert_eq!(carried(&script), ["H=hello there", "A:hi"]);
}

#[test]
fn words_in_a_new_field_block_with_line_and_path() {
    let mut script = Script::new();
    script.human("hello");
    script.user(json!("again"), json!({"promptSource": "sdk", "aside": {"whispered": ["都是秘密的话"]}}));
    script.says("hi");
    let plan = Ask::new().plan(&script.file().path);
    assert_eq!(
        plan.blocked_reason(),
        "line 2 holds words in a field nobody here knows: look at it; if it holds no words of the conversation, add \
         \"field/user.aside.whispered.0\" to accept_unknown in the table [transcript]"
    );
    let mut ask = Ask::new();
    ask.rules.accept_unknown = vec!["field/user.aside.whispered.0".to_owned()];
    assert_eq!(carried_with(&script, &ask), ["H=hello", "H=again", "A:hi"]);
}

#[test]
fn replies_to_other_chats_are_carried_and_counted() {
    let mut script = Script::new();
    script.user(
        json!("<channel source=\"telegram\" chat_id=\"7\" user=\"mina\">\n你好\n</channel>"),
        json!({"promptSource": "sdk"}),
    );
    script.calls("mcp__a-companion__reply", json!({"chat_id": "7", "text": "你好！"}));
    script.result("mcp__a-companion__reply", json!("ok"), false);
    script.next_message();
    let block = json!({"type": "tool_use", "id": "toolu_other", "name": "mcp__a-companion__reply",
                       "input": {"chat_id": 8, "text": "to somebody else"}});
    script.model(json!([block]), json!("tool_use"), json!({}));
    script.user(
        json!([{"type": "tool_result", "tool_use_id": "toolu_other", "content": "ok"}]),
        json!({"toolUseResult": "ok"}),
    );
    script.says("both are told");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said()[1..], ["A:你好！", "A:to somebody else", "A:both are told"]);
    assert_eq!(rebuilt.plan.reply_elsewhere, [4]);
}

#[test]
fn a_refusals_reason_is_found_in_every_form_and_without_the_runtimes_hint() {
    let head = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file \
                edit, the new_string was NOT written to the file). To tell you how to proceed, the user said:";
    let hint = "\n\nNote: The user's next message may contain a correction or preference. Pay close attention — if they \
                explain what went wrong or how they'd prefer you to work, consider saving that to memory for future \
                sessions.";
    for (content, words) in [
        (json!(format!("{head}\n不要写 \"x\"\n please")), "不要写 \"x\"\n please"),
        (json!(format!("{head} keep the branch")), "keep the branch"),
        (json!(format!("{head}\nuse a pencil{hint}")), "use a pencil"),
        (json!(format!("{head}\nwhy? the user said: no{hint} is what I read")), ""),
        (json!([{"type": "text", "text": format!("{head}\nفي قائمة")}]), "في قائمة"),
        (
            json!(
                "Permission for this tool use was denied. The tool use was rejected. The user said:\nask first"
            ),
            "ask first",
        ),
    ] {
        let mut script = Script::new();
        script.human("write it");
        script.calls("Write", json!({}));
        script.result("Write", content.clone(), true);
        script.says("ok");
        let said = carried(&script);
        if words.is_empty() {
            assert!(said[1].starts_with("H:why? the user said: no"), "{said:?}");
            assert!(said[1].ends_with("is what I read"), "nothing is cut inside what a human typed");
        } else {
            assert_eq!(said, ["H=write it".to_owned(), format!("H:{words}"), "A:ok".to_owned()]);
        }
    }
}
