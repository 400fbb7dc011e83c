//! Bounds payload in flight and its pace, by controllers that learn from every answer.
//!
//! The receiver's grants are the flow control; a controller may only delay granted payload. Its inputs are departures
//! and the receiver's answers ([`Sample`]). Its outputs are a window, a pace, and the interval between questions. It
//! depends on no connection: these calls carry everything it needs.

mod auto;
mod lan;
mod limited;
mod model;

use alloc::boxed::Box;
use auto::Auto;
pub(crate) use auto::LAN_RTT;
pub(crate) use lan::GrantsOnly;
pub(crate) use limited::Limited;
use model::Model;

use crate::limits;
use crate::time::Instant;
use core::fmt;
use core::time::Duration;

/// A choice of controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Measures the path, and is safe on shared ones.
    #[default]
    Auto,
    /// For a path without other traffic.
    Lan,
    /// Safe on shared paths.
    Model,
}

impl Control {
    /// A controller of this kind.
    pub(crate) fn controller(self) -> Box<dyn Congestion> {
        match self {
            Control::Auto => Box::new(Auto::default()),
            Control::Lan => Box::new(GrantsOnly),
            Control::Model => Box::new(Model::default()),
        }
    }
}

/// Lateness below this is ignored: the end may have been asleep, or at work on the rest of a burst.
const LATE: Duration = Duration::from_micros(500);

/// How late the ends were with an answer, because they were descheduled or busy. Zero where that is uncertain, and at
/// most [`limits::MAX_LATENESS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lateness {
    /// Time from the arrival of the answer until this end received it.
    pub(crate) own: Duration,
    /// Time from the arrival of the burst until the peer answered it.
    pub(crate) peers: Duration,
}

impl Lateness {
    /// The lateness of ends with these delays.
    pub(crate) fn of(own: Duration, peers: Duration) -> Lateness {
        let late = |took: Duration| match took < LATE {
            true => Duration::ZERO,
            false => took.min(limits::MAX_LATENESS),
        };
        Lateness {
            own: late(own),
            peers: late(peers),
        }
    }

    /// The sum of both ends.
    pub(crate) fn sum(&self) -> Duration {
        self.own + self.peers
    }
}

/// A sample from the receiver's answer to a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Round trip of the burst, without [`Sample::lateness`].
    pub(crate) rtt: Duration,
    /// Shortest round trip of the last 10 to 20 seconds.
    pub(crate) min_rtt: Duration,
    /// Rate at which payload arrived while the burst was in flight, bytes per second.
    pub(crate) rate: u64,
    /// The sender ran out of payload at some time: `rate` is at most the sending rate.
    pub(crate) limited: bool,
    /// Bytes that arrived for the first time since the last sample.
    pub(crate) received: u64,
    /// STUs that arrived with the mark "congestion experienced" since the last sample.
    pub(crate) marked: u32,
    /// Bytes in flight now.
    pub(crate) under_way: u64,
    /// Whether this is the first sample of a new round: of a burst sent after the previous round's first sample.
    pub(crate) round: bool,
    /// How late the ends were with the answer.
    pub(crate) lateness: Lateness,
}

/// Decides how many granted bytes may leave, and when.
pub(crate) trait Congestion: Send + fmt::Debug {
    /// Name in reports.
    fn name(&self) -> &'static str;
    /// Most bytes in flight.
    fn window(&self) -> u64;
    /// Pace, bytes per second; `None`: unlimited.
    fn pace(&self) -> Option<u64>;
    /// Bytes that may leave at once, where there is a pace.
    fn quantum(&self) -> u64;
    /// Longest lateness of this end that it may compensate by sending more at once, where there is a pace.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }
    /// Bytes sent between two questions to the receiver.
    fn ack_request_interval(&self) -> u64;
    /// Whether datagrams should be ECN-capable, so that the path marks instead of dropping.
    fn wants_marks(&self) -> bool {
        false
    }
    /// The receiver answered.
    fn on_progress(&mut self, now: Instant, sample: &Sample);
    /// The path dropped datagrams of `bytes` of payload. A train with one dropped datagram is retransmitted as a whole,
    /// but counts as that one datagram.
    fn on_lost(&mut self, now: Instant, bytes: u64);
    /// Nothing was heard for long: all payload in flight is gone.
    fn on_silence(&mut self, now: Instant);
    /// The path changed: everything learned is obsolete. `rtt` is the new round trip, if measured.
    fn on_new_path(&mut self, rtt: Option<Duration>);
}

/// Schedules the next burst.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    next: Instant,
    /// The sender ran out of payload.
    idle: bool,
}

impl Pacer {
    /// When the next burst may leave.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A burst of `bytes` leaves `now`, at the pace of `congestion`, if it has one. A sender that wakes late catches up
    /// by at most two quanta, because sleeps are inexact; and, unless it was idle, by as much as its controller allows.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, congestion: &dyn Congestion) {
        let Some(pace) = congestion.pace() else {
            return;
        };
        let quanta = transmission_time(2 * congestion.quantum(), pace);
        let late = match core::mem::take(&mut self.idle) {
            true => quanta,
            false => quanta.max(congestion.catch_up()),
        };
        self.next = self.next.max(now.before(late)) + transmission_time(bytes, pace);
    }

    /// The sender ran out of payload.
    pub(crate) fn mark_idle(&mut self) {
        self.idle = true;
    }
}

/// Time that `bytes` take at `pace`.
pub(crate) fn transmission_time(bytes: u64, pace: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(pace.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Bytes that leave at `rate` in `time`.
fn in_time(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../congestion_tests.rs"]
mod tests;
