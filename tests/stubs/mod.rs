//! Servers that stand in for the world: what the real Claude Code CLI or a front talks to.

mod answer;
pub mod gate;
pub mod messages_api;
pub mod reply;
pub mod request;
