//! What a flow is, and what is counted of it.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::super::limits::{BUFFER_MAX_BYTES, FLOW_MAX, FLOWS_MAX};
use super::super::pattern::WORD;
use super::super::protocol::Protection;
use super::contender::Contender;

/// Several flows of one protocol to one receiver, at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowJob {
    pub(crate) contender: Contender,
    /// Protection of Zerolane's connections.
    pub(crate) security: Protection,
    /// How many senders the receiver is to wait for.
    pub(crate) flows: usize,
    /// How long they flow.
    pub(crate) millis: u64,
    /// Length of an entry of [`Arrived::samples`].
    pub(crate) sample_millis: u64,
    /// Memory at each end of each flow, bytes.
    pub(crate) buffer: usize,
    /// What it holds.
    pub(crate) seed: u64,
    /// First bytes on each connection: the receiver takes no other sender.
    pub(crate) token: u64,
}

impl FlowJob {
    /// Refuses what no honest orchestrator asks for.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            (1..=FLOWS_MAX).contains(&self.flows),
            "{} flows: 1 to {FLOWS_MAX}",
            self.flows
        );
        let all = self.buffer.saturating_mul(self.flows);
        ensure!(
            self.buffer >= 1 << 20 && all <= BUFFER_MAX_BYTES && self.buffer.is_multiple_of(WORD),
            "{} buffers of {} bytes: each at least 1 MiB, all at most {BUFFER_MAX_BYTES} bytes",
            self.flows,
            self.buffer
        );
        ensure!(
            (Duration::from_millis(1)..=FLOW_MAX).contains(&self.time()),
            "a flow of {} ms: 1 ms to {} s",
            self.millis,
            FLOW_MAX.as_secs()
        );
        ensure!(
            self.sample_millis >= 10 && self.millis / self.sample_millis <= 1000,
            "samples of {} ms: at least 10 ms, at most 1000 of them",
            self.sample_millis
        );
        Ok(())
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    pub(crate) fn sample(&self) -> Duration {
        Duration::from_millis(self.sample_millis)
    }
}

/// What the receiver counted of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// Payload bytes in place.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Bytes in place in each part of the time.
    pub(crate) samples: Vec<u64>,
    /// Payload bytes that came though they were there already, as far as the
    /// receiver counts them.
    pub(crate) repeated_bytes: u64,
    /// Bytes whose content was checked.
    pub(crate) checked_bytes: u64,
}

/// What the sender counted of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Payload bytes sent again.
    pub(crate) resent_bytes: u64,
    /// Payload bytes that its receiver reported to have had already.
    pub(crate) reported_repeats_bytes: u64,
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn job() -> FlowJob {
        FlowJob {
            contender: Contender::Extended,
            security: Protection::Plain,
            flows: 8,
            millis: 10_000,
            sample_millis: 1000,
            buffer: 32 << 20,
            seed: 1,
            token: 2,
        }
    }

    #[test]
    fn check__refuses_what_would_exhaust_an_end() {
        job().check().unwrap();
        let wrong: [fn(&mut FlowJob); 8] = [
            |job| job.flows = 0,
            |job| job.flows = FLOWS_MAX + 1,
            |job| job.buffer = 0,
            |job| job.buffer = usize::MAX,
            |job| job.buffer = (32 << 20) + 1,
            |job| job.millis = 0,
            |job| job.millis = u64::MAX,
            |job| job.sample_millis = 1,
        ];
        for spoil in wrong {
            let mut job = job();
            spoil(&mut job);
            assert!(job.check().is_err(), "{job:?}");
        }
    }
}
