//! `zerolane bench`: Zerolane against the kernel's TCP, on the same memory.
//!
//! | module | what it does |
//! |---|---|
//! | `orchestrate` | which run follows which, who is told what |
//! | `end` | one end of a run, in a process of its own |
//! | `peer` | the orchestrator's handle to an end |
//! | `protocol`, `channel`, `limits` | what they say, how, and how much at most |
//! | `mover`, `tcp` | what carries the bytes |
//! | `pattern` | what the bytes are |
//! | `cpu` | pinning, CPU time, memcpy |
//! | `link`, `hosts` | the two hosts, and an end on each |
//! | `report`, `table` | figures from measurements; for people |
//! | `perftest` | latencies, rates and bandwidths, in perftest's words |
//! | `serve` | an end for other machines |

mod bulk;
pub(crate) mod channel;
pub(crate) mod cpu;
mod end;
mod hosts;
mod limits;
pub(crate) mod link;
mod mover;
pub(crate) mod orchestrate;
pub(crate) mod pattern;
pub(crate) mod peer;
mod perftest;
pub(crate) mod protocol;
pub(crate) mod report;
mod serve;
pub(crate) mod table;
pub(crate) mod tcp;
mod watchdog;
mod zl;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `zerolane bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Memory to memory: the same buffers over Zerolane and over TCP
    Bulk(bulk::Args),
    /// Be the receiving machine of `bench bulk --to`
    Serve(serve::Args),
    #[command(flatten)]
    Perftest(perftest::Command),
    /// One end of a run; started by the others
    #[command(hide = true)]
    End(end::Args),
}

/// Runs `zerolane bench`.
pub(crate) fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Bulk(args) => bulk::run(args),
        Command::Serve(args) => serve::run(&args),
        Command::Perftest(command) => perftest::run(command),
        Command::End(args) => end::run(args),
    }
}
