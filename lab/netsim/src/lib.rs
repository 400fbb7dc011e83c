//! Simulates links in virtual time, to drive protocols without IO.
//!
//! | module | what it gives |
//! |---|---|
//! | [`link`] | one direction of a link: delay, jitter, loss, reordering, duplication, rate, queue, MTU |
//! | [`pair`] | two such links and a clock, to drive two sans-IO protocol ends |
//!
//! Pure: no clock, no socket, no thread. The crate `netlab` runs the same model in real time.
//!
//! It is not a queueing simulator. A link has one FIFO queue with tail drop and marks at a threshold; there is no routing,
//! no cross traffic and no other queue management.
//!
//! All randomness comes from a seed, so a failing run can be repeated.

#![forbid(unsafe_code)]

pub mod link;
pub mod pair;

/// One end of a two-ended topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The first end; by convention the one that initiates.
    A,
    /// The second end; by convention the one that responds.
    B,
}

impl Side {
    /// Both sides, `A` first.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// The opposite end.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// Its place in [`Side::BOTH`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }
}
