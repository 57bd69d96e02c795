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
mod service;
mod signals;
mod soak;
mod storage;
mod text;
mod tools;
mod walk;
mod way_back;
