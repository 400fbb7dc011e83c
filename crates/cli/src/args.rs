//! The command tree. Each room owns the arguments of its own commands; this
//! file only hangs them up.

use clap::{Parser, Subcommand};

use crate::exit::Exit;

/// Move data between machines: it lands once, in its final place.
#[derive(Debug, Parser)]
#[command(name = "zerolane", version, after_help = Exit::HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory to `cp` and `ls`
    Serve(crate::files::serve::Args),
    /// Copy files to or from a host that serves them
    Cp(crate::files::copy::Args),
    /// List a directory of a host that serves it
    Ls(crate::files::list::Args),
    /// Export memory to other hosts; read, write and count in theirs
    Mem(crate::mem::Args),
    /// Make a key to be known by
    Keygen(crate::keys::Args),
    /// Say which key you are known by
    Id(crate::keys::Args),
    /// Copy a real file over TCP and over Zerolane, and compare
    Demo(crate::demo::Args),
    /// Measure Zerolane against the kernel's TCP
    Bench(crate::bench::Args),
    /// Run any program over an emulated network: delay, loss, rate and more
    Lab(crate::lab::Args),
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn Args__is_a_consistent_command_tree() {
        Args::command().debug_assert();
    }
}
