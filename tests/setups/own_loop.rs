//! The loop of `examples/own-loop.sh`: somebody else's `claude -p`, our pointer.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

const LOOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/own-loop.sh");

fn companion(runner: &str) -> Companion {
    let companion = Companion::new(Subject::StandIn, "stable_file_seconds = 0.1", runner);
    let sandbox = &companion.world.sandbox;
    companion.world.subject.program(sandbox);
    symlink(env!("CARGO_BIN_EXE_kael-runner"), sandbox.path("bin/kael-runner")).unwrap();
    companion
}

fn run(companion: &Companion, lines: &str) -> crate::support::process::Outcome {
    let sandbox = &companion.world.sandbox;
    let mut command = companion.world.runner();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", sandbox.path("bin").display());
    let mut shell = sandbox.command("/bin/sh");
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.arg(LOOP).args(["--new", "--allowedTools", "Bash"]).env("PATH", path);
    shell.env("KAEL_RUNNER_CONFIG", sandbox.path("config.toml"));
    command.env_clear();
    let mut running = Running::spawn(&mut shell);
    running.write(lines);
    running.wait(PATIENCE)
}

#[test]
fn a_loop_of_ones_own_goes_on_in_the_clean_session() {
    let companion = companion("rebuild = \"auto\"\nmin_gain_percent = 1\ncontext_budget_tokens = 16000");
    let stub = &companion.world.stub;
    stub.on_tool_turn(
        "shed",
        crate::stubs::reply::Reply::bash("seq 1 6000"),
        crate::stubs::reply::Reply::text("The shed holds ropes."),
    );
    let outcome =
        run(&companion, "the lamp is green\nlook into the shed\nwhat was the first thing I said?\n")
            .expect_code(0);
    let text = outcome.lines.join("\n");
    assert!(text.contains("The first thing you said was: \"the lamp is green\""), "{outcome:?}");
    assert!(outcome.stderr.contains("the session was rebuilt"), "{outcome:?}");
    let history = companion.history();
    assert_eq!(history.len(), 2, "the first session, then the clean one: {history:?}");
    assert!(history[1].2, "the second by an operation");
    let last = stub.last_main().view().join("\n");
    assert!(last.contains("The shed holds ropes.") && !last.contains("seq 1 6000"), "{last}");
}

#[test]
fn another_session_than_the_pointers_and_another_setup_are_refused() {
    let companion = companion("rebuild = \"off\"");
    run(&companion, "the lamp is green\n").expect_code(0);
    let session = companion.session();
    let told = companion
        .world
        .sandbox
        .write("told.json", r#"{"session_id":"11111111-2222-4333-8444-555555555555"}"#);
    let error = companion.refused(&["hook-stop", "--wait", "--input", told.to_str().unwrap()], 4);
    assert!(error.contains("the pointer says") && error.contains("nothing was changed"), "{error}");
    assert_eq!(companion.session(), session);
    // Without --wait a hook has nothing to do in a pointer setup.
    let answer = companion.run(&["hook-stop", "--input", told.to_str().unwrap()]).expect_code(0);
    assert_eq!(
        serde_json::from_str::<Value>(&answer.lines.join("")).unwrap(),
        serde_json::json!({"suppressOutput": true})
    );
    let config = companion.world.sandbox.path("config.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("\"pointer\"", "\"tmux\"");
    std::fs::write(&config, text).unwrap();
    assert!(companion.refused(&["hook-stop", "--wait"], 5).contains("is for your own `claude -p` loop"));
}
