//! A real systemd manager of a user, in a mount namespace and a control group of its own: nothing of this machine's
//! systemd is seen or touched.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::process::{Outcome, Running};
use crate::support::sandbox::Sandbox;
use crate::support::{PATIENCE, wait_until};

/// The manager; stopped with everything in it when dropped.
pub struct Manager {
    holder: Running,
    group: String,
}

/// Said before every command of the manager.
const RUNTIME: &str = "/run/user/0";

impl Manager {
    /// Starts it; its units are those in the sandbox's home. None, said loudly, where this is not possible.
    pub fn start(sandbox: &Sandbox, path: &str) -> Option<Self> {
        fs::create_dir_all(sandbox.home().join(".config/systemd/user")).unwrap();
        let group = format!("kael-test-{}", uuid::Uuid::new_v4().as_simple());
        // The manager takes the control group it is started in for the root of its own.
        let script = format!(
            "set -e; mount -t tmpfs -o mode=0755 tmpfs /run; mkdir -p /run/systemd/system {RUNTIME}; chmod 700 {RUNTIME}\n\
             for base in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -f $base/cgroup.procs ] || continue\n\
             mkdir $base/{group}; echo $$ > $base/{group}/cgroup.procs; break; done\n\
             exec systemd --user --log-target=console --log-level=notice"
        );
        let mut command = sandbox.command("unshare");
        command
            .args(["-m", "--propagation", "private", "sh", "-c", &script])
            .env("XDG_RUNTIME_DIR", RUNTIME)
            .env("PATH", path);
        let manager = Self { holder: Running::spawn(&mut command), group };
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while std::time::Instant::now() < until {
            let state = manager.systemctl(sandbox, &["is-system-running"]);
            if state.lines.iter().any(|line| ["running", "degraded", "starting"].contains(&line.as_str())) {
                return Some(manager);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let missing =
            "a systemd manager cannot be started here (systemd, unshare -m, a writable cgroup2 are needed)";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
        eprintln!("SKIPPED: {missing}");
        None
    }

    /// A command that sees the manager.
    pub fn inside(&self, sandbox: &Sandbox, program: &str, arguments: &[&str]) -> Command {
        let mut command = sandbox.command("nsenter");
        command
            .env("XDG_RUNTIME_DIR", RUNTIME)
            .args(["-t", &self.holder.pid().as_raw_nonzero().to_string(), "-m", "--"])
            .arg(program)
            .args(arguments);
        command
    }

    pub fn systemctl(&self, sandbox: &Sandbox, arguments: &[&str]) -> Outcome {
        let mut command = self.inside(sandbox, "systemctl", &[&["--user"], arguments].concat());
        Running::spawn(&mut command).wait(PATIENCE)
    }

    /// A property of a unit.
    pub fn show(&self, sandbox: &Sandbox, unit: &str, property: &str) -> String {
        let shown = self.systemctl(sandbox, &["show", "--value", "-p", property, unit]);
        shown.lines.join("\n")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for base in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            let group = std::path::Path::new(base).join(&self.group);
            if !group.exists() {
                continue;
            }
            // Everything that the manager has started, it included.
            fs::write(group.join("cgroup.kill"), "1").ok();
            wait_until("the control group is empty", || {
                fs::read_to_string(group.join("cgroup.events")).is_ok_and(|text| text.contains("populated 0"))
            });
            remove_groups(&group);
        }
    }
}

fn remove_groups(group: &std::path::Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    fs::remove_dir(group).ok();
}
