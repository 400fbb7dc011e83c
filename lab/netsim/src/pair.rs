//! Joins two protocol ends by two links, and runs them in virtual time.

use crate::Side;
use crate::link::{Arrival, Link, LinkConfig};
use std::time::Duration;

/// Sets the seeds of several links apart (the golden ratio in 64 bits).
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A link in each direction between [`Side::A`] and [`Side::B`], and the clock
/// of the simulation. Time stands still except inside [`advance`](Self::advance).
///
/// To drive a sans-IO pair, advance to the earlier of the next delivery and the
/// ends' own timers, until nothing is left to happen:
///
/// ```
/// use netsim::{Side, link::{LinkConfig, Loss}, pair::Duplex};
/// use std::time::Duration;
///
/// // Stop and wait: A repeats each number until B has acknowledged it.
/// let lossy = LinkConfig {
///     delay: Duration::from_millis(10),
///     loss: Loss::Random(0.3),
///     ..LinkConfig::default()
/// };
/// let mut net = Duplex::symmetric(lossy, 1);
/// let (mut acknowledged, mut received) = (0u32, Vec::new());
/// let mut timer_a = Some(net.now());
/// loop {
///     match net.advance(timer_a) {
///         Some((Side::B, number)) => {
///             if received.len() as u32 == number {
///                 received.push(number);
///             }
///             net.send(Side::B, 40, number);
///         }
///         Some((Side::A, number)) if number == acknowledged => {
///             acknowledged += 1;
///             timer_a = (acknowledged < 5).then_some(net.now());
///         }
///         Some((Side::A, _duplicate)) => {}
///         None if timer_a.is_none() => break,
///         None => {
///             net.send(Side::A, 1500, acknowledged);
///             timer_a = Some(net.now() + Duration::from_millis(50));
///         }
///     }
/// }
/// assert_eq!(received, [0, 1, 2, 3, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct Duplex<P> {
    now: Duration,
    /// Indexed by the side that sends.
    links: [Link<P>; 2],
}

impl<P> Duplex<P> {
    /// Two links with behaviours and luck of their own; the clock at zero.
    #[must_use]
    pub fn new(a_to_b: LinkConfig, b_to_a: LinkConfig, seed: u64) -> Self {
        let [seed_a, seed_b] = direction_seeds(seed);
        Self {
            now: Duration::ZERO,
            links: [Link::new(a_to_b, seed_a), Link::new(b_to_a, seed_b)],
        }
    }

    /// Both directions behave alike, with luck of their own.
    #[must_use]
    pub fn symmetric(config: LinkConfig, seed: u64) -> Self {
        Self::new(config, config, seed)
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// `from` sends a packet of `size_bytes` to the other side, now.
    pub fn send(&mut self, from: Side, size_bytes: usize, packet: P)
    where
        P: Clone,
    {
        let now = self.now;
        self.link_mut(from).send(now, size_bytes, packet);
    }

    /// When the next packet arrives at either side, or `None` with nothing
    /// in flight.
    #[must_use]
    pub fn next_delivery(&self) -> Option<Duration> {
        self.next_sender().map(|(due, _)| due)
    }

    /// Moves the clock to the next delivery, but not beyond `deadline`: the
    /// earliest timer of the two ends, or `None` if no timer is set.
    ///
    /// Returns the packet and the side at which it arrives. `None` means that
    /// the clock now stands at `deadline` (the caller's timers are due), or,
    /// without a deadline, that nothing is in flight and the clock did not
    /// move.
    ///
    /// A delivery at the deadline itself comes before the timers, and what A
    /// sent comes before what B sent. A deadline in the past counts as now.
    pub fn advance(&mut self, deadline: Option<Duration>) -> Option<(Side, P)> {
        let (side, arrival) = self.advance_to_arrival(deadline)?;
        Some((side, arrival.packet))
    }

    /// As [`advance`](Self::advance), with what the link knows of the packet.
    pub fn advance_to_arrival(&mut self, deadline: Option<Duration>) -> Option<(Side, Arrival<P>)> {
        let limit = deadline.map(|at| at.max(self.now));
        let next = self
            .next_sender()
            .filter(|&(due, _)| limit.is_none_or(|limit| due <= limit));
        let Some((due, sender)) = next else {
            self.now = limit.unwrap_or(self.now);
            return None;
        };
        self.now = self.now.max(due);
        let now = self.now;
        let arrival = self.link_mut(sender).pop_arrival(now)?;
        Some((sender.other(), arrival))
    }

    /// The link that carries what `from` sends.
    #[must_use]
    pub fn link(&self, from: Side) -> &Link<P> {
        &self.links[from.index()]
    }

    /// The link that carries what `from` sends, to change it on the way:
    /// [`Link::set_config`], [`Link::set_up`].
    pub fn link_mut(&mut self, from: Side) -> &mut Link<P> {
        &mut self.links[from.index()]
    }

    /// The next delivery and its sender; A first if both are due together.
    fn next_sender(&self) -> Option<(Duration, Side)> {
        Side::BOTH
            .into_iter()
            .filter_map(|side| Some((self.link(side).next_delivery()?, side)))
            .min()
    }
}

/// Seeds for the two directions, so that they do not share their luck.
pub fn direction_seeds(seed: u64) -> [u64; 2] {
    [seed_of_link(seed, 0), seed_of_link(seed, 1)]
}

/// The seed of the `index`-th of several links.
pub fn seed_of_link(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(SEED_STEP.wrapping_mul(index))
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;
    use crate::link::Loss;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn delayed(millis: u64) -> LinkConfig {
        LinkConfig {
            delay: ms(millis),
            ..LinkConfig::default()
        }
    }

    #[test]
    fn advance__delivers_in_time_order_to_the_other_side() {
        let mut net = Duplex::new(delayed(30), delayed(10), 1);
        net.send(Side::A, 1, "from a");
        net.send(Side::B, 1, "from b");
        assert_eq!(net.next_delivery(), Some(ms(10)));
        assert_eq!(net.advance(None), Some((Side::A, "from b")));
        assert_eq!(net.now(), ms(10));
        assert_eq!(net.advance(None), Some((Side::B, "from a")));
        assert_eq!(net.now(), ms(30));
    }

    #[test]
    fn advance__stops_at_the_deadline() {
        let mut net = Duplex::symmetric(delayed(10), 1);
        net.send(Side::A, 1, ());
        assert_eq!(net.advance(Some(ms(4))), None);
        assert_eq!(net.now(), ms(4));
        assert_eq!(net.advance(Some(ms(40))), Some((Side::B, ())));
        assert_eq!(net.now(), ms(10));
        assert_eq!(net.advance(Some(ms(40))), None);
        assert_eq!(net.now(), ms(40));
    }

    #[test]
    fn advance__delivery_at_the_deadline_comes_first() {
        let mut net = Duplex::symmetric(delayed(10), 1);
        net.send(Side::B, 1, 'b');
        net.send(Side::A, 1, 'a');
        assert_eq!(net.advance(Some(ms(10))), Some((Side::B, 'a')));
        assert_eq!(net.advance(Some(ms(10))), Some((Side::A, 'b')));
        assert_eq!(net.advance(Some(ms(10))), None);
    }

    #[test]
    fn advance__past_deadline_does_not_turn_the_clock_back() {
        let mut net = Duplex::<()>::symmetric(delayed(10), 1);
        assert_eq!(net.advance(Some(ms(20))), None);
        assert_eq!(net.advance(Some(ms(5))), None);
        assert_eq!(net.now(), ms(20));
    }

    #[test]
    fn advance__idle_without_deadline_stands_still() {
        let mut net = Duplex::<()>::symmetric(delayed(10), 1);
        assert_eq!(net.advance(None), None);
        assert_eq!(net.now(), ms(0));
    }

    #[test]
    fn new__directions_have_their_own_luck() {
        let lossy = LinkConfig {
            loss: Loss::Random(0.5),
            ..LinkConfig::default()
        };
        let mut net = Duplex::symmetric(lossy, 1);
        for packet in 0..64 {
            net.send(Side::A, 1, packet);
            net.send(Side::B, 1, packet);
        }
        let mut arrived = [Vec::new(), Vec::new()];
        while let Some((side, packet)) = net.advance(None) {
            arrived[side.index()].push(packet);
        }
        assert_ne!(arrived[0], arrived[1]);
    }

    #[test]
    fn link_mut__takes_one_direction_down() {
        let mut net = Duplex::symmetric(delayed(1), 1);
        net.link_mut(Side::A).set_up(false);
        net.send(Side::A, 1, 'a');
        net.send(Side::B, 1, 'b');
        assert_eq!(net.advance(None), Some((Side::A, 'b')));
        assert_eq!(net.advance(None), None);
        assert_eq!(net.link(Side::A).stats().down, 1);
    }
}
