//! Which folder the CLI keeps a working folder's transcripts in (facts 2).
//!
//! A pure function of the real path, so that it can be compared with a folder the owner names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::places::real_path;

/// Longest name the CLI uses without a hash behind it, in UTF-16 units (facts 2).
const MAX_UNITS: usize = 200;

/// Names the folder below `projects/` that belongs to a working folder.
///
/// `real_path` is the path with every symlink resolved; this function does not touch the disk. Every
/// UTF-16 unit outside `[A-Za-z0-9]` becomes one `-`; a result over 200 units is cut there and gets
/// `-` and the base36 hash of the whole path behind it (facts 2). Different paths can share a name.
#[must_use]
pub fn encode(real_path: &Path) -> String {
    let units: Vec<u16> = real_path.to_string_lossy().encode_utf16().collect();
    let mut name: String = units
        .iter()
        .take(MAX_UNITS)
        .map(|unit| match u8::try_from(*unit) {
            Ok(byte) if byte.is_ascii_alphanumeric() => char::from(byte),
            Ok(_) | Err(_) => '-',
        })
        .collect();
    if units.len() > MAX_UNITS {
        name.push('-');
        name.push_str(&base36(java_hash(&units).unsigned_abs()));
    }
    name
}

/// The folder in which the CLI keeps the transcripts of `claude_workdir`:
/// `${CLAUDE_CONFIG_DIR:-$HOME/.claude}/projects/<encoded real path>` (facts 2).
///
/// `env` must answer as the CLI's own environment would. Resolves symlinks on the disk; a part of
/// the path that is not there yet is taken as written. `None` when neither variable is set.
#[must_use]
pub fn derive(claude_workdir: &Path, env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let given = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative folder is the CLI's own, which runs in the working folder.
    let base = given("CLAUDE_CONFIG_DIR")
        .map(|folder| claude_workdir.join(folder))
        .or_else(|| given("HOME").map(|home| home.join(".claude")))?;
    Some(base.join("projects").join(encode(&real_path(claude_workdir))))
}

/// Java's `String.hashCode`: 32 bits, wrapping, over UTF-16 units.
fn java_hash(units: &[u16]) -> i32 {
    units.iter().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(*unit)))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_paths_are_replaced_unit_by_unit() {
        for (path, name) in [
            ("/", "-"),
            ("/root", "-root"),
            ("/home/a.b/My Bot_1", "-home-a-b-My-Bot-1"),
            ("/srv/小凯/会话", "-srv------"),
            ("/srv/🦊x", "-srv---x"),
            ("/srv/cafe\u{301}", "-srv-cafe-"),
            ("/srv/caf\u{e9}", "-srv-caf-"),
        ] {
            assert_eq!(encode(Path::new(path)), name, "{path}");
        }
    }

    /// The expected hashes come from the measured rule's reference program, not from this code.
    #[test]
    fn long_paths_are_cut_and_hashed() {
        for (path, length, end) in [
            (format!("/{}", "a".repeat(199)), 200, "aaaaaaaa"),
            (format!("/{}", "a".repeat(200)), 207, "a-b6ymvl"),
            (format!("/{}", "a".repeat(201)), 207, "a-85qkr6"),
            (format!("/{}", "b".repeat(254)), 207, "b-ywov9t"),
            (format!("/srv/{}end", "小凯🦊/".repeat(60)), 207, "--bmwz5g"),
            (format!("/srv/שלום/{}", "m".repeat(240)), 207, "m-q3ym99"),
        ] {
            let name = encode(Path::new(&path));
            assert_eq!(name.len(), length, "{path}");
            assert!(name.ends_with(end), "{name}");
        }
    }

    #[test]
    fn base36_writes_zero_and_the_largest_hash() {
        assert_eq!(base36(0), "0");
        assert_eq!(base36(35), "z");
        assert_eq!(base36(i32::MIN.unsigned_abs()), "zik0zk");
    }

    #[test]
    fn the_real_path_decides_and_the_cli_folder_can_be_moved() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let name = encode(&root.join("real"));

        let home = |key: &str| (key == "HOME").then(|| OsString::from("/home/kael"));
        let derived = derive(&root.join("link"), &home).unwrap();
        assert_eq!(derived, Path::new("/home/kael/.claude/projects").join(&name));

        let moved = |key: &str| Some(OsString::from(if key == "HOME" { "/home/kael" } else { "/cfg" }));
        assert_eq!(derive(&root.join("real"), &moved).unwrap(), Path::new("/cfg/projects").join(&name));

        let absent = derive(&root.join("link/later"), &home).unwrap();
        assert!(absent.ends_with(encode(&root.join("real/later"))), "{}", absent.display());
        assert_eq!(derive(&root, &|_| None), None);
    }
}
