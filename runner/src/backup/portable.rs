//! The configuration on its way: comments and everything else stay as they are.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use crate::claude::hush;
use crate::cli::error::{CliError, ErrorKind};

/// Keys that say where things are on one machine.
const PLACES: [&str; 4] = ["claude_workdir", "project_dir", "state_dir", "resume_pointer_path"];
const COMPANION: &str = "companion";

/// The text for one companion without secrets, and what was taken out of it.
pub(super) fn without_secrets(
    text: &str,
    companion: Option<&str>,
) -> Result<(String, Vec<String>), CliError> {
    let mut document = parse(text)?;
    if let (Some(name), Some(all)) =
        (companion, document.get_mut(COMPANION).and_then(Item::as_array_of_tables_mut))
    {
        all.retain(|table| table.get("name").and_then(Item::as_str) == Some(name));
    }
    let mut left_out = Vec::new();
    each_level(&mut document, |table| {
        let Some(variables) = variables(table) else { return };
        let names: Vec<String> = variables
            .iter()
            .filter(|(name, value)| hush::sounds_secret(name) || value.as_str().is_some_and(holds_password))
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in names {
            variables.remove(&name);
            left_out.push(format!("claude.env.{name}"));
        }
    });
    Ok((document.to_string(), left_out))
}

/// The same text with this working folder, and with everything that follows from it left to be worked out.
pub(super) fn placed(text: &str, workdir: &Path, state: Option<&Path>) -> Result<String, CliError> {
    let mut document = parse(text)?;
    each_level(&mut document, |table| {
        for key in PLACES {
            table.remove(key);
        }
    });
    let mut set = |key: &str, path: &Path| -> Result<(), CliError> {
        let path = path.to_str().ok_or_else(|| {
            CliError::new(ErrorKind::Usage, format!("{} is not UTF-8: choose another folder", path.display()))
        })?;
        // In front of the first table, where top-level keys belong.
        document.as_table_mut().insert(key, value(path));
        Ok(())
    };
    set("claude_workdir", workdir)?;
    if let Some(state) = state {
        set("state_dir", state)?;
    }
    Ok(document.to_string())
}

fn parse(text: &str) -> Result<DocumentMut, CliError> {
    text.parse::<DocumentMut>().map_err(|error| {
        CliError::new(ErrorKind::Configuration, format!("the configuration is no TOML: {error}"))
    })
}

/// The file's own level, then each companion's.
fn each_level(document: &mut DocumentMut, mut on: impl FnMut(&mut Table)) {
    on(document.as_table_mut());
    let companions = document.get_mut(COMPANION).and_then(Item::as_array_of_tables_mut);
    companions.into_iter().flat_map(|all| all.iter_mut()).for_each(on);
}

fn variables(table: &mut Table) -> Option<&mut dyn TableLike> {
    table.get_mut("claude")?.as_table_like_mut()?.get_mut("env")?.as_table_like_mut()
}

/// `scheme://name:password@host`.
fn holds_password(text: &str) -> bool {
    text.split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?']).next()?.split_once('@'))
        .is_some_and(|(who, _)| who.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# mine
claude_workdir = "/srv/old" # here
project_dir = "/home/x/.claude/projects/-srv-old"
rebuild_on_original_image_view = true   # kept

[claude.env]
ANTHROPIC_API_KEY = "sk-ant-made-up"
HTTPS_PROXY = "http://me:pass@proxy:8080"
HTTP_PROXY = "http://proxy:8080/a@b"

[[companion]]
name = "a"
state_dir = "/var/a"
[companion.claude]
env = { MY_TOKEN = "xxxxxxxx", LANG = "C" }

[[companion]]
name = "b"
"#;

    #[test]
    fn secrets_and_other_companions_stay_behind() {
        let (text, left_out) = without_secrets(TEXT, Some("a")).unwrap();
        assert_eq!(
            left_out,
            ["claude.env.ANTHROPIC_API_KEY", "claude.env.HTTPS_PROXY", "claude.env.MY_TOKEN"]
        );
        for gone in ["sk-ant", "pass@", "xxxxxxxx", "\"b\""] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        for stays in ["# mine", "# kept", "http://proxy:8080/a@b", "LANG = \"C\""] {
            assert!(text.contains(stays), "{stays}: {text}");
        }
    }

    #[test]
    fn places_are_worked_out_anew() {
        let text = placed(TEXT, Path::new("/srv/风筝 \"new\""), Some(Path::new("/var/new"))).unwrap();
        for gone in ["/srv/old", "-srv-old", "/var/a"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        let parsed: DocumentMut = text.parse().unwrap();
        assert_eq!(parsed["claude_workdir"].as_str(), Some("/srv/风筝 \"new\""));
        assert_eq!(parsed["state_dir"].as_str(), Some("/var/new"));
        assert!(text.contains("# kept"));
    }
}
