//! `attach.sock` without a terminal: what two clients that are attached at once hear and may ask.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

use kael_runner::standin::context::Role;
use serde_json::{Value, json};

use crate::stubs::gate::Gate;
use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

/// One client, and everything it was told so far.
struct Attached {
    write: UnixStream,
    read: BufReader<UnixStream>,
    heard: Vec<Value>,
}

impl Attached {
    fn to(companion: &Companion) -> Self {
        let stream = UnixStream::connect(companion.world.sandbox.state().join("attach.sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { write: stream.try_clone().unwrap(), read: BufReader::new(stream), heard: Vec::new() }
    }

    fn ask(&mut self, line: &Value) {
        writeln!(self.write, "{line}").unwrap();
    }

    /// The next line; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.read.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                let value: Value = serde_json::from_str(&line).unwrap();
                self.heard.push(value.clone());
                Some(value)
            }
            Err(error) => panic!("nothing more was heard ({error}) after {:#?}", self.heard),
        }
    }

    /// Reads until a line of this type satisfies the predicate.
    fn until(&mut self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next().unwrap_or_else(|| panic!("the end before {kind}: {:#?}", self.heard));
            if line["type"] == kind && wanted(&line) {
                return line;
            }
        }
    }

    fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.heard.iter().filter(|line| line["type"] == kind).collect()
    }
}

fn any(_: &Value) -> bool {
    true
}

#[test]
fn what_one_says_all_see_and_the_text_comes_while_it_is_said() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("风筝", Reply::text("The kite 🪁 is red.").pause_after(4, &gate));
    stub.on_text("/clear", Reply::text("Nothing is cleared."));
    let runner = companion.start();
    let mode = std::fs::metadata(companion.world.sandbox.state().join("attach.sock")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    let (mut one, mut two) = (Attached::to(&companion), Attached::to(&companion));
    for client in [&mut one, &mut two] {
        let hello = client.next().unwrap();
        assert_eq!((&hello["type"], &hello["schema"]), (&json!("hello"), &json!(1)));
    }
    let words = "风筝？\n\t@/etc/passwd  ";
    one.ask(&json!({ "type": "say", "key": "k-1", "words": words }));
    one.ask(&json!({ "type": "say", "key": "k-1", "words": words }));
    assert_eq!(one.until("accepted", any)["duplicate"], false);
    assert_eq!(one.until("accepted", any)["duplicate"], true, "the same key is one message");
    for client in [&mut one, &mut two] {
        while !client.heard.iter().any(|line| line["type"] == "part") {
            client.next();
        }
        let said = client.of_type("said");
        assert_eq!(said.len(), 1);
        assert_eq!((&said[0]["words"], &said[0]["front"]), (&json!(words), &json!("terminal")));
        assert!(client.of_type("reply").is_empty(), "the text comes before the reply is whole");
    }
    // Who attaches in the middle of it hears what was streamed so far.
    let mut late = Attached::to(&companion);
    let so_far = late.until("part", any)["text"].as_str().unwrap().to_owned();
    assert!("The kite 🪁 is red.".starts_with(&so_far) && !so_far.is_empty(), "{so_far:?}");
    gate.open();
    for client in [&mut one, &mut two, &mut late] {
        assert_eq!(client.until("turn_ended", any)["outcome"], "answered");
        let text: String = client.of_type("part").iter().filter_map(|part| part["text"].as_str()).collect();
        assert_eq!(text, "The kite 🪁 is red.", "no piece is missed or doubled");
        let replies = client.of_type("reply");
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0]["words"], "The kite 🪁 is red.");
        assert_eq!(replies[0]["message_id"], client.of_type("part")[0]["message_id"]);
    }
    // The owner's words went as they are; those that could be a command did not.
    assert!(stub.last_main().texts(Role::User).contains(&words.to_owned()));
    two.ask(&json!({ "type": "say", "key": "k-2", "words": " /clear" }));
    assert_eq!(one.until("said", any)["words"], " /clear");
    assert_eq!(one.until("reply", any)["words"], "Nothing is cleared.");
    let sent = stub.last_main().texts(Role::User).pop().unwrap();
    assert!(sent.starts_with("<channel source=\"terminal\""), "{sent}");

    // What comes through another front is heard too, and the past by who attaches later.
    companion.say("through the spool");
    assert_eq!(two.until("said", |said| said["front"] == "send")["words"], "through the spool");
    let mut later = Attached::to(&companion);
    later.until("reply", |reply| reply["past"] == true);
    later.until("said", |said| said["words"] == "through the spool");
    companion.stop(runner);
    for mut client in [one, two, later] {
        client.until("bye", any);
        assert_eq!(client.next(), None);
    }
}

#[test]
fn a_question_is_answered_by_one_and_closed_for_all() {
    let companion = Companion::new(
        Subject::StandIn,
        "dirty_budget_bytes = 30000",
        "rebuild = \"ask\"\nmin_gain_percent = 1",
    );
    let stub = &companion.world.stub;
    stub.on_tool_turn("look into the shed", Reply::bash("seq -f 'NOISE %g' 1 9000"), Reply::text("Ropes."));
    let runner = companion.start();
    let (mut one, mut two) = (Attached::to(&companion), Attached::to(&companion));
    companion.say("hello");
    companion.say("look into the shed");
    companion.say("and now?");
    let question = one.until("question", any);
    assert_eq!(two.until("question", any), question);
    assert_eq!(question["figures"].as_array().unwrap().len(), 3);
    let before = companion.session();

    // The conversation goes on: a yes to the old figures is none, and they are shown anew.
    companion.say("one more thing");
    let answer = |question: &Value, yes: bool| json!({ "type": "answer", "id": 7, "operation": question["operation"], "digest": question["digest"], "yes": yes });
    one.ask(&answer(&question, true));
    let refused = one.until("result", any);
    assert_eq!((&refused["ok"], &refused["id"]), (&json!(false), &json!(7)), "{refused}");
    assert_eq!(companion.session(), before);
    let again = two.until("question", any);
    assert_ne!(again["digest"], question["digest"]);
    two.ask(&answer(&again, true));
    assert_eq!(two.until("result", any)["ok"], true);
    let closed = one.until("question_closed", any);
    assert!(closed["outcome"].as_str().unwrap().contains("the session was rebuilt"), "{closed}");
    assert_ne!(companion.session(), before);

    // Commands are answered to who asks.
    for (id, name, wanted) in [(1, "status", "runner"), (2, "dirty", "speech"), (3, "plan", "plan for")] {
        two.ask(&json!({ "type": "command", "id": id, "name": name }));
        let result = two.until("result", |line| line["id"] == id);
        assert!(result["text"].as_str().unwrap().contains(wanted), "{result}");
    }
    two.ask(&json!({ "type": "command", "id": 4, "name": "rollback" }));
    assert_eq!(two.until("result", |line| line["id"] == 4)["ok"], true);
    assert_eq!(companion.session(), before);
    two.ask(&json!({ "type": "command", "id": 5, "name": "rebuild" }));
    let question = one.until("question", any);
    one.ask(&answer(&question, false));
    two.until("question_closed", any);
    assert_eq!(companion.session(), before);
    for (asked, wanted) in [("shout", "not understood"), ("{", "not understood")] {
        one.ask(&json!({ "type": asked }));
        assert!(one.until("error", any)["text"].as_str().unwrap().contains(wanted));
    }
    companion.stop(runner);
}

fn a_stopped_turn_is_done(subject: Subject) {
    let companion = Companion::new(subject, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    stub.on_text("hello", Reply::text("Hello yourself."));
    let gate = Gate::new();
    stub.on_text("tell a story", Reply::text("Once upon a time there was").pause_after(6, &gate));
    stub.on_text("what was that", Reply::text("You stopped me."));
    let runner = companion.start();
    let mut client = Attached::to(&companion);
    companion.say("hello");
    client.until("turn_ended", any);
    client.ask(&json!({ "type": "say", "key": "s", "words": "tell a story" }));
    let turn = client.until("part", any)["turn"].clone();
    let asked = stub.main_requests().len();
    client.ask(&json!({ "type": "stop", "turn": 999 }));
    client.ask(&json!({ "type": "stop", "turn": turn }));
    let ended = client.until("turn_ended", any);
    assert_eq!(ended["outcome"], "stopped");
    let parts = client.of_type("part").into_iter().filter(|part| part["turn"] == turn);
    let streamed: String = parts.filter_map(|part| part["text"].as_str()).collect();
    assert!(!streamed.is_empty() && "Once upon a time there was".starts_with(&streamed));
    gate.open();
    let status = companion.json(&["status"]);
    assert_eq!((&status["turn"], &status["hold"]), (&Value::Null, &Value::Null), "{status:#}");
    assert_eq!(stub.main_requests().len(), asked, "a stopped turn is not tried again");

    assert_eq!(companion.say("what was that"), "You stopped me.");
    let last = stub.last_main();
    let human = last.texts(Role::User);
    assert_eq!(human.iter().filter(|text| text.contains("tell a story")).count(), 1, "{human:#?}");
    // What the human saw is in the conversation.
    let kept = last.texts(Role::Assistant).iter().any(|text| text.starts_with(&streamed));
    assert!(kept, "{streamed:?} is not in {:#?}", last.view());
    assert_eq!(ended["kept"].as_array().unwrap().len(), 1, "{ended}");
    companion.stop(runner);
}

#[test]
fn a_stopped_turn_is_done_on_the_stand_in() {
    a_stopped_turn_is_done(Subject::StandIn);
}

#[test]
fn a_stopped_turn_is_done_on_the_real_cli() {
    for version in ["2.1.332", "2.1.199"] {
        if let Some(subject) = Subject::real(version) {
            eprintln!("on {version}");
            a_stopped_turn_is_done(subject);
        }
    }
}

#[test]
fn a_stop_inside_a_tool_ends_the_tool_and_holds_nothing() {
    for subject in [Some(Subject::StandIn), Subject::newest_real()].into_iter().flatten() {
        let companion = Companion::new(subject, "", "rebuild = \"off\"");
        let stub = &companion.world.stub;
        let mark = companion.world.sandbox.path("work/tool-is-done");
        let command = format!("tail -f /dev/null; touch {}", mark.display());
        stub.on_tool_turn("work hard", Reply::bash(&command), Reply::text("Never said."));
        stub.on_text("and now", Reply::text("Here I am."));
        let runner = companion.start();
        let mut client = Attached::to(&companion);
        client.ask(&json!({ "type": "say", "key": "w", "words": "work hard" }));
        let tool = client.until("tool", any);
        assert_eq!(tool["name"], "Bash");
        std::thread::sleep(std::time::Duration::from_millis(500));
        client.ask(&json!({ "type": "stop", "turn": tool["turn"] }));
        assert_eq!(client.until("turn_ended", any)["outcome"], "stopped");
        assert_eq!(companion.json(&["status"])["hold"], Value::Null);
        assert_eq!(companion.say("and now"), "Here I am.");
        assert!(!mark.exists());
        companion.stop(runner);
    }
}

/// What is delivered with a mark shows it.
#[test]
fn a_refused_tool_is_told_of() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    let call = Reply::empty().and_tool("Bash", json!({ "command": "true", "description": "work" }));
    stub.on_tool_turn("try it", call, Reply::text("I could not."));
    let text = std::fs::read_to_string(companion.world.sandbox.path("config.toml")).unwrap();
    let text = text.replace("args = [\"--allowedTools\", \"Bash\"]", "args = [\"--allowedTools\", \"Read\"]");
    companion.world.sandbox.write("config.toml", text);
    let runner = companion.start();
    let mut client = Attached::to(&companion);
    client.ask(&json!({ "type": "say", "key": "t", "words": "try it" }));
    assert_eq!(client.until("turn_ended", any)["outcome"], "answered");
    let line = client.until("line", any);
    assert!(line["level"] == "warning" && line["text"].as_str().unwrap().contains("Bash"), "{line}");
    companion.stop(runner);
}

#[test]
fn a_turn_that_waits_to_be_tried_again_can_be_given_up() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    stub.on_text("the broken one", Reply::error(500, "api_error", "broken"));
    stub.on_text("the next one", Reply::text("Here."));
    let runner = companion.start();
    let mut client = Attached::to(&companion);
    client.ask(&json!({ "type": "command", "id": 1, "name": "give_up" }));
    let refused = client.until("result", any);
    assert_eq!(refused["ok"], false, "{refused}");
    assert!(refused["text"].as_str().unwrap().contains("nothing to give up"), "{refused}");
    client.ask(&json!({ "type": "say", "key": "k-1", "words": "the broken one" }));
    client.until("line", |line| {
        line["text"].as_str().is_some_and(|text| text.contains("it is tried again at"))
    });
    client.ask(&json!({ "type": "command", "id": 2, "name": "give_up" }));
    let done = client.until("result", |line| line["id"] == 2);
    assert_eq!(done["ok"], true, "{done}");
    assert_eq!(companion.say("the next one"), "Here.");
    assert!(companion.json(&["status"])["next_retry"].is_null());
    companion.stop(runner);
}

/// A runner that dies between the stop and the end of the run must not try the turn again.
#[test]
fn a_stop_survives_a_crash() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let stub = &companion.world.stub;
    let gate = Gate::new();
    stub.on_text("tell a story", Reply::text("Once upon a time").gate(&gate));
    companion.configure("", "rebuild = \"off\"");
    let runner = companion.start();
    let mut client = Attached::to(&companion);
    client.ask(&json!({ "type": "say", "key": "s", "words": "tell a story" }));
    let turn = client.until("turn_started", any)["turn"].clone();
    gate.wait_reached(PATIENCE);
    // The CLI is stopped in its tracks, so that it cannot end before the runner is killed.
    let cli: Vec<i32> = companion.world.sandbox.survivors();
    let own = runner.pid().as_raw_nonzero().get();
    for pid in cli.into_iter().filter(|pid| *pid != own) {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    client.ask(&json!({ "type": "stop", "turn": turn }));
    client.ask(&json!({ "type": "command", "id": 1, "name": "status" }));
    client.until("result", any);
    runner.signal(rustix::process::Signal::KILL);
    runner.wait(PATIENCE);
    let runner = companion.start();
    companion.wait_for_status("the turn is closed", |status| status["turn"] == Value::Null);
    assert_eq!(stub.main_requests().len(), 1);
    companion.stop(runner);
}

const SOCKET: &str = "KAEL_TEST_ATTACH_SOCKET";

/// What [`a_process_inside_a_turn_is_not_let_in`] runs in a process of its own.
#[test]
#[ignore = "the other process of a_process_inside_a_turn_is_not_let_in"]
fn a_client_inside_a_turn() {
    let mut stream = UnixStream::connect(std::env::var_os(SOCKET).unwrap()).unwrap();
    // The runner may have closed it by then.
    writeln!(stream, "{}", json!({ "type": "say", "key": "x", "words": "I say yes" })).ok();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        println!("{line}");
    }
}

/// A model with a shell must neither speak as its human nor say yes for them.
#[test]
fn a_process_inside_a_turn_is_not_let_in() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let runner = companion.start();
    let mut command: Command = companion.command(&["attach", "--json"]);
    command.env("KAEL_INVOCATION", uuid::Uuid::new_v4().to_string());
    let refused = Running::spawn(&mut command).wait(PATIENCE).expect_code(3);
    assert!(refused.stderr.contains("inside a turn"), "{refused:?}");
    // Nor by going to the socket itself.
    let mut command = companion.world.sandbox.command(std::env::current_exe().unwrap());
    command.args(["--exact", "chat::protocol::a_client_inside_a_turn", "--ignored", "--nocapture"]);
    command.env(SOCKET, companion.world.sandbox.state().join("attach.sock"));
    command.env("KAEL_INVOCATION", uuid::Uuid::new_v4().to_string());
    let outcome = Running::spawn(&mut command).wait(PATIENCE);
    let heard = outcome.lines.join("\n");
    assert!(heard.contains("inside a turn") && !heard.contains("accepted"), "{outcome:?}");
    assert_eq!(companion.json(&["status"])["messages"], json!({}));

    // The same lines, for a program outside: its standard input may end.
    let lines = Running::spawn(&mut companion.command(&["attach", "--json"]));
    lines.wait_line("hello", PATIENCE, |line| line.contains("\"hello\""));
    companion.stop(runner);
    let outcome = lines.wait(PATIENCE).expect_code(0);
    assert!(outcome.lines.last().unwrap().contains("bye"), "{outcome:?}");
    let nobody = companion.refused(&["attach", "--json"], 1);
    assert!(nobody.contains("kael-runner run"), "{nobody}");
}
