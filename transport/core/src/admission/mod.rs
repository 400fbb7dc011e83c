//! Admission (PAPERS P2.4): how much each of several senders to one receiver may send.
//!
//! A receiver's grants are its schedule. Alone, a connection grants what its own window holds. When
//! several receive at once, their senders meet in the last switch in front of the receiver, and a
//! shallow queue there overflows although every single window is reasonable (incast). So the
//! connections of one receiver share a [`Ledger`]: each asks, when it is about to grant, how many
//! bytes it may have *granted and not arrived*. The sum of the answers is the [`budget`]: what the
//! link carries in a round trip, and a little that may wait in the queue.
//!
//! ```text
//!  connection --- wants, outstanding, arrived ---> Scheduler: Budget  how much all may have
//!  connection <-- allowance, when to ask again ---            Share   how it is shared
//! ```
//!
//! It wakes no thread: every admitted connection always has something in flight, and asks again
//! when that arrives. Where some get nothing for a while, because there are too many of them, they
//! are told when to ask: at the end of the slice, or before, where one in front may end before it.
//!
//! What a peer can do to others: nothing beyond its share. An announcement reserves nothing, a grant
//! that brings no payload is written off after two rounds, and a stream that brings little of what it
//! was allowed is held to twice that, so that a liar ends at the trickle of two STUs.

mod budget;
mod fast;
mod ledger;
mod share;

pub use fast::FastAnswer;
pub use ledger::Ledger;

use crate::Instant;
use core::time::Duration;

/// How the receiver divides its link among streams that want more than it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Fair shares by weight, and [`Schedule::Fast`] for as long as that is found to make speculation
    /// succeed markedly more often.
    #[default]
    Automatic,
    /// Every stream gets its share, by weight, all the time.
    Fair,
    /// Fast mode (P2.4): one stream at full speed, the others at a trickle, in turns of some
    /// milliseconds.
    Fast,
    /// The one that needs fewest bytes first, the others at a trickle: the shortest mean time to completion.
    Shortest,
}

/// What a connection says of itself when it is about to grant. Totals count from its beginning.
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
    /// Of those arrived, bytes that had to be moved, total: speculation missed.
    pub moved: u64,
    /// Shortest time from a grant to its first byte since the last demand.
    pub delay: Option<Duration>,
    /// Payload bytes of an STU.
    pub stu: u32,
}

impl Demand {
    /// Bytes until nothing is left.
    pub(crate) fn remaining(&self) -> u64 {
        self.wanted.saturating_add(self.outstanding)
    }
}

/// What a connection may have granted and not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes.
    pub bytes: u64,
    /// Ask again then, though nothing arrived.
    pub review_at: Option<Instant>,
}

impl Allowance {
    /// No other connection receives.
    pub const UNLIMITED: Allowance = Allowance {
        bytes: u64::MAX,
        review_at: None,
    };
}

/// A connection's place among those that receive at one end. What shares the [`Ledger`] among them,
/// between threads perhaps, implements it; what the place held is free when it is dropped.
pub trait Admission: Send + core::fmt::Debug {
    /// Tells what the connection has and wants; returns what it may have granted.
    fn review(&mut self, now: Instant, demand: &Demand) -> Allowance;

    /// Asks that the connection be fast (PAPERS P2.4).
    fn request_fast(&mut self, now: Instant) -> FastAnswer;

    /// Sets the connection's part of the link relative to others', 1 unless set. 0 counts as 1.
    fn set_weight(&mut self, weight: u32);
}
