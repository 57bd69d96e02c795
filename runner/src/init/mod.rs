//! `init`: from nothing to a companion that runs, question by question; and `adopt`, its last step, by itself.
//!
//! | module | what |
//! |---|---|
//! | `ask` | questions and answers, or their defaults with `--yes` |
//! | `found` | what is there: the CLI, running `claude` processes, sessions |
//! | `argv` | from the command line of a running `claude` to `resume_command` |
//! | `template` | the configuration's text |
//! | `adopt` | the pointer to a session that exists, after a check |

pub mod adopt;
pub(crate) mod argv;
mod ask;
mod found;
mod template;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kael_core::config::{self, Config, Lookup, project_dir};
use kael_core::disk::Disk;
use kael_core::ids::SessionId;

use crate::cli::error::{CliError, ErrorKind};
use crate::cli::output::{Output, bytes};
use crate::companion::Companion;

use argv::Copied;
use ask::Dialogue;
use found::{Live, Session};

/// What was said on the command line; the rest is asked.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Ask nothing: take every proposal, and refuse where only a human can decide.
    pub yes: bool,
    /// The companion's folder.
    pub dir: Option<PathBuf>,
    /// The CLI.
    pub claude: Option<PathBuf>,
    /// The session to go on with.
    pub session: Option<SessionId>,
    /// Where the configuration is to be written.
    pub config: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Each says what to do next. Nothing is written before every question is answered.
pub fn run(options: &Options) -> Result<ExitCode, CliError> {
    let mut ask = Dialogue::new(options.yes);
    println!("Kael Runner: setting up a companion. Nothing is written before the last question.\n");
    let cli = found::cli(options.claude.as_deref())?;
    fact("claude", &format!("{}, version {}{}", cli.path.display(), cli.version, cli.remark));

    let config_path = config_path(options)?;
    let running = found::running();
    let chosen = choose_running(&mut ask, &running, options.dir.as_deref())?;
    let workdir = choose_folder(&mut ask, options, chosen)?;
    let copied = chosen.map(|live| argv::resume_command(&live.arguments));
    let command = command(options, &cli, copied.as_ref())?;
    if let Some(copied) = copied.as_ref() {
        for line in copied.remarks() {
            println!("            {line}");
        }
    }
    fact("command", &command.join(" "));

    let config_dir = chosen.and_then(|live| live.config_dir.clone());
    let session = choose_session(&mut ask, options, &workdir, config_dir.as_deref())?;
    choose_activation(&mut ask)?;
    choose_file(&mut ask, &config_path)?;

    make_folder(&workdir)?;
    let (text, companion) = describe_companion(&config_path, &workdir, &command, config_dir.as_deref())?;
    write(&config_path, &text)?;
    let state = &companion.config.state_dir;
    let before = if state.is_dir() { "  (there already: its queue and pointer go on)" } else { "" };
    fact("state", &format!("{}{before}", state.display()));
    fact("written", &config_path.display().to_string());
    // From now on the state folder is this companion's.
    companion.queue()?;
    println!();
    let healthy =
        crate::cli::doctor::run(&companion, &crate::cli::args::Doctor::default(), &Output { json: false })?;
    let shown = shown_config(&config_path);
    if healthy != ExitCode::SUCCESS {
        println!("\nA line says FAIL: mend that, then look again with\n  kael-runner{shown} doctor");
        return Ok(ExitCode::FAILURE);
    }
    if session.is_none()
        && let Some(current) = companion.pointer.read()?.session()
    {
        println!(
            "\nThe pointer names session {current} already, from before: the companion goes on with that."
        );
    }
    if let Some(session) = session {
        println!();
        adopt::run(&companion, session, &Output { json: false }).map_err(|error| CliError {
            kind: error.kind,
            message: format!(
                "the configuration is written, but the pointer is not set: {}. Then: kael-runner{shown} adopt {session}",
                error.message
            ),
        })?;
    }
    println!(
        "\nNext:\n  kael-runner{shown} run                     supervise it: a chat in a terminal, or a unit"
    );
    println!("  kael-runner{shown} send --wait 'Hello!'    from anywhere else");
    Ok(ExitCode::SUCCESS)
}

fn fact(name: &str, text: &str) {
    println!("{name:<12}{text}");
}

/// ` --config F` where the file is not found by itself.
fn shown_config(path: &Path) -> String {
    if standard_config().as_deref() == Some(path) {
        String::new()
    } else {
        format!(" --config {}", path.display())
    }
}

/// Where a configuration stands that needs no `--config`.
pub(crate) fn standard_config() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(folder.join("kael-runner/config.toml"))
}

fn config_path(options: &Options) -> Result<PathBuf, CliError> {
    let path = match &options.config {
        Some(path) => std::path::absolute(path)?,
        None => standard_config().ok_or_else(|| {
            CliError::new(ErrorKind::Usage, "HOME is not set: name the configuration's file with --config")
        })?,
    };
    if options.yes && path.exists() {
        return Err(CliError::refused(format!(
            "{} is there already, and --yes does not overwrite: look at it with `kael-runner --config {0} doctor`, or \
             name another file with --config, or move it away",
            path.display()
        )));
    }
    Ok(path)
}

/// The running `claude` whose command line is to be copied.
fn choose_running<'a>(
    ask: &mut Dialogue,
    running: &'a [Live],
    dir: Option<&Path>,
) -> Result<Option<&'a Live>, CliError> {
    let dir = dir.and_then(|dir| dir.canonicalize().ok());
    let here = |live: &&Live| dir.as_ref().is_none_or(|dir| live.workdir == *dir);
    let fitting: Vec<&Live> = running.iter().filter(here).collect();
    if fitting.is_empty() {
        fact("running", "no claude process of yours to copy the command line from");
        return Ok(None);
    }
    for (at, live) in fitting.iter().enumerate() {
        let place = live.workdir.display();
        println!("{:<12}{}  pid {} in {place}: {}", "running", at + 1, live.pid, live.arguments.join(" "));
    }
    // Without a human only the one that is in the folder named is certainly meant.
    let proposed = usize::from(fitting.len() == 1 && (dir.is_some() || !ask.silent()));
    let at = ask.number("Copy the command line of which one? (0: of none)", fitting.len(), proposed)?;
    Ok(at.checked_sub(1).and_then(|at| fitting.get(at).copied()))
}

fn choose_folder(ask: &mut Dialogue, options: &Options, chosen: Option<&Live>) -> Result<PathBuf, CliError> {
    let proposed = match (&options.dir, chosen) {
        (Some(dir), _) => dir.clone(),
        (None, Some(live)) => live.workdir.clone(),
        (None, None) => std::env::current_dir()?,
    };
    let text = if options.dir.is_some() {
        proposed.display().to_string()
    } else {
        ask.text("Folder the companion works in", &proposed.display().to_string())?
    };
    let folder = std::path::absolute(found::expand_home(&text))?;
    if folder.exists() && !folder.is_dir() {
        return Err(CliError::new(
            ErrorKind::Usage,
            format!("{} is not a folder: name another with --dir", folder.display()),
        ));
    }
    let note = if folder.exists() { "" } else { "  (will be made)" };
    fact("folder", &format!("{}{note}", folder.display()));
    Ok(folder)
}

fn command(options: &Options, cli: &found::Cli, copied: Option<&Copied>) -> Result<Vec<String>, CliError> {
    // A name is looked up anew for each turn, so that an update of the CLI is taken; a path was asked for.
    let program = match &options.claude {
        Some(path) => std::path::absolute(path)?.display().to_string(),
        None if cli.in_path => "claude".to_owned(),
        None => cli.path.display().to_string(),
    };
    let mut command = vec![program, "--resume".to_owned(), "{session_id}".to_owned()];
    command.extend(copied.into_iter().flat_map(|copied| copied.kept.iter().cloned()));
    Ok(command)
}

fn choose_session(
    ask: &mut Dialogue,
    options: &Options,
    workdir: &Path,
    config_dir: Option<&str>,
) -> Result<Option<SessionId>, CliError> {
    let env = |name: &str| match (name, config_dir) {
        ("CLAUDE_CONFIG_DIR", Some(dir)) => Some(dir.into()),
        _ => std::env::var_os(name),
    };
    let folder = project_dir::derive(workdir, &env).unwrap_or_default();
    let sessions = found::sessions(&folder);
    if let Some(wanted) = options.session {
        if sessions.iter().any(|session| session.id == wanted) {
            return Ok(Some(wanted));
        }
        return Err(CliError::refused(format!(
            "there is no session {wanted} in {}: nothing was written; leave --session out to see what there is",
            folder.display()
        )));
    }
    if sessions.is_empty() {
        fact("sessions", "none in this folder yet: the first message begins one");
        return Ok(None);
    }
    const SHOWN: usize = 9;
    for (at, session) in sessions.iter().take(SHOWN).enumerate() {
        println!("{:<12}{}  {}", "sessions", at + 1, describe(session));
    }
    if sessions.len() > SHOWN {
        println!("            and {} older ones (`adopt SESSION` takes any)", sessions.len() - SHOWN);
    }
    let most = sessions.len().min(SHOWN);
    let at = ask.number("Go on with which one? (0: begin a new conversation)", most, 0)?;
    if at == 0 && ask.silent() {
        println!(
            "            --yes begins a new conversation; name one of these with --session to go on with it"
        );
    }
    Ok(at.checked_sub(1).and_then(|at| sessions.get(at)).map(|session| session.id))
}

fn describe(session: &Session) -> String {
    let words = session.first_words.as_deref().unwrap_or("(nothing said)");
    format!("{}  {}  {:>9}  {words}", session.id, session.changed, bytes(session.size))
}

fn choose_activation(ask: &mut Dialogue) -> Result<(), CliError> {
    println!(
        "{:<12}pointer: the runner itself starts claude, once a turn, and between two turns the pointer may move on to \
         a clean session",
        "activation"
    );
    if ask.yes_or_no("Is that what you want?", true)? {
        return Ok(());
    }
    Err(CliError::refused(
        "nothing was written: for a claude that lives in tmux or in a systemd unit begin with examples/tmux.toml or \
         examples/systemd.toml; looking, planning and proving work there today, switching comes with a later release",
    ))
}

fn choose_file(ask: &mut Dialogue, path: &Path) -> Result<(), CliError> {
    if path.exists() {
        println!(
            "{:<12}{} is there already; it would be kept as {}",
            "file",
            path.display(),
            kept(path).display()
        );
        if ask.yes_or_no("Write a new one in its place?", false)? {
            return Ok(());
        }
        return Err(CliError::refused("nothing was written: name another file with --config to keep both"));
    }
    if ask.yes_or_no(&format!("Write {}?", path.display()), true)? {
        return Ok(());
    }
    Err(CliError::refused("nothing was written"))
}

/// The first free name for the configuration that was there.
fn kept(path: &Path) -> PathBuf {
    (1..)
        .map(|number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(if number == 1 { ".before".to_owned() } else { format!(".before-{number}") });
            PathBuf::from(name)
        })
        .find(|name| !name.exists())
        .unwrap_or_else(|| path.with_extension("before"))
}

fn make_folder(folder: &Path) -> Result<(), CliError> {
    std::fs::create_dir_all(folder).map_err(|error| {
        CliError::failed(format!(
            "could not make {}: {error}: make it yourself or name another with --dir; nothing was written",
            folder.display()
        ))
    })
}

/// The text of the configuration and the companion it describes, whose state folder no other companion has.
fn describe_companion(
    path: &Path,
    workdir: &Path,
    command: &[String],
    config_dir: Option<&str>,
) -> Result<(String, Companion), CliError> {
    let text = template::configuration(workdir, command, config_dir, None);
    let companion = parse(path, &text)?;
    if !companion.is_taken() {
        return Ok((text, companion));
    }
    let usual = companion.config.state_dir.as_os_str();
    for number in 2_u32.. {
        let mut dir = usual.to_owned();
        dir.push(format!("-{number}"));
        let text = template::configuration(workdir, command, config_dir, Some(Path::new(&dir)));
        let companion = parse(path, &text)?;
        if !companion.is_taken() {
            return Ok((text, companion));
        }
    }
    Err(CliError::failed(
        "every state folder is taken: write a configuration by hand and name one with state_dir",
    ))
}

fn parse(path: &Path, text: &str) -> Result<Companion, CliError> {
    let lookup = Lookup {
        explicit: Some(path.to_owned()),
        env: &|name| std::env::var_os(name),
        cwd: std::env::current_dir()?,
        called_as_original: false,
    };
    let parsed = config::parse(text, path, &lookup)
        .map_err(|error| CliError::from_error(ErrorKind::Configuration, &error))?;
    let config: Config = parsed
        .into_iter()
        .next()
        .ok_or_else(|| CliError::failed("the configuration to be written describes no companion"))?;
    Ok(Companion::new(config))
}

/// Writes the configuration; one that was there is kept beside it.
fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let disk = Disk::real();
    if let Some(folder) = path.parent() {
        disk.private_dir(folder)?;
    }
    if path.exists() {
        std::fs::rename(path, kept(path))?;
    }
    Ok(disk.create_new(path, text.as_bytes())?)
}
