//! The companion's whole way, front to transcript and back, on the stand-in and on the real CLI.

mod absorb;
mod backup;
mod clock;
mod conversation;
mod decisions;
mod estimates;
mod failures;
mod forget;
mod kept;
mod kills;
mod logs;
mod mcp;
mod operations;
mod outcomes;
mod queue;
mod repair;
mod storage;
mod tools;
mod walk;
mod way_back;
