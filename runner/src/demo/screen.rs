//! What the demo looks like: labels on the left, words that appear as if typed, colours only where a terminal can
//! show them and nobody has said NO_COLOR, lines broken at the terminal's width.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use unicode_width::UnicodeWidthChar;

use crate::cli::error::CliError;

use super::language::Language;

/// Columns of the labels, with the two in front of them.
const LABEL: usize = 13;
/// Lines longer than this are tiring to read.
const WIDEST: usize = 100;
const NARROWEST: usize = 40;

/// Whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// The human.
    Human,
    /// The companion.
    Companion,
    /// The runner.
    Runner,
    /// A command, as it would be typed in a shell.
    Command,
    /// Something that another program does.
    Stranger,
}

impl Voice {
    fn label(self, language: Language) -> &'static str {
        match (self, language) {
            (Self::Human, Language::English) => "you",
            (Self::Human, Language::Chinese) => "你",
            (Self::Companion, Language::English) => "companion",
            (Self::Companion, Language::Chinese) => "伙伴",
            (Self::Runner, Language::English) => "runner",
            (Self::Runner, Language::Chinese) => "运行器",
            (Self::Command | Self::Stranger, _) => "$",
        }
    }

    const fn colour(self) -> &'static str {
        match self {
            Self::Human => "1;36",
            Self::Companion => "32",
            Self::Runner => "33",
            Self::Command => "35",
            Self::Stranger => "31",
        }
    }
}

/// Where the demo is shown.
pub struct Screen {
    /// Its language.
    pub language: Language,
    colours: bool,
    /// `None`: lines are not broken.
    width: Option<usize>,
    /// Whether somebody watches, so that pauses and typing make sense.
    watched: bool,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// The screen on standard output. `stop` is set when the demo is to end.
    #[must_use]
    pub fn new(language: Language, fast: bool, stop: Arc<AtomicBool>) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        let width = terminal.then(|| {
            let columns = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
            columns.clamp(NARROWEST, WIDEST)
        });
        Self {
            language,
            colours: terminal && !set("NO_COLOR") && !dumb,
            width,
            watched: terminal && !fast,
            stop,
        }
    }

    /// Waits, if somebody watches.
    pub fn pause(&self, milliseconds: u64) -> Result<(), CliError> {
        let mut left = if self.watched { milliseconds } else { 0 };
        while left > 0 {
            let step = left.min(50);
            std::thread::sleep(Duration::from_millis(step));
            left -= step;
            self.go_on()?;
        }
        self.go_on()
    }

    /// An error once somebody has pressed Ctrl-C.
    pub fn go_on(&self) -> Result<(), CliError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CliError::failed("the demo was stopped and its runner is ended"));
        }
        Ok(())
    }

    /// The title.
    pub fn title(&self, text: &str) -> Result<(), CliError> {
        self.put(&format!("\n  {}\n", self.paint("1", text)))
    }

    /// A new part, with what it is about.
    pub fn part(&self, number: usize, title: &str, about: &str) -> Result<(), CliError> {
        self.put(&format!("\n  {}\n", self.paint("1;34", &format!("{number}  {title}"))))?;
        self.narrate(about)?;
        self.pause(900)
    }

    /// Words about what is shown.
    pub fn narrate(&self, text: &str) -> Result<(), CliError> {
        for line in self.broken(text, 2) {
            self.put(&format!("  {}\n", self.paint("2", &line)))?;
        }
        Ok(())
    }

    /// A line of somebody's.
    pub fn line(&self, voice: Voice, text: &str) -> Result<(), CliError> {
        self.words(voice, text, 0)
    }

    /// A line of somebody's that appears as it is typed, one letter in so many milliseconds.
    pub fn words(&self, voice: Voice, text: &str, milliseconds: u64) -> Result<(), CliError> {
        self.prompt(voice)?;
        for (at, line) in self.broken(text, LABEL).iter().enumerate() {
            if at > 0 {
                self.put(&format!("\n{}", " ".repeat(LABEL)))?;
            }
            let colour = if voice == Voice::Human { "1" } else { "" };
            if milliseconds == 0 || !self.watched {
                self.put(&self.paint(colour, line))?;
                continue;
            }
            for letter in line.chars() {
                self.put(&self.paint(colour, &letter.to_string()))?;
                // A Chinese character takes more keys than a Latin letter.
                let keys = letter.width().unwrap_or(1) as u64;
                std::thread::sleep(Duration::from_millis(milliseconds * keys));
            }
        }
        self.put("\n")
    }

    /// A label with nothing behind it yet: somebody is to type.
    pub fn prompt(&self, voice: Voice) -> Result<(), CliError> {
        let label = voice.label(self.language);
        let pad = LABEL.saturating_sub(2 + columns(label));
        self.put(&format!("  {}{}", self.paint(voice.colour(), label), " ".repeat(pad)))
    }

    /// How full something is.
    pub fn gauge(&self, text: &str, part: u64, whole: u64) -> Result<(), CliError> {
        const CELLS: usize = 24;
        let room = self.width.map_or(CELLS, |width| width.saturating_sub(LABEL + 2 + columns(text)));
        let cells = room.clamp(4, CELLS) as u64;
        let full = (part.saturating_mul(cells) / whole.max(1)).min(cells);
        let bar = format!(
            "{}{}",
            self.paint(
                if part >= whole { "31" } else { "33" },
                &"█".repeat(usize::try_from(full).unwrap_or(0))
            ),
            self.paint("2", &"░".repeat(usize::try_from(cells - full).unwrap_or(0)))
        );
        self.put(&format!("{}{bar}  {}\n", " ".repeat(LABEL), self.paint("2", text)))
    }

    /// A figure with its name.
    pub fn figure(&self, name: &str, text: &str) -> Result<(), CliError> {
        const NAME: usize = 20;
        let pad = NAME.saturating_sub(columns(name));
        let lines = self.broken(text, 2 + NAME);
        let gap = format!("\n{}", " ".repeat(2 + NAME));
        self.put(&format!("  {}{}{}\n", self.paint("2", name), " ".repeat(pad), lines.join(&gap)))
    }

    /// A claim: whether it holds, and what was looked at.
    pub fn claim(&self, holds: bool, name: &str, detail: &str) -> Result<(), CliError> {
        let sign = if holds { self.paint("32", "✓") } else { self.paint("1;31", "✗") };
        self.put(&format!("  {sign} {}\n", self.paint("1", name)))?;
        for line in self.broken(detail, 4) {
            self.put(&format!("    {}\n", self.paint(if holds { "2" } else { "31" }, &line)))?;
        }
        self.pause(220)
    }

    /// An empty line.
    pub fn space(&self) -> Result<(), CliError> {
        self.put("\n")
    }

    /// Shows a line while something is waited for, and takes it away again.
    pub fn waiting<T>(&self, work: impl FnOnce() -> Result<T, CliError>) -> Result<T, CliError> {
        if !self.watched {
            return work();
        }
        self.put(&format!("{}{}", " ".repeat(LABEL), self.paint("2", "…")))?;
        let done = work();
        self.put("\r\u{1b}[K")?;
        self.go_on()?;
        done
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colours && !code.is_empty() && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn broken(&self, text: &str, indent: usize) -> Vec<String> {
        match self.width {
            None => text.lines().map(str::to_owned).collect(),
            Some(width) => text.lines().flat_map(|line| break_line(line, width - indent)).collect(),
        }
    }

    fn put(&self, text: &str) -> Result<(), CliError> {
        self.go_on()?;
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

fn columns(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// Breaks one line where there is a blank, or beside a wide character; a longer run is cut.
fn break_line(text: &str, width: usize) -> Vec<String> {
    // No line begins with one of these.
    const CLOSING: &str = "，。：；！？、）」』】,.;:!?)]";
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    // Where the line may be broken: bytes of it.
    let mut chance: Option<usize> = None;
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        let after_wide = line.chars().next_back().is_some_and(|last| last.width() == Some(2));
        if (wide == 2 || after_wide) && !line.is_empty() && !CLOSING.contains(letter) {
            chance = Some(line.len());
        }
        if used + wide > width && letter != ' ' {
            let at = chance.unwrap_or(line.len());
            let rest = line.split_off(at);
            lines.push(line.trim_end().to_owned());
            line = rest.trim_start().to_owned();
            used = columns(&line);
            chance = None;
        }
        line.push(letter);
        used += wide;
        if letter == ' ' {
            chance = Some(line.len());
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_by_columns_and_nothing_is_lost() {
        assert_eq!(break_line("the tail is long", 8), ["the tail", "is long"]);
        assert_eq!(break_line("风筝的线要白色的。", 8), ["风筝的线", "要白色", "的。"]);
        assert_eq!(break_line("a 🪁 is up", 6), ["a 🪁", "is up"]);
        assert_eq!(break_line("unbreakable", 4), ["unbr", "eaka", "ble"]);
        assert_eq!(break_line("", 4), [""]);
        for width in 4..30 {
            let text = "红色的风筝 with a long tail，飞得很高！";
            let joined: String = break_line(text, width).concat().replace(' ', "");
            assert_eq!(joined, text.replace(' ', ""), "at {width}");
        }
    }
}
