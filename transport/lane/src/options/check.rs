//! Refuses settings without a meaning, and names the setting.

use super::Options;
use std::io;
use std::ops::RangeInclusive;
use zerolane_core::limits::{MAX_EAGER, MAX_SLOTS};
use zerolane_wire::MAX_PATHS;

/// Bytes of a buffer, of a window or of a Block: at least a page, and at most what the kernel gives a socket.
const BYTES: RangeInclusive<u64> = 4096..=1 << 30;

/// Bytes of a Block in the classic profile.
const CLASSIC_BLOCK: RangeInclusive<u64> = 4096..=16 << 20;

/// Bytes of an STU: the smallest of the thesis, and the most that a datagram carries.
const STU: RangeInclusive<u64> = 512..=65_467;

/// Any number but 0.
const SOME: RangeInclusive<u64> = 1..=u64::MAX;

impl Options {
    /// Checks these settings. Each connect and each listen does so.
    ///
    /// # Errors
    /// `InvalidInput`, with a message that names the setting and the values it may have.
    pub fn check(&self) -> io::Result<()> {
        let times = [
            ("connect timeout", self.times.connect),
            ("idle timeout", self.times.idle),
        ];
        if let Some((name, _)) = times.iter().find(|it| it.1.is_zero()) {
            let why = format!("{name} is 0: no peer can answer in that time; use a longer time");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.strict && !self.datagrams.forecast {
            let why = "strict without the forecast: all plain payload would need a copy; use one of the two";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (flow, listen) = (&self.flow, &self.listen);
        if !flow.classic_block.is_power_of_two() {
            let why = format!(
                "classic block is {}: use a power of two",
                flow.classic_block
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let numbers = [
            ("paths", self.paths.most.into(), 1..=MAX_PATHS.into()),
            (
                "number of links",
                number(self.paths.links.len()),
                0..=u64::from(MAX_PATHS) - 1,
            ),
            ("receive buffer", number(flow.receive_buffer), BYTES),
            ("max in flight", flow.max_in_flight.into(), BYTES),
            ("eager limit", flow.eager_limit.into(), 0..=MAX_EAGER.into()),
            ("block", flow.block.into(), BYTES),
            ("classic block", flow.classic_block.into(), CLASSIC_BLOCK),
            ("stu", self.datagrams.stu.into(), STU),
            ("slots", flow.slots.into(), 1..=MAX_SLOTS.into()),
            ("max rate", self.rate.max.unwrap_or(u64::MAX), SOME),
            ("max connections", number(listen.max_connections), SOME),
            (
                "max connections of origin",
                number(listen.max_connections_of_origin),
                SOME,
            ),
        ];
        match numbers
            .into_iter()
            .find(|(_, value, allowed)| !allowed.contains(value))
        {
            None => Ok(()),
            Some((name, value, allowed)) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                match *allowed.end() {
                    u64::MAX => format!("{name} is {value}: use at least {}", allowed.start()),
                    most => format!("{name} is {value}: use {} to {most}", allowed.start()),
                },
            )),
        }
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
