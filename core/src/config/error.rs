//! What can be wrong with a configuration. No message ever repeats a value that may be a secret.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why there is no usable configuration. All of these are exit code 5 (DESIGN 12).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nothing was named and none of the usual places holds a file.
    #[error(
        "no configuration found: `kael-runner init` writes one; or put one at one of these places, or name a file with --config:{}",
        list(.searched)
    )]
    NotFound {
        /// The places that were looked at, in order.
        searched: Vec<PathBuf>,
    },
    /// The file that should be read cannot be.
    #[error("cannot read the configuration {}{}", .path.display(), named(*.named_by))]
    Read {
        /// The file.
        path: PathBuf,
        /// What named it: an option or a variable; `None` for a usual place.
        named_by: Option<&'static str>,
        /// The system's reason.
        source: io::Error,
    },
    /// The file can be read and says something that cannot be followed.
    #[error("{}", located(.path, .problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it, in the order of the file; never empty.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line and column (in characters), from 1; `None` when it is about something the file leaves out.
    pub at: Option<(usize, usize)>,
    /// The key, with its table, as in `runner.rebuild`; `None` for a fault of the syntax.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(f, "`{key}`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Line and column of a byte offset, both from 1. Columns count characters, as editors do.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before.get(line_start..).unwrap_or_default().chars().count() + 1)
}

/// A fault of the syntax. The library's own display would quote the line, which may hold a secret.
pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    let span: Option<Range<usize>> = error.span();
    let key = span.as_ref().filter(|_| error.message().contains("duplicate key")).and_then(|span| {
        let name = text.get(span.clone())?;
        name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)).then(|| name.to_owned())
    });
    Problem {
        at: span.map(|span| position(text, span.start)),
        key,
        message: format!("not TOML: {}", error.message()),
    }
}

fn named(by: Option<&'static str>) -> String {
    by.map(|by| format!(" (named by {by})")).unwrap_or_default()
}

fn list(searched: &[PathBuf]) -> String {
    searched.iter().map(|path| format!("\n  {}", path.display())).collect()
}

fn located(path: &Path, problems: &[Problem]) -> String {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| match problem.at {
            Some((line, column)) => format!("{}:{line}:{column}: {problem}", path.display()),
            None => format!("{}: {problem}", path.display()),
        })
        .collect();
    lines.join("\n")
}
