//! Defines the command tree, and runs the chosen command. Each module owns the arguments of its own commands.

use std::sync::Arc;

use anyhow::Result;
use clap::{Parser, Subcommand};
use nix::libc::SIGXFSZ;

use crate::exit::Exit;
use crate::{
    cast, config, disk, doctor, explain, files, forward, keys, lab, lanes, mem, run, trace, tunnel,
};

/// Move data between machines: it lands once, in its final place.
#[derive(Debug, Parser)]
#[command(name = "zerolane", version, after_help = Exit::HELP)]
pub struct Args<C: Subcommand> {
    #[command(subcommand)]
    command: C,
}

impl<C: Subcommand> Args<C> {
    /// Runs the main function of a program with the commands `C`: parses the command line, calls `run`, and prints a
    /// failure on standard error.
    pub fn main(run: impl FnOnce(C) -> Result<Exit>) -> Exit {
        // The default action of the signal would end the process without a message when a file reaches `ulimit -f`.
        // With a handler, the write fails as on a full disk.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
        Exit::after(run(Self::parse().command))
    }
}

/// The commands of this crate.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory to `cp` and `ls`
    Serve(files::serve::Args),
    /// Copy files to or from a host, or within this one
    Cp(files::copy::Args),
    /// Make a directory equal to another one, on a host or on this one
    Sync(files::sync::Args),
    /// Send files to someone on the same network who knows a code
    Send(files::send::Args),
    /// Receive what someone sends, by the code
    Receive(files::receive::Args),
    /// Send a file, directory or stream to many hosts in little more than the time of one, and receive it
    Cast(cast::Args),
    /// List files and directories of a host that serves them
    Ls(files::list::Args),
    /// Remove files and directories of a host that serves them
    Rm(files::change::RemoveArgs),
    /// Make directories on a host
    Mkdir(files::change::MakeArgs),
    /// Rename a file or directory of a host, or move it into another directory there
    Mv(files::change::MoveArgs),
    /// Export memory to other hosts; read, write and count in theirs
    Mem(mem::Args),
    /// Serve images as disks of other hosts; open, list and measure theirs
    Disk(disk::Args),
    /// Forward TCP connections and UNIX sockets to or from another host
    Forward(forward::Args),
    /// Run any program, and carry its TCP connections to hosts that do the same
    Run(run::Args),
    /// List the connections of a program that `run` runs
    Sockets(run::sockets::Args),
    /// Make a network interface whose packets travel to other hosts, as wg-quick does
    Up(tunnel::UpArgs),
    /// Remove an interface of `up`
    Down(tunnel::DownArgs),
    /// Show the interfaces of `up`, their peers and their traffic
    Show(tunnel::ShowArgs),
    /// Make the key that identifies you
    Keygen(keys::Args),
    /// Print the public half of your key
    Id(keys::Args),
    /// List, add and remove the keys that may connect here, and forget servers
    Keys(keys::lists::Args),
    /// Print what the configuration files set, and where
    Config(config::shown::Args),
    /// Find problems on this machine, or on the way to a host, and print what fixes them
    Doctor(doctor::Args),
    /// Say which lane a connection to a host would use, and why not another
    Lanes(lanes::Args),
    /// Run any program over an emulated network: delay, loss, rate and more
    Lab(lab::Args),
    /// Measure how often a receiver's predictions would have held for recorded traffic
    Trace(trace::Args),
    /// Show where the CPU time, copies and packets of any program go
    Explain(explain::Args),
    /// Copy from here to another host, as ordered by the machine that started this by a login
    #[command(name = files::between::SUBCOMMAND, hide = true)]
    Between,
    /// End the programs of a lab that was killed
    #[command(name = lab::guard::SUBCOMMAND, hide = true)]
    LabGuard(lab::guard::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// A message that says what failed, with an [`Exit`] attached if it is not [`Exit::Failure`].
    pub fn run(self) -> Result<Exit> {
        let done = match self {
            Command::Serve(args) => return files::serve::run(args),
            Command::Cp(args) => return files::copy::run(args),
            Command::Sync(args) => return files::sync::run(args),
            Command::Send(args) => files::send::run(args),
            Command::Receive(args) => files::receive::run(args),
            Command::Forward(args) => forward::run(args),
            Command::Run(args) => return run::run(args),
            Command::Sockets(args) => run::sockets::run(args),
            Command::Cast(args) => cast::run(args),
            Command::Up(args) => return tunnel::up(args),
            Command::Down(args) => tunnel::down(args),
            Command::Show(args) => tunnel::show(args),
            Command::Ls(args) => files::list::run(args),
            Command::Rm(args) => files::change::remove(args),
            Command::Mkdir(args) => files::change::make(args),
            Command::Mv(args) => files::change::rename(args),
            Command::Mem(args) => mem::run(args),
            Command::Disk(args) => disk::run(args),
            Command::Keygen(args) => keys::generate(args),
            Command::Id(args) => keys::show(args),
            Command::Keys(args) => keys::lists::run(args),
            Command::Config(args) => config::shown::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Lanes(args) => lanes::run(args),
            Command::Lab(args) => return lab::run(args),
            Command::Trace(args) => trace::run(args),
            Command::Explain(args) => return explain::run(args),
            Command::Between => return files::ordered::serve(),
            Command::LabGuard(args) => lab::guard::run(args),
        };
        done.map(|()| Exit::Success)
    }
}
