//! The `kael-runner` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    kael_runner::cli::main(std::env::args_os().collect())
}
