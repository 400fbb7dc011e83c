//! Parses quantities on the command line: a number with its unit.

use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use netsim::link::{Loss, Reorder};

/// The longest delay, more than any path on Earth or through low orbit has.
const LONGEST: Duration = Duration::from_secs(60);

/// The slowest and the fastest link, bits per second.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e11;

/// The longest queue, packets.
const LONGEST_QUEUE_PACKETS: usize = 1_000_000;

type Parsed<T> = Result<T, String>;

/// Parses a time: `20ms`, `1.5s`, `300us`; `0` needs no unit.
pub fn duration(text: &str) -> Parsed<Duration> {
    duration_up_to(text, LONGEST)
}

/// As [`duration`], but at most `longest`.
pub fn duration_up_to(text: &str, longest: Duration) -> Parsed<Duration> {
    const UNITS: [(&str, f64); 5] = [
        ("s", 1.0),
        ("ms", 1e-3),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ns", 1e-9),
    ];
    let seconds = if text == "0" {
        0.0
    } else {
        quantity(text, &UNITS, "a time such as 20ms, 1.5s or 300us")?
    };
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration > longest {
        return Err(format!("at most {} s", longest.as_secs()));
    }
    Ok(duration)
}

/// Parses a rate as `tc` writes it: `1gbit`, `2.5mbit`. Returns bits per second.
pub fn rate(text: &str) -> Parsed<u64> {
    const UNITS: [(&str, f64); 4] = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    let lower = text.to_ascii_lowercase();
    let rate = quantity(&lower, &UNITS, "a rate such as 1gbit, 100mbit or 64kbit")?;
    if !RATES.contains(&rate) {
        return Err("a rate is 1kbit to 100gbit".into());
    }
    Ok(rate.round() as u64)
}

/// Parses a percentage as a probability: `0.1%` is 0.001.
pub fn percent(text: &str) -> Parsed<f64> {
    let percent = quantity(text, &[("%", 1.0)], "a percentage such as 0.1%")?;
    if percent > 100.0 {
        return Err("at most 100%".into());
    }
    Ok(percent / 100.0)
}

/// Parses burst losses, `MEAN_LOSS:LENGTH`: `1%:10`.
pub fn burst(text: &str) -> Parsed<Loss> {
    let (mean, length) = pair(text, "MEAN_LOSS:LENGTH, for example 1%:10")?;
    let mean = percent(mean)?;
    let length: f64 = length
        .parse()
        .map_err(|_| format!("{length:?} is not a number of packets"))?;
    if !(1.0..=1e6).contains(&length) {
        return Err("bursts are 1 to 1000000 packets long on average".into());
    }
    if mean > length / (length + 1.0) {
        return Err("with so much loss there is nothing between the bursts".into());
    }
    Ok(Loss::bursts(mean, length))
}

/// Parses the share of packets held back, and their delay, `SHARE:TIME`: `5%:1ms`.
pub fn reorder(text: &str) -> Parsed<Reorder> {
    let (share, by) = pair(text, "SHARE:TIME, for example 5%:1ms")?;
    Ok(Reorder {
        probability: percent(share)?,
        by: duration(by)?,
    })
}

/// The length of the queue at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Packets.
    Packets(usize),
    /// Bytes.
    Bytes(usize),
    /// The bytes in flight in one round trip at full rate.
    BandwidthDelayProduct,
}

impl FromStr for Queue {
    type Err = String;

    /// Parses `64` packets, `256KiB`, or `bdp`.
    fn from_str(text: &str) -> Parsed<Queue> {
        if text == "bdp" {
            return Ok(Queue::BandwidthDelayProduct);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(packets) if packets <= LONGEST_QUEUE_PACKETS => Ok(Queue::Packets(packets)),
                _ => Err(format!("at most {LONGEST_QUEUE_PACKETS} packets")),
            };
        }
        let size: ByteSize = text
            .parse()
            .map_err(|_| "neither packets (64), nor bytes (256KiB), nor bdp".to_owned())?;
        let bytes = usize::try_from(size.as_u64()).map_err(|error| error.to_string())?;
        Ok(Queue::Bytes(bytes))
    }
}

/// Parses a number of at least 0 and multiplies it by its unit.
fn quantity(text: &str, units: &[(&str, f64)], wanted: &str) -> Parsed<f64> {
    let end = text
        .find(|it: char| !it.is_ascii_digit() && it != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let complain = || format!("not {wanted}");
    let number: f64 = number.parse().map_err(|_| complain())?;
    let (_, worth) = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start())
        .ok_or_else(complain)?;
    Ok(number * worth)
}

fn pair<'a>(text: &'a str, wanted: &str) -> Parsed<(&'a str, &'a str)> {
    text.split_once(':').ok_or_else(|| format!("not {wanted}"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn duration__units_and_fractions() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("300us"), Ok(Duration::from_micros(300)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for wrong in [
            "20", "ms", "-1ms", "1h", "1e3ms", "", "1..5s", "61s", "nan s", "9e99s",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rate__is_decimal_and_in_bits() {
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(rate("2.5Mbit"), Ok(2_500_000));
        for wrong in ["1", "1g", "0gbit", "1tbit", "200gbit", "1 gbps"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percent__is_a_probability() {
        assert_eq!(percent("100%"), Ok(1.0));
        assert_eq!(percent("0.1%"), Ok(0.001));
        for wrong in ["120%", "0.1", "%", "-1%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn burst__needs_both_parts_and_room_between_the_bursts() {
        assert_eq!(burst("1%:10"), Ok(Loss::bursts(0.01, 10.0)));
        for wrong in ["1%", "1%:0", "1%:x", "101%:3", "99%:10", "100%:10"] {
            assert!(burst(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reorder__needs_both_parts() {
        let wanted = Reorder {
            probability: 0.05,
            by: Duration::from_millis(1),
        };
        assert_eq!(reorder("5%:1ms"), Ok(wanted));
        assert!(reorder("5%").is_err());
        assert!(reorder("5:1ms").is_err());
    }

    #[test]
    fn Queue__packets_bytes_or_bdp() {
        assert_eq!("64".parse(), Ok(Queue::Packets(64)));
        assert_eq!("256KiB".parse(), Ok(Queue::Bytes(256 << 10)));
        assert_eq!("bdp".parse(), Ok(Queue::BandwidthDelayProduct));
        for wrong in ["", "-1", "1x", "BDP", "99999999999999999999"] {
            assert!(wrong.parse::<Queue>().is_err(), "{wrong}");
        }
    }
}
