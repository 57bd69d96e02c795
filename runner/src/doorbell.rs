//! How processes wake each other without polling: after its commit a writer sends one byte to a
//! unix datagram socket (DESIGN 9).
//!
//! The runner owns `<state>/doorbell`; a command that waits for an answer owns
//! `<state>/waiting/<pid>-<n>`. Ringing never blocks and never fails the writer: what counts is in
//! the queue, and whoever listens also looks by itself now and then, for a writer that died
//! between its commit and the ring. Listen first, then read the queue.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest path a unix socket may have, with its final NUL (`sun_path`).
const MAX_SOCKET_PATH: usize = 107;

fn runner_bell(state_dir: &Path) -> PathBuf {
    state_dir.join("doorbell")
}

fn waiting_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("waiting")
}

/// Binds the runner's doorbell. The caller holds the runner's lock, so a socket that is already
/// there was left by a runner that is gone.
pub fn listen(state_dir: &Path) -> io::Result<UnixDatagram> {
    let path = runner_bell(state_dir);
    remove_if_there(&path)?;
    let bell = bind_private(&path)?;
    bell.set_nonblocking(true)?;
    Ok(bell)
}

/// Wakes the runner, if one lives.
pub fn ring(state_dir: &Path) {
    ring_at(&runner_bell(state_dir));
}

/// Wakes every command that waits for an answer, and clears away the bells of dead ones.
pub fn ring_waiting(state_dir: &Path) {
    let Ok(entries) = std::fs::read_dir(waiting_dir(state_dir)) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if let Err(error) = try_ring(&path)
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            // Nobody is bound to it any more; failing to remove it only costs another look later.
            std::fs::remove_file(&path).unwrap_or_default();
        }
    }
}

fn ring_at(path: &Path) {
    // A missing or full bell is no loss: nobody listens, or somebody is awake already.
    try_ring(path).unwrap_or_default();
}

fn try_ring(path: &Path) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(&[1], short(path)?.as_path()).map(drop)
}

/// A command's own bell; removed when dropped.
#[derive(Debug)]
pub struct WaitingBell {
    socket: UnixDatagram,
    path: PathBuf,
}

impl WaitingBell {
    /// Binds a bell for this process.
    pub fn hang(state_dir: &Path) -> io::Result<Self> {
        let dir = waiting_dir(state_dir);
        std::fs::create_dir_all(&dir)?;
        let path = dir.join(format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple()));
        Ok(Self { socket: bind_private(&path)?, path })
    }

    /// Waits for a ring, at most until `deadline` and never longer than a second: the caller looks
    /// at the queue after each return.
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        let most = Duration::from_secs(1);
        let left = deadline.map_or(most, |at| at.saturating_duration_since(Instant::now()).min(most));
        self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match self.socket.recv(&mut [0; 8]) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for WaitingBell {
    fn drop(&mut self) {
        // The runner clears away what stays behind.
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}

fn bind_private(path: &Path) -> io::Result<UnixDatagram> {
    use std::os::unix::fs::PermissionsExt;
    let socket = UnixDatagram::bind(short(path)?.as_path())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Socket addresses hold 107 bytes; a longer path is reached through its open folder.
pub(crate) struct Short {
    path: PathBuf,
    _dir: Option<std::fs::File>,
}

impl Short {
    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }
}

pub(crate) fn short(path: &Path) -> io::Result<Short> {
    use std::os::fd::AsRawFd;
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(Short { path: path.to_owned(), _dir: None });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a folder and a name"));
    };
    let dir = std::fs::File::open(parent)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok(Short { path, _dir: Some(dir) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_wakes_the_listener_and_a_missing_listener_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        ring(dir.path());
        let bell = listen(dir.path()).unwrap();
        assert_eq!(bell.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        ring(dir.path());
        assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 1);
        drop(bell);
        let again = listen(dir.path()).unwrap();
        ring(dir.path());
        assert_eq!(again.recv(&mut [0; 8]).unwrap(), 1);
    }

    #[test]
    fn waiting_commands_are_rung_and_dead_ones_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let bell = WaitingBell::hang(dir.path()).unwrap();
        let dead = waiting_dir(dir.path()).join("dead");
        drop(UnixDatagram::bind(&dead).unwrap());
        // One that is not rung looks by itself after a second.
        let quickest = (0..5).map(|_| {
            ring_waiting(dir.path());
            let start = Instant::now();
            bell.wait(None).unwrap();
            start.elapsed()
        });
        assert!(quickest.min() < Some(Duration::from_millis(500)));
        assert!(!dead.exists());
        bell.wait(Some(Instant::now() + Duration::from_millis(20))).unwrap();
        let path = bell.path.clone();
        drop(bell);
        assert!(!path.exists());
    }

    #[test]
    fn long_state_folders_work_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let bell = listen(&deep).unwrap();
        ring(&deep);
        assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 1);
    }
}
