//! Implements `zerolane mem`: exports memory to other hosts, and accesses theirs.
//!
//! | module | command |
//! |---|---|
//! | `export` | `mem export`: makes a file or fresh memory reachable |
//! | `put`, `get` | `mem put`, `mem get`: bytes in and out of it |
//! | `count` | `mem fetch-add` |
//! | `place`, `remote` | the meaning of HOST and NAME@OFFSET; the connection to it |

mod count;
mod export;
mod get;
mod place;
mod put;
mod remote;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `zerolane mem`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let other hosts access a file or new memory under a name
    Export(export::Args),
    /// Write to a host's memory
    Put(put::Args),
    /// Read a host's memory
    Get(get::Args),
    /// Add to a number in a host's memory, and print the value before
    FetchAdd(count::Args),
}

/// Runs `zerolane mem`.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Export(args) => export::run(args),
        Command::Put(args) => put::run(&args),
        Command::Get(args) => get::run(&args),
        Command::FetchAdd(args) => count::run(&args),
    }
}
