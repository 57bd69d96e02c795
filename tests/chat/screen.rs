//! The chat in a terminal, compared with what its screen must show.

use kael_runner::standin::context::Role;

use super::tmux::{self, Pane};
use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

/// The rows from the first that holds `from`, without times and ids.
fn from(screen: &str, from: &str) -> String {
    let rows: Vec<&str> = screen.lines().skip_while(|row| !row.contains(from)).collect();
    rows.join("\n")
}

/// Nothing goes on and nothing is typed: the row of the prompt is the last one.
fn at_rest(screen: &str) -> bool {
    screen.lines().last().is_some_and(|row| row == "›") && !screen.contains("Ctrl-C stops")
}

/// Types, pastes, resizes, interrupts: an evening in `run`.
fn an_evening(subject: Subject) {
    if !tmux::is_there() {
        return;
    }
    let companion = Companion::new(subject, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    stub.on_text("风筝", Reply::text("风筝是红色的 🪁。\n\n- 尾巴很长\n- it flies"));
    stub.on_text("row 20", Reply::text("Twenty rows, one message."));
    let gate = Gate::new();
    stub.on_text("a long story", Reply::text("Once upon a time there was a kite").pause_after(5, &gate));
    stub.on_text("and then", Reply::text("Then it flew on."));
    let pane = Pane::open(&companion, &["run"], 60, 20);
    pane.wait_for("the greeting", |s| s.contains("the first message begins a session") && at_rest(s));

    // Chinese and emoji: the cursor stands behind them, and editing takes whole ones.
    pane.type_in("我的风筝呢 🪁🪁");
    pane.wait_for("the typed words", |screen| screen.ends_with("› 我的风筝呢 🪁🪁"));
    assert_eq!(pane.cursor().1, 2 + 10 + 1 + 4);
    pane.press(&["BSpace", "Left", "Left", "Left", "DC"]);
    pane.wait_for("the edited words", |screen| screen.ends_with("› 我的风筝 🪁"));
    assert_eq!(pane.cursor().1, 2 + 8);
    pane.press(&["Enter"]);
    let screen = pane.wait_for("the reply", |screen| screen.contains("it flies") && at_rest(screen));
    let expected = "› 我的风筝 🪁\n\n风筝是红色的 🪁。\n\n- 尾巴很长\n- it flies\n›";
    assert_eq!(from(&screen, "› 我的"), expected);
    assert!(
        stub.last_main().texts(Role::User).contains(&"我的风筝 🪁".to_owned()),
        "the owner's words go bare"
    );

    // Twenty pasted lines are one message, and are shown scrolled while they are in the input.
    let lines: Vec<String> = (1..=20).map(|n| format!("row {n}: 第{n}行")).collect();
    let asked = stub.main_requests().len();
    pane.paste(&lines.join("\n"));
    let screen = pane.wait_for("the paste", |screen| screen.ends_with("row 20: 第20行"));
    assert!(
        screen.contains("row 11") && !screen.contains("row 10"),
        "half of the screen is the input:\n{screen}"
    );
    pane.press(&["Enter"]);
    pane.wait_for("the reply", |screen| screen.contains("Twenty rows, one message.") && at_rest(screen));
    assert_eq!(stub.main_requests().len(), asked + 1);
    assert!(stub.last_main().texts(Role::User).contains(&lines.join("\n")));
    assert_eq!(pane.all().matches("row 17: 第17行").count(), 1, "it stands there once:\n{}", pane.all());

    // Text comes while it is said; what is typed meanwhile stays whole; a resize does not garble it.
    pane.type_in("tell me a long story").press(&["Enter"]);
    pane.wait_for("the first words", |screen| screen.contains("Once upon"));
    let screen = pane.wait_for("the busy sign", |screen| screen.contains("Ctrl-C stops"));
    assert!(screen.lines().any(|row| row.contains("s · Ctrl-C stops")), "{screen}");
    pane.type_in("typed meanwhile 打字");
    for (columns, rows) in [(30, 12), (17, 8), (44, 16), (60, 20)] {
        pane.resize(columns, rows);
        let screen = pane.wait_for("the resized screen", |screen| {
            let rows: Vec<&str> = screen.lines().collect();
            let joined: String = rows.iter().map(|row| row.trim_start()).collect();
            // The words may be broken between two rows of a narrow terminal.
            joined.replace(' ', "").ends_with("›typedmeanwhile打字")
        });
        assert_eq!(screen.matches('›').count(), screen.lines().filter(|row| row.contains('›')).count());
        assert_eq!(screen.matches("Ctrl-C").count(), 1, "one busy sign at {columns} x {rows}:\n{screen}");
    }

    // Ctrl-C stops the turn, and what was being typed is emptied; nothing is tried again.
    let asked = stub.main_requests().len();
    pane.press(&["C-c"]);
    let screen = pane.wait_for("the stop", |screen| screen.contains("· stopped;") && at_rest(screen));
    assert!(from(&screen, "Once upon").starts_with("Once upon a"), "{screen}");
    gate.open();
    pane.type_in("and then?").press(&["Enter"]);
    let screen =
        pane.wait_for("the next reply", |screen| screen.contains("Then it flew on.") && at_rest(screen));
    assert_eq!(stub.main_requests().len(), asked + 1);
    assert!(!screen.contains("typed meanwhile"), "{screen}");

    // The history brings the message back, line by line.
    pane.press(&["Up", "Up"]);
    pane.wait_for("the one before", |screen| screen.ends_with("› tell me a long story"));
    pane.press(&["Down", "Down"]);
    pane.wait_for("the empty line", at_rest);

    pane.press(&["C-c"]);
    pane.wait_for("the hint", |screen| screen.contains("· Ctrl-C again leaves"));
    pane.press(&["C-c"]);
    let screen = pane.wait_for("the end", |screen| screen.contains("ended with"));
    assert!(screen.contains("ended with 0"), "{screen}");
    let log = companion.world.sandbox.state().join("runner.log");
    assert!(std::fs::read_to_string(log).unwrap().contains("the turn is running"));
    assert_eq!(companion.json(&["status"])["runner"]["lives"], false);
}

#[test]
fn an_evening_on_the_stand_in() {
    an_evening(Subject::StandIn);
}

#[test]
fn an_evening_on_the_real_cli() {
    if let Some(subject) = Subject::newest_real() {
        an_evening(subject);
    }
}

/// A runner in the background, two terminals on it, and a question that one of them answers.
#[test]
fn two_are_attached_and_one_says_yes() {
    if !tmux::is_there() {
        return;
    }
    let companion = Companion::new(
        Subject::StandIn,
        "dirty_budget_bytes = 30000",
        "rebuild = \"ask\"\nmin_gain_percent = 1",
    );
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("the shed", Reply::text("Ropes.").gate(&gate));
    stub.on_text("hello", Reply::text("Hello yourself."));
    let runner = companion.start();
    companion.say("hello");
    let one = Pane::open(&companion, &["attach"], 70, 24);
    let two = Pane::open(&companion, &["attach"], 50, 16);
    for pane in [&one, &two] {
        let screen = pane.wait_for("the past", |s| s.contains("Hello yourself.") && at_rest(s));
        assert!(from(&screen, "[send").ends_with("[send · user] hello\n\nHello yourself.\n›"), "{screen}");
    }
    stub.once(Reply::bash("sleep 2; seq -f 'NOISE %g' 1 9000"));
    one.type_in("look into the shed").press(&["Enter"]);
    two.wait_for("the tool at work", |screen| screen.contains("· Bash is at work ·"));
    two.wait_for("what the other said", |screen| screen.contains("› look into the shed"));
    gate.wait_reached(PATIENCE);
    gate.open();
    two.wait_for("the reply", |screen| screen.contains("Ropes."));
    let asked = "rebuild the session? y/n/l ›";
    let screen = two.wait_for("the question", |screen| screen.ends_with(asked));
    let question = from(&screen, "! a rebuild is asked for");
    for figure in ["carried: 2 of 2 turns", "dropped: ", "gain: from "] {
        assert!(question.contains(figure), "{question}");
    }
    one.wait_for("the question", |screen| screen.ends_with(asked));
    // The talk goes on meanwhile: a yes is one to the figures of the plan as it is then.
    companion.say("hello again");
    one.wait_for("what was said elsewhere", |screen| screen.contains("[send · user] hello again"));
    let before = companion.session();
    two.type_in("y").press(&["Enter"]);
    let again = |screen: &str| screen.contains("carried: 3 of 3 turns") && screen.ends_with(asked);
    let screen = two.wait_for("the question anew", again);
    assert!(screen.contains("! the conversation has gone on"), "{screen}");
    assert_eq!(companion.session(), before);
    two.type_in("y").press(&["Enter"]);
    for pane in [&one, &two] {
        pane.wait_for("the rebuild", |screen| screen.contains("the session was rebuilt") && at_rest(screen));
    }
    assert_ne!(companion.session(), before);

    one.type_in("/status").press(&["Enter"]);
    one.wait_for("the status", |screen| screen.contains("· runner     up") && at_rest(screen));
    one.type_in("/rollback").press(&["Enter"]);
    one.wait_for("the question", |screen| screen.ends_with("go back to the session before? y/n ›"));
    one.type_in("y").press(&["Enter"]);
    one.wait_for("the way back", |screen| screen.contains("is current again") && at_rest(screen));
    assert_eq!(companion.session(), before);
    assert!(!two.screen().contains("· runner     up"), "who asks is answered");

    // Leaving one leaves the other and the runner alone; a runner that ends takes the chat with it.
    one.press(&["C-d"]);
    one.wait_for("the end", |screen| screen.contains("ended with 0"));
    two.type_in("/help").press(&["Enter"]);
    two.wait_for("the help", |screen| screen.contains("/rollback"));
    companion.stop(runner);
    let screen = two.wait_for("the end", |screen| screen.contains("ended with"));
    assert!(screen.contains("ended with 1") && screen.contains("the runner has ended"), "{screen}");
}

#[test]
fn the_demo_goes_on_in_the_same_chat() {
    if !tmux::is_there() {
        return;
    }
    let companion = Companion::new(Subject::StandIn, "", "");
    let pane = Pane::open(&companion, &["demo", "--fast", "--chat"], 90, 30);
    pane.wait_for("the chat", |screen| screen.contains("told me 7 things") && at_rest(screen));
    pane.type_in("what was the first thing I said?").press(&["Enter"]);
    let replied = |screen: &str| {
        let after = screen.split_once("› what was the first").map_or("", |(_, after)| after);
        after.contains("red kite with a long tail")
    };
    pane.wait_for("the reply", |screen| replied(screen) && at_rest(screen));
    pane.type_in("/help").press(&["Enter"]);
    // The help itself says what Ctrl-C stops.
    pane.wait_for("the chat's help", |screen| screen.contains("/rebuild") && screen.ends_with('›'));
    pane.type_in("/quit").press(&["Enter"]);
    pane.wait_for("the end", |screen| screen.contains("ended with 0"));
    assert!(companion.world.sandbox.survivors().len() <= 4, "tmux and its shell are all that is left");
}

#[test]
fn a_closed_terminal_ends_the_demo_and_its_runner() {
    if !tmux::is_there() {
        return;
    }
    let companion = Companion::new(Subject::StandIn, "", "");
    let kept = companion.world.sandbox.path("kept");
    let pane =
        Pane::open(&companion, &["demo", "--fast", "--chat", "--keep", kept.to_str().unwrap()], 90, 30);
    pane.wait_for("the chat", |screen| screen.contains("told me 7 things") && at_rest(screen));
    let lock = kept.join("state/resume_session.runner");
    assert!(kael_core::disk::is_locked(&lock).unwrap(), "its runner lives");
    drop(pane);
    wait_until("the runner has ended", || !kael_core::disk::is_locked(&lock).unwrap());
}
