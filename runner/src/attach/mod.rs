//! The terminal front's wire: `<state>/attach.sock` (0600, JSON lines, DESIGN 12).
//!
//! The supervisor publishes what happens through the [`Hub`] and never waits for anybody; the
//! [`AttachServer`], on a thread of its own, hands it to everyone attached and carries out what they
//! ask: messages go into the inbox like those of any front, decisions become requests to the lock
//! holder. The [`Client`] is the other end; the chat is the one that uses it.

mod client;
mod commands;
mod hub;
mod protocol;
mod server;
mod socket;

pub use client::{Client, Connected};
pub(crate) use commands::{hub_of, replied, said};
pub use hub::{Hub, Published, Running, Snapshot};
pub use protocol::{ClientLine, CommandName, Level, Outcome, SCHEMA, ServerLine, Wish};
pub use server::AttachServer;
pub use socket::{connect_blocking, path as socket_path};

/// The front whose messages the owner typed at a terminal: they go to the CLI as they are, unless
/// they begin with `/` (DESIGN 9 "Human text is data").
pub const FRONT: &str = "terminal";
