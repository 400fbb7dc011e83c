//! The command tree. Each module owns the arguments of its own commands; this file collects them and
//! runs one.

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::{files, keys, lab, mem};

/// Move data between machines: it lands once, in its final place.
#[derive(Debug, Parser)]
#[command(name = "zerolane", version, after_help = Exit::HELP)]
pub struct Args<C: Subcommand> {
    #[command(subcommand)]
    command: C,
}

impl<C: Subcommand> Args<C> {
    /// The main function of a program with the commands `C`: `run` does what its command line asks for. A failure is printed
    /// on standard error.
    pub fn main(run: impl FnOnce(C) -> Result<Exit>) -> Exit {
        Exit::after(run(Self::parse().command))
    }
}

/// The commands of this crate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory to `cp` and `ls`
    Serve(files::serve::Args),
    /// Copy files to or from a host that serves them
    Cp(files::copy::Args),
    /// List a directory of a host that serves it
    Ls(files::list::Args),
    /// Export memory to other hosts; read, write and count in theirs
    Mem(mem::Args),
    /// Make a key to be known by
    Keygen(keys::Args),
    /// Say which key you are known by
    Id(keys::Args),
    /// Run any program over an emulated network: delay, loss, rate and more
    Lab(lab::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// What failed, as a message; with an [`Exit`] attached where it is not [`Exit::Failure`].
    pub fn run(self) -> Result<Exit> {
        let done = match self {
            Command::Serve(args) => files::serve::run(args),
            Command::Cp(args) => files::copy::run(args),
            Command::Ls(args) => files::list::run(args),
            Command::Mem(args) => mem::run(args),
            Command::Keygen(args) => keys::generate(args),
            Command::Id(args) => keys::show(args),
            Command::Lab(args) => return lab::run(args),
        };
        done.map(|()| Exit::Success)
    }
}
