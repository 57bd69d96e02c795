//! From the arguments to the exit code: opens the session and works through the input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::args::{Args, Format};
use super::interrupt::{Doing, Input};
use super::model::Model;
use super::output::Output;
use super::quirks::{Quirk, Quirks};
use super::session::Session;
use super::turn::{self, Ending, Prompt, Runtime};
use super::{interrupt, resume, signals};

const DEFAULT_MODEL: &str = "claude-opus-5-5";

/// Why a run ended before its first turn.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("the transcript or the working folder cannot be used: {0}")]
    Io(#[from] io::Error),
    #[error("Session ID {0} is already in use.")]
    InUse(String),
    #[error("{0}")]
    Quirk(String),
    #[error("HOME is not set, so there is no place for transcripts")]
    NoHome,
    #[error("Input must be provided either through stdin or as a prompt argument when using --print")]
    NoInput,
    #[error(
        "No deferred tool marker found in the resumed session. Provide a prompt to continue the conversation."
    )]
    NoPrompt,
}

/// Runs until the input is at its end; the exit code.
pub(super) fn run(args: Args) -> Result<u8, RunError> {
    let cwd = std::fs::canonicalize(std::env::current_dir()?)?;
    let projects = projects()?;
    let project = projects.join(project_name(&cwd));
    let out = Output {
        format: args.output,
        partial: args.partial,
        replay: args.replay,
        quirks: Quirks::from_env().map_err(RunError::Quirk)?,
    };
    let mut session = match (&args.resume, &args.session_id) {
        (Some(id), new) => {
            let Some(old) = Session::load(&projects, &cwd, id)? else {
                return Ok(refuse(&out, id, &format!("No conversation found with session ID: {id}")));
            };
            if args.fork {
                old.fork(&project, new.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string()))?
            } else {
                old
            }
        }
        (None, Some(id)) => {
            let new = Session::create(&project, &cwd, id.clone());
            if new.exists() {
                return Err(RunError::InUse(id.clone()));
            }
            new
        }
        (None, None) => Session::create(&project, &cwd, uuid::Uuid::new_v4().to_string()),
    };
    if let Some(at) = &args.resume_at {
        if session.row(at).is_none_or(|row| {
            row["type"] != "assistant" && row["type"] != "user" && row["type"] != "attachment"
        }) {
            return Ok(refuse(&out, &session.id, &format!("No message found with message.uuid of: {at}")));
        }
        session.leaf = Some(at.clone());
    }
    let model_name = model_name(&args, &session);
    let model = Model::from_env(&session.id);
    session.mute = out.quirks.has(Quirk::NoRows);
    let session = Arc::new(Mutex::new(session));
    signals::listen(Arc::clone(&session), out.quirks.has(Quirk::IgnoreSigterm))?;
    let (doing, input) = (Doing::default(), Input::default());
    let rt = Arc::new(Runtime { args, out, session, model, model_name, cwd, doing, input, project });
    let code = work(&rt)?;
    Ok(rt.out.quirks.at_the_end(code)?)
}

/// Says so on both streams; 2.1.332 gives stream-json a result line as well.
fn refuse(out: &Output, session: &str, message: &str) -> u8 {
    eprintln!("{message}");
    if out.format == Format::Stream {
        out.result(
            session,
            json!({"type": "result", "subtype": "error_during_execution", "duration_ms": 0,
            "is_error": true, "num_turns": 0, "stop_reason": null, "total_cost_usd": 0, "errors": [message],
            "usage": {"input_tokens": 0, "output_tokens": 0}, "modelUsage": {}, "permission_denials": []}),
        );
    }
    1
}

fn work(rt: &Arc<Runtime>) -> Result<u8, RunError> {
    let mut ending = Ending::Fine;
    if std::env::var_os("CLAUDE_CODE_RESUME_INTERRUPTED_TURN").is_some() {
        ending = resume::interrupted(rt)?.unwrap_or(ending);
    }
    if rt.args.stream_in {
        interrupt::read_input(rt)?;
        while let Some(line) = rt.input.next() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let Ok(input) = serde_json::from_str::<Value>(&line) else {
                eprintln!("Error parsing streaming input line: {line}");
                return Ok(1);
            };
            if input["type"] == "user" {
                let uuid =
                    input["uuid"].as_str().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned);
                ending = turn::message(rt, &Prompt { uuid, content: input["message"]["content"].clone() })?;
            }
        }
    } else {
        ending = turn::message(rt, &plain_prompt(rt)?)?;
    }
    Ok(u8::from(ending == Ending::Failed))
}

fn plain_prompt(rt: &Runtime) -> Result<Prompt, RunError> {
    let mut text = rt.args.prompt.clone().unwrap_or_default();
    if text.is_empty() {
        io::stdin().lock().read_to_string(&mut text)?;
    }
    if text.trim().is_empty() {
        return Err(if rt.args.resume.is_some() { RunError::NoPrompt } else { RunError::NoInput });
    }
    Ok(Prompt { uuid: uuid::Uuid::new_v4().to_string(), content: json!(text.trim_end_matches('\n')) })
}

/// `--model` wins; else a session goes on with the model of its last answer (facts 1).
fn model_name(args: &Args, session: &Session) -> String {
    let chain = session.chain();
    let last = chain.iter().rev().filter(|row| row["type"] == "assistant");
    let last =
        last.filter_map(|row| row["message"]["model"].as_str()).find(|name| name.starts_with("claude-"));
    args.model.clone().unwrap_or_else(|| last.unwrap_or(DEFAULT_MODEL).to_owned())
}

fn projects() -> Result<PathBuf, RunError> {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = var("CLAUDE_CONFIG_DIR").or_else(|| Some(var("HOME")?.join(".claude")));
    Ok(config.ok_or(RunError::NoHome)?.join("projects"))
}

/// The folder name of a working folder (facts 2), by the CLI's side of the rule.
pub(super) fn project_name(cwd: &Path) -> String {
    const LONGEST: usize = 200;
    let units: Vec<u16> = cwd.to_string_lossy().encode_utf16().collect();
    let name: String = units
        .iter()
        .map(|unit| u8::try_from(*unit).ok().filter(u8::is_ascii_alphanumeric).map_or('-', char::from))
        .collect();
    if name.len() <= LONGEST {
        return name;
    }
    let hash = units
        .iter()
        .fold(0_i32, |hash, unit| (hash << 5).wrapping_sub(hash).wrapping_add(i32::from(*unit)))
        .unsigned_abs();
    format!("{}-{}", &name[..LONGEST], base36(hash))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_as_the_cli_names_them() {
        assert_eq!(project_name(Path::new("/srv/my.bot_1")), "-srv-my-bot-1");
        assert_eq!(project_name(Path::new("/灯/🏮é")), "------");
        let long = format!("/{}", "a".repeat(200));
        let name = project_name(Path::new(&long));
        assert!(name.starts_with(&format!("-{}-", "a".repeat(199))), "{name}");
        assert_eq!(base36(35 * 36 + 7), "z7");
    }
}
