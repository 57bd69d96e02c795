//! The acting half of Kael Runner: processes, queues, fronts and the command line.

pub mod standin;
