//! The command line (DESIGN 12).

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use kael_core::ids::{OperationId, SessionId};

/// Supervises a companion that lives in one Claude Code conversation, and rebuilds its session
/// losslessly between two turns.
#[derive(Debug, Parser)]
#[command(name = "kael-runner", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  kael-runner demo                     the whole loop, offline, without an account
  kael-runner init                     set up a companion, step by step
  kael-runner run                      supervise the companion of ./config.toml, and chat with it
  kael-runner attach                   the same chat with a runner in the background
  kael-runner send --wait 'Hello!'     say something to it and print its reply
  kael-runner status                   what it is doing

Exit codes: 0 done, 1 failed, 2 usage, 3 refused (nothing changed), 4 conflict (somebody else changed it),
5 configuration, 6 busy.")]
pub struct Cli {
    /// Options that may stand on either side of the command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that may stand on either side of the command.
#[derive(Debug, Args, Clone)]
pub struct Global {
    /// The configuration [default: the first of $KAEL_RUNNER_CONFIG, ./config.toml,
    /// $XDG_CONFIG_HOME/kael-runner/config.toml, /etc/kael-runner/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Which companion, when the configuration has several
    #[arg(long, global = true, value_name = "NAME")]
    pub companion: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Supervise the companion: take messages, run turns, rebuild between them; a chat in a terminal
    Run(Run),
    /// Chat with the companion of a runner that works in the background; several may be attached
    Attach,
    /// Say something to the companion; works whether the runner is up or not
    Send(Send),
    /// What the runner, its queue and its operation are doing
    Status(Status),
    /// What turns have cost, by day and session, and what rebuilding has saved
    Usage(Usage),
    /// Check that everything a companion needs is in place; exit code 1 when a line fails
    Doctor(Doctor),
    /// Rehearse a switch in a folder, session, and pane or unit of its own, with the companion's real flags; costs three
    /// short turns
    Drill,
    /// How dirty the session is
    Dirty(Source),
    /// What a rebuild would carry and what it would drop; changes nothing
    Plan(Plan),
    /// Ask for a rebuild
    Request(Request),
    /// Say yes to a pending operation
    Confirm(Confirm),
    /// Withdraw a pending operation
    Cancel(Cancel),
    /// Freeze, plan, build and prove the candidate of a requested rebuild, without switching
    Prepare(Prepare),
    /// Switch to the candidate of a prepared rebuild
    Activate(Activate),
    /// Ask to go back to the session before the newest rebuild
    RollbackRequest(Rollback),
    /// Clear a session conflict, after finding out who changed the session
    Clear(Clear),
    /// End a hold and try the open turn again
    Retry,
    /// Give the open turn up and go on with the next message
    Skip,
    /// Take no new turn until `continue`
    Pause,
    /// Take turns again after `pause`
    Continue,
    /// Clear old evidence away: artifacts of operations long past, copies of sessions long left
    Gc(Gc),
    /// Pack the whole companion into one file, to go on elsewhere
    Backup(Backup),
    /// Unfold a companion that `backup` has packed; or put the kept copy of a transcript back
    Restore(Restore),
    /// Take something that was said out of the conversation, its copies and everything kept about it, for good
    Forget(Forget),
    /// Look at or set the resume pointer
    #[command(subcommand)]
    Pointer(Pointer),
    /// Set up a companion, step by step: find the CLI, choose folder and session, write a configuration
    Init(Init),
    /// Go on with a session that exists: set the pointer to it after a check
    Adopt(Adopt),
    /// The MCP server on standard input and output: a model may look and ask, a human decides
    Mcp(Mcp),
    /// Coming from `kael-thread-rebuild`: what will differ, and links under its names
    Migrate(Migrate),
    /// The runner as a systemd unit, of this user or of the system
    #[command(subcommand)]
    Service(Service),
    /// The end of a turn in a setup that is not ours: called by the CLI's Stop hook, which tells it in JSON
    HookStop(HookStop),
    /// The part of `hook-stop` that goes on after it has answered
    #[command(hide = true)]
    HookWorker(HookWorker),
    /// Put the Stop hook into the CLI's settings, take it out, or show it
    #[command(subcommand)]
    Hook(Hook),
    /// The whole loop, offline, with a stand-in for the model
    Demo(Demo),
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// End when nothing is left to do: exit 0, or 1 when the queue is held
    #[arg(long)]
    pub until_idle: bool,
    /// How logs are written to standard error. They name turns and messages by number and hold nothing that was said,
    /// unless log_content = true. $KAEL_LOG says how much: error, warn, info (default), debug, or per module such as
    /// `info,kael_runner::keeper=debug`
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub log: LogFormat,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Journald under systemd, else text
    #[default]
    Auto,
    /// A line for people, with the time
    Text,
    /// A JSON object a line
    Json,
    /// A line without time, after its syslog level (`<4>`), as journald reads from a unit's standard error
    Journald,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub struct Send {
    /// Wait for the turn's reply and print it
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up waiting after so many seconds (the message stays)
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "wait")]
    pub timeout: Option<Duration>,
    /// Who says it
    #[arg(long, value_name = "NAME", default_value = "user")]
    pub from: String,
    /// The same key twice is one message [default: a fresh one]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// The words; `-` reads them from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// An operation instead of the whole [default: the latest one is shown]
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
    /// Print it again whenever it changes, until interrupted; with --json a line each
    #[arg(long, conflicts_with = "operation")]
    pub watch: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, Default, Args)]
pub struct Doctor {
    /// Mend what is safe to mend (modes, an interrupted operation, a missing hook), and say what was done
    #[arg(long)]
    pub fix: bool,
    /// Try the login, for the price of one short turn
    #[arg(long)]
    pub live: bool,
}

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub struct Usage {
    /// How many days to look back
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub days: u64,
}

/// Which transcript.
#[derive(Debug, Args)]
pub struct Source {
    /// Any transcript in the project folder [default: the pointer's]
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// Which transcript.
    #[command(flatten)]
    pub source: Source,
    /// Write the candidate there, although gain, window or poison may speak against it
    #[arg(long, value_name = "FILE")]
    pub candidate: Option<PathBuf>,
    /// Go on although that many lines cannot be read
    #[arg(long, value_name = "N")]
    pub accept_damage: Option<u64>,
    /// Decide, for good, about something that blocks a rebuild, as the plan names it: WHAT=drop or WHAT=carry a branch
    /// or row, WHAT=accept an unknown shape without words, damage=N the loss of so many places; WHAT=ask takes it back
    #[arg(long, value_name = "WHAT=ANSWER")]
    pub decide: Vec<crate::decisions::Word>,
    /// Show the items one by one, with their lines, instead of the figures
    #[arg(long, value_name = "WHICH", conflicts_with = "candidate")]
    pub show: Option<Show>,
}

/// Which items of a plan to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Show {
    /// What goes into the clean session
    Carried,
    /// What does not, and why
    Dropped,
    /// What is said on branches that the CLI does not load
    OffChain,
}

/// Arguments of `request`.
#[derive(Debug, Args)]
pub struct Request {
    /// Why, for the record; at most 500 characters are kept
    #[arg(long, default_value = "")]
    pub reason: String,
    /// `REBUILD` is a human's yes; without it the request waits for `confirm`
    #[arg(long, value_name = "WORD")]
    pub confirm: Option<String>,
}

/// Arguments of `confirm`.
#[derive(Debug, Args)]
pub struct Confirm {
    /// The operation [default: the pending one]
    pub operation: Option<String>,
    /// Do not ask again
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `cancel`.
#[derive(Debug, Args)]
pub struct Cancel {
    /// The operation [default: the pending one]
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
    /// Must be `CANCEL`
    #[arg(long, value_name = "WORD")]
    pub confirm: String,
}

/// Arguments of `prepare`.
#[derive(Debug, Args)]
pub struct Prepare {
    /// The operation [default: the pending one]
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
    /// The transcript to rebuild; it must be the pointer's
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
}

/// Arguments of `activate`.
#[derive(Debug, Args)]
pub struct Activate {
    /// The operation [default: the prepared one]
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
}

/// Arguments of `rollback-request`.
#[derive(Debug, Args)]
pub struct Rollback {
    /// The operation to undo [default: the newest activated one]
    #[arg(long, value_name = "ID")]
    pub operation: Option<String>,
    /// Take along what has been said since: the old session, and those turns behind it, proved
    #[arg(long)]
    pub carry_new_turns: bool,
    /// Must be `ROLLBACK`
    #[arg(long, value_name = "WORD")]
    pub confirm: String,
}

/// Arguments of `clear`.
#[derive(Debug, Args)]
pub struct Clear {
    /// The operation with the conflict [default: the newest one with a conflict]
    pub operation: Option<String>,
}

/// Arguments of `mcp`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Mcp {
    /// Register the server instead of being it
    #[command(subcommand)]
    pub command: Option<McpCommand>,
}

/// Where the server is registered.
#[derive(Debug, Subcommand)]
pub enum McpCommand {
    /// Register the server for a `claude` in tmux or systemd, with `claude mcp add`, and allow the four tools that only
    /// read; turns of `kael-runner run` have it by themselves. Some versions heed a folder's allow list only once its
    /// trust question was answered
    Install {
        /// For which sessions
        #[arg(long, value_enum, default_value = "local")]
        scope: crate::mcp::install::Scope,
    },
    /// Take both out again
    Uninstall {
        /// For which sessions
        #[arg(long, value_enum, default_value = "local")]
        scope: crate::mcp::install::Scope,
    },
}

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// Say what will differ with this configuration of the original's, and whether the setup passes its acceptance list;
    /// changes nothing
    #[arg(long, value_name = "CONFIG", conflicts_with_all = ["into", "replace"])]
    pub check: Option<PathBuf>,
    /// Where to make the links `kael-thread-rebuild` and `kael-thread-rebuild-mcp` [default: this program's folder]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Move what stands there under these names aside
    #[arg(long)]
    pub replace: bool,
}

/// Arguments of `gc`.
#[derive(Debug, Args)]
pub struct Gc {
    /// Only show what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the artifacts of so many operations
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub operations: usize,
    /// Keep so many bytes of artifacts
    #[arg(long, value_name = "BYTES", default_value_t = 5_000_000_000)]
    pub bytes: u64,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to make; nothing of that name may be there. It holds the queue, the pointer, the operations, the
    /// transcripts and the configuration without its secrets; not the login, and not the working folder
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// What `backup` made. The configuration goes to --config [default: $XDG_CONFIG_HOME/kael-runner/config.toml]
    #[arg(value_name = "FILE", required_unless_present = "kept", conflicts_with = "kept")]
    pub file: Option<PathBuf>,
    /// The folder the companion is to work in
    #[arg(long, value_name = "DIR", required_unless_present = "kept")]
    pub dir: Option<PathBuf>,
    /// Its state folder [default: worked out from the configuration's name]
    #[arg(long, value_name = "DIR", conflicts_with = "kept")]
    pub state: Option<PathBuf>,
    /// Put the kept copy of a transcript in its place, where that is gone or damaged [default: the present session's]
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "")]
    pub kept: Option<String>,
}

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Forget {
    /// The words to forget; `-` reads them from standard input, where no process list and no shell history shows them
    #[arg(value_name = "WORDS", group = "what", allow_hyphen_values = true)]
    pub words: Option<String>,
    /// Everything said in these lines of the present transcript, as `plan --show carried` numbers them: 12 or 12-40
    #[arg(long, value_name = "LINES", group = "what", value_parser = lines)]
    pub lines: Option<(u64, u64)>,
    /// Do not ask again; without a terminal it is needed
    #[arg(long)]
    pub yes: bool,
}

/// The pointer's commands.
#[derive(Debug, Subcommand)]
pub enum Pointer {
    /// Print the session the next turn resumes
    Show {
        /// Wait for a switch that is under way, so that the answer is final
        #[arg(long)]
        locked: bool,
    },
    /// Point to another session, if the pointer is what you think it is
    Set {
        /// The session
        session: String,
        /// What the pointer must name now (`none`: must be absent) [default: whatever it names]
        #[arg(long, value_name = "SESSION")]
        expect: Option<String>,
    },
    /// Every change the runner made
    History,
    /// Print the session now and at every change, until ended
    Watch,
}

/// The service's commands.
#[derive(Debug, Subcommand)]
pub enum Service {
    /// Write the unit for this configuration, enable and start it
    Install(ServiceWhere),
    /// Stop, disable and remove it; configuration, state and transcripts stay
    Uninstall(ServiceWhere),
    /// What its manager says about it
    Status(ServiceWhere),
    /// What it has logged
    Logs(ServiceWhere),
}

/// Whose unit, and where.
#[derive(Debug, Args)]
pub struct ServiceWhere {
    /// The system's manager: the instance NAME of kael-runner@.service for /etc/kael-runner/NAME.toml, as the user NAME
    #[arg(long)]
    pub system: bool,
    /// Put files below this folder and only name the commands, as for a package
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub print: bool,
}

/// Arguments of `hook-stop`.
#[derive(Debug, Args)]
pub struct HookStop {
    /// Do the work here and now, to its end: for a loop that calls `claude -p` itself, between two calls
    #[arg(long)]
    pub wait: bool,
    /// Read what the CLI tells from a file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
}

/// Arguments of `hook-worker`.
#[derive(Debug, Default, Args)]
pub struct HookWorker {
    /// The session whose turn has ended
    #[arg(long)]
    pub session: Option<SessionId>,
    /// The process of the CLI that called the hook
    #[arg(long)]
    pub claude: Option<u32>,
    /// Carry this operation out
    #[arg(long)]
    pub operate: Option<OperationId>,
    /// Have another process carry it out, and end what that one may leave
    #[arg(long, requires = "operate")]
    pub guard: bool,
}

impl HookWorker {
    /// The same as arguments.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(session) = self.session {
            all.extend(["--session".to_owned(), session.to_string()]);
        }
        if let Some(claude) = self.claude {
            all.extend(["--claude".to_owned(), claude.to_string()]);
        }
        if let Some(operation) = self.operate {
            all.extend(["--operate".to_owned(), operation.to_string()]);
        }
        if self.guard {
            all.push("--guard".to_owned());
        }
        all
    }
}

/// The hook's commands.
#[derive(Debug, Subcommand)]
pub enum Hook {
    /// Append it, once; the file is backed up beside itself, and everything else in it stays as it is
    Install(HookFile),
    /// Take it out
    Uninstall(HookFile),
    /// Whether it is there
    Show(HookFile),
}

/// Which settings.
#[derive(Debug, Args)]
pub struct HookFile {
    /// The settings file [default: settings.json of the CLI's own folder]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Ask nothing and take every proposal; an existing configuration is never overwritten
    #[arg(long)]
    pub yes: bool,
    /// The folder the companion works in [default: the running claude's, else this one]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The Claude Code CLI [default: claude in PATH]
    #[arg(long, value_name = "PATH")]
    pub claude: Option<PathBuf>,
    /// The session to go on with [default: a new conversation]
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

impl Init {
    /// What `init` is asked to do, with the file that `--config` names.
    pub fn options(self, config: Option<PathBuf>) -> Result<crate::init::Options, super::error::CliError> {
        let session = self.session.as_deref().map(crate::companion::Companion::session).transpose()?;
        Ok(crate::init::Options { yes: self.yes, dir: self.dir, claude: self.claude, session, config })
    }
}

/// Arguments of `adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// The session; `init` lists those of a folder
    pub session: String,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Without pauses for the reader
    #[arg(long)]
    pub fast: bool,
    /// Go on typing to the companion afterwards
    #[arg(long)]
    pub chat: bool,
    /// Leave the companion's files there, in a new or empty folder
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

impl From<Demo> for crate::demo::Options {
    fn from(args: Demo) -> Self {
        Self { fast: args.fast, chat: args.chat, keep: args.keep }
    }
}

fn lines(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|line| *line > 0);
    match (number(from), number(to)) {
        (Some(from), Some(to)) if from <= to => Ok((from, to)),
        _ => Err("expected a line such as 12, or lines such as 12-40".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.parse().map_err(|_| "expected a number of seconds, such as 30 or 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds from 0 up".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_on_either_side() {
        for line in ["kael-runner --json --config c dirty", "kael-runner dirty --json --config c"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.config.is_some());
        }
    }

    #[test]
    fn words_that_begin_with_dashes_can_be_sent() {
        let cli = Cli::try_parse_from(["kael-runner", "send", "--wait", "--", "--help me"]).unwrap();
        let Command::Send(send) = cli.command else { panic!() };
        assert_eq!(send.text, "--help me");
    }
}
