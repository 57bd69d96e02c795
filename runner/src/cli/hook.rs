//! `hook-stop` and `hook install|uninstall|show`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::companion::Companion;
use crate::hook::settings::{self, Change};

use super::args::{Global, Hook, HookFile, HookStop};
use super::error::CliError;
use super::output::Output;

/// Answers the CLI on standard output, always in JSON; with `--wait` it may fail like any command.
pub fn stop(
    global: &Global,
    args: &HookStop,
    find: &dyn Fn() -> Result<Companion, CliError>,
    output: Output,
) -> Result<ExitCode, CliError> {
    let answer = crate::hook::stop(global, args, find)?;
    if args.wait {
        output.print(&answer, || answer["session"].as_str().unwrap_or_default().to_owned())?;
    } else {
        println!("{answer}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Edits or shows the settings.
pub fn run(companion: &Companion, command: Hook, output: &Output) -> Result<(), CliError> {
    let file = |args: HookFile| args.settings.unwrap_or_else(|| settings::default_file(companion));
    let changed = |path: PathBuf, change: Change, done: &str, already: &str| {
        let line = match change {
            Change::None => format!("{already} {}", path.display()),
            Change::Installed | Change::Removed => format!("{done} {}", path.display()),
        };
        let value = json!({ "schema": 1, "ok": true, "settings": path, "changed": change != Change::None });
        output.print(&value, || line)
    };
    match command {
        Hook::Install(args) => {
            super::refuse_inside_invocation("hook install")?;
            let path = file(args);
            let change = settings::install(companion, &path)?;
            changed(path, change, "the Stop hook is in", "the Stop hook was already in")
        }
        Hook::Uninstall(args) => {
            super::refuse_inside_invocation("hook uninstall")?;
            let path = file(args);
            let change = settings::uninstall(companion, &path)?;
            changed(path, change, "the Stop hook is out of", "there was no Stop hook of this companion in")
        }
        Hook::Show(args) => {
            let path = file(args);
            let command = settings::installed(companion, &path)?;
            let value = json!({
                "schema": 1,
                "ok": true,
                "settings": path,
                "installed": command.is_some(),
                "command": command,
                "would_be": settings::command_for(companion)?,
            });
            output.print(&value, || match &command {
                Some(command) => format!("{}: {command}", path.display()),
                None => {
                    format!("{}: no Stop hook of this companion; `kael-runner hook install`", path.display())
                }
            })
        }
    }
}
