//! Counts the packets of a link by outcome.

use std::ops::{Add, Sub};

/// Packets of a link by what became of them.
///
/// Nothing is unaccounted for: at any moment `sent + duplicated` equals
/// `delivered + lost + queue_dropped + too_big + down` plus
/// [`Link::in_flight`](super::Link::in_flight).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub sent: u64,
    /// Packets handed out, copies included.
    pub delivered: u64,
    /// Packets lost on the wire. Counted when they are sent, because their fate
    /// is decided then.
    pub lost: u64,
    /// Packets that found the queue of the bottleneck full.
    pub queue_dropped: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Packets delivered after one that was sent later (RFC 4737's
    /// "reordered"); part of `delivered`.
    pub reordered: u64,
    /// Packets bigger than the MTU.
    pub too_big: u64,
    /// Packets sent while the link was down, or in flight when it went down.
    pub down: u64,
    /// Packets that found the queue at the marking threshold and went on. A
    /// marked packet may still be lost behind the queue.
    pub marked: u64,
}

impl LinkStats {
    /// Packets that will never be delivered, whatever the cause.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lost + self.queue_dropped + self.too_big + self.down
    }
}

impl Add for LinkStats {
    type Output = LinkStats;

    fn add(self, other: LinkStats) -> LinkStats {
        self.combine(other, |a, b| a + b)
    }
}

/// What happened since `earlier`, counters of the same link.
impl Sub for LinkStats {
    type Output = LinkStats;

    fn sub(self, earlier: LinkStats) -> LinkStats {
        self.combine(earlier, u64::saturating_sub)
    }
}

impl LinkStats {
    fn combine(self, other: LinkStats, with: impl Fn(u64, u64) -> u64) -> LinkStats {
        LinkStats {
            sent: with(self.sent, other.sent),
            delivered: with(self.delivered, other.delivered),
            lost: with(self.lost, other.lost),
            queue_dropped: with(self.queue_dropped, other.queue_dropped),
            duplicated: with(self.duplicated, other.duplicated),
            reordered: with(self.reordered, other.reordered),
            too_big: with(self.too_big, other.too_big),
            down: with(self.down, other.down),
            marked: with(self.marked, other.marked),
        }
    }
}
