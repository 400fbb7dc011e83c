//! What ends the programs of a lab that is killed.

use std::io::{Read, stdin};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio, id};

use anyhow::{Context, Result};
use netlab::netns;

/// Its subcommand, which is no user's.
pub(crate) const SUBCOMMAND: &str = "lab-guard";

/// Arguments of the guard.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process that has the lab
    lab: u32,
}

/// A process of its own, which waits for the end of this one. A lab's programs are children of `ip` and of shells, in
/// namespaces that outlive their maker: no signal of the kernel's at the death of a parent reaches them all.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// To be started before there is anything to guard.
    pub(crate) fn start() -> Result<Guard> {
        let program = std::env::current_exe().context("finding this program")?;
        let child = Command::new(program)
            .args([SUBCOMMAND, &id().to_string()])
            // Closed by the kernel when this process ends, however it does: no child of it has the pipe.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What a terminal, or a shell, does to the lab is not done to it.
            .process_group(0)
            .spawn();
        Ok(Guard(child.context("starting the lab's guard")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It finds nothing left to do.
        let _ = self.0.wait();
    }
}

/// Waits for the end of the lab, and removes what it could not.
pub(crate) fn run(args: Args) -> Result<()> {
    let mut rest = Vec::new();
    stdin()
        .read_to_end(&mut rest)
        .context("waiting for the lab")?;
    netns::remove_all_of(args.lab).context("removing what the lab left")
}
