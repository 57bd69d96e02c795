//! Where words of a human hide, and what only looks like them: the corners that single versions have.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_command_that_a_version_notes_in_a_system_row_is_said() {
    let mut script = Script::new();
    script.human("hello");
    script.says("hi");
    let local = |content: &str| json!({"type": "system", "subtype": "local_command", "level": "info", "content": content});
    script.queue("enqueue", Some("/nosuch 风筝 please")).queue("dequeue", None);
    script.row(local("/nosuch 风筝 please"));
    script.row(local("<local-command-stdout>Unknown command: /nosuch</local-command-stdout>"));
    script.queue("enqueue", Some("/context")).queue("dequeue", None);
    script.row(local("/context"));
    script.row(local("<local-command-stdout>## Context Usage</local-command-stdout>"));
    script.row(local("<command-name>/model</command-name>\n<command-message>model</command-message>\n<command-args>the small one</command-args>"));
    script.user(json!("<command-name>/usage</command-name><command-args></command-args>"), json!({}));
    script.human("and now?");
    script.says("now");
    assert_eq!(
        carried(&script),
        ["H=hello", "A:hi", "H=/nosuch 风筝 please", "H=/model the small one", "H=and now?", "A:now"]
    );
}

#[test]
fn answers_stand_in_the_results_sentence_where_nothing_else_has_them() {
    let answered = |content: &str, more: Value| {
        let mut script = Script::new();
        script.human("ask me");
        script.calls("AskUserQuestion", json!({}));
        script.user(
            json!([{"type": "tool_result", "tool_use_id": "toolu_AskUserQuestion", "content": content}]),
            more,
        );
        script.says("thanks");
        carried(&script)[1..].to_vec()
    };
    let none = || json!({});
    for (content, said) in [
        (
            "User has answered your questions: \"Which colour?\"=\"red, like the old one\", \"And 线?\"=\" 白 \". You can now continue with the user's answers in mind.",
            "H:red, like the old one| 白 ",
        ),
        (
            "Your questions have been answered: \"Q?\"=\"نعم\". You can now continue with these answers in mind.",
            "H:نعم",
        ),
        // Quotes in an answer: which is which is not plain, so all of it is kept.
        (
            "User has answered your questions: \"Q?\"=\"say \"a\"=\"b\"\". You can now continue with the user's answers in mind.",
            "H:\"Q?\"=\"say \"a\"=\"b\"\"",
        ),
        (
            "User has answered your questions: \"Q?\"=\"A\" user notes: but only today. You can now continue with the user's answers in mind.",
            "H:\"Q?\"=\"A\" user notes: but only today",
        ),
    ] {
        assert_eq!(answered(content, none()), [said, "A:thanks"], "{content}");
    }
    // Said once where the row lists them, too.
    let listed = answered(
        "User has answered your questions: \"Q?\"=\"A\". You can now continue with the user's answers in mind.",
        json!({"toolUseResult": {"questions": [], "answers": {"Q?": "A"}}}),
    );
    assert_eq!(listed, ["H:A", "A:thanks"]);
    // Another tool's output is its own.
    assert_eq!(answered("it says: User has answered your questions: \"Q\"=\"A\"", none()), ["A:thanks"]);
}

#[test]
fn copies_in_the_clis_own_words_are_found_again() {
    let mut script = Script::new();
    script.human("look into the shed, the kite is in there: it is red, and it has a long tail /srv/bot/a");
    script.calls("Bash", json!({"command": "ls"}));
    script.result("Bash", json!("x"), false);
    script.attachment(json!({"type": "queued_command", "prompt": "steer words", "commandMode": "prompt"}));
    script.says("done");
    script.line(&json!({"type": "api-request-blob", "message": {"role": "user", "content": [
        {"type": "text", "text": "The user sent a new message while you were working:\nsteer words\n\nThis is how the CLI says so, in words of its own."},
        {"type": "text", "text": "<command-name>/usage</command-name>\n  <command-message>usage</command-message>\n  <command-args></command-args>\n"}]}}));
    // Shortened in the middle of its last word.
    script
        .last_prompt("look into the shed, the kite is in there: it is red, and it has a long tail /tm…", "x");
    assert_eq!(carried(&script).len(), 3);
    script.line(&json!({"type": "api-request-blob", "message": {"role": "user", "content": [
        {"type": "text", "text": "The user sent a new message while you were working:\nother words\n\nand more of the CLI's."}]}}));
    let rebuilt = Ask::new().rebuild(&script.file());
    assert!(rebuilt.proof.is_err_and(|failure| failure.to_string().contains("copies")));
}

#[test]
fn what_is_queued_behind_a_notification_is_not_lost() {
    let absorbed = |text: &str| {
        let mut script = Script::new();
        script.human("go");
        script.queue("enqueue", Some(text)).queue("remove", None);
        script.says("gone");
        script
    };
    let merged = "<task-notification>done</task-notification>\nand please hurry";
    assert_eq!(blocked(&absorbed(merged)), [(BlockKind::UnknownRow, Some(2))]);
    let team = "<teammate-message id=\"a\">done</teammate-message> stop him";
    assert_eq!(blocked(&absorbed(team)), [(BlockKind::UnknownRow, Some(2))]);
    for event in [
        "<task-notification>done</task-notification>\nFull transcript available at: /tmp/a.output",
        "<task-notification>done</task-notification>\nRead the output file to retr…",
        "<teammate-message id=\"a\">done</teammate-message>",
        "{\"task_id\":\"a\",\"status\":\"done\"}",
        "/context",
    ] {
        assert_eq!(carried(&absorbed(event)), ["H=go", "A:gone"], "{event}");
    }
    for words in [
        "{\"task_id\":\"a\"} is what I see",
        "/home/me/kite.txt is gone",
        "<task-notification> is a tag, is it?",
    ] {
        assert_eq!(carried(&absorbed(words)), ["H=go".to_owned(), format!("H={words}"), "A:gone".to_owned()]);
    }
}

#[test]
fn a_reply_tool_of_any_name_speaks() {
    let mut script = Script::new();
    script.human("tell them");
    let long = "many words of a long letter ".repeat(200);
    script.calls("say_to_chat", json!({"text": long, "chat_id": "1"}));
    script.result("say_to_chat", json!("ok"), false);
    let mut ask = Ask::new();
    ask.rules.reply_tools.push("say_*".to_owned());
    assert_eq!(carried_with(&script, &ask), ["H=tell them".to_owned(), format!("A:{long}")]);
}
