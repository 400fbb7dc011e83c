//! Ends the programs of a lab that is killed.

use std::io::{Read, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio, id};

use anyhow::{Context, Result};
use netlab::netns;

/// The hidden subcommand that runs the guard.
pub(crate) const SUBCOMMAND: &str = "lab-guard";

/// Arguments of the guard.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process ID of the lab
    lab: u32,
}

/// A process that waits for the end of the lab. A lab's programs are children of `ip` and of shells, in namespaces that
/// outlive the lab, so the kernel's parent-death signal does not reach them all.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the guard. Call this before there is anything to guard.
    pub(crate) fn start() -> Result<Guard> {
        let program = std::env::current_exe().context("finding this program")?;
        let child = Command::new(program)
            .args([SUBCOMMAND, &id().to_string()])
            // The kernel closes this whenever the lab's process ends. No child of the lab inherits the pipe.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals from a terminal or shell to the lab must not reach the guard.
            .process_group(0)
            .spawn();
        Ok(Guard(child.context("starting the lab's guard")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The guard finds nothing left to end.
        let _ = self.0.wait();
    }
}

/// Waits for the end of the lab, and removes what is left of it.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut rest = Vec::new();
    stdin()
        .read_to_end(&mut rest)
        .context("waiting for the lab")?;
    netns::remove_all_of(args.lab).context("removing what the lab left")
}
