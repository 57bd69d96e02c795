//! `init` and `adopt`, to a companion that answers.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::stubs::reply::Reply;
use crate::support::PATIENCE;
use crate::support::invocation::World;
use crate::support::process::{Outcome, Running};
use crate::support::subject::Subject;

const FIRST: &str = "the boat is called Amsel 🛶";

fn run(world: &World, arguments: &[&str], typed: &str) -> Outcome {
    let mut running = Running::spawn(world.runner().args(arguments));
    running.write(typed);
    running.wait(PATIENCE)
}

fn json(world: &World, arguments: &[&str]) -> Value {
    let outcome = run(world, &[arguments, &["--json"]].concat(), "").expect_code(0);
    serde_json::from_str(&outcome.lines.join("\n")).unwrap()
}

/// A world with a session in its folder.
fn talked(subject: Subject) -> (World, String) {
    let world = World::new(subject);
    world.stub.on_text("boat", Reply::text("A good name."));
    let session = uuid::Uuid::new_v4().to_string();
    world.begin(&session, &uuid::Uuid::new_v4().to_string(), FIRST).expect_code(0);
    (world, session)
}

fn config(world: &World) -> std::path::PathBuf {
    world.sandbox.home().join(".config/kael-runner/config.toml")
}

fn shape(world: &World, outcome: &Outcome) -> String {
    let root = world.sandbox.path("").display().to_string();
    let text = outcome.lines.join("\n").replace(root.trim_end_matches('/'), "<root>");
    let folder = world.sandbox.project_dir().file_name().unwrap().to_string_lossy().into_owned();
    let patterns = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d", "<time>"),
        (r" +\d+(\.\d)? (B|KiB|MiB)\b", " <size>"),
        (r"\d+\.\d %", "<n> %"),
        (r"pid \d+", "pid <pid>"),
    ];
    patterns.iter().fold(text.replace(&folder, "<folder>"), |text, (pattern, mask)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *mask).into_owned()
    })
}

/// Without a question, to a companion that knows what was said before there was a runner.
fn set_up_and_talk(subject: Subject) {
    let (world, session) = talked(subject);
    let work = world.sandbox.work().display().to_string();
    run(&world, &["init", "--yes", "--dir", &work, "--session", &session], "").expect_code(0);
    assert_eq!(json(&world, &["pointer", "show"])["session"], session.as_str());
    assert_eq!(json(&world, &["pointer", "history"])["history"][0]["by"], "adopt");

    world.stub.on_text("and the oars", Reply::text("Two of them."));
    run(&world, &["send", "--key", "k", "and the oars?"], "").expect_code(0);
    run(&world, &["run", "--until-idle"], "").expect_code(0);
    let reply = run(&world, &["send", "--wait", "--key", "k", "and the oars?"], "").expect_code(0);
    assert_eq!(reply.lines, ["Two of them."]);
    assert!(world.stub.last_main().occurrences(FIRST) > 0, "the adopted session is the one that is resumed");
    assert_eq!(json(&world, &["pointer", "show"])["session"], session.as_str());
}

#[test]
fn set_up_without_a_question_on_the_stand_in() {
    set_up_and_talk(Subject::StandIn);
}

#[test]
fn set_up_without_a_question_on_the_real_cli() {
    if let Some(subject) = Subject::newest_real() {
        set_up_and_talk(subject);
    }
}

#[test]
fn yes_never_overwrites_and_never_takes_a_session_over() {
    let (world, _) = talked(Subject::StandIn);
    let work = world.sandbox.work().display().to_string();
    let outcome = run(&world, &["init", "--yes", "--dir", &work], "").expect_code(0);
    insta::assert_snapshot!("init_yes", shape(&world, &outcome));
    assert!(
        run(&world, &["pointer", "show"], "").expect_code(1).stderr.contains("there is no resume pointer")
    );
    let written = fs::read_to_string(config(&world)).unwrap();
    let again = run(&world, &["init", "--yes", "--dir", &work], "").expect_code(3);
    assert!(again.stderr.contains("does not overwrite"), "{}", again.stderr);
    assert!(again.stderr.contains("name another file with --config"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(config(&world)).unwrap(), written);
}

#[test]
fn answers_may_be_piped_and_the_command_line_of_a_running_claude_is_copied() {
    let (world, session) = talked(Subject::StandIn);
    let flags = "-p --model opus --input-format stream-json --output-format stream-json --verbose --resume";
    let mut claude = Running::spawn(world.claude().args(flags.split(' ')).arg(&session).args([
        "--allowedTools",
        "Bash",
        "Read",
    ]));
    claude.write("");
    let work = world.sandbox.work().display().to_string();
    let typed = "1\n7\n1\n\ny\n";
    let outcome = run(&world, &["init", "--dir", &work], typed).expect_code(6);
    let mine = format!("a claude process ({}) is on session {session}", claude.pid().as_raw_nonzero());
    assert!(outcome.stderr.contains(&mine), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&format!("kael-runner adopt {session}")), "{}", outcome.stderr);
    insta::assert_snapshot!("init_asked", shape(&world, &outcome));
    let text = fs::read_to_string(config(&world)).unwrap();
    assert!(
        text.contains(
            r#"resume_command = ["claude", "--resume", "{session_id}", "--model", "opus", "--allowedTools", "Bash", "Read"]"#
        ),
        "{text}"
    );

    claude.signal(Signal::KILL);
    claude.wait(PATIENCE);
    let adopted = json(&world, &["adopt", &session]);
    assert_eq!(
        (adopted["changed"].clone(), adopted["turns"].clone(), adopted["blocked_reason"].clone()),
        (true.into(), 1.into(), "".into())
    );
    assert_eq!(json(&world, &["adopt", &session])["changed"], false, "twice is once");

    // A second time the file is there: kept under another name, and only on a yes.
    let no = run(&world, &["init", "--dir", &work], "0\ny\n\n").expect_code(3);
    assert!(no.stderr.contains("nothing was written"), "{}", no.stderr);
    let yes = run(&world, &["init", "--dir", &work], "0\ny\ny\n").expect_code(0);
    assert!(yes.lines.concat().contains(&format!("names session {session} already")), "{yes:?}");
    assert_eq!(fs::read_to_string(config(&world).with_extension("toml.before")).unwrap(), text);
}

#[test]
fn every_error_on_the_way_says_the_next_step() {
    let (world, session) = talked(Subject::StandIn);
    let work = world.sandbox.work().display().to_string();
    let refused = |arguments: &[&str], typed: &str, code: i32| {
        let outcome = run(&world, arguments, typed).expect_code(code);
        assert!(!config(&world).exists(), "something was written");
        outcome.stderr.replace(&world.sandbox.path("").display().to_string(), "<root>/")
    };
    insta::assert_snapshot!(refused(&["init", "--dir", &work], "", 3), @"error: the answers ended before the questions: nothing was written; `init --yes` takes every proposal");
    insta::assert_snapshot!(refused(&["init", "--dir", &work], "0\nn\n", 3), @"error: nothing was written: for a claude that lives in tmux or in a systemd unit begin with examples/tmux.toml or examples/systemd.toml; looking, planning and proving work there today, switching comes with a later release");
    insta::assert_snapshot!(refused(&["init", "--yes", "--claude", "/nowhere/claude"], "", 1), @"error: could not find /nowhere/claude: install Claude Code and log in with it once (`claude`), or name it with --claude PATH; to see what this is about without it: `kael-runner demo`");
    insta::assert_snapshot!(refused(&["init", "--yes", "--claude", "/bin/true"], "", 1), @"error: /bin/true --version prints no version: is it Claude Code? Name another with --claude PATH");
    let file = world.sandbox.write("file", "x").display().to_string();
    insta::assert_snapshot!(refused(&["init", "--yes", "--dir", &file], "", 2), @"error: <root>/file is not a folder: name another with --dir");
    let unknown = "11111111-2222-4333-8444-555555555555";
    let error = refused(&["init", "--yes", "--dir", &work, "--session", unknown], "", 3);
    assert!(error.contains("nothing was written; leave --session out to see what there is"), "{error}");

    run(&world, &["init", "--yes", "--dir", &work], "").expect_code(0);
    let adopt = |session: &str, code: i32| run(&world, &["adopt", session], "").expect_code(code).stderr;
    let error = adopt(unknown, 3);
    assert!(error.contains(&format!("the newest there are {session}")), "{error}");
    assert!(adopt("not-a-session", 2).contains("not-a-session"));
    fs::write(world.sandbox.transcript(unknown), "").unwrap();
    assert!(adopt(unknown, 3).contains("nothing was said in"), "an empty transcript");
    let mut unknown_row = fs::read_to_string(world.sandbox.transcript(&session)).unwrap();
    unknown_row.push_str(
        "{\"type\":\"telepathy\",\"uuid\":\"x\",\"message\":{\"role\":\"user\",\"content\":\"a thought\"}}\n",
    );
    fs::write(world.sandbox.transcript(unknown), unknown_row).unwrap();
    let adopted = json(&world, &["adopt", unknown]);
    let reason = adopted["blocked_reason"].as_str().unwrap();
    assert!(reason.contains("telepathy"), "a session that cannot be rebuilt can be gone on with: {reason}");
}

#[test]
fn folders_of_the_same_name_have_state_folders_of_their_own() {
    let (world, _) = talked(Subject::StandIn);
    let home = |place: &str| world.sandbox.path(&format!("work/{place}/companion"));
    let claude = world.subject.program(&world.sandbox);
    let config = |place: &str| world.sandbox.path(&format!("{place}.toml"));
    for place in ["here", "there"] {
        fs::create_dir_all(home(place)).unwrap();
        let (dir, file) = (home(place), config(place));
        let arguments = [
            "--config",
            file.to_str().unwrap(),
            "init",
            "--yes",
            "--dir",
            dir.to_str().unwrap(),
            "--claude",
            claude.to_str().unwrap(),
        ];
        run(&world, &arguments, "").expect_code(0);
    }
    let text = |place| fs::read_to_string(config(place)).unwrap();
    assert!(!text("here").contains("\nstate_dir = "), "{}", text("here"));
    assert!(text("there").contains("kael-runner/companion-2\"\n"), "{}", text("there"));

    // A configuration by hand that takes the other's folder is refused before anything is done with it.
    fs::write(config("there"), text("there").replace("companion-2", "companion")).unwrap();
    for command in [&["send", "a word"][..], &["status"], &["run", "--until-idle"]] {
        let file = config("there");
        let refused =
            run(&world, &[&["--config", file.to_str().unwrap()], command].concat(), "").expect_code(5);
        assert!(refused.stderr.contains("belongs to the companion in"), "{}", refused.stderr);
        assert!(refused.stderr.contains("state_dir of its own in"), "{}", refused.stderr);
    }
    // A folder that was moved takes its state along.
    fs::remove_dir_all(home("here")).unwrap();
    let file = config("there");
    run(&world, &["--config", file.to_str().unwrap(), "status"], "").expect_code(0);
}
