//! `backup` and `restore`: a whole companion into one file, and back out of it.

use kael_core::operation::Status;
use serde_json::{Value, json};

use crate::backup::{self, Manifest, Places};
use crate::claude::binary;
use crate::companion::Companion;
use crate::init::standard_config;
use crate::keeper::Keeper;
use crate::queue::RequestKind;

use super::args::{self, Global};
use super::error::{CliError, ErrorKind};
use super::output::{Output, bytes};

/// Runs `backup`.
pub fn pack(companion: &Companion, args: &args::Backup, output: &Output) -> Result<(), CliError> {
    let file = std::path::absolute(&args.file)?;
    let mut keeper = Keeper::try_take(companion.clone())?.ok_or_else(|| {
        CliError::new(
            ErrorKind::Busy,
            format!("the companion is run by {}: stop that one first", companion.holder()),
        )
    })?;
    keeper.recover()?;
    let under_way = keeper.store.active()?.filter(|operation| {
        !matches!(operation.status(), Status::Pending | Status::Verifying | Status::RollbackPending)
    });
    if let Some(operation) = under_way {
        return Err(CliError::new(
            ErrorKind::Busy,
            format!("operation {} is {}: bring it to its end first", operation.id, operation.status()),
        ));
    }
    let manifest = backup::pack(&keeper, &file)?;
    let size = file.metadata()?.len();
    let mut value = about(&manifest);
    value["file"] = json!(file);
    value["bytes"] = json!(size);
    output.print(&value, || {
        let mut lines = vec![format!(
            "{}: {} files, {} (session {})",
            file.display(),
            manifest.files.len(),
            bytes(size),
            manifest.session.map_or_else(|| "none yet".to_owned(), |session| session.to_string())
        )];
        lines.extend(missing(&manifest));
        lines.join("\n")
    })
}

/// Runs `restore FILE`.
pub fn unpack(args: &args::Restore, global: &Global, output: &Output) -> Result<(), CliError> {
    let (Some(file), Some(dir)) = (&args.file, &args.dir) else {
        return Err(CliError::new(ErrorKind::Usage, "name the file and, with --dir, the working folder"));
    };
    let config = match &global.config {
        Some(path) => std::path::absolute(path)?,
        None => standard_config().ok_or_else(|| {
            CliError::new(ErrorKind::Usage, "HOME is not set: name the configuration's file with --config")
        })?,
    };
    let places = Places {
        workdir: std::path::absolute(dir)?,
        state: args.state.as_ref().map(std::path::absolute).transpose()?,
        config,
    };
    let (manifest, config) = backup::unpack(file, &places)?;
    let name = config.resume_command.first().map_or("claude", String::as_str);
    let search =
        config.claude.env.get("PATH").map(std::ffi::OsString::from).or_else(|| std::env::var_os("PATH"));
    let cli = binary::resolve(name, &config.claude_workdir, search.as_deref()).err();
    let mut value = about(&manifest);
    value["config"] = json!(places.config);
    value["claude_workdir"] = json!(config.claude_workdir);
    value["project_dir"] = json!(config.project_dir);
    value["state_dir"] = json!(config.state_dir);
    value["cli_missing"] = json!(cli.as_ref().map(ToString::to_string));
    output.print(&value, || {
        let mut lines = vec![
            format!("configuration  {}", places.config.display()),
            format!("works in       {}", config.claude_workdir.display()),
            format!("transcripts    {}", config.project_dir.display()),
            format!("state          {}", config.state_dir.display()),
        ];
        lines.extend(missing(&manifest));
        lines.extend(cli.map(|error| format!("the CLI is not here: {error}")));
        lines.push(format!("Next: kael-runner --config {} doctor", places.config.display()));
        lines.join("\n")
    })
}

/// Runs `restore --kept`.
pub fn put_back(companion: &Companion, session: &str, output: &Output) -> Result<(), CliError> {
    let session = (!session.is_empty()).then_some(session);
    let answer = super::operations::perform(companion, RequestKind::PutBack, &json!({ "session": session }))?;
    output.print(&answer, || answer["next"].as_str().unwrap_or("done").to_owned())
}

fn about(manifest: &Manifest) -> Value {
    json!({
        "schema": 1,
        "ok": true,
        "session": manifest.session,
        "companion": manifest.companion,
        "created_at": manifest.created_at,
        "files": manifest.files.len(),
        "left_out": manifest.left_out,
    })
}

fn missing(manifest: &Manifest) -> Vec<String> {
    let mut lines: Vec<String> = manifest
        .left_out
        .iter()
        .map(|name| format!("left out: {name}, a secret: put it into the configuration again"))
        .collect();
    lines.push("not in it: the CLI's login, token files, and the working folder's own files".to_owned());
    lines
}
