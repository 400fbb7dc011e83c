//! Divides a receiver's link among its senders (PAPERS P2.4) when several of them send at once.
//!
//! A receiver's grants are its schedule. A connection that receives alone grants up to its own window. When several
//! receive at once, their senders meet in the last switch in front of the receiver, and a shallow queue there overflows
//! although every single window is reasonable (incast). So the connections of one receiver share a [`Ledger`]. Each
//! asks, when it is about to grant, how many bytes it may have *granted and not arrived*. The sum of the answers is the
//! [`budget`]: the bytes that the link carries in a round trip, plus a few that may wait in the queue.
//!
//! ```text
//!  connection --- wants, outstanding, arrived ---> Scheduler: Budget  how much all may have
//!  connection <-- allowance, when to ask again ---            Share   how it is shared
//! ```
//!
//! The ledger wakes no thread: every admitted connection always has payload in flight, and asks again when that
//! arrives. Connections that get nothing for a while, because there are too many of them, are told when to ask: at the
//! end of the slice, or earlier, where a connection in front may end before it.
//!
//! A peer can take no more than its share from others. An announcement reserves nothing. A grant that brings no payload
//! is written off after two rounds. A stream that brings little of its allowance is held to twice that, so that a lying
//! peer ends at the trickle of two STUs.

mod budget;
mod fast;
mod ledger;
mod share;

pub use fast::FastAnswer;
pub use ledger::Ledger;

use crate::time::Instant;
use core::time::Duration;

/// How the receiver divides its link among streams that together want more than it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Fair shares by weight, and [`Schedule::Fast`] while measurements show that it makes speculation succeed markedly
    /// more often.
    #[default]
    Automatic,
    /// Every stream gets its share, by weight, all the time.
    Fair,
    /// Fast mode (P2.4): one stream at full speed, the others at a trickle, in turns of some
    /// milliseconds.
    Fast,
    /// The stream that needs the fewest bytes first, the others at a trickle: the shortest mean time to completion.
    Shortest,
}

/// The state of a connection that is about to grant. Totals count from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes announced and matched, but not granted.
    pub wanted: u64,
    /// Bytes granted and not arrived.
    pub outstanding: u64,
    /// Bytes arrived, total.
    pub arrived: u64,
    /// Bytes found missing because later ones overtook them, total.
    pub missing: u64,
    /// Of those arrived, bytes that had to be moved because speculation missed, total.
    pub moved: u64,
    /// Shortest time from a grant to its first byte since the last report.
    pub delay: Option<Duration>,
    /// Payload bytes of an STU.
    pub stu: u32,
}

impl Demand {
    /// Bytes still to arrive or be granted.
    pub(crate) fn remaining(&self) -> u64 {
        self.wanted.saturating_add(self.outstanding)
    }
}

/// The bytes that a connection may have granted and not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes.
    pub bytes: u64,
    /// Ask again at this time, even if nothing arrived.
    pub review_at: Option<Instant>,
}

impl Allowance {
    /// No other connection receives.
    pub const UNLIMITED: Allowance = Allowance {
        bytes: u64::MAX,
        review_at: None,
    };
}

/// A connection's membership among those that receive at one end. Implemented by the owner of the shared [`Ledger`],
/// perhaps across threads. Dropping it frees what the member held.
pub trait Admission: Send + core::fmt::Debug {
    /// Takes the connection's demand; returns its allowance.
    fn review(&mut self, now: Instant, demand: &Demand) -> Allowance;

    /// Requests fast mode for the connection (PAPERS P2.4).
    fn request_fast(&mut self, now: Instant) -> FastAnswer;

    /// Sets the connection's share of the link relative to others', 1 unless set. 0 counts as 1.
    fn set_weight(&mut self, weight: u32);
}
