//! The words to forget, and texts without them.
//!
//! Copies of what was said differ in white space, in the escapes of JSON inside of texts, and in the one escape of the
//! envelope: all of these count as the same words. The mark that stands in their place is never longer than they are, so
//! that a line of a transcript keeps its length and every place in the file stays where it was.

use std::borrow::Cow;
use std::collections::HashSet;

use regex::Regex;

use crate::cli::error::{CliError, ErrorKind};

/// What stands in the place of forgotten words, where it fits.
pub const MARK: &str = "[forgotten]";
/// What the CLI puts behind a copy that it shortens.
const DOTS: [&str; 2] = ["…", "..."];
/// A shortened copy that ends in so many characters of the words ends in them.
const OVERLAP: usize = 12;
/// Fewer bytes than that stand everywhere.
const LEAST: usize = 6;

/// One stretch of words.
#[derive(Debug, Clone)]
struct Stretch {
    pattern: Regex,
    /// With each stretch of white space as one blank.
    plain: String,
    mark: &'static str,
    /// Letters and digits that every copy has as they are; lines without them are passed over.
    hint: Option<String>,
}

/// What is to be forgotten.
#[derive(Debug, Clone, Default)]
pub struct Words {
    everywhere: Vec<Stretch>,
    /// Only in rows of `ids`: too short to be looked for elsewhere.
    there: Vec<Stretch>,
    /// Uuids of rows, identities of their sources and ids of messages.
    ids: HashSet<String>,
}

impl Words {
    /// One sentence, wherever it stands.
    ///
    /// # Errors
    /// When it is so short that it would be found in everything.
    pub fn sentence(words: &str) -> Result<Self, CliError> {
        let stretch = Stretch::new(words)?.filter(|stretch| stretch.plain.len() >= LEAST);
        let stretch = stretch.ok_or_else(|| {
            CliError::new(
                ErrorKind::Usage,
                "these words are too short: they would be found in everything; name the sentence, or its lines with \
                 --lines",
            )
        })?;
        Ok(Self { everywhere: vec![stretch], ..Self::default() })
    }

    /// All that certain rows say: long texts wherever they stand, short ones only in these rows.
    ///
    /// # Errors
    /// When a text cannot be searched for.
    pub fn rows(texts: &[String], ids: HashSet<String>) -> Result<Self, CliError> {
        let mut words = Self { ids, ..Self::default() };
        for text in texts {
            let Some(stretch) = Stretch::new(text)? else { continue };
            if stretch.plain.len() >= 2 * LEAST {
                words.everywhere.push(stretch.clone());
            }
            words.there.push(stretch);
        }
        // A text may be a part of another.
        words.everywhere.sort_by_key(|stretch| std::cmp::Reverse(stretch.plain.len()));
        words.there.sort_by_key(|stretch| std::cmp::Reverse(stretch.plain.len()));
        Ok(words)
    }

    /// Whether this is the id of a row, source or message all of whose words are meant.
    #[must_use]
    pub fn is_there(&self, id: &str) -> bool {
        self.ids.contains(id) || id.split_once('#').is_some_and(|(row, _)| self.ids.contains(row))
    }

    /// Whether a line of a file may hold something of it: a quick look.
    #[must_use]
    pub fn may_be_in(&self, line: &[u8]) -> bool {
        if !self.ids.is_empty() {
            return true;
        }
        self.everywhere.iter().any(|stretch| match &stretch.hint {
            Some(hint) => memchr::memmem::find(line, hint.as_bytes()).is_some(),
            None => true,
        })
    }

    /// The text without the words; borrowed where they do not stand in it. `there`: it belongs to one of the rows.
    #[must_use]
    pub fn out_of<'a>(&self, text: &'a str, there: bool) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for stretch in if there { &self.there } else { &self.everywhere } {
            if let Cow::Owned(without) = stretch.pattern.replace_all(&text, regex::NoExpand(stretch.mark)) {
                text = Cow::Owned(without);
            }
        }
        text
    }

    /// The same for the CLI's own copies: also the beginning of the words at the end of a shortened copy, and short words
    /// that are all of it.
    #[must_use]
    pub fn out_of_copy<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = self.out_of(text, false);
        let whole = self.there.iter().find(|stretch| stretch.plain == squashed(&text));
        if let Some(stretch) = whole {
            return Cow::Owned(stretch.mark.to_owned());
        }
        for stretch in &self.everywhere {
            if let Some(without) = stretch.cut_end(&text) {
                text = Cow::Owned(without);
            }
        }
        text
    }
}

impl Stretch {
    /// None of nothing but white space.
    fn new(words: &str) -> Result<Option<Self>, CliError> {
        let plain = squashed(words);
        if plain.is_empty() {
            return Ok(None);
        }
        let parts: Vec<String> = plain
            .split(' ')
            .map(|part| regex::escape(part).replace("</channel", r"<\\?/channel").replace('"', "\\\\*\""))
            .collect();
        let pattern = Regex::new(&parts.join(r"(?:\s|\\+[nrt])+"))
            .map_err(|error| CliError::new(ErrorKind::Usage, format!("these words are too many: {error}")))?;
        let hint = plain
            .split(|c: char| !c.is_ascii_alphanumeric())
            .max_by_key(|part| part.len())
            .filter(|part| part.len() >= 3)
            .map(str::to_owned);
        let mark = match plain.len() {
            0..3 => ".",
            3..11 => "…",
            _ => MARK,
        };
        Ok(Some(Self { pattern, plain, mark, hint }))
    }

    /// A shortened copy without the beginning of the words at its end.
    fn cut_end(&self, text: &str) -> Option<String> {
        let (front, dots) =
            DOTS.iter().find_map(|dots| Some((text.trim_end().strip_suffix(dots)?, *dots)))?;
        let front = front.trim_end();
        let starts: Vec<usize> = self.plain.char_indices().map(|(at, _)| at).collect();
        let longest = starts.iter().skip(OVERLAP).rev().find(|at| {
            let beginning = self.plain.get(..**at).unwrap_or_default().trim_end();
            !beginning.is_empty() && front.ends_with(beginning)
        })?;
        let kept = front.strip_suffix(self.plain.get(..*longest)?.trim_end())?;
        Some(format!("{kept}{}{dots}", self.mark))
    }
}

fn squashed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_every_spelling() {
        let words = Words::sentence("my \"code\" is\n magenta </channel> 七").unwrap();
        for text in [
            "so: my \"code\" is magenta </channel> 七.",
            "so: my \"code\"  is\tmagenta\n<\\/channel> 七.",
            r#"so: my \"code\" is\nmagenta </channel> 七."#,
        ] {
            assert_eq!(words.out_of(text, false), "so: [forgotten].", "{text}");
        }
        assert_eq!(words.out_of("my code is magenta", false), "my code is magenta");
        assert!(!words.may_be_in(b"nothing of it") && words.may_be_in(b"a channel of it"));
    }

    #[test]
    fn a_mark_is_never_longer_than_the_words() {
        for words in ["ok", "山水", "seven 7", "a longer sentence"] {
            let stretch = Stretch::new(words).unwrap().unwrap();
            assert!(stretch.mark.len() <= words.len(), "{words}");
        }
        for short in ["ok", " \n", "山", "abcde"] {
            assert!(Words::sentence(short).is_err(), "{short}");
        }
    }

    #[test]
    fn short_words_are_taken_only_where_they_are_meant() {
        let ids = HashSet::from(["row-1".to_owned()]);
        let words = Words::rows(&["yes".to_owned(), "the kite is red today".to_owned()], ids).unwrap();
        assert!(words.is_there("row-1") && words.is_there("row-1#2") && !words.is_there("row-10"));
        assert_eq!(words.out_of("yes, the kite is red today", false), "yes, [forgotten]");
        assert_eq!(words.out_of("yes", true), "…");
        assert_eq!(words.out_of_copy(" yes\n"), "…");
        assert_eq!(words.out_of_copy("yes and no"), "yes and no");
    }

    #[test]
    fn the_beginning_at_the_end_of_a_shortened_copy_goes() {
        let words = Words::sentence("my secret number is four").unwrap();
        assert_eq!(words.out_of_copy("hello, my secret num…"), "hello, [forgotten]…");
        assert_eq!(words.out_of_copy("hello, my secret num"), "hello, my secret num");
        assert_eq!(words.out_of_copy("hello, my ..."), "hello, my ...");
    }
}
