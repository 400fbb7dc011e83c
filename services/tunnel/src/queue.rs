//! Queues the packets of one peer: short ones first, and none for long (CoDel, RFC 8289).

use crate::limits::{CODEL_INTERVAL, CODEL_TARGET, MAX_QUEUED, MAX_QUEUED_BYTES, SHORT_PACKET};
use std::collections::VecDeque;
use std::time::Duration;

/// Packets dropped here, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueDrops {
    /// The queue was full.
    pub(crate) full: u64,
    /// CoDel: the queue stood.
    pub(crate) codel: u64,
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

impl Queue {
    /// Adds a packet, or drops it where there is no room.
    pub(crate) fn push(&mut self, now: Duration, packet: Vec<u8>) {
        let count = self.short.len() + self.long.len();
        if count >= MAX_QUEUED || self.bytes + packet.len() > MAX_QUEUED_BYTES {
            self.drops.full += 1;
            return;
        }
        self.bytes += packet.len();
        match packet.len() <= SHORT_PACKET {
            true => self.short.push_back(packet),
            false => self.long.push_back((now, packet)),
        }
    }

    /// The packet that leaves next.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<Vec<u8>> {
        if let Some(packet) = self.short.pop_front() {
            self.bytes -= packet.len();
            return Some(packet);
        }
        while let Some((since, packet)) = self.long.pop_front() {
            self.bytes -= packet.len();
            let sojourn = now.saturating_sub(since);
            if !self.codel.drops(now, sojourn, self.long.is_empty()) {
                return Some(packet);
            }
            self.drops.codel += 1;
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
        queue.push(MS, vec![1; 1000]);
        queue.push(MS, vec![2; 60]);
        queue.push(MS, vec![3; 1000]);
        let order: Vec<u8> = std::iter::from_fn(|| queue.pop(MS))
            .map(|it| it[0])
            .collect();
        assert_eq!(order, [2, 1, 3]);
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn push__no_more_than_the_limits() {
        let mut queue = Queue::default();
        for _ in 0..MAX_QUEUED + 5 {
            queue.push(MS, vec![0; 100]);
        }
        assert_eq!(queue.drops.full, 5);
        queue.clear();
        for _ in 0..100 {
            queue.push(MS, vec![0; 60_000]);
        }
        assert!(queue.bytes <= MAX_QUEUED_BYTES);
        assert!(queue.drops.full > 5);
    }

    /// A sender twice as fast as the path that halves its rate when it loses a packet, as TCP does.
    #[test]
    fn codel__ends_a_standing_queue_and_leaves_a_burst_alone() {
        let mut queue = Queue::default();
        for n in 0..20 {
            queue.push(n * MS / 10, vec![0; 1400]);
        }
        for n in 0..20u32 {
            assert!(queue.pop(n * MS).is_some());
        }
        assert_eq!(queue.drops.codel, 0, "a burst");
        let (mut window, mut in_flight, mut worst) = (100.0, 0, Duration::ZERO);
        for tick in 0..20_000u32 {
            let now = 100 * MS + tick * MS;
            while f64::from(in_flight) < window {
                queue.push(now, vec![0; 1400]);
                in_flight += 1;
            }
            let before = queue.drops.codel;
            let waited = queue.long.front().map_or(Duration::ZERO, |it| now - it.0);
            if queue.pop(now).is_some() {
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
}
