//! `migrate`: coming from `kael-thread-rebuild`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kael_core::config::{self, Lookup};
use serde_json::json;

use crate::companion::Companion;
use crate::mcp::offer;
use crate::migrate::{self, Checked};

use super::args;
use super::error::{CliError, ErrorKind};
use super::output::Output;

/// Runs the command.
pub fn run(args: &args::Migrate, output: &Output) -> Result<ExitCode, CliError> {
    match &args.check {
        Some(path) => check(path, output),
        None => link(args, output).map(|()| ExitCode::SUCCESS),
    }
}

fn check(path: &Path, output: &Output) -> Result<ExitCode, CliError> {
    let lookup = Lookup {
        explicit: Some(path.to_owned()),
        env: &|name| std::env::var_os(name),
        cwd: std::env::current_dir()?,
        called_as_original: true,
    };
    let config = config::load(&lookup)
        .map_err(|error| CliError::from_error(ErrorKind::Configuration, &error))?
        .into_iter()
        .next()
        .ok_or_else(|| CliError::failed("the configuration describes no companion"))?;
    let companion = Companion::new(config);
    let checked = migrate::check(&companion)?;
    let value = migrate::shown(&checked);
    output.print(&value, || text(&companion, &checked))?;
    Ok(if value["ok"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(companion: &Companion, checked: &Checked) -> String {
    let mut lines = vec!["What will differ:".to_owned()];
    lines.extend(checked.differs.iter().map(|line| format!("  {line}")));
    lines.push(format!(
        "Operations in {}: {} can be read, with `kael-runner status --operation ID`",
        companion.config.state_dir.display(),
        checked.operations
    ));
    lines.extend(checked.unreadable.iter().map(|line| format!("  {line}")));
    lines.push("The acceptance list:".to_owned());
    for (name, holds, found) in &checked.acceptance {
        lines.push(format!("  {}  {name:<32} {found}", if *holds { "ok  " } else { "FAIL" }));
    }
    lines.join("\n")
}

fn link(args: &args::Migrate, output: &Output) -> Result<(), CliError> {
    let program = offer::program();
    let folder: PathBuf = match &args.into {
        Some(folder) => std::path::absolute(folder)?,
        None => program.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    let links = migrate::install(&kael_core::disk::Disk::real(), &folder, program, args.replace)?;
    output.print(&json!({ "schema": 1, "ok": true, "links": links, "program": program }), || {
        let lines = links.iter().map(|link| {
            let state = if link.made { "made" } else { "was there" };
            let aside = link.aside.as_ref().map(|aside| format!(", what stood there is {}", aside.display()));
            format!("{}: {state}{}", link.path.display(), aside.unwrap_or_default())
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}
