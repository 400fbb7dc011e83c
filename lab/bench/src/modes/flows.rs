//! Runs `bench flows`: throughput between two hosts in a given time, by interval, as users of iperf3 know it.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytesize::ByteSize;
use serde::Serialize;
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;

use super::arguments::{EndsArgs, LaneArgs, ManyPaths, seconds, size};
use crate::harness::machine::Machine;
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::job::{Flows, Job, Work};
use crate::report::intervals::{Assembly, Interval, Span};
use crate::report::{self, Report};

/// Arguments of `zerolane bench flows`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("mtu", |mtu| mtu.conflicts_with("to")))]
#[command(mut_arg("links", |links| links.requires("to")))]
pub(crate) struct Args {
    /// How long the flows last
    #[arg(long, short, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    time: Duration,
    /// Number of simultaneous flows, each on its own core while there are enough
    #[arg(long, short = 'P', default_value_t = 1, value_name = "N")]
    parallel: usize,
    /// Let the other end send, and measure here
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Time between two lines
    #[arg(long, short, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    interval: Duration,
    /// Memory at each end of each flow, sent repeatedly
    #[arg(long, default_value = "16MiB", value_name = "SIZE")]
    buffer: ByteSize,
    /// What carries the flows
    #[arg(long, default_value = "zerolane", value_name = "CONTENDER", value_parser = Name::among(&CONTENDERS))]
    contender: Name,
    /// Protection of Zerolane's connections; the default is also that of the library
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    #[command(flatten)]
    ends: EndsArgs,
    #[command(flatten)]
    lane: LaneArgs,
    #[command(flatten)]
    paths: ManyPaths,
}

/// Those that can flow for a time.
const CONTENDERS: [Name; 7] = [
    Name::Zerolane,
    Name::ZerolanePlain,
    Name::Tcp,
    Name::Classic,
    Name::Extended,
    Name::Cubic,
    Name::Bbr,
];

/// The report of `bench flows`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct FlowsReport {
    bench: &'static str,
    contender: Name,
    /// Of Zerolane's connections, and what sealed their payload.
    security: Protection,
    cipher: Option<String>,
    /// The path between the ends, in words.
    path: String,
    /// Its MTU; `None` where it was not set.
    mtu: Option<u32>,
    sender: Machine,
    receiver: Machine,
    reverse: bool,
    buffer_bytes: u64,
    /// Every word of every piece that was complete was right.
    verified: bool,
    intervals: Vec<Interval>,
    /// The whole time, flow by flow and together.
    flows: Vec<Span>,
    sum: Span,
    /// Payload that came by each path of Zerolane's connection, where there are several.
    path_bytes: Vec<u64>,
    /// Payload sent again; TCP's as the sender's kernel counts for all its connections.
    resent_bytes: u64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let flows = flows(args)?;
    let job = Job {
        security: args.security,
        lane: args.lane.lane,
        bypass: args.lane.bypass,
        ..Job::of(Work::Flows(flows))
    };
    job.check().context(Exit::Usage)?;
    if args.paths.is_several() && args.parallel > 1 {
        let words =
            "only a single flow can use several paths: leave out --parallel, or --paths and --path";
        return Err(anyhow!(words).context(Exit::Usage));
    }
    report::present(args.ends.place.json, |interrupt| {
        measure(args, flows, &job, interrupt)
    })
}

fn flows(args: &Args) -> Result<Flows> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).context(Exit::Usage);
    Ok(Flows {
        buffer: size(args.buffer)?,
        initiators: 1,
        parallel: args.parallel,
        reverse: args.reverse,
        millis: millis(args.time)?,
        sample_millis: millis(args.interval)?,
        live: !args.ends.place.json,
        seed: args.ends.seed()?,
    })
}

fn measure(args: &Args, flows: Flows, job: &Job, interrupt: &Interrupt) -> Result<FlowsReport> {
    let (mut ends, links) = args.paths.start(args.lane, &args.ends, None, interrupt)?;
    let job = &Job {
        links,
        path_threads: args.paths.has_threads(),
        ..job.clone()
    };
    let [mut sender, mut receiver] = ends.greet()?;
    if flows.reverse {
        std::mem::swap(&mut sender, &mut receiver);
    }
    let mut assembly = Assembly::new(flows, flows.parallel);
    ends.begin(args.contender, job)?;
    let runs = ends.finish(&mut |flow, bytes| match assembly.tell(flow, bytes)? {
        Some(interval) => console::say(interval.text()),
        None => Ok(()),
    })?;
    let (path, mtu) = args.lane.path(&args.ends, &ends);
    let whole = Interval::whole(&runs);
    Ok(FlowsReport {
        bench: "flows",
        contender: args.contender,
        security: args.security,
        cipher: runs.iter().find_map(|run| run.rx.cipher.clone()),
        path,
        mtu,
        sender,
        receiver,
        reverse: flows.reverse,
        buffer_bytes: flows.buffer as u64,
        verified: true,
        intervals: Interval::all(&flows, &runs)?,
        flows: whole.flows,
        sum: whole.sum,
        path_bytes: runs
            .iter()
            .flat_map(|run| run.rx.path_bytes.iter().copied())
            .collect(),
        resent_bytes: runs.iter().map(|run| run.tx.resent_bytes).sum(),
    })
}

impl Report for FlowsReport {
    /// What comes behind the intervals, which were shown while it flowed.
    fn text(&self) -> String {
        let whole = Interval {
            flows: self.flows.clone(),
            sum: self.sum,
        };
        let sealed = self.cipher.as_ref();
        let sealed = sealed.map_or_else(String::new, |it| format!(", encrypted with {it}"));
        let direction = match self.reverse {
            true => ", in reverse",
            false => "",
        };
        let size = |bytes: &u64| ByteSize(*bytes).display().si().to_string();
        let paths = match self.path_bytes.as_slice() {
            [] => String::new(),
            by => {
                let by: Vec<String> = by.iter().map(size).collect();
                format!("; by path: {}", by.join(", "))
            }
        };
        format!(
            "- - - - - - - - - - - - - - - - - - - - - - - - - - -\n{}\n{}{sealed}{direction}; {}, MTU {}; \
             retransmitted: {}{paths}; counted at the receiver; payload verified.",
            whole.text(),
            self.contender.title(),
            self.path,
            report::mtu(self.mtu),
            size(&self.resent_bytes),
        )
    }
}
