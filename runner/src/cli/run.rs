//! `run`: the supervisor, and in a terminal the chat with it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use kael_core::config::Activation;

use crate::attach::Client;
use crate::chat::{self, Host};
use crate::claude::adopted;
use crate::companion::Companion;
use crate::supervisor::{Event, Supervisor};

use super::args;
use super::error::{CliError, ErrorKind};

/// Recovery that takes longer is worth a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs until told to stop.
pub fn run(companion: Companion, args: &args::Run) -> Result<(), CliError> {
    super::refuse_inside_invocation("run")?;
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
    // Without it, what a tool leaves behind cannot always be found again; everything else works.
    if let Err(error) = adopted::become_reaper() {
        tracing::warn!("processes that tools leave behind may stay: {error}");
    }
    // Who waits for the end of the work is a script, also at a terminal.
    let chatting = chat::has_terminal() && !args.until_idle;
    if chatting {
        companion.create_folders()?;
        // The chat has the whole terminal.
        super::logs::start(args.log, "info", Some(open_log(&companion.config.state_dir.join("runner.log"))?));
    } else {
        super::logs::start(args.log, "info", None);
    }
    for warning in &config.warnings {
        note(chatting, warning);
    }
    let later = config.not_yet_effective();
    if !later.is_empty() {
        note(chatting, &format!("these keys are understood and have no effect yet: {}", later.join(", ")));
    }
    if chatting {
        return chat_with(companion);
    }
    runtime()?.block_on(async { Supervisor::start(companion, args.until_idle)?.run().await })
}

/// A warning for the human who starts the runner.
fn note(chatting: bool, text: &str) {
    tracing::warn!("{text}");
    if chatting {
        eprintln!("! {text}");
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("could not start the runtime: {error}")))
}

/// The supervisor on a thread of its own, and the same chat as `attach` on this one, over the same socket.
fn chat_with(companion: Companion) -> Result<(), CliError> {
    let state_dir = companion.config.state_dir.clone();
    let (started, ready) = std::sync::mpsc::channel();
    let supervisor = std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        runtime()?.block_on(async {
            let supervisor = Supervisor::start(companion, false)?;
            // Nobody listens any more only if the chat has failed, and then it ends by this.
            started.send(supervisor.sender()).unwrap_or_default();
            supervisor.run().await
        })
    })?;
    // Ends without a value when it could not start: then its error says why.
    let ready = match ready.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => {
            eprintln!("· bringing what an earlier runner left to an end ...");
            ready.recv().ok()
        }
        ready => ready.ok(),
    };
    let chatted = ready.map(|sender| {
        let chat_runtime = runtime()?;
        let mut wishes = 0;
        let mut leave = || {
            wishes += 1;
            sender.send(Event::Stop).unwrap_or_default();
            match wishes {
                1 => "leaving when the turn is done; once more ends it at once".to_owned(),
                _ => "ending the turn".to_owned(),
            }
        };
        let chatted = chat_runtime.block_on(async {
            let connected = Client::connect(&state_dir).await?;
            chat::run(&state_dir, connected, Host::Runner(&mut leave)).await
        });
        if chatted.is_err() {
            sender.send(Event::Stop).unwrap_or_default();
        }
        // The thread that reads the terminal blocks for ever.
        chat_runtime.shutdown_background();
        chatted.map(drop).map_err(CliError::from)
    });
    let ended = supervisor.join().map_err(|_| CliError::failed("the supervisor panicked"))?;
    ended.and(chatted.unwrap_or(Ok(())))
}

/// Appends; one that has grown large makes room for a new one, and the last large one is kept.
fn open_log(path: &Path) -> Result<File, CliError> {
    const LARGE: u64 = 4 * 1024 * 1024;
    if path.metadata().is_ok_and(|meta| meta.len() > LARGE) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    Ok(OpenOptions::new().create(true).append(true).mode(0o600).open(path)?)
}
