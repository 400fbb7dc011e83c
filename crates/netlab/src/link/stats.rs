//! What became of the packets of a link.

use std::ops::Add;

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
    /// Packets sent while the link was down, or under way when it went down.
    pub down: u64,
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
        LinkStats {
            sent: self.sent + other.sent,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            queue_dropped: self.queue_dropped + other.queue_dropped,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            too_big: self.too_big + other.too_big,
            down: self.down + other.down,
        }
    }
}
