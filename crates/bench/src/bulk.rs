//! `zerolane bench bulk`: from the command line to a plan, and back to a report.

use anyhow::{Context, Result, bail};
use bytesize::ByteSize;

use super::limits::REPS_MAX;
use super::link::{Host, Link, Offloads};
use super::mover::Token;
use super::orchestrate::{Ends, Plan, RunResult};
use super::peer::Peer;
use super::protocol::{Memory, Mover, Payload, Protection, TcpTuning, run_bytes};
use super::report::{METHOD, Report, Setup, gbps};
use super::{cpu, hosts, table};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

/// Arguments of `zerolane bench bulk`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The memory at each end, sent over and over
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    buffer: ByteSize,
    /// What one run moves, rounded up to whole buffers
    #[arg(long, default_value = "8GiB", value_name = "SIZE")]
    bytes: ByteSize,
    /// Runs of each mover
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(REPS_MAX)))]
    reps: u32,
    /// Measure to the machine where `zerolane bench serve` runs
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["mtu", "offloads"])]
    to: Option<String>,
    /// MTU of the veth between the two namespaces [default: 1500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: Option<u32>,
    /// Offloads of that veth [default: on]
    #[arg(long)]
    offloads: Option<Offloads>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Measure only these movers, separated by commas [default: tcp and zerolane; if Zerolane encrypts,
    /// tls and quinn as well]
    #[arg(long, value_name = "MOVERS", value_delimiter = ',')]
    only: Vec<Mover>,
    /// Core of the sender
    #[arg(long, default_value_t = 0)]
    tx_core: usize,
    /// Core of the receiver, where this command starts it [default: 1, or 0 if it is the only one]
    #[arg(long)]
    rx_core: Option<usize>,
    /// Protection of Zerolane's connection
    #[arg(long, default_value = "plain", value_name = "MODE")]
    security: Protection,
    /// Seed of the payload [default: a fresh one]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    tcp: TcpArgs,
}

/// How TCP is used; what was tried stands in [`super::tcp`].
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TCP's tuning (the defaults are the best that was found)")]
struct TcpArgs {
    /// Most bytes handed to one send
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    tcp_send: ByteSize,
    /// Most bytes asked of one recv
    #[arg(long, default_value = "1MiB", value_name = "SIZE")]
    tcp_recv: ByteSize,
    /// SO_SNDBUF [default: the kernel's autotuning]
    #[arg(long, value_name = "SIZE")]
    tcp_sndbuf: Option<ByteSize>,
    /// SO_RCVBUF [default: the kernel's autotuning]
    #[arg(long, value_name = "SIZE")]
    tcp_rcvbuf: Option<ByteSize>,
    /// Receive with MSG_WAITALL
    #[arg(long)]
    tcp_wait_all: bool,
    /// Congestion control [default: cubic, or the system's default where this user may not choose cubic]
    #[arg(long, value_name = "NAME")]
    tcp_congestion: Option<String>,
}

/// Measures and prints.
pub(crate) fn run(args: Args) -> Result<()> {
    let (memory, plan) = plan(&args)?;
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(measure(&args, memory, &plan, &interrupt))?;
    if args.json {
        console::say(serde_json::to_string_pretty(&report)?)
    } else {
        console::say(table::bulk(&report))
    }
}

/// What the command line asks for.
fn plan(args: &Args) -> Result<(Memory, Plan)> {
    let size = |size: ByteSize| usize::try_from(size.as_u64()).context(Exit::Usage);
    let memory = Memory {
        buffer: size(args.buffer)?,
        seed: args
            .seed
            .map_or_else(|| Token::new().map(|token| token.0), Ok)?,
    };
    memory.check().context(Exit::Usage)?;
    let tcp = TcpTuning {
        send_bytes: size(args.tcp.tcp_send)?,
        recv_bytes: size(args.tcp.tcp_recv)?,
        send_buffer: args.tcp.tcp_sndbuf.map(size).transpose()?,
        recv_buffer: args.tcp.tcp_rcvbuf.map(size).transpose()?,
        wait_all: args.tcp.tcp_wait_all,
        congestion: args.tcp.tcp_congestion.clone(),
    };
    tcp.check().context(Exit::Usage)?;
    let laps = args.bytes.as_u64().div_ceil(args.buffer.as_u64());
    run_bytes(laps, memory.buffer).context(Exit::Usage)?;
    let plan = Plan {
        payload: Payload::Laps(laps),
        movers: movers(args),
        tcp,
        security: args.security,
    };
    Ok((memory, plan))
}

/// What is measured: beside a Zerolane that encrypts also what else encrypts.
fn movers(args: &Args) -> Vec<Mover> {
    match (args.only.is_empty(), args.security) {
        (false, _) => args.only.clone(),
        (true, Protection::Plain | Protection::Authenticated) => {
            vec![Mover::Tcp, Mover::Zerolane]
        }
        (true, Protection::Encrypted | Protection::Aes128Gcm) => {
            vec![Mover::Tcp, Mover::Tls, Mover::Quinn, Mover::Zerolane]
        }
    }
}

fn measure(args: &Args, memory: Memory, plan: &Plan, interrupt: &Interrupt) -> Result<Report> {
    // Declared first, dropped last: the namespaces outlive their processes.
    let link = if args.to.is_none() {
        Some(hosts::link(args.mtu, args.offloads)?)
    } else {
        None
    };
    let mut ends = ends(args, link.as_ref(), interrupt)?;
    let sender = ends.sender.greet()?;
    let receiver = ends.receiver.greet().context(Exit::Unreachable)?;
    ends.prepare(memory)?;
    let mut runs = Vec::new();
    for index in 0..args.reps {
        runs.extend(ends.pair(plan, index, |run| {
            let (pair, speed) = (index + 1, gbps(run));
            console::note(format_args!("pair {pair}: {:?} {speed:.1} Gb/s", run.mover));
            Ok(())
        })?);
    }
    let memcpy_gbps = ends.receiver.memcpy()?;
    let shaped = link.as_ref().is_some_and(Link::is_shaped);
    let tcp_congestion = args.tcp.tcp_congestion.as_ref();
    let tcp_congestion = tcp_congestion.unwrap_or(&sender.tcp_baseline).clone();
    let setup = Setup {
        method: METHOD,
        tcp_congestion,
        security: args.security,
        path: link
            .as_ref()
            .map_or("between two machines", Link::describe)
            .to_owned(),
        sender,
        receiver,
        buffer_bytes: memory.buffer as u64,
        bytes_per_run: runs.first().map_or(0, |run: &RunResult| run.rx.bytes),
        reps: args.reps,
        mtu: shaped.then(|| args.mtu.unwrap_or(hosts::MTU)),
        offloads: if shaped {
            args.offloads.unwrap_or_default().name()
        } else {
            "as they are"
        },
        memcpy_gbps,
    };
    Ok(Report::of(setup, &runs))
}

fn ends(args: &Args, link: Option<&Link>, interrupt: &Interrupt) -> Result<Ends> {
    let here = Link::loopback();
    let sender = hosts::end(link.unwrap_or(&here), Host::Sender, args.tx_core, interrupt)?;
    let (receiver, receiver_address) = match (link, &args.to) {
        (Some(link), _) => {
            let core = cpu::of_other_end(args.rx_core);
            let receiver = hosts::end(link, Host::Receiver, core, interrupt)?;
            (receiver, link.address(Host::Receiver))
        }
        (None, Some(to)) => {
            let address = hosts::resolve(to)?;
            (Peer::connect("receiver", address)?, address.ip())
        }
        (None, None) => bail!("neither a link nor a host to measure to"),
    };
    Ok(Ends {
        sender,
        receiver,
        receiver_address,
    })
}
