//! The companion's whole way, front to transcript and back, on the stand-in and on the real CLI.

mod absorb;
mod clock;
mod conversation;
mod failures;
mod kills;
mod logs;
mod mcp;
mod operations;
mod outcomes;
mod queue;
mod repair;
mod service;
mod soak;
mod storage;
mod text;
mod tools;
mod walk;
