//! Runs `zerolane bench bulk`: memory to memory.

use anyhow::{Context, Result};
use bytesize::ByteSize;
use serde::Serialize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{EndsArgs, LaneArgs, ManyPaths, Rounds, size};
use crate::harness::link::{Link, Offloads};
use crate::harness::machine::Machine;
use crate::harness::runs::{Run, order};
use crate::job::name::Name;
use crate::job::settings::{Protection, TcpTuning};
use crate::job::{Job, Laps, Work};
use crate::report::comparison::{self, Comparison, gbps};
use crate::report::{self, Report};

/// Arguments of `zerolane bench bulk`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("mtu", |mtu| mtu.conflicts_with("to")))]
#[command(mut_arg("links", |links| links.requires("to")))]
pub(crate) struct Args {
    /// Memory at each end, sent repeatedly
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    buffer: ByteSize,
    /// Bytes that one run moves, rounded up to whole buffers
    #[arg(long, default_value = "8GiB", value_name = "SIZE")]
    bytes: ByteSize,
    /// Offloads of the veth between the two namespaces [default: on]
    #[arg(long, conflicts_with = "to")]
    offloads: Option<Offloads>,
    /// Measure only these, separated by commas [default: zerolane, tcp, tcp_splice; if Zerolane encrypts,
    /// zerolane_plain, tls and quinn as well]
    #[arg(long, value_name = "CONTENDERS", value_delimiter = ',', value_parser = Name::among(&CONTENDERS))]
    only: Vec<Name>,
    /// Protection of Zerolane's connection; the default is also that of the library
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    ends: EndsArgs,
    #[command(flatten)]
    lane: LaneArgs,
    #[command(flatten)]
    paths: ManyPaths,
    #[command(flatten)]
    tcp: TcpArgs,
}

/// In the order of the first round: those whose ratio matters most are neighbours.
const CONTENDERS: [Name; 8] = [
    Name::Zerolane,
    Name::Tcp,
    Name::Unix,
    Name::TcpSplice,
    Name::TcpSendfile,
    Name::ZerolanePlain,
    Name::Tls,
    Name::Quinn,
];
/// Measured unless `--only` names others: what moves plain bytes, and what is compared with a Zerolane that encrypts.
const USUAL: [Name; 3] = [Name::Zerolane, Name::Tcp, Name::TcpSplice];
const USUAL_ENCRYPTED: [Name; 3] = [Name::ZerolanePlain, Name::Tls, Name::Quinn];

/// Tuning of TCP. `contender::tcp` lists what was tried.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tuning of TCP (the defaults are the best found)")]
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

/// The method, as text; part of every report.
const METHOD: &str = "One buffer is sent repeatedly from memory to memory. Sender and receiver are processes, each \
     pinned to its own core. The contenders take turns (A B .. B A) on the same buffers. Goodput: payload bytes in \
     place, divided by the receiver's time from the start signal, sent once connected, to the last byte. CPU: \
     getrusage of the process plus its core's ksoftirqd over the same time; 1 GB is 1e9 bytes. Content: sampled words \
     are checked during the run, equally for all contenders, and every word of the last lap after it. TCP by splice \
     and by sendfile sends memory that never changes.";

/// The report of `bench bulk`; `--json` prints it unchanged.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct BulkReport {
    #[serde(flatten)]
    comparison: Comparison,
    /// Every byte of the last lap and the sampled words of all laps were right.
    verified: bool,
    /// Zerolane's goodput over one core's memcpy.
    memcpy_fraction: Option<f64>,
    #[serde(flatten)]
    setup: Setup,
}

/// What was measured, where and how.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Setup {
    method: &'static str,
    /// Protection of Zerolane's connection, in `zerolane`. TCP has none, TLS and quinn encrypt by AES-128-GCM.
    security: Protection,
    /// The path between the ends, in words.
    path: String,
    sender: Machine,
    receiver: Machine,
    /// Congestion control of the TCP that TCP's and TLS's runs sent by.
    tcp_congestion: String,
    buffer_bytes: u64,
    bytes_per_run: u64,
    reps: u32,
    /// MTU of the path; `None` where it was not set.
    mtu: Option<u32>,
    offloads: &'static str,
    /// One core copying such a buffer to another, at the receiver.
    memcpy_gbps: f64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let laps = laps(args)?;
    let job = Job {
        security: args.security,
        lane: args.lane.lane,
        bypass: args.lane.bypass,
        tcp: tuning(&args.tcp)?,
        ..Job::of(Work::Laps(laps))
    };
    job.check().context(Exit::Usage)?;
    report::present(args.ends.place.json, |interrupt| {
        measure(args, laps, &job, interrupt)
    })
}

/// The transfer that the command line requests.
fn laps(args: &Args) -> Result<Laps> {
    let buffer = size(args.buffer)?;
    Ok(Laps {
        buffer,
        laps: args.bytes.as_u64().div_ceil(buffer.max(1) as u64),
        seed: args.ends.seed()?,
    })
}

fn tuning(args: &TcpArgs) -> Result<TcpTuning> {
    Ok(TcpTuning {
        send_bytes: size(args.tcp_send)?,
        recv_bytes: size(args.tcp_recv)?,
        send_buffer: args.tcp_sndbuf.map(size).transpose()?,
        recv_buffer: args.tcp_rcvbuf.map(size).transpose()?,
        wait_all: args.tcp_wait_all,
        congestion: args.tcp_congestion.clone(),
    })
}

/// The contenders: with an encrypting Zerolane also a plain one and other encrypting ones.
fn contenders(args: &Args) -> Vec<Name> {
    match (args.only.is_empty(), args.security) {
        (false, _) => args.only.clone(),
        (true, Protection::Plain | Protection::Authenticated) => USUAL.to_vec(),
        (true, Protection::Encrypted | Protection::Aes128Gcm) => [USUAL, USUAL_ENCRYPTED].concat(),
    }
}

fn measure(args: &Args, laps: Laps, job: &Job, interrupt: &Interrupt) -> Result<BulkReport> {
    let (mut ends, links) = args
        .paths
        .start(args.lane, &args.ends, args.offloads, interrupt)?;
    let job = &Job {
        links,
        path_threads: args.paths.has_threads(),
        ..job.clone()
    };
    let [sender, receiver] = ends.greet()?;
    let (contenders, mut runs) = (contenders(args), Vec::new());
    for index in 0..args.rounds.reps {
        for contender in order(&contenders, index) {
            let run = ends.run(contender, job)?;
            let (pair, name, speed) = (index + 1, contender.title(), gbps(&run));
            console::note(format_args!("pair {pair}: {name} {speed:.1} Gb/s"));
            runs.push(run);
        }
    }
    let (path, mtu) = args.lane.path(&args.ends, &ends);
    let tcp_congestion = job.tcp.congestion.as_ref();
    let setup = Setup {
        method: METHOD,
        tcp_congestion: tcp_congestion.unwrap_or(&sender.tcp_baseline).clone(),
        security: job.security,
        path,
        sender,
        receiver,
        buffer_bytes: laps.buffer as u64,
        bytes_per_run: laps.bytes(),
        reps: args.rounds.reps,
        mtu,
        offloads: match ends.link().is_some_and(Link::is_shaped) {
            true => args.offloads.unwrap_or_default().name(),
            false => "unchanged",
        },
        memcpy_gbps: ends.memcpy(laps.buffer)?,
    };
    Ok(BulkReport::of(setup, &runs))
}

impl BulkReport {
    /// The report of verified runs, in the order they were run.
    fn of(setup: Setup, runs: &[Run]) -> BulkReport {
        let comparison = Comparison::of(runs);
        let zerolane = comparison.zerolane.as_ref();
        let memcpy_fraction = zerolane.map(|figures| figures.gbps.median / setup.memcpy_gbps);
        BulkReport {
            setup,
            verified: true,
            memcpy_fraction,
            comparison,
        }
    }

    /// The facts outside the table.
    fn facts(&self) -> String {
        let compared = &self.comparison;
        let ratio = |of: Name, ratio: Option<f64>| {
            ratio.map(|it| format!("Zerolane / {}: {it:.2} (median of pairs)", of.title()))
        };
        let stronger = compared.stronger_tcp().map(|(name, over)| {
            let over = over.map_or_else(String::new, |it| format!(", Zerolane / it: {it:.2}"));
            format!("best TCP: {}{over}", name.title())
        });
        let plain = compared.plain_ratio_vs_tcp;
        let cpu = compared.cpu_ratio_vs_tcp;
        let placed = compared.placed_fraction;
        let tcps = [&compared.tcp, &compared.tcp_splice, &compared.tcp_sendfile];
        let with_tcp = tcps.into_iter().chain([&compared.tls]).flatten().next();
        let facts = [
            ratio(Name::Tcp, compared.ratio_vs_tcp),
            ratio(Name::Unix, compared.ratio_vs_unix),
            stronger,
            plain.map(|ratio| format!("Zerolane plain / TCP: {ratio:.2}")),
            ratio(Name::Tls, compared.ratio_vs_tls),
            ratio(Name::Quinn, compared.ratio_vs_quinn),
            cpu.map(|ratio| format!("CPU, both ends: {ratio:.2} of TCP's")),
            placed.map(|fraction| format!("placed directly: {:.3} %", fraction * 1e2)),
            compared
                .drops
                .map(|drops| format!("packets dropped: {drops}")),
            with_tcp.map(|_| format!("TCP with {}", self.setup.tcp_congestion)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        facts.join("; ")
    }
}

impl Report for BulkReport {
    /// One table, and the facts around it.
    fn text(&self) -> String {
        let setup = &self.setup;
        let cipher = self.comparison.cipher.as_ref();
        let cipher = cipher.map_or_else(String::new, |it| format!(" ({it})"));
        format!(
            "{}\n{}\n{}, MTU {}, offloads {}, {} MiB buffers, {} runs of {:.1} GB; one core's \
             memcpy: {:.1} Gb/s; Zerolane {}{cipher}; payload verified.",
            comparison::contenders(&self.comparison),
            self.facts(),
            setup.path,
            report::mtu(setup.mtu),
            setup.offloads,
            setup.buffer_bytes >> 20,
            setup.reps,
            setup.bytes_per_run as f64 / 1e9,
            setup.memcpy_gbps,
            setup.security.name(),
        )
    }
}
