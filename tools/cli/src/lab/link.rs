//! Turns link options of the command line into a link configuration.

use std::time::Duration;

use anyhow::{Context, Result};
use netsim::link::{LinkConfig, Loss, Reorder};

use crate::exit::Exit;
use crate::units::{self, Queue};

/// The options of the link, for both directions.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The link, each way")]
pub(crate) struct LinkArgs {
    /// Round trip: half of it each way
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = units::duration)]
    rtt: Duration,
    /// Extra delay of each packet, up to this much; never reorders
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = units::duration)]
    jitter: Duration,
    /// Share of packets lost at random
    #[arg(long, value_name = "PERCENT", value_parser = units::percent, conflicts_with = "burst")]
    loss: Option<f64>,
    /// Losses in bursts: mean loss, and mean length in packets (Gilbert-Elliott)
    #[arg(long, value_name = "PERCENT:LEN", value_parser = units::burst)]
    burst: Option<Loss>,
    /// Share of packets held back, and for how long
    #[arg(long, value_name = "PERCENT:TIME", value_parser = units::reorder)]
    reorder: Option<Reorder>,
    /// Share of packets sent twice
    #[arg(long, value_name = "PERCENT", value_parser = units::percent)]
    duplicate: Option<f64>,
    /// Rate of the bottleneck before each host [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: Option<u64>,
    /// Queue at the bottleneck, which drops packets when it is full: packets (64), bytes (256KiB), or
    /// bdp, one round trip at full rate [default: 1000 packets]
    #[arg(long, value_name = "LIMIT")]
    queue: Option<Queue>,
    /// Mark packets that find this many waiting, if their sender speaks ECN
    #[arg(long, value_name = "PACKETS")]
    ecn: Option<usize>,
}

impl LinkArgs {
    /// The configuration of each direction.
    pub(crate) fn config(&self) -> Result<LinkConfig> {
        let default = LinkConfig {
            delay: self.rtt / 2,
            jitter: self.jitter,
            loss: self
                .burst
                .or(self.loss.map(Loss::Random))
                .unwrap_or_default(),
            reorder: self.reorder.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            rate_bits_per_s: self.rate,
            mark_packets: self.ecn,
            ..LinkConfig::default()
        };
        let Some(queue) = self.queue else {
            return Ok(default);
        };
        let rate = self
            .rate
            .context("--queue needs --rate: without it nothing ever waits")
            .context(Exit::Usage)?;
        Ok(with_queue(default, queue, rate, self.rtt))
    }
}

/// Adds `queue` to `link`, before a bottleneck of `rate` bits per second.
fn with_queue(link: LinkConfig, queue: Queue, rate: u64, rtt: Duration) -> LinkConfig {
    let bytes = |bytes| LinkConfig {
        queue_packets: usize::MAX,
        queue_bytes: Some(bytes),
        ..link
    };
    match queue {
        Queue::Packets(packets) => LinkConfig {
            queue_packets: packets,
            ..link
        },
        Queue::Bytes(limit) => bytes(limit),
        Queue::BandwidthDelayProduct => bytes(bandwidth_delay_bytes(rate, rtt)),
    }
}

/// A link with this bottleneck and no other impairment.
pub fn bottleneck(rate: u64, rtt: Duration, queue: Queue) -> LinkConfig {
    let link = LinkConfig {
        delay: rtt / 2,
        rate_bits_per_s: Some(rate),
        ..LinkConfig::default()
    };
    with_queue(link, queue, rate, rtt)
}

/// Bytes in flight in one round trip at full rate, but at least `LEAST_BYTES`.
fn bandwidth_delay_bytes(rate: u64, rtt: Duration) -> usize {
    /// Sixteen full packets.
    const LEAST_BYTES: u128 = 16 * 1500;
    let bytes = u128::from(rate) * rtt.as_nanos() / 8 / 1_000_000_000;
    usize::try_from(bytes.max(LEAST_BYTES)).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn config(words: &str) -> Result<LinkConfig> {
        let words = std::iter::once("lab").chain(words.split_whitespace());
        Line::try_parse_from(words)?.link.config()
    }

    #[test]
    fn config__nothing_asked_is_a_perfect_link() {
        assert_eq!(config("").unwrap(), LinkConfig::default());
    }

    #[test]
    fn config__has_all_that_was_asked() {
        let asked = "--rtt 20ms --jitter 1ms --loss 0.1% --reorder 5%:1ms --duplicate 2% \
                     --rate 1gbit --queue 64 --ecn 20";
        let wanted = LinkConfig {
            delay: Duration::from_millis(10),
            jitter: Duration::from_millis(1),
            loss: Loss::Random(0.001),
            reorder: Reorder {
                probability: 0.05,
                by: Duration::from_millis(1),
            },
            duplicate: 0.02,
            rate_bits_per_s: Some(1_000_000_000),
            queue_packets: 64,
            mark_packets: Some(20),
            ..LinkConfig::default()
        };
        assert_eq!(config(asked).unwrap(), wanted);
    }

    #[test]
    fn config__bdp_is_one_round_trip_at_full_rate() {
        let link = config("--rtt 10ms --rate 1gbit --queue bdp").unwrap();
        assert_eq!(link.queue_bytes, Some(1_250_000));
        let short = config("--rate 1gbit --queue bdp").unwrap();
        assert_eq!(short.queue_bytes, Some(24_000));
    }

    #[test]
    fn config__queue_without_a_rate_is_wrong_usage() {
        let error = config("--queue 5").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
    }

    #[test]
    fn config__two_kinds_of_loss_exclude_each_other() {
        assert!(config("--loss 1% --burst 1%:3").is_err());
    }
}
