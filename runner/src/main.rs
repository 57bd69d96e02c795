//! The `kael-runner` binary.

fn main() {}
