//! `forget`: something that was said, for good. Only here, by a human, while nothing runs.

use std::io::{IsTerminal, Read};

use serde_json::json;

use crate::companion::Companion;
use crate::forget::{self, Found, Words};
use crate::keeper::Keeper;

use super::args;
use super::error::{CliError, ErrorKind};
use super::output::Output;

/// Runs the command.
pub fn run(companion: Companion, args: &args::Forget, output: &Output) -> Result<(), CliError> {
    let holder = companion.holder();
    let mut keeper = Keeper::try_take(companion)?.ok_or_else(|| {
        CliError::new(
            ErrorKind::Busy,
            format!("the companion is run by {holder}: stop that one first; nothing was changed"),
        )
    })?;
    keeper.recover()?;
    forget::refuse_unless_quiet(&keeper)?;
    let words = match (&args.words, args.lines) {
        (_, Some(lines)) => forget::words_of_lines(&keeper, lines)?,
        (Some(words), None) => Words::sentence(&given(words)?)?,
        (None, None) => return Err(CliError::new(ErrorKind::Usage, "say what is to be forgotten")),
    };
    let found = forget::look(&mut keeper, &words)?;
    // An interrupted one may have rewritten everything but its notes.
    if found.is_empty() && forget::unfinished(&keeper)?.is_none() {
        return Err(CliError::refused(format!(
            "these words stand nowhere in the conversation or in what is kept about it: nothing was changed{}",
            elsewhere(&found)
        )));
    }
    let files = found.files.len();
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            return Err(CliError::new(
                ErrorKind::Usage,
                "`forget` asks at a terminal: say --yes where there is none; nothing was changed",
            ));
        }
        eprintln!(
            "  {} lines of the conversation, {files} files, {} values of the queue hold it. Old transcripts and copies are \
             rewritten; there is no way back.{}",
            found.in_conversation,
            found.in_queue,
            elsewhere(&found)
        );
        super::operations::say_yes("Forget it for good?")?;
    }
    forget::forget(&mut keeper, &words, &found)?;
    let value = json!({
        "schema": 1,
        "ok": true,
        "conversation_lines": found.in_conversation,
        "files": files,
        "queue_values": found.in_queue,
        "elsewhere": found.elsewhere,
    });
    output.print(&value, || {
        format!(
            "forgotten: {} lines of the conversation, {files} files, {} values of the queue{}",
            found.in_conversation,
            found.in_queue,
            elsewhere(&found)
        )
    })
}

fn given(words: &str) -> Result<String, CliError> {
    if words != "-" {
        return Ok(words.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}

fn elsewhere(found: &Found) -> String {
    if found.elsewhere.is_empty() {
        return String::new();
    }
    let list: Vec<String> = found.elsewhere.iter().map(|path| path.display().to_string()).collect();
    format!(
        ". It also stands in files that are not this companion's, which are left alone: {}",
        list.join(", ")
    )
}
