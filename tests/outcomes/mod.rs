//! How a run of `claude -p` ends when something goes wrong: recorded on the real CLI against the stub, so that
//! what the runner concludes from the fields of a result is tested on lines that a CLI has written.
//!
//! With `KAEL_RECORD=1` those that are missing are recorded (delete one to have it anew); without it each run is held
//! against its recording.

mod record;
