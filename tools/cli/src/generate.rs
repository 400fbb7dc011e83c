//! Generates manual pages and completions from the definitions that parse the command line. The build runs
//! `zerolane-bench generate`, which knows all commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;

use crate::commands;

/// Arguments of `zerolane-bench generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to make the directories `man1`, `bash`, `zsh` and `fish`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Shells with completions, and a directory for each. For bash all files have the same name.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash"),
    (Shell::Zsh, "zsh"),
    (Shell::Fish, "fish"),
];

/// Writes the manual pages and completions of a program with the commands `C`.
///
/// # Errors
/// A file cannot be written.
pub fn run<C: Subcommand>(args: &Args) -> Result<()> {
    let pages = args.directory.join("man1");
    write(&pages, || {
        clap_mangen::generate_to(commands::Args::<C>::command(), &pages)
    })?;
    for (shell, name) in SHELLS {
        let directory = args.directory.join(name);
        write(&directory, || {
            let mut command = commands::Args::<C>::command();
            clap_complete::generate_to(shell, &mut command, "zerolane", &directory).map(drop)
        })?;
    }
    Ok(())
}

fn write(directory: &Path, files: impl FnOnce() -> io::Result<()>) -> Result<()> {
    fs::create_dir_all(directory)
        .and_then(|()| files())
        .with_context(|| format!("writing to {}", directory.display()))
}
