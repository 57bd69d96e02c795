//! The MCP server `kael-thread-rebuild`, on standard input and output: with its seven tools a model may look at the
//! session that it lives in, and ask for something to be done about it.
//!
//! *Responsibility.* Tools, their schemas and words; answers and errors that tell the model what to do. It executes
//! nothing: a writing tool only registers an operation in the store, under `coordinator.lock`, and rings the doorbell.
//! The server is a child of the CLI inside the very turn that the runner is waiting for, so it must never wait for the
//! runner.
//!
//! *Owner.* The CLI starts it anew for each invocation and ends it with SIGINT. Standard output carries the protocol
//! and nothing else.
//!
//! *Neighbours.* [`crate::claude::command`] adds it to invocations ([`offer`]); [`crate::keeper`] looks at the
//! operations between turns, asks the human where a yes is missing, and runs them; [`crate::cli`] has the same answers
//! for people.

mod actions;
mod answer;
mod arguments;
pub mod install;
pub mod offer;
mod permissions;
mod schema;
mod server;
mod stop;
mod tools;

use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;

use crate::cli::error::CliError;
use crate::companion::Companion;

use server::Server;

pub use tools::Tool;

/// The server's name, and the middle part of its tools' names in the CLI.
pub const NAME: &str = "kael-thread-rebuild";

/// How long a tool waits for `coordinator.lock` before it tells the model to come back later.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Serves until standard input is closed, or SIGINT or SIGTERM comes. Blocks.
///
/// # Errors
/// When the runtime cannot be started, or the client does not speak the protocol.
pub fn run(companion: Companion) -> Result<(), CliError> {
    crate::cli::logs::start(crate::cli::args::LogFormat::Text, "warn", None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("could not start the runtime: {error}")))?;
    let ended = runtime.block_on(serve(companion));
    // A read of standard input, or a plan that nobody waits for any more, ends with the process.
    runtime.shutdown_background();
    ended
}

async fn serve(companion: Companion) -> Result<(), CliError> {
    let stop = stop::told_to_stop()?;
    let serving = async {
        match Server::new(companion).serve(rmcp::transport::stdio()).await {
            Ok(running) => {
                running.waiting().await.map(drop).map_err(|error| CliError::failed(error.to_string()))
            }
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(CliError::failed(format!("the client does not speak MCP: {error}"))),
        }
    };
    tokio::select! {
        ended = serving => ended,
        stopped = stop => stopped.map_err(CliError::from),
    }
}
