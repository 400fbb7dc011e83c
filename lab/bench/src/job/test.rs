//! Names the tests as users of perftest (`ib_write_lat` and the like) know them.

use serde::{Deserialize, Serialize};

/// Largest message, bytes.
pub(crate) const SIZE_MAX: usize = 64 << 20;
/// Largest of perftest's sizes, bytes.
const USUAL_MAX: usize = 4 << 20;
/// Bytes in flight at once where the command line says nothing.
const USUAL_RING: usize = 64 << 20;
/// A fetch-op works on one word of this many bytes.
pub(crate) const FETCH_BYTES: usize = 8;
/// What a request for a get or a fetch must say at least: an offset, and a length or an operand.
pub(crate) const ASK_BYTES: usize = 16;

/// One of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Test {
    PutLat,
    GetLat,
    FetchLat,
    SendLat,
    PutBw,
    GetBw,
    PutRate,
    SendBw,
}

/// What a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// One operation at a time: how long each takes.
    Latency,
    /// Many in flight: how much a second.
    Stream,
}

impl Test {
    /// As the command line and the reports spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Test::PutLat => "put_lat",
            Test::GetLat => "get_lat",
            Test::FetchLat => "fetch_lat",
            Test::SendLat => "send_lat",
            Test::PutBw => "put_bw",
            Test::GetBw => "get_bw",
            Test::PutRate => "put_rate",
            Test::SendBw => "send_bw",
        }
    }

    pub(crate) fn metric(self) -> Metric {
        match self {
            Test::PutLat | Test::GetLat | Test::FetchLat | Test::SendLat => Metric::Latency,
            Test::PutBw | Test::GetBw | Test::PutRate | Test::SendBw => Metric::Stream,
        }
    }

    /// What divides a measured round trip, as perftest has it: what goes one way only, and is
    /// answered by the same, counts half.
    pub(crate) fn round_trip_parts(self) -> u32 {
        match self {
            Test::PutLat | Test::SendLat => 2,
            _ => 1,
        }
    }

    /// Whether the payload comes from the responder.
    pub(crate) fn is_inward(self) -> bool {
        matches!(self, Test::GetLat | Test::GetBw)
    }

    /// Bytes that the initiator says and the responder answers in one round, where both are
    /// messages on a socket.
    pub(crate) fn round_bytes(self, size: usize) -> (usize, usize) {
        match self {
            Test::GetLat => (ASK_BYTES, size),
            Test::FetchLat => (ASK_BYTES, FETCH_BYTES),
            _ => (size, size),
        }
    }

    /// Size of a message where the command line names none, bytes.
    pub(crate) fn default_size(self) -> usize {
        match self {
            Test::PutLat | Test::GetLat | Test::SendLat => 8,
            Test::FetchLat => FETCH_BYTES,
            Test::PutRate => 64,
            Test::PutBw | Test::GetBw | Test::SendBw => USUAL_MAX,
        }
    }

    /// All sizes of `--all`, bytes.
    pub(crate) fn all_sizes(self) -> Vec<usize> {
        match self {
            Test::FetchLat => vec![FETCH_BYTES],
            _ => (0..=USUAL_MAX.ilog2()).map(|power| 1 << power).collect(),
        }
    }

    /// Operations in flight at once where the command line says nothing: two at least, so that one leaves while the
    /// other is confirmed.
    pub(crate) fn default_depth(self, size: usize) -> usize {
        let most = match (self.metric(), self) {
            (Metric::Latency, _) => return 1,
            (_, Test::PutRate) => 1024,
            _ => 128,
        };
        most.min(USUAL_RING / size.max(1)).max(2)
    }

    /// Timed operations of a run where the command line says nothing: enough for a 99th
    /// percentile or a steady rate, within a second or so; of large messages as many as that time allows.
    pub(crate) fn default_iters(self, size: usize) -> u64 {
        let (bytes, least, most) = match self.metric() {
            Metric::Latency => (256 << 20, 200.min((1 << 30) / size as u64), 20_000),
            Metric::Stream => (2 << 30, 32, 2_000_000),
        };
        (bytes / size as u64).clamp(least, most)
    }
}
