//! Bounds of single values. Each says what is wrong and what to do, without repeating secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;

/// The element of `resume_command` that becomes the session's id.
pub(super) const SESSION_ID: &str = "{session_id}";

pub(super) fn zero_or_at_least<const LEAST: u64>(number: &u64) -> Result<(), String> {
    if *number == 0 || *number >= LEAST {
        return Ok(());
    }
    Err(format!("{number} is too small: at least {LEAST}, or 0 for no limit"))
}

pub(super) fn at_least_one(number: &u32) -> Result<(), String> {
    if *number > 0 { Ok(()) } else { Err("must be at least 1".to_owned()) }
}

pub(super) fn some_time(duration: &Duration) -> Result<(), String> {
    if duration.is_zero() {
        Err("must be longer than 0: with 0 nothing would ever be done".to_owned())
    } else {
        Ok(())
    }
}

/// A name that goes into an argv as a value and must not be read as an option.
pub(super) fn plain_name(name: &str) -> Result<(), String> {
    if name.trim().is_empty() {
        return Err("must not be empty".to_owned());
    }
    if name.starts_with('-') {
        return Err("must not begin with `-`: it would be read as an option".to_owned());
    }
    Ok(())
}

pub(super) fn unit_name(name: &Option<String>) -> Result<(), String> {
    name.as_deref().map_or(Ok(()), plain_name)
}

/// What makes names of companions usable as folders, and readable in logs and commands.
pub(super) fn companion_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 {
        return Err("a companion's name has 1 to 64 bytes: it names its folder".to_owned());
    }
    if name.starts_with(['.', '-']) || !name.chars().all(allowed) {
        return Err("a companion's name names its folder: letters, digits, `-`, `_` and `.` only, \
                    and neither `.` nor `-` in front"
            .to_owned());
    }
    Ok(())
}

/// Compiles `poison_pattern`, in which case does not count.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    let regex = regex::RegexBuilder::new(pattern).case_insensitive(true).build().map_err(|error| {
        // The library draws the pattern over several lines; the last one says what is wrong.
        let reason = error.to_string();
        let last = reason.lines().last().unwrap_or_default();
        format!("not a regular expression: {}", last.trim().trim_start_matches("error: "))
    })?;
    if regex.is_match("") {
        return Err("matches the empty text, so every turn would be a hit and no rebuild possible".to_owned());
    }
    Ok(regex)
}

pub(super) fn pattern(pattern: &str) -> Result<(), String> {
    compile(pattern).map(|_| ())
}

/// Shells, whose `-c` is not the CLI's.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

const CONTINUE: &str = "continues the newest session of the folder, whichever that is; \
                        use `--resume`, `{session_id}` so that the pointer decides";

pub(super) fn resume_command(command: &[String]) -> Result<(), String> {
    if command.first().is_none_or(|program| program.is_empty() || program == SESSION_ID) {
        return Err("needs a program in front, as in [\"claude\", \"--resume\", \"{session_id}\"]".to_owned());
    }
    let mut before = "";
    for argument in command {
        let shell =
            Path::new(before).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell));
        // A shell's script is one argument, so that words are looked at, not arguments.
        if argument.split_whitespace().any(|word| word == "--continue") {
            return Err(format!("`--continue` {CONTINUE}"));
        }
        if argument == "-c" && !shell {
            return Err(format!("`-c` {CONTINUE}"));
        }
        if argument.contains(SESSION_ID) && argument != SESSION_ID {
            return Err(format!(
                "`{SESSION_ID}` must stand alone in its element: write \"--resume\", \"{SESSION_ID}\""
            ));
        }
        before = argument;
    }
    let has = |flag: &str| {
        command.iter().any(|argument| argument == flag || argument.starts_with(&format!("{flag}=")))
    };
    if has("--session-id") && (has("--resume") || has("-r")) {
        return Err("`--session-id` together with `--resume` starts a fork or nothing at all; \
                    leave `--session-id` out, the runner puts it there for a new session"
            .to_owned());
    }
    match command.iter().filter(|argument| *argument == SESSION_ID).count() {
        1 => Ok(()),
        0 => Err(format!(
            "needs `{SESSION_ID}` as an element of its own: without it no session would be resumed"
        )),
        _ => Err(format!("holds `{SESSION_ID}` more than once; it stands for one argument")),
    }
}

/// Whether the command holds the pair that becomes `--session-id` for a new session (DESIGN 9).
pub(super) fn has_resume_pair(command: &[String]) -> bool {
    command
        .windows(2)
        .any(|pair| matches!(pair, [flag, id] if (flag == "--resume" || flag == "-r") && id == SESSION_ID))
}

/// Options that decide which session runs, which only the runner does.
const SESSION_OPTIONS: [&str; 7] =
    ["--resume", "-r", "--continue", "-c", "--session-id", "--fork-session", "--resume-session-at"];

pub(super) fn claude_args(args: &[String]) -> Result<(), String> {
    for argument in args {
        let option = argument.split_once('=').map_or(argument.as_str(), |(option, _)| option);
        if SESSION_OPTIONS.contains(&option) {
            return Err(format!(
                "`{option}` decides which session runs, which is the runner's part; leave it out"
            ));
        }
    }
    Ok(())
}

pub(super) fn env_names(env: &BTreeMap<String, String>) -> Result<(), String> {
    for name in env.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err("the name of a variable is not empty and holds no `=`".to_owned());
        }
    }
    Ok(())
}

pub(super) fn tags(tags: &[String]) -> Result<(), String> {
    for tag in tags {
        if tag.is_empty() || !tag.chars().all(|c| c.is_ascii_alphanumeric() || "-_:.".contains(c)) {
            return Err("a tag is its name alone, without `<` and `>`".to_owned());
        }
    }
    Ok(())
}

/// Catches the token itself where the name of its file belongs.
pub(super) fn not_a_token(path: &Option<PathBuf>) -> Result<(), String> {
    let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let looks_like_one = name.is_some_and(|name| {
        name.split_once(':').is_some_and(|(id, secret)| {
            !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) && secret.len() >= 20
        })
    });
    if looks_like_one {
        return Err(
            "this looks like the token itself: put it in a file of its own (mode 0600) and name that; \
                    a token that stood here should be replaced"
                .to_owned(),
        );
    }
    Ok(())
}

pub(super) fn web_address(url: &str) -> Result<(), String> {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return Err("expected an address that begins with https:// or http://".to_owned());
    };
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() {
        return Err("the address names no host".to_owned());
    }
    if host.contains('@') {
        return Err(
            "an address with a name or password in it would show up in logs; leave them out".to_owned()
        );
    }
    if rest.contains(['?', '#']) || rest.contains(char::is_whitespace) {
        return Err("the address ends with the host or a path: no `?`, `#` or white space".to_owned());
    }
    Ok(())
}
