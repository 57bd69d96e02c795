//! From the text of a file to what it gives, level by level.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::checks;
use super::error::{ConfigError, Problem, syntax};
use super::places::{Places, tidy};
use super::resolve::{Origin, resolve};
use super::search::Lookup;
use super::setting::{Reader, nearest, quoted};
use super::tables::{Layers, TopLayer};
use super::values::Config;

/// The table array that makes one file several companions.
const COMPANION: &str = "companion";

/// A `[[companion]]`: its name, where that stands, and what it says.
struct Companion {
    name: Option<(String, Range<usize>)>,
    layers: Layers,
}

/// Parses the text of a configuration file: one [`Config`] a companion, at least one.
///
/// `path` is where the text comes from; relative paths in it start at its folder. Looks at the disk
/// only to resolve symlinks in working and project folders.
///
/// # Errors
/// Everything that is wrong with the text, at once.
pub fn parse(text: &str, path: &Path, lookup: &Lookup<'_>) -> Result<Vec<Config>, ConfigError> {
    let path = tidy(&lookup.cwd.join(path));
    let folder = path.parent().map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let places = Places::new(folder, lookup.env);
    let mut reader = Reader { text, places: &places, problems: Vec::new() };

    let (table, faults) = DeTable::parse_recoverable(text);
    let mut companions = Vec::new();
    let layers = level(&mut reader, table.get_ref(), "", Some(&mut companions));

    let configs = if faults.is_empty() {
        let origin = Origin { path: &path, original: lookup.is_original(&path), env: lookup.env };
        resolve_all(&mut reader, &layers, companions, &origin)
    } else {
        // What a broken line was meant to say is unknown, so that nothing is concluded from it; after
        // a broken head the keys that follow are in another table than they seem.
        let faults: Vec<Problem> = faults.iter().map(|fault| syntax(text, fault)).collect();
        let line = |problem: &Problem| problem.at.map(|(line, _)| line);
        let head = |number: usize| {
            text.lines().nth(number - 1).is_some_and(|line| line.trim_start().starts_with('['))
        };
        let broken_head = faults.iter().filter_map(line).filter(|number| head(*number)).min();
        reader.problems.retain(|problem| {
            line(problem) < Some(broken_head.unwrap_or(usize::MAX))
                && !faults.iter().any(|fault| line(fault) == line(problem))
        });
        let mut lines = Vec::new();
        for fault in faults {
            if !lines.contains(&line(&fault)) {
                lines.push(line(&fault));
                reader.problems.push(fault);
            }
        }
        Vec::new()
    };

    let mut problems = reader.problems;
    if problems.is_empty() {
        return Ok(configs);
    }
    // What a file says for all companions is found wrong once for each of them. Problems without
    // a place come last.
    problems.sort_by(|a, b| (a.at.is_none(), a).cmp(&(b.at.is_none(), b)));
    problems.dedup();
    Err(ConfigError::Invalid { path, problems })
}

/// Reads one level: the file, or one companion, which holds no further ones.
fn level(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    prefix: &str,
    mut companions: Option<&mut Vec<Companion>>,
) -> Layers {
    let mut layers = Layers::default();
    for (name, value) in table {
        let (at, name) = (name.span(), name.get_ref().as_ref());
        let key = format!("{prefix}{name}");
        if let Some(layer) = layers.table(name) {
            let Some(table) = reader.table(&key, &format!("[{key}]"), value) else { continue };
            for (inner, value) in table {
                let (at, inner) = (inner.span(), inner.get_ref().as_ref());
                let key = format!("{key}.{inner}");
                if !super::keys::Layer::set(layer, reader, inner, &key, value) {
                    let known: Vec<&str> = layer.keys().iter().map(|key| key.name).collect();
                    reader.problem(&at, &key, unknown(inner, name, &known));
                }
            }
            continue;
        }
        if super::keys::Layer::set(&mut layers.top, reader, name, &key, value) {
            continue;
        }
        match &mut companions {
            Some(companions) if name == COMPANION => companions.extend(read_companions(reader, value)),
            Some(_) if name == "name" => {
                reader.problem(&at, &key, "unknown key here; `name` belongs in [[companion]]");
            }
            // Its name was read before its keys.
            None if name == "name" => {}
            None if name == COMPANION => {
                reader.problem(&at, &key, "a companion holds no further ones");
            }
            _ => {
                let mut known: Vec<&str> = TopLayer::KEYS.iter().map(|key| key.name).collect();
                known.extend(Layers::TABLES.iter().map(|(name, _)| *name));
                known.push(if companions.is_some() { COMPANION } else { "name" });
                reader.problem(&at, &key, unknown(name, "", &known));
            }
        }
    }
    layers
}

fn read_companions(reader: &mut Reader<'_>, value: &toml::Spanned<DeValue<'_>>) -> Vec<Companion> {
    let Some(list) = value.get_ref().as_array() else {
        reader.problem(
            &value.span(),
            COMPANION,
            "each companion is a table of its own, written [[companion]]",
        );
        return Vec::new();
    };
    let mut companions = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let place = format!("{COMPANION}[{index}]");
        let Some(table) = reader.table(&place, "[[companion]]", item) else { continue };
        let name = table.get("name").and_then(|value| {
            let name = reader.setting::<String>(
                &format!("{place}.name"),
                value,
                Some(|name| checks::companion_name(name)),
            )?;
            Some((name.value, name.at))
        });
        if !table.contains_key("name") {
            reader.problem(&item.span(), &place, "needs a `name`, which names its folder");
        }
        let prefix = match &name {
            Some((name, _)) => format!("{COMPANION}[{}].", quoted(name)),
            None => format!("{place}."),
        };
        let layers = level(reader, table, &prefix, None);
        companions.push(Companion { name, layers });
    }
    companions
}

/// What to say about a key that is not known in a table.
fn unknown(name: &str, table: &str, known: &[&str]) -> String {
    if table == "telegram" && name.to_lowercase().contains("token") {
        return "unknown key; a token does not stand in the configuration: put it in a file of its own \
                (mode 0600) and name that with `token_file`"
            .to_owned();
    }
    let elsewhere = super::tables::keys().find(|key| key.name == name && key.table != table);
    if let Some(key) = elsewhere {
        return match key.table {
            "" => format!("unknown key in [{table}]; `{name}` stands at top level, above the first table"),
            other => format!("unknown key here; `{name}` belongs in [{other}]"),
        };
    }
    match nearest(name, known.iter().copied()) {
        Some((near, true)) => format!("unknown key; did you mean `{near}`?"),
        Some((near, false)) => format!("unknown key; the nearest known one is `{near}`"),
        None => "unknown key".to_owned(),
    }
}

fn resolve_all(
    reader: &mut Reader<'_>,
    layers: &Layers,
    companions: Vec<Companion>,
    origin: &Origin<'_>,
) -> Vec<Config> {
    if companions.is_empty() {
        return resolve(reader, layers, None, layers, origin).into_iter().collect();
    }
    let mut places: HashMap<PathBuf, String> = HashMap::new();
    let mut configs = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for companion in companions {
        // Without a name there is no folder; that it is missing was said.
        let Some((name, at)) = companion.name else { continue };
        if names.contains(&name) {
            reader.problem(
                &at,
                &format!("{COMPANION}[{}].name", quoted(&name)),
                "two companions have this name",
            );
            continue;
        }
        names.push(name.clone());
        let merged = companion.layers.over(layers);
        let Some(config) = resolve(reader, &merged, Some(&name), &companion.layers, origin) else { continue };
        for (key, path) in
            [("state_dir", &config.state_dir), ("resume_pointer_path", &config.resume_pointer_path)]
        {
            if let Some(other) = places.insert(path.clone(), name.clone()) {
                reader.problem(
                    &at,
                    &format!("{COMPANION}[{}].{key}", quoted(&name)),
                    format!(
                        "{} already belongs to companion {}; each has its own",
                        path.display(),
                        quoted(&other)
                    ),
                );
            }
        }
        configs.push(config);
    }
    configs
}
