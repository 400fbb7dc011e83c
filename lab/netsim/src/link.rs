//! Models one direction of a link.
//!
//! Pure: no clock, no IO. The caller says what time it is, as a [`Duration`]
//! since a start of its choice: virtual time in [`pair`](crate::pair), the real
//! one in the crate `netlab`. Packets pass these
//! stages in this order:
//!
//! ```text
//! send -> up? -> MTU -> duplicate -> queue (tail drop, marks) -> rate -> loss
//!      -> delay + jitter, kept in order -> held back? -> pop_due
//! ```
//!
//! Choices worth knowing:
//! - Packets due at the same moment leave in the order in which they were sent.
//! - Jitter does not reorder (see [`LinkConfig::jitter`]); only
//!   [`LinkConfig::reorder`] does.
//! - Loss comes after the bottleneck: lost packets use up its rate, as on a
//!   real wire.
//! - The same seed, configuration and calls give the same outcome on every
//!   machine and in every release; a test pins it. Each packet draws the same
//!   number of random values whatever is configured, so that changing the
//!   delay does not change which packets are lost.

mod config;
mod dice;
mod stats;
#[cfg(test)]
mod tests;

pub use config::{LinkConfig, Loss, Reorder};
pub use stats::LinkStats;

use dice::{Dice, Luck};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// One direction of a link carrying packets of type `P`.
///
/// ```
/// use netsim::link::{Link, LinkConfig};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let config = LinkConfig { delay: ms(10), ..LinkConfig::default() };
/// let mut link = Link::new(config, 1);
///
/// link.send(ms(5), 1500, "hello");
/// assert_eq!(link.next_delivery(), Some(ms(15)));
/// assert_eq!(link.pop_due(ms(14)), None);
/// assert_eq!(link.pop_due(ms(15)), Some("hello"));
/// assert_eq!(link.stats().delivered, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Link<P> {
    config: LinkConfig,
    up: bool,
    dice: Dice,
    /// Latest time seen; time never runs backwards.
    now: Duration,
    /// The packets in the queue, in order.
    queue: VecDeque<Queued>,
    /// Bytes of all of them.
    queued_bytes: usize,
    /// Delivery time of the latest packet that was not held back: nothing that
    /// keeps its place may arrive before it.
    in_order_until: Duration,
    in_flight: BinaryHeap<InFlight<P>>,
    next_sequence: u64,
    /// Highest sequence delivered so far, plus one.
    expected_sequence: u64,
    stats: LinkStats,
}

impl<P> Link<P> {
    /// A link that is up, with nothing in flight.
    #[must_use]
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            up: true,
            dice: Dice::new(seed),
            now: Duration::ZERO,
            queue: VecDeque::new(),
            queued_bytes: 0,
            in_order_until: Duration::ZERO,
            in_flight: BinaryHeap::new(),
            next_sequence: 0,
            expected_sequence: 0,
            stats: LinkStats::default(),
        }
    }

    /// Sends a packet of `size_bytes` at time `now`. A `now` before that of an
    /// earlier call counts as the time of that call.
    pub fn send(&mut self, now: Duration, size_bytes: usize, packet: P)
    where
        P: Clone,
    {
        self.stats.sent += 1;
        self.catch_up(now);
        // Drawn before anything can stop the packet: see `Luck`.
        let duplicates = self.dice.duplicates(self.config.duplicate);
        if !self.up {
            self.stats.down += 1;
        } else if self.config.mtu.is_some_and(|mtu| size_bytes > mtu) {
            self.stats.too_big += 1;
        } else {
            if duplicates {
                self.stats.duplicated += 1;
                self.enqueue(size_bytes, packet.clone());
            }
            self.enqueue(size_bytes, packet);
        }
    }

    /// When the next packet is due, or `None` with nothing in flight.
    #[must_use]
    pub fn next_delivery(&self) -> Option<Duration> {
        self.in_flight.peek().map(|packet| packet.arrival.due)
    }

    /// Takes out the next packet if it is due at `now`. Call until it returns
    /// `None`: several may be due.
    pub fn pop_due(&mut self, now: Duration) -> Option<P> {
        self.pop_arrival(now).map(|arrival| arrival.packet)
    }

    /// As [`pop_due`](Self::pop_due), with what the link knows of the packet.
    pub fn pop_arrival(&mut self, now: Duration) -> Option<Arrival<P>> {
        self.catch_up(now);
        if self.next_delivery()? > self.now {
            return None;
        }
        let InFlight { sequence, arrival } = self.in_flight.pop()?;
        self.stats.delivered += 1;
        if sequence < self.expected_sequence {
            self.stats.reordered += 1;
        } else {
            self.expected_sequence = sequence + 1;
        }
        Some(arrival)
    }

    /// Changes the behaviour for packets sent from now on. Packets in flight
    /// keep their delivery times, and packets that keep their place do not
    /// overtake them even if the delay shrinks.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// The behaviour in force.
    #[must_use]
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Takes the link down or up again. While it is down, everything sent is
    /// dropped; everything in flight when it goes down is dropped too.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        if !up {
            self.stats.down += self.in_flight.len() as u64;
            self.in_flight.clear();
            self.queue.clear();
            self.queued_bytes = 0;
            self.in_order_until = Duration::ZERO;
        }
    }

    /// Whether the link is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Packets queued or on the wire that will be delivered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Moves time on and forgets the packets that have left the bottleneck.
    fn catch_up(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(first) = self.queue.front().filter(|first| first.leaves <= self.now) {
            self.queued_bytes -= first.bytes;
            self.queue.pop_front();
        }
    }

    fn enqueue(&mut self, size_bytes: usize, packet: P) {
        let luck = self.dice.luck();
        if !self.has_room_for(size_bytes) {
            self.stats.queue_dropped += 1;
            return;
        }
        let marked = self.marks();
        self.stats.marked += u64::from(marked);
        let departure = self.serialise(size_bytes);
        if self.dice.loses(self.config.loss, luck) {
            self.stats.lost += 1;
            return;
        }
        let arrival = Arrival {
            due: self.delivery_time(departure, luck),
            marked,
            packet,
        };
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.in_flight.push(InFlight { sequence, arrival });
    }

    /// Whether the queue takes one more. The first in line is being serialised
    /// and does not count as waiting; an idle bottleneck takes any packet.
    fn has_room_for(&self, size_bytes: usize) -> bool {
        let Some(first) = self.queue.front() else {
            return true;
        };
        let waiting_bytes = self.queued_bytes - first.bytes;
        let fits = |limit: usize| waiting_bytes.saturating_add(size_bytes) <= limit;
        self.queue.len() <= self.config.queue_packets && self.config.queue_bytes.is_none_or(fits)
    }

    /// Whether a packet that comes now finds the queue at the marking threshold.
    fn marks(&self) -> bool {
        let waiting = self.queue.len().saturating_sub(1);
        let threshold = self.config.mark_packets;
        !self.queue.is_empty() && threshold.is_some_and(|threshold| waiting >= threshold)
    }

    /// Takes the packet through the bottleneck; returns when its last bit left.
    fn serialise(&mut self, size_bytes: usize) -> Duration {
        let idle_from = self.queue.back().map_or(self.now, |last| last.leaves);
        let Some(rate) = self.config.rate_bits_per_s else {
            return idle_from;
        };
        let leaves = idle_from.saturating_add(serialisation_time(size_bytes, rate));
        self.queued_bytes += size_bytes;
        self.queue.push_back(Queued {
            leaves,
            bytes: size_bytes,
        });
        leaves
    }

    fn delivery_time(&mut self, departure: Duration, luck: Luck) -> Duration {
        let arrival = departure
            .saturating_add(self.config.delay)
            .saturating_add(luck.jitter(self.config.jitter))
            .max(self.in_order_until);
        if luck.reorders(self.config.reorder.probability) {
            return arrival.saturating_add(self.config.reorder.by);
        }
        self.in_order_until = arrival;
        arrival
    }
}

/// Time that `size_bytes` take at `rate` bits per second, rounded up so that
/// the rate is never exceeded.
fn serialisation_time(size_bytes: usize, rate: u64) -> Duration {
    const BIT_NANOS_PER_BYTE_SECOND: u128 = 8 * 1_000_000_000;
    let nanos = (size_bytes as u128)
        .saturating_mul(BIT_NANOS_PER_BYTE_SECOND)
        .div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A packet before the bottleneck or in it.
#[derive(Clone, Copy, Debug)]
struct Queued {
    /// When its serialisation ends.
    leaves: Duration,
    bytes: usize,
}

/// A packet that came out of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it was due; not after the time at which it was taken out.
    pub due: Duration,
    /// Whether it found the queue at [`LinkConfig::mark_packets`].
    pub marked: bool,
    /// The packet.
    pub packet: P,
}

/// A packet that will be delivered. Ordered for a max-heap: the greatest is the
/// one due first, and of those the one sent first.
#[derive(Clone, Debug)]
struct InFlight<P> {
    sequence: u64,
    arrival: Arrival<P>,
}

impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.arrival.due, other.sequence).cmp(&(self.arrival.due, self.sequence))
    }
}

impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for InFlight<P> {}
