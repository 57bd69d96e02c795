//! The chat at a terminal: a client of `attach.sock`, in the runner's own process (`run`) or in
//! another one (`attach`).
//!
//! [`Chat`] decides, [`Editor`] holds what is typed, [`Screen`] paints; this file brings keys, the
//! runner's lines and the time to them. While nothing happens nothing wakes up.

mod editor;
mod layout;
mod model;
mod screen;
mod style;
mod text;

use std::io::{self, IsTerminal, Stdout, Write};
use std::path::Path;
use std::time::Duration;

use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste, Event};
use crossterm::terminal;
use kael_core::clock::{Clock, SystemClock};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::mpsc;

use crate::attach::{Client, Connected};

pub use editor::{Editor, Typed};
pub use model::{Act, Chat};
pub use screen::{Live, Screen};
pub use style::{Style, Styled};

/// Keys that may wait: a person types a few a second, and a paste is one.
const KEYS: usize = 256;

/// Why the chat is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The human left.
    Human,
    /// The runner went away.
    Runner,
}

/// Whether both ends of a chat are a terminal.
#[must_use]
pub fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

enum Heard {
    Terminal(Event),
    Ended,
}

/// Whose process the chat is in.
pub enum Host<'a> {
    /// Its own: it listens to signals, and who leaves is gone.
    Own,
    /// The runner's: that one listens to signals, and who leaves ends it. Called each time the human
    /// wants to leave; what it says is shown, and the chat goes on until the runner has ended.
    Runner(&'a mut dyn FnMut() -> String),
}

/// Chats until the human or the runner leaves.
pub async fn run(state_dir: &Path, connected: Connected, mut host: Host<'_>) -> io::Result<Left> {
    let mut keys = listen_to_terminal(matches!(host, Host::Own))?;
    let guard = Guard::enter()?;
    let (columns, rows) = terminal::size()?;
    let mut talk = Talk {
        chat: Chat::new(Style::from_env()),
        editor: Editor::new(Some(state_dir.join("history"))),
        screen: Screen::new(io::stdout(), columns),
        height: usize::from(rows),
        client: connected.client,
        above: Vec::new(),
        leaving: false,
    };
    let mut lines = connected.lines;
    let mut left = None;
    talk.paint()?;
    while left.is_none() {
        let tick = talk.chat.is_busy();
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) => {
                    let acts = talk.chat.heard(line);
                    talk.act(acts).await;
                    // Everything that has come is painted at once.
                    while let Ok(line) = lines.try_recv() {
                        let acts = talk.chat.heard(line);
                        talk.act(acts).await;
                    }
                    if talk.leaving {
                        left = Some(Left::Runner);
                    }
                }
                None => left = Some(Left::Runner),
            },
            key = keys.recv() => {
                match key {
                    Some(Heard::Terminal(event)) => talk.key(event).await?,
                    Some(Heard::Ended) | None => talk.leaving = true,
                }
                if std::mem::take(&mut talk.leaving) {
                    match &mut host {
                        Host::Own => left = Some(Left::Human),
                        Host::Runner(leave) => talk.above.push(Style::from_env().own(&leave())),
                    }
                }
            }
            () = tokio::time::sleep(Duration::from_secs(1)), if tick => {}
        }
        talk.paint()?;
    }
    talk.screen.leave()?;
    drop(guard);
    Ok(left.unwrap_or(Left::Human))
}

struct Talk {
    chat: Chat,
    editor: Editor,
    screen: Screen<Stdout>,
    height: usize,
    client: Client,
    above: Vec<Styled>,
    leaving: bool,
}

impl Talk {
    async fn act(&mut self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Show(line) => self.above.push(line),
                // A runner that has gone is seen by the end of its lines.
                Act::Send(line) => self.client.send(&line).await.unwrap_or_default(),
                Act::Restore(text) => self.editor.restore(&text),
                Act::Leave => self.leaving = true,
            }
        }
    }

    async fn key(&mut self, event: Event) -> io::Result<()> {
        match event {
            // Looked at before every painting: of several resizes in a row not each is told.
            Event::Resize(..) => {}
            Event::Paste(text) => {
                self.chat.typed();
                self.editor.paste(&text);
            }
            Event::Key(key) => match self.editor.key(key) {
                Typed::Submit(text) => {
                    self.chat.typed();
                    self.editor.remember(&text);
                    let acts = self.chat.submit(&text, uuid::Uuid::new_v4().to_string());
                    self.act(acts).await;
                }
                Typed::Interrupt => {
                    let emptied = self.editor.clear();
                    let acts = self.chat.interrupt(SystemClock.now(), emptied);
                    self.act(acts).await;
                }
                Typed::Leave => self.leaving = true,
                Typed::Redraw => self.screen.clear()?,
                Typed::Edited => self.chat.typed(),
            },
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) => {}
        }
        Ok(())
    }

    fn paint(&mut self) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        if usize::from(columns) != self.screen.columns() {
            self.screen.resized(columns);
        }
        self.height = usize::from(rows);
        let columns = self.screen.columns();
        let style = Style::from_env();
        let (done, rest) = layout::tail(self.chat.pending(), columns, self.height / 3);
        self.chat.finish_rows(&done);
        self.above.extend(done.iter().map(|row| style.plain(row)));
        let status = self.chat.status(SystemClock.now()).map(|text| layout::status(&text, columns));
        let live = layout::live(
            layout::Parts {
                tail: rest.iter().map(|row| style.plain(row)).collect(),
                status: status.map(|text| style.busy(&text)),
                prompt: style.prompt(self.chat.prompt()),
                text: (self.editor.text(), self.editor.cursor()),
            },
            columns,
            self.height,
        );
        self.screen.paint(&std::mem::take(&mut self.above), live)
    }
}

/// Keys, pastes, resizes and signals, from threads that may block.
fn listen_to_terminal(signals_too: bool) -> io::Result<mpsc::Receiver<Heard>> {
    let (sender, keys) = mpsc::channel(KEYS);
    // The threads end with the process: the chat is the last thing it does.
    if signals_too {
        let signals = sender.clone();
        let mut ending = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        std::thread::Builder::new().name("chat-signals".to_owned()).spawn(move || {
            for _ in ending.forever() {
                if signals.blocking_send(Heard::Ended).is_err() {
                    return;
                }
            }
        })?;
    }
    std::thread::Builder::new().name("chat-keys".to_owned()).spawn(move || {
        loop {
            let heard = crossterm::event::read().map_or(Heard::Ended, Heard::Terminal);
            let ended = matches!(heard, Heard::Ended);
            if sender.blocking_send(heard).is_err() || ended {
                return;
            }
        }
    })?;
    Ok(keys)
}

/// The terminal in raw mode with bracketed paste; given back when dropped.
struct Guard;

impl Guard {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let guard = Self;
        crossterm::execute!(io::stdout(), EnableBracketedPaste)?;
        Ok(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing back.
        crossterm::execute!(io::stdout(), DisableBracketedPaste).unwrap_or_default();
        io::stdout().flush().unwrap_or_default();
        terminal::disable_raw_mode().unwrap_or_default();
    }
}
