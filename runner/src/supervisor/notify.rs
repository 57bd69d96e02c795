//! What systemd is told (`Type=notify`). Without a manager every call does nothing.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "could not notify the service manager");
    }
}

/// Recovery is over; messages are taken.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    // systemd pairs it with READY by this clock.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "could not notify the service manager"),
    }
}

/// What the loop does, for `systemctl status`.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// The loop turns.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The runner is leaving.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// How often the loop looks by itself: half of what the manager allows, else thirty seconds.
#[must_use]
pub fn tick() -> Duration {
    sd_notify::watchdog_enabled()
        .map_or(Duration::from_secs(30), |limit| (limit / 2).min(Duration::from_secs(30)))
}
