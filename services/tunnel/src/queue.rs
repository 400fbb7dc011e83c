//! Queues the packets of one peer: short ones first, and none for long (CoDel, RFC 8289). Each has its length in front.

use crate::cut::cut;
use crate::limits::{
    CODEL_INTERVAL, CODEL_TARGET, LENGTH, MAX_QUEUED, MAX_QUEUED_BYTES, SHORT_PACKET,
};
use crate::packet::{dscp, mark};
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

/// Packets that leave as one datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Together {
    pub(crate) bytes: Vec<u8>,
    /// Number of packets.
    pub(crate) packets: u64,
    /// DSCP of each of them; 0 where this does not matter.
    pub(crate) dscp: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    short: VecDeque<Vec<u8>>,
    long: VecDeque<(Duration, Vec<u8>)>,
    bytes: usize,
    codel: Codel,
    /// Packets of different DSCPs do not leave together.
    pub(crate) copies_dscp: bool,
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

    /// The packets that leave next: as many of one DSCP as fit `longest` bytes, or one that does not fit and cannot be
    /// cut.
    pub(crate) fn next(&mut self, now: Duration, longest: usize) -> Option<Together> {
        let mut bytes = self.pop(now, longest)?;
        let dscp = self.dscp(&bytes);
        let mut packets = 1;
        while let Some(next) = self.front()
            && bytes.len() + next.len() <= longest
            && self.dscp(next) == dscp
            && let Some(packet) = self.pop(now, longest)
        {
            // One that CoDel drops may stand before one that is longer, or of another DSCP.
            if bytes.len() + packet.len() > longest || self.dscp(&packet) != dscp {
                self.bytes += packet.len();
                self.long.push_front((now, packet));
                break;
            }
            bytes.extend_from_slice(&packet);
            packets += 1;
        }
        Some(Together {
            bytes,
            packets,
            dscp,
        })
    }

    fn dscp(&self, packet: &[u8]) -> u8 {
        match self.copies_dscp {
            true => dscp(&packet[LENGTH..]),
            false => 0,
        }
    }

    fn front(&self) -> Option<&Vec<u8>> {
        let long = || self.long.front().map(|it| &it.1);
        self.short.front().or_else(long)
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
    use crate::packet::VNET_HEADER_LEN;

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
        frame[VNET_HEADER_LEN] = 0x45;
        frame[VNET_HEADER_LEN + 1] = 2;
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
        let all = queue.next(MS, 3200).unwrap();
        assert_eq!((all.bytes.len(), all.packets), (102 + 3 * 1002, 4));
        assert_eq!(&all.bytes[..3], [100, 0, 9]);
        assert_eq!(&all.bytes[102..105], [0xe8, 3, 0]);
        let alone = queue.next(MS, 500).unwrap();
        assert_eq!(alone.packets, 1, "one that cannot be cut");
        assert_eq!(queue.next(MS, 9000).unwrap().packets, 1);
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    /// Packets with these DSCPs, of 1000 bytes or short.
    fn queued(all: &[(u8, usize)]) -> Queue {
        let mut queue = Queue::default();
        for &(dscp, len) in all {
            let mut frame = vec![0; len];
            frame[VNET_HEADER_LEN..VNET_HEADER_LEN + 2].copy_from_slice(&[0x45, dscp << 2 | 1]);
            queue.push(MS, &frame);
        }
        queue
    }

    #[test]
    fn next__packets_of_one_dscp() {
        let all = [
            (46, 1000),
            (46, 1000),
            (0, 1000),
            (46, 1000),
            (8, 100),
            (8, 100),
        ];
        let together = |mut queue: Queue| -> Vec<(u8, u64)> {
            let next = std::iter::from_fn(|| queue.next(MS, 9000));
            next.map(|it| (it.dscp, it.packets)).collect()
        };
        assert_eq!(together(queued(&all)), [(0, 6)], "not asked for");
        let mut apart = queued(&all);
        apart.copies_dscp = true;
        assert_eq!(together(apart), [(8, 2), (46, 2), (0, 1), (46, 1)]);
    }

    #[test]
    fn next__one_of_another_dscp_behind_one_that_is_dropped() {
        let mut queue = queued(&[(46, 1000); 200]);
        queue.copies_dscp = true;
        // Stands since long, so that the next is dropped.
        for at in 0..100 {
            assert!(queue.pop(10 * MS + at * 2 * MS, 9000).is_some());
        }
        let dropped = queue.drops.codel;
        for n in 0..100 {
            let frame = &mut queue.long[n].1[LENGTH + VNET_HEADER_LEN + 1];
            *frame = (n as u8 % 2) << 2;
        }
        let mut count = 0;
        while let Some(it) = queue.next(220 * MS + count * MS, 9000) {
            assert_eq!(it.packets, 1, "neighbours differ");
            count += 1;
        }
        let dropped = queue.drops.codel - dropped;
        assert!(dropped > 0 && u64::from(count) + dropped <= 100);
        assert_eq!(queue.bytes, 0);
    }
}
