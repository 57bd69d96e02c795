//! The companion's whole way, front to transcript and back, on the stand-in and on the real CLI.

mod backup;
mod absorb;
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
mod service;
mod soak;
mod storage;
mod text;
mod tools;
mod way_back;
mod walk;
