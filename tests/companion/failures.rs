//! What must not be taken for a reply, must not double a message, and must not lose one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kael_runner::standin::context::Role;
use rustix::process::Signal;

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;
use crate::support::{PATIENCE, wait_until};

fn subjects() -> Vec<Subject> {
    let mut all = vec![Subject::StandIn];
    all.extend(Subject::real("2.1.332"));
    all.extend(Subject::real("2.1.199"));
    all
}

fn on_each(scenario: impl Fn(&Companion)) {
    for subject in subjects() {
        eprintln!("on {subject:?}");
        scenario(&Companion::new(subject, "", "rebuild = \"off\""));
    }
}

/// The human texts of the last request that hold these words.
fn heard(companion: &Companion, words: &str) -> usize {
    companion.world.stub.last_main().texts(Role::User).iter().filter(|text| text.contains(words)).count()
}

#[test]
fn an_api_error_is_no_reply_and_the_message_is_answered_once() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_text("hello", Reply::text("Hello yourself."));
        stub.on_text("cloudy", Reply::text("It will clear up."));
        stub.on_text_times("cloudy", 1, Reply::error(500, "api_error", "an internal error"));
        let runner = companion.start();
        assert_eq!(companion.say("hello"), "Hello yourself.");
        assert_eq!(companion.say("it is cloudy"), "It will clear up.");
        assert_eq!(heard(companion, "it is cloudy"), 1, "the message is in the request once");
        let last = stub.last_main();
        assert_eq!(last.occurrences("an internal error"), 0);
        assert_eq!(last.occurrences("No response requested"), 0);
        assert_eq!(companion.say("hello again"), "Hello yourself.");
        assert_eq!(heard(companion, "it is cloudy"), 1, "and once in the next one");
        companion.stop(runner);
    });
}

#[test]
fn a_first_turn_that_fails_begins_another_session_and_the_pointer_follows() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_text("the very first", Reply::text("Welcome."));
        stub.on_text_times("the very first", 1, Reply::error(500, "api_error", "an internal error"));
        let runner = companion.start();
        assert_eq!(companion.say("the very first"), "Welcome.");
        assert_eq!(heard(companion, "the very first"), 1);
        let history = companion.history();
        assert_eq!(history.last().unwrap().1, companion.session());
        assert_eq!(companion.say("the very first, again"), "Welcome.");
        assert_eq!(stub.last_main().texts(Role::User).len(), 2, "both are in one conversation");
        companion.stop(runner);
    });
}

#[test]
fn a_kill_of_runner_and_cli_before_the_answer_neither_loses_nor_doubles_the_message() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let gate = Gate::new();
        stub.on_text("hello", Reply::text("Hello yourself."));
        stub.on_text("slow", Reply::text("At last."));
        stub.on_text_times("slow", 1, Reply::text("Never seen.").gate(&gate));
        let runner = companion.start();
        companion.say("hello");
        companion.run(&["send", "--key", "slow-1", "a slow one"]).expect_code(0);
        gate.wait_reached(PATIENCE);
        runner.signal(Signal::KILL);
        runner.wait(PATIENCE);
        for pid in companion.world.sandbox.survivors() {
            rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
        }
        let runner = companion.start();
        let reply = companion.run(&["send", "--wait", "--key", "slow-1", "a slow one"]).expect_code(0);
        assert_eq!(reply.lines, ["At last."]);
        assert_eq!(heard(companion, "a slow one"), 1);
        assert_eq!(stub.last_main().occurrences("No response requested"), 0);
        companion.say("hello again");
        assert_eq!(heard(companion, "a slow one"), 1);
        companion.stop(runner);
    });
}

#[test]
fn an_orphan_that_finishes_its_answer_is_a_receipt() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        let gate = Gate::new();
        stub.on_text("slow", Reply::text("Answered by the orphan.").gate(&gate));
        let runner = companion.start();
        companion.run(&["send", "--key", "slow-1", "a slow one"]).expect_code(0);
        gate.wait_reached(PATIENCE);
        runner.signal(Signal::KILL);
        runner.wait(PATIENCE);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            gate.open();
        });
        let runner = companion.start();
        opener.join().unwrap();
        let reply = companion.run(&["send", "--wait", "--key", "slow-1", "a slow one"]).expect_code(0);
        assert_eq!(reply.lines, ["Answered by the orphan."]);
        assert_eq!(stub.main_requests().len(), 1, "nothing was asked twice");
        companion.stop(runner);
    });
}

#[test]
fn a_message_that_is_refused_again_and_again_is_a_dead_letter_and_the_next_one_goes_on() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nmax_attempts = 2");
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text("cursed", Reply::error(400, "invalid_request_error", "messages: nonsense"));
    let runner = companion.start();
    companion.say("hello");
    let failed = companion.run(&["send", "--wait", "--key", "k", "a cursed one"]).expect_code(1);
    assert!(failed.stderr.contains("was given up: it failed 2 times"), "{}", failed.stderr);
    assert!(failed.lines.is_empty(), "an error is no reply");
    assert_eq!(companion.json(&["status"])["messages"]["dead"], 1);
    assert_eq!(companion.say("hello again"), "Hello yourself.");
    assert_eq!(heard(&companion, "a cursed one"), 0, "what is given up is taken out of the conversation");
    companion.stop(runner);
}

/// A program that stands where the CLI is expected.
fn impostor(companion: &Companion, script: &str) {
    let path = companion.world.sandbox.path("bin/claude");
    fs::remove_file(&path).unwrap();
    let text =
        format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '2.1.332 (impostor)'; exit; }}\n{script}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_an_impostor_prints_is_no_reply() {
    let session = "11111111-2222-4333-8444-555555555555";
    let result = |id: &str| {
        format!(
            r#"echo '{{"type":"result","subtype":"success","is_error":false,"result":"I am fake","session_id":"{id}"}}'"#
        )
    };
    for (script, told) in [
        (format!("cat >/dev/null; {}", result("$KAEL_NOTHING")), "holds no answer"),
        (format!("cat >/dev/null; {}", result(session)), "ran in 11111111-2222-4333-8444-555555555555"),
        ("cat >/dev/null; echo 'it went wrong' >&2; exit 7".to_owned(), "exit status: 7): it went wrong"),
        ("echo garbage; exit 0".to_owned(), "without a result"),
    ] {
        let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nmax_attempts = 1");
        // The second script reports a session that nobody asked for; the first none at all.
        let script = script.replace(r#","session_id":"$KAEL_NOTHING""#, "");
        impostor(&companion, &script);
        companion.run(&["send", "hello"]).expect_code(0);
        let held = told.starts_with("ran in");
        let outcome = companion.run(&["run", "--until-idle"]).expect_code(i32::from(held));
        assert!(outcome.stderr.contains(told), "{told:?} in {}", outcome.stderr);
        assert!(companion.refused(&["pointer", "show"], 1).contains("there is no resume pointer"));
        let state = if held { "delivering" } else { "dead" };
        assert_eq!(companion.json(&["status"])["messages"][state], 1);
    }
}

#[test]
fn a_vanished_session_holds_the_queue_and_no_fresh_one_is_begun() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    companion.run(&["send", "hello"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let session = companion.session();
    let transcript = companion.world.sandbox.transcript(&session);
    let aside = companion.world.sandbox.path("aside.jsonl");
    fs::rename(&transcript, &aside).unwrap();
    // Where there is a copy, its way back is said instead.
    fs::remove_dir_all(companion.world.sandbox.state().join("kept")).unwrap();
    companion.run(&["send", "are you there?"]).expect_code(0);
    let outcome = companion.run(&["run", "--until-idle"]).expect_code(1);
    assert!(outcome.stderr.contains("there is no transcript"), "{}", outcome.stderr);
    assert_eq!(companion.session(), session, "the pointer stays");
    fs::rename(&aside, &transcript).unwrap();
    companion.json(&["retry"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 2);

    fs::remove_file(companion.world.sandbox.state().join("resume_session")).unwrap();
    companion.run(&["send", "and now?"]).expect_code(0);
    let outcome = companion.run(&["run", "--until-idle"]).expect_code(1);
    assert!(outcome.stderr.contains("is gone although it has a history"), "{}", outcome.stderr);
    companion.json(&["pointer", "set", &session, "--expect", "none"]);
    companion.json(&["retry"]);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.session(), session);
}

/// A disk that takes nothing for a moment: the row of the message is lost, and the ones after it are written.
fn lose_the_row(companion: &Companion, gate: &Gate) {
    gate.wait_reached(PATIENCE);
    let transcript = companion.world.sandbox.transcript(&companion.session());
    let text = fs::read_to_string(&transcript).unwrap();
    let kept: String = text.split_inclusive('\n').filter(|line| !line.contains("of the disk")).collect();
    fs::write(&transcript, kept).unwrap();
    gate.open();
}

#[test]
fn an_answer_that_hangs_on_nothing_does_not_cut_the_conversation_off() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_text("red kite", Reply::text("A red one."));
        let gate = Gate::new();
        companion.run(&["send", "I have a red kite"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        let runner = companion.start();
        stub.on_text("of the disk", Reply::text("It was full.").gate(&gate));
        companion.run(&["send", "--key", "d", "what of the disk?"]).expect_code(0);
        lose_the_row(companion, &gate);
        let reply = companion.run(&["send", "--wait", "--key", "d", "x"]).expect_code(0);
        assert_eq!(reply.lines, ["It was full."]);
        assert_eq!(heard(companion, "red kite"), 1, "{:#?}", stub.last_main().view());
        assert_eq!(heard(companion, "of the disk"), 1, "{:#?}", stub.last_main().view());
        stub.on_text("go on", Reply::text("Gladly."));
        assert_eq!(companion.say("go on"), "Gladly.");
        assert_eq!(heard(companion, "red kite"), 1, "{:#?}", stub.last_main().view());
        companion.stop(runner);
    });
}

#[test]
fn tools_that_ran_in_rows_that_hang_on_nothing_hold_the_queue() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    companion.run(&["send", "I have a red kite"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let gate = Gate::new();
    stub.on_tool_turn(
        "of the disk",
        Reply::bash("echo once >> effects").gate(&gate),
        Reply::text("It was full."),
    );
    let runner = companion.start();
    companion.run(&["send", "--key", "d", "what of the disk?"]).expect_code(0);
    lose_the_row(&companion, &gate);
    let refused = companion.run(&["send", "--wait", "--key", "d", "x"]).expect_code(1).stderr;
    assert!(refused.contains("hangs on nothing") && refused.contains("tools ran there"), "{refused}");
    let effects = fs::read_to_string(companion.world.sandbox.path("work/effects")).unwrap();
    assert_eq!(effects, "once\n", "it is not run again");
    companion.stop(runner);
}

#[test]
fn a_message_that_never_arrived_is_sent_again_with_the_same_bytes() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nmax_attempts = 9");
    let arrived = companion.world.sandbox.path("arrived");
    // The first two runs take the message and end without a trace of it.
    let real = env!("CARGO_BIN_EXE_kael-runner");
    impostor(
        &companion,
        &format!(
            "n=$(ls {0}.* 2>/dev/null | wc -l); cat > {0}.$n; [ $n -lt 2 ] && exit 1; exec {real} stand-in-claude \"$@\" < {0}.$n",
            arrived.display()
        ),
    );
    companion.run(&["send", "hello"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let sent: Vec<Vec<u8>> =
        (0..3).map(|n| fs::read(companion.world.sandbox.path(&format!("arrived.{n}"))).unwrap()).collect();
    assert!(sent[0] == sent[1] && sent[1] == sent[2], "the same bytes, the same uuid");
    assert_eq!(companion.world.stub.main_requests().len(), 1);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 1);
}

#[test]
fn an_attempt_that_never_arrives_after_one_that_failed_does_not_double_the_message() {
    on_each(|companion| {
        let stub = &companion.world.stub;
        stub.on_text("hello", Reply::text("Hello yourself."));
        stub.on_text("cloudy", Reply::text("It will clear up."));
        stub.on_text_times("cloudy", 1, Reply::error(500, "api_error", "an internal error"));
        companion.run(&["send", "hello"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        // The second run of the next message ends before it has read anything.
        let sandbox = &companion.world.sandbox;
        let (program, count) = (sandbox.path("bin/claude"), sandbox.path("count"));
        let real = fs::read_link(&program).unwrap();
        let name = if companion.world.subject == Subject::StandIn { " stand-in-claude" } else { "" };
        let version = companion.world.subject.version();
        fs::remove_file(&program).unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '{version} (Claude Code)'; exit; }}\n\
             echo x >> {0}; [ $(wc -l < {0}) = 2 ] && exit 1\nexec {1}{name} \"$@\"\n",
            count.display(),
            real.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let runner = companion.start();
        assert_eq!(companion.say("it is cloudy"), "It will clear up.");
        assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 3, "three runs");
        assert_eq!(heard(companion, "it is cloudy"), 1, "{:#?}", stub.last_main().view());
        companion.say("hello again");
        assert_eq!(heard(companion, "it is cloudy"), 1);
        companion.stop(runner);
    });
}

#[test]
fn a_second_runner_is_refused_and_told_who_holds_the_lock() {
    let companion = Companion::new(Subject::StandIn, "", "");
    let runner = companion.start();
    let error = companion.refused(&["run"], 6);
    assert!(error.contains(&format!("{}", runner.pid().as_raw_nonzero())), "{error}");
    companion.stop(runner);
}

#[test]
fn an_interrupted_wait_ends_with_the_runner_and_the_message_is_answered_by_the_next() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"\nstop_timeout = \"1s\"");
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text_times("hello", 1, Reply::hang());
    let runner = companion.start();
    let waiting = Running::spawn(&mut companion.command(&["send", "--wait", "hello"]));
    stub.wait_main(1, PATIENCE);
    runner.signal(Signal::TERM);
    runner.wait(PATIENCE).expect_code(0);
    wait_until("nothing of the turn lives", || companion.world.sandbox.survivors().len() <= 1);
    let runner = companion.start();
    assert_eq!(waiting.wait(PATIENCE).expect_code(0).lines, ["Hello yourself."]);
    assert_eq!(heard(&companion, "hello"), 1);
    drop(gate);
    companion.stop(runner);
}

#[test]
fn a_conversation_that_no_longer_fits_is_rebuilt_and_the_waiting_message_answered_once() {
    on_each(|companion| {
        companion.configure("stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
        let stub = &companion.world.stub;
        stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("The shed holds ropes."));
        stub.on_text("attic", Reply::text("The attic holds a drum."));
        let runner = companion.start();
        companion.say("look into the shed");
        // As the API does: what is too long stays too long, however often it is asked.
        stub.on(|request| {
            let text = "prompt is too long: 250000 tokens > 200000 maximum";
            let noisy =
                request.ends_with_results() || request.view().iter().any(|block| block == "U:<result>");
            noisy.then(|| Reply::error(400, "invalid_request_error", text))
        });
        let failed = companion.run(&["send", "--wait", "--key", "k", "what is in the attic?"]).expect_code(1);
        assert!(failed.stderr.contains("`kael-runner confirm` says yes"), "{}", failed.stderr);
        let before = companion.session();
        companion.json(&["confirm", "--yes"]);
        let reply = companion.run(&["send", "--wait", "--key", "k", "what is in the attic?"]).expect_code(0);
        assert_eq!(reply.lines, ["The attic holds a drum."]);
        assert_ne!(companion.session(), before);
        assert_eq!(heard(companion, "what is in the attic?"), 1);
        assert_eq!(stub.last_main().texts(Role::User).len(), 2);
        assert!(companion.json(&["status"])["hold"].is_null());
        companion.stop(runner);
    });
}

#[test]
fn a_pointer_changed_by_others_during_a_turn_counts_from_the_next_one_on() {
    on_each(pointer_changed);
}

fn pointer_changed(companion: &Companion) {
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text("slow", Reply::text("At last.").gate(&gate));
    let runner = companion.start();
    companion.say("hello");
    let (old, foreign) = (companion.session(), "11111111-2222-4333-8444-555555555555");
    let sandbox = &companion.world.sandbox;
    fs::copy(sandbox.transcript(&old), sandbox.transcript(foreign)).unwrap();
    companion.run(&["send", "--key", "s", "a slow one"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    fs::write(sandbox.state().join("resume_session"), foreign).unwrap();
    gate.open();
    assert_eq!(
        companion.run(&["send", "--wait", "--key", "s", "a slow one"]).expect_code(0).lines,
        ["At last."]
    );
    assert_eq!(companion.session(), foreign, "what others wrote stays");
    companion.say("hello again");
    assert_eq!(stub.last_main().session(), Some(foreign));
    assert_eq!(heard(companion, "a slow one"), 0, "that was said in the other session");
    companion.stop(runner);
}

/// A turn that an orphan has answered, and no runner knows of it yet.
fn answered_and_unknown(companion: &Companion) {
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("hello", Reply::text("Hello yourself."));
    stub.on_text("slow", Reply::text("Answered by the orphan.").gate(&gate));
    let runner = companion.start();
    companion.run(&["send", "--key", "slow-1", "a slow one"]).expect_code(0);
    gate.wait_reached(PATIENCE);
    runner.signal(Signal::KILL);
    runner.wait(PATIENCE);
    gate.open();
    let transcript = companion.world.sandbox.transcript(&companion.session());
    wait_until("the orphan has answered", || {
        fs::read_to_string(&transcript).is_ok_and(|text| text.contains("Answered by the orphan."))
    });
}

fn assert_answered_once(companion: &Companion) {
    let asked = companion.world.stub.main_requests().len();
    let runner = companion.start();
    let reply = companion.run(&["send", "--wait", "--key", "slow-1", "x"]).expect_code(0);
    assert_eq!(reply.lines, ["Answered by the orphan."]);
    assert_eq!(companion.world.stub.main_requests().len(), asked, "nothing is asked twice");
    companion.say("hello again");
    companion.stop(runner);
}

#[test]
fn an_operator_who_sets_the_pointer_before_an_answer_is_acknowledged_loses_nothing() {
    on_each(|companion| {
        companion.run(&["send", "hello"]).expect_code(0);
        companion.world.stub.on_text("hello", Reply::text("Hello yourself."));
        companion.run(&["run", "--until-idle"]).expect_code(0);
        let (old, foreign) = (companion.session(), "11111111-2222-4333-8444-555555555555");
        let sandbox = &companion.world.sandbox;
        fs::copy(sandbox.transcript(&old), sandbox.transcript(foreign)).unwrap();
        answered_and_unknown(companion);
        companion.json(&["pointer", "set", foreign]);
        assert_eq!(
            companion.json(&["status"])["messages"]["answered"],
            2,
            "the answer is acknowledged first"
        );
        assert_answered_once(companion);
        assert_eq!(companion.session(), foreign);
        assert_eq!(heard(companion, "a slow one"), 0, "that was said in the other session");
    });
}

#[test]
fn an_operator_who_activates_before_an_answer_is_acknowledged_loses_nothing() {
    on_each(|companion| {
        companion.configure("stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
        let stub = &companion.world.stub;
        stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("The shed holds ropes."));
        companion.run(&["send", "look into the shed"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        companion.json(&["request", "--reason", "slow"]);
        companion.run(&["prepare"]).expect_code(0);
        let before = companion.session();
        answered_and_unknown(companion);
        // The candidate does not hold what was said since.
        let refused = companion.run(&["confirm", "--yes"]);
        assert_ne!(refused.code(), 0, "{refused:?}");
        assert_eq!(companion.session(), before);
        assert_eq!(companion.json(&["status"])["messages"]["answered"], 2);
        assert_answered_once(companion);
        assert_eq!(heard(companion, "a slow one"), 1);
    });
}
