//! Implements `zerolane disk`: serves images as disks to other hosts, and uses theirs.
//!
//! | module | command |
//! |---|---|
//! | `serve` | `disk serve`: images and devices for others |
//! | `list` | `disk ls`: the disks of a host |
//! | `info`, `image` | `disk info`: what an image would be, or a disk is |
//! | `bench` | `disk bench`: how fast a disk is |
//! | `attach` | `disk attach`: the door for other programs, over NBD |
//! | `file` | `disk attach --file`: the door for programs that open files |
//! | `iscsi` | `disk attach --iscsi`: the door for iSCSI initiators |
//! | `remote` | the meaning of HOST/LUN; the queue to it |

mod attach;
mod bench;
mod file;
mod image;
mod info;
mod iscsi;
mod list;
mod remote;
mod serve;

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
    /// Serve images and block devices as disks of other hosts
    Serve(serve::Args),
    /// List the disks of a host that this key may see
    Ls(list::Args),
    /// Describe an image as a disk, or a disk of a host
    Info(info::Args),
    /// Measure the rate and latency of a disk of a host
    Bench(bench::Args),
    /// Show a disk of a host to local programs: as an NBD server on a UNIX socket, as a file, or over iSCSI
    Attach(attach::Args),
}

/// Runs `zerolane disk`.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Serve(args) => serve::run(args),
        Command::Ls(args) => list::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Attach(args) => attach::run(&args),
    }
}
