//! `demo`: the whole loop, offline, in a folder of its own, with the stand-in in the place of Claude. Everything runs
//! as it does for a person: a runner in the background and the product's own commands. It fails if one of its claims
//! is false.
//!
//! | module | what |
//! |---|---|
//! | `stage` | the companion's folders and processes |
//! | `story` | what happens, part by part |
//! | `record` | what was seen meanwhile |
//! | `claims` | the promises, held against the files |
//! | `screen`, `language` | how it looks, and in which language |
//! | `chat` | going on afterwards |

mod chat;
pub mod claims;
mod language;
pub mod record;
mod screen;
pub mod stage;
mod story;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cli::error::CliError;
use crate::cli::output::bytes;

pub use language::Language;

use claims::{Claim, Figures};
use language::say;
use record::Record;
use screen::Screen;
use stage::{Stage, Temporary, fresh_folder};
use story::Story;

/// How the demo is to go.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Without pauses and typing.
    pub fast: bool,
    /// Go on typing afterwards.
    pub chat: bool,
    /// Leave the files there.
    pub keep: Option<PathBuf>,
}

/// Plays it.
///
/// # Errors
/// A claim is false, something did not come about, or it was stopped.
pub fn run(options: &Options) -> Result<(), CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    // A terminal that is closed ends the demo as well; its runner must not outlive it.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let language = Language::of(&|name| std::env::var(name).ok());
    let screen = Screen::new(language, options.fast, stop);
    // Declared before the runner, so that its folder outlives it.
    let temporary;
    let root = match &options.keep {
        Some(folder) => fresh_folder(folder)?,
        None => {
            temporary = Temporary::make()?;
            temporary.0.clone()
        }
    };
    let stage = Stage::set(root)?;
    let mut story = Story { screen: &screen, stage: &stage, record: Record::default() };
    let runner = story.tell()?;
    let record = story.record;
    record.leave(&stage.root)?;
    let claims = claims::check(&stage, &record, language);
    let figures = claims::figures(&stage, &record).map_err(CliError::failed)?;
    show(&screen, &figures, &claims)?;
    verdict(&claims)?;
    if options.chat {
        chat::run(&screen, &stage)?;
    } else {
        screen.space()?;
        screen.narrate(&say!(
            language,
            "`kael-runner init` sets up your own companion; `kael-runner demo --chat` goes on talking to this one.",
            "`kael-runner init` 为你自己的伙伴做好设置；`kael-runner demo --chat` 可以跟这一个接着聊。"
        ))?;
    }
    runner.stop()?;
    if let Some(folder) = &options.keep {
        let folder = folder.display();
        screen.narrate(&say!(
            language,
            "The companion's files are in {folder}.",
            "伙伴的文件在 {folder}。"
        ))?;
    }
    Ok(())
}

fn show(screen: &Screen, figures: &Figures, claims: &[Claim]) -> Result<(), CliError> {
    let language = screen.language;
    screen.part(
        7,
        &say!(language, "The figures", "数字"),
        &say!(language, "Each line is read from the files, now.", "每一行都是现在从文件里读出来的。"),
    )?;
    let (before, after) = (bytes(figures.bytes_before), bytes(figures.bytes_after));
    screen.figure(&say!(language, "transcript", "会话记录"), &format!("{before} → {after}"))?;
    let (before, after) = (figures.tokens_before, figures.tokens_after);
    screen.figure(
        &say!(language, "context", "上下文"),
        &say!(language, "{before} → {after} tokens, measured", "{before} → {after} 个 token（实测）"),
    )?;
    let (sayings, characters) = (figures.sayings, figures.characters);
    screen.figure(
        &say!(language, "carried", "保留"),
        &say!(language, "{sayings} sayings, {characters} characters", "{sayings} 句话，{characters} 个字符"),
    )?;
    let noise: Vec<String> =
        figures.noise.iter().map(|(name, count)| format!("{name} {}", bytes(*count))).collect();
    screen.figure(&say!(language, "dropped", "丢弃"), &noise.join(", "))?;
    let counted = figures.checks.iter().filter(|(_, count)| *count > 0);
    let checks: Vec<String> =
        counted.map(|(name, count)| format!("{}:\u{a0}{count}", check_name(name, language))).collect();
    screen.figure(&say!(language, "proof", "证明"), &checks.join("; "))?;
    screen.space()?;
    for claim in claims {
        let detail = claim.result.as_ref().unwrap_or_else(|wrong| wrong);
        screen.claim(claim.result.is_ok(), &claim.promise.name(language), detail)?;
    }
    Ok(())
}

/// A check's name in this language; one that is new stays as the proof calls it.
fn check_name(name: &str, language: Language) -> &str {
    if language == Language::English {
        return name;
    }
    const CHINESE: [(&str, &str); 12] = [
        ("ledger sums to the size of the source", "账目合计等于源文件大小"),
        ("items equal their source", "条目与来源一致"),
        ("texts compared byte for byte", "逐字节比较的文本"),
        ("ids, parents, times and order", "编号、父行、时间与顺序"),
        ("rows split and decoded a second time", "第二次切分并解码的行"),
        ("strings carried or explained", "已保留或有解释的字符串"),
        ("dropped rows with the shape of their rule", "与规则形状相符的丢弃行"),
        ("items taken from places where words belong", "取自该有话语之处的条目"),
        ("rows placed on or off the conversation a second time", "第二次判定在对话内外的行"),
        ("messages of the inbox", "收件箱的消息"),
        ("replies of the outbox", "发件箱的回复"),
        ("the CLI's own copies", "CLI 自己的副本"),
    ];
    CHINESE.iter().find(|(english, _)| *english == name).map_or(name, |(_, chinese)| chinese)
}

/// Whether the demo may say that it went well.
///
/// # Errors
/// Names the promises that were not kept.
pub fn verdict(claims: &[Claim]) -> Result<(), CliError> {
    let broken: Vec<String> = claims
        .iter()
        .filter(|claim| claim.result.is_err())
        .map(|claim| claim.promise.name(Language::English))
        .collect();
    if broken.is_empty() && !claims.is_empty() {
        return Ok(());
    }
    Err(CliError::failed(format!("the demo's claims are false: {}", broken.join(", "))))
}
