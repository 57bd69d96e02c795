//! The command line and environment of one invocation (DESIGN 9 "Invocation").

use kael_core::config::{ClaudeConfig, Config};
use kael_core::ids::{InvocationId, SessionId};

use crate::mcp::offer;
use crate::queue::{Invocation, Route};

use super::marked::MARKER;

/// Variables a surrounding Claude Code session leaves behind; a child that saw them would take
/// itself for a part of that session. Credentials and provider switches are not among them.
pub const REMOVED: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_PARENT_SESSION_ID",
    "CLAUDE_CODE_RESUME_INTERRUPTED_TURN",
    "CLAUDE_CODE_RESUME_PROMPT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_ENV_FILE",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    MARKER,
];

/// What streaming needs, besides what the configuration says.
const STREAMING: &[&str] = &[
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--replay-user-messages",
];

/// The arguments after the program's name. The prompt is not among them: it goes to standard input.
/// `partial`: the text as it comes, for who is attached; the requests to the API are the same without.
#[must_use]
pub fn arguments(config: &Config, invocation: &Invocation, partial: bool) -> Vec<String> {
    let id = invocation.session.to_string();
    let mut out = Vec::new();
    for argument in config.resume_command.iter().skip(1) {
        out.push(if argument == "{session_id}" { id.clone() } else { argument.clone() });
    }
    if invocation.new_session {
        begin_instead_of_resume(&mut out, &invocation.session);
    }
    out.extend(
        STREAMING
            .iter()
            .filter(|&&s| !(s == "-p" && printing(&out)))
            .map(|&s| s.to_owned())
            .collect::<Vec<_>>(),
    );
    if partial {
        out.push("--include-partial-messages".to_owned());
    }
    if let Route::ResumeAt(row) = &invocation.route {
        out.extend(["--resume-session-at".to_owned(), row.clone()]);
    }
    out.extend(config.claude.args.iter().cloned());
    offer_tools(&mut out, config);
    out
}

/// Adds our MCP server, beside those that the user has, and allows its tools: with the ones allowed elsewhere in the
/// arguments in one flag, since not every version adds several up.
fn offer_tools(arguments: &mut Vec<String>, config: &Config) {
    let mut allowed = take_allowed(arguments);
    for tool in offer::allowed(config.runner.consent) {
        if !allowed.contains(&tool) {
            allowed.push(tool);
        }
    }
    arguments.extend(["--mcp-config".to_owned(), offer::config_json(config, offer::program())]);
    arguments.push("--allowedTools".to_owned());
    arguments.extend(allowed);
}

/// Takes every `--allowedTools` with its values out. A value ends where the next flag begins.
fn take_allowed(arguments: &mut Vec<String>) -> Vec<String> {
    let mut allowed = Vec::new();
    let mut kept = Vec::new();
    let mut within = false;
    for argument in arguments.drain(..) {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), None),
        };
        if matches!(flag, "--allowedTools" | "--allowed-tools") {
            within = true;
            allowed.extend(inline.map(str::to_owned));
        } else if within && !argument.starts_with('-') {
            allowed.push(argument);
        } else {
            within = false;
            kept.push(argument);
        }
    }
    *arguments = kept;
    allowed
}

fn printing(arguments: &[String]) -> bool {
    arguments.iter().any(|a| a == "-p" || a == "--print")
}

/// A session that does not exist yet is begun under our id: `--resume X` becomes `--session-id X`.
fn begin_instead_of_resume(arguments: &mut [String], session: &SessionId) {
    let id = session.to_string();
    for at in 1..arguments.len() {
        if arguments[at] == id && matches!(arguments[at - 1].as_str(), "--resume" | "-r") {
            arguments[at - 1] = "--session-id".to_owned();
        }
    }
}

/// The variables set over the inherited environment.
#[must_use]
pub fn environment(claude: &ClaudeConfig, invocation: &Invocation) -> Vec<(String, String)> {
    let mut out = environment_of(claude, invocation.id);
    if invocation.route == Route::ResumeInterrupted {
        out.push(("CLAUDE_CODE_RESUME_INTERRUPTED_TURN".to_owned(), "1".to_owned()));
    }
    out
}

/// The same for a run that is no turn.
#[must_use]
pub fn environment_of(claude: &ClaudeConfig, invocation: InvocationId) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> =
        claude.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut set = |name: &str, value: String| out.push((name.to_owned(), value));
    set(MARKER, invocation.to_string());
    // Else a refused login is retried for three minutes (facts 5).
    set("CLAUDE_CODE_MAX_RETRIES", claude.max_retries.to_string());
    if !claude.auto_compact {
        // Lossy; a rebuild does it better.
        set("DISABLE_AUTO_COMPACT", "1".to_owned());
    }
    if !claude.mentions {
        // Without it `@path` in a message reads that file into the conversation (facts 12).
        set("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1".to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_allowed_in_several_places_are_taken_together() {
        let line = [
            "--resume",
            "x",
            "--allowedTools",
            "Bash(git log, y)",
            "Read",
            "-p",
            "--allowed-tools=Edit",
            "--model",
            "m",
        ];
        let mut arguments: Vec<String> = line.map(str::to_owned).to_vec();
        assert_eq!(take_allowed(&mut arguments), ["Bash(git log, y)", "Read", "Edit"]);
        assert_eq!(arguments, ["--resume", "x", "-p", "--model", "m"]);
    }
}
