//! How the chat looks: colours where the terminal may have them, signs everywhere, so that the
//! runner's own lines are told apart without colours too.

use super::text::{clean, width};

/// A row or line with its colours, and the columns it takes without them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Styled {
    /// What is written.
    pub text: String,
    /// Columns.
    pub width: usize,
}

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// False under `NO_COLOR`.
    pub colours: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const CYAN: &str = "36";
const YELLOW: &str = "33";
const RED: &str = "31";

impl Style {
    /// As the environment wants it (<https://no-color.org>).
    #[must_use]
    pub fn from_env() -> Self {
        Self { colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn with(self, code: &str, text: &str) -> Styled {
        let text = clean(text).replace('\n', " ");
        let width = width(&text);
        match self.colours && !text.is_empty() {
            true => Styled { text: format!("\x1b[{code}m{text}\x1b[0m"), width },
            false => Styled { text, width },
        }
    }

    /// Words of the assistant.
    #[must_use]
    pub fn plain(self, text: &str) -> Styled {
        let text = clean(text).replace('\n', " ");
        Styled { width: width(&text), text }
    }

    /// Words of a human.
    #[must_use]
    pub fn human(self, text: &str) -> Styled {
        self.with(CYAN, text)
    }

    /// The runner's own words.
    #[must_use]
    pub fn own(self, text: &str) -> Styled {
        self.with(DIM, &format!("· {text}"))
    }

    /// The runner's own words, to look at.
    #[must_use]
    pub fn warning(self, text: &str) -> Styled {
        self.with(YELLOW, &format!("! {text}"))
    }

    /// The runner's own words, to act on.
    #[must_use]
    pub fn error(self, text: &str) -> Styled {
        self.with(RED, &format!("!! {text}"))
    }

    /// What is going on.
    #[must_use]
    pub fn busy(self, text: &str) -> Styled {
        self.with(DIM, text)
    }

    /// What the input line begins with.
    #[must_use]
    pub fn prompt(self, text: &str) -> Styled {
        self.with(BOLD, text)
    }
}
