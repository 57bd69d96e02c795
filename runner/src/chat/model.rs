//! What the chat knows, and what follows from each line of the runner's and each text typed.
//! Pure: no terminal, no socket, no clock.

use kael_core::clock::Timestamp;
use kael_core::ids::OperationId;

use crate::attach::{ClientLine, CommandName, FRONT, Level, Outcome, ServerLine, Wish};

use super::style::{Style, Styled};
use super::text::clean;

/// What the chat wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Write this above the live rows.
    Show(Styled),
    /// Tell the runner.
    Send(ClientLine),
    /// Put this text back into the input line: it was not said.
    Restore(String),
    /// Leave the chat.
    Leave,
}

/// What the prompt asks.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    /// Whether to rebuild, or to go back: the runner's question.
    Operation { operation: OperationId, what: Wish, digest: String },
    /// Whether to go back: our own, after `/rollback`.
    Rollback { carrying: bool },
}

#[derive(Debug, Clone, PartialEq)]
struct Running {
    turn: i64,
    since: Timestamp,
    tool: Option<String>,
}

/// A block of the reply as it was streamed.
#[derive(Debug, Clone, PartialEq)]
struct Streamed {
    message_id: String,
    block: u32,
    words: String,
}

/// How long after the first Ctrl-C a second one leaves, in milliseconds.
const TWICE: i64 = 3000;

/// The chat's state.
#[derive(Debug)]
pub struct Chat {
    style: Style,
    running: Option<Running>,
    question: Option<Asked>,
    /// Whether `/rollback` waits for its yes, and whether what was said since is to be taken along.
    rollback: Option<bool>,
    later: bool,
    streamed: Vec<Streamed>,
    /// The streamed line that is not finished yet, cleaned.
    pending: String,
    /// Messages of ours that are not durable yet, by key.
    sending: Vec<(String, String)>,
    next_id: u64,
    interrupted_at: Option<Timestamp>,
    /// What came of the last answer: who gave it gets it as a result, too.
    told: String,
    /// The last thing shown was part of the conversation, so that what follows is set apart.
    spoken: bool,
}

const HELP: [&str; 9] = [
    "/status     what the runner is doing        /dirty      what the session is made of",
    "/plan       what a rebuild would carry      /rebuild    ask for one (a question with its figures follows)",
    "/rollback   back to the session before      /stop       stop the turn, or give up one that waits",
    "/rollback carry   the same with what was said since",
    "/retry      try a turn that waits at once   /quit       leave",
    "Enter sends; Alt-Enter, Ctrl-J or a \\ before Enter begin another line; Up and Down walk through what was said.",
    "Ctrl-C stops the turn, twice leaves; Ctrl-D on an empty line leaves.",
    "While the prompt asks, y and n answer it, and l leaves it for later (/rebuild shows it again).",
    "Other words go to the companion as they are; words that begin with / go in an envelope, so that no command is run.",
];

impl Chat {
    /// Nothing heard yet.
    #[must_use]
    pub fn new(style: Style) -> Self {
        Self {
            style,
            running: None,
            question: None,
            rollback: None,
            later: false,
            streamed: Vec::new(),
            pending: String::new(),
            sending: Vec::new(),
            next_id: 1,
            interrupted_at: None,
            told: String::new(),
            spoken: false,
        }
    }

    /// Whether a turn is under way, so that the time has to be shown.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// The streamed line that is not finished.
    #[must_use]
    pub fn pending(&self) -> &str {
        &self.pending
    }

    /// Takes rows of the pending line that were shown for good.
    pub fn finish_rows(&mut self, rows: &[String]) {
        let shown: usize = rows.iter().map(String::len).sum();
        self.pending.drain(..shown.min(self.pending.len()));
    }

    /// What is going on, in one row.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> Option<String> {
        const SIGNS: [char; 4] = ['◐', '◓', '◑', '◒'];
        let running = self.running.as_ref()?;
        let seconds = now.since(running.since).as_secs();
        let sign = SIGNS[usize::try_from(seconds % 4).unwrap_or(0)];
        let time = match seconds {
            0..60 => format!("{seconds}s"),
            _ => format!("{}m{:02}s", seconds / 60, seconds % 60),
        };
        let tool = running.tool.as_ref().map(|tool| format!(" · {tool} is at work")).unwrap_or_default();
        Some(format!("{sign} {time}{tool} · Ctrl-C stops"))
    }

    /// What stands in front of the input.
    #[must_use]
    pub fn prompt(&self) -> &'static str {
        match self.asked() {
            Some(Asked::Operation { what: Wish::Rebuild, .. }) => "rebuild the session? y/n/l › ",
            Some(Asked::Operation { what: Wish::Rollback, .. }) => "go back to the session before? y/n/l › ",
            Some(Asked::Rollback { carrying: false }) => "go back to the session before? y/n › ",
            Some(Asked::Rollback { carrying: true }) => {
                "go back to the session before, with what was said since? y/n › "
            }
            None => "› ",
        }
    }

    /// While a turn runs nothing can be rebuilt, so nothing is asked.
    fn asked(&self) -> Option<Asked> {
        if let Some(carrying) = self.rollback {
            return Some(Asked::Rollback { carrying });
        }
        if self.running.is_some() || self.later { None } else { self.question.clone() }
    }

    /// Takes a line of the runner's.
    pub fn heard(&mut self, line: ServerLine) -> Vec<Act> {
        match line {
            ServerLine::Hello { version, companion, session, .. } => {
                let name = companion.map(|name| format!(" of {name}")).unwrap_or_default();
                let session = session.map_or_else(
                    || "the first message begins a session".to_owned(),
                    |session| format!("session {session}"),
                );
                self.own(&format!("the companion{name} · {session} · kael-runner {version} · /help"))
            }
            ServerLine::Said { front, key, sender, words, .. } => {
                self.sending.retain(|(waiting, _)| *waiting != key);
                self.said(&front, &sender, &words)
            }
            ServerLine::TurnStarted { turn, since } => {
                self.running = Some(Running { turn, since, tool: None });
                Vec::new()
            }
            ServerLine::Tool { name, .. } => {
                if let Some(running) = &mut self.running {
                    running.tool = Some(name);
                }
                Vec::new()
            }
            ServerLine::Part { message_id, block, text, .. } => self.part(message_id, block, &text),
            ServerLine::Reply { message_id, words, past, .. } => self.reply(&message_id, &words, past),
            ServerLine::TurnEnded { outcome, kept, .. } => self.turn_ended(outcome, &kept),
            ServerLine::Line { level, text } => self.line(level, &text),
            ServerLine::Question { operation, what, digest, reasons, figures } => {
                self.question = Some(Asked::Operation { operation, what, digest });
                self.later = false;
                let mut acts = self.flush();
                for reason in reasons {
                    acts.extend(self.line(Level::Warning, &reason));
                }
                for figure in figures {
                    acts.extend(self.own(&figure));
                }
                acts
            }
            ServerLine::QuestionClosed { outcome, .. } => {
                self.question = None;
                if self.is_told(&outcome) {
                    return Vec::new();
                }
                self.own(&outcome)
            }
            ServerLine::Accepted { key, duplicate, .. } => {
                if duplicate {
                    self.sending.retain(|(waiting, _)| *waiting != key);
                }
                Vec::new()
            }
            ServerLine::Result { ok, text, .. } => {
                if self.is_told(&text) {
                    return Vec::new();
                }
                let level = if ok { Level::Info } else { Level::Warning };
                text.lines().flat_map(|line| self.line(level, line)).collect()
            }
            ServerLine::Error { text, key } => {
                let mut acts = self.line(Level::Error, &text);
                if let Some(at) = self.sending.iter().position(|(waiting, _)| Some(waiting) == key.as_ref()) {
                    acts.push(Act::Restore(self.sending.remove(at).1));
                }
                acts
            }
            ServerLine::Bye => {
                let mut acts = self.own("the runner has ended");
                acts.push(Act::Leave);
                acts
            }
        }
    }

    /// Takes a text that was typed. `key` is a fresh one, in case it is said.
    pub fn submit(&mut self, text: &str, key: String) -> Vec<Act> {
        let word = text.trim();
        if let Some(asked) = self.asked()
            && let Some(acts) = self.answer(asked, word)
        {
            return acts;
        }
        let command = match word {
            "/status" => Some(CommandName::Status),
            "/dirty" => Some(CommandName::Dirty),
            "/plan" => Some(CommandName::Plan),
            "/rebuild" if self.question.is_some() => {
                self.later = false;
                return self.own("the question is open: y or n");
            }
            "/rebuild" => Some(CommandName::Rebuild),
            "/rollback" | "/rollback carry" => {
                self.rollback = Some(word.ends_with("carry"));
                return Vec::new();
            }
            "/retry" => Some(CommandName::Retry),
            "/stop" => match self.stop() {
                Some(acts) => return acts,
                // One that failed may wait to be tried again.
                None => Some(CommandName::GiveUp),
            },
            "/help" => return HELP.iter().flat_map(|line| self.own(line)).collect(),
            "/quit" | "/exit" => return vec![Act::Leave],
            _ => None,
        };
        if let Some(name) = command {
            let id = self.id();
            return vec![Act::Send(ClientLine::Command { id, name })];
        }
        // A mistyped command is not said to anybody; a path or a sentence is.
        if word.len() > 1 && word.starts_with('/') && word[1..].bytes().all(|b| b.is_ascii_lowercase()) {
            return self.line(Level::Warning, &format!("{word} is no command here: /help lists them"));
        }
        self.sending.push((key.clone(), text.to_owned()));
        vec![Act::Send(ClientLine::Say { key, words: text.to_owned(), sender: "owner".to_owned() })]
    }

    /// An answer to what the prompt asks; anything else than a yes or a no is said.
    fn answer(&mut self, asked: Asked, word: &str) -> Option<Vec<Act>> {
        let yes = matches!(word.to_lowercase().as_str(), "y" | "yes" | "j" | "ja" | "是" | "好");
        let no = matches!(word.to_lowercase().as_str(), "n" | "no" | "nein" | "否" | "不");
        match asked {
            Asked::Operation { operation, digest, .. } if yes || no => {
                let id = self.id();
                // Whatever comes of it is told; until then the prompt asks nothing.
                self.later = true;
                Some(vec![Act::Send(ClientLine::Answer { id, operation, digest, yes })])
            }
            Asked::Operation { .. } if matches!(word, "l" | "later" | "以后") => {
                self.later = true;
                Some(self.own("the question stays open: /rebuild shows it again"))
            }
            Asked::Operation { .. } => None,
            Asked::Rollback { carrying } => {
                self.rollback = None;
                // A command is a no, and is carried out.
                if word.starts_with('/') {
                    return None;
                }
                if yes {
                    let id = self.id();
                    let name = if carrying { CommandName::RollbackCarrying } else { CommandName::Rollback };
                    return Some(vec![Act::Send(ClientLine::Command { id, name })]);
                }
                let mut acts = self.own("nothing was done");
                if !no {
                    acts.push(Act::Restore(word.to_owned()));
                }
                Some(acts)
            }
        }
    }

    /// Another key than Ctrl-C: the next one is the first again.
    pub fn typed(&mut self) {
        self.interrupted_at = None;
    }

    /// Ctrl-C: once stops the turn (or, `emptied`, the input line), twice leaves.
    pub fn interrupt(&mut self, now: Timestamp, emptied: bool) -> Vec<Act> {
        let again = self
            .interrupted_at
            .is_some_and(|at| now.since(at).as_millis() < u128::from(TWICE.unsigned_abs()));
        if again {
            return vec![Act::Leave];
        }
        self.interrupted_at = Some(now);
        self.rollback = None;
        match self.stop() {
            Some(acts) => acts,
            None if emptied => Vec::new(),
            None => self.own("Ctrl-C again leaves"),
        }
    }

    fn stop(&mut self) -> Option<Vec<Act>> {
        let turn = self.running.as_ref()?.turn;
        let mut acts = vec![Act::Send(ClientLine::Stop { turn })];
        acts.extend(self.own("stopping the turn; Ctrl-C again leaves"));
        Some(acts)
    }

    fn is_told(&mut self, text: &str) -> bool {
        let again = self.told == text;
        self.told = if again { String::new() } else { text.to_owned() };
        again
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn said(&mut self, front: &str, sender: &str, words: &str) -> Vec<Act> {
        let mut acts = self.flush();
        acts.extend(self.apart());
        let first = if front == FRONT { "› ".to_owned() } else { format!("[{front} · {sender}] ") };
        for (at, line) in words.lines().enumerate() {
            let front = if at == 0 { first.as_str() } else { "  " };
            acts.push(Act::Show(self.style.human(&format!("{front}{line}"))));
        }
        self.spoken = true;
        acts
    }

    fn part(&mut self, message_id: String, block: u32, text: &str) -> Vec<Act> {
        let mut acts = Vec::new();
        match self.streamed.last_mut() {
            Some(last) if last.message_id == message_id && last.block == block => last.words.push_str(text),
            _ => {
                acts.extend(self.flush());
                acts.extend(self.apart());
                self.streamed.push(Streamed { message_id, block, words: text.to_owned() });
            }
        }
        if let Some(running) = &mut self.running {
            running.tool = None;
        }
        self.pending.push_str(&clean(text));
        while let Some((line, rest)) = self.pending.split_once('\n') {
            acts.push(Act::Show(self.style.plain(line)));
            self.pending = rest.to_owned();
        }
        self.spoken = true;
        acts
    }

    /// What is stored counts. If it was streamed, it stands there already.
    fn reply(&mut self, message_id: &str, words: &str, past: bool) -> Vec<Act> {
        let mut acts = self.flush();
        let streamed = self.streamed.iter().any(|s| s.message_id == message_id && s.words == words);
        if streamed && !past {
            return acts;
        }
        acts.extend(self.apart());
        acts.extend(words.lines().map(|line| Act::Show(self.style.plain(line))));
        self.spoken = true;
        acts
    }

    fn turn_ended(&mut self, outcome: Outcome, kept: &[String]) -> Vec<Act> {
        let mut acts = self.flush();
        let lost = self.streamed.iter().any(|s| !s.words.trim().is_empty() && !kept.contains(&s.message_id));
        if lost {
            acts.extend(self.own("(not all words above were kept in the conversation)"));
        }
        match outcome {
            Outcome::Stopped => {
                acts.extend(self.own("stopped; the message is done and is not tried again"));
            }
            Outcome::GivenUp => {
                acts.extend(self.line(Level::Error, "the turn is given up; /status says why"));
            }
            Outcome::Answered | Outcome::TryAgain | Outcome::Held => {}
        }
        self.streamed.clear();
        self.running = None;
        acts
    }

    fn line(&mut self, level: Level, text: &str) -> Vec<Act> {
        let mut acts = self.flush();
        for text in text.lines() {
            acts.push(Act::Show(match level {
                Level::Info => self.style.own(text),
                Level::Warning => self.style.warning(text),
                Level::Error => self.style.error(text),
            }));
        }
        self.spoken = false;
        acts
    }

    fn own(&mut self, text: &str) -> Vec<Act> {
        self.line(Level::Info, text)
    }

    /// Shows what is left of the streamed line.
    fn flush(&mut self) -> Vec<Act> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let line = std::mem::take(&mut self.pending);
        vec![Act::Show(self.style.plain(&line))]
    }

    /// An empty line between two who speak.
    fn apart(&mut self) -> Option<Act> {
        std::mem::take(&mut self.spoken).then(|| Act::Show(Styled::default()))
    }
}

#[cfg(test)]
mod tests;
