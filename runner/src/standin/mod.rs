//! A stand-in for `claude`: the same flags, streams, transcripts and failures as the measured CLI
//! (version 2.1.332 of the facts), with a mind that answers from what is in its context.
//!
//! It exists so that the demo and the fast tests run offline, and it is held to the same scenarios as
//! the real CLI by one conformance suite. It plays the other side: it shares no code with the product,
//! so that a wrong rule of ours does not agree with itself.
//!
//! | module | what |
//! |---|---|
//! | `args` | the command line |
//! | `session` | the transcript: loading, leaf, chain, appending |
//! | `prompt` | from the chain to a Messages API request |
//! | `noise` | the runtime text that surrounds a conversation |
//! | `model` | who answers: a server over HTTP, or the brain |
//! | `tools` | Bash and Read, really run |
//! | `turn`, `ending` | one turn; `resume` and `commands`: turns that begin otherwise |
//! | `output` | stdout: stream-json, json, text |
//! | `quirks` | misbehaviour on demand, for tests |
//! | `brain`, `questions`, `context` | the mind, and its view of a request |

mod args;
pub mod brain;
mod commands;
pub mod context;
mod ending;
mod interrupt;
mod model;
mod noise;
mod output;
mod prompt;
mod questions;
mod quirks;
mod resume;
mod run;
mod session;
mod signals;
mod sse;
mod tools;
mod turn;

use std::ffi::OsString;
use std::process::ExitCode;

/// The version whose behaviour is imitated; it stands in the rows as the CLI's own does.
pub const VERSION: &str = "2.1.332";

/// Runs the stand-in with the arguments that follow the program's name. Blocks until stdin is at its
/// end and the last turn is done, as `claude -p` does.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    if args.first().is_some_and(|first| first == tools::SHELL) {
        return tools::shell(args.get(1));
    }
    let args = match args::parse(args) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(1);
        }
    };
    if args.version {
        println!("{VERSION} (kael stand-in)");
        return ExitCode::SUCCESS;
    }
    match run::run(args) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::from(1)
        }
    }
}
