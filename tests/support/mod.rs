//! What every suite needs: a private world to run in, processes with deadlines, both subjects.

pub mod companion;
pub mod invocation;
pub mod mcp;
pub mod process;
pub mod sandbox;
pub mod subject;
pub mod transcript;

use std::time::{Duration, Instant};

/// Long enough for a loaded two-core machine; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Blocks until `condition` holds. Fails the test after [`PATIENCE`], saying what it waited for.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A text with everything taken out of it that is another one in every run.
pub fn masked(companion: &companion::Companion, text: &str) -> String {
    let sandbox = &companion.world.sandbox;
    let root = sandbox.path("").to_string_lossy().trim_end_matches('/').to_owned();
    let folder = sandbox.project_dir().file_name().unwrap().to_string_lossy().into_owned();
    let text = text.replace(&folder, "<folder>").replace(&root, "<root>");
    let patterns = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "<time>"),
        (r"\d+(\.\d)? (B|KiB|MiB)\b", "<size>"),
        (r"\d+ (bytes|tokens)", "<n> $1"),
        (r" +\d+ bytes", " <n> bytes"),
        (r"\(\d+\.\d %\)", "(<percent>)"),
        (r"\d+ now, about \d+ after \(\d+ overhead and \d+ speech\), -?\d+ % less", "<figures>"),
    ];
    patterns.iter().fold(text, |text, (pattern, mask)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *mask).into_owned()
    })
}
