//! The lines that go over `attach.sock`, both ways: one JSON object a line, told apart by `type`.
//!
//! An unknown `type` or field is skipped by a client and refused with an `error` line by the
//! runner, so that both may grow.

use kael_core::clock::Timestamp;
use kael_core::ids::{OperationId, SessionId};
use serde::{Deserialize, Serialize};

/// The number in `hello`; it grows when a reader of today would misunderstand.
pub const SCHEMA: u32 = 1;

/// What the runner tells everyone, or (`accepted`, `result`, `error`) the one who asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerLine {
    /// The first line. After it come the last things said (`past`), what is going on, and then live lines.
    Hello {
        /// [`SCHEMA`].
        schema: u32,
        /// The runner's version.
        version: String,
        /// The companion's name, where its configuration gives one.
        companion: Option<String>,
        /// The session that the pointer names.
        session: Option<SessionId>,
    },
    /// A human said this, through whichever front; it is stored.
    Said {
        /// Its place in the inbox.
        message: i64,
        /// The front it came through.
        front: String,
        /// Its key within the front.
        key: String,
        /// Who said it.
        sender: String,
        /// The words, exactly as typed.
        words: String,
        /// When it was accepted.
        at: Timestamp,
        /// It was said before this client attached.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        past: bool,
    },
    /// A turn is under way.
    TurnStarted {
        /// Its number.
        turn: i64,
        /// Since when.
        since: Timestamp,
    },
    /// A piece of the reply, as the model says it. What counts is the `reply` that follows.
    Part {
        /// The turn.
        turn: i64,
        /// The API message it is part of.
        message_id: String,
        /// Its content block within that message.
        block: u32,
        /// The piece.
        text: String,
    },
    /// A tool is at work.
    Tool {
        /// The turn.
        turn: i64,
        /// The tool's name.
        name: String,
    },
    /// A reply, read from the transcript and stored.
    Reply {
        /// Its place in the outbox.
        reply: i64,
        /// The turn it answers.
        turn: i64,
        /// The API message it is part of.
        message_id: String,
        /// Its text block within that message.
        block: u32,
        /// The words, verbatim.
        words: String,
        /// When it was stored.
        at: Timestamp,
        /// It was said before this client attached.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        past: bool,
    },
    /// The turn's process has ended and the transcript was read.
    TurnEnded {
        /// The turn.
        turn: i64,
        /// What came of it.
        outcome: Outcome,
        /// The API messages that are in the conversation: parts of others were streamed and not kept.
        kept: Vec<String>,
    },
    /// The runner's own words.
    Line {
        /// How serious.
        level: Level,
        /// The words.
        text: String,
    },
    /// An operation waits for a human's yes.
    Question {
        /// The operation.
        operation: OperationId,
        /// What is asked for.
        what: Wish,
        /// The digest of the plan that the figures are of; a yes is bound to it. Empty where nothing is
        /// planned.
        digest: String,
        /// Why it is asked.
        reasons: Vec<String>,
        /// The plan in three lines.
        figures: Vec<String>,
    },
    /// The question is answered, withdrawn or out of time.
    QuestionClosed {
        /// The operation.
        operation: OperationId,
        /// What came of it.
        outcome: String,
    },
    /// A `say` is durable.
    Accepted {
        /// Its key.
        key: String,
        /// Its place in the inbox.
        message: i64,
        /// The key was known: this is the message from before.
        duplicate: bool,
    },
    /// The answer to a `command` or an `answer`.
    Result {
        /// The number the client gave it.
        id: u64,
        /// Whether it was done.
        ok: bool,
        /// For a person.
        text: String,
    },
    /// A line of the client's that could not be carried out.
    Error {
        /// Why.
        text: String,
        /// The message it was about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// The runner is leaving.
    Bye,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// A rebuild of the session.
    Rebuild,
    /// The way back to the session before the newest rebuild.
    Rollback,
}

/// What came of a turn's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is answered.
    Answered,
    /// A human stopped it: it is done, and not tried again.
    Stopped,
    /// It is tried again after a pause.
    TryAgain,
    /// It is given up and the next one may go.
    GivenUp,
    /// The queue is held until a human has looked.
    Held,
}

/// How serious a line of the runner's is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// To know.
    Info,
    /// To look at.
    Warning,
    /// To act on.
    Error,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientLine {
    /// Say this to the companion. Answered by `accepted` once it is durable, or by `error`.
    Say {
        /// The same key twice is one message.
        key: String,
        /// The words, exactly as typed.
        words: String,
        /// Who says it.
        #[serde(default = "owner")]
        sender: String,
    },
    /// Stop this turn. Its message is done: it is not tried again.
    Stop {
        /// The turn; another one that began meanwhile is not stopped.
        turn: i64,
    },
    /// The human's answer to a `question`. Answered by `result`.
    Answer {
        /// Any number; `result` repeats it.
        id: u64,
        /// The operation that was asked about.
        operation: OperationId,
        /// The digest that the question had.
        digest: String,
        /// Yes or no.
        yes: bool,
    },
    /// Do something else. Answered by `result`.
    Command {
        /// Any number; `result` repeats it.
        id: u64,
        /// What.
        name: CommandName,
    },
}

fn owner() -> String {
    "owner".to_owned()
}

/// The commands of the chat that the runner carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandName {
    /// What the runner is doing.
    Status,
    /// How dirty the session is.
    Dirty,
    /// What a rebuild would carry and drop.
    Plan,
    /// Ask for a rebuild; the question with its figures follows.
    Rebuild,
    /// Go back to the session before the newest rebuild: this is the human's yes to it.
    Rollback,
    /// The same, with what has been said since.
    RollbackCarrying,
    /// Give up the turn that waits to be tried again.
    GiveUp,
    /// End a hold or a pause between tries.
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_the_documentation_says() {
        let said = ServerLine::Said {
            message: 3,
            front: "terminal".into(),
            key: "k".into(),
            sender: "owner".into(),
            words: "你好 🪁\n\"quoted\"".into(),
            at: Timestamp::from_millis(0),
            past: false,
        };
        insta::assert_snapshot!(serde_json::to_string(&said).unwrap(), @r#"{"type":"said","message":3,"front":"terminal","key":"k","sender":"owner","words":"你好 🪁\n\"quoted\"","at":"1970-01-01T00:00:00.000Z"}"#);
        let ended = ServerLine::TurnEnded { turn: 1, outcome: Outcome::TryAgain, kept: vec!["m".into()] };
        insta::assert_snapshot!(serde_json::to_string(&ended).unwrap(), @r#"{"type":"turn_ended","turn":1,"outcome":"try_again","kept":["m"]}"#);
        let say: ClientLine = serde_json::from_str(r#"{"type":"say","key":"k","words":"w"}"#).unwrap();
        assert_eq!(say, ClientLine::Say { key: "k".into(), words: "w".into(), sender: "owner".into() });
        let command: ClientLine =
            serde_json::from_str(r#"{"type":"command","id":1,"name":"status","later":true}"#).unwrap();
        assert_eq!(command, ClientLine::Command { id: 1, name: CommandName::Status });
        assert!(serde_json::from_str::<ClientLine>(r#"{"type":"shout"}"#).is_err());
    }
}
