//! Which program `claude` is, resolved anew for every invocation because updaters replace it.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The CLI cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// Nothing executable has that name.
    #[error(
        "could not find {name:?} in PATH ({path}): install Claude Code, or write its absolute path as the first \
         element of resume_command"
    )]
    NotFound {
        /// The name looked for.
        name: String,
        /// Where it was looked for.
        path: String,
    },
    /// A path was given and nothing executable is there.
    #[error("could not run {path}: there is no executable file: correct the first element of resume_command")]
    NotExecutable {
        /// The path given.
        path: PathBuf,
    },
}

/// The absolute path of `name`: itself if it holds a slash (relative ones from `workdir`), else the
/// first executable of that name in `search_path`.
pub fn resolve(name: &str, workdir: &Path, search_path: Option<&OsStr>) -> Result<PathBuf, BinaryError> {
    if name.contains('/') {
        let path = workdir.join(name);
        return if executable(&path) { Ok(path) } else { Err(BinaryError::NotExecutable { path }) };
    }
    let search = search_path.unwrap_or_default();
    std::env::split_paths(search)
        .map(|dir| workdir.join(dir).join(name))
        .find(|candidate| executable(candidate))
        .ok_or_else(|| BinaryError::NotFound {
            name: name.to_owned(),
            path: search.to_string_lossy().into_owned(),
        })
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
}

/// The CLI's version, asked for again only when the file is another one (path, inode, mtime).
#[derive(Debug, Default)]
pub struct VersionCache {
    known: Option<(PathBuf, u64, i64, i64, Option<String>)>,
}

impl VersionCache {
    /// The version number that `--version` prints, such as `2.1.332`; `None` if it prints none.
    /// Blocks while the program runs.
    pub fn version(&mut self, binary: &Path, env: &[(String, String)], remove: &[&str]) -> Option<String> {
        let meta = binary.metadata().ok()?;
        if let Some((path, inode, secs, nanos, version)) = &self.known
            && (path.as_path(), *inode, *secs, *nanos)
                == (binary, meta.ino(), meta.mtime(), meta.mtime_nsec())
        {
            return version.clone();
        }
        let version = ask(binary, env, remove);
        self.known = Some((binary.to_owned(), meta.ino(), meta.mtime(), meta.mtime_nsec(), version.clone()));
        version
    }
}

fn ask(binary: &Path, env: &[(String, String)], remove: &[&str]) -> Option<String> {
    let mut command = std::process::Command::new(binary);
    for name in remove {
        command.env_remove(name);
    }
    let output = command
        .arg("--version")
        .envs(env.iter().map(|(k, v)| (k, v)))
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.split_whitespace().next()?;
    first.starts_with(|c: char| c.is_ascii_digit()).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_first_executable_in_the_path_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        script(&a, "claude", "", 0o644);
        let wanted = script(&b, "claude", "", 0o755);
        let search = std::env::join_paths([&a, &b]).unwrap();
        assert_eq!(resolve("claude", dir.path(), Some(&search)).unwrap(), wanted);
        assert_eq!(resolve("b/claude", dir.path(), None).unwrap(), wanted);
        let error = resolve("claude", dir.path(), Some(OsStr::new("/nowhere"))).unwrap_err();
        insta::assert_snapshot!(error, @r#"could not find "claude" in PATH (/nowhere): install Claude Code, or write its absolute path as the first element of resume_command"#);
        assert!(matches!(resolve("a/claude", dir.path(), None), Err(BinaryError::NotExecutable { .. })));
    }

    #[test]
    fn a_replaced_binary_is_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(
            dir.path(),
            "claude",
            "#!/bin/sh\necho x >> \"$0.asked\"; echo '2.1.1 (Claude Code)'",
            0o755,
        );
        let mut cache = VersionCache::default();
        assert_eq!(cache.version(&path, &[], &[]).as_deref(), Some("2.1.1"));
        assert_eq!(cache.version(&path, &[], &[]).as_deref(), Some("2.1.1"));
        assert_eq!(std::fs::read_to_string(dir.path().join("claude.asked")).unwrap(), "x\n");
        let next = script(dir.path(), "next", "#!/bin/sh\necho 2.1.2", 0o755);
        std::fs::rename(next, &path).unwrap();
        assert_eq!(cache.version(&path, &[], &[]).as_deref(), Some("2.1.2"));
    }
}
