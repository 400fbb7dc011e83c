//! What an end is asked to do in one run, and what it answers.
//!
//! An end may serve another machine, so every field is checked before it is used.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::test::{FETCH_BYTES, Metric, SIZE_MAX, Test};
use super::times::Quantiles;
use crate::protocol::Protection;

/// Most bytes that the messages of one run take at an end.
pub(crate) const RING_MAX_BYTES: usize = 64 << 20;
/// Most operations under way at once.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most operations of one run, warming up included.
pub(crate) const ITERS_MAX: u64 = 1 << 32;
/// Largest payload of one UDP datagram over IPv4.
pub(crate) const DATAGRAM_MAX: usize = 65_507;

/// What carries the messages of a run between two ends of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Carrier {
    /// The kernel's UDP, connected sockets.
    Udp,
    /// The kernel's TCP.
    Tcp,
    /// Zerolane.
    Zerolane,
}

/// How an end waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Looks again and again, never gives up its core.
    #[default]
    Poll,
    /// Sleeps in the kernel.
    Event,
}

/// One run of one carrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) test: Test,
    pub(crate) carrier: Carrier,
    pub(crate) wait: Wait,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Operations timed.
    pub(crate) iters: u64,
    /// Operations before those.
    pub(crate) warm_up: u64,
    /// Operations under way at once, where there is more than one.
    pub(crate) depth: usize,
    /// Largest UDP payload that the path carries in one packet, bytes.
    pub(crate) datagram: usize,
    pub(crate) seed: u64,
    /// Protection of Zerolane's connection.
    pub(crate) security: Protection,
    /// First bytes on the data connection: the responder takes no other initiator.
    pub(crate) token: u64,
}

/// What one end saw of one run. What only the other end can see is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    pub(crate) latency: Option<Quantiles>,
    pub(crate) stream: Option<Streamed>,
}

/// What arrived of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Streamed {
    /// From the go to the last byte in place.
    pub(crate) seconds: f64,
    /// Payload in place, bytes.
    pub(crate) bytes: u64,
    /// Payload sent that never arrived, bytes.
    pub(crate) lost: u64,
}

impl Job {
    /// Refuses what no honest orchestrator asks for.
    pub(crate) fn check(&self) -> Result<()> {
        let Job { size, depth, .. } = *self;
        ensure!(
            (1..=SIZE_MAX).contains(&size),
            "a message of {size} bytes: it must be 1 to {SIZE_MAX} bytes"
        );
        ensure!(
            self.test != Test::FetchLat || size == FETCH_BYTES,
            "a fetch works on {FETCH_BYTES} bytes, not {size}"
        );
        ensure!(
            (1..=DEPTH_MAX).contains(&depth),
            "a depth of {depth}: it must be 1 to {DEPTH_MAX}"
        );
        ensure!(
            size * depth <= RING_MAX_BYTES,
            "{depth} messages of {size} bytes are more than {RING_MAX_BYTES} bytes"
        );
        ensure!(
            self.iters >= 1 && self.iters.saturating_add(self.warm_up) <= ITERS_MAX,
            "{} operations: they must be 1 to {ITERS_MAX}",
            self.iters
        );
        ensure!(
            (1..=DATAGRAM_MAX).contains(&self.datagram),
            "datagrams of {} bytes: they are 1 to {DATAGRAM_MAX} bytes",
            self.datagram
        );
        Ok(())
    }

    /// Operations, warming up included.
    pub(crate) fn rounds(&self) -> u64 {
        self.warm_up + self.iters
    }

    /// How a kernel socket waits in this job: a stream blocks, which is faster.
    pub(crate) fn socket_wait(&self) -> Wait {
        match self.test.metric() {
            Metric::Latency => self.wait,
            Metric::Stream => Wait::Event,
        }
    }

    /// Payload of all operations, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.rounds().saturating_mul(self.size as u64)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn job() -> Job {
        Job {
            test: Test::PutLat,
            carrier: Carrier::Udp,
            wait: Wait::Poll,
            size: 8,
            iters: 10,
            warm_up: 1,
            depth: 1,
            datagram: 1472,
            seed: 1,
            security: Protection::Plain,
            token: 2,
        }
    }

    #[test]
    fn check__refuses_what_would_exhaust_the_end() {
        job().check().unwrap();
        for bad in [
            Job { size: 0, ..job() },
            Job {
                size: SIZE_MAX + 1,
                ..job()
            },
            Job { depth: 0, ..job() },
            Job {
                depth: DEPTH_MAX + 1,
                ..job()
            },
            Job {
                depth: 17,
                size: SIZE_MAX,
                ..job()
            },
            Job { iters: 0, ..job() },
            Job {
                iters: u64::MAX,
                ..job()
            },
            Job {
                warm_up: u64::MAX,
                ..job()
            },
            Job {
                datagram: 0,
                ..job()
            },
            Job {
                datagram: DATAGRAM_MAX + 1,
                ..job()
            },
            Job {
                test: Test::FetchLat,
                size: 16,
                ..job()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
