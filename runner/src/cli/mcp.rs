//! `mcp`: the server itself, or its registration.

use crate::companion::Companion;
use crate::mcp::install;

use super::args::{Mcp, McpCommand};
use super::error::CliError;
use super::output::Output;

/// Runs the command.
pub fn run(companion: Companion, args: &Mcp, output: &Output) -> Result<(), CliError> {
    let (done, words) = match &args.command {
        None => return crate::mcp::run(companion),
        Some(McpCommand::Install { scope }) => {
            super::refuse_inside_invocation("mcp install")?;
            (
                install::install(&companion, *scope)?,
                ("registered", "was registered already", "allowed", "allowed before"),
            )
        }
        Some(McpCommand::Uninstall { scope }) => {
            super::refuse_inside_invocation("mcp uninstall")?;
            let words =
                ("registered no more", "was not registered", "off the allow list", "not on the allow list");
            (install::uninstall(&companion, *scope)?, words)
        }
    };
    let pick = |changed: bool, yes: &str, no: &str| if changed { yes.to_owned() } else { no.to_owned() };
    output.print(&install::shown(&done), || {
        format!(
            "{} {}\nthe four reading tools: {} ({})",
            crate::mcp::NAME,
            pick(done.registered, words.0, words.1),
            pick(done.allowed, words.2, words.3),
            done.settings.display()
        )
    })
}
