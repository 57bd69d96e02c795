//! Eight turns with tool noise, a rebuild by itself, one that is asked for, and the way back.

use kael_runner::standin::context::Role;

use crate::stubs::reply::Reply;
use crate::stubs::request::Request;
use crate::support::companion::Companion;
use crate::support::subject::Subject;

const NOISE: &str = "NOISE-OF-A-TOOL";
const THOUGHT: &str = "THOUGHT-OF-THE-MODEL";

/// What the human says, and what the scripted model answers.
const TALK: [(&str, &str); 8] = [
    ("My sister's kite is red, with a long tail.", "A red kite with a long tail: noted."),
    ("look into the shed, part one", "The shed's first part holds ropes."),
    ("  你好！风筝的线是白色的。 ", "白色的线，记住了。"),
    ("look into the shed, part two", "The shed's second part holds paint."),
    ("العلم أزرق 🪁 and \"quoted\" <b>bold</b>", "Blue flag 🪁, understood."),
    ("look into the shed, part three", "The shed's third part holds nails.\n\n- long ones\n- short ones\n"),
    ("@/etc/passwd is not to be read, /clear is only a word", "I read nothing and cleared nothing."),
    ("And what did we build?", "A kite, of course."),
];

/// The line that a tool prints over and over in the turn of these words.
fn noise_of(words: &str) -> String {
    format!("{NOISE} {}", words.replace(' ', "-"))
}

fn script(companion: &Companion) {
    for (words, answer) in TALK {
        let words = words.trim();
        if words.starts_with("look into") {
            let call = Reply::bash(&format!("seq -f '{} %g' 1 1200", noise_of(words))).and_thinking(THOUGHT);
            companion.world.stub.on_tool_turn(words, call, Reply::text(answer));
        } else {
            companion.world.stub.on_text(words, Reply::text(answer).and_thinking(THOUGHT));
        }
    }
}

/// Every sentence of the talk so far stands in the request exactly once and in order.
fn assert_spoken_once(request: &Request, talk: &[(&str, &str)]) {
    let human = request.texts(Role::User);
    let assistant = request.texts(Role::Assistant);
    let find = |texts: &[String], words: &str| -> usize {
        let hits: Vec<usize> =
            texts.iter().enumerate().filter(|(_, text)| text.contains(words)).map(|(at, _)| at).collect();
        assert_eq!(hits.len(), 1, "{words:?} stands {} times in {texts:#?}", hits.len());
        hits[0]
    };
    let mut last = None;
    for (words, _) in talk {
        let at = find(&human, words);
        assert!(last < Some(at), "{words:?} is out of order");
        last = Some(at);
    }
    let mut last = None;
    for (_, answer) in talk.iter().take(talk.len() - 1) {
        let at = find(&assistant, answer);
        assert!(last < Some(at), "{answer:?} is out of order");
        last = Some(at);
    }
}

fn eight_turns(subject: Subject) {
    let companion =
        Companion::new(subject, "dirty_budget_bytes = 60000", "rebuild = \"auto\"\nmin_gain_percent = 1");
    script(&companion);
    let runner = companion.start();
    for (words, answer) in TALK {
        assert_eq!(companion.say(words), answer, "the reply to {words:?}");
    }

    // The pointer moved by itself, from the session that the first turn began.
    let history = companion.history();
    assert!(history.len() >= 2, "{history:?}");
    assert_eq!((history[0].0.as_ref(), history[0].2), (None, false));
    for pair in history.windows(2) {
        assert_eq!(pair[1].0.as_ref(), Some(&pair[0].1), "the history is a chain");
        assert!(pair[1].2, "every later change was an operation's");
    }
    assert_eq!(history.last().unwrap().1, companion.session());

    // What the API received last: all words once, in order; nothing of before the switch but words.
    let requests = companion.world.stub.main_requests();
    let current = companion.session();
    let (old, new): (Vec<Request>, Vec<Request>) =
        requests.into_iter().partition(|request| request.session() != Some(&current));
    let last = new.last().expect("the rebuilt session was asked at least once");
    assert_spoken_once(last, &TALK);
    let noisy: Vec<&str> = TALK
        .iter()
        .map(|talk| talk.0)
        .filter(|words| old.iter().any(|r| r.occurrences(&noise_of(words)) > 0))
        .collect();
    assert!(!noisy.is_empty(), "the session was dirty before the switch");
    for words in noisy {
        assert_eq!(last.occurrences(&noise_of(words)), 0, "tool output of before the switch: {words}");
    }
    assert!(
        old.iter().any(|request| request.occurrences(THOUGHT) > 0),
        "there was thinking before the switch"
    );
    assert_eq!(new[0].occurrences(THOUGHT), 0, "no thinking is carried");
    assert!(!new[0].view().iter().any(|block| block.contains("<result>") || block.contains("<Bash>")));

    assert!(
        companion.world.stub.requests().iter().all(|r| r.occurrences("root:x:0:0") == 0),
        "no mention was read"
    );

    // The old transcripts are as they were when they were frozen.
    let status = companion.json(&["status"]);
    let operation = &status["operation"];
    assert_eq!(operation["status"], "activated", "{operation:#}");
    let source = &history[history.len() - 2].1;
    let (frozen, live) = companion.frozen_and_live(operation, source);
    assert!(frozen == live, "the old transcript is byte-identical");

    companion.stop(runner);
    asked_and_rolled_back(&companion);
}

/// With `rebuild = "ask"` the runner asks and waits; a yes rebuilds; a rollback goes back.
fn asked_and_rolled_back(companion: &Companion) {
    companion.configure("dirty_budget_bytes = 60000", "rebuild = \"ask\"\nmin_gain_percent = 1");
    let before = companion.session();
    let runner = companion.start();
    let call = Reply::bash(&format!("seq -f '{NOISE} again %g' 1 6000"));
    companion.world.stub.on_tool_turn("look into the attic", call, Reply::text("The attic holds a drum."));
    companion.say("look into the attic");
    companion.say("My very last question: what did we build?");
    let status = companion.wait_for_status("the runner asks", |s| s["operation"]["status"] == "pending");
    assert_eq!(companion.session(), before, "nothing is switched without a yes");
    let operation = status["operation"]["operation_id"].as_str().unwrap().to_owned();

    let answer = companion.json(&["confirm", &operation, "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    let rebuilt = companion.session();
    assert_ne!(rebuilt, before);
    companion.world.stub.on_text("drum", Reply::text("Yes, a drum."));

    let answer = companion.json(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(answer["operation"]["status"], "rolled_back", "{answer:#}");
    assert_eq!(companion.session(), before, "the rollback went to the session before");
    assert_eq!(companion.say("Is there a drum?"), "Yes, a drum.");
    let last = companion.world.stub.last_main();
    assert!(last.occurrences(&format!("{NOISE} again")) > 0, "the old session is whole");
    assert_spoken_once(&last, &TALK);
    let tail: Vec<bool> = companion.history().iter().rev().take(2).map(|line| line.2).collect();
    assert_eq!(tail, [true, true]);
    companion.stop(runner);
}

#[test]
fn eight_turns_a_rebuild_and_the_way_back_on_the_stand_in() {
    eight_turns(Subject::StandIn);
}

#[test]
fn eight_turns_a_rebuild_and_the_way_back_on_the_real_cli() {
    if let Some(subject) = Subject::newest_real() {
        eight_turns(subject);
    }
}
