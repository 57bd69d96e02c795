//! SIGTERM and SIGINT in the middle of a turn (facts 5).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::session::Session;

/// Listens on a thread of its own: a turn may be deep in a request or a tool. `deaf`: takes no notice of
/// SIGTERM.
///
/// # Errors
/// The handlers could not be installed.
pub(super) fn listen(session: Arc<Mutex<Session>>, deaf: bool) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().find(|signal| !(deaf && *signal == SIGTERM)) {
            let code = end(&session, signal);
            std::process::exit(code);
        }
    })?;
    Ok(())
}

/// Leaves the rows that the CLI leaves; a transcript that cannot be written is left as it is.
fn end(session: &Mutex<Session>, signal: i32) -> i32 {
    // Taken first: the end of its tool is not written down by a CLI that is ending itself.
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    super::tools::end_running();
    if !session.exists() {
        return if signal == SIGTERM { 143 } else { 0 };
    }
    if signal == SIGINT {
        let text = "[Request interrupted by user]";
        let row = json!({"type": "user", "rowSource": "harness", "message": {"role": "user",
            "content": [{"type": "text", "text": text}]}});
        if let Err(error) = session.push(row) {
            eprintln!("cannot write the interrupt: {error}");
        }
    }
    if let Err(error) = session.bookkeeping() {
        eprintln!("cannot write the bookkeeping: {error}");
    }
    if signal == SIGTERM { 143 } else { 0 }
}
