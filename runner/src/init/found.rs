//! What is there already: the CLI, `claude` processes of this user, and the sessions of a folder.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use kael_core::clock::Timestamp;
use kael_core::ids::SessionId;
use serde_json::Value;

use crate::claude::binary::{self, VersionCache};
use crate::claude::command::REMOVED;
use crate::claude::marked::MARKER;
use crate::cli::error::CliError;
use crate::versions;

/// The CLI.
pub struct Cli {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is found by its name.
    pub in_path: bool,
    /// Its version.
    pub version: String,
    /// What to know about that version.
    pub remark: &'static str,
}

/// Finds the CLI: the one named, or `claude` in `PATH`.
///
/// # Errors
/// It is not there, or does not say its version.
pub fn cli(named: Option<&Path>) -> Result<Cli, CliError> {
    let cwd = std::env::current_dir()?;
    let name = named.map_or_else(|| "claude".to_owned(), |path| path.display().to_string());
    // A name without a slash is looked up, as a shell would.
    let path = binary::resolve(&name, &cwd, std::env::var_os("PATH").as_deref()).map_err(|_| {
        CliError::failed(format!(
            "could not find {name}: install Claude Code and log in with it once (`claude`), or name it with --claude \
             PATH; to see what this is about without it: `kael-runner demo`"
        ))
    })?;
    let version = VersionCache::default().version(&path, &[], REMOVED).ok_or_else(|| {
        CliError::failed(format!(
            "{} --version prints no version: is it Claude Code? Name another with --claude PATH",
            path.display()
        ))
    })?;
    let remark = if versions::is_known(&version) {
        ", measured"
    } else {
        ", not measured: rebuild = \"auto\" would ask"
    };
    Ok(Cli { path, in_path: !name.contains('/'), version, remark })
}

/// A running `claude` of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub arguments: Vec<String>,
    /// The folder it runs in.
    pub workdir: PathBuf,
    /// Its `CLAUDE_CONFIG_DIR`.
    pub config_dir: Option<String>,
}

/// The running `claude` processes of this user, but for those that a runner started, oldest first.
#[must_use]
pub fn running() -> Vec<Live> {
    let own = rustix::process::geteuid().as_raw();
    let mut found: Vec<Live> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() == own))
        .filter_map(|entry| look_at(&entry.path(), entry.file_name().to_str()?.parse().ok()?))
        .collect();
    found.sort_by_key(|live| live.pid);
    found
}

/// What `claude` does besides talking.
const COMMANDS: [&str; 10] = [
    "agents",
    "auth",
    "config",
    "doctor",
    "install",
    "mcp",
    "migrate-installer",
    "plugin",
    "setup-token",
    "update",
];

fn look_at(process: &Path, pid: u32) -> Option<Live> {
    let words = |name: &str| -> Option<Vec<String>> {
        let bytes = fs::read(process.join(name)).ok()?;
        let parts = bytes.split(|&byte| byte == 0).filter(|part| !part.is_empty());
        Some(parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect())
    };
    let arguments = words("cmdline")?;
    if Path::new(arguments.first()?).file_name()? != "claude" {
        return None;
    }
    let environment = words("environ").unwrap_or_default();
    let variable = |name: &str| {
        environment.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    // A command of the CLI is no conversation.
    if variable(MARKER).is_some() || arguments.get(1).is_some_and(|word| COMMANDS.contains(&word.as_str())) {
        return None;
    }
    let workdir = fs::read_link(process.join("cwd")).ok()?;
    Some(Live {
        pid,
        arguments,
        workdir,
        config_dir: variable("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty()),
    })
}

/// A session on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// When its transcript was last written.
    pub changed: String,
    /// The transcript's size in bytes.
    pub size: u64,
    /// How its first human message begins.
    pub first_words: Option<String>,
}

/// The sessions of a project folder, newest first.
#[must_use]
pub fn sessions(folder: &Path) -> Vec<Session> {
    let mut found: Vec<(SystemTime, Session)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let id = path.file_stem()?.to_str()?.parse().ok()?;
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            if path.extension()? != "jsonl" {
                return None;
            }
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let millis = modified.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
            let at = Timestamp::from_millis(i64::try_from(millis).unwrap_or(0)).to_string();
            // To the minute: enough to tell conversations apart.
            let changed = at.get(..16).unwrap_or(&at).replace('T', " ");
            Some((modified, Session { id, changed, size: meta.len(), first_words: first_words(&path) }))
        })
        .collect();
    found.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
    found.into_iter().map(|(_, session)| session).collect()
}

/// How the first human message begins, looked for in the first rows. It is only shown: what is speech is decided
/// elsewhere.
fn first_words(path: &Path) -> Option<String> {
    const LOOKED_AT: u64 = 4 * 1024 * 1024;
    let reader = BufReader::new(fs::File::open(path).ok()?.take(LOOKED_AT));
    reader.split(b'\n').map_while(Result::ok).find_map(|line| words_of(&line))
}

fn words_of(line: &[u8]) -> Option<String> {
    const SHOWN: usize = 48;
    let row: Value = serde_json::from_slice(line).ok()?;
    let plain = row["type"] == "user" && row["isMeta"] != true && row["isSidechain"] != true;
    if !plain || row["isCompactSummary"] == true {
        return None;
    }
    let content = &row["message"]["content"];
    let text = content
        .as_str()
        .or_else(|| content.as_array()?.iter().find(|block| block["type"] == "text")?["text"].as_str())?;
    // Without a rebuild's time stamp and without an envelope; what else begins with a tag is the runtime's.
    let text = match text.strip_prefix("[发生时间: ").and_then(|rest| rest.split_once("]\n")) {
        Some((_, rest)) => rest,
        None => text,
    };
    let text = match text.strip_prefix("<channel ").and_then(|rest| rest.split_once(">\n")) {
        Some((_, inside)) => inside.trim_end_matches("\n</channel>"),
        None if text.starts_with('<') => return None,
        None => text,
    };
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = flat.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
    if flat.chars().count() > SHOWN {
        short.push('…');
    }
    (!short.is_empty()).then_some(short)
}

/// `~` as a shell would read it.
#[must_use]
pub fn expand_home(text: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match (text.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home,
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_human_words_are_shown_and_nothing_of_the_runtime() {
        let of = |row: &str| words_of(row.as_bytes());
        let user = |text: &str| {
            let content = serde_json::to_string(text).unwrap();
            format!(r#"{{"type":"user","message":{{"role":"user","content":{content}}}}}"#)
        };
        assert_eq!(of(&user("  hello\n  there ")).as_deref(), Some("hello there"));
        let long = of(&user(&"风筝".repeat(40))).unwrap();
        assert_eq!(long.chars().count(), 49);
        let wrapped = "[发生时间: 2026-11-30T16:00:00.000Z]\n<channel source=\"send\" user=\"Wen\">\nthe kite 🪁\n</channel>";
        assert_eq!(of(&user(wrapped)).as_deref(), Some("the kite 🪁"));
        for nothing in [
            user("<command-name>/compact</command-name>"),
            user("   "),
            r#"{"type":"user","isMeta":true,"message":{"content":"x"}}"#.to_owned(),
            r#"{"type":"user","message":{"content":[{"type":"tool_result","content":"x"}]}}"#.to_owned(),
            r#"{"type":"assistant","message":{"content":"x"}}"#.to_owned(),
            "not json".to_owned(),
        ] {
            assert_eq!(of(&nothing), None, "{nothing}");
        }
    }
}
