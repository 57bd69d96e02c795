use kael_core::ids::SessionId;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn new(key: &str, words: &str) -> NewMessage {
    NewMessage { front: "send".into(), key: key.into(), sender: "ann".into(), words: words.into() }
}

fn open() -> (tempfile::TempDir, Queue) {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::open(dir.path()).unwrap();
    (dir, queue)
}

fn invocation_for(turn: &Turn) -> Invocation {
    Invocation {
        id: kael_core::ids::InvocationId::generate(),
        turn: turn.id,
        route: Route::ResumeAt("some row".into()),
        note: false,
        session: SessionId::generate(),
        new_session: false,
        transcript: "/t.jsonl".into(),
        from_offset: 17,
        row_uuid: "u".into(),
        line: b"{}\n".to_vec(),
        pid: None,
        pid_start: None,
        started_at: at(5),
        ended_at: None,
        ending: None,
        detail: None,
    }
}

#[test]
fn the_same_key_twice_is_one_message_and_keeps_its_first_words() {
    let (_dir, mut queue) = open();
    let first = queue.accept(&new("k", "  Grüße \n"), at(1)).unwrap();
    let second = queue.accept(&new("k", "other"), at(2)).unwrap();
    assert_eq!((first.id, false, true), (second.id, first.duplicate, second.duplicate));
    let other_front = queue.accept(&NewMessage { front: "terminal".into(), ..new("k", "x") }, at(3)).unwrap();
    assert!(!other_front.duplicate);
    assert_eq!(queue.message(first.id).unwrap().unwrap().words, "  Grüße \n");
}

#[test]
fn a_turn_is_answered_with_its_reply_in_one_step_and_only_once() {
    let (_dir, mut queue) = open();
    let id = queue.accept(&new("k", "hello"), at(1)).unwrap().id;
    let turn = queue.form_turn(&[id], "[]", at(2)).unwrap().unwrap();
    assert_eq!(queue.form_turn(&[id], "[]", at(2)).unwrap(), None, "a message is in one turn only");
    assert_eq!(queue.open_turn().unwrap().as_ref(), Some(&turn));
    let run = invocation_for(&turn);
    queue.record_invocation(&run).unwrap();
    assert_eq!(queue.unresolved_invocations().unwrap(), std::slice::from_ref(&run));
    let part = ReplyPart { message_id: "m".into(), block_index: 0, words: "hi".into() };
    queue.answer(run.id, turn.id, std::slice::from_ref(&part), ("answered", None), at(9)).unwrap();
    queue.answer(run.id, turn.id, std::slice::from_ref(&part), ("answered", None), at(9)).unwrap();
    assert_eq!(queue.replies_to(turn.id).unwrap().len(), 1);
    assert_eq!(queue.message(id).unwrap().unwrap().state, MessageState::Answered);
    assert!(queue.open_turn().unwrap().is_none());
    assert!(queue.unresolved_invocations().unwrap().is_empty());
}

#[test]
fn only_charged_failures_count() {
    let (_dir, mut queue) = open();
    let id = queue.accept(&new("k", "hello"), at(1)).unwrap().id;
    let turn = queue.form_turn(&[id], "[]", at(2)).unwrap().unwrap();
    for charge in [true, false, true] {
        let run = invocation_for(&turn);
        queue.record_invocation(&run).unwrap();
        queue.end_unanswered(run.id, ("server_error", "the server was overloaded"), charge, at(3)).unwrap();
    }
    assert_eq!(queue.open_turn().unwrap().unwrap().charged, 2);
    assert_eq!(queue.turn_error(turn.id).unwrap().as_deref(), Some("the server was overloaded"));
    queue.give_up(turn.id, (Some("crash"), "five attempts"), at(4)).unwrap();
    assert_eq!(queue.message(id).unwrap().unwrap().state, MessageState::Dead);
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let (dir, queue) = open();
    queue.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(queue);
    let before = std::fs::read(dir.path().join("queue.sqlite")).unwrap();
    let error = Queue::open(dir.path()).err().unwrap();
    assert!(matches!(error, QueueError::Newer { found: 99, .. }), "{error}");
    assert_eq!(std::fs::read(dir.path().join("queue.sqlite")).unwrap(), before);
}

#[test]
fn the_file_and_its_side_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, mut queue) = open();
    queue.accept(&new("k", "hello"), at(1)).unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        names.push(entry.file_name());
    }
    assert!(names.len() >= 2, "the write-ahead log is there too: {names:?}");
}

#[test]
fn many_processes_may_write_at_once() {
    let (dir, queue) = open();
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let dir = dir.path().to_owned();
            std::thread::spawn(move || {
                let mut queue = Queue::open(&dir).unwrap();
                for n in 0..20 {
                    queue.accept(&new(&format!("{worker}-{n}"), "w"), at(n)).unwrap();
                    queue.accept(&new(&format!("shared-{n}"), "w"), at(n)).unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(queue.messages_in(MessageState::Queued).unwrap().len(), 8 * 20 + 20);
}

#[test]
fn requests_are_answered_once_in_order() {
    let (_dir, mut queue) = open();
    let first = queue.leave_request(RequestKind::Confirm, &serde_json::json!({"a": 1}), at(1)).unwrap();
    let second = queue.leave_request(RequestKind::Retry, &serde_json::json!({}), at(1)).unwrap();
    assert_eq!(queue.next_request().unwrap().unwrap().id, first);
    queue.answer_request(first, &serde_json::json!({"ok": true})).unwrap();
    assert_eq!(queue.next_request().unwrap().unwrap().id, second);
    assert_eq!(queue.request_answer(first).unwrap().unwrap()["ok"], true);
    assert_eq!(queue.request_answer(second).unwrap(), None);
    assert!(queue.withdraw_request(second).unwrap());
    assert!(!queue.withdraw_request(first).unwrap());
}

#[test]
fn settings_survive_and_can_be_forgotten() {
    let (dir, mut queue) = open();
    let hold = Hold { reason: "no such session".into(), since: at(3), until: HeldUntil::Human };
    queue.set(Setting::Hold, &hold).unwrap();
    drop(queue);
    let mut queue = Queue::open(dir.path()).unwrap();
    assert_eq!(queue.get::<Hold>(Setting::Hold).unwrap(), Some(hold));
    queue.clear(Setting::Hold).unwrap();
    assert_eq!(queue.get::<Hold>(Setting::Hold).unwrap(), None);
}

#[test]
fn a_file_of_the_first_format_is_brought_up_to_date_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/queue/format-1.sqlite");
    std::fs::copy(old, dir.path().join("queue.sqlite")).unwrap();
    for _ in 0..2 {
        let queue = Queue::open(dir.path()).unwrap();
        let open = queue.open_turn().unwrap().unwrap();
        assert_eq!((open.id, open.charged), (2, 1));
        assert_eq!(queue.messages_of(2).unwrap()[0].words, "风筝 🪁");
        assert_eq!(queue.messages_in(MessageState::Queued).unwrap().len(), 1);
        assert_eq!(queue.replies_to(1).unwrap()[0].part.words, "Hello yourself.");
        assert_eq!(queue.invocations_of(2).unwrap()[0].route, Route::ResumeAt("row-0".into()));
        let hold = queue.get::<Hold>(Setting::Hold).unwrap().unwrap();
        assert_eq!((hold.reason.as_str(), hold.until), ("an old reason", HeldUntil::Human));
        assert_eq!(queue.turn_mark(1).unwrap(), None);
        assert!(queue.usage_since(at(0)).unwrap().is_empty() && queue.left_in().unwrap().is_empty());
    }
}

#[test]
fn usage_is_summed_by_day_and_session_and_a_run_counts_once() {
    let (_dir, mut queue) = open();
    let id = queue.accept(&new("k", "hello"), at(1)).unwrap().id;
    let turn = queue.form_turn(&[id], "[]", at(2)).unwrap().unwrap();
    let day = 24 * 3600 * 1000;
    let session = SessionId::generate();
    for (when, context) in [(5, Some(100)), (9, None), (day + 1, Some(40))] {
        let run = Invocation { session, ..invocation_for(&turn) };
        queue.record_invocation(&run).unwrap();
        let used = Usage {
            input: 1,
            cache_read: 2,
            cache_creation: 3,
            output: 4,
            context,
            level: context,
            millis: 50,
        };
        for _ in 0..2 {
            queue.note_usage(run.id, (turn.id, run.session), &used, at(when)).unwrap();
        }
    }
    let days = queue.usage_since(at(0)).unwrap();
    let seen: Vec<_> =
        days.iter().map(|sum| (sum.day.as_str(), sum.runs, sum.sum.output, sum.sum.context)).collect();
    assert_eq!(seen, [("1970-01-01", 2, 8, Some(100)), ("1970-01-02", 1, 4, Some(40))]);
    assert_eq!(queue.usage_since(at(day)).unwrap().len(), 1);
    assert_eq!(queue.contexts_of(session).unwrap(), [100, 40]);
    assert_eq!(queue.last_level_of(session).unwrap(), Some(40));
}

#[test]
fn many_may_open_a_new_queue_at_once() {
    for _ in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    Queue::open(folder.path()).unwrap();
                });
            }
        });
    }
}
