//! `zerolane cast`: one source to many machines. For now it plans and simulates.

mod plan;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `zerolane cast`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say how long a cast would take by a star, a chain and trees, and which would be chosen
    Plan(plan::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Plan(args) => plan::run(args),
    }
}
