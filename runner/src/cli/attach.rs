//! `attach`: the chat with a runner that works in the background.

use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;

use crate::attach::{self, Client};
use crate::chat::{self, Host, Left};
use crate::companion::Companion;

use super::error::{CliError, ErrorKind};
use super::output::Output;

/// Runs the command.
pub fn run(companion: &Companion, output: &Output) -> Result<(), CliError> {
    super::refuse_inside_invocation("attach")?;
    if output.json {
        return pipe(companion);
    }
    if !chat::has_terminal() {
        return Err(CliError::new(
            ErrorKind::Usage,
            "`attach` is a chat at a terminal: use `send --wait` where there is none, or `attach --json` for the lines",
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let left = runtime.block_on(async {
        let state_dir = &companion.config.state_dir;
        let connected = Client::connect(state_dir).await.map_err(|error| nobody(companion, &error))?;
        Ok::<_, CliError>(chat::run(state_dir, connected, Host::Own).await?)
    });
    // The threads that read the terminal block for ever.
    runtime.shutdown_background();
    match left? {
        Left::Human => Ok(()),
        Left::Runner => Err(CliError::failed("the runner has ended, and the chat with it")),
    }
}

fn nobody(companion: &Companion, error: &std::io::Error) -> CliError {
    let path = attach::socket_path(&companion.config.state_dir);
    CliError::failed(format!(
        "nobody listens on {} ({error}): start the runner with `kael-runner run`",
        path.display()
    ))
}

/// The lines themselves, both ways, for programs. The end of standard input ends nothing: who only
/// reads closes it.
fn pipe(companion: &Companion) -> Result<(), CliError> {
    let stream =
        attach::connect_blocking(&companion.config.state_dir).map_err(|error| nobody(companion, &error))?;
    let mut write = stream.try_clone()?;
    std::thread::Builder::new().name("attach-input".to_owned()).spawn(move || copy_in(&mut write))?;
    let mut out = std::io::stdout().lock();
    let mut lines = std::io::BufReader::new(stream);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        match out.write_all(&line).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
        line.clear();
    }
    Ok(())
}

fn copy_in(write: &mut UnixStream) {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        // A runner that has gone is seen by the end of its lines.
        if writeln!(write, "{line}").is_err() {
            return;
        }
    }
}
