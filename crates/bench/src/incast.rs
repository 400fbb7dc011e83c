//! `bench incast`: several senders to one receiver behind a shallow queue.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::figures::{NetworkFigures, mbps};
use super::flow::contender::Contender;
use super::flow::stage::{Group, Outcome, Stage};
use super::protocol::Protection;
use super::sweep::LinkBenchArgs;
use super::sweep_table::{jitter, percent, print, table};
use zerolane_cli::console;
use zerolane_cli::exit::Exit;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab::link::bottleneck;
use zerolane_cli::lab::units::{self, Queue};

/// Arguments of `zerolane bench incast`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many send at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=32))]
    senders: u8,
    /// What waits before the receiver's port: packets, bytes, or bdp
    #[arg(long, default_value = "64", value_name = "LIMIT")]
    queue: Queue,
    /// Round trip
    #[arg(long, default_value = "200us", value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    #[command(flatten)]
    common: LinkBenchArgs,
}

/// Most memory of all flows together at one end, bytes.
const MEMORY_BYTES: usize = 512 << 20;

const USUAL_TIME: Duration = Duration::from_secs(30);

/// Everything `bench incast` says; `--json` prints it as it is.
#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    senders: u8,
    rate_bits_per_s: u64,
    interface_bits_per_s: u64,
    rtt_ms: f64,
    seconds: f64,
    /// Of Zerolane's connections.
    security: Protection,
    verified: bool,
    results: Vec<Figures>,
}

/// How the senders of one contender fared.
#[derive(Debug, Serialize)]
struct Figures {
    contender: Contender,
    aggregate_mbps: f64,
    link_fraction: f64,
    /// Smallest and largest part of one sender, of an equal share.
    least_of_share: f64,
    most_of_share: f64,
    sender_mbps: Vec<f64>,
    /// Frames towards the receiver that found the queue full, of all sent to it.
    queue_loss_fraction: f64,
    resent_fraction: f64,
    network: NetworkFigures,
    failure: Option<String>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let interrupt = Interrupt::install()?;
    let report = interrupt.explain(measure(args, &interrupt))?;
    print(&report, args.common.json, text)
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<Report> {
    let (common, senders) = (&args.common, usize::from(args.senders));
    let mut terms = common.terms(USUAL_TIME)?;
    terms.buffer = terms.buffer.min(MEMORY_BYTES / senders);
    // As fast as the port: packets of one sender come no faster than a wire
    // brings them, and the queue is for those of several.
    let interface = common.interface_rate.unwrap_or(common.rate);
    let stage = Stage::set_up(senders, common.mtu, Some(interface), common.seed, interrupt)?;
    let link = bottleneck(common.rate, args.rtt, args.queue);
    stage.set_links(link, link);
    let mut results = Vec::new();
    for contender in common.contenders() {
        let group = Group {
            contender,
            senders: (1..=senders).collect(),
        };
        let outcome = stage.run(&[group], terms);
        interrupt.check()?;
        let figures = Figures::of(contender, outcome, common.rate)?;
        console::note(format_args!(
            "{}: {:.1} Mb/s together",
            contender.name(),
            figures.aggregate_mbps
        ));
        results.push(figures);
    }
    Ok(Report {
        bench: "incast",
        senders: args.senders,
        rate_bits_per_s: common.rate,
        interface_bits_per_s: interface,
        rtt_ms: args.rtt.as_secs_f64() * 1e3,
        seconds: terms.time.as_secs_f64(),
        security: terms.security,
        verified: true,
        results,
    })
}

impl Figures {
    /// A contender that gives up gets nothing through; wrong bytes end everything.
    fn of(contender: Contender, outcome: Result<Outcome>, rate: u64) -> Result<Figures> {
        let (outcome, failure) = match outcome {
            Ok(outcome) => (Some(outcome), None),
            Err(error) if Exit::of(&error) == Exit::Corrupt => return Err(error),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let flows = outcome.as_ref().map_or(&[][..], |it| &it.flows);
        let sender_mbps: Vec<f64> = flows.iter().map(mbps).collect();
        let aggregate: f64 = sender_mbps.iter().sum();
        let share = aggregate / sender_mbps.len().max(1) as f64;
        let of_share = |mbps: f64| if share > 0.0 { mbps / share } else { 0.0 };
        let bytes: u64 = flows.iter().map(|flow| flow.arrived.bytes).sum();
        let resent: u64 = flows.iter().map(|flow| flow.sent.resent_bytes).sum();
        let port = outcome.as_ref().map(|it| it.network.towards[0]);
        let fraction = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        ensure!(failure.is_some() || !sender_mbps.is_empty(), "no flows");
        Ok(Figures {
            contender,
            aggregate_mbps: aggregate,
            link_fraction: aggregate * 1e6 / rate as f64,
            least_of_share: of_share(sender_mbps.iter().copied().fold(f64::INFINITY, f64::min)),
            most_of_share: of_share(sender_mbps.iter().copied().fold(0.0, f64::max)),
            sender_mbps,
            queue_loss_fraction: port.map_or(0.0, |it| fraction(it.queue_dropped, it.sent)),
            resent_fraction: fraction(resent, bytes),
            network: NetworkFigures::of(outcome.iter().map(|it| &it.network)),
            failure,
        })
    }
}

fn text(report: &Report) -> String {
    let header = [
        "who",
        "Mb/s together",
        "% of link",
        "least, of a share",
        "most, of a share",
        "queue full",
        "sent again",
        "jitter: median, 99 %",
    ];
    let mut table = table(header, 1);
    for it in &report.results {
        table.add_row([
            it.contender.name().to_owned(),
            format!("{:.1}", it.aggregate_mbps),
            percent(Some(it.link_fraction), 1),
            percent(Some(it.least_of_share), 0),
            percent(Some(it.most_of_share), 0),
            percent(Some(it.queue_loss_fraction), 3),
            percent(Some(it.resent_fraction), 3),
            jitter(&it.network),
        ]);
    }
    let failures = report.results.iter().filter_map(|it| {
        let why = it.failure.as_ref()?;
        Some(format!("failed: {}: {why}\n", it.contender.name()))
    });
    format!(
        "{table}\n{}{} senders to one receiver, {} s; port {:.0} Mb/s, senders' interfaces {:.0} \
         Mb/s; Zerolane {}; payload verified.",
        failures.collect::<String>(),
        report.senders,
        report.seconds,
        report.rate_bits_per_s as f64 / 1e6,
        report.interface_bits_per_s as f64 / 1e6,
        report.security.name(),
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::flow::job::{Arrived, Sent};
    use crate::flow::stage::Flow;
    use netlab::lab::{LabStats, Lateness};
    use netsim::link::LinkStats;

    fn flow(bytes: u64) -> Flow {
        Flow {
            contender: Contender::Extended,
            arrived: Arrived {
                bytes,
                seconds: 1.0,
                ..Arrived::default()
            },
            sent: Sent::default(),
        }
    }

    #[test]
    fn Figures__shares_are_of_an_equal_part() {
        let port = LinkStats {
            sent: 1000,
            queue_dropped: 5,
            ..LinkStats::default()
        };
        let outcome = Outcome {
            flows: vec![flow(1_000_000), flow(3_000_000)],
            network: LabStats {
                towards: vec![port, LinkStats::default()],
                missed: 0,
                overflowed: 0,
                unsent: 0,
                lateness: Lateness::default(),
            },
        };
        let figures = Figures::of(Contender::Extended, Ok(outcome), 64_000_000).unwrap();
        assert_eq!(figures.aggregate_mbps, 32.0);
        assert_eq!(figures.link_fraction, 0.5);
        assert_eq!((figures.least_of_share, figures.most_of_share), (0.5, 1.5));
        assert_eq!(figures.queue_loss_fraction, 0.005);
    }
}
