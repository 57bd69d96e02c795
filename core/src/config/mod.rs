//! The configuration (DESIGN 12): where it is looked for, what it may say, and what it means.
//!
//! A file is found (`search`), parsed into what it gives (`file`, by the one list of keys in
//! `tables`), and resolved into one [`Config`] a companion (`resolve`). Everything wrong with a file
//! is reported at once, with line, column and key; no message repeats a value that may be a secret.
//!
//! Owner of nothing at run time: callers load it once and pass the values on.

mod checks;
mod choice;
mod duration;
mod error;
mod file;
mod keys;
mod places;
pub mod project_dir;
mod resolve;
mod search;
mod setting;
mod tables;
#[cfg(test)]
mod tests;
mod values;

pub use choice::{
    Activation, CarryOverflow, Consent, Emergency, InterruptedTool, OffChain, RebuildPolicy, ReplyMode,
    SystemdScope,
};
pub use error::{ConfigError, Problem};
pub use file::parse;
pub use keys::{Effect, Key};
pub use search::{Lookup, load};
pub use tables::{ClaudeConfig, RunnerConfig, TelegramConfig, TranscriptConfig, keys};
pub use values::{ArchiveConfig, Config, Listen, MetricsConfig};
