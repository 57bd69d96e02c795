//! The command line, as far as the product and its tests use it. An unknown flag ends the run with the
//! CLI's own message.

use std::ffi::OsString;

/// Form of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Format {
    /// The result's text.
    #[default]
    Text,
    /// One `result` object.
    Json,
    /// A line an event.
    Stream,
}

/// What the flags say.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) version: bool,
    pub(super) print: bool,
    pub(super) verbose: bool,
    pub(super) replay: bool,
    pub(super) partial: bool,
    pub(super) fork: bool,
    pub(super) stream_in: bool,
    pub(super) output: Format,
    pub(super) resume: Option<String>,
    pub(super) resume_at: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) append_system_prompt: Option<String>,
    pub(super) permission_mode: String,
    pub(super) max_turns: Option<u32>,
    pub(super) allowed: Vec<String>,
    pub(super) prompt: Option<String>,
}

/// Flags that take one value which changes nothing here.
const IGNORED_WITH_VALUE: &[&str] = &[
    "--settings",
    "--setting-sources",
    "--fallback-model",
    "--effort",
    "--system-prompt-snapshot",
    "--max-budget-usd",
    "--permission-prompt-tool",
    "--agents",
    "--debug-file",
    "--name",
];
const IGNORED: &[&str] = &[
    "--strict-mcp-config",
    "--disable-slash-commands",
    "--allow-dangerously-skip-permissions",
    "--no-session-persistence",
    "--include-hook-events",
    "--bare",
];
/// Flags that take values up to the next flag.
const IGNORED_LIST: &[&str] =
    &["--mcp-config", "--disallowedTools", "--disallowed-tools", "--add-dir", "--betas"];

/// Reads the arguments that follow the program's name.
///
/// # Errors
/// The message for stderr; the exit code is 1.
pub(super) fn parse(raw: Vec<OsString>) -> Result<Args, String> {
    let mut args = Args { permission_mode: "default".into(), ..Args::default() };
    let mut rest = raw.into_iter().map(|a| a.to_string_lossy().into_owned()).peekable();
    while let Some(arg) = rest.next() {
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
            _ => (arg.clone(), None),
        };
        let mut list = |inline: Option<String>| {
            let mut values: Vec<String> = inline.into_iter().collect();
            while let Some(value) = rest.next_if(|next| !next.starts_with('-')) {
                values.push(value);
            }
            values
        };
        if IGNORED.contains(&flag.as_str()) {
            continue;
        }
        if IGNORED_LIST.contains(&flag.as_str()) {
            list(inline);
            continue;
        }
        if flag == "--allowedTools" || flag == "--allowed-tools" {
            args.allowed.extend(list(inline).iter().flat_map(|v| split_tools(v)));
            continue;
        }
        let mut value = || {
            inline
                .clone()
                .or_else(|| rest.next())
                .ok_or_else(|| format!("error: option '{flag} <value>' argument missing"))
        };
        match flag.as_str() {
            "-v" | "--version" => args.version = true,
            "-p" | "--print" => args.print = true,
            "--verbose" => args.verbose = true,
            "--replay-user-messages" => args.replay = true,
            "--include-partial-messages" => args.partial = true,
            "--fork-session" => args.fork = true,
            "-r" | "--resume" => args.resume = Some(value()?),
            "--resume-session-at" => args.resume_at = Some(value()?),
            "--session-id" => args.session_id = Some(value()?),
            "--model" => args.model = Some(value()?),
            "--append-system-prompt" => args.append_system_prompt = Some(value()?),
            "--permission-mode" => args.permission_mode = value()?,
            "--dangerously-skip-permissions" => args.permission_mode = "bypassPermissions".into(),
            "--max-turns" => args.max_turns = value()?.parse().ok(),
            "--input-format" => args.stream_in = value()? == "stream-json",
            "--output-format" => {
                args.output = match value()?.as_str() {
                    "json" => Format::Json,
                    "stream-json" => Format::Stream,
                    _ => Format::Text,
                };
            }
            known if IGNORED_WITH_VALUE.contains(&known) => {
                value()?;
            }
            unknown if unknown.starts_with('-') && unknown.len() > 1 => {
                return Err(format!("error: unknown option '{unknown}'"));
            }
            _ => args.prompt = Some(arg),
        }
    }
    check(&args)?;
    Ok(args)
}

fn check(args: &Args) -> Result<(), String> {
    if args.session_id.is_some() && args.resume.is_some() && !args.fork {
        return Err("Error: --session-id with --continue or --resume also needs --fork-session.".into());
    }
    if args.session_id.as_ref().is_some_and(|id| uuid::Uuid::try_parse(id).is_err()) {
        return Err("Error: Invalid session ID. Must be a valid UUID.".into());
    }
    if args.permission_mode == "bypassPermissions" && rustix::process::geteuid().is_root() {
        return Err(
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
                .into(),
        );
    }
    if args.output == Format::Stream && args.print && !args.verbose {
        return Err("Error: When using --print, --output-format=stream-json requires --verbose".into());
    }
    if args.stream_in && args.output != Format::Stream {
        return Err("Error: --input-format=stream-json requires output-format=stream-json.".into());
    }
    Ok(())
}

/// `"Bash(git:*),Read"`: names separated by commas or blanks, patterns in brackets kept whole.
fn split_tools(list: &str) -> Vec<String> {
    let mut depth = 0_usize;
    list.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (c == ',' || c == ' ')
    })
    .filter(|name| !name.is_empty())
    .map(str::to_owned)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Args, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn reads_the_flags_of_a_streaming_turn() {
        let args = of("-p --resume 8b7d7e0a-0000-4000-8000-000000000001 --input-format stream-json \
                       --output-format=stream-json --verbose --replay-user-messages --allowedTools Bash Read \
                       --mcp-config a.json b.json --model m")
        .unwrap();
        assert!(args.print && args.verbose && args.replay && args.stream_in);
        assert_eq!(args.output, Format::Stream);
        assert_eq!(args.allowed, ["Bash", "Read"]);
        assert_eq!(args.model.as_deref(), Some("m"));
        assert_eq!(split_tools("Bash(git log, x),Read Write"), ["Bash(git log, x)", "Read", "Write"]);
    }

    #[test]
    fn refuses_what_the_cli_refuses() {
        let id = "8b7d7e0a-0000-4000-8000-000000000001";
        for (line, wanted) in [
            ("-p --frobnicate x", "error: unknown option '--frobnicate'".to_owned()),
            ("-p --session-id nope", "Error: Invalid session ID. Must be a valid UUID.".to_owned()),
            (
                &*format!("-p --resume {id} --session-id {id}"),
                "Error: --session-id with --continue or --resume also needs --fork-session.".to_owned(),
            ),
        ] {
            assert_eq!(of(line).unwrap_err(), wanted);
        }
    }
}
