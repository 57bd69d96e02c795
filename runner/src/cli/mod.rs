//! The command line: parsing, finding the companion, one file a command, errors and exit codes.

pub mod args;
mod attach;
mod backup;
pub(crate) mod dirty;
pub(crate) mod doctor;
pub mod error;
mod forget;
mod gc;
mod hook;
pub mod logs;
mod mcp;
mod migrate;
pub(crate) mod operations;
pub(crate) mod output;
pub(crate) mod plan;
mod pointer;
mod run;
pub(crate) mod send;
mod service;
pub mod status;
mod usage;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind as ClapErrorKind;
use kael_core::config::{self, Lookup};

use crate::claude::marked;
use crate::companion::Companion;

use args::{Cli, Command, Global};
use error::{CliError, ErrorKind};
use output::Output;

/// The original's command, whose configuration and output stay valid (DESIGN 12).
const ORIGINAL: &str = "kael-thread-rebuild";
/// The stand-in for `claude`, for the demo and the tests; not shown in the help.
const STAND_IN: &str = "stand-in-claude";

/// Runs a command line and returns its exit code. `arguments` begins with the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let name =
        arguments.first().map(std::path::Path::new).and_then(|path| path.file_name()).unwrap_or_default();
    let original = name.to_str().is_some_and(|name| name.starts_with(ORIGINAL));
    // The stand-in reads its arguments as the CLI does: they must not pass through our own parser.
    if name.to_str() == Some("claude") {
        return crate::standin::main(arguments.into_iter().skip(1).collect());
    }
    if arguments.get(1).is_some_and(|first| first == STAND_IN) {
        return crate::standin::main(arguments.into_iter().skip(2).collect());
    }
    let arguments = if name.to_str() == Some("kael-thread-rebuild-mcp") {
        [ORIGINAL.into(), "mcp".into()].into_iter().chain(arguments.into_iter().skip(1)).collect()
    } else {
        arguments
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, original),
    };
    let output = Output { json: cli.global.json || original };
    match dispatch(cli.command, &cli.global, original, output) {
        Ok(code) => code,
        Err(error) => {
            output.print_error(&error);
            // The original knows one kind of failure.
            ExitCode::from(if original { 1 } else { error.kind.exit_code() })
        }
    }
}

fn usage(error: &clap::Error, original: bool) -> ExitCode {
    let asked = matches!(error.kind(), ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion);
    if original && !asked {
        eprintln!("{}", serde_json::json!({ "ok": false, "error": error.to_string().trim() }));
        return ExitCode::from(1);
    }
    // Printing can only fail when nobody reads.
    error.print().unwrap_or_default();
    ExitCode::from(if asked { 0 } else { ErrorKind::Usage.exit_code() })
}

fn dispatch(command: Command, global: &Global, original: bool, output: Output) -> Result<ExitCode, CliError> {
    let done = |()| ExitCode::SUCCESS;
    let companion = || find_companion(global, original);
    match command {
        Command::Demo(args) => crate::demo::run(&args.into()).map(done),
        Command::Init(args) => {
            refuse_inside_invocation("init")?;
            crate::init::run(&args.options(global.config.clone())?)
        }
        Command::Adopt(args) => {
            refuse_inside_invocation("adopt")?;
            let session = Companion::session(&args.session)?;
            crate::init::adopt::run(&companion()?, session, &output).map(done)
        }
        Command::Run(args) => run::run(companion()?, &args).map(done),
        Command::Attach => attach::run(&companion()?, &output).map(done),
        Command::Send(args) => send::run(&companion()?, args, &output).map(done),
        Command::Status(args) => status::run(&companion()?, &args, &output).map(done),
        Command::Usage(args) => usage::run(&companion()?, &args, &output).map(done),
        Command::Doctor(args) => doctor::run(&companion()?, &args, &output),
        Command::Drill => {
            refuse_inside_invocation("drill")?;
            crate::drill::run(&companion()?, &output).map(done)
        }
        Command::Dirty(args) => dirty::run(&companion()?, &args, &output).map(done),
        Command::Plan(args) => plan::run(&companion()?, &args, &output),
        Command::Mcp(args) => mcp::run(companion()?, &args, &output).map(done),
        Command::Migrate(args) => migrate::run(&args, &output),
        Command::Gc(args) => {
            if !args.dry_run {
                refuse_inside_invocation("gc")?;
            }
            gc::run(&companion()?, &args, &output).map(done)
        }
        Command::Service(args) => service::run(&companion()?, args, &output).map(done),
        Command::HookStop(args) => hook::stop(global, &args, &companion, output),
        Command::HookWorker(args) => crate::hook::worker::run(global, &companion()?, &args).map(done),
        Command::Hook(args) => hook::run(&companion()?, args, &output).map(done),
        Command::Backup(args) => backup::pack(&companion()?, &args, &output).map(done),
        Command::Restore(args) => {
            refuse_inside_invocation("restore")?;
            match &args.kept {
                Some(session) => backup::put_back(&companion()?, session, &output).map(done),
                None => backup::unpack(&args, global, &output).map(done),
            }
        }
        Command::Forget(args) => {
            refuse_inside_invocation("forget")?;
            forget::run(companion()?, &args, &output).map(done)
        }
        Command::Pointer(args) => pointer::run(&companion()?, args, &output).map(done),
        Command::Request(_)
        | Command::Confirm(_)
        | Command::Cancel(_)
        | Command::Prepare(_)
        | Command::Activate(_)
        | Command::RollbackRequest(_)
        | Command::Clear(_)
        | Command::Retry
        | Command::Skip
        | Command::Pause
        | Command::Continue => operations::run(&companion()?, command, &output, original).map(done),
    }
}

fn find_companion(global: &Global, original: bool) -> Result<Companion, CliError> {
    let cwd = std::env::current_dir()
        .map_err(|error| CliError::failed(format!("could not find the working folder: {error}")))?;
    let lookup = Lookup {
        explicit: global.config.clone(),
        env: &|name| std::env::var_os(name),
        cwd,
        called_as_original: original,
    };
    let configs =
        config::load(&lookup).map_err(|error| CliError::from_error(ErrorKind::Configuration, &error))?;
    let names: Vec<String> = configs.iter().filter_map(|config| config.name.clone()).collect();
    let mut fitting = configs.into_iter().filter(|config| match &global.companion {
        Some(wanted) => config.name.as_ref() == Some(wanted),
        None => true,
    });
    match (fitting.next(), fitting.next()) {
        (Some(config), None) => Ok(Companion::new(config)),
        (None, _) => Err(CliError::new(
            ErrorKind::Usage,
            match names.is_empty() {
                true => "the configuration has no named companions: leave --companion out".to_owned(),
                false => format!("there is no such companion: the configuration has {}", names.join(", ")),
            },
        )),
        (Some(_), Some(_)) => Err(CliError::new(
            ErrorKind::Usage,
            format!(
                "the configuration has several companions ({}): name one with --companion",
                names.join(", ")
            ),
        )),
    }
}

/// A human decides and speaks; the model must not do it for them (DESIGN 9 "Consent").
pub(crate) fn refuse_inside_invocation(command: &str) -> Result<(), CliError> {
    match marked::enclosing_invocation() {
        None => Ok(()),
        Some(_) => Err(CliError::refused(format!(
            "`{command}` is for a human and was called from inside a turn of the companion: nothing was done. The \
             model may ask with the tool thread_rebuild_request"
        ))),
    }
}
