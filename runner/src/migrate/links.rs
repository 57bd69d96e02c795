//! The original's names as links to this program.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use kael_core::disk::Disk;

use crate::cli::error::CliError;

/// Both of its commands.
const NAMES: [&str; 2] = ["kael-thread-rebuild", "kael-thread-rebuild-mcp"];

/// One link.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Link {
    /// Where it stands.
    pub path: PathBuf,
    /// It was made now.
    pub made: bool,
    /// Where the file is now that stood there.
    pub aside: Option<PathBuf>,
}

/// Makes the links in a folder. What stands there under these names stays, or with `replace` is moved aside.
///
/// # Errors
/// When something stands there: nothing was changed then. When a link cannot be made.
pub fn install(disk: &Disk, folder: &Path, program: &Path, replace: bool) -> Result<Vec<Link>, CliError> {
    let is_ours =
        |path: &Path| path.canonicalize().is_ok_and(|found| Some(found) == program.canonicalize().ok());
    let taken = NAMES
        .iter()
        .map(|name| folder.join(name))
        .find(|path| fs::symlink_metadata(path).is_ok() && !is_ours(path));
    if let Some(path) = taken.filter(|_| !replace) {
        return Err(CliError::refused(format!(
            "{} is there already: name another folder with --into, or move it aside with --replace; nothing was changed",
            path.display()
        )));
    }
    let mut links = Vec::new();
    for name in NAMES {
        let path = folder.join(name);
        if is_ours(&path) {
            links.push(Link { path, made: false, aside: None });
            continue;
        }
        let mut aside = None;
        if fs::symlink_metadata(&path).is_ok() {
            let free = (1..).map(|n: u32| folder.join(format!("{name}.before-{n}")));
            let free = free.into_iter().find(|path| fs::symlink_metadata(path).is_err());
            if let Some(free) = free {
                disk.rename(&path, &free)?;
                aside = Some(free);
            }
        }
        symlink(program, &path)
            .map_err(|error| CliError::failed(format!("could not make {}: {error}", path.display())))?;
        links.push(Link { path, made: true, aside });
    }
    disk.sync_dir(folder)?;
    Ok(links)
}
