//! `zerolane bench`: Zerolane against the kernel's TCP, on the same memory.
//!
//! | module | what it does |
//! |---|---|
//! | `orchestrate` | which run follows which, who is told what |
//! | `end` | one end of a run, in a process of its own |
//! | `peer` | the orchestrator's handle to an end |
//! | `protocol`, `channel`, `limits` | what they say, how, and how much at most |
//! | `mover`, `tcp`, `tls`, `quic`, `zl` | what carries the bytes |
//! | `certificate` | TLS's settings for those that need it |
//! | `pattern` | what the bytes are |
//! | `cpu` | pinning, CPU time, memcpy |
//! | `link`, `hosts` | the two hosts, and an end on each |
//! | `report`, `table` | figures from measurements; for people |
//! | `perftest` | latencies, rates and bandwidths, in perftest's words |
//! | `serve` | an end for other machines |
//! | `flow` | flows for a given time over an emulated link |
//! | `sweep`, `figures`, `sweep_table`, `thesis` | such flows over one link after the other, and what came of them |
//! | `loss`, `rtt` | which links |
//! | `handshake` | connections set up and torn down |
//! | `siege` | a transfer under attack |
//! | `incast`, `share` | several flows at the same time |

mod bulk;
mod certificate;
mod channel;
mod congestion;
mod cpu;
pub mod demo;
mod end;
mod figures;
mod flow;
mod handshake;
mod hosts;
mod incast;
mod limits;
mod link;
mod loss;
mod mover;
mod orchestrate;
mod pattern;
mod peer;
mod perftest;
mod protocol;
mod quic;
mod report;
mod rtt;
mod serve;
mod share;
mod siege;
mod sweep;
mod sweep_table;
mod table;
mod tcp;
mod thesis;
mod tls;
mod watchdog;
mod zl;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `zerolane bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Memory to memory: the same buffers over Zerolane and over TCP
    Bulk(bulk::Args),
    /// Lossy links: every protocol over the same emulated link
    Loss(loss::Args),
    /// Long links: every protocol over the same emulated link
    Rtt(rtt::Args),
    /// Several senders to one receiver behind a shallow queue
    Incast(incast::Args),
    /// One Zerolane and one TCP flow on one bottleneck
    Share(share::Args),
    /// Connections set up and torn down: how long it takes
    Handshake(handshake::Args),
    /// A transfer while its server is flooded, and while it is pelted with garbage itself
    Siege(siege::Args),
    /// Be the receiving machine of `bench bulk --to`
    Serve(serve::Args),
    #[command(flatten)]
    Perftest(perftest::Command),
    /// One end of a run; started by the others
    #[command(hide = true)]
    End(end::Args),
}

/// Runs `zerolane bench`.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Bulk(args) => bulk::run(args),
        Command::Loss(args) => loss::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Incast(args) => incast::run(&args),
        Command::Share(args) => share::run(&args),
        Command::Handshake(args) => handshake::run(&args),
        Command::Siege(args) => siege::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Perftest(command) => perftest::run(command),
        Command::End(args) => end::run(args),
    }
}
