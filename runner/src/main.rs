//! The `kael-runner` binary.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let called_as = args.next().unwrap_or_default();
    // A link named `claude` makes this binary a drop-in for the CLI in tests and in the demo.
    if Path::new(&called_as).file_name() == Some(OsStr::new("claude")) {
        return kael_runner::standin::main(args.collect());
    }
    if args.next().as_deref() == Some(OsStr::new("stand-in-claude")) {
        return kael_runner::standin::main(args.collect());
    }
    ExitCode::SUCCESS
}
