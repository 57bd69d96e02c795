//! What happens in the demo, part by part. Each part shows what it does and notes what it saw; whether it was true is
//! for the [claims](super::claims).

use std::fs;
use std::io::Write;

use serde_json::{Value, json};

use crate::cli::error::CliError;
use crate::cli::output::bytes;

use super::language::{Language, say};
use super::record::{Record, Speaker};
use super::screen::{Screen, Voice};
use super::stage::{Runner, Stage};

/// Milliseconds a letter.
const TYPING: u64 = 9;
const SPEAKING: u64 = 3;

/// The demo while it runs.
pub struct Story<'a> {
    /// Where it is shown.
    pub screen: &'a Screen,
    /// Where it happens.
    pub stage: &'a Stage,
    /// What was seen.
    pub record: Record,
}

impl Story<'_> {
    fn language(&self) -> Language {
        self.screen.language
    }

    /// All parts; the runner that lives at the end is the caller's.
    pub fn tell(&mut self) -> Result<Runner, CliError> {
        self.opening()?;
        let runner = self.stage.start()?;
        self.talk()?;
        self.ask()?;
        self.remember()?;
        let runner = self.kill(runner)?;
        self.stranger()?;
        self.unknown_row()?;
        self.last_question()?;
        Ok(runner)
    }

    fn opening(&self) -> Result<(), CliError> {
        let language = self.language();
        self.screen.title("Kael Runner")?;
        self.screen.narrate(&say!(
            language,
            "A companion is a bot that somebody talks to for months, in one Claude Code conversation. Its tools fill that conversation with noise. The runner keeps the words and drops the noise, and proves it.\nEverything here is real but the model: a stand-in answers from what is in its context, and knows nothing else. No account, no network.",
            "伙伴是一个陪人聊上几个月的机器人，活在同一个 Claude Code 对话里。它用的工具会把这个对话塞满噪音。运行器留下说过的话，丢掉噪音，并且给出证明。\n这里除了模型都是真的：替身只根据上下文里有的东西回答，别的一概不知。不需要账号，也不需要网络。"
        ))?;
        self.screen.pause(1500)
    }

    fn talk(&mut self) -> Result<(), CliError> {
        let language = self.language();
        self.screen.part(
            1,
            &say!(language, "Talking", "聊天"),
            &say!(
                language,
                "Each message is stored before anything else; then one `claude -p --resume` answers it.",
                "每条消息先落盘，再由一次 `claude -p --resume` 来回答。"
            ),
        )?;
        self.exchange(&say!(
            language,
            "My daughter wants to build a red kite with a long tail.",
            "我女儿想做一只红色的风筝，尾巴要长。"
        ))?;
        let mut due = false;
        for words in [
            say!(language, "Please look at the shed and tell me what is there.", "请看看棚子里有什么。"),
            say!(language, "The tail should be white, with three bows. 🪁", "尾巴要白色的，系三个蝴蝶结。🪁"),
            say!(
                language,
                "Please look at the shed once more, I have moved some things.",
                "请再看看棚子，我挪动了一些东西。"
            ),
        ] {
            self.exchange(&words)?;
            due = self.noise()?;
        }
        if due { Ok(()) } else { Err(CliError::failed("the talk made too little noise for a rebuild")) }
    }

    /// Says something and shows the answer.
    fn exchange(&mut self, words: &str) -> Result<String, CliError> {
        self.screen.words(Voice::Human, words, TYPING)?;
        self.record.note(Speaker::Human, words);
        self.answer_to(&["send", "--wait", "--timeout", "40", "--", words])
    }

    fn answer_to(&mut self, send: &[&str]) -> Result<String, CliError> {
        let mut arguments = vec!["--json"];
        arguments.extend(send);
        let said = self.screen.waiting(|| self.stage.done(&arguments))?;
        let value: Value = serde_json::from_str(&said).unwrap_or_default();
        let replies: Vec<&str> =
            value["replies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for reply in &replies {
            self.record.note(Speaker::Companion, reply);
            self.screen.words(Voice::Companion, reply, SPEAKING)?;
        }
        self.screen.pause(300)?;
        Ok(replies.join("\n"))
    }

    /// Shows how much noise there is against the budget; whether that is due.
    fn noise(&self) -> Result<bool, CliError> {
        let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
        let mut dirty = Value::Null;
        // The level from which it counts is set when the turn's aftermath is done, just after its reply.
        self.stage.wait("the first turn is measured", || {
            dirty = self.stage.json(&["dirty"])?.0;
            Ok(number(&dirty, "baseline_bytes") > 0)
        })?;
        let part = number(&dirty, "total_bytes").saturating_sub(number(&dirty, "baseline_bytes"));
        let budget = number(&dirty, "dirty_budget_bytes");
        let (now, most) = (bytes(part), bytes(budget));
        self.screen.gauge(
            &say!(self.language(), "noise: {now} of {most}", "噪音：{now}，预算 {most}"),
            part,
            budget,
        )?;
        Ok(part >= budget)
    }

    fn ask(&mut self) -> Result<(), CliError> {
        let language = self.language();
        self.screen.part(
            2,
            &say!(language, "Asking, and rebuilding", "先问，再重建"),
            &say!(
                language,
                "The budget is crossed. Nothing is dropped without a human's yes, so the runner asks.",
                "超出预算了。没有人的同意什么都不会丢，所以运行器先问。"
            ),
        )?;
        let mut operation = String::new();
        self.stage.wait("the runner asks", || {
            let status = self.stage.json(&["status"])?.0;
            let id = status["operation"]["operation_id"].as_str().unwrap_or_default();
            id.clone_into(&mut operation);
            Ok(status["operation"]["status"] == "pending")
        })?;
        self.record.asked.session_then = self.stage.points_to()?;
        self.record.asked.spoken_then = self.record.spoken.len();
        self.record.asked.operation.clone_from(&operation);
        for line in self.figures()? {
            self.screen.line(Voice::Runner, &line)?;
        }
        self.screen.pause(1800)?;
        self.screen.words(Voice::Command, "kael-runner confirm --yes", TYPING)?;
        let (answer, code) = self.screen.waiting(|| self.stage.json(&["confirm", &operation, "--yes"]))?;
        let operation = &answer["operation"];
        if code != 0 || operation["status"] != "activated" {
            let error = answer["error"].as_str().unwrap_or("it is not activated");
            return Err(CliError::failed(format!("the rebuild did not come about: {error}")));
        }
        let checks =
            operation.pointer("/verification/proof/checks").and_then(Value::as_array).map_or(0, Vec::len);
        let (old, new) = (head(&operation["source_session_id"]), head(&operation["new_session_id"]));
        let before = bytes(operation["source_len"].as_u64().unwrap_or(0));
        let after = bytes(operation["candidate_len"].as_u64().unwrap_or(0));
        for line in [
            say!(
                language,
                "frozen, planned, written, and proved: {checks} checks hold",
                "已冻结、规划、写出并证明：{checks} 项检查全部成立"
            ),
            say!(
                language,
                "the pointer moved: {old}… ({before}) → {new}… ({after}); the old session stays as it is",
                "指针已移动：{old}…（{before}）→ {new}…（{after}）；旧会话原样保留"
            ),
        ] {
            self.screen.line(Voice::Runner, &line)?;
            self.screen.pause(700)?;
        }
        Ok(())
    }

    /// The three figures that a human says yes to.
    fn figures(&self) -> Result<[String; 3], CliError> {
        let plan = self.stage.json(&["plan"])?.0;
        let number = |pointer: &str| plan.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let (carried, all) = (number("/stats/selected_turns"), number("/stats/source_turns"));
        let noise = bytes(number("/dirty/total_bytes"));
        let kinds = plan["drops"].as_array().map_or(0, Vec::len);
        let (now, after) = (number("/gain/measured_tokens"), number("/gain/estimated_after"));
        let percent = number("/gain/percent");
        let language = self.language();
        Ok([
            say!(
                language,
                "carried: {carried} of {all} turns, every word unchanged",
                "保留：{all} 轮中的 {carried} 轮，一字不改"
            ),
            say!(language, "dropped: {noise} of noise, {kinds} kinds", "丢弃：{noise} 噪音，{kinds} 类"),
            say!(
                language,
                "gain: from {now} tokens to about {after}, {percent} % less",
                "收益：从 {now} 个 token 到约 {after} 个，减少 {percent} %"
            ),
        ])
    }

    fn remember(&mut self) -> Result<(), CliError> {
        let language = self.language();
        self.screen.part(
            3,
            &say!(language, "Remembering", "还记得"),
            &say!(
                language,
                "This turn resumes the new, clean session. The first sentence was said in the old one.",
                "这一轮恢复的是干净的新会话。第一句话是在旧会话里说的。"
            ),
        )?;
        let asked = say!(language, "What was the first thing I said?", "我说的第一句话是什么？");
        self.record.remembered = self.exchange(&asked)?;
        Ok(())
    }

    fn kill(&mut self, runner: Runner) -> Result<Runner, CliError> {
        let language = self.language();
        self.screen.part(
            4,
            &say!(language, "kill -9, in the middle of a turn", "在一轮中间 kill -9"),
            &say!(
                language,
                "The message is in the transcript, the answer is not. Runner and claude are killed.",
                "消息已经写进会话记录，回答还没有。这时把运行器和 claude 都杀掉。"
            ),
        )?;
        let words = say!(
            language,
            "Take your time: which name would suit the kite?",
            "慢慢想：这只风筝叫什么名字好？"
        );
        self.screen.words(Voice::Human, &words, TYPING)?;
        self.record.note(Speaker::Human, &words);
        let key = "the-name";
        self.stage.done(&["send", "--key", key, "--", &words])?;
        let transcript = self.stage.transcript(&self.stage.points_to()?);
        self.stage.wait("the message is in the transcript", || {
            Ok(self.rows_with(&transcript, &words, "user")? > 0)
        })?;
        self.screen.pause(400)?;
        let children = self.stage.at_work()?;
        let pids: Vec<String> = children.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
        let line = format!("kill -9 {} {}", runner.pid(), pids.join(" "));
        runner.kill(&children)?;
        self.screen.line(Voice::Stranger, &line)?;
        let inbox = self.stage.json(&["status"])?.0;
        let state = inbox["messages"]
            .as_object()
            .and_then(|counts| counts.keys().find(|state| *state != "answered").cloned());
        let answers = self.rows_after(&transcript, &words)?;
        let killed = &mut self.record.killed;
        killed.words.clone_from(&words);
        killed.answered_then = answers > 0;
        killed.inbox_then = state.unwrap_or_default();
        let rows = self.rows_with(&transcript, &words, "user")?;
        self.record.killed.rows_then = rows;
        self.screen.line(
            Voice::Runner,
            &say!(
                language,
                "is gone. On disk: the message in the inbox, its row in the transcript ({rows}), no answer",
                "已经不在了。磁盘上有：收件箱里的消息，会话记录里它那一行（{rows} 行），没有回答"
            ),
        )?;
        self.screen.pause(1000)?;
        self.screen.words(Voice::Command, "kael-runner run", TYPING)?;
        let runner = self.stage.start()?;
        self.screen.pause(1000)?;
        self.stage.enough()?;
        self.answer_to(&["send", "--wait", "--timeout", "40", "--key", key, "--", &words])?;
        let rows = self.rows_with(&transcript, &words, "user")?;
        self.screen.line(
            Voice::Runner,
            &say!(
                language,
                "took the turn up again; the message is in the transcript {rows} time, and answered",
                "接着完成了这一轮；消息在会话记录里出现 {rows} 次，已回答"
            ),
        )?;
        Ok(runner)
    }

    /// How many rows of this type hold these words; a row of the runtime's own is of another type.
    fn rows_with(&self, transcript: &std::path::Path, words: &str, kind: &str) -> Result<usize, CliError> {
        let rows = rows(transcript)?;
        Ok(rows.iter().filter(|row| row["type"] == kind && text_of(row).contains(words)).count())
    }

    /// How many texts of the companion stand behind these words.
    fn rows_after(&self, transcript: &std::path::Path, words: &str) -> Result<usize, CliError> {
        let rows = rows(transcript)?;
        let behind = rows.iter().skip_while(|row| row["type"] != "user" || !text_of(row).contains(words));
        Ok(behind.filter(|row| row["type"] == "assistant" && !text_of(row).is_empty()).count())
    }

    fn stranger(&mut self) -> Result<(), CliError> {
        let language = self.language();
        self.exchange(&say!(
            language,
            "Please look at the shed: is the glue there?",
            "请看看棚子：胶水在吗？"
        ))?;
        self.screen.part(
            5,
            &say!(language, "Somebody else writes the pointer", "别人改写了指针"),
            &say!(
                language,
                "A second rebuild, by hand this time. Between proof and switch an old script writes the pointer.",
                "再重建一次，这回手动来。在证明和切换之间，一个旧脚本改写了指针。"
            ),
        )?;
        let ours = self.stage.points_to()?;
        self.screen.words(Voice::Command, "kael-runner request; kael-runner prepare", TYPING)?;
        self.stage.done(&["request", "--reason", "the demo"])?;
        let (prepared, code) = self.screen.waiting(|| self.stage.json(&["prepare"]))?;
        if code != 0 {
            let error = prepared["error"].as_str().unwrap_or("no reason was given");
            return Err(CliError::failed(format!("the second candidate was not prepared: {error}")));
        }
        let foreign = uuid::Uuid::new_v4().to_string();
        self.screen.words(
            Voice::Stranger,
            &format!("echo {}… > resume_session", head(&json!(foreign))),
            TYPING,
        )?;
        fs::write(self.stage.pointer(), format!("{foreign}\n"))?;
        self.screen.words(Voice::Command, "kael-runner confirm --yes", TYPING)?;
        let refused = self.screen.waiting(|| self.stage.run(&["confirm", "--yes"]))?;
        self.screen.line(Voice::Runner, &refused.error)?;
        let (after, code) = (self.stage.points_to()?, refused.code);
        let shown = head(&json!(after)).to_owned();
        self.screen.line(
            Voice::Runner,
            &say!(
                language,
                "exit {code}; the pointer still says {shown}…, as the stranger wrote it",
                "退出码 {code}；指针里仍是 {shown}…，就是那个脚本写的"
            ),
        )?;
        self.screen.pause(1200)?;
        self.record.foreign.operation =
            prepared["operation"]["operation_id"].as_str().unwrap_or_default().to_owned();
        self.record.foreign.session.clone_from(&foreign);
        self.record.foreign.exit_code = code;
        self.record.foreign.pointer_after = after;
        self.record.foreign.mended.clone_from(&ours);
        self.screen.words(
            Voice::Command,
            &format!(
                "kael-runner pointer set {}… --expect {}…; kael-runner clear",
                head(&json!(ours)),
                head(&json!(foreign))
            ),
            TYPING,
        )?;
        self.stage.done(&["pointer", "set", &ours, "--expect", &foreign])?;
        self.stage.done(&["clear"])?;
        self.screen
            .line(Voice::Runner, &say!(language, "a human has decided; all goes on", "人做了决定，一切照常"))
    }

    /// A row of a shape that no version has written so far, at the end of a copy of the session.
    fn unknown_row(&mut self) -> Result<(), CliError> {
        let language = self.language();
        self.screen.part(
            6,
            &say!(language, "A row that nobody knows", "一行没人认识的记录"),
            &say!(
                language,
                "The CLI's format changes. What is not understood is not guessed: here in a copy of the session.",
                "CLI 的格式会变。看不懂的就不猜：这里用会话的一个副本来演示。"
            ),
        )?;
        let source = self.stage.transcript(&self.stage.points_to()?);
        let copy = self.stage.transcript(&uuid::Uuid::new_v4().to_string());
        fs::copy(&source, &copy)?;
        let mut file = fs::OpenOptions::new().append(true).open(&copy)?;
        let row = json!({"type": "telepathy", "uuid": uuid::Uuid::new_v4(), "timestamp": "2030-01-01T00:00:00.000Z",
            "message": {"role": "user", "content": "words in a shape that nobody knows yet"}});
        writeln!(file, "{row}")?;
        let lines = fs::read(&copy)?.iter().filter(|&&byte| byte == b'\n').count();
        let path = copy.display().to_string();
        self.screen.words(Voice::Command, "kael-runner plan --transcript copy.jsonl", TYPING)?;
        let (plan, code) = self.stage.json(&["plan", "--transcript", &path])?;
        fs::remove_file(&copy)?;
        let drift = &mut self.record.drift;
        drift.line = lines as u64;
        drift.exit_code = code;
        plan["blocked_reason"].as_str().unwrap_or_default().clone_into(&mut drift.reason);
        let reason = &self.record.drift.reason;
        self.screen.line(
            Voice::Runner,
            &say!(
                language,
                "blocked: {reason} (exit {code})",
                "拒绝重建，指出第 {lines} 行（退出码 {code}）：{reason}"
            ),
        )?;
        self.screen.pause(1000)
    }

    fn last_question(&mut self) -> Result<(), CliError> {
        let asked = say!(self.language(), "How many things have I told you?", "我一共跟你说过几句话？");
        self.exchange(&asked)?;
        self.screen.pause(600)
    }
}

fn head(id: &Value) -> &str {
    id.as_str().and_then(|id| id.get(..8)).unwrap_or("?")
}

fn rows(transcript: &std::path::Path) -> Result<Vec<Value>, CliError> {
    let bytes = match fs::read(transcript) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    // The last line may be half written at this instant; it counts once it is whole.
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn text_of(row: &Value) -> String {
    let blocks = row["message"]["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect()
}
