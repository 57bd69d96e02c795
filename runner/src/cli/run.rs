//! `run`: the supervisor.

use kael_core::config::Activation;

use crate::companion::Companion;
use crate::supervisor::Supervisor;

use super::args;
use super::error::{CliError, ErrorKind};

/// Runs until told to stop.
pub fn run(companion: Companion, args: &args::Run) -> Result<(), CliError> {
    super::refuse_inside_invocation("run")?;
    super::logs::start(args.log);
    let config = companion.config.clone();
    if config.activation != Activation::Pointer {
        return Err(CliError::new(
            ErrorKind::Configuration,
            format!(
                "{}: activation is {:?}, and `run` supervises only activation = \"pointer\": write that (and \
                 resume_command = [\"claude\", \"--resume\", \"{{session_id}}\"]), or keep your own setup and use \
                 `request`, `prepare` and `activate`",
                config.path.display(),
                config.activation.as_str()
            ),
        ));
    }
    if !config.claude_workdir.is_dir() {
        return Err(CliError::new(
            ErrorKind::Configuration,
            format!(
                "{}: claude_workdir {} is not a folder: create it or correct the key",
                config.path.display(),
                config.claude_workdir.display()
            ),
        ));
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let later = config.not_yet_effective();
    if !later.is_empty() {
        tracing::warn!("these keys are understood and have no effect yet: {}", later.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("could not start the runtime: {error}")))?;
    runtime.block_on(async { Supervisor::start(companion, args.until_idle)?.run().await })
}
