//! What every suite needs: a private world to run in, processes with deadlines, both subjects.

pub mod companion;
pub mod invocation;
pub mod process;
pub mod sandbox;
pub mod subject;
pub mod transcript;

use std::time::{Duration, Instant};

/// Long enough for a loaded two-core machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks until `condition` holds. Fails the test after [`PATIENCE`], saying what it waited for.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
