//! From what a file gives to one companion's configuration: defaults, paths, and what must fit together.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::checks;
use super::choice::Activation;
use super::keys::Effect;
use super::places::real_path;
use super::project_dir;
use super::setting::{Given, Reader};
use super::tables::{ClaudeConfig, Layers, Top};
use super::values::{ArchiveConfig, Config, Listen, MetricsConfig};

/// Where a configuration comes from.
pub(super) struct Origin<'a> {
    pub(super) path: &'a Path,
    pub(super) original: bool,
    pub(super) env: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Works out one companion's configuration from what is given for it: `layers`, of which `own` is
/// what stands in its `[[companion]]` (the same, where there is none). `None` after a problem
/// without which there is nothing to go on with.
pub(super) fn resolve(
    reader: &mut Reader<'_>,
    layers: &Layers,
    name: Option<&str>,
    own: &Layers,
    origin: &Origin<'_>,
) -> Option<Config> {
    let places = reader.places;
    let top = layers.top.resolve(origin.original);
    let claude = layers.claude.resolve(origin.original);

    let claude_workdir = top.claude_workdir.clone().unwrap_or_else(|| places.folder.clone());
    let state_dir = state_dir(reader, &top, own, name, &claude_workdir, origin.original);
    let project_dir = project_dir(reader, layers, &top, &claude, &claude_workdir, origin);
    fits_activation(reader, layers, &top);
    let poison_pattern = checks::compile(&top.poison_pattern)
        .map_err(|message| reader.missing("poison_pattern", message))
        .ok();
    let archive = match &layers.archive {
        None => None,
        Some(layer) => {
            let table = layer.resolve(origin.original);
            let dir = table.dir.or_else(|| places.data.as_ref().map(|data| data.join("kael-runner/archive")));
            if dir.is_none() {
                reader.missing("archive.dir", "HOME is not set, so that there is no default; give it");
            }
            let (summary, mask_rounds, keep) = (table.summary, table.mask_rounds, table.keep);
            dir.map(|dir| ArchiveConfig { dir, summary, mask_rounds, keep })
        }
    };

    let (state_dir, project_dir, poison_pattern) = (state_dir?, project_dir?, poison_pattern?);
    let metrics = layers.metrics.as_ref().map(|layer| {
        let table = layer.resolve(origin.original);
        MetricsConfig { listen: listen(reader, table.listen.as_deref(), layer.listen.as_ref(), &state_dir) }
    });
    Some(Config {
        path: origin.path.to_owned(),
        original: origin.original,
        name: name.map(str::to_owned),
        project_dir,
        project_dir_given: top.project_dir.is_some(),
        resume_pointer_path: top.resume_pointer_path.unwrap_or_else(|| state_dir.join("resume_session")),
        state_dir,
        claude_workdir,
        activation: top.activation,
        resume_command: top.resume_command,
        tmux_target: top.tmux_target,
        tmux_socket: top.tmux_socket,
        systemd_unit: top.systemd_unit,
        systemd_scope: top.systemd_scope,
        dirty_budget_bytes: top.dirty_budget_bytes,
        rebuild_on_original_image_view: top.rebuild_on_original_image_view,
        carry_max_tokens: top.carry_max_tokens,
        carry_overflow: top.carry_overflow,
        max_event_chars: top.max_event_chars,
        include_open_tail: top.include_open_tail,
        stamp_turns: top.stamp_turns,
        freeze_startup_snapshot: top.freeze_startup_snapshot,
        poison_pattern,
        activation_delay: top.activation_delay_seconds,
        healthcheck: top.healthcheck_seconds,
        stable_file: top.stable_file_seconds,
        stable_file_timeout: top.stable_file_timeout_seconds,
        systemd_restart_timeout: top.systemd_restart_timeout_seconds,
        verify_workdir_matches_project: top.verify_workdir_matches_project,
        runner: layers.runner.resolve(origin.original),
        claude,
        transcript: layers.transcript.resolve(origin.original),
        telegram: layers.telegram.as_ref().map(|layer| layer.resolve(origin.original)),
        archive,
        metrics,
        warnings: warnings(layers),
        not_yet_effective: layers.not_yet_effective(),
    })
}

/// Each companion has a state folder of its own: a folder given for all of them holds one for each.
fn state_dir(
    reader: &mut Reader<'_>,
    top: &Top,
    own: &Layers,
    name: Option<&str>,
    claude_workdir: &Path,
    original: bool,
) -> Option<PathBuf> {
    if let Some(given) = &top.state_dir {
        return Some(match name {
            Some(name) if own.top.state_dir.is_none() => given.join(name),
            Some(_) | None => given.clone(),
        });
    }
    // The original's folder is named from HOME alone.
    let base = if original {
        reader.places.home.as_ref().map(|home| home.join(".local/state/kael-thread-rebuild"))
    } else {
        reader.places.state.as_ref().map(|state| state.join("kael-runner"))
    };
    let Some(base) = base else {
        reader.missing("state_dir", "HOME is not set, so that there is no default; give it");
        return None;
    };
    Some(match name {
        Some(name) => base.join(name),
        None if original => base,
        None => match real_path(claude_workdir).file_name() {
            Some(folder) => base.join(folder),
            None => base.join("root"),
        },
    })
}

/// The folder of the transcripts: given, or the CLI's for the working folder (facts 2). The CLI runs
/// with `[claude] env` over our environment, so that its `CLAUDE_CONFIG_DIR` and `HOME` count.
fn project_dir(
    reader: &mut Reader<'_>,
    layers: &Layers,
    top: &Top,
    claude: &ClaudeConfig,
    claude_workdir: &Path,
    origin: &Origin<'_>,
) -> Option<PathBuf> {
    let env = |name: &str| claude.env.get(name).map(OsString::from).or_else(|| (origin.env)(name));
    let derived = project_dir::derive(claude_workdir, &env);
    let Some(given) = &top.project_dir else {
        if derived.is_none() {
            reader.missing(
                "project_dir",
                "neither HOME nor CLAUDE_CONFIG_DIR is set, so that it cannot be worked out; give it",
            );
        }
        return derived;
    };
    let expected_name = project_dir::encode(&real_path(claude_workdir));
    // Where the runner does not start the CLI itself, the CLI's HOME is unknown; the name is not.
    let ours = top.activation == Activation::Pointer && !origin.original;
    let matches = match &derived {
        Some(derived) if ours => real_path(given) == real_path(derived),
        Some(_) | None => given.file_name().is_some_and(|name| name == expected_name.as_str()),
    };
    if top.verify_workdir_matches_project && !matches {
        let expected = match derived {
            Some(derived) if ours => derived.display().to_string(),
            Some(_) | None => format!("a folder named {expected_name}"),
        };
        let message = format!(
            "the CLI keeps the transcripts of claude_workdir {} in {expected}, not in {}; leave project_dir out, \
             correct one of the two, or set verify_workdir_matches_project = false",
            claude_workdir.display(),
            given.display(),
        );
        if let Some(Given { at, key, .. }) = &layers.top.project_dir {
            reader.problem(at, key, message);
        }
    }
    Some(given.clone())
}

/// What the way of switching needs of the other keys.
fn fits_activation(reader: &mut Reader<'_>, layers: &Layers, top: &Top) {
    match top.activation {
        Activation::Systemd if top.systemd_unit.is_none() && !reader.blames("systemd_unit") => {
            let message = "`activation = \"systemd\"` needs `systemd_unit`, the unit in which claude runs";
            match &layers.top.activation {
                Some(Given { at, key, .. }) => reader.problem(at, key, message),
                None => reader.missing("systemd_unit", message),
            }
        }
        Activation::Pointer if !checks::has_resume_pair(&top.resume_command) => {
            if let Some(Given { at, key, .. }) = &layers.top.resume_command {
                reader.problem(
                    at,
                    key,
                    "with `activation = \"pointer\"` it needs the pair \"--resume\", \"{session_id}\": for a new \
                     session the runner puts `--session-id` in its place",
                );
            }
        }
        Activation::Pointer | Activation::Tmux | Activation::Systemd => {}
    }
}

/// Reads `metrics.listen`; a problem is noted and the default taken, since the file fails anyway.
fn listen<T>(
    reader: &mut Reader<'_>,
    text: Option<&str>,
    given: Option<&Given<T>>,
    state_dir: &Path,
) -> Listen {
    let default = || Listen::Unix(state_dir.join("metrics.sock"));
    let (Some(text), Some(Given { at, key, .. })) = (text, given) else { return default() };
    let read = if let Some(path) = text.strip_prefix("unix:") {
        match path.strip_prefix("<state_dir>/") {
            Some(below) => Ok(Listen::Unix(state_dir.join(below))),
            None => reader.places.expand(path).map(Listen::Unix),
        }
    } else {
        let address = match text.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            None => text.parse().ok(),
        };
        match address {
            Some(address) if address.ip().is_loopback() => Ok(Listen::Loopback(address)),
            Some(_) => {
                Err("other machines could reach this address; use 127.0.0.1, [::1] or a unix socket"
                    .to_owned())
            }
            None => Err("expected \"unix:PATH\" or a loopback address such as \"127.0.0.1:9464\"".to_owned()),
        }
    };
    read.unwrap_or_else(|message| {
        reader.problem(at, key, message);
        default()
    })
}

fn warnings(layers: &Layers) -> Vec<String> {
    (layers.top.given())
        .filter(|key| key.effect == Effect::Ignored)
        .map(|key| format!("`{}`: {}", key.name, key.doc()))
        .collect()
}
