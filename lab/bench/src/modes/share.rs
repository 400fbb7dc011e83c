//! Runs `bench share`: one Zerolane and one TCP flow on one bottleneck.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab::link::bottleneck;
use zerolane_cli::units::{self, Queue};

use super::arguments::LinkArgs;
use crate::harness::network::Group;
use crate::harness::runs::Run;
use crate::job::Flows;
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::report::flows::{NetworkFigures, mbps, resent_fraction};
use crate::report::{self, Report, percent, table};

/// Arguments of `zerolane bench share`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Round trip
    #[arg(long, default_value = "10ms", value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    /// Queue of the bottleneck: packets, bytes, or bdp
    #[arg(long, default_value = "bdp", value_name = "LIMIT")]
    queue: Queue,
    #[command(flatten)]
    common: LinkArgs,
}

const USUAL_TIME: Duration = Duration::from_secs(60);

/// The contenders unless `--only` names others.
const USUAL: [Name; 2] = [Name::Extended, Name::Cubic];

/// The report of `bench share`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct ShareReport {
    bench: &'static str,
    rate_bits_per_s: u64,
    rtt_ms: f64,
    seconds: f64,
    sample_seconds: f64,
    /// Of Zerolane's flow.
    security: Protection,
    verified: bool,
    flows: Vec<Figures>,
    network: NetworkFigures,
}

/// How one of the flows fared.
#[derive(Debug, Serialize)]
struct Figures {
    contender: Name,
    mbps: f64,
    link_fraction: f64,
    resent_fraction: f64,
    /// In each part of the time.
    mbps_over_time: Vec<f64>,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.common.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<ShareReport> {
    let common = &args.common;
    let flows = common.flows(USUAL_TIME)?;
    let contenders = match common.only.is_empty() {
        true => USUAL.to_vec(),
        false => common.only.clone(),
    };
    let network = common.network(contenders.len(), common.interface_rate, interrupt)?;
    let link = bottleneck(common.rate, args.rtt, args.queue);
    network.set_links(link, link);
    let groups: Vec<Group> = contenders
        .into_iter()
        .zip(1..)
        .map(|(contender, host)| Group {
            contender,
            senders: vec![host],
        })
        .collect();
    let outcome = network.run(&groups, flows);
    network.check()?;
    let outcome = outcome?;
    let runs = outcome.runs.iter();
    Ok(ShareReport {
        bench: "share",
        rate_bits_per_s: common.rate,
        rtt_ms: args.rtt.as_secs_f64() * 1e3,
        seconds: flows.time().as_secs_f64(),
        sample_seconds: flows.sample_time().as_secs_f64(),
        security: common.security,
        verified: true,
        flows: runs
            .map(|flow| Figures::of(flow, common.rate, &flows))
            .collect(),
        network: NetworkFigures::of([&outcome.network]),
    })
}

impl Figures {
    fn of(flow: &Run, rate: u64, flows: &Flows) -> Figures {
        let over_time = flow.rx.samples.iter().zip(0..);
        Figures {
            contender: flow.contender,
            mbps: mbps(flow),
            link_fraction: mbps(flow) * 1e6 / rate as f64,
            resent_fraction: resent_fraction(std::slice::from_ref(flow)),
            mbps_over_time: over_time
                .map(|(&bytes, index)| {
                    let [start, end] = flows.sample(index);
                    bytes as f64 * 8e-6 / (end - start)
                })
                .collect(),
        }
    }
}

impl Report for ShareReport {
    fn text(&self) -> String {
        let header = ["contender", "Mb/s", "% of link", "retransmitted"];
        let mut shares = table(header, 1);
        for flow in &self.flows {
            shares.add_row([
                flow.contender.title().to_owned(),
                format!("{:.1}", flow.mbps),
                percent(Some(flow.link_fraction), 1),
                percent(Some(flow.resent_fraction), 3),
            ]);
        }
        format!(
            "{shares}\n{}\n{:.0} Mb/s, RTT {} ms, {} s; frames dropped by the full queue: {}; jitter added by \
             this machine (median, 99 %): {} us; Zerolane {}; payload verified.",
            over_time(self),
            self.rate_bits_per_s as f64 / 1e6,
            self.rtt_ms,
            self.seconds,
            self.network.queue_dropped,
            self.network.added_jitter_us.text(),
            self.security.name(),
        )
    }
}

/// At most a dozen rows of Mb/s over time.
fn over_time(report: &ShareReport) -> String {
    const ROWS: usize = 12;
    let length = report.flows.iter().map(|flow| flow.mbps_over_time.len());
    let step = length.max().unwrap_or(0).div_ceil(ROWS).max(1);
    let mut lines = vec!["Mb/s over time:".to_owned()];
    let mut at = 0;
    while report
        .flows
        .iter()
        .any(|flow| at < flow.mbps_over_time.len())
    {
        let mean = |flow: &Figures| {
            let part: Vec<f64> = flow
                .mbps_over_time
                .iter()
                .skip(at)
                .take(step)
                .copied()
                .collect();
            part.iter().sum::<f64>() / part.len().max(1) as f64
        };
        let words = report
            .flows
            .iter()
            .map(|flow| format!("{} {:7.1}", flow.contender.title(), mean(flow)));
        let from = at as f64 * report.sample_seconds;
        let line = format!("  {from:5.1} s: {}", words.collect::<Vec<_>>().join(", "));
        lines.push(line);
        at += step;
    }
    lines.join("\n")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::measured::Measured;

    #[test]
    fn Figures__over_time_are_rates() {
        let flows = Flows {
            buffer: 1 << 20,
            initiators: 1,
            parallel: 1,
            reverse: false,
            millis: 2500,
            sample_millis: 1000,
            live: false,
            seed: 0,
        };
        let flow = Run {
            contender: Name::Cubic,
            rx: Measured {
                bytes: 3_000_000,
                seconds: 2.0,
                samples: vec![1_000_000, 1_500_000, 500_000],
                ..Measured::default()
            },
            tx: Measured {
                resent_bytes: 30_000,
                ..Measured::default()
            },
        };
        let figures = Figures::of(&flow, 24_000_000, &flows);
        assert_eq!(figures.mbps, 12.0);
        assert_eq!(figures.link_fraction, 0.5);
        assert_eq!(figures.resent_fraction, 0.01);
        assert_eq!(figures.mbps_over_time, [8.0, 12.0, 8.0]);
    }
}
