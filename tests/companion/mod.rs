//! The companion's whole way, front to transcript and back, on the stand-in and on the real CLI.

mod clock;
mod conversation;
mod decisions;
mod estimates;
mod failures;
mod kills;
mod logs;
mod mcp;
mod memory;
mod operations;
mod outcomes;
mod queue;
mod storage;
mod tools;
