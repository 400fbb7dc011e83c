//! Replaces ssh by a script that runs the remote command on this machine, in a separate home.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::lab::*;

/// The remote user's `home`, `local`, `keys` (which stays empty), and the script.
pub(crate) struct Login {
    base: tempfile::TempDir,
}

/// Runs the remote command.
const OBEY: &str = "exec sh -c \"exec $command\"";

impl Login {
    pub(crate) fn new() -> Login {
        Login::with(OBEY)
    }

    /// A script that records its arguments, changes to the home, and runs `script`, where `$command` is the remote
    /// command.
    pub(crate) fn with(script: &str) -> Login {
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in ["home", "local", "keys", "bin"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let own = Path::new(env!("CARGO_BIN_EXE_zerolane"));
        let head = format!(
            "base='{}'\n\
             {{ for word; do printf '%s|' \"$word\"; done; echo; }} >>\"$base/ran\"\n\
             while [ \"$1\" = -l ] || [ \"$1\" = -p ]; do shift 2; done\n\
             host=\"$1\"\n\
             shift\n\
             command=\"$*\"\n\
             cd \"$base/home\"\n\
             export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 2' PATH='{}':\"$PATH\"\n\
             echo $$ >>\"$base/pids\"\n",
            base.path().display(),
            own.parent().unwrap().display()
        );
        let login = Login { base };
        let shell = login.path("rsh");
        fs::write(&shell, format!("{head}{script}\n")).unwrap();
        login
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub(crate) fn there(&self, path: &str) -> String {
        format!("me@localhost:{path}")
    }

    /// Run by `sh`, because children of other tests may have the script open for writing, and then it cannot be
    /// executed.
    pub(crate) fn shell(&self) -> String {
        format!("sh '{}'", self.path("rsh").display())
    }

    /// `zerolane ARGUMENT... --rsh SCRIPT`, in the base directory.
    pub(crate) fn zerolane(&self, arguments: &[&str]) -> Command {
        let mut command = self.without_rsh(arguments);
        command.args(["--rsh", &self.shell()]);
        command
    }

    pub(crate) fn without_rsh(&self, arguments: &[&str]) -> Command {
        let mut command = zerolane();
        command
            .args(arguments)
            .current_dir(self.base.path())
            .env("ZEROLANE_HOME", self.path("keys"));
        command
    }

    /// The process IDs that the script's runs had.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let pids = fs::read_to_string(self.path("pids")).unwrap_or_default();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits until all of them have ended.
    pub(crate) fn all_ended(&self) {
        for pid in self.pids() {
            eventually("the other end ends", || (!runs(pid)).then_some(()));
        }
    }
}

/// Whether the process exists and is not a zombie.
fn runs(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
