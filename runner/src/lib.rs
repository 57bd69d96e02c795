//! The acting half of Kael Runner: processes, queues, fronts and the command line.

pub mod doorbell;
pub mod envelope;
pub mod queue;
