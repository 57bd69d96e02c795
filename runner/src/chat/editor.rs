//! What is being typed: several lines, edited as in a shell, with the history of what was said
//! before. Buffer and history are reedline's; this is the table of keys.

use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use reedline::{
    CommandLineSearch, FileBackedHistory, History, HistoryItem, HistoryItemId, LineBuffer, SearchDirection,
    SearchFilter, SearchQuery,
};

/// So many entries are remembered.
const REMEMBERED: usize = 1000;

/// What a key means beyond editing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// The text is finished.
    Submit(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line.
    Leave,
    /// Ctrl-L.
    Redraw,
    /// It is all in the buffer.
    Edited,
}

/// The text and its history.
pub struct Editor {
    buffer: LineBuffer,
    history: FileBackedHistory,
    /// Where in the history we are: entries from the newest, and what was typed before going there.
    browsing: Option<(i64, String)>,
    cut: String,
}

impl Editor {
    /// With a history in this file, or in memory.
    #[must_use]
    pub fn new(history: Option<PathBuf>) -> Self {
        let kept = history.and_then(|file| FileBackedHistory::with_file(REMEMBERED, file).ok());
        Self {
            buffer: LineBuffer::new(),
            history: kept.unwrap_or_default(),
            browsing: None,
            cut: String::new(),
        }
    }

    /// The text as it stands.
    #[must_use]
    pub fn text(&self) -> &str {
        self.buffer.get_buffer()
    }

    /// The byte at which the next character goes in.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.buffer.insertion_point()
    }

    /// Takes a paste: one text, whatever is in it.
    pub fn paste(&mut self, text: &str) {
        self.buffer.insert_str(&text.replace("\r\n", "\n").replace('\r', "\n"));
    }

    /// Empties the line; true when there was something in it.
    pub fn clear(&mut self) -> bool {
        let had = !self.buffer.is_empty();
        self.buffer.clear();
        self.browsing = None;
        had
    }

    /// Puts a text back that could not be sent, unless something else is being typed already.
    pub fn restore(&mut self, text: &str) {
        if self.buffer.is_empty() {
            self.set(text);
        }
    }

    /// Remembers what was said, on disk too.
    pub fn remember(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        // A history that cannot be written is still there until the chat ends.
        let kept = self.history.save(HistoryItem::from_command_line(text)).is_ok();
        if kept {
            self.history.sync().unwrap_or_default();
        }
    }

    fn set(&mut self, text: &str) {
        self.buffer.set_buffer(text.to_owned());
        self.buffer.move_to_end();
    }

    /// Takes one key.
    pub fn key(&mut self, key: KeyEvent) -> Typed {
        if key.kind == KeyEventKind::Release {
            return Typed::Edited;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let newline = alt || key.modifiers.contains(KeyModifiers::SHIFT);
        match (key.code, control, alt) {
            (KeyCode::Char('c'), true, _) => return Typed::Interrupt,
            (KeyCode::Char('d'), true, _) if self.buffer.is_empty() => return Typed::Leave,
            (KeyCode::Char('l'), true, _) => return Typed::Redraw,
            (KeyCode::Enter, ..) if newline => self.buffer.insert_newline(),
            (KeyCode::Char('j'), true, _) => self.buffer.insert_newline(),
            (KeyCode::Enter, ..) => return self.enter(),
            _ => self.edit(key.code, control, alt),
        }
        Typed::Edited
    }

    /// A backslash before the cursor makes the line go on.
    fn enter(&mut self) -> Typed {
        if self.buffer.grapheme_left() == "\\" {
            self.buffer.delete_left_grapheme();
            self.buffer.insert_newline();
            return Typed::Edited;
        }
        let text = self.buffer.get_buffer().to_owned();
        if text.trim().is_empty() {
            return Typed::Edited;
        }
        self.clear();
        Typed::Submit(text)
    }

    fn edit(&mut self, code: KeyCode, control: bool, alt: bool) {
        let word = control || alt;
        match code {
            KeyCode::Char('a') if control => self.buffer.move_to_line_start(),
            KeyCode::Char('e') if control => self.buffer.move_to_line_end(),
            KeyCode::Char('b') if control => self.buffer.move_left(),
            KeyCode::Char('f') if control => self.buffer.move_right(),
            KeyCode::Char('p') if control => self.older(),
            KeyCode::Char('n') if control => self.newer(),
            KeyCode::Char('d') if control => self.buffer.delete_right_grapheme(),
            KeyCode::Char('h') if control => self.buffer.delete_left_grapheme(),
            KeyCode::Char('t') if control => self.buffer.swap_graphemes(),
            KeyCode::Char('y') if control => {
                let text = self.cut.clone();
                self.buffer.insert_str(&text);
            }
            KeyCode::Char('u') if control => self.cut(self.buffer.line_start_index(), self.cursor()),
            KeyCode::Char('k') if control => self.cut(self.cursor(), self.buffer.find_current_line_end()),
            KeyCode::Char('w') if control => self.cut_word_left(),
            KeyCode::Char('b') if alt => self.word_left(),
            KeyCode::Char('f') if alt => self.word_right(),
            KeyCode::Char('d') if alt => self.buffer.delete_word_right(),
            KeyCode::Backspace if word => self.cut_word_left(),
            KeyCode::Delete if word => self.buffer.delete_word_right(),
            KeyCode::Left if word => self.word_left(),
            KeyCode::Right if word => self.word_right(),
            KeyCode::Char(c) if !control && !alt => self.buffer.insert_char(c),
            KeyCode::Backspace => self.buffer.delete_left_grapheme(),
            KeyCode::Delete => self.buffer.delete_right_grapheme(),
            KeyCode::Left => self.buffer.move_left(),
            KeyCode::Right => self.buffer.move_right(),
            KeyCode::Home => self.buffer.move_to_line_start(),
            KeyCode::End => self.buffer.move_to_line_end(),
            KeyCode::Up if !self.buffer.is_cursor_at_first_line() => self.buffer.move_line_up(),
            KeyCode::Down if !self.buffer.is_cursor_at_last_line() => self.buffer.move_line_down(),
            KeyCode::Up => self.older(),
            KeyCode::Down => self.newer(),
            KeyCode::Tab => self.buffer.insert_str("    "),
            _ => {}
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        let text = self.text().get(from..to).unwrap_or_default().to_owned();
        if !text.is_empty() {
            self.buffer.clear_range_safe(from..to);
            self.buffer.set_insertion_point(from);
            self.cut = text;
        }
    }

    fn cut_word_left(&mut self) {
        let end = self.cursor();
        self.word_left();
        let start = self.cursor();
        self.buffer.set_insertion_point(end);
        self.cut(start, end);
    }

    /// To the start of the word before the cursor, as a shell has it.
    fn word_left(&mut self) {
        let before = &self.text()[..self.cursor()];
        let end = before.trim_end_matches(|c: char| !c.is_alphanumeric()).len();
        let start = before[..end].trim_end_matches(char::is_alphanumeric).len();
        self.buffer.set_insertion_point(start);
    }

    fn word_right(&mut self) {
        let at = self.cursor();
        let after = &self.text()[at..];
        let word = after.trim_start_matches(|c: char| !c.is_alphanumeric());
        let rest = word.trim_start_matches(char::is_alphanumeric);
        self.buffer.set_insertion_point(at + after.len() - rest.len());
    }

    fn older(&mut self) {
        let (at, typed) = match &self.browsing {
            Some((at, typed)) => (at + 1, typed.clone()),
            None => (0, self.text().to_owned()),
        };
        if let Some(text) = self.remembered(at) {
            self.set(&text);
            self.browsing = Some((at, typed));
        }
    }

    fn newer(&mut self) {
        let Some((at, typed)) = self.browsing.take() else { return };
        match (at > 0).then(|| self.remembered(at - 1)).flatten() {
            Some(text) => {
                self.set(&text);
                self.browsing = Some((at - 1, typed));
            }
            None => self.set(&typed),
        }
    }

    /// The entry so many before the newest.
    fn remembered(&self, back: i64) -> Option<String> {
        let query = SearchQuery {
            direction: SearchDirection::Backward,
            limit: Some(back + 1),
            start_time: None,
            end_time: None,
            start_id: None::<HistoryItemId>,
            end_id: None,
            filter: SearchFilter::from_text_search(CommandLineSearch::Prefix(String::new()), None),
        };
        let found = self.history.search(query).ok()?;
        found.into_iter().nth(usize::try_from(back).ok()?).map(|item| item.command_line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) -> Typed {
        editor.key(KeyEvent::new(code, modifiers))
    }

    fn type_in(editor: &mut Editor, text: &str) {
        for c in text.chars() {
            press(editor, KeyCode::Char(c), KeyModifiers::NONE);
        }
    }

    fn plain(editor: &mut Editor, code: KeyCode) -> Typed {
        press(editor, code, KeyModifiers::NONE)
    }

    fn control(editor: &mut Editor, c: char) -> Typed {
        press(editor, KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    #[test]
    fn words_and_graphemes_are_edited_as_in_a_shell() {
        let mut editor = Editor::new(None);
        type_in(&mut editor, "a 风筝🪁 flies");
        control(&mut editor, 'w');
        assert_eq!(editor.text(), "a 风筝🪁 ");
        plain(&mut editor, KeyCode::Backspace);
        plain(&mut editor, KeyCode::Backspace);
        plain(&mut editor, KeyCode::Backspace);
        assert_eq!(editor.text(), "a 风", "one press takes one grapheme");
        control(&mut editor, 'a');
        control(&mut editor, 'k');
        control(&mut editor, 'y');
        control(&mut editor, 'y');
        assert_eq!(editor.text(), "a 风a 风");
        press(&mut editor, KeyCode::Left, KeyModifiers::CONTROL);
        control(&mut editor, 'u');
        assert_eq!(editor.text(), "风");
        editor.clear();
        editor.paste("👨‍👩‍👧");
        plain(&mut editor, KeyCode::Backspace);
        assert_eq!(editor.text(), "", "a family is one grapheme");
    }

    #[test]
    fn a_paste_of_many_lines_is_one_text() {
        let mut editor = Editor::new(None);
        let lines: Vec<String> = (1..=20).map(|n| format!("第{n}行 line {n}")).collect();
        editor.paste(&lines.join("\r\n"));
        assert_eq!(plain(&mut editor, KeyCode::Enter), Typed::Submit(lines.join("\n")));
        assert_eq!(editor.text(), "");
    }

    #[test]
    fn there_are_three_ways_to_a_second_line() {
        let mut editor = Editor::new(None);
        type_in(&mut editor, "one");
        press(&mut editor, KeyCode::Enter, KeyModifiers::ALT);
        type_in(&mut editor, "two");
        control(&mut editor, 'j');
        type_in(&mut editor, "three\\");
        assert_eq!(plain(&mut editor, KeyCode::Enter), Typed::Edited);
        assert_eq!(plain(&mut editor, KeyCode::Enter), Typed::Submit("one\ntwo\nthree\n".into()));
        assert_eq!(plain(&mut editor, KeyCode::Enter), Typed::Edited, "nothing is not said");
    }

    #[test]
    fn the_history_is_walked_and_comes_back_to_what_was_being_typed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history");
        let mut editor = Editor::new(Some(file.clone()));
        editor.remember("first");
        editor.remember("second\n第二行");
        type_in(&mut editor, "draft");
        plain(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "second\n第二行");
        plain(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "second\n第二行", "first up through its lines");
        plain(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "first");
        plain(&mut editor, KeyCode::Up);
        assert_eq!(editor.text(), "first", "there is nothing older");
        plain(&mut editor, KeyCode::Down);
        plain(&mut editor, KeyCode::Down);
        assert_eq!(editor.text(), "draft");
        drop(editor);
        let mut again = Editor::new(Some(file));
        plain(&mut again, KeyCode::Up);
        assert_eq!(again.text(), "second\n第二行");
    }

    #[test]
    fn leaving_and_stopping() {
        let mut editor = Editor::new(None);
        assert_eq!(control(&mut editor, 'd'), Typed::Leave);
        type_in(&mut editor, "x");
        control(&mut editor, 'a');
        assert_eq!(control(&mut editor, 'd'), Typed::Edited, "with text it deletes");
        assert_eq!(editor.text(), "");
        assert_eq!(control(&mut editor, 'c'), Typed::Interrupt);
    }
}
