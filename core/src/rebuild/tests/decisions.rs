//! What a human decides: forks, shapes nobody knows, doubled rows, damage; and damage that needs no decision.

use serde_json::json;

use super::*;
use crate::fixture::uuid;
use crate::transcript::Decision;

#[test]
fn forks_with_a_humans_words_wait_for_a_decision() {
    let mut script = Script::new();
    script.human("seed");
    let answer = script.says("yes");
    script.human("the other kite?");
    script.says("blue");
    script.on(&answer).human("and the string?");
    script.says("white");
    assert_eq!(blocked(&script), [(BlockKind::Fork, Some(3))]);
    let mut ask = Ask::new();
    let key = Ask::new().plan(&script.file().path).off_chain[0].key.clone();
    assert_eq!(key, format!("{}+1", uuid(3)));
    ask.settings.off_chain = crate::transcript::OffChain::Drop;
    assert_eq!(carried_with(&script, &ask), ["H=seed", "A:yes", "H=and the string?", "A:white"]);
    ask.settings.off_chain = crate::transcript::OffChain::Carry;
    assert_eq!(
        carried_with(&script, &ask),
        ["H=seed", "A:yes", "H=the other kite?", "A:blue", "H=and the string?", "A:white"]
    );
}

#[test]
fn a_decision_about_one_branch_is_remembered_until_the_branch_grows() {
    let mut script = Script::new();
    script.human("seed");
    let answer = script.says("yes");
    let other = script.human("the other kite?");
    script.on(&answer).human("and the string?");
    script.says("white");
    let mut ask = Ask::new();
    ask.settings.decisions = [(format!("{other}+1"), Decision::Drop)].into();
    assert_eq!(carried_with(&script, &ask), ["H=seed", "A:yes", "H=and the string?", "A:white"]);
    ask.settings.decisions = [(format!("{other}+1"), Decision::Carry)].into();
    assert_eq!(carried_with(&script, &ask)[2], "H=the other kite?");
    let tip = uuid(5);
    script.on(&other).human("more words over there");
    script.on(&tip).human("thanks");
    script.says("welcome");
    let plan = ask.plan(&script.file().path);
    assert_eq!(plan.off_chain[0].fate, crate::transcript::Fate::Undecided);
    let reason = plan.blocked_reason();
    assert!(reason.contains(&format!("`kael-runner plan --decide {other}+2=drop`")), "{reason}");
}

#[test]
fn a_retry_is_no_fork() {
    let mut script = Script::new();
    script.human("seed");
    let answer = script.says("yes");
    script.human("ask");
    script.model(json!([{"type": "text", "text": "half an ans"}]), json!(null), json!({}));
    script.on(&answer).human("ask");
    script.next_message().says("a whole answer");
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.plan.blocked_reason(), "");
    assert_eq!(rebuilt.said(), ["H=seed", "A:yes", "H=ask", "A:a whole answer"]);
    assert_eq!(rebuilt.plan.off_chain[0].fate, crate::transcript::Fate::Retry);
}

#[test]
fn parallel_calls_are_no_fork() {
    let mut script = Script::new();
    script.human("both");
    let first = script.calls("A", json!({}));
    script.model(json!([{"type": "text", "text": "and the other"}]), json!("tool_use"), json!({}));
    let second = script.calls("B", json!({}));
    let result = script.on(&first).result("A", json!("a"), false);
    script.on(&second).result("B", json!("b"), false);
    script.on(&result).next_message().says("done");
    assert_eq!(carried(&script), ["H=both", "A:and the other", "A:done"]);
}

#[test]
fn what_nobody_here_knows_blocks_by_name() {
    let mut script = Script::new();
    script.human("hello");
    script.line(&json!({"type": "diary-entry", "text": "words of somebody"}));
    script.attachment(json!({"type": "whisper", "text": "and more"}));
    script.model(json!([{"type": "song", "verse": "la la"}]), json!("end_turn"), json!({}));
    script.row(json!({"type": "system", "subtype": "rumour", "content": "did you hear"}));
    script.user(json!("who said this"), json!({"origin": {"kind": "ghost"}}));
    script.line(&json!({"type": "counter", "count": 3, "sessionId": SESSION}));
    script.says("hi");
    let plan = Ask::new().plan(&script.file().path);
    assert!(plan.is_hard_blocked());
    let messages: Vec<_> = plan.blocked.iter().map(|blocked| blocked.message.clone()).collect();
    insta::assert_snapshot!(messages.join("\n"), @r#"
    line 2 is of a shape this version does not know, diary-entry: look at it; if it holds no words of the conversation, add "diary-entry" to accept_unknown in the table [transcript]
    line 3 is of a shape this version does not know, attachment/whisper: look at it; if it holds no words of the conversation, add "attachment/whisper" to accept_unknown in the table [transcript]
    line 4 is of a shape this version does not know, block/song: look at it; if it holds no words of the conversation, add "block/song" to accept_unknown in the table [transcript]
    line 5 is of a shape this version does not know, system/rumour: look at it; if it holds no words of the conversation, add "system/rumour" to accept_unknown in the table [transcript]
    line 6 is of a shape this version does not know, origin/ghost: look at it; if it holds no words of the conversation, add "origin/ghost" to accept_unknown in the table [transcript]
    "#);
    let mut ask = Ask::new();
    ask.rules.accept_unknown =
        ["diary-entry", "attachment/whisper", "block/song", "system/rumour", "origin/ghost"]
            .map(str::to_owned)
            .to_vec();
    assert_eq!(carried_with(&script, &ask), ["H=hello", "A:hi"]);
}

#[test]
fn text_that_may_be_a_humans_blocks_and_is_not_guessed() {
    for text in [
        "<task-notification>x</task-notification>\nand please hurry",
        "<teammate-message id=\"a\">x</teammate-message>\nstop him",
    ] {
        let mut script = Script::new();
        script.user(json!(text), json!({}));
        script.says("ok");
        assert_eq!(blocked(&script)[0], (BlockKind::UnknownRow, Some(1)), "{text}");
    }
}

#[test]
fn the_same_row_twice_counts_once_and_two_rows_with_one_uuid_block() {
    let mut script = Script::new();
    script.human("hello there");
    let row = script.bytes().to_vec();
    script.raw(&row);
    script.says("hi");
    assert_eq!(carried(&script), ["H=hello there", "A:hi"]);

    let mut script = Script::new();
    script.human("hello there");
    script.row(json!({"type": "user", "uuid": uuid(1), "parentUuid": null,
                      "message": {"role": "user", "content": "something else"}}));
    script.says("hi");
    assert_eq!(blocked(&script)[0], (BlockKind::DuplicateUuid, Some(2)));
    // A human looks at both; the words of the first are dropped and listed, or come back at their place.
    let key = format!("duplicate/{}", uuid(1));
    let mut ask = Ask::new();
    ask.settings.decisions = [(key.clone(), Decision::Drop)].into();
    assert_eq!(carried_with(&script, &ask), ["H=something else", "A:hi"]);
    ask.settings.decisions = [(key, Decision::Carry)].into();
    assert_eq!(carried_with(&script, &ask), ["H=hello there", "H=something else", "A:hi"]);
}

#[test]
fn a_decision_about_damage_holds_for_those_places_alone() {
    let mut script = Script::new();
    script.human("hello");
    script.raw(b"{\"type\":\"user\",\"message\":\n");
    script.says("hi");
    let mut ask = Ask::new();
    let plan = ask.plan(&script.file().path);
    let key = plan.blocked[0].key.clone().unwrap();
    assert_eq!(plan.blocked[0].answers, [Decision::Accept]);
    ask.settings.decisions = [(key, Decision::Accept)].into();
    assert_eq!(carried_with(&script, &ask), ["H=hello", "A:hi"]);
    assert_ne!(ask.plan(&script.file().path).digest(), plan.digest(), "a yes was to the undecided plan");
    // As many places, but elsewhere: another loss.
    let mut other = Script::new();
    other.human("hello");
    other.says("hi");
    other.raw(b"{\"type\":\"user\",\"message\":\n");
    assert!(ask.plan(&other.file().path).is_hard_blocked());
    script.raw(b"{\"type\":\n");
    assert!(ask.plan(&script.file().path).is_hard_blocked(), "one more");
}

#[test]
fn damage_blocks_until_its_count_is_accepted() {
    let mut script = Script::new();
    script.human("hello");
    script.raw(b"{\"type\":\"user\",\"message\":\n");
    script.says("hi");
    script.raw(b"{\"type\":\"assis");
    let fixture = script.file();
    let mut ask = Ask::new();
    let plan = ask.plan(&fixture.path);
    assert_eq!(
        plan.blocked_reason(),
        "line 2: not JSON (26 bytes); one place of this transcript cannot be read and may have held words: look at it, \
         then accept the loss with `kael-runner plan --decide damage=1`, or for this plan alone with --accept-damage 1"
    );
    ask.accept_damage = Some(2);
    assert!(ask.plan(&fixture.path).is_hard_blocked());
    ask.accept_damage = Some(1);
    assert_eq!(carried_with(&script, &ask), ["H=hello", "A:hi"]);
}

#[test]
fn harmless_damage_is_read_over() {
    let mut script = Script::new();
    script.raw(b"\xef\xbb\xbf");
    script.human("hello");
    script.raw(b"\r\n\0\0\0\0\nnull\n  \n");
    let one = script.clone();
    script.says("hi");
    script.human("more");
    // The last two rows on one line, CRLF behind them, NULs in front.
    let tail = script.bytes()[one.bytes().len()..].to_vec();
    let glued: Vec<u8> = tail.iter().copied().filter(|b| *b != b'\n').collect();
    let mut mixed = Script::new();
    mixed.raw(one.bytes()).raw(b"\0\0").raw(&glued).raw(b"\r\n");
    let said = {
        let rebuilt = Ask::new().rebuild(&mixed.file());
        rebuilt.proved();
        assert_eq!(rebuilt.plan.blocked_reason(), "");
        rebuilt.said()
    };
    assert_eq!(said, ["H=hello", "A:hi", "H=more", "A:[unanswered before the rebuild]"]);
}

#[test]
fn lone_surrogates_are_carried_as_replacement_characters() {
    let mut script = Script::new();
    script.human("PLACE");
    let bytes =
        String::from_utf8(script.bytes().to_vec()).unwrap().replace("PLACE", "风\\ud83e筝\\ud83e\\ude81");
    let mut script = Script::new();
    script.raw(bytes.as_bytes());
    let rebuilt = Ask::new().rebuild(&script.file());
    rebuilt.proved();
    assert_eq!(rebuilt.said()[0], "H=风\u{fffd}筝🪁");
    assert_eq!(rebuilt.plan.replaced_characters, 1);
}
