//! The configuration as a whole. This file holds what its parts share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::*;

mod companions;
mod defaults;
mod errors;
mod search;

/// An environment made up of these variables alone.
fn env<const N: usize>(vars: [(&'static str, String); N]) -> impl Fn(&str) -> Option<OsString> {
    move |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
}

/// Parses as the file `/srv/kael/config.toml` of a user whose home is `/home/me`.
fn parse_here(text: &str) -> Result<Vec<Config>, ConfigError> {
    let env = env([("HOME", "/home/me".to_owned())]);
    let lookup = Lookup { explicit: None, env: &env, cwd: PathBuf::from("/"), called_as_original: false };
    parse(text, Path::new("/srv/kael/config.toml"), &lookup)
}

fn one(text: &str) -> Config {
    let mut configs = parse_here(text).unwrap();
    assert_eq!(configs.len(), 1);
    configs.remove(0)
}

fn error(text: &str) -> String {
    parse_here(text).unwrap_err().to_string()
}
