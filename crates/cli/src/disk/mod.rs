//! `zerolane disk`: images as disks of other hosts.

mod image;
mod info;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `zerolane disk`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what an image would be as a disk: size, holes, identity, and what initiators are told
    Info(info::Args),
}

/// Runs `zerolane disk`.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Info(args) => info::run(&args),
    }
}
