//! The allow list in the CLI's settings: entries are added and taken out, everything else stays byte for byte.

use std::path::Path;

use jsonc_parser::cst::{CstArray, CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, json};
use kael_core::disk::Disk;

use crate::cli::error::CliError;
use crate::hook::settings::{edit_file, read};

/// Whether the file is there and cannot be understood.
///
/// # Errors
/// Then.
pub fn check(path: &Path) -> Result<(), CliError> {
    edit(path, &read(path)?.unwrap_or_default(), &[], false).map(drop)
}

/// Adds what is missing; whether something was.
///
/// # Errors
/// When the file cannot be understood or written.
pub fn allow(disk: &Disk, path: &Path, names: &[String]) -> Result<bool, CliError> {
    edit_file(disk, path, |text| edit(path, text, names, true))
}

/// Takes these out; whether one was there.
///
/// # Errors
/// As [`allow`].
pub fn disallow(disk: &Disk, path: &Path, names: &[String]) -> Result<bool, CliError> {
    edit_file(disk, path, |text| edit(path, text, names, false))
}

/// The text with the change; nothing where it is so already.
fn edit(path: &Path, text: &str, names: &[String], add: bool) -> Result<Option<String>, CliError> {
    let unfit = |what: &str| {
        CliError::refused(format!("{}: {what}: nothing was changed; mend it by hand", path.display()))
    };
    // The parser would leave it out.
    let (mark, text) = text.strip_prefix('\u{feff}').map_or(("", text), |rest| ("\u{feff}", rest));
    let root = CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| unfit(&format!("it is not JSON ({error})")))?;
    if root.value().is_some_and(|value| value.as_object().is_none()) {
        return Err(unfit("it is not an object"));
    }
    let fresh = root.value().is_none();
    let list = match root.object_value().and_then(|object| object.get("permissions")) {
        None => None,
        Some(permissions) => {
            let permissions =
                permissions.object_value().ok_or_else(|| unfit("permissions is not an object"))?;
            match permissions.get("allow") {
                None => None,
                Some(list) => {
                    Some(list.array_value().ok_or_else(|| unfit("permissions.allow is not a list"))?)
                }
            }
        }
    };
    let there = list.as_ref().map(entries).unwrap_or_default();
    let changed = if add {
        let missing: Vec<&String> = names.iter().filter(|name| !there.contains(name)).collect();
        if !missing.is_empty() {
            put_in(&root, list, &missing);
        }
        !missing.is_empty()
    } else {
        list.is_some_and(|list| take_out(&root, &list, names))
    };
    if !changed {
        return Ok(None);
    }
    let mut after = format!("{mark}{root}");
    if fresh && !after.ends_with('\n') {
        after.push('\n');
    }
    Ok(Some(after))
}

fn entries(list: &CstArray) -> Vec<String> {
    let text = |node: jsonc_parser::cst::CstNode| node.as_string_lit()?.decoded_value().ok();
    list.elements().into_iter().filter_map(text).collect()
}

fn put_in(root: &CstRootNode, list: Option<CstArray>, names: &[&String]) {
    if let Some(list) = list {
        list.ensure_multiline();
        for name in names {
            list.append(CstInputValue::String((*name).clone()));
        }
        return;
    }
    let value =
        CstInputValue::Array(names.iter().map(|name| CstInputValue::String((*name).clone())).collect());
    let object: CstObject = root.object_value_or_set();
    match object.get("permissions").and_then(|permissions| permissions.object_value()) {
        Some(permissions) => drop(permissions.append("allow", value)),
        None => drop(object.append("permissions", json!({ "allow": value }))),
    }
}

/// Takes the entries out, and what was only there for them.
fn take_out(root: &CstRootNode, list: &CstArray, names: &[String]) -> bool {
    let mut changed = false;
    for element in list.elements() {
        let name = element.as_string_lit().and_then(|text| text.decoded_value().ok());
        if name.is_some_and(|name| names.contains(&name)) {
            match element {
                jsonc_parser::cst::CstNode::Leaf(leaf) => leaf.remove(),
                jsonc_parser::cst::CstNode::Container(container) => container.remove(),
            }
            changed = true;
        }
    }
    if changed
        && list.elements().is_empty()
        && let Some(object) = root.object_value()
        && let Some(permissions) = object.get("permissions")
        && let Some(inner) = permissions.object_value()
    {
        if inner.properties().len() == 1 {
            permissions.remove();
        } else if let Some(allow) = inner.get("allow") {
            allow.remove();
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [&str; 9] = [
        "{}",
        "{\n  \"model\": \"opus\"\n}\n",
        "{\r\n    \"model\": \"opus\"\r\n}\r\n",
        "\u{feff}{\n\t\"env\": {\"A\": \"1\"}\n}\n",
        "{\"permissions\":{\"deny\":[\"Bash(rm:*)\"]}}",
        "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(git log)\"\n    ]\n  },\n  \"n\": 1.50\n}\n",
        "{\"permissions\": {\"allow\": []}, \"z\": [1e3, -0.0]}",
        "{\n  // mine\n  \"model\": \"opus\", /* here */\n}\n",
        "{ \"permissions\": { \"allow\": [ \"mcp__kael-thread-rebuild__thread_rebuild_plan\" ] } }",
    ];

    fn names() -> Vec<String> {
        ["dirty", "plan"].map(|name| format!("mcp__kael-thread-rebuild__thread_rebuild_{name}")).to_vec()
    }

    fn squeezed(text: &str) -> String {
        text.split_whitespace().collect()
    }

    #[test]
    fn entries_go_in_and_out_of_settings_of_many_shapes() {
        let path = Path::new("settings.json");
        for text in SHAPES {
            let after = edit(path, text, &names(), true).unwrap().unwrap();
            assert_eq!(after.matches("thread_rebuild_").count(), 2, "{after}");
            assert_eq!(edit(path, &after, &names(), true).unwrap(), None, "twice is once: {after}");
            let back = edit(path, &after, &names(), false).unwrap().unwrap();
            assert!(!back.contains("thread_rebuild_"), "{back}");
            if !text.contains("thread_rebuild_") && !text.contains("[]") {
                assert_eq!(squeezed(&back), squeezed(text), "{after}");
            }
            for stays in ["1.50", "// mine", "-0.0", "Bash(git log)", "Bash(rm:*)", "\u{feff}", "\r\n"] {
                assert_eq!(after.contains(stays), text.contains(stays), "{stays}: {after}");
            }
        }
        assert_eq!(edit(path, "{}", &names(), false).unwrap(), None);
        let fresh = edit(path, "", &names(), true).unwrap().unwrap();
        assert!(
            fresh.ends_with('\n') && serde_json::from_str::<serde_json::Value>(&fresh).is_ok(),
            "{fresh}"
        );
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        for (text, why) in [
            ("[]", "not an object"),
            ("{\"permissions\": []}", "permissions is not an object"),
            ("{\"permissions\": {\"allow\": {}}}", "permissions.allow is not a list"),
            ("{\"a\": ", "not JSON"),
        ] {
            let error = edit(Path::new("s"), text, &names(), true).unwrap_err();
            assert!(error.message.contains(why) && error.message.contains("nothing was changed"), "{error}");
        }
    }
}
