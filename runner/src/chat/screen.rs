//! Paints a few live rows below everything that was said, and nothing else: what is said scrolls
//! away into the terminal's own history, where it can be searched and copied.
//!
//! The live rows are erased, what is new is written where they began, and they are written again
//! below it, in one write. The terminal is never asked where its cursor is.

use std::io::{self, Write};

use super::style::Styled;
use super::text::rows_taken;

/// The rows at the bottom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Live {
    /// From top to bottom; none wider than the terminal.
    pub rows: Vec<Styled>,
    /// Row and column of the cursor.
    pub cursor: (usize, usize),
}

/// A terminal, or in tests the bytes that would go to one.
#[derive(Debug)]
pub struct Screen<W: Write> {
    out: W,
    columns: usize,
    drawn: Live,
    /// Rows between the top of the live rows and the cursor.
    above_cursor: usize,
}

impl<W: Write> Screen<W> {
    /// On a terminal of that many columns whose cursor stands at the start of a free row.
    pub fn new(out: W, columns: u16) -> Self {
        Self { out, columns: usize::from(columns), drawn: Live::default(), above_cursor: 0 }
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The terminal has another width now and has broken our rows anew.
    pub fn resized(&mut self, columns: u16) {
        self.columns = usize::from(columns.max(1));
        let (row, column) = self.drawn.cursor;
        let before: usize =
            self.drawn.rows.iter().take(row).map(|row| rows_taken(row.width, self.columns)).sum();
        self.above_cursor = before + column / self.columns;
    }

    /// Writes `above` above the live rows, and the live rows anew.
    pub fn paint(&mut self, above: &[Styled], live: Live) -> io::Result<()> {
        if above.is_empty() && live == self.drawn && self.above_cursor == self.drawn.cursor.0 {
            return Ok(());
        }
        let mut bytes = String::from("\x1b[?2026h\x1b[?25l");
        self.to_top(&mut bytes);
        for line in above {
            bytes.push_str(&line.text);
            bytes.push_str("\r\n");
        }
        let rows: Vec<&str> = live.rows.iter().map(|row| row.text.as_str()).collect();
        bytes.push_str(&rows.join("\r\n"));
        let below = live.rows.len().saturating_sub(1).saturating_sub(live.cursor.0);
        if below > 0 {
            bytes.push_str(&format!("\x1b[{below}A"));
        }
        bytes.push_str(&format!("\x1b[{}G\x1b[?25h\x1b[?2026l", live.cursor.1 + 1));
        self.above_cursor = live.cursor.0;
        self.drawn = live;
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }

    /// Forgets what is on the terminal and begins at its top.
    pub fn clear(&mut self) -> io::Result<()> {
        self.drawn = Live::default();
        self.above_cursor = 0;
        self.out.write_all(b"\x1b[2J\x1b[H")?;
        self.out.flush()
    }

    /// Takes the live rows away, for the shell's next prompt.
    pub fn leave(&mut self) -> io::Result<()> {
        let mut bytes = String::new();
        self.to_top(&mut bytes);
        self.drawn = Live::default();
        self.above_cursor = 0;
        self.out.write_all(bytes.as_bytes())?;
        self.out.flush()
    }

    /// To the top of the live rows, erasing them. Row by row first: some terminals keep what an erased
    /// screen held in their history.
    fn to_top(&self, bytes: &mut String) {
        if self.above_cursor > 0 {
            bytes.push_str(&format!("\x1b[{}A", self.above_cursor));
        }
        let rows: usize = self.drawn.rows.iter().map(|row| rows_taken(row.width, self.columns)).sum();
        bytes.push_str("\r\x1b[2K");
        if rows > 1 {
            bytes.push_str(&"\x1b[1B\x1b[2K".repeat(rows - 1));
            bytes.push_str(&format!("\x1b[{}A", rows - 1));
        }
        bytes.push_str("\x1b[J");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Styled {
        Styled { text: text.to_owned(), width: super::super::text::width(text) }
    }

    fn painted(screen: &mut Screen<Vec<u8>>) -> String {
        let bytes = String::from_utf8(std::mem::take(&mut screen.out)).unwrap();
        bytes.replace("\x1b", "^").replace("\r\n", "|")
    }

    #[test]
    fn what_is_said_goes_above_the_live_rows() {
        let mut screen = Screen::new(Vec::new(), 20);
        let live = Live { rows: vec![row("busy"), row("> 风")], cursor: (1, 4) };
        screen.paint(&[], live.clone()).unwrap();
        insta::assert_snapshot!(painted(&mut screen), @"^[?2026h^[?25l\r^[2K^[Jbusy|> 风^[5G^[?25h^[?2026l");
        screen.paint(&[row("said")], live.clone()).unwrap();
        insta::assert_snapshot!(painted(&mut screen), @"^[?2026h^[?25l^[1A\r^[2K^[1B^[2K^[1A^[Jsaid|busy|> 风^[5G^[?25h^[?2026l");
        screen.paint(&[], live).unwrap();
        assert_eq!(painted(&mut screen), "", "what is there already is not written again");
        screen.leave().unwrap();
        assert_eq!(painted(&mut screen), "^[1A\r^[2K^[1B^[2K^[1A^[J");
    }

    #[test]
    fn rows_that_a_narrower_terminal_has_broken_are_found_again() {
        let mut screen = Screen::new(Vec::new(), 20);
        let live = Live { rows: vec![row("0123456789"), row("> 01234567")], cursor: (1, 9) };
        screen.paint(&[], live.clone()).unwrap();
        painted(&mut screen);
        screen.resized(4);
        screen.paint(&[], live).unwrap();
        assert!(
            painted(&mut screen).starts_with("^[?2026h^[?25l^[5A\r^[2K^[1B"),
            "three rows and two of five columns"
        );
    }
}
