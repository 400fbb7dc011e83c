//! Compares Zerolane with the kernel's TCP and others on the same memory: `zerolane bench` and `zerolane demo`.
//!
//! | module | what it holds |
//! |---|---|
//! | `modes` | the benchmarks: arguments, jobs and reports of each |
//! | `demo` | a file copied by TCP and by Zerolane |
//! | `report` | figures from measurements, for programs and for people |
//! | `harness` | the orchestrator and its ends |
//! | `contender` | ways to do a job between two processes |
//! | `job` | the job of the two ends of a run |
//! | `measured` | an end's measurements |
//! | `content` | the content of buffers and messages |
//! | `costs` | unit costs |
//! | `cpu`, `limits` | pinning, CPU time, memcpy; every limit |
//!
//! Each uses only those below it.

#![forbid(unsafe_code)]

mod contender;
mod content;
mod costs;
mod cpu;
pub mod demo;
mod harness;
mod job;
mod limits;
mod measured;
mod modes;
mod report;

use anyhow::Result;
use clap::Subcommand;

use harness::{end, serve};
use modes::sweep::{loss, rtt};
use modes::{
    alltoall, blocks, bulk, chain, costs as unit_costs, curve, echo, fan, flows, handshake, incast,
    ladder, latency, model, operations, share, siege, speculation, stream,
};

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
    /// Throughput between two hosts for a given time, by interval, as iperf3 shows it
    Flows(flows::Args),
    /// Every source, sink and protocol, with CPU time
    Stream(stream::Args),
    /// Many to one, one to many, and both directions at once
    Fan(fan::Args),
    /// The cost of each overhead, removed one by one
    Ladder(ladder::Args),
    /// What predicting the place of payload brings, alone and without a second copy, and what errors cost
    Speculation(speculation::Args),
    /// Latency of messages by size and way of waiting, and where the time goes
    Latency(latency::Args),
    /// Goodput, latency and CPU time by message size
    Curve(curve::Args),
    /// Unit costs on this machine: copies, system calls, trains
    Costs(unit_costs::Args),
    /// Predictions for bulk and stream from unit costs, beside measurements
    Model(model::Args),
    /// Lossy links: every protocol over the same emulated link
    Loss(loss::Args),
    /// Long links: every protocol over the same emulated link
    Rtt(rtt::Args),
    /// Several senders to one receiver behind a shallow queue
    Incast(incast::Args),
    /// Data along a chain of nodes, with and without copies, and what a model predicts
    Chain(chain::Args),
    /// One Zerolane and one TCP flow on one bottleneck
    Share(share::Args),
    /// Time to set up and close connections
    Handshake(handshake::Args),
    /// Requests per second of many connections to a single-threaded server
    Echo(echo::Args),
    /// Blocks from every rank to every other
    Alltoall(alltoall::Args),
    /// Scattered blocks by vectored puts, with few and many notifications
    Blocks(blocks::Args),
    /// A transfer while its server is flooded and its connection gets garbage
    Siege(siege::Args),
    /// Serve `bench flows --to`, `bench bulk --to` and the like on another machine
    Serve(serve::Args),
    #[command(flatten)]
    Operations(operations::Command),
    /// One end of a run; started by the others
    #[command(hide = true)]
    End(end::Args),
}

/// Runs `zerolane bench`.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Bulk(args) => bulk::run(&args),
        Command::Flows(args) => flows::run(&args),
        Command::Stream(args) => stream::run(&args),
        Command::Fan(args) => fan::run(&args),
        Command::Ladder(args) => ladder::run(&args),
        Command::Speculation(args) => speculation::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Curve(args) => curve::run(&args),
        Command::Costs(args) => unit_costs::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Loss(args) => loss::run(&args),
        Command::Rtt(args) => rtt::run(&args),
        Command::Incast(args) => incast::run(&args),
        Command::Chain(args) => chain::run(&args),
        Command::Share(args) => share::run(&args),
        Command::Handshake(args) => handshake::run(&args),
        Command::Echo(args) => echo::run(&args),
        Command::Alltoall(args) => alltoall::run(&args),
        Command::Blocks(args) => blocks::run(&args),
        Command::Siege(args) => siege::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Operations(command) => operations::run(command),
        Command::End(args) => end::run(args),
    }
}
