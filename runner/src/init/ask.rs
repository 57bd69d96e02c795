//! Plain questions: the proposal in brackets, one line of standard input the answer, an empty line a yes to the
//! proposal. Answers may be piped in; an input that ends early decides nothing.

use std::io::{BufRead, IsTerminal, Write};

use crate::cli::error::{CliError, ErrorKind};

/// A conversation with whoever is at standard input, or with nobody.
pub struct Dialogue {
    silent: bool,
}

impl Dialogue {
    /// `silent`: every proposal is taken and nobody is asked.
    #[must_use]
    pub const fn new(silent: bool) -> Self {
        Self { silent }
    }

    /// Whether nobody is asked.
    #[must_use]
    pub const fn silent(&self) -> bool {
        self.silent
    }

    /// Asks for a text.
    pub fn text(&mut self, question: &str, proposed: &str) -> Result<String, CliError> {
        let answer = self.line(&format!("{question} [{proposed}]: "))?;
        Ok(answer.unwrap_or_else(|| proposed.to_owned()))
    }

    /// Asks for a number from 0 to `most`, until one is given.
    pub fn number(&mut self, question: &str, most: usize, proposed: usize) -> Result<usize, CliError> {
        loop {
            let Some(answer) = self.line(&format!("{question} [{proposed}]: "))? else { return Ok(proposed) };
            match answer.parse() {
                Ok(number) if number <= most => return Ok(number),
                _ => println!("A number from 0 to {most}, please."),
            }
        }
    }

    /// Asks yes or no, until one is given.
    pub fn yes_or_no(&mut self, question: &str, proposed: bool) -> Result<bool, CliError> {
        let hint = if proposed { "Y/n" } else { "y/N" };
        loop {
            let Some(answer) = self.line(&format!("{question} [{hint}] "))? else { return Ok(proposed) };
            match answer.to_lowercase().as_str() {
                "y" | "yes" | "是" | "好" => return Ok(true),
                "n" | "no" | "不" | "否" => return Ok(false),
                _ => println!("Please say y or n."),
            }
        }
    }

    /// The answer, `None` for an empty one.
    fn line(&mut self, question: &str) -> Result<Option<String>, CliError> {
        if self.silent {
            return Ok(None);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(question.as_bytes())?;
        out.flush()?;
        let mut answer = String::new();
        if std::io::stdin().lock().read_line(&mut answer)? == 0 {
            println!();
            return Err(CliError::new(
                ErrorKind::Refused,
                "the answers ended before the questions: nothing was written; `init --yes` takes every proposal",
            ));
        }
        let answer = answer.trim();
        if !std::io::stdin().is_terminal() {
            // Nobody has typed it, so it does not stand there yet.
            println!("{answer}");
        }
        Ok((!answer.is_empty()).then(|| answer.to_owned()))
    }
}
