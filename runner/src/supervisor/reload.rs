//! HUP: the configuration is read again, and what can change while the runner lives does.

use std::sync::Arc;

use kael_core::config::{self, Config, Lookup};

use crate::attach::Level;

use super::{Supervisor, notify};

impl Supervisor {
    /// Takes over policies, budgets, limits and the CLI's arguments. Where the companion's things are stays: that needs
    /// a new runner, and is said. A file that is wrong changes nothing.
    pub(super) fn reload(&mut self) {
        notify::reloading();
        let old = self.keeper.companion.config.clone();
        match read_again(&old) {
            Ok(new) => {
                let fixed = fixed(&old, &new);
                if !fixed.is_empty() {
                    let keys = fixed.join(", ");
                    let text = format!("these keys change only when the runner is started again: {keys}");
                    self.tell(Level::Warning, &text);
                }
                for warning in &new.warnings {
                    self.tell(Level::Warning, warning);
                }
                self.keeper.companion.config = Arc::new(merged(&old, new));
                self.tell(Level::Info, &format!("the configuration is read again: {}", old.path.display()));
            }
            Err(reason) => {
                self.tell(Level::Error, &format!("the configuration stays as it was: {reason}"));
            }
        }
        notify::ready();
    }
}

fn read_again(old: &Config) -> Result<Config, String> {
    let cwd = std::env::current_dir().map_err(|error| error.to_string())?;
    let lookup = Lookup {
        explicit: Some(old.path.clone()),
        env: &|name| std::env::var_os(name),
        cwd,
        called_as_original: old.original,
    };
    let all = config::load(&lookup).map_err(|error| kael_core::error_chain(&error))?;
    all.into_iter().find(|config| config.name == old.name).ok_or_else(|| {
        format!("the companion {:?} is not in it any more", old.name.as_deref().unwrap_or_default())
    })
}

/// The keys that differ and cannot be taken over.
fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    [
        ("activation", old.activation != new.activation),
        ("project_dir", old.project_dir != new.project_dir),
        ("state_dir", old.state_dir != new.state_dir),
        ("claude_workdir", old.claude_workdir != new.claude_workdir),
        ("resume_pointer_path", old.resume_pointer_path != new.resume_pointer_path),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}

fn merged(old: &Config, mut new: Config) -> Config {
    new.path.clone_from(&old.path);
    new.activation = old.activation;
    new.project_dir.clone_from(&old.project_dir);
    new.project_dir_given = old.project_dir_given;
    new.state_dir.clone_from(&old.state_dir);
    new.claude_workdir.clone_from(&old.claude_workdir);
    new.resume_pointer_path.clone_from(&old.resume_pointer_path);
    new
}
