//! Where `attach.sock` is, also when the path is longer than a socket's address may be.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::doorbell::short;

/// The socket's path.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("attach.sock")
}

/// Binds it. The caller holds the runner's lock, so one that is there was left by a runner that is gone.
pub(super) fn listen(state_dir: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let path = path(state_dir);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(short(&path)?.as_path())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Inside a runtime.
pub(super) fn accept_from(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    UnixListener::from_std(listener)
}

/// Connects to a runner.
pub(super) async fn connect(state_dir: &Path) -> io::Result<UnixStream> {
    let path = path(state_dir);
    let short = short(&path)?;
    UnixStream::connect(short.as_path()).await
}

/// Connects to a runner, without a runtime.
pub fn connect_blocking(state_dir: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let path = path(state_dir);
    std::os::unix::net::UnixStream::connect(short(&path)?.as_path())
}
