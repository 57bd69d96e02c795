//! Transcripts outlive the CLI's own tidying: copies that are put back, and old evidence that is cleared away.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::stubs::reply::Reply;
use crate::support::companion::Companion;
use crate::support::subject::Subject;

fn fresh(subject: Subject) -> Companion {
    let companion =
        Companion::new(subject, "stable_file_seconds = 0.2", "rebuild = \"off\"\nmin_gain_percent = 1");
    companion.world.stub.on_text("kite", Reply::text("A red one."));
    companion.world.stub.on_tool_turn("shed", Reply::bash("seq 1 4000"), Reply::text("It holds ropes."));
    companion
}

fn say(companion: &Companion, words: &str) {
    companion.run(&["send", words]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
}

fn copy_of(companion: &Companion, session: &str) -> PathBuf {
    companion.world.sandbox.state().join("kept").join(format!("{session}.jsonl"))
}

fn rebuild(companion: &Companion) -> Value {
    companion.json(&["request", "--confirm", "REBUILD"]);
    let answer = companion.json(&["confirm", "--yes"]);
    assert_eq!(answer["operation"]["status"], "activated", "{answer:#}");
    answer["operation"].clone()
}

/// The CLI deletes old transcripts; a fresh session in the place of one would have forgotten everything.
fn a_vanished_transcript_is_put_back(subject: Subject) {
    let companion = fresh(subject);
    say(&companion, "my kite is a red one");
    let session = companion.session();
    let live = companion.world.sandbox.transcript(&session);
    let kept = copy_of(&companion, &session);
    assert_eq!(fs::read(&kept).unwrap(), fs::read(&live).unwrap());

    fs::remove_file(&live).unwrap();
    companion.run(&["send", "what about the kite?"]).expect_code(0);
    let held = companion.refused(&["run", "--until-idle"], 1);
    assert!(held.contains(&format!("`kael-runner restore --kept {session}` puts it back")), "{held}");
    assert!(held.contains(kept.to_str().unwrap()), "{held}");
    assert!(!live.exists(), "no fresh session is begun");

    let answer = companion.json(&["restore", "--kept"]);
    assert_eq!(
        (&answer["changed"], &answer["session"]),
        (&Value::from(true), &Value::from(session.as_str()))
    );
    assert_eq!(fs::read(&kept).unwrap(), fs::read(&live).unwrap());
    companion.run(&["retry"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    let asked = companion.world.stub.last_main();
    assert_eq!(asked.occurrences("my kite is a red one"), 1, "{:#?}", asked.view());
    assert_eq!(fs::read(&kept).unwrap(), fs::read(&live).unwrap(), "the copy goes on with the original");
    assert_eq!(companion.json(&["restore", "--kept", &session])["changed"], false);
}

#[test]
fn a_vanished_transcript_is_put_back_on_the_stand_in() {
    a_vanished_transcript_is_put_back(Subject::StandIn);
}

#[test]
fn a_vanished_transcript_is_put_back_on_the_newest_cli() {
    if let Some(subject) = Subject::newest_real() {
        a_vanished_transcript_is_put_back(subject);
    }
}

/// A transcript that is moved away while the CLI runs leaves a file that holds only the tail (facts 5).
#[test]
fn a_transcript_that_lost_its_beginning_holds_the_queue_and_is_set_aside() {
    let companion = fresh(Subject::StandIn);
    say(&companion, "my kite is a red one");
    say(&companion, "the kite again");
    let live = companion.world.sandbox.transcript(&companion.session());
    let whole = fs::read(&live).unwrap();
    let tail = &whole[whole.len() / 2..];
    fs::write(&live, tail).unwrap();
    companion.run(&["send", "and the kite?"]).expect_code(0);
    let held = companion.refused(&["run", "--until-idle"], 1);
    assert!(held.contains("was damaged: it has") && held.contains("restore --kept"), "{held}");
    let answer = companion.json(&["restore", "--kept"]);
    assert_eq!(fs::read(&live).unwrap(), whole);
    assert_eq!(fs::read(answer["aside"].as_str().unwrap()).unwrap(), tail);

    // As long as before, and not the same.
    let mut changed = whole.clone();
    let at = changed.len() - 40;
    changed[at] ^= 1;
    fs::write(&live, &changed).unwrap();
    assert!(companion.refused(&["run", "--until-idle"], 1).contains("is held"));
    companion.run(&["retry"]).expect_code(0);
    assert!(companion.refused(&["run", "--until-idle"], 1).contains("not there any more as it was"));
    companion.json(&["restore", "--kept"]);
    companion.run(&["retry"]).expect_code(0);
    companion.run(&["run", "--until-idle"]).expect_code(0);
    assert_eq!(companion.json(&["status"])["messages"]["answered"], 3);
}

/// Also those of the last switches, which the way back would need.
#[test]
fn doctor_names_them_and_puts_all_of_them_back() {
    let companion = fresh(Subject::StandIn);
    say(&companion, "look into the shed, please");
    let old = companion.session();
    rebuild(&companion);
    say(&companion, "my kite is a red one");
    let transcripts = [old, companion.session()].map(|session| companion.world.sandbox.transcript(&session));
    let before = transcripts.clone().map(|path| fs::read(path).unwrap());
    transcripts.iter().for_each(|path| fs::remove_file(path).unwrap());
    let doctor = companion.run(&["doctor"]).expect_code(1).lines.join("\n");
    assert!(doctor.contains("is gone. A copy of") && doctor.contains("doctor --fix"), "{doctor}");
    let fixed = companion.json(&["doctor", "--fix"])["fixed"].to_string();
    assert_eq!(fixed.matches("are back in their place").count(), 2, "{fixed}");
    assert_eq!(transcripts.map(|path| fs::read(path).unwrap()), before);
    say(&companion, "what about the kite?");
}

#[test]
fn a_copy_that_is_not_what_was_copied_is_not_put_back() {
    let companion = fresh(Subject::StandIn);
    say(&companion, "my kite is a red one");
    let session = companion.session();
    let (live, kept) = (companion.world.sandbox.transcript(&session), copy_of(&companion, &session));
    let mut damaged = fs::read(&kept).unwrap();
    damaged[20] ^= 1;
    fs::write(&kept, damaged).unwrap();
    fs::remove_file(&live).unwrap();
    assert!(companion.refused(&["restore", "--kept"], 1).contains("is damaged from byte 0 on"));
    assert!(!live.exists());
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";
    assert!(companion.refused(&["restore", "--kept", nobody], 3).contains("no copy of session"));
}

#[test]
fn only_what_was_appended_is_copied_and_a_torn_append_is_made_good() {
    let companion = fresh(Subject::StandIn);
    say(&companion, "my kite is a red one");
    let session = companion.session();
    let (live, kept) = (companion.world.sandbox.transcript(&session), copy_of(&companion, &session));
    let inode = |path: &PathBuf| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&kept);
    // As a crash leaves it: bytes without the line that says that they are there.
    let mut torn = fs::read(&kept).unwrap();
    torn.extend_from_slice(b"{\"half a row");
    fs::write(&kept, torn).unwrap();
    say(&companion, "the kite again");
    assert_eq!(fs::read(&kept).unwrap(), fs::read(&live).unwrap());
    assert_eq!(inode(&kept), before, "it was appended to, not copied anew");
    let pieces = fs::read_to_string(kept.with_extension("pieces")).unwrap();
    assert_eq!(pieces.lines().count(), 2, "{pieces}");
}

#[test]
fn old_evidence_goes_and_the_last_stays() {
    let companion = fresh(Subject::StandIn);
    let mut made = Vec::new();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        say(&companion, "look into the shed, please");
        sessions.push(companion.session());
        made.push(rebuild(&companion)["operation_id"].as_str().unwrap().to_owned());
    }
    let artifacts = companion.world.sandbox.state().join("artifacts");
    let dry = companion.json(&["gc", "--dry-run", "--operations", "0"]);
    let named = |report: &Value, list: &str| -> Vec<String> {
        let all = report[list].as_array().unwrap().iter();
        all.filter_map(|thing| thing["operation"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(named(&dry, "removed").len(), 2, "{dry:#}");
    assert_eq!(fs::read_dir(&artifacts).unwrap().count(), 4, "a dry run changes nothing");
    // The limits are far away.
    assert_eq!(named(&companion.json(&["gc"]), "removed").len(), 0);

    let done = companion.json(&["gc", "--operations", "0"]);
    let mut gone = named(&done, "removed");
    gone.sort();
    assert_eq!(gone, made[..2], "{done:#}");
    assert!(done["freed_bytes"].as_u64().unwrap() > 0);
    let left: Vec<bool> = made.iter().map(|id| artifacts.join(id).exists()).collect();
    assert_eq!(left, [false, false, true, true], "the last two switches stay whatever the limit is");
    let copies: Vec<bool> = sessions.iter().map(|session| copy_of(&companion, session).exists()).collect();
    assert_eq!(copies, [false, false, true, true]);
    assert!(copy_of(&companion, &companion.session()).exists());
    // What an operation says of itself stays for good, and the companion goes on.
    assert_eq!(companion.json(&["status", "--operation", &made[0]])["operation"]["status"], "activated");
    let back = companion.json(&["rollback-request", "--confirm", "ROLLBACK"]);
    assert_eq!(back["operation"]["status"], "rolled_back");
    assert_eq!(companion.session(), sessions[3]);
    say(&companion, "what about the kite?");
}

#[test]
fn evidence_is_cleared_away_by_itself_after_an_operation() {
    let companion = fresh(Subject::StandIn);
    let mut made = Vec::new();
    for _ in 0..12 {
        say(&companion, "look into the shed, please");
        made.push(rebuild(&companion)["operation_id"].as_str().unwrap().to_owned());
    }
    let artifacts = companion.world.sandbox.state().join("artifacts");
    let left: Vec<&String> = made.iter().filter(|id| artifacts.join(id).exists()).collect();
    assert_eq!(left, made[2..].iter().collect::<Vec<_>>(), "ten operations keep their artifacts");
}
