//! What we promise (DESIGN 1), each promise held against the files that the demo left. Nothing is believed because
//! it was printed: digests are computed again, rows are read again, by code of the demo's own.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::envelope;
use crate::queue::{MessageState, Queue};

use super::Language;
use super::language::say;
use super::record::{Record, Speaker, Spoken};
use super::stage::Stage;

/// A promise, and whether it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The promise.
    pub promise: Promise,
    /// What was looked at and found, or what is wrong.
    pub result: Result<String, String>,
}

/// The promises of DESIGN 1, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// Every word, byte for byte and in order; what was dropped is counted.
    Lossless,
    /// Proved from the files.
    Provable,
    /// What does not add up is not switched; the old session stays as it was.
    FailSafe,
    /// A message is in the conversation once, and answered.
    ExactlyOnce,
    /// Nobody's write is overwritten unseen.
    CompareAndSwap,
    /// Nothing is dropped without a yes.
    Consent,
    /// What we do not know blocks.
    Drift,
}

impl Promise {
    /// Its name.
    #[must_use]
    pub fn name(self, language: Language) -> String {
        match self {
            Self::Lossless => say!(language, "lossless", "一字不丢"),
            Self::Provable => say!(language, "provable", "可证明"),
            Self::FailSafe => say!(language, "fail-safe", "失败即安全"),
            Self::ExactlyOnce => say!(language, "exactly once into context", "恰好一次进入上下文"),
            Self::CompareAndSwap => say!(language, "compare-and-swap", "比较后交换"),
            Self::Consent => say!(language, "human consent", "人的同意"),
            Self::Drift => say!(language, "format drift is loud", "格式变化必报警"),
        }
    }
}

/// Holds every promise against the files.
#[must_use]
pub fn check(stage: &Stage, record: &Record, language: Language) -> Vec<Claim> {
    let files = Files { stage, record, language };
    [
        (Promise::Lossless, files.lossless()),
        (Promise::Provable, files.provable()),
        (Promise::FailSafe, files.fail_safe()),
        (Promise::ExactlyOnce, files.exactly_once()),
        (Promise::CompareAndSwap, files.compare_and_swap()),
        (Promise::Consent, files.consent()),
        (Promise::Drift, files.drift()),
    ]
    .map(|(promise, result)| Claim { promise, result })
    .into()
}

/// The figures of the rebuild.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the transcript before.
    pub bytes_before: u64,
    /// Bytes of the candidate.
    pub bytes_after: u64,
    /// Tokens of context before, as the last turn measured them.
    pub tokens_before: u64,
    /// Tokens of context in the first turn after.
    pub tokens_after: u64,
    /// Sayings carried.
    pub sayings: usize,
    /// Characters carried.
    pub characters: usize,
    /// The proof's checks: name and count.
    pub checks: Vec<(String, u64)>,
    /// Bytes of noise, by category.
    pub noise: Vec<(String, u64)>,
}

/// Reads the figures from the operation's file.
pub fn figures(stage: &Stage, record: &Record) -> Result<Figures, String> {
    let operation = operation(stage, &record.asked.operation)?;
    let number = |pointer: &str| operation.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let carried = &record.spoken[..record.asked.spoken_then.min(record.spoken.len())];
    let counts = |value: Option<&Value>| -> Vec<(String, u64)> {
        let map = value.and_then(Value::as_object).into_iter().flatten();
        map.map(|(name, count)| (name.clone(), count.as_u64().unwrap_or(0))).collect()
    };
    let checks = operation.pointer("/verification/proof/checks").and_then(Value::as_array);
    let mut noise = counts(operation.pointer("/dirty_at_prepare/categories"));
    noise.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(Figures {
        bytes_before: number("/source_len"),
        bytes_after: number("/candidate_len"),
        tokens_before: number("/dirty_at_prepare/water_level/tokens"),
        tokens_after: number("/verification/first_turn/measured_tokens"),
        sayings: carried.len(),
        characters: carried.iter().map(|spoken| spoken.words.chars().count()).sum(),
        checks: checks
            .into_iter()
            .flatten()
            .map(|check| {
                let name = check["name"].as_str().unwrap_or_default().to_owned();
                (name, check["count"].as_u64().unwrap_or(0))
            })
            .collect(),
        noise,
    })
}

struct Files<'a> {
    stage: &'a Stage,
    record: &'a Record,
    language: Language,
}

impl Files<'_> {
    fn rebuild(&self) -> Result<Value, String> {
        operation(self.stage, &self.record.asked.operation)
    }

    /// The part of the new session that the rebuild wrote; turns were appended behind it since.
    fn candidate(&self, operation: &Value) -> Result<Vec<u8>, String> {
        let path = self.stage.transcript(text(operation, "new_session_id")?);
        let bytes = read(&path)?;
        let length = usize::try_from(operation["candidate_len"].as_u64().unwrap_or(0)).unwrap_or(0);
        bytes.get(..length).map(<[u8]>::to_vec).ok_or_else(|| {
            say!(self.language, "the new session is shorter than what was proved", "新会话比已证明的内容短")
        })
    }

    fn lossless(&self) -> Result<String, String> {
        let operation = self.rebuild()?;
        let candidate = self.candidate(&operation)?;
        let carried = spoken_in(&candidate)?;
        let count = self.record.asked.spoken_then.min(self.record.spoken.len());
        same(&carried, &self.record.spoken[..count])?;
        let first = self.record.spoken.first().map_or("", |spoken| spoken.words.as_str());
        if first.is_empty() || !self.record.remembered.contains(first) {
            return Err(say!(
                self.language,
                "asked for the first sentence, the companion said something else",
                "问到第一句话时，伙伴说的是别的"
            ));
        }
        let noise = String::from_utf8_lossy(&candidate);
        if ["\"tool_use\"", "\"tool_result\"", "\"thinking\""].iter().any(|block| noise.contains(block)) {
            return Err(say!(self.language, "noise is in the candidate", "候选会话里有噪音"));
        }
        let ledger = &operation["dirty_at_prepare"];
        let sum = |name: &str| -> u64 {
            ledger[name].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum()
        };
        let whole = operation["source_len"].as_u64().unwrap_or(0);
        let accounted = sum("categories")
            + sum("bookkeeping")
            + ledger["conversation_bytes"].as_u64().unwrap_or(0)
            + ledger["damage_bytes"].as_u64().unwrap_or(0);
        if accounted != whole || whole == 0 {
            return Err(say!(
                self.language,
                "{accounted} of {whole} bytes are accounted for",
                "{whole} 字节中只有 {accounted} 字节有去处"
            ));
        }
        Ok(say!(
            self.language,
            "{count} sayings in the new session, byte for byte and in order, no noise; the first sentence is known; each of the old one's {whole} bytes is accounted for",
            "新会话里有 {count} 句话，逐字节一致、顺序不变，没有噪音；第一句话还记得；旧会话的 {whole} 个字节每一个都有去处"
        ))
    }

    fn provable(&self) -> Result<String, String> {
        let operation = self.rebuild()?;
        let proof = &operation["verification"]["proof"];
        let checks = proof["checks"].as_array().map_or(0, Vec::len);
        let frozen = sha256(&self.frozen(&operation)?);
        let candidate = sha256(&self.candidate(&operation)?);
        let recorded = [&proof["source_sha256"], &proof["candidate_sha256"]];
        if checks == 0 || recorded != [&Value::from(frozen.as_str()), &Value::from(candidate.as_str())] {
            return Err(say!(
                self.language,
                "the recorded digests are not those of the files",
                "记录的摘要与文件不符"
            ));
        }
        let (from, to) = (&frozen[..8], &candidate[..8]);
        Ok(say!(
            self.language,
            "{checks} checks on record; SHA-256 of source and candidate computed again: {from}…, {to}…",
            "记录了 {checks} 项检查；重新计算源和候选的 SHA-256：{from}…、{to}…"
        ))
    }

    fn frozen(&self, operation: &Value) -> Result<Vec<u8>, String> {
        let id = text(operation, "operation_id")?;
        let name = format!("{}.jsonl", text(operation, "source_session_id")?);
        read(&self.stage.state().join("artifacts").join(id).join(name))
    }

    fn fail_safe(&self) -> Result<String, String> {
        let operation = self.rebuild()?;
        let old = read(&self.stage.transcript(text(&operation, "source_session_id")?))?;
        if old != self.frozen(&operation)? {
            return Err(say!(
                self.language,
                "the old session is not what was frozen",
                "旧会话与冻结的副本不一致"
            ));
        }
        let refused = self::operation(self.stage, &self.record.foreign.operation)?;
        let live = read(&self.stage.transcript(text(&refused, "source_session_id")?))?;
        let kept = live.starts_with(&self.frozen(&refused)?);
        if refused["status"] != "failed"
            || !kept
            || self.stage.transcript(text(&refused, "new_session_id")?).exists()
        {
            return Err(say!(
                self.language,
                "the switch that did not add up left something behind",
                "没通过检查的切换留下了痕迹"
            ));
        }
        let bytes = old.len();
        Ok(say!(
            self.language,
            "the old session stands byte for byte ({bytes} bytes); the switch that did not add up left nothing in the project folder",
            "旧会话逐字节未动（{bytes} 字节）；没通过检查的那次切换在项目目录里什么都没留下"
        ))
    }

    fn exactly_once(&self) -> Result<String, String> {
        let killed = &self.record.killed;
        if killed.answered_then || killed.rows_then != 1 || killed.inbox_then != "delivering" {
            return Err(say!(
                self.language,
                "the kill did not hit the middle of the turn",
                "kill 没有落在一轮的中间"
            ));
        }
        let now = self.stage.points_to().map_err(|error| error.message)?;
        let live = spoken_in(&read(&self.stage.transcript(&now))?)?;
        same(&live, &self.record.spoken)?;
        let queue = Queue::open(&self.stage.state()).map_err(|error| error.to_string())?;
        let counts = queue.message_counts().map_err(|error| error.to_string())?;
        let messages = self.record.spoken.iter().filter(|spoken| spoken.by == Speaker::Human).count();
        if counts != [(MessageState::Answered, messages as u64)] {
            let found: Vec<String> =
                counts.iter().map(|(state, count)| format!("{count} {}", state.word())).collect();
            let found = found.join(", ");
            return Err(say!(
                self.language,
                "the inbox holds {found}, not {messages} answered",
                "收件箱里是 {found}，而不是 {messages} 条已回答"
            ));
        }
        // The mind counts what is in its context, so this is how often the API was told.
        let counted = self.record.spoken.last().map_or("", |spoken| spoken.words.as_str());
        let before = messages - 1;
        if !counted.split(|letter: char| !letter.is_ascii_digit()).any(|number| number == before.to_string())
        {
            return Err(say!(
                self.language,
                "the companion counts otherwise: {counted}",
                "伙伴数出来的不一样：{counted}"
            ));
        }
        Ok(say!(
            self.language,
            "{messages} messages, each in the live conversation once and answered once, over kill -9, rebuild and conflict; the companion counts {before} before the last",
            "{messages} 条消息，经过 kill -9、重建和冲突，在当前对话里各出现一次、各回答一次；伙伴自己数出最后一句之前有 {before} 句"
        ))
    }

    fn compare_and_swap(&self) -> Result<String, String> {
        let foreign = &self.record.foreign;
        let refused = operation(self.stage, &foreign.operation)?;
        let unseen = refused["session_conflict"] != true || foreign.exit_code != 4;
        if unseen || foreign.pointer_after != foreign.session {
            return Err(say!(
                self.language,
                "the stranger's write was overwritten or not seen",
                "别人的写入被覆盖了，或没有被发现"
            ));
        }
        let target = text(&refused, "new_session_id")?;
        let history = history(self.stage)?;
        let mended = history.iter().any(|line| line["from"] == foreign.session.as_str());
        if history.iter().any(|line| line["to"] == target) || !mended {
            return Err(say!(
                self.language,
                "the pointer's history does not say so",
                "指针的历史记录与此不符"
            ));
        }
        let session = short(&foreign.session);
        Ok(say!(
            self.language,
            "the stranger's {session}… stood in the pointer after our switch gave up (exit 4, session_conflict in its file)",
            "我们的切换放弃之后，指针里仍是别人写的 {session}…（退出码 4，操作文件里有 session_conflict）"
        ))
    }

    fn consent(&self) -> Result<String, String> {
        let operation = self.rebuild()?;
        let consent = &operation["consent"];
        let same_plan =
            consent["plan_digest"].is_string() && consent["plan_digest"] == operation["plan_digest"];
        let by = consent["by"].as_str().unwrap_or_default();
        // Timestamps of one form compare as texts.
        let before = consent["at"].as_str() <= operation["activated_at"].as_str();
        let waited = operation["source_session_id"] == self.record.asked.session_then.as_str();
        if !same_plan || !by.contains("human") || !before || !waited {
            return Err(say!(
                self.language,
                "no human's yes to this plan stands in the operation's file",
                "操作文件里没有人对这个方案的同意"
            ));
        }
        let digest = short(consent["plan_digest"].as_str().unwrap_or_default());
        Ok(say!(
            self.language,
            "the pointer stayed while the question was open; the yes is bound to plan {digest}…",
            "提问期间指针没有动；同意只对方案 {digest}… 有效"
        ))
    }

    fn drift(&self) -> Result<String, String> {
        let drift = &self.record.drift;
        let line = drift.line;
        let named = drift.reason.contains(&line.to_string());
        if drift.exit_code != 3 || line == 0 || !named {
            return Err(say!(
                self.language,
                "a row of an unknown shape did not block, or was not named",
                "未知形状的行没有阻止重建，或没有指出是哪一行"
            ));
        }
        Ok(say!(
            self.language,
            "a row of an unknown shape blocks the rebuild, and line {line} is named",
            "未知形状的行会阻止重建，并指出是第 {line} 行"
        ))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("the operation's file has no {key}"))
}

fn operation(stage: &Stage, id: &str) -> Result<Value, String> {
    let path = stage.state().join("operations").join(format!("{id}.json"));
    serde_json::from_slice(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))
}

fn history(stage: &Stage) -> Result<Vec<Value>, String> {
    let path = stage.state().join("resume_session.history");
    let text = read(&path)?;
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).map_err(|error| format!("{}: {error}", path.display())))
        .collect()
}

/// The conversation in a transcript as the demo's stand-in writes it: words that a human sent, and texts of the
/// companion.
fn spoken_in(transcript: &[u8]) -> Result<Vec<Spoken>, String> {
    let mut spoken = Vec::new();
    for (at, line) in transcript.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
    {
        let row: Value = serde_json::from_slice(line).map_err(|error| format!("line {}: {error}", at + 1))?;
        let by = match row["type"].as_str() {
            Some("user") => Speaker::Human,
            Some("assistant") => Speaker::Companion,
            _ => continue,
        };
        let stamp = row["kael"]["stamp"].as_u64().and_then(|stamp| usize::try_from(stamp).ok()).unwrap_or(0);
        for block in row["message"]["content"].as_array().into_iter().flatten() {
            let Some(text) = block["text"].as_str().filter(|_| block["type"] == "text") else { continue };
            let words = match by {
                Speaker::Companion => text.to_owned(),
                Speaker::Human => from_envelope(text.get(stamp..).unwrap_or(text))
                    .ok_or_else(|| format!("line {}: a human text without its envelope", at + 1))?,
            };
            spoken.push(Spoken { by, words });
        }
    }
    Ok(spoken)
}

/// The words in an envelope of `send`, which is what the demo says everything with.
fn from_envelope(text: &str) -> Option<String> {
    let (_, inside) = text.strip_prefix("<channel ")?.split_once(">\n")?;
    Some(envelope::unescape(inside.strip_suffix("\n</channel>")?))
}

fn same(found: &[Spoken], wanted: &[Spoken]) -> Result<(), String> {
    if let Some((at, (found, wanted))) =
        found.iter().zip(wanted).enumerate().find(|(_, (found, wanted))| found != wanted)
    {
        return Err(format!("saying {}: {:?} stands where {:?} was said", at + 1, found.words, wanted.words));
    }
    if found.len() != wanted.len() || wanted.is_empty() {
        return Err(format!("{} sayings stand where {} were said", found.len(), wanted.len()));
    }
    Ok(())
}
