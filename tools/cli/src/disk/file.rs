//! Implements `zerolane disk attach --file`: shows the disk as a file by `nbdfuse` of libnbd.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::console;
use anyhow::{Context, Result, bail};

/// How long `nbdfuse` may take until the disk is visible.
const PATIENCE: Duration = Duration::from_secs(30);

/// Poll interval for the end of `nbdfuse` and for a stop.
const LOOK: Duration = Duration::from_millis(50);

/// The file in which `nbdfuse` shows the disk. Dropping this removes the file.
pub(super) struct Shown {
    path: PathBuf,
    child: Child,
}

impl Shown {
    /// Starts `nbdfuse` for the NBD server at `uri`, which need not answer yet.
    ///
    /// # Errors
    /// `path` exists, or `nbdfuse` cannot be started.
    pub(super) fn start(path: &Path, uri: &str, read_only: bool) -> Result<Shown> {
        File::create_new(path).with_context(|| format!("cannot make {}", path.display()))?;
        let mut command = Command::new("nbdfuse");
        if read_only {
            command.arg("--readonly");
        }
        command.arg(path).arg(uri).stdin(Stdio::null());
        // Ctrl-C must reach only this process, which ends `nbdfuse` after everything is written.
        let child = command.process_group(0).spawn();
        let child = child.inspect_err(|_| drop(fs::remove_file(path)));
        let child = child.context(
            "cannot start nbdfuse, which shows the disk as a file (Debian's package libnbd-bin)",
        )?;
        let path = path.to_owned();
        Ok(Shown { path, child })
    }

    /// Prints the path when the disk is visible, and waits until the user unmounts it or `stopped` returns true.
    ///
    /// # Errors
    /// `nbdfuse` does not show a disk of `bytes` bytes.
    pub(super) fn until_stopped(mut self, bytes: u64, stopped: impl Fn() -> bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !stopped() && fs::metadata(&self.path).map_or(0, |it| it.len()) != bytes {
            if let Some(status) = self.child.try_wait()? {
                bail!("nbdfuse does not show the disk: {status}");
            }
            if Instant::now() > until {
                bail!("nbdfuse does not show the disk");
            }
            std::thread::sleep(LOOK);
        }
        if !stopped() {
            console::say(self.path.display())?;
        }
        while !stopped() && self.child.try_wait()?.is_none() {
            std::thread::sleep(LOOK);
        }
        self.unmount();
        self.child.wait().context("waiting for nbdfuse")?;
        Ok(())
    }

    /// Unmounts the file lazily: programs that have it open keep it until they close it.
    fn unmount(&mut self) {
        let ended = |it: &mut Child| it.try_wait().is_ok_and(|it| it.is_some());
        if ended(&mut self.child) || fusermount(&self.path, &["-u"]) {
            return;
        }
        console::note(format_args!(
            "{} is open: waiting until it is closed, or for another Ctrl-C",
            self.path.display()
        ));
        if !fusermount(&self.path, &["-u", "-z"]) {
            let _ = self.child.kill();
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|it| it.is_none()) {
            fusermount(&self.path, &["-u", "-z"]);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether `fusermount3` unmounted `path`.
fn fusermount(path: &Path, words: &[&str]) -> bool {
    let mut command = Command::new("fusermount3");
    command.args(words).arg(path);
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|it| it.success())
}
