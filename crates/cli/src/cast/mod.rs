//! `zerolane cast`: one source to many machines.

mod doors;
mod hosts;
mod plan;
mod racks;
mod receive;
mod shown;
mod source;
mod ssh;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;

/// Arguments of `zerolane cast`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = "\
Each host waits with `zerolane cast receive`. A host passes on what it receives, so that many take little longer than \
one; one that dies, lies or is slow is taken out of the way, one that comes late or again gets what it lacks. A file or \
directory whose name is that of a subcommand is ./plan or ./receive."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    cast: Option<source::CastArgs>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wait for a cast, and take part in it
    Receive(receive::Args),
    /// Say how long a cast would take by a star, a chain and trees, and which would be chosen
    Plan(plan::Args),
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> Result<()> {
    match (args.command, args.cast) {
        (Some(Command::Receive(args)), _) => receive::run(args),
        (Some(Command::Plan(args)), _) => plan::run(&args),
        (None, Some(args)) => source::run(args),
        (None, None) => Err(anyhow::anyhow!("nothing to cast").context(Exit::Usage)),
    }
}

/// What an error of a cast means for the exit code.
fn with_exit_code(error: zerolane_castnet::Error) -> anyhow::Error {
    use zerolane_castnet::Error;
    let exit = match &error {
        Error::Stopped => return Exit::Interrupted.into(),
        Error::Network(_) | Error::Stuck { .. } => Exit::Unreachable,
        Error::Dismissed(_) => Exit::Refused,
        Error::Racks(_) => Exit::Usage,
        _ => Exit::Failure,
    };
    anyhow::Error::new(error).context(exit)
}
