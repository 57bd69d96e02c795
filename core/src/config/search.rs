//! Where the configuration is looked for (DESIGN 12).

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Problem, position};
use super::file::parse;
use super::places::{Places, tidy};
use super::values::Config;

/// The folder whose files are the original's.
const ORIGINAL_FOLDER: &str = "/etc/kael-thread-rebuild";

/// How the program was called, as far as it decides which configuration holds.
pub struct Lookup<'a> {
    /// The file named by `--config`.
    pub explicit: Option<PathBuf>,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    /// The working folder; absolute.
    pub cwd: PathBuf,
    /// Whether the program was called by the original's name.
    pub called_as_original: bool,
}

/// Leaves the environment out, which may hold secrets.
impl fmt::Debug for Lookup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup")
            .field("explicit", &self.explicit)
            .field("cwd", &self.cwd)
            .field("called_as_original", &self.called_as_original)
            .finish_non_exhaustive()
    }
}

impl Lookup<'_> {
    /// A file that was named: by what, and whether that alone makes it the original's.
    fn named(&self) -> Option<(PathBuf, &'static str)> {
        let variable = |name: &'static str| {
            (self.env)(name).filter(|value| !value.is_empty()).map(|value| (PathBuf::from(value), name))
        };
        self.explicit
            .clone()
            .map(|path| (path, "--config"))
            .or_else(|| variable("KAEL_RUNNER_CONFIG"))
            .or_else(|| variable("KAEL_REBUILD_CONFIG"))
            .map(|(path, by)| (tidy(&self.cwd.join(path)), by))
    }

    /// The places that are looked at when no file was named.
    fn usual(&self) -> Vec<PathBuf> {
        let user = Places::new(self.cwd.clone(), self.env).config;
        let mut places = vec![tidy(&self.cwd.join("config.toml"))];
        places.extend(user.map(|folder| folder.join("kael-runner/config.toml")));
        places.push(PathBuf::from("/etc/kael-runner/config.toml"));
        places.push(Path::new(ORIGINAL_FOLDER).join("config.toml"));
        places
    }

    /// Whether a file counts as the original's configuration: reached by the original's command
    /// name, by its variable, or in its folder under `/etc`.
    pub(super) fn is_original(&self, path: &Path) -> bool {
        self.called_as_original
            || path.starts_with(ORIGINAL_FOLDER)
            || self.named().is_some_and(|(named, by)| by == "KAEL_REBUILD_CONFIG" && named == path)
    }
}

/// Finds and reads the configuration: one [`Config`] a companion, at least one.
///
/// A file that was named must be there; the usual places are tried in order. A place that is there
/// and cannot be read ends the search, since the next one would silently be another configuration.
///
/// # Errors
/// Nothing found, not readable, or not usable; then everything wrong with the file is listed.
pub fn load(lookup: &Lookup<'_>) -> Result<Vec<Config>, ConfigError> {
    if let Some((path, by)) = lookup.named() {
        return match std::fs::read(&path) {
            Ok(bytes) => decode(bytes, &path, lookup),
            Err(source) => Err(ConfigError::Read { path, named_by: Some(by), source }),
        };
    }
    let searched = lookup.usual();
    for path in &searched {
        match std::fs::read(path) {
            Ok(bytes) => return decode(bytes, path, lookup),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(source) => return Err(ConfigError::Read { path: path.clone(), named_by: None, source }),
        }
    }
    Err(ConfigError::NotFound { searched })
}

fn decode(bytes: Vec<u8>, path: &Path, lookup: &Lookup<'_>) -> Result<Vec<Config>, ConfigError> {
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text, path, lookup),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes());
            Err(ConfigError::Invalid {
                path: path.to_owned(),
                problems: vec![Problem {
                    at: Some(position(&text, valid)),
                    key: None,
                    message: "not TOML: the file is not UTF-8 from here on".to_owned(),
                }],
            })
        }
    }
}
