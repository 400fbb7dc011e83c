//! Implements `zerolane cast`: sends one source to many hosts.

mod admission;
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
Each host waits with `zerolane cast receive`. Hosts pass on what they receive, so many hosts take little longer than \
one. The cast works around a host that dies, lies or is slow, and a host that comes late gets what it lacks. Write a file or \
directory called plan or receive as ./plan or ./receive."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    cast: Option<source::CastArgs>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wait for a cast and receive it
    Receive(receive::Args),
    /// Estimate how long a cast takes by a star, a chain and trees, and say which would be chosen
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

/// Attaches an exit code to an error of a cast.
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
