//! Manual pages and completions, made from the definitions that read the command line. Whoever installs the program
//! makes them with it, so there is no second text that could differ. `zerolane-bench` does: it has all commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;

/// Arguments of `zerolane-bench generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where `man1`, `bash`, `zsh` and `fish` are made
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Completions for these, each in a directory of its own: all have one name for bash.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash"),
    (Shell::Zsh, "zsh"),
    (Shell::Fish, "fish"),
];

/// Writes what belongs to a program with the commands `C`.
///
/// # Errors
/// A file cannot be written.
pub fn run<C: Subcommand>(args: &Args) -> Result<()> {
    let pages = args.directory.join("man1");
    write(&pages, || {
        clap_mangen::generate_to(crate::Args::<C>::command(), &pages)
    })?;
    for (shell, name) in SHELLS {
        let directory = args.directory.join(name);
        write(&directory, || {
            let mut command = crate::Args::<C>::command();
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
