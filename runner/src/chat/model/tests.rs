//! What is shown for what is heard and typed.

use super::*;

fn now() -> Timestamp {
    Timestamp::from_millis(100_000)
}

fn chat() -> Chat {
    Chat::new(Style { colours: false })
}

fn shown(acts: &[Act]) -> Vec<&str> {
    acts.iter()
        .filter_map(|act| match act {
            Act::Show(line) => Some(line.text.as_str()),
            _ => None,
        })
        .collect()
}

fn sent(acts: &[Act]) -> Vec<&ClientLine> {
    acts.iter()
        .filter_map(|act| match act {
            Act::Send(line) => Some(line),
            _ => None,
        })
        .collect()
}

fn said(front: &str, words: &str) -> ServerLine {
    ServerLine::Said {
        message: 1,
        front: front.into(),
        key: "k".into(),
        sender: "Ann".into(),
        words: words.into(),
        at: now(),
        past: false,
    }
}

fn started() -> ServerLine {
    ServerLine::TurnStarted { turn: 7, since: now() }
}

fn part(id: &str, block: u32, text: &str) -> ServerLine {
    ServerLine::Part { turn: 7, message_id: id.into(), block, text: text.into() }
}

fn reply(id: &str, words: &str) -> ServerLine {
    ServerLine::Reply {
        reply: 1,
        turn: 7,
        message_id: id.into(),
        block: 0,
        words: words.into(),
        at: now(),
        past: false,
    }
}

fn ended(outcome: Outcome, kept: &[&str]) -> ServerLine {
    ServerLine::TurnEnded { turn: 7, outcome, kept: kept.iter().map(|id| (*id).to_owned()).collect() }
}

fn question() -> ServerLine {
    ServerLine::Question {
        operation: OperationId::generate(),
        what: Wish::Rebuild,
        digest: "d".into(),
        reasons: vec!["it is dirty".into()],
        figures: vec!["one".into(), "two".into(), "three".into()],
    }
}

fn hear(chat: &mut Chat, lines: Vec<ServerLine>) -> String {
    let acts: Vec<Act> = lines.into_iter().flat_map(|line| chat.heard(line)).collect();
    shown(&acts).join("\n")
}

#[test]
fn a_turn_is_shown_as_it_is_said_and_once() {
    let mut chat = chat();
    let text = hear(
        &mut chat,
        vec![
            said("terminal", "你好\n风筝？"),
            started(),
            part("m", 0, "A red "),
            part("m", 0, "kite.\nIt fl"),
            part("m", 0, "ies 🪁"),
            reply("m", "A red kite.\nIt flies 🪁"),
            ended(Outcome::Answered, &["m"]),
            said("send", "thanks"),
        ],
    );
    insta::assert_snapshot!(text, @"
    › 你好
      风筝？

    A red kite.
    It flies 🪁

    [send · Ann] thanks
    ");
}

#[test]
fn a_reply_that_was_not_streamed_is_shown_whole() {
    let mut chat = chat();
    let text = hear(&mut chat, vec![started(), reply("m", "one\n\ntwo"), ended(Outcome::Answered, &["m"])]);
    assert_eq!(text, "one\n\ntwo");
}

#[test]
fn words_that_are_not_kept_are_said_to_be_so() {
    let mut chat = chat();
    let text = hear(&mut chat, vec![started(), part("m", 0, "half a sen"), ended(Outcome::Stopped, &[])]);
    insta::assert_snapshot!(text, @"
    half a sen
    · (not all words above were kept in the conversation)
    · stopped; the message is done and is not tried again
    ");
    assert!(!chat.is_busy());
}

#[test]
fn runner_lines_stand_apart_also_in_the_middle_of_a_sentence() {
    let mut chat = chat();
    let line = |level, text: &str| ServerLine::Line { level, text: text.into() };
    let text = hear(
        &mut chat,
        vec![
            started(),
            part("m", 0, "half"),
            line(Level::Info, "a"),
            line(Level::Warning, "b"),
            line(Level::Error, "c\x1b[31m"),
        ],
    );
    assert_eq!(text, "half\n· a\n! b\n!! c␛[31m");
}

#[test]
fn the_busy_sign_has_the_time_and_the_tool() {
    let mut chat = chat();
    assert_eq!(chat.status(now()), None);
    hear(&mut chat, vec![started()]);
    let after = |seconds: i64| Timestamp::from_millis(now().as_millis() + seconds * 1000);
    assert_eq!(chat.status(after(5)).unwrap(), "◓ 5s · Ctrl-C stops");
    hear(&mut chat, vec![ServerLine::Tool { turn: 7, name: "Bash".into() }]);
    assert_eq!(chat.status(after(75)).unwrap(), "◒ 1m15s · Bash is at work · Ctrl-C stops");
    hear(&mut chat, vec![part("m", 0, "done")]);
    assert_eq!(chat.status(after(76)).unwrap(), "◐ 1m16s · Ctrl-C stops");
}

#[test]
fn once_stops_twice_leaves() {
    let mut chat = chat();
    hear(&mut chat, vec![started()]);
    assert_eq!(sent(&chat.interrupt(now(), false)), [&ClientLine::Stop { turn: 7 }]);
    assert_eq!(chat.interrupt(Timestamp::from_millis(now().as_millis() + 1000), false), [Act::Leave]);
    hear(&mut chat, vec![ended(Outcome::Stopped, &[])]);
    let later = Timestamp::from_millis(now().as_millis() + 60_000);
    assert_eq!(shown(&chat.interrupt(later, false)), ["· Ctrl-C again leaves"]);
    let much_later = Timestamp::from_millis(now().as_millis() + 120_000);
    assert_eq!(chat.interrupt(much_later, true), [], "it emptied the line");
    chat.typed();
    assert_eq!(chat.interrupt(much_later, true), [], "who goes on typing does not leave");
}

#[test]
fn a_question_is_answered_at_the_prompt_and_nowhere_else() {
    let mut chat = chat();
    let text = hear(&mut chat, vec![question()]);
    assert_eq!(text, "! it is dirty\n· one\n· two\n· three");
    assert_eq!(chat.prompt(), "rebuild the session? y/n/l › ");
    let acts = chat.submit("what would it carry?", "k".into());
    assert!(matches!(sent(&acts)[..], [ClientLine::Say { .. }]), "other words are said");
    hear(&mut chat, vec![started()]);
    assert_eq!(chat.prompt(), "› ", "nothing is asked while a turn runs");
    assert!(matches!(sent(&chat.submit("y", "k".into()))[..], [ClientLine::Say { .. }]));
    hear(&mut chat, vec![ended(Outcome::Answered, &[])]);
    assert_eq!(shown(&chat.submit("l", "k".into())).len(), 1);
    assert_eq!(chat.prompt(), "› ");
    chat.submit("/rebuild", "k".into());
    let acts = chat.submit(" Y ", "k".into());
    let [ClientLine::Answer { yes: true, digest, .. }] = sent(&acts)[..] else { panic!("{acts:?}") };
    assert_eq!((digest.as_str(), chat.prompt()), ("d", "› "));
    // The plan had changed meanwhile: it is asked again.
    hear(&mut chat, vec![question()]);
    assert!(matches!(sent(&chat.submit("否", "k".into()))[..], [ClientLine::Answer { yes: false, .. }]));
    let operation = OperationId::generate();
    let closed = ServerLine::QuestionClosed { operation, outcome: "withdrawn".into() };
    assert_eq!(hear(&mut chat, vec![closed]), "· withdrawn");
}

#[test]
fn going_back_is_asked_first() {
    let mut chat = chat();
    assert_eq!(chat.submit("/rollback", "k".into()), []);
    assert_eq!(chat.prompt(), "go back to the session before? y/n › ");
    let acts = chat.submit("tell me first", "k".into());
    assert_eq!(acts.last(), Some(&Act::Restore("tell me first".into())));
    chat.submit("/rollback", "k".into());
    let acts = chat.submit("yes", "k".into());
    assert!(matches!(sent(&acts)[..], [ClientLine::Command { name: CommandName::Rollback, .. }]));
    chat.submit("/rollback carry", "k".into());
    assert_eq!(chat.prompt(), "go back to the session before, with what was said since? y/n › ");
    let acts = chat.submit("y", "k".into());
    assert!(matches!(sent(&acts)[..], [ClientLine::Command { name: CommandName::RollbackCarrying, .. }]));
}

#[test]
fn what_begins_with_a_slash_is_ours_or_said() {
    let mut chat = chat();
    let acts = chat.submit("/status", "k".into());
    assert!(matches!(sent(&acts)[..], [ClientLine::Command { name: CommandName::Status, .. }]));
    assert!(shown(&chat.submit("/staus", "k".into()))[0].contains("no command here"));
    assert!(matches!(sent(&chat.submit("/etc/hosts is a file", "k".into()))[..], [ClientLine::Say { .. }]));
    assert_eq!(chat.submit("/quit", "k".into()), [Act::Leave]);
    let acts = chat.submit("/stop", "k".into());
    assert!(
        matches!(acts[..], [Act::Send(ClientLine::Command { name: CommandName::GiveUp, .. })]),
        "{acts:?}"
    );
    assert!(shown(&chat.submit("/help", "k".into())).len() > 5);
}

#[test]
fn a_message_that_could_not_be_stored_comes_back() {
    let mut chat = chat();
    chat.submit("  words 🪁", "k".into());
    let error = ServerLine::Error { text: "the disk is full".into(), key: Some("k".into()) };
    let acts = chat.heard(error);
    assert_eq!(shown(&acts), ["!! the disk is full"]);
    assert_eq!(acts.last(), Some(&Act::Restore("  words 🪁".into())));
}

#[test]
fn a_long_paragraph_is_finished_row_by_row() {
    let mut chat = chat();
    hear(&mut chat, vec![started(), part("m", 0, "风筝风筝\x07")]);
    assert_eq!(chat.pending(), "风筝风筝␇");
    chat.finish_rows(&["风筝".to_owned()]);
    assert_eq!(chat.pending(), "风筝␇");
}
