//! `send`: one message into the inbox, and with `--wait` its turn's reply out of it.

use std::io::Read;
use std::time::Instant;

use serde_json::json;

use crate::companion::Companion;
use crate::doorbell::{self, WaitingBell};
use crate::queue::{Hold, Message, MessageState, NewMessage, NextRetry, Queue, Setting, Wait};

use super::args;
use super::error::{CliError, ErrorKind};
use super::output::Output;

/// The spool front's name, and the `source` of its envelopes.
pub const FRONT: &str = "send";
/// A message is one prompt line; more than this is a file and not something said.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Runs the command.
pub fn run(companion: &Companion, args: args::Send, output: &Output) -> Result<(), CliError> {
    super::refuse_inside_invocation("send")?;
    let words = words(args.text)?;
    let mut queue = companion.queue()?;
    let bell = args.wait.then(|| WaitingBell::hang(&companion.config.state_dir)).transpose()?;
    let key = args.key.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let new = NewMessage { front: FRONT.to_owned(), key: key.clone(), sender: args.from, words };
    let accepted = queue.accept(&new, companion.clock.now())?;
    doorbell::ring(&companion.config.state_dir);
    let Some(bell) = bell else {
        return output.print(
            &json!({ "schema": 1, "ok": true, "message": accepted.id, "key": key, "duplicate": accepted.duplicate }),
            || match accepted.duplicate {
                true => format!("already accepted as message {}", accepted.id),
                false => format!("accepted as message {} (key {key})", accepted.id),
            },
        );
    };
    if !companion.runner_lives()? {
        eprintln!("note: no runner is up; the message is stored and waits for `kael-runner run`");
    }
    let mut waits: Option<NextRetry> = None;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let message = queue.message(accepted.id)?.ok_or_else(|| {
            CliError::failed(format!("message {} has vanished from the inbox", accepted.id))
        })?;
        if let Some(result) = outcome(&queue, &message)? {
            return print_reply(&queue, &message, result, output);
        }
        if let Some(hold) = queue.get::<Hold>(Setting::Hold)? {
            return Err(CliError::failed(format!(
                "message {} is stored but the queue is held: {}",
                accepted.id, hold.reason
            )));
        }
        if let Some(next) = queue.get::<NextRetry>(Setting::NextRetry)? {
            // Once for each reason: a person who waits wants to know, and need not be told again.
            if next.why != Wait::Pause && waits.as_ref().is_none_or(|told| told.reason != next.reason) {
                eprintln!("note: {}; it is tried again at {}", next.reason, next.at);
                waits = Some(next);
            }
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return Err(CliError::failed(format!(
                "no reply to message {} within the time given; it is stored and stays {}: to wait for it again, send \
                 it again with --key {}",
                accepted.id,
                message.state.word(),
                key
            )));
        }
        bell.wait(deadline)?;
    }
}

fn words(text: String) -> Result<String, CliError> {
    let words = if text == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|error| {
            CliError::new(
                ErrorKind::Usage,
                format!("standard input is not UTF-8 at byte {}", error.utf8_error().valid_up_to()),
            )
        })?
    } else {
        text
    };
    check_words(&words)?;
    Ok(words)
}

/// Whether words can be a message: there are some, and they are no file.
pub fn check_words(words: &str) -> Result<(), CliError> {
    if words.trim().is_empty() {
        return Err(CliError::new(ErrorKind::Usage, "there are no words to send: the text is empty"));
    }
    if words.len() > MOST_BYTES {
        return Err(CliError::new(
            ErrorKind::Usage,
            format!(
                "the text is longer than {MOST_BYTES} bytes: save it as a file and name that in the message"
            ),
        ));
    }
    Ok(())
}

/// Whether the message's way is over, and if not well, why.
fn outcome(queue: &Queue, message: &Message) -> Result<Option<Result<(), String>>, CliError> {
    Ok(match message.state {
        MessageState::Answered => Some(Ok(())),
        MessageState::Dead => {
            let reason = message.turn.map(|turn| queue.turn_error(turn)).transpose()?.flatten();
            Some(Err(format!(
                "message {} was given up: {}",
                message.id,
                reason.unwrap_or_else(|| "no reason is recorded".into())
            )))
        }
        MessageState::Cancelled => Some(Err(format!("message {} was taken back", message.id))),
        MessageState::Queued | MessageState::Delivering | MessageState::Held => None,
    })
}

fn print_reply(
    queue: &Queue,
    message: &Message,
    result: Result<(), String>,
    output: &Output,
) -> Result<(), CliError> {
    result.map_err(CliError::failed)?;
    let replies: Vec<String> = message
        .turn
        .map(|turn| queue.replies_to(turn))
        .transpose()?
        .unwrap_or_default()
        .into_iter()
        .map(|reply| reply.part.words)
        .collect();
    let mark = message.turn.map(|turn| queue.turn_mark(turn)).transpose()?.flatten();
    if let Some(mark) = &mark {
        eprintln!("note: {mark}");
    }
    if replies.is_empty() && !output.json {
        return Ok(());
    }
    output.print(
        &json!({
            "schema": 1, "ok": true, "message": message.id, "key": message.key, "replies": replies, "mark": mark,
        }),
        || replies.join("\n\n"),
    )
}
