//! How much may be under way, and how fast it may leave.
//!
//! The receiver's grants are the flow control; a controller may only hold payload back. It is told
//! what left, and what the receiver says of it ([`Sample`]); it answers with a window, a pace, and
//! how often it wants to be told. Everything it needs is in these calls: it knows no connection.

mod auto;
mod lan;
mod limited;
mod model;

use alloc::boxed::Box;
pub use auto::Auto;
pub(crate) use auto::LAN_RTT;
pub use lan::GrantsOnly;
pub(crate) use limited::Limited;
pub use model::Model;

use crate::{Instant, limits};
use core::fmt;
use core::time::Duration;

/// A controller to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// [`Auto`]: finds out what the path is like, and is safe on shared ones.
    #[default]
    Auto,
    /// [`GrantsOnly`]: for a path of one's own.
    Lan,
    /// [`Model`]: safe on shared paths.
    Model,
}

impl Control {
    /// A controller of this kind.
    pub fn controller(self) -> Box<dyn Congestion> {
        match self {
            Control::Auto => Box::new(Auto::default()),
            Control::Lan => Box::new(GrantsOnly),
            Control::Model => Box::new(Model::default()),
        }
    }
}

/// Time from which on an end is late: until then it may have been asleep, or at work on the rest of a burst.
const LATE: Duration = Duration::from_micros(500);

/// How late the ends were with an answer: they were off their cores, or busy. Zero where that is not certain, and
/// [`limits::MAX_LATENESS`] at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Time from the arrival of the answer until this end took it.
    pub own: Duration,
    /// Time from the arrival of the burst until the peer answered it.
    pub peers: Duration,
}

impl Lateness {
    /// Of ends that took so long.
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

    /// Of both ends.
    pub fn sum(&self) -> Duration {
        self.own + self.peers
    }
}

/// What the receiver's answer to a burst tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Round trip of the burst, without [`Sample::lateness`].
    pub rtt: Duration,
    /// Shortest round trip of the last 10 to 20 seconds.
    pub min_rtt: Duration,
    /// Rate at which payload arrived while the burst was under way, bytes per second.
    pub rate: u64,
    /// There was nothing to send at some time: `rate` is no more than was sent.
    pub limited: bool,
    /// Bytes that arrived for the first time since the last sample.
    pub received: u64,
    /// STUs that arrived with the mark "congestion experienced" since the last sample.
    pub marked: u32,
    /// Bytes under way now.
    pub under_way: u64,
    /// This is the first sample of what was sent after the first sample of the last round.
    pub round: bool,
    /// How late the ends were with it.
    pub lateness: Lateness,
}

/// Decides how many granted bytes may leave, and when.
pub trait Congestion: Send + fmt::Debug {
    /// What it is called in accounts.
    fn name(&self) -> &'static str;
    /// Bytes that may be under way.
    fn window(&self) -> u64;
    /// Bytes per second at which they may leave; `None`: as fast as they can.
    fn pace(&self) -> Option<u64>;
    /// Bytes that may leave at once, where there is a pace.
    fn quantum(&self) -> u64;
    /// How late this end may be and still make good for what it did not send meanwhile, where there is a pace.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }
    /// Bytes sent between two questions to the receiver.
    fn ack_request_interval(&self) -> u64;
    /// Whether the path is to mark packets instead of dropping them (ECN).
    fn wants_marks(&self) -> bool {
        false
    }
    /// The receiver answered.
    fn on_progress(&mut self, now: Instant, sample: &Sample);
    /// The path dropped datagrams of `bytes` of payload. A train of which it dropped one is sent again as a whole, but
    /// counts as that one datagram.
    fn on_lost(&mut self, now: Instant, bytes: u64);
    /// Nothing was heard for long: whatever was under way is gone.
    fn on_silence(&mut self, now: Instant);
    /// The path is another from here on: what was learned says nothing any more. `rtt` is its round
    /// trip, if it was measured.
    fn on_new_path(&mut self, rtt: Option<Duration>);
}

/// When the next burst may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    next: Instant,
    /// There was nothing more to send.
    idle: bool,
}

impl Pacer {
    /// When the next burst may leave.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A burst of `bytes` leaves `now`, at the pace of `congestion`, if it has one. A sender that wakes up late makes
    /// good for up to two quanta, for sleeping is not that exact; and for as much as its controller lets it, unless it was idle.
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

    /// There is nothing more to send.
    pub(crate) fn rest(&mut self) {
        self.idle = true;
    }
}

/// How long `bytes` take at `pace`.
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
