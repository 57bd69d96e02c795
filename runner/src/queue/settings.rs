//! Small durable facts of the supervisor that are not messages: a hold, a pause, figures that must
//! survive a restart.

use kael_core::clock::Timestamp;
use rusqlite::{OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Queue, QueueError};

/// The names under which facts are stored, and what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// [`Hold`]: why no turn is taken.
    Hold,
    /// `true` while paused by a human.
    Paused,
    /// A session that is being begun, while the pointer does not name it yet.
    NewSession,
    /// Where the incremental ledger stands.
    Ledger,
    /// The level from which the dirty budget counts, by session.
    Baseline,
    /// Measured figures of the model: window and fixed overhead.
    Measured,
    /// What was last told about a due but impossible rebuild, so that it is told once.
    Told,
    /// [`NextRetry`]: until when the open turn waits, and why.
    NextRetry,
    /// [`LastOutcome`]: how the last run ended.
    LastOutcome,
    /// The folder of the companion whose queue this is.
    Home,
    /// How long the transcript was when its end was last known to stand on the conversation.
    Footing,
    /// [`crate::decisions::Decided`]: what humans decided about branches, rows and places that block a rebuild.
    Decided,
    /// Pairs of estimated and measured tokens, by which estimates are calibrated.
    Pairs,
    /// Nothing: written and removed to see whether the disk takes it.
    Scratch,
}

impl Setting {
    const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Paused => "paused",
            Self::NewSession => "new_session",
            Self::Ledger => "ledger",
            Self::Baseline => "baseline",
            Self::Measured => "measured",
            Self::Told => "told",
            Self::NextRetry => "next_retry",
            Self::LastOutcome => "last_outcome",
            Self::Home => "home",
            Self::Footing => "footing",
            Self::Decided => "decided",
            Self::Pairs => "pairs",
            Self::Scratch => "scratch",
        }
    }
}

/// Why no turn is taken until a human says `retry`, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What is wrong and what to do, for a human.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// What would end it by itself.
    #[serde(default)]
    pub until: HeldUntil,
}

/// What ends a hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldUntil {
    /// A human's `retry` or `skip` alone.
    #[default]
    Human,
    /// Also a probe that is answered.
    Probe,
    /// Also a rebuild of the session.
    Rebuild,
}

/// When something is tried again by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextRetry {
    /// Not before this.
    pub at: Timestamp,
    /// Why not now.
    pub why: Wait,
    /// What happened, for a human; no words of the conversation.
    pub reason: String,
}

/// Why something waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The pause after a failure.
    Pause,
    /// A limit of the account, until it resets.
    Limit,
    /// Many failures in a short time.
    Breaker,
    /// A throw-away run finds out whether the login works again.
    Probe,
    /// The disk took nothing.
    Storage,
}

/// How the last run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOutcome {
    /// In one word.
    pub outcome: String,
    /// For a human; no words of the conversation.
    pub detail: String,
    /// Its turn.
    pub turn: i64,
    /// Whether it counted against `max_attempts`.
    pub charged: bool,
    /// When.
    pub at: Timestamp,
}

impl Queue {
    /// Reads a fact; one that cannot be understood counts as absent.
    pub fn get<T: DeserializeOwned>(&self, setting: Setting) -> Result<Option<T>, QueueError> {
        let text: Option<String> = self.doing("read a setting", |c| {
            c.query_row("SELECT value FROM settings WHERE name = ?1", [setting.name()], |row| row.get(0))
                .optional()
        })?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Stores a fact durably.
    pub fn set<T: Serialize>(&mut self, setting: Setting, value: &T) -> Result<(), QueueError> {
        let text = serde_json::to_string(value).map_err(|error| {
            self.failed("store a setting", rusqlite::Error::ToSqlConversionFailure(error.into()))
        })?;
        self.transaction("store a setting", |t| {
            t.execute(
                "INSERT INTO settings (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                params![setting.name(), text],
            )
            .map(drop)
        })
    }

    /// Changes a fact that several processes may change at once. One that cannot be understood counts as absent.
    pub fn change<T: Serialize + DeserializeOwned + Default>(
        &mut self,
        setting: Setting,
        change: impl FnOnce(&mut T),
    ) -> Result<T, QueueError> {
        self.transaction("change a setting", |t| {
            let text: Option<String> = t
                .query_row("SELECT value FROM settings WHERE name = ?1", [setting.name()], |row| row.get(0))
                .optional()?;
            let mut value: T = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            change(&mut value);
            let text = serde_json::to_string(&value)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            t.execute(
                "INSERT INTO settings (name, value) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                params![setting.name(), text],
            )?;
            Ok(value)
        })
    }

    /// Forgets a fact.
    pub fn clear(&mut self, setting: Setting) -> Result<(), QueueError> {
        self.transaction("forget a setting", |t| {
            t.execute("DELETE FROM settings WHERE name = ?1", [setting.name()]).map(drop)
        })
    }
}
