//! Runs `bench incast`: several senders to one receiver behind a shallow queue.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab::link::bottleneck;
use zerolane_cli::units::{self, Queue};

use super::arguments::LinkArgs;
use crate::harness::failure::is_giving_up;
use crate::harness::network::{Group, Outcome};
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::report::flows::{LeftOut, NetworkFigures, mbps, resent_fraction};
use crate::report::{self, Report, percent, table};

/// Arguments of `zerolane bench incast`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of simultaneous senders
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=32))]
    senders: u8,
    /// Queue in front of the receiver's port: packets, bytes, or bdp
    #[arg(long, default_value = "64", value_name = "LIMIT")]
    queue: Queue,
    /// Round trip
    #[arg(long, default_value = "200us", value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    #[command(flatten)]
    common: LinkArgs,
}

/// Most memory of all flows together at one end, bytes.
const MEMORY_BYTES: usize = 512 << 20;

const USUAL_TIME: Duration = Duration::from_secs(30);

/// The report of `bench incast`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct IncastReport {
    bench: &'static str,
    senders: u8,
    rate_bits_per_s: u64,
    interface_bits_per_s: u64,
    rtt_ms: f64,
    seconds: f64,
    /// Of Zerolane's connections.
    security: Protection,
    verified: bool,
    /// What this machine cannot run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
    results: Vec<Figures>,
}

/// How the senders of one contender fared.
#[derive(Debug, Serialize)]
struct Figures {
    contender: Name,
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
    report::present(args.common.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<IncastReport> {
    let (common, senders) = (&args.common, usize::from(args.senders));
    let mut flows = common.flows(USUAL_TIME)?;
    flows.buffer = flows.buffer.min(MEMORY_BYTES / senders);
    // As fast as the port: packets of one sender come no faster than a wire
    // brings them, and the queue is for those of several.
    let interface = common.interface_rate.unwrap_or(common.rate);
    let network = common.network(senders, Some(interface), interrupt)?;
    let link = bottleneck(common.rate, args.rtt, args.queue);
    network.set_links(link, link);
    flows.initiators = senders;
    let (contenders, left_out) = network.able(&common.contenders(), flows)?;
    let mut results = Vec::new();
    for contender in contenders {
        let group = Group {
            contender,
            senders: (1..=senders).collect(),
        };
        let outcome = network.run(&[group], flows);
        interrupt.check()?;
        network.check()?;
        let figures = Figures::of(contender, outcome, common.rate)?;
        console::note(format_args!(
            "{}: {:.1} Mb/s in total",
            contender.title(),
            figures.aggregate_mbps
        ));
        results.push(figures);
    }
    Ok(IncastReport {
        bench: "incast",
        senders: args.senders,
        rate_bits_per_s: common.rate,
        interface_bits_per_s: interface,
        rtt_ms: args.rtt.as_secs_f64() * 1e3,
        seconds: flows.time().as_secs_f64(),
        security: common.security,
        verified: true,
        left_out: LeftOut::all(left_out),
        results,
    })
}

impl Figures {
    /// A contender that gives up delivers nothing; wrong bytes, or a failure outside the contender, end the benchmark.
    fn of(contender: Name, outcome: Result<Outcome>, rate: u64) -> Result<Figures> {
        let (outcome, failure) = match outcome {
            Ok(outcome) => (Some(outcome), None),
            Err(error) if is_giving_up(&error) => (None, Some(format!("{error:#}"))),
            Err(error) => return Err(error),
        };
        let flows = outcome.as_ref().map_or(&[][..], |it| &it.runs);
        let sender_mbps: Vec<f64> = flows.iter().map(mbps).collect();
        let aggregate: f64 = sender_mbps.iter().sum();
        let share = aggregate / sender_mbps.len().max(1) as f64;
        let of_share = |mbps: f64| if share > 0.0 { mbps / share } else { 0.0 };
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
            resent_fraction: resent_fraction(flows),
            network: NetworkFigures::of(outcome.iter().map(|it| &it.network)),
            failure,
        })
    }
}

impl Report for IncastReport {
    fn text(&self) -> String {
        let header = [
            "contender",
            "Mb/s in total",
            "% of link",
            "lowest share",
            "highest share",
            "queue full",
            "retransmitted",
            "jitter: median, 99 %",
        ];
        let mut table = table(header, 1);
        for it in &self.results {
            table.add_row([
                it.contender.title().to_owned(),
                format!("{:.1}", it.aggregate_mbps),
                percent(Some(it.link_fraction), 1),
                percent(Some(it.least_of_share), 0),
                percent(Some(it.most_of_share), 0),
                percent(Some(it.queue_loss_fraction), 3),
                percent(Some(it.resent_fraction), 3),
                it.network.added_jitter_us.text(),
            ]);
        }
        let failures = self.results.iter().filter_map(|it| {
            let why = it.failure.as_ref()?;
            Some(format!("failed: {}: {why}\n", it.contender.title()))
        });
        let left_out = self.left_out.iter().map(|it| format!("{it}\n"));
        format!(
            "{table}\n{}{}{} senders to one receiver, {} s; port {:.0} Mb/s, senders' interfaces {:.0} \
             Mb/s; Zerolane {}; payload verified.",
            left_out.collect::<String>(),
            failures.collect::<String>(),
            self.senders,
            self.seconds,
            self.rate_bits_per_s as f64 / 1e6,
            self.interface_bits_per_s as f64 / 1e6,
            self.security.name(),
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::harness::failure::{Failure, said};
    use crate::harness::runs::Run;
    use crate::measured::Measured;
    use netlab::lab::{LabStats, Lateness};
    use netsim::link::LinkStats;

    fn flow(bytes: u64) -> Run {
        Run {
            contender: Name::Extended,
            rx: Measured {
                bytes,
                seconds: 1.0,
                ..Measured::default()
            },
            tx: Measured::default(),
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
            runs: vec![flow(1_000_000), flow(3_000_000)],
            network: LabStats {
                towards: vec![port, LinkStats::default()],
                missed: 0,
                overflowed: 0,
                unsent: 0,
                lateness: Lateness::default(),
            },
        };
        let figures = Figures::of(Name::Extended, Ok(outcome), 64_000_000).unwrap();
        assert_eq!(figures.aggregate_mbps, 32.0);
        assert_eq!(figures.link_fraction, 0.5);
        assert_eq!((figures.least_of_share, figures.most_of_share), (0.5, 1.5));
        assert_eq!(figures.queue_loss_fraction, 0.005);
    }

    #[test]
    fn Figures__giving_up_is_nothing_through_and_another_failure_is_no_figure() {
        let figures = |failure| {
            let failed = said("why".into(), failure);
            Figures::of(Name::Extended, Err(failed), 64_000_000)
        };
        let gave_up = figures(Failure::GaveUp).unwrap();
        assert_eq!(gave_up.aggregate_mbps, 0.0);
        assert_eq!(gave_up.failure.as_deref(), Some("why"));
        assert!(figures(Failure::Other).is_err() && figures(Failure::Corrupt).is_err());
    }
}
