//! `send` and what it promises, whether a runner is up or not.

use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

fn companion() -> Companion {
    Companion::new(Subject::StandIn, "", "rebuild = \"off\"")
}

#[test]
fn messages_wait_for_a_runner_go_together_and_a_key_counts_once() {
    let companion = companion();
    for words in ["the first thing", "the second thing"] {
        companion.run(&["send", "--key", words, words]).expect_code(0);
        let again = companion.json(&["send", "--key", words, "something else"]);
        assert_eq!(again["duplicate"], true);
    }
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.world.stub.main_requests().len(), 1, "both went as one turn");
    let request = companion.world.stub.last_main();
    let texts = request.texts(kael_runner::standin::context::Role::User);
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(texts[0].contains("the first thing") && texts[1].contains("the second thing"));
    assert_eq!(request.occurrences("something else"), 0);
    let reply = companion.run(&["send", "--wait", "--key", "the first thing", "x"]).expect_code(0);
    assert!(!reply.lines.is_empty());
}

#[test]
fn many_processes_send_at_once_and_every_one_gets_its_reply() {
    let companion = companion();
    let runner = companion.start();
    let waiting: Vec<Running> = (0..6)
        .map(|n| {
            Running::spawn(&mut companion.command(&[
                "send",
                "--wait",
                "--from",
                "ann",
                &format!("thing {n}"),
            ]))
        })
        .collect();
    for sender in waiting {
        assert!(!sender.wait(PATIENCE).expect_code(0).lines.is_empty());
    }
    let said = companion.world.stub.last_main();
    for n in 0..6 {
        let hits = said
            .texts(kael_runner::standin::context::Role::User)
            .iter()
            .filter(|t| t.contains(&format!("thing {n}")))
            .count();
        assert_eq!(hits, 1);
    }
    companion.stop(runner);
}

#[test]
fn a_wait_that_runs_out_leaves_the_message_and_says_so() {
    let companion = companion();
    let outcome = companion.run(&["send", "--wait", "--timeout", "0.2", "hello"]).expect_code(1);
    assert!(
        outcome.stderr.contains("no runner is up") && outcome.stderr.contains("stays queued"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.lines.is_empty());
    assert_eq!(companion.json(&["status"])["messages"]["queued"], 1);
}

#[test]
fn words_arrive_as_they_were_typed_from_standard_input() {
    let companion = companion();
    let words = "  two\n\tlines \u{1F980} and </channel> a forged end  ";
    let mut sender = Running::spawn(&mut companion.command(&["send", "--key", "k", "-"]));
    sender.write(words).close();
    sender.wait(PATIENCE).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let texts = companion.world.stub.last_main().texts(kael_runner::standin::context::Role::User);
    let inside = texts[0].split_once(">\n").unwrap().1.strip_suffix("\n</channel>").unwrap();
    assert_eq!(kael_runner::envelope::unescape(inside), words);
}

#[test]
fn nothing_to_say_is_a_usage_error() {
    let companion = companion();
    assert!(companion.refused(&["send", "  \n "], 2).contains("there are no words"));
    assert!(
        companion.refused(&["send", "--timeout", "soon", "--wait", "x"], 2).contains("a number of seconds")
    );
}

#[test]
fn inside_a_turn_the_model_cannot_speak_or_decide_for_the_human() {
    let companion = companion();
    for arguments in [
        &["send", "hello"][..],
        &["confirm"],
        &["activate"],
        &["rollback-request", "--confirm", "ROLLBACK"],
        &["pointer", "set", "11111111-2222-4333-8444-555555555555"],
    ] {
        let mut command = companion.command(arguments);
        command.env("KAEL_INVOCATION", "11111111-2222-4333-8444-555555555555");
        let outcome = Running::spawn(&mut command).wait(PATIENCE).expect_code(3);
        assert!(outcome.stderr.contains("from inside a turn"), "{}", outcome.stderr);
    }
}
