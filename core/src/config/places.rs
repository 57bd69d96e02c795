//! Home, XDG folders, and what a path written in the configuration means.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// The folders that paths in one configuration are measured from.
#[derive(Debug, Clone)]
pub(super) struct Places {
    /// Where the configuration file is; relative paths start here.
    pub(super) folder: PathBuf,
    /// `$HOME`.
    pub(super) home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    pub(super) config: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, else `~/.local/state`.
    pub(super) state: Option<PathBuf>,
    /// `$XDG_DATA_HOME`, else `~/.local/share`.
    pub(super) data: Option<PathBuf>,
}

impl Places {
    /// Reads the environment once. Relative or empty values count as unset, as the XDG base
    /// directory specification asks.
    pub(super) fn new(folder: PathBuf, env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let xdg =
            |name: &str, below: &str| absolute(name).or_else(|| home.as_ref().map(|home| home.join(below)));
        Self {
            config: xdg("XDG_CONFIG_HOME", ".config"),
            state: xdg("XDG_STATE_HOME", ".local/state"),
            data: xdg("XDG_DATA_HOME", ".local/share"),
            folder,
            home,
        }
    }

    /// Makes a path of the configuration absolute.
    ///
    /// Only a leading `~` and a leading `$XDG_..._HOME` are expanded: a shell's other variables mean
    /// something else to a service than to the person who wrote the file.
    pub(super) fn expand(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            return Err("an empty path names nothing; leave the key out for its default".to_owned());
        }
        let (first, rest) = text.split_once('/').unwrap_or((text, ""));
        let base = match first {
            "~" => self.home.as_ref(),
            "$XDG_CONFIG_HOME" => self.config.as_ref(),
            "$XDG_STATE_HOME" => self.state.as_ref(),
            "$XDG_DATA_HOME" => self.data.as_ref(),
            _ if first.starts_with('~') => {
                return Err(format!("only `~` alone is expanded, not `{first}`; write the path out"));
            }
            _ if first.starts_with('$') => {
                return Err(format!(
                    "`{first}` is not expanded; use `~`, `$XDG_CONFIG_HOME`, `$XDG_STATE_HOME`, \
                     `$XDG_DATA_HOME` or write the path out"
                ));
            }
            _ => return Ok(tidy(&self.folder.join(text))),
        };
        match base {
            Some(base) => Ok(tidy(&base.join(rest.trim_start_matches('/')))),
            None => Err(format!("`{first}` cannot be expanded: HOME is not set; write the path out")),
        }
    }
}

/// Drops `.` and doubled slashes. `..` stays, since it means the parent of a symlink's target.
pub(super) fn tidy(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The path with its symlinks resolved as far as it exists; the rest is taken as written.
pub(super) fn real_path(path: &Path) -> PathBuf {
    path.ancestors()
        .find_map(|ancestor| {
            let real = ancestor.canonicalize().ok()?;
            Some(tidy(&real.join(path.strip_prefix(ancestor).ok()?)))
        })
        .unwrap_or_else(|| tidy(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(vars: &'static [(&'static str, &'static str)]) -> Places {
        Places::new(PathBuf::from("/etc/kael-runner"), &|name| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn xdg_folders_fall_back_to_home_and_relative_ones_do_not_count() {
        let places = places(&[("HOME", "/home/kael"), ("XDG_STATE_HOME", "state"), ("XDG_DATA_HOME", "/d")]);
        assert_eq!(places.state.as_deref(), Some(Path::new("/home/kael/.local/state")));
        assert_eq!(places.config.as_deref(), Some(Path::new("/home/kael/.config")));
        assert_eq!(places.data.as_deref(), Some(Path::new("/d")));
    }

    #[test]
    fn only_the_documented_beginnings_are_expanded() {
        let set = places(&[("HOME", "/home/kael")]);
        for (text, path) in [
            ("~", "/home/kael"),
            ("~/小凯", "/home/kael/小凯"),
            ("~//x", "/home/kael/x"),
            ("$XDG_DATA_HOME/kael-runner", "/home/kael/.local/share/kael-runner"),
            ("./a/./b", "/etc/kael-runner/a/b"),
            ("/a/~/b", "/a/~/b"),
            ("/a//b/", "/a/b"),
        ] {
            assert_eq!(set.expand(text).unwrap(), Path::new(path), "{text}");
        }
        insta::assert_snapshot!(set.expand("~kael/x").unwrap_err(), @"only `~` alone is expanded, not `~kael`; write the path out");
        insta::assert_snapshot!(set.expand("$HOME/x").unwrap_err(), @"`$HOME` is not expanded; use `~`, `$XDG_CONFIG_HOME`, `$XDG_STATE_HOME`, `$XDG_DATA_HOME` or write the path out");
        insta::assert_snapshot!(set.expand("").unwrap_err(), @"an empty path names nothing; leave the key out for its default");
        insta::assert_snapshot!(places(&[]).expand("~/x").unwrap_err(), @"`~` cannot be expanded: HOME is not set; write the path out");
    }
}
