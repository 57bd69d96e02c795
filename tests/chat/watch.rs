//! `pointer watch`: every value, as it comes.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::PATIENCE;
use crate::support::companion::Companion;
use crate::support::process::Running;
use crate::support::subject::Subject;

#[test]
fn it_tells_the_value_and_every_change_by_whomever() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let watch = Running::spawn(&mut companion.command(&["pointer", "watch", "--json"]));
    watch.wait_line("the absent pointer", PATIENCE, |line| line.contains("\"session\":null"));
    let runner = companion.start();
    companion.say("hello");
    let first = companion.session();
    let names = |wanted: &str| {
        let wanted = wanted.to_owned();
        move |line: &str| {
            serde_json::from_str::<Value>(line).is_ok_and(|value| value["session"] == wanted.as_str())
        }
    };
    watch.wait_line("the new session", PATIENCE, names(&first));
    // Another program's plain write.
    let pointer = companion.world.sandbox.state().join("resume_session");
    let foreign = uuid::Uuid::new_v4().to_string();
    std::fs::write(&pointer, format!("{foreign}\n")).unwrap();
    watch.wait_line("the foreign one", PATIENCE, names(&foreign));
    std::fs::write(&pointer, "two words\n").unwrap();
    watch.wait_line("what is wrong with it", PATIENCE, |line| line.contains("\"error\":\""));
    std::fs::write(&pointer, format!("{first}\n")).unwrap();
    companion.stop(runner);
    // Looking and touching are no changes.
    companion.session();
    std::thread::sleep(Duration::from_millis(200));
    watch.signal(Signal::TERM);
    let outcome = watch.wait(PATIENCE);
    let values: Vec<Value> = outcome.json().iter().map(|line| line["session"].clone()).collect();
    assert_eq!(values.first(), Some(&Value::Null));
    assert_eq!(values.last(), Some(&Value::String(first)), "{outcome:?}");
    assert!(values.windows(2).all(|pair| pair[0] != pair[1]), "nothing is told twice: {outcome:?}");
}
