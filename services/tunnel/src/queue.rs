//! Queues the packets of one peer: short ones first, and none for long (CoDel, RFC 8289). Each has its length in front.

use crate::cut::cut;
use crate::limits::{
    CODEL_INTERVAL, CODEL_TARGET, LENGTH, MAX_QUEUED, MAX_QUEUED_BYTES, SHORT_PACKET,
};
use crate::packet::mark;
use std::collections::VecDeque;
use std::time::Duration;

/// Packets dropped here, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueDrops {
    /// The queue was full.
    pub(crate) full: u64,
    /// CoDel: the queue stood.
    pub(crate) codel: u64,
    /// Not dropped, but marked by CoDel: they are ECN-capable.
    pub(crate) marked: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    short: VecDeque<Vec<u8>>,
    long: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    codel: Codel,
    pub(crate) drops: QueueDrops,
}

/// The state of CoDel, in the words of RFC 8289.
#[derive(Debug, Default)]
struct Codel {
    first_above: Option<Duration>,
    drop_next: Duration,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// Whether the queue has stood above the target for an interval, by a packet that waited `sojourn`.
    fn stands(&mut self, now: Duration, sojourn: Duration, is_last: bool) -> bool {
        if sojourn < CODEL_TARGET || is_last {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + CODEL_INTERVAL)
    }

    /// Whether to drop a packet that waited `sojourn`.
    fn drops(&mut self, now: Duration, sojourn: Duration, is_last: bool) -> bool {
        let stands = self.stands(now, sojourn, is_last);
        if !stands {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next = law(self.drop_next, self.count);
            return true;
        }
        self.dropping = true;
        let recent = now.saturating_sub(self.drop_next) < 16 * CODEL_INTERVAL;
        let delta = self.count.saturating_sub(self.last_count);
        self.count = if recent && delta > 1 { delta } else { 1 };
        self.drop_next = law(now, self.count);
        self.last_count = self.count;
        true
    }
}

fn law(at: Duration, count: u32) -> Duration {
    at + CODEL_INTERVAL.div_f64(f64::from(count).sqrt())
}

/// A packet as it crosses.
fn with_length(frame: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(LENGTH + frame.len());
    packet.extend_from_slice(&(frame.len() as u16).to_le_bytes());
    packet.extend_from_slice(frame);
    packet
}

impl Queue {
    /// Adds a packet, or drops it where there is no room.
    pub(crate) fn push(&mut self, now: Duration, frame: &[u8]) {
        let count = self.short.len() + self.long.len();
        if count >= MAX_QUEUED || self.bytes + frame.len() > MAX_QUEUED_BYTES {
            self.drops.full += 1;
            return;
        }
        let packet = with_length(frame);
        self.bytes += packet.len();
        match packet.len() <= SHORT_PACKET {
            true => self.short.push_back(packet),
            false => self.long.push_back((now, packet)),
        }
    }

    /// The packets that leave next, and their number: as many as fit `longest` bytes, or one that does not fit and
    /// cannot be cut.
    pub(crate) fn next(&mut self, now: Duration, longest: usize) -> Option<(Vec<u8>, u64)> {
        let mut all = self.pop(now, longest)?;
        let mut count = 1;
        while let Some(next) = self.front_len()
            && all.len() + next <= longest
            && let Some(packet) = self.pop(now, longest)
        {
            // One that CoDel drops may stand before one that is longer.
            if all.len() + packet.len() > longest {
                self.bytes += packet.len();
                self.long.push_front((now, packet));
                break;
            }
            all.extend_from_slice(&packet);
            count += 1;
        }
        Some((all, count))
    }

    fn front_len(&self) -> Option<usize> {
        let long = || self.long.front().map(|it| it.1.len());
        self.short.front().map(Vec::len).or_else(long)
    }

    fn pop(&mut self, now: Duration, longest: usize) -> Option<Vec<u8>> {
        if let Some(packet) = self.short.pop_front() {
            self.bytes -= packet.len();
            return Some(packet);
        }
        while let Some((since, mut packet)) = self.long.pop_front() {
            self.bytes -= packet.len();
            let sojourn = now.saturating_sub(since);
            if self.codel.drops(now, sojourn, self.long.is_empty()) {
                if !mark(&mut packet[LENGTH..]) {
                    self.drops.codel += 1;
                    continue;
                }
                self.drops.marked += 1;
            }
            let Some(pieces) = cut(&packet[LENGTH..], longest.saturating_sub(LENGTH)) else {
                return Some(packet);
            };
            let mut pieces = pieces.iter().map(|it| with_length(it));
            let first = pieces.next();
            for piece in pieces.rev() {
                self.bytes += piece.len();
                self.long.push_front((since, piece));
            }
            return first;
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }

    /// Drops all: the peer is not connected, and what waits is of no use later.
    pub(crate) fn clear(&mut self) {
        self.drops.full += (self.short.len() + self.long.len()) as u64;
        self.short.clear();
        self.long.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pop__short_ones_first() {
        let mut queue = Queue::default();
        queue.push(MS, &[1; 1000]);
        queue.push(MS, &[2; 60]);
        queue.push(MS, &[3; 1000]);
        let order: Vec<u8> = std::iter::from_fn(|| queue.pop(MS, 9000))
            .map(|it| it[LENGTH])
            .collect();
        assert_eq!(order, [2, 1, 3]);
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn push__no_more_than_the_limits() {
        let mut queue = Queue::default();
        for _ in 0..MAX_QUEUED + 5 {
            queue.push(MS, &[0; 100]);
        }
        assert_eq!(queue.drops.full, 5);
        queue.clear();
        for _ in 0..100 {
            queue.push(MS, &[0; 60_000]);
        }
        assert!(queue.bytes <= MAX_QUEUED_BYTES);
        assert!(queue.drops.full > 5);
    }

    #[test]
    fn codel__marks_those_that_are_capable() {
        let mut frame = [0; 1400];
        frame[crate::packet::VNET_HEADER_LEN] = 0x45;
        frame[crate::packet::VNET_HEADER_LEN + 1] = 2;
        let mut queue = Queue::default();
        for _ in 0..1000 {
            queue.push(MS, &frame);
        }
        let mut popped = 0;
        while queue.pop(10 * MS + popped * MS, 9000).is_some() {
            popped += 1;
        }
        assert_eq!((popped, queue.drops.codel), (1000, 0));
        assert!(queue.drops.marked > 5, "{:?}", queue.drops);
    }

    /// A sender twice as fast as the path that halves its rate when it loses a packet, as TCP does.
    #[test]
    fn codel__ends_a_standing_queue_and_leaves_a_burst_alone() {
        let mut queue = Queue::default();
        for n in 0..20 {
            queue.push(n * MS / 10, &[0; 1400]);
        }
        for n in 0..20u32 {
            assert!(queue.pop(n * MS, 9000).is_some());
        }
        assert_eq!(queue.drops.codel, 0, "a burst");
        let (mut window, mut in_flight, mut worst) = (100.0, 0, Duration::ZERO);
        for tick in 0..20_000u32 {
            let now = 100 * MS + tick * MS;
            while f64::from(in_flight) < window {
                queue.push(now, &[0; 1400]);
                in_flight += 1;
            }
            let before = queue.drops.codel;
            let waited = queue.long.front().map_or(Duration::ZERO, |it| now - it.0);
            if queue.pop(now, 9000).is_some() {
                in_flight -= 1;
                window += 1.0 / window;
            }
            let lost = (queue.drops.codel - before) as u32;
            in_flight -= lost;
            if lost > 0 {
                window = f64::max(window / 2.0, 2.0);
            }
            if tick > 5_000 {
                worst = worst.max(waited);
            }
        }
        assert!(queue.drops.codel > 0);
        assert!(worst < 40 * MS, "{worst:?}");
    }

    #[test]
    fn next__as_many_as_fit_in_order() {
        let mut queue = Queue::default();
        for n in 0..5 {
            queue.push(MS, &[n; 1000]);
        }
        queue.push(MS, &[9; 100]);
        let (all, count) = queue.next(MS, 3200).unwrap();
        assert_eq!((all.len(), count), (102 + 3 * 1002, 4));
        assert_eq!(&all[..3], [100, 0, 9]);
        assert_eq!(&all[102..105], [0xe8, 3, 0]);
        assert_eq!(queue.next(MS, 500).unwrap().1, 1, "one that cannot be cut");
        assert_eq!(queue.next(MS, 9000).unwrap().1, 1);
        assert!(queue.is_empty() && queue.bytes == 0);
    }
}
