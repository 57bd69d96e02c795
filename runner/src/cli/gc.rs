//! `gc`: old evidence cleared away, by the lock holder.

use serde_json::{Value, json};

use crate::companion::Companion;
use crate::keeper::report_json;
use crate::kept::{self, Limits};
use crate::queue::RequestKind;

use super::args;
use super::error::CliError;
use super::output::{Output, bytes};

/// Runs the command.
pub fn run(companion: &Companion, args: &args::Gc, output: &Output) -> Result<(), CliError> {
    let limits = Limits { operations: args.operations, bytes: args.bytes };
    let answer = if args.dry_run {
        report_json(&kept::collect(companion, limits)?, true)
    } else {
        super::operations::perform(companion, RequestKind::Gc, &json!({ "limits": limits }))?
    };
    output.print(&answer, || text(&answer))
}

fn text(answer: &Value) -> String {
    let dry = answer["dry_run"] == true;
    let mut lines = Vec::new();
    for (name, sign) in [("removed", if dry { "would go" } else { "gone" }), ("kept", "stays")] {
        for thing in answer[name].as_array().into_iter().flatten() {
            lines.push(format!(
                "{sign:<9} {:>10}  {}  ({})",
                bytes(thing["bytes"].as_u64().unwrap_or(0)),
                thing["path"].as_str().unwrap_or_default(),
                thing["why"].as_str().unwrap_or_default()
            ));
        }
    }
    let freed = bytes(answer["freed_bytes"].as_u64().unwrap_or(0));
    lines.push(if dry {
        format!("{freed} would be freed; nothing was changed")
    } else {
        format!("{freed} freed")
    });
    lines.join("\n")
}
