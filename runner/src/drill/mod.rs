//! `drill`: a switch rehearsed where nothing can be lost.
//!
//! A scratch folder inside the working folder (so that the CLI trusts it), a session of its own in it, and a pane on a
//! tmux server of its own, or a unit of its own: the live companion is not touched. Two code words are said, the
//! session is rebuilt and switched with the companion's real flags, and then both words are asked for.

mod scratch;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kael_core::config::{Activation, Config};
use kael_core::ids::SessionId;
use kael_core::operation::Status;
use kael_core::pointer::PointerValue;
use serde_json::{Value, json};

use crate::claude::command::REMOVED;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::companion::Companion;
use crate::init::argv;
use crate::keeper::{Keeper, outcome_line};
use crate::setup;

use scratch::Scratch;

/// A turn that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(180);
/// Found in the names of plugins and channels that poll a chat with a token that only one may poll with.
const POLLER: &str = "telegram";

/// What was rehearsed so far.
struct Report {
    steps: Vec<(String, bool)>,
    warnings: Vec<String>,
    quiet: bool,
}

impl Report {
    fn step(&mut self, text: impl Into<String>, ok: bool) {
        let text = text.into();
        if !self.quiet {
            println!("{}  {text}", if ok { "pass" } else { "fail" });
        }
        self.steps.push((text, ok));
    }
}

/// Runs the command.
pub fn run(companion: &Companion, output: &Output) -> Result<(), CliError> {
    let mut report = Report { steps: Vec::new(), warnings: Vec::new(), quiet: output.json };
    scratch::sweep(&companion.config);
    let flags = flags(&companion.config, &mut report.warnings);
    for warning in &report.warnings {
        eprintln!("! {warning}");
    }
    let mut scratch = Scratch::make(&companion.config, &flags)?;
    let rehearsed = rehearse(companion, &mut scratch, &flags, &mut report);
    let left = scratch.clean();
    report.step("everything of the drill is gone again", left.is_empty());
    let failed = match &rehearsed {
        Err(error) => Some(error.message.clone()),
        Ok(()) if !left.is_empty() => Some(format!("could not be cleaned up: {}", left.join("; "))),
        Ok(()) => None,
    };
    if let Some(why) = failed {
        return Err(CliError::failed(format!("the drill failed; the live companion was not touched: {why}")));
    }
    let value = json!({
        "schema": 1,
        "ok": true,
        "activation": companion.config.activation.as_str(),
        "steps": report.steps.iter().map(|(text, ok)| json!({ "step": text, "ok": ok })).collect::<Vec<_>>(),
        "warnings": report.warnings,
    });
    output.print(&value, || "the drill has passed: a switch works in this setup".to_owned())
}

fn rehearse(
    companion: &Companion,
    scratch: &mut Scratch,
    flags: &[String],
    report: &mut Report,
) -> Result<(), CliError> {
    let (first, second) = (code_word(), code_word());
    let session = SessionId::generate();
    let turn = |scratch: &Scratch, way: [&str; 2], words: &str| say(companion, scratch, flags, way, words);
    let id = session.to_string();
    turn(
        scratch,
        ["--session-id", &id],
        &format!("This is a drill. The first code word is {first}. Reply with: noted"),
    )?;
    turn(scratch, ["--resume", &id], &format!("The second code word is {second}. Reply with: noted"))?;
    report.step("two code words were said in a session of the drill", true);

    let drilled = scratch.companion()?;
    drilled.create_folders()?;
    drilled.pointer.set(PointerValue::Absent, session, "drill", drilled.clock.now())?;
    scratch.open(&drilled, session)?;
    let mut keeper = Keeper::try_take(drilled.clone())?
        .ok_or_else(|| CliError::failed("the drill's own lock is taken"))?;
    setup::wait_idle(&drilled.config, Some(PATIENCE), &|_| {})?;
    let operation = keeper.request("a drill", "drill", false)?;
    let yes = kael_core::operation::Consent::without_plan("drill", drilled.clock.now(), PATIENCE * 2);
    keeper.store.lock()?.agree(operation.id, yes, drilled.clock.now())?;
    keeper.operate(operation.id)?;
    let operation = keeper.store.load(operation.id)?;
    let switched = operation.status() == Status::Activated;
    report.step(
        format!("the rebuilt session was made current ({})", drilled.config.activation.as_str()),
        switched,
    );
    if !switched {
        return Err(CliError::failed(outcome_line(&operation)));
    }
    drop(keeper);
    let Some(new) = drilled.pointer.read()?.session() else {
        return Err(CliError::failed("the drill's pointer names no session"));
    };
    // One process at a time on a session: the question goes the short way.
    scratch.close();
    let answer = turn(
        scratch,
        ["--resume", &new.to_string()],
        "Which two code words did I tell you? Reply with both.",
    )?;
    let lower = answer.to_lowercase();
    let known = [&first, &second].iter().all(|word| lower.contains(word.as_str()));
    report.step("both code words were known in the rebuilt session", known);
    if known {
        Ok(())
    } else {
        Err(CliError::failed(format!("it answered: {}", answer.chars().take(200).collect::<String>())))
    }
}

/// A word that nobody says by chance.
fn code_word() -> String {
    let letters = uuid::Uuid::new_v4().as_simple().to_string();
    format!("kael{}", &letters[..8])
}

/// The flags of `resume_command` and `[claude] args`, without what would poll a chat a second time.
fn flags(config: &Config, warnings: &mut Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let own = argv::resume_command(&config.resume_command).kept;
    let all =
        own.iter().chain(config.claude.args.iter().filter(|_| config.activation == Activation::Pointer));
    let mut left_out = Vec::new();
    let mut option = String::new();
    for argument in all {
        if argument.starts_with('-') {
            option.clone_from(argument);
        }
        if argument.to_lowercase().contains(POLLER) {
            left_out.push(format!("{option} {argument}"));
            if !option.contains('=') && kept.last() == Some(&option) {
                kept.pop();
            }
            continue;
        }
        kept.push(argument.clone());
    }
    let plugins = polling_plugins(config);
    if !plugins.is_empty() && !kept.iter().any(|argument| argument == "--settings") {
        let off: serde_json::Map<String, Value> =
            plugins.iter().map(|name| (name.clone(), json!(false))).collect();
        kept.extend(["--settings".to_owned(), json!({ "enabledPlugins": off }).to_string()]);
    }
    left_out.extend(plugins);
    if !left_out.is_empty() {
        warnings.push(format!(
            "left out of the drill: {}. A second poller would take the live companion's token away from it (409 Conflict)",
            left_out.join(", ")
        ));
    }
    kept
}

/// Plugins that the user's settings switch on everywhere, and that poll.
fn polling_plugins(config: &Config) -> Vec<String> {
    let file =
        config.project_dir.parent().and_then(std::path::Path::parent).map(|dir| dir.join("settings.json"));
    let text = file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default();
    let settings: Value = serde_json::from_slice(&text).unwrap_or_default();
    let plugins = settings["enabledPlugins"].as_object().cloned().unwrap_or_default();
    plugins
        .into_iter()
        .filter(|(name, on)| *on == Value::Bool(true) && name.to_lowercase().contains(POLLER))
        .map(|(name, _)| name)
        .collect()
}

/// One turn with the companion's flags; its reply.
fn say(
    companion: &Companion,
    scratch: &Scratch,
    flags: &[String],
    way: [&str; 2],
    words: &str,
) -> Result<String, CliError> {
    let config = &companion.config;
    let path =
        config.claude.env.get("PATH").map(std::ffi::OsString::from).or_else(|| std::env::var_os("PATH"));
    let binary =
        crate::claude::binary::resolve(setup::program_of(config), &config.claude_workdir, path.as_deref())?;
    let mut command = Command::new(&binary);
    for name in REMOVED {
        command.env_remove(name);
    }
    let mut child = command
        .args(["-p", "--output-format", "json"])
        .args(way)
        .args(flags)
        .envs(&config.claude.env)
        .env(scratch::MARK, &scratch.id)
        .current_dir(scratch.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A CLI that ends before it has read says why.
        std::io::Write::write_all(&mut stdin, words.as_bytes()).unwrap_or_default();
    }
    let until = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match result["result"].as_str() {
        Some(text) if result["is_error"] == false => Ok(text.to_owned()),
        other => {
            let err = String::from_utf8_lossy(&output.stderr);
            let why = other.unwrap_or_else(|| err.trim());
            Err(CliError::failed(format!(
                "a turn was not answered: {}",
                why.chars().take(300).collect::<String>()
            )))
        }
    }
}
