//! How the open turn is brought into the conversation next, read from the transcript
//! (DESIGN 9 "Receipts", facts 6).

use std::path::Path;

use kael_core::config::InterruptedTool;
use kael_core::ids::{InvocationId, SessionId};
use kael_core::pointer::PointerValue;
use kael_core::transcript::receipt::{self, After, Receipt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::cli::error::CliError;
use crate::envelope::{self, Sender};
use crate::kept::Copy;
use crate::queue::{Invocation, Message, MessageState, Route, Setting, Turn};
use crate::versions::{self, OpenCall};

use super::footing::Ground;
use super::repair::Mended;
use super::{Keeper, Settled};

/// What to do about the open turn.
#[derive(Debug)]
pub enum Next {
    /// Record and run this.
    Run(Box<Invocation>),
    /// Its answer stands in the transcript already.
    Answered(Settled),
    /// There is no safe way; a human must look.
    Hold(String),
}

/// A session that is being begun, and what the pointer names until its transcript holds our row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NewSession {
    /// Our id for it.
    pub(super) session: SessionId,
    /// The pointer's value when it was intended.
    pub(super) expected: Option<SessionId>,
}

/// Where the next turn goes.
#[derive(Debug, Clone, Copy)]
enum Target {
    Existing(SessionId),
    New(SessionId),
}

impl Keeper {
    /// The open turn, or a new one of all the messages that wait.
    pub fn open_or_form_turn(&mut self) -> Result<Option<Turn>, CliError> {
        if let Some(turn) = self.queue.open_turn()? {
            return Ok(Some(turn));
        }
        let waiting = self.queue.messages_in(MessageState::Queued)?;
        if waiting.is_empty() {
            return Ok(None);
        }
        let members: Vec<i64> = waiting.iter().map(|message| message.id).collect();
        let content = content_of(&waiting).to_string();
        Ok(self.queue.form_turn(&members, &content, self.companion.clock.now())?)
    }

    /// Decides how the turn is tried next. Reads transcripts, starts nothing.
    pub fn next_attempt(&mut self, turn: &Turn) -> Result<Next, CliError> {
        let target = match self.target()? {
            Ok(target) => target,
            Err(reason) => return Ok(Next::Hold(reason)),
        };
        let past = self.queue.invocations_of(turn.id)?;
        // A note's receipt is that of the message it goes on with.
        let (Some(last), Some(sent)) = (past.last(), past.iter().rev().find(|run| !run.note)) else {
            return self.send_on_firm_ground(turn, target, None);
        };
        let receipt = self.read_receipt(sent)?;
        if receipt.after == After::Answered {
            return Ok(Next::Answered(self.acknowledge(last, receipt, "found answered")?));
        }
        let (session, receipt, from_offset) = match target {
            // The session was rebuilt, or somebody pointed elsewhere: what counts is the one that
            // the next turn resumes.
            Target::Existing(session) if session != sent.session => {
                (session, receipt::read(&self.companion.transcript(session), 0, &sent.row_uuid)?, 0)
            }
            Target::Existing(_) | Target::New(_) => (sent.session, receipt, sent.from_offset),
        };
        let version = self.version.clone();
        let version = version.as_deref();
        let measured = versions::may_be_cut(version);
        let go_on = |at: String, text: String| (Route::ResumeAt(at), text);
        let (route, note) = match &receipt.after {
            After::Answered => {
                return Ok(Next::Answered(self.acknowledge(last, receipt, "found answered")?));
            }
            After::Absent => {
                let row = Some(sent.row_uuid.clone());
                // This attempt never arrived, but an earlier one stands there with its failure: behind that the message
                // would be in the conversation twice.
                if let Target::Existing(session) = target
                    && let Some(failed) = self.standing_failure(&past, session, &sent.row_uuid)?
                {
                    return match failed.last_assistant_before {
                        Some(at) => {
                            let route = Route::ResumeAt(at);
                            Ok(Next::Run(Box::new(self.invocation(
                                turn,
                                session,
                                route,
                                sent.row_uuid.clone(),
                            )?)))
                        }
                        None => self.send_in_fresh_session(turn, row),
                    };
                }
                return match target {
                    Target::New(_) => self.send_in_fresh_session(turn, row),
                    Target::Existing(_) => self.send_on_firm_ground(
                        turn,
                        Target::Existing(session),
                        row.map(|row| (row, &*past)),
                    ),
                };
            }
            After::Nothing | After::ApiErrorOnly { .. } | After::Interrupted | After::AnsweredPartly
                if !measured && receipt.last_assistant_before.is_some() =>
            {
                return self.mend(turn, session, sent, &receipt, "");
            }
            After::Nothing => return self.take_up(turn, session, sent, from_offset),
            After::ApiErrorOnly { .. } | After::Interrupted | After::AnsweredPartly => {
                let row = row_uuid(self, turn, distinct_rows(&past))?;
                return match receipt.last_assistant_before.clone() {
                    Some(at) => {
                        Ok(Next::Run(Box::new(self.invocation(turn, session, Route::ResumeAt(at), row)?)))
                    }
                    // Nothing was ever answered there, so there is no row to go back to.
                    None => self.send_in_fresh_session(turn, Some(row)),
                };
            }
            // Closed by a repair: a note begins the next turn, and the model has everything before it.
            After::ToolsFinished { .. } if receipt.closed => (Route::Send, notes::repaired()),
            After::ToolsFinished { .. } if !measured => {
                return self.mend(turn, session, sent, &receipt, "");
            }
            After::ToolsFinished { last_result_row } => {
                go_on(behind(&receipt, last_result_row, version), notes::tools_finished())
            }
            After::ToolOpen { tool, .. } => {
                match self.companion.config.runner.interrupted_tool {
                    InterruptedTool::Note => {}
                    InterruptedTool::Rerun if measured => {
                        return self.take_up(turn, session, sent, from_offset);
                    }
                    // What an unmeasured version would do is not known.
                    InterruptedTool::Rerun => {}
                    InterruptedTool::Ask => {
                        return Ok(Next::Hold(stuck(turn, session, &receipt, "interrupted_tool = \"ask\"")));
                    }
                }
                tracing::warn!(turn = turn.id, %tool, "the process ended while a tool ran: the model is told to check");
                if !measured {
                    return self.mend(turn, session, sent, &receipt, &notes::tool_unknown(tool));
                }
                let at = behind_tools(&receipt, version, &sent.row_uuid);
                go_on(at.unwrap_or_else(|| sent.row_uuid.clone()), notes::tool_unknown(tool))
            }
        };
        let content = json!([{ "type": "text", "text": note }]);
        let row = row_uuid(self, turn, past.len() + 1000)?;
        let mut invocation = self.invocation_with(turn, session, route, row, &content)?;
        invocation.note = true;
        Ok(Next::Run(Box::new(invocation)))
    }

    /// An earlier attempt of the turn that is still on the chain which the next resume loads, unanswered.
    fn standing_failure(
        &self,
        past: &[Invocation],
        session: SessionId,
        but: &str,
    ) -> Result<Option<Receipt>, CliError> {
        let transcript = self.companion.transcript(session);
        for run in past.iter().rev().filter(|run| !run.note && run.row_uuid != but) {
            let from = if run.session == session { run.from_offset } else { 0 };
            let receipt = receipt::read(&transcript, from, &run.row_uuid)?;
            if receipt.on_live_chain {
                return Ok(Some(receipt));
            }
        }
        Ok(None)
    }

    /// A version without a measured way: the turn goes on in a repaired copy of the session.
    fn mend(
        &mut self,
        turn: &Turn,
        session: SessionId,
        sent: &Invocation,
        receipt: &Receipt,
        unknown_result: &str,
    ) -> Result<Next, CliError> {
        // After the session was changed by somebody, what stands where is not known well enough to cut.
        if session != sent.session {
            return Ok(Next::Hold(stuck(turn, session, receipt, "somebody set the pointer meanwhile")));
        }
        match self.repair(turn, sent, receipt, unknown_result)? {
            Mended::Done => self.next_attempt(turn),
            Mended::No(why) => Ok(Next::Hold(stuck(
                turn,
                session,
                receipt,
                &format!(
                    "this version of the CLI was not measured, and its session could not be repaired: {why}"
                ),
            ))),
        }
    }

    /// The CLI takes the interrupted turn up again, under the row that is there.
    fn take_up(
        &self,
        turn: &Turn,
        session: SessionId,
        sent: &Invocation,
        from_offset: u64,
    ) -> Result<Next, CliError> {
        let mut invocation =
            self.invocation(turn, session, Route::ResumeInterrupted, sent.row_uuid.clone())?;
        invocation.from_offset = from_offset;
        Ok(Next::Run(Box::new(invocation)))
    }

    /// The session the next turn runs in, or why there is none.
    fn target(&mut self) -> Result<Result<Target, String>, CliError> {
        let read = self.look_back().and_then(|()| Ok(self.companion.pointer.read()?));
        let pointer = match read {
            Ok(pointer) => pointer,
            Err(error) => return Ok(Err(self.unreadable_pointer(&error))),
        };
        if let Some(begun) = self.queue.get::<NewSession>(Setting::NewSession)? {
            if PointerValue::from(begun.expected) == pointer {
                return Ok(Ok(Target::New(begun.session)));
            }
            // Somebody pointed elsewhere meanwhile; theirs is the conversation.
            self.queue.clear(Setting::NewSession)?;
        }
        match pointer {
            PointerValue::Session(session) => {
                let transcript = self.companion.transcript(session);
                // A CLI that finds less than was said goes on without the rest, and says nothing.
                if let Some(trouble) = Copy::of(&self.companion, session).trouble()? {
                    return Ok(Err(format!("{trouble}. Then run `kael-runner retry`")));
                }
                if transcript.is_file() {
                    return Ok(Ok(Target::Existing(session)));
                }
                Ok(Err(self.missing_transcript(session, &transcript)))
            }
            PointerValue::Absent if self.companion.pointer.used() => Ok(Err(format!(
                "the resume pointer {} is gone although it has a history: find out who removed it, then put it back \
                 with `kael-runner pointer set SESSION` (`kael-runner pointer history` lists the sessions)",
                self.companion.config.resume_pointer_path.display()
            ))),
            PointerValue::Absent => Ok(Ok(Target::New(self.begin_session()?))),
        }
    }

    /// A writer that had opened the pointer before our switch and wrote after it reached the old inode, which is kept
    /// for this look (DESIGN 8): nothing else would ever tell.
    fn look_back(&self) -> Result<(), CliError> {
        let pointer = &self.companion.pointer;
        let lock = pointer.lock()?;
        if let Some(late) = pointer.look_back(&lock)? {
            tracing::warn!(
                "somebody wrote {} to the old pointer file after it had been replaced: it has no effect; if it was meant, \
                 run `kael-runner pointer set`",
                late.found
            );
            pointer.forget_previous(&lock)?;
        }
        Ok(())
    }

    fn unreadable_pointer(&self, error: &CliError) -> String {
        let history = self.companion.pointer.history().unwrap_or_default();
        let last = history.last().map_or_else(
            || "`kael-runner pointer set SESSION`".to_owned(),
            |line| format!("`kael-runner pointer set {}` (the last one it named)", line.to),
        );
        format!("{}: put it right with {last}, then run `kael-runner retry`", error.message)
    }

    fn missing_transcript(&self, session: SessionId, transcript: &Path) -> String {
        let others = self.sessions_by_age();
        let known = match others.first() {
            Some((newest, _)) => format!(
                "the folder holds {} other sessions, the newest is {newest}; if that is the conversation, run \
                 `kael-runner pointer set {newest}`",
                others.len()
            ),
            None => {
                "the folder holds no session at all: is project_dir right, or was it cleaned up?".to_owned()
            }
        };
        format!(
            "the pointer names session {session}, but there is no transcript {}: {known}. No new session is begun \
             by itself. Then run `kael-runner retry`",
            transcript.display()
        )
    }

    /// Intends a new session under an id of ours; the pointer moves to it, from what it names now,
    /// once its transcript holds our row.
    fn begin_session(&mut self) -> Result<SessionId, CliError> {
        let expected = self.companion.pointer.read()?.session();
        let begun = NewSession { session: SessionId::generate(), expected };
        self.queue.set(Setting::NewSession, &begun)?;
        Ok(begun.session)
    }

    /// Sends to the end of a session that stands on its history, else in front of what does not. `before`: the uuid the
    /// message had, and its attempts.
    fn send_on_firm_ground(
        &mut self,
        turn: &Turn,
        target: Target,
        before: Option<(String, &[Invocation])>,
    ) -> Result<Next, CliError> {
        let ground = match target {
            Target::Existing(session) => self.ground(session)?,
            Target::New(_) => Ground::End,
        };
        match (ground, target) {
            (Ground::Nowhere(why), _) => Ok(Next::Hold(why)),
            (Ground::At(at), Target::Existing(session)) => {
                // Rows that hang on the old uuid would hang on the message.
                let attempts = before.map_or(1, |(_, past)| distinct_rows(past));
                let row = row_uuid(self, turn, attempts)?;
                Ok(Next::Run(Box::new(self.invocation(turn, session, Route::ResumeAt(at), row)?)))
            }
            (Ground::End | Ground::At(_), _) => self.send(turn, target, before.map(|(row, _)| row)),
        }
    }

    fn send(&mut self, turn: &Turn, target: Target, row: Option<String>) -> Result<Next, CliError> {
        let row = match row {
            Some(row) => row,
            None => row_uuid(self, turn, 0)?,
        };
        let (session, new_session) = match target {
            Target::Existing(session) => (session, false),
            Target::New(session) => (session, true),
        };
        let mut invocation = self.invocation(turn, session, Route::Send, row)?;
        invocation.new_session = new_session;
        Ok(Next::Run(Box::new(invocation)))
    }

    /// `--session-id` of a session that has left a file is refused by the CLI, and one that never
    /// got an answer has no row to go back to (facts 6): begin another one.
    fn send_in_fresh_session(&mut self, turn: &Turn, row: Option<String>) -> Result<Next, CliError> {
        let begun: Option<NewSession> = self.queue.get(Setting::NewSession)?;
        let session = match begun {
            Some(begun) if !self.companion.transcript(begun.session).exists() => begun.session,
            _ => self.begin_session()?,
        };
        self.send(turn, Target::New(session), row)
    }

    fn invocation(
        &self,
        turn: &Turn,
        session: SessionId,
        route: Route,
        row: String,
    ) -> Result<Invocation, CliError> {
        let content = serde_json::from_str(&turn.content).map_err(|error| {
            CliError::failed(format!("turn {} holds no content blocks: {error}", turn.id))
        })?;
        self.invocation_with(turn, session, route, row, &content)
    }

    fn invocation_with(
        &self,
        turn: &Turn,
        session: SessionId,
        route: Route,
        row: String,
        content: &serde_json::Value,
    ) -> Result<Invocation, CliError> {
        let transcript = self.companion.transcript(session);
        let from_offset = match transcript.metadata() {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => {
                return Err(CliError::failed(format!("could not look at {}: {error}", transcript.display())));
            }
        };
        let line = json!({
            "type": "user",
            "message": { "role": "user", "content": content },
            "parent_tool_use_id": null,
            "session_id": "",
            "uuid": row,
        });
        Ok(Invocation {
            id: InvocationId::generate(),
            turn: turn.id,
            route,
            note: false,
            session,
            new_session: false,
            transcript: transcript.to_string_lossy().into_owned(),
            from_offset,
            row_uuid: row,
            line: format!("{line}\n").into_bytes(),
            pid: None,
            pid_start: None,
            started_at: self.companion.clock.now(),
            ended_at: None,
            ending: None,
            detail: None,
        })
    }

    /// What the transcript says about the message of an invocation. A note has none of its own: it goes on with the
    /// message that was sent before it.
    pub(super) fn read_receipt(&self, invocation: &Invocation) -> Result<Receipt, CliError> {
        let message;
        let invocation = if invocation.note {
            message = self.queue.invocations_of(invocation.turn)?.into_iter().rev().find(|run| !run.note);
            message.as_ref().unwrap_or(invocation)
        } else {
            invocation
        };
        Ok(receipt::read(Path::new(&invocation.transcript), invocation.from_offset, &invocation.row_uuid)?)
    }
}

/// The content blocks of a user message that carries these, one a message.
pub(super) fn content_of(messages: &[Message]) -> serde_json::Value {
    let block = |message: &Message| {
        if is_bare(message) {
            return json!({ "type": "text", "text": message.words });
        }
        let sender = Sender {
            source: &message.front,
            user: &message.sender,
            message_id: &message.key,
            at: message.at,
        };
        json!({ "type": "text", "text": envelope::wrap(sender, &message.words) })
    };
    messages.iter().map(block).collect()
}

/// What the owner typed at the terminal goes as it is, unless the CLI could take it for a command.
fn is_bare(message: &Message) -> bool {
    message.front == crate::attach::FRONT && !message.words.trim_start().starts_with('/')
}

/// Where a conversation goes on behind a turn whose tools have run and that has no answer; `None` behind any other.
pub(super) fn behind_tools(receipt: &Receipt, version: Option<&str>, message: &str) -> Option<String> {
    match &receipt.after {
        After::ToolsFinished { last_result_row }
        | After::ToolOpen { last_result_row: Some(last_result_row), .. } => {
            Some(behind(receipt, last_result_row, version))
        }
        After::ToolOpen { row, last_result_row: None, .. } => Some(match versions::open_call(version) {
            OpenCall::AtCall => row.clone(),
            OpenCall::AtMessage => message.to_owned(),
        }),
        _ => None,
    }
}

/// Where a turn goes on behind its last result. A message that was taken into it there stays in front of the model where
/// that is possible: 2.1.332 sends it along with the result in any case.
fn behind(receipt: &Receipt, last_result_row: &str, version: Option<&str>) -> String {
    let absorbed = receipt.absorbed_row.as_ref().filter(|_| versions::goes_on_at_attachment(version));
    absorbed.map_or(last_result_row, String::as_str).to_owned()
}

fn distinct_rows(past: &[Invocation]) -> usize {
    past.iter().map(|invocation| &invocation.row_uuid).collect::<std::collections::BTreeSet<_>>().len()
}

/// The uuid of the row of this attempt: made of the members and the attempt's number, so that the
/// same attempt after a crash is the same row.
fn row_uuid(keeper: &Keeper, turn: &Turn, attempt: usize) -> Result<String, CliError> {
    let mut name = String::new();
    for message in keeper.queue.messages_of(turn.id)? {
        name.push_str(&format!("{}\n{}\n", message.front, message.key));
    }
    name.push_str(&attempt.to_string());
    Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string())
}

fn stuck(turn: &Turn, session: SessionId, receipt: &Receipt, why: &str) -> String {
    let what = match &receipt.after {
        After::ToolOpen { tool, .. } => {
            format!("the process ended while {tool} ran, and whether it took effect is unknown")
        }
        _ => "the process ended after tools had run and before the answer".to_owned(),
    };
    let line = receipt.row_line.map(|line| format!(", line {line}")).unwrap_or_default();
    format!(
        "turn {} is in session {session}{line} but has no answer: {what}. Nothing is repeated by itself ({why}). Look at \
         what was done, then give the turn up with `kael-runner skip`; the next message goes on in the same session",
        turn.id
    )
}

/// Runtime text of ours; its rows are known by uuid and are noise to every later rebuild.
mod notes {
    use kael_core::transcript::receipt::NOTE_PREFIX;

    pub(super) fn tools_finished() -> String {
        format!(
            "{NOTE_PREFIX} The process ended after the tools above had finished and before you could answer. Their results \
             stand; do not run them again. Go on from here and answer."
        )
    }

    pub(super) fn repaired() -> String {
        format!(
            "{NOTE_PREFIX} The process ended before you could answer the last message. What its tools did stands above; do \
             not run again what has a result, and check first where it says that the outcome is unknown. Go on and answer."
        )
    }

    pub(super) fn tool_unknown(tool: &str) -> String {
        format!(
            "{NOTE_PREFIX} The process ended while the tool {tool} ran. Whether it took effect is unknown: check before \
             repeating it. Then go on and answer."
        )
    }
}
