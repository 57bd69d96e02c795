//! What the runner itself costs (DESIGN 13): its CPU and waiting in a turn against bare `claude -p`, idle memory and
//! wake-ups, messages a second through the inbox and a whole turn on the stand-in, and a start with many stored messages.
//!
//! ```text
//! KAEL_CLAUDE_CACHE=.cache/claude cargo bench -p kael-runner --bench companion
//! KAEL_BENCH=idle,inbox cargo bench -p kael-runner --bench companion     # a part of it
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a bench stops where it cannot measure, and so does what it shares with the tests"
)]

#[path = "../tests/stubs/mod.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod stubs;
#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "shared with the tests, which use all of it")]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use kael_core::clock::{Clock, SystemClock};
use kael_runner::queue::{NewMessage, Queue};
use serde_json::{Value, json};

use stubs::reply::Reply;
use support::companion::Companion;
use support::process::Running;
use support::subject::Subject;

fn main() {
    let wanted = std::env::var("KAEL_BENCH").unwrap_or_else(|_| "turn,idle,inbox,standin,start".to_owned());
    let wants = |name: &str| wanted.split(',').any(|part| part.trim() == name);
    if wants("turn") {
        turn();
    }
    if wants("idle") {
        idle();
    }
    if wants("inbox") {
        inbox();
    }
    if wants("standin") {
        stand_in();
    }
    if wants("start") {
        start();
    }
}

const PAIRS: usize = 30;

/// The same prompt, once by the runner and once by hand, with the same MCP server and the same flags.
fn turn() {
    let Some(subject) = Subject::newest_real() else { return };
    let companion = Companion::new(subject, "", "rebuild = \"off\"");
    let world = &companion.world;
    world.stub.on(|_| Some(Reply::text("Hello yourself.")));
    let runner = companion.start();
    companion.say("seed");
    let mut chat = Chat::to(&companion);
    let session = uuid::Uuid::new_v4().to_string();
    bare(&companion, &["--session-id", &session]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let cpu_before = cpu(&runner);
    for n in 0..PAIRS {
        ours.push(chat.turn(&format!("hello {n}")));
        theirs.push(bare(&companion, &["--resume", &session]));
    }
    let used = (cpu(&runner) - cpu_before) / PAIRS as u32;
    let mut differences: Vec<i128> = ours
        .iter()
        .zip(&theirs)
        .map(|(ours, theirs)| ours.as_micros() as i128 - theirs.as_micros() as i128)
        .collect();
    differences.sort_unstable();
    println!(
        "turn: {:.1} ms by the runner, {:.1} ms bare (medians of {PAIRS}); paired median of the difference {:.1} ms \
         (bar: 30), of which our own CPU {:.1} ms",
        millis(median(&mut ours)),
        millis(median(&mut theirs)),
        differences[PAIRS / 2] as f64 / 1000.0,
        millis(used)
    );
    companion.stop(runner);
}

/// `claude -p` as the runner starts it, without the runner.
fn bare(companion: &Companion, session: &[&str]) -> Duration {
    let config = companion.world.sandbox.path("config.toml");
    let servers = json!({"mcpServers": {"kael-thread-rebuild": {"type": "stdio",
        "command": env!("CARGO_BIN_EXE_kael-runner"), "args": ["--config", config, "mcp"], "env": {},
        "alwaysLoad": true}}})
    .to_string();
    let begin = Instant::now();
    let outcome = companion
        .world
        .invoke()
        .args(session.iter().copied())
        .args(["--mcp-config", &servers])
        .env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1")
        .send_blocks(&uuid::Uuid::new_v4().to_string(), &["hello"])
        .run();
    let took = begin.elapsed();
    drop(outcome.expect_code(0));
    took
}

/// Somebody who is attached.
struct Chat {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Chat {
    fn to(companion: &Companion) -> Self {
        let stream = UnixStream::connect(companion.world.sandbox.state().join("attach.sock")).unwrap();
        Self { write: stream.try_clone().unwrap(), read: BufReader::new(stream) }
    }

    /// From the words to the end of their turn, its reply stored.
    fn turn(&mut self, words: &str) -> Duration {
        let begin = Instant::now();
        writeln!(self.write, "{}", json!({"type": "say", "key": words, "words": words})).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.read.read_line(&mut line).unwrap() > 0, "the runner has left");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["type"] == "turn_ended" {
                assert_eq!(line["outcome"], "answered", "{line}");
                return begin.elapsed();
            }
        }
    }
}

fn idle() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    let runner = companion.start();
    companion.say("hello");
    std::thread::sleep(Duration::from_secs(2));
    let before = switches(&runner);
    std::thread::sleep(Duration::from_secs(10));
    let woken = switches(&runner) - before;
    let status = fs::read_to_string(format!("/proc/{}/status", runner.pid().as_raw_nonzero())).unwrap();
    let field = |name: &str| -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    println!(
        "idle: {woken} wake-ups in 10 s (bar: the watchdog's, one in 30 s), {:.1} MiB resident (bar: 20), {:.1} MiB of it \
         its own",
        field("VmRSS:") as f64 / 1024.0,
        field("RssAnon:") as f64 / 1024.0
    );
    companion.stop(runner);
}

fn inbox() {
    let folder = tempfile::tempdir().unwrap();
    let mut queue = Queue::open(folder.path()).unwrap();
    const COUNT: u32 = 2000;
    let begin = Instant::now();
    for n in 0..COUNT {
        let new = NewMessage {
            front: "bench".into(),
            key: n.to_string(),
            sender: "a bench".into(),
            words: "as many words as one says at once, more or less".into(),
        };
        queue.accept(&new, SystemClock.now()).unwrap();
    }
    let rate = f64::from(COUNT) / begin.elapsed().as_secs_f64();
    println!("inbox: {rate:.0} messages a second, each durable before the next");
}

fn stand_in() {
    let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
    companion.world.stub.on(|_| Some(Reply::text("Hello yourself.")));
    let runner = companion.start();
    companion.say("seed");
    let mut chat = Chat::to(&companion);
    let begin = Instant::now();
    const TURNS: u32 = 60;
    for n in 0..TURNS {
        chat.turn(&format!("hello {n}"));
    }
    let rate = f64::from(TURNS) / begin.elapsed().as_secs_f64();
    println!("stand-in: {rate:.1} messages a second, one a turn, from the words to the stored reply");
    companion.stop(runner);
}

/// From the start to READY, with a long life in the queue.
fn start() {
    for stored in [0_u32, 100_000] {
        let companion = Companion::new(Subject::StandIn, "", "rebuild = \"off\"");
        companion.run(&["send", "hello"]).expect_code(0);
        companion.run(&["run", "--until-idle"]).expect_code(0);
        fill(&companion, stored);
        let path = companion.world.sandbox.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let begin = Instant::now();
        let runner = Running::spawn(companion.command(&["run"]).env("NOTIFY_SOCKET", &path));
        let mut buffer = [0; 512];
        let told = socket.recv(&mut buffer).unwrap();
        let took = begin.elapsed();
        assert_eq!(String::from_utf8_lossy(&buffer[..told]).trim(), "READY=1");
        let begin = Instant::now();
        companion.json(&["status"]);
        let status = begin.elapsed();
        let mut chat = Chat::to(&companion);
        let mut turns: Vec<Duration> = (0..5).map(|n| chat.turn(&format!("again {n}"))).collect();
        println!(
            "start with {stored} stored messages: {:.0} ms to READY, `status` {:.0} ms, a turn on the stand-in {:.0} ms",
            millis(took),
            millis(status),
            millis(median(&mut turns))
        );
        companion.stop(runner);
    }
}

/// Answered messages, as they would stand there after years.
fn fill(companion: &Companion, count: u32) {
    let path = companion.world.sandbox.state().join("queue.sqlite");
    let mut connection = rusqlite::Connection::open(path).unwrap();
    let t = connection.transaction().unwrap();
    let session = companion.session();
    for n in 0..count {
        t.execute(
            "INSERT INTO turns (state, content, created_at, ended_at) VALUES ('answered', '[]', ?1, ?1)",
            [n],
        )
        .unwrap();
        let turn = t.last_insert_rowid();
        t.execute(
            "INSERT INTO messages (front, key, sender, words, at, state, turn)
             VALUES ('old', ?1, 'Wen', 'as many words as one says at once, more or less', ?1, 'answered', ?2)",
            rusqlite::params![n, turn],
        )
        .unwrap();
        t.execute(
            "INSERT INTO invocations (id, turn, route, note, session, new_session, transcript, from_offset, row_uuid, line,
                 started_at, ended_at, ending)
             VALUES (?1, ?2, 'send', 0, ?3, 0, '/nowhere', 0, ?4, '{}', ?5, ?5, 'answered')",
            rusqlite::params![
                uuid::Uuid::new_v4().to_string(),
                turn,
                session,
                uuid::Uuid::new_v4().to_string(),
                n
            ],
        )
        .unwrap();
        t.execute(
            "INSERT INTO replies (turn, message_id, block_index, words, stored_at) VALUES (?1, ?2, 0, 'yes', ?2)",
            rusqlite::params![turn, n],
        )
        .unwrap();
    }
    t.commit().unwrap();
}

fn switches(runner: &Running) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", runner.pid().as_raw_nonzero())).unwrap();
    let counts = tasks.map(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    });
    counts.sum()
}

/// User and system time of the process, without its children.
fn cpu(runner: &Running) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", runner.pid().as_raw_nonzero())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn median(all: &mut [Duration]) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
