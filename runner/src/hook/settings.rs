//! Our Stop hook in the CLI's `settings.json`: one entry is appended, everything else stays byte for byte.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, json};
use kael_core::disk::Disk;
use kael_core::switch::quoted;

use crate::cli::error::{CliError, ErrorKind};
use crate::companion::Companion;

/// Seconds that the CLI gives the hook; it needs a hundredth of one.
const TIMEOUT: u32 = 10;

/// What was found or done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The entry was there already, or was not there to be taken out.
    None,
    /// The entry was put in, or another program's path in it was corrected.
    Installed,
    /// The entry was taken out.
    Removed,
}

/// The settings file that a setup's `claude` reads: the user's, beside the folder of its transcripts.
#[must_use]
pub fn default_file(companion: &Companion) -> PathBuf {
    let config_dir = companion.config.project_dir.parent().and_then(Path::parent);
    config_dir.unwrap_or(Path::new("/")).join("settings.json")
}

/// The hook's command line for this companion.
pub fn command_for(companion: &Companion) -> Result<String, CliError> {
    let program = std::env::current_exe()?;
    Ok(format!("{} {}", quoted(&program.to_string_lossy()), tail_for(companion)))
}

/// What stands behind the program: by it an entry is known again, wherever the program was then.
fn tail_for(companion: &Companion) -> String {
    let config = &companion.config;
    let name = config.name.as_ref().map(|name| format!(" --companion {}", quoted(name))).unwrap_or_default();
    format!("--config {}{name} hook-stop", quoted(&config.path.to_string_lossy()))
}

/// Whether the companion's hook is in the file; the command that stands there.
pub fn installed(companion: &Companion, path: &Path) -> Result<Option<String>, CliError> {
    let Some(text) = read(path)? else { return Ok(None) };
    let tail = tail_for(companion);
    let root = parse(&text, path)?;
    let Some(stop) = stop_array(&root, path)? else { return Ok(None) };
    Ok(ours(&stop, &tail).and_then(|entry| command_of(&entry)))
}

/// Puts the hook in. Nothing is written where it is there already.
pub fn install(companion: &Companion, path: &Path) -> Result<Change, CliError> {
    let command = command_for(companion)?;
    let tail = tail_for(companion);
    change(companion, path, |text| added(text, path, &command, &tail))
}

/// Takes the hook out, and the lists that become empty by that.
pub fn uninstall(companion: &Companion, path: &Path) -> Result<Change, CliError> {
    let tail = tail_for(companion);
    change(companion, path, |text| removed(text, path, &tail))
}

fn change(
    companion: &Companion,
    path: &Path,
    edit: impl FnOnce(&str) -> Result<(Change, String), CliError>,
) -> Result<Change, CliError> {
    let mut change = Change::None;
    edit_file(&companion.disk, path, |text| {
        let (done, after) = edit(text)?;
        change = done;
        Ok((done != Change::None).then_some(after))
    })?;
    Ok(change)
}

/// Changes one of the CLI's settings files, or makes it: the text before is kept beside it, links and modes stay. `edit`
/// gives the new text, or nothing where it is so already. Whether it was changed.
///
/// # Errors
/// What `edit` refuses; a file that was changed by somebody else meanwhile; the disk's.
pub(crate) fn edit_file(
    disk: &Disk,
    path: &Path,
    edit: impl FnOnce(&str) -> Result<Option<String>, CliError>,
) -> Result<bool, CliError> {
    let before = read(path)?;
    let Some(after) = edit(before.as_deref().unwrap_or_default())? else { return Ok(false) };
    // A settings file may be a link into somebody's dotfiles: the link stays, its target changes.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(before) = &before {
        let mode = fs::metadata(&target)?.permissions();
        let mut backup = target.clone().into_os_string();
        backup.push(".kael-backup");
        disk.replace(Path::new(&backup), before.as_bytes())?;
        if fs::read(&target)? != before.as_bytes() {
            return Err(CliError::new(
                ErrorKind::Conflict,
                format!(
                    "{} was changed by somebody in this moment: nothing was written, try again",
                    path.display()
                ),
            ));
        }
        disk.replace(&target, after.as_bytes())?;
        fs::set_permissions(&target, mode)?;
    } else {
        if let Some(folder) = target.parent() {
            disk.private_dir(folder)?;
        }
        disk.create_new(&target, after.as_bytes())?;
    }
    Ok(true)
}

/// The text of a settings file, if it is there.
pub(crate) fn read(path: &Path) -> Result<Option<String>, CliError> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| {
            CliError::refused(format!(
                "{} is not UTF-8: nothing was changed; mend it by hand",
                path.display()
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::failed(format!("could not read {}: {error}", path.display()))),
    }
}

fn parse(text: &str, path: &Path) -> Result<CstRootNode, CliError> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| {
        CliError::refused(format!(
            "{} is not JSON ({error}): nothing was changed; mend it by hand",
            path.display()
        ))
    })
}

fn unfit(path: &Path, what: &str, wanted: &str) -> CliError {
    CliError::refused(format!(
        "{}: {what} is not {wanted}: nothing was changed; mend it by hand",
        path.display()
    ))
}

fn root_object(root: &CstRootNode, path: &Path) -> Result<Option<CstObject>, CliError> {
    match root.value() {
        None => Ok(None),
        Some(value) => value.as_object().map(Some).ok_or_else(|| unfit(path, "the whole", "an object")),
    }
}

fn only(object: &CstObject, name: &str, path: &Path) -> Result<Option<CstNode>, CliError> {
    let same = object
        .properties()
        .into_iter()
        .filter(|prop| prop.name().is_some_and(|own| own.decoded_value().is_ok_and(|own| own == name)));
    let mut values: Vec<CstNode> = same.filter_map(|prop| prop.value()).collect();
    if values.len() > 1 {
        return Err(CliError::refused(format!(
            "{} has {name} twice, and only the last one counts: nothing was changed; mend it by hand",
            path.display()
        )));
    }
    Ok(values.pop())
}

fn hooks_object(root: &CstRootNode, path: &Path) -> Result<Option<CstObject>, CliError> {
    let Some(object) = root_object(root, path)? else { return Ok(None) };
    match only(&object, "hooks", path)? {
        None => Ok(None),
        Some(value) => value.as_object().map(Some).ok_or_else(|| unfit(path, "hooks", "an object")),
    }
}

fn stop_array(root: &CstRootNode, path: &Path) -> Result<Option<CstArray>, CliError> {
    let Some(hooks) = hooks_object(root, path)? else { return Ok(None) };
    match only(&hooks, "Stop", path)? {
        None => Ok(None),
        Some(value) => value.as_array().map(Some).ok_or_else(|| unfit(path, "hooks.Stop", "a list")),
    }
}

/// The single hook of ours, inside whatever group it stands.
fn ours(stop: &CstArray, tail: &str) -> Option<CstObject> {
    let groups = stop.elements().into_iter().filter_map(|group| group.as_object());
    let hooks = groups.filter_map(|group| group.get("hooks")?.value()?.as_array());
    let mut single = hooks.flat_map(|hooks| hooks.elements()).filter_map(|hook| hook.as_object());
    single.find(|hook| command_of(hook).is_some_and(|command| command.ends_with(&format!(" {tail}"))))
}

fn command_of(hook: &CstObject) -> Option<String> {
    hook.get("command")?.value()?.as_string_lit()?.decoded_value().ok()
}

fn entry(command: &str) -> CstInputValue {
    json!({ "hooks": [{ "type": "command", "command": command, "timeout": TIMEOUT }] })
}

fn added(text: &str, path: &Path, command: &str, tail: &str) -> Result<(Change, String), CliError> {
    // The parser would leave it out.
    let (mark, text) = text.strip_prefix('\u{feff}').map_or(("", text), |rest| ("\u{feff}", rest));
    let root = parse(text, path)?;
    let fresh = root_object(&root, path)?.is_none();
    match (stop_array(&root, path)?, hooks_object(&root, path)?) {
        (Some(stop), _) => match ours(&stop, tail) {
            Some(hook) if command_of(&hook).as_deref() == Some(command) => {
                return Ok((Change::None, String::new()));
            }
            Some(hook) => {
                if let Some(prop) = hook.get("command") {
                    prop.set_value(CstInputValue::String(command.to_owned()));
                }
            }
            None => {
                stop.ensure_multiline();
                stop.append(entry(command));
            }
        },
        (None, Some(hooks)) => drop(hooks.append("Stop", CstInputValue::Array(vec![entry(command)]))),
        (None, None) => {
            let object = root.object_value_or_set();
            object.append("hooks", json!({ "Stop": (vec![entry(command)]) }));
        }
    }
    let mut after = format!("{mark}{root}");
    if fresh && !after.ends_with('\n') {
        after.push('\n');
    }
    Ok((Change::Installed, after))
}

fn removed(text: &str, path: &Path, tail: &str) -> Result<(Change, String), CliError> {
    let (mark, text) = text.strip_prefix('\u{feff}').map_or(("", text), |rest| ("\u{feff}", rest));
    let root = parse(text, path)?;
    let Some(stop) = stop_array(&root, path)? else { return Ok((Change::None, String::new())) };
    let Some(hook) = ours(&stop, tail) else { return Ok((Change::None, String::new())) };
    // The hook, and every list or object around it that holds nothing else.
    let mut node: CstNode = hook.into();
    while let Some(parent) = node.parent() {
        let parent: CstNode = parent.into();
        if parent.as_root_node().is_some() || !only_child(&parent) {
            break;
        }
        node = parent;
    }
    remove(node);
    Ok((Change::Removed, format!("{mark}{root}")))
}

/// Whether nothing but what was found below it would be lost with that node. A group of hooks may have a matcher, which
/// means nothing without hooks.
fn only_child(node: &CstNode) -> bool {
    if let Some(array) = node.as_array() {
        return array.elements().len() == 1;
    }
    if let Some(object) = node.as_object() {
        // The file itself stays an object.
        let top = object.parent().is_some_and(|parent| parent.is_root());
        let group =
            object.get("hooks").is_some_and(|prop| prop.value().is_some_and(|v| v.as_array().is_some()));
        return !top && (object.properties().len() == 1 || group);
    }
    true
}

fn remove(node: CstNode) {
    match node {
        CstNode::Container(container) => container.remove(),
        CstNode::Leaf(leaf) => leaf.remove(),
    }
}

#[cfg(test)]
mod tests;
