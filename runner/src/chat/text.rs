//! Widths, wrapping and cleaning of text for a terminal.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The columns that a text takes: two for Chinese and emoji.
#[must_use]
pub fn width(text: &str) -> usize {
    text.width()
}

/// Text that cannot steer the terminal: tabs become spaces, and every other control character but
/// the newline a visible sign. What was said stays what it was; only its picture is cleaned.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str("    "),
            '\r' => {}
            // The pictures of the C0 controls stand in their order.
            c if (c as u32) < 0x20 => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Breaks a line where a terminal of that many columns would break it: between graphemes, and
/// before a wide one that does not fit any more. An empty line is one empty row.
#[must_use]
pub fn rows_of(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut rows = vec![String::new()];
    let mut used = 0;
    for grapheme in line.graphemes(true) {
        let wide = width(grapheme);
        if used + wide > columns {
            rows.push(String::new());
            used = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push_str(grapheme);
        }
        used += wide;
    }
    rows
}

/// How many rows something that wide takes on a terminal of that many columns.
#[must_use]
pub fn rows_taken(wide: usize, columns: usize) -> usize {
    wide.div_ceil(columns.max(1)).max(1)
}

/// Cuts a text to that many columns, with an ellipsis where something was cut.
#[must_use]
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for grapheme in text.graphemes(true) {
        used += width(grapheme);
        if used > columns {
            break;
        }
        out.push_str(grapheme);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_and_emoji_take_two_columns() {
        assert_eq!((width("kite"), width("风筝"), width("🪁"), width("")), (4, 4, 2, 0));
    }

    #[test]
    fn a_wide_character_that_does_not_fit_goes_to_the_next_row() {
        assert_eq!(rows_of("风筝风筝", 5), ["风筝", "风筝"]);
        assert_eq!(rows_of("a风筝b", 3), ["a风", "筝b"]);
        assert_eq!(rows_of("", 10), [""]);
        assert_eq!(rows_of("🪁🪁", 2), ["🪁", "🪁"]);
        assert_eq!(rows_of("abc", 0), ["ab", "c"], "no width is no reason to loop");
        assert_eq!(rows_of("e\u{301}e\u{301}e\u{301}", 2).len(), 2, "an accent stays with its letter");
    }

    #[test]
    fn nothing_that_was_said_steers_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\tc\r\nd\u{7}\u{9b}"), "a␛[2Jb    c\nd␇\u{fffd}");
        assert_eq!(clean("العلم أزرق 🪁"), "العلم أزرق 🪁");
    }

    #[test]
    fn long_texts_are_cut_to_columns() {
        assert_eq!(cut("kite", 4), "kite");
        assert_eq!(cut("风筝风筝", 5), "风筝…");
        assert_eq!(cut("风筝风筝", 4), "风…");
    }

    #[test]
    fn rows_are_counted_as_the_terminal_reflows_them() {
        assert_eq!(
            (rows_taken(0, 10), rows_taken(10, 10), rows_taken(11, 10), rows_taken(5, 0)),
            (1, 1, 2, 5)
        );
    }
}
