//! SIGINT and SIGTERM end the server, also where the parent had them ignored.

use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::io::AsyncReadExt;

/// Listens at once; the future completes with the first of the signals. Must be called inside a runtime.
///
/// # Errors
/// When no handler can be set up.
pub fn told_to_stop() -> std::io::Result<impl Future<Output = std::io::Result<()>>> {
    let (ours, handlers) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, handlers.try_clone()?)?;
    }
    ours.set_nonblocking(true)?;
    let mut ours = tokio::net::UnixStream::from_std(ours)?;
    Ok(async move {
        // The handlers keep their end open, so this ends with a signal.
        ours.read_u8().await.map(drop)
    })
}
