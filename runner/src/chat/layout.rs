//! From what is so to the live rows.

use unicode_segmentation::UnicodeSegmentation;

use super::screen::Live;
use super::style::Styled;
use super::text::{clean, cut, rows_of, width};

/// The text being typed, broken into rows, and where its cursor is.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// Its rows.
    pub rows: Vec<String>,
    /// Row and column, without what stands in front of the rows.
    pub cursor: (usize, usize),
}

/// Breaks the text into rows of that many columns. `cursor` is a byte of the text.
#[must_use]
pub fn input(text: &str, cursor: usize, columns: usize) -> Input {
    let columns = columns.max(2);
    let mut rows = vec![String::new()];
    let (mut used, mut at) = (0, None);
    for (byte, grapheme) in text.grapheme_indices(true) {
        let newline = grapheme.ends_with('\n');
        let shown = if newline { String::new() } else { clean(grapheme) };
        let wide = width(&shown);
        if used + wide > columns {
            rows.push(String::new());
            used = 0;
        }
        if byte >= cursor && at.is_none() {
            at = Some((rows.len() - 1, used));
        }
        if newline {
            rows.push(String::new());
            used = 0;
        } else if let Some(row) = rows.last_mut() {
            row.push_str(&shown);
            used += wide;
        }
    }
    let end = (rows.len() - 1, used);
    Input { rows, cursor: at.unwrap_or(end) }
}

/// What is shown at the bottom.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Rows of a reply whose line is not finished.
    pub tail: Vec<Styled>,
    /// What is going on.
    pub status: Option<Styled>,
    /// In front of the text.
    pub prompt: Styled,
    /// The text and its cursor, in bytes.
    pub text: (&'a str, usize),
}

/// The live rows on a terminal of that size. The text shows at most half of the rows, scrolled to
/// its cursor; the tail gives way first.
#[must_use]
pub fn live(parts: Parts<'_>, columns: usize, height: usize) -> Live {
    let indent = parts.prompt.width;
    // One column stays free, so that the cursor behind a full row does not break it.
    let input = input(parts.text.0, parts.text.1, columns.saturating_sub(indent + 1));
    let most = (height / 2).max(1);
    let first = (input.cursor.0 + 1).saturating_sub(most).min(input.rows.len().saturating_sub(most));
    let mut rows = Vec::new();
    let room = height.saturating_sub(most.min(input.rows.len()) + usize::from(parts.status.is_some()) + 1);
    let tail = parts.tail.len();
    rows.extend(parts.tail.into_iter().skip(tail.saturating_sub(room)));
    rows.extend(parts.status);
    let above = rows.len();
    for (at, row) in input.rows.iter().enumerate().skip(first).take(most) {
        let row_width = indent + width(row);
        let front = if at == 0 { parts.prompt.text.clone() } else { " ".repeat(indent) };
        rows.push(Styled { text: format!("{front}{row}"), width: row_width });
    }
    Live { rows, cursor: (above + input.cursor.0 - first, indent + input.cursor.1) }
}

/// The rows of a reply's unfinished line, and how much of it had to be given up to the scrolled
/// part: a paragraph that is longer than `most` rows is finished row by row.
#[must_use]
pub fn tail(line: &str, columns: usize, most: usize) -> (Vec<String>, Vec<String>) {
    if line.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut rows = rows_of(line, columns);
    let done = rows.len().saturating_sub(most.max(1));
    let rest = rows.split_off(done);
    (rows, rest)
}

/// A status in one row.
#[must_use]
pub fn status(text: &str, columns: usize) -> String {
    cut(text, columns.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_stands_where_the_next_character_goes() {
        let at = |text: &str, cursor: usize, columns: usize| input(text, cursor, columns);
        assert_eq!(at("", 0, 10), Input { rows: vec!["".into()], cursor: (0, 0) });
        assert_eq!(at("风筝", 3, 10).cursor, (0, 2));
        assert_eq!(at("风筝", 6, 10).cursor, (0, 4));
        assert_eq!(at("风筝🪁x", 10, 4), Input { rows: vec!["风筝".into(), "🪁x".into()], cursor: (1, 2) });
        assert_eq!(at("one\ntwo", 3, 10).cursor, (0, 3));
        assert_eq!(at("one\ntwo", 4, 10).cursor, (1, 0));
        assert_eq!(at("one\n", 4, 10), Input { rows: vec!["one".into(), "".into()], cursor: (1, 0) });
        assert_eq!(at("a\tb\x1b", 4, 20).rows, ["a    b␛"]);
    }

    fn plain(text: &str) -> Styled {
        Styled { text: text.into(), width: width(text) }
    }

    #[test]
    fn a_long_text_is_scrolled_to_its_cursor_and_never_fills_the_screen() {
        let text: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let parts = |cursor| Parts {
            tail: vec![plain("tail one"), plain("tail two")],
            status: Some(plain("busy")),
            prompt: plain("> "),
            text: (&text, cursor),
        };
        let shown = live(parts(text.len()), 40, 10);
        let rows: Vec<&str> = shown.rows.iter().map(|row| row.text.as_str()).collect();
        insta::assert_snapshot!(rows.join("\n"), @"
        tail one
        tail two
        busy
          line 17
          line 18
          line 19
          line 20
          
        ");
        assert_eq!(shown.cursor, (7, 2));
        let shown = live(parts(0), 40, 10);
        assert_eq!((shown.rows[3].text.as_str(), shown.cursor), ("> line 1", (3, 2)));
        assert!(shown.rows.len() <= 10);
        let tiny = live(parts(0), 1, 1);
        assert!(tiny.rows.len() <= 2, "{tiny:?}");
    }

    #[test]
    fn a_paragraph_longer_than_its_room_is_finished_row_by_row() {
        assert_eq!(tail("", 4, 2), (vec![], vec![]));
        assert_eq!(tail("风筝风筝风", 4, 2), (vec!["风筝".into()], vec!["风筝".into(), "风".into()]));
    }
}
