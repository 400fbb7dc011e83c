//! Emulated links and network namespaces for tests, benchmarks and the lab.
//!
//! | module | what it gives | time |
//! |---|---|---|
//! | [`link`] | one direction of a link: delay, jitter, loss, reordering, duplication, rate, queue, MTU | virtual |
//! | [`pair`] | two such links and a clock, to drive two sans-IO protocol ends | virtual |
//! | [`udp`] | a relay on loopback that sends real datagrams through two links | real |
//! | [`lab`] | namespaces around a hub that carries any traffic through such links | real |
//! | [`forge`] | frames made up and overheard, to attack what runs in such namespaces | real |
//! | [`netns`] | network namespaces joined by veth | real |
//!
//! What it is not: a queueing simulator. A link has one FIFO queue with tail
//! drop and marks at a threshold; there is no routing, no cross traffic and no
//! other queue management.
//!
//! Everything random comes from a seed, so a failing run can be run again.

#![forbid(unsafe_code)]

mod checksum;
pub mod forge;
pub mod lab;
pub mod link;
pub mod netns;
pub mod pair;
pub mod udp;
mod worker;

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

    fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }
}
