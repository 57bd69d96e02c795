//! Switches of a real pane.

use super::pane::{FLAGS, InPane, WORDS};

#[test]
fn a_confirmed_rebuild_switches_the_pane_to_the_clean_session() {
    let Some(setup) = InPane::start("rebuild = \"off\"") else { return };
    let old = fs_bytes(&setup, &setup.first);
    let pane = setup.tmux(&["display-message", "-p", "-t", "=cc:0.0", "#{pane_id}"]);
    let done = setup.companion.json(&["request", "--reason", "slow", "--confirm", "REBUILD"]);
    assert_eq!(done["operation"]["status"], "activated", "{done:#}");
    let new = done["operation"]["new_session_id"].as_str().unwrap();
    assert_eq!(setup.session(), new);
    assert_eq!(setup.companion.session(), new, "the pointer says so, too");
    assert_eq!(setup.pane_pid().to_string(), done["operation"]["cas_pane_pid_after"].as_str().unwrap());
    assert_ne!(done["operation"]["cas_pane_pid"], done["operation"]["cas_pane_pid_after"]);
    assert_eq!(pane, setup.tmux(&["display-message", "-p", "-t", "=cc:0.0", "#{pane_id}"]), "the pane stays");
    assert_eq!(setup.arguments()[1..], [&["--resume", new][..], &FLAGS].concat());
    let work = std::fs::canonicalize(setup.companion.world.sandbox.work()).unwrap();
    assert_eq!(setup.note()["cwd"].as_str().unwrap(), work.to_str().unwrap());
    assert!(fs_bytes(&setup, &setup.first).starts_with(&old), "the old transcript is not touched");
    assert_eq!(setup.tmux(&["show-options", "-p", "-t", &pane, "remain-on-exit"]), "", "as it was before");
    setup.wait_for_prompt();
    setup.say("and warm");
    let requests = setup.companion.world.stub.main_requests();
    let sent = requests.iter().rev().find(|request| request.last_human().contains("and warm")).unwrap();
    let words = sent.view().join("\n");
    for said in WORDS.iter().chain(&["Noted: green.", "The shed holds ropes."]) {
        assert!(words.contains(said), "{said} is not in {words}");
    }
    assert!(!words.contains("seq 1 4000"), "{words}");
}

fn fs_bytes(setup: &InPane, session: &str) -> Vec<u8> {
    std::fs::read(setup.companion.world.sandbox.transcript(session)).unwrap()
}
