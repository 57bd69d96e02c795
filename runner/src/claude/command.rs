//! The command line and environment of one invocation (DESIGN 9 "Invocation").

use kael_core::config::{ClaudeConfig, Config};
use kael_core::ids::SessionId;

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
    out
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
    let mut out: Vec<(String, String)> =
        claude.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut set = |name: &str, value: String| out.push((name.to_owned(), value));
    set(MARKER, invocation.id.to_string());
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
    if invocation.route == Route::ResumeInterrupted {
        set("CLAUDE_CODE_RESUME_INTERRUPTED_TURN", "1".to_owned());
    }
    out
}
