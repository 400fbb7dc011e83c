//! Describes jobs of single operations: puts, gets, fetches and messages.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::test::{FETCH_BYTES, Metric, SIZE_MAX, Test};

/// Most bytes of one run's messages in flight at an end; the last ones to arrive take as many again.
pub(crate) const RING_MAX_BYTES: usize = 128 << 20;
/// Most operations in flight at once.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Most operations of one run, warming up included.
pub(crate) const ITERS_MAX: u64 = 1 << 32;
/// Longest pause before a first answer, milliseconds: an end may give up after longer silence.
pub(crate) const PAUSE_MAX_MILLIS: u64 = 5000;
/// Largest payload of one UDP datagram over IPv4.
pub(crate) const DATAGRAM_MAX: usize = 65_507;

/// How an end waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Polls, and never yields its core.
    #[default]
    Poll,
    /// Sleeps in the kernel.
    Event,
}

/// What the target of puts does meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// It answers with a put: the one-way time is half of the round trip.
    #[default]
    Answers,
    /// It polls its connection and answers nothing: a put takes until it is confirmed.
    Active,
    /// The same, but its program sleeps while a worker's thread drives the connection.
    Background,
}

/// The operations of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operations {
    pub(crate) test: Test,
    pub(crate) wait: Wait,
    pub(crate) target: Target,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Operations timed.
    pub(crate) iters: u64,
    /// Operations before those.
    pub(crate) warm_up: u64,
    /// Operations in flight at once, in tests with several.
    pub(crate) depth: usize,
    /// Largest UDP payload that the path carries in one packet, bytes.
    pub(crate) datagram: usize,
    /// What the messages hold.
    pub(crate) seed: u64,
    /// Delay of the responder's first answer, milliseconds; 0: none. It shows the behaviour of a waiting end.
    pub(crate) pause_millis: u64,
}

/// Operations before the timed ones of a latency run: one for so many of them, and some at least.
const WARM_UP_PART: u64 = 10;
const WARM_UP_MIN: u64 = 100;

impl Operations {
    /// So many operations with the usual depth and warm-up, by polling ends, of which the responder answers.
    pub(crate) fn usual(
        test: Test,
        size: usize,
        iters: u64,
        datagram: usize,
        seed: u64,
    ) -> Operations {
        Operations {
            test,
            wait: Wait::Poll,
            target: Target::Answers,
            size,
            iters,
            warm_up: match test.metric() {
                Metric::Latency => (iters / WARM_UP_PART).max(WARM_UP_MIN.min(iters)),
                Metric::Stream => 0,
            },
            depth: test.default_depth(size),
            datagram,
            seed,
            pause_millis: 0,
        }
    }

    /// Refuses jobs that no honest orchestrator sends.
    pub(crate) fn check(&self) -> Result<()> {
        let Operations { size, depth, .. } = *self;
        ensure!(
            (1..=SIZE_MAX).contains(&size),
            "a message of {size} bytes: it must be 1 to {SIZE_MAX} bytes"
        );
        ensure!(
            self.test != Test::FetchLat || size == FETCH_BYTES,
            "a fetch works on {FETCH_BYTES} bytes, not {size}"
        );
        ensure!(
            self.test == Test::PutLat || self.target == Target::Answers,
            "only put_lat has a target that does not answer"
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
        let answers = matches!(self.test, Test::PutLat | Test::SendLat);
        ensure!(
            self.pause_millis == 0 || answers && self.target == Target::Answers,
            "a {} has no answer, so it takes no pause",
            self.test.name()
        );
        ensure!(
            self.pause_millis <= PAUSE_MAX_MILLIS,
            "a pause of {} ms: at most {PAUSE_MAX_MILLIS} ms",
            self.pause_millis
        );
        Ok(())
    }

    /// All of them, warming up included.
    pub(crate) fn rounds(&self) -> u64 {
        self.warm_up + self.iters
    }

    /// The divisor of a measured round trip: 1 for a put without an answer, which is timed until it is confirmed.
    pub(crate) fn round_trip_parts(&self) -> u32 {
        match self.target {
            Target::Answers => self.test.round_trip_parts(),
            Target::Active | Target::Background => 1,
        }
    }

    /// How a kernel socket waits: in a stream it blocks, which is faster.
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

    pub(crate) fn operations() -> Operations {
        Operations {
            test: Test::PutLat,
            wait: Wait::Poll,
            target: Target::Answers,
            size: 8,
            iters: 10,
            warm_up: 1,
            depth: 1,
            datagram: 1472,
            seed: 1,
            pause_millis: 0,
        }
    }

    #[test]
    fn check__refuses_what_would_exhaust_the_end() {
        operations().check().unwrap();
        for bad in [
            Operations {
                size: 0,
                ..operations()
            },
            Operations {
                size: SIZE_MAX + 1,
                ..operations()
            },
            Operations {
                depth: 0,
                ..operations()
            },
            Operations {
                depth: DEPTH_MAX + 1,
                ..operations()
            },
            Operations {
                depth: 3,
                size: SIZE_MAX,
                ..operations()
            },
            Operations {
                iters: 0,
                ..operations()
            },
            Operations {
                iters: u64::MAX,
                ..operations()
            },
            Operations {
                warm_up: u64::MAX,
                ..operations()
            },
            Operations {
                datagram: 0,
                ..operations()
            },
            Operations {
                datagram: DATAGRAM_MAX + 1,
                ..operations()
            },
            Operations {
                test: Test::GetLat,
                target: Target::Background,
                ..operations()
            },
            Operations {
                pause_millis: PAUSE_MAX_MILLIS + 1,
                ..operations()
            },
            Operations {
                test: Test::GetLat,
                pause_millis: 1,
                ..operations()
            },
            Operations {
                test: Test::FetchLat,
                size: 16,
                ..operations()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
