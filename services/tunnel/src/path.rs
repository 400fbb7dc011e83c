//! Decides how long the datagrams to a peer may be, by what its path does.
//!
//! Long datagrams cost less CPU time, but one lost packet loses a whole datagram. So they are shorter on a slow path, where
//! many would not arrive whole, and where one holds much of what TCP inside has in flight: TCP then sees no
//! acknowledgements that tell it of the loss, and waits for its timeout.

use crate::limits::{
    FEWEST_BYTES, LONGEST_DATAGRAM, LOSSES_KEPT, MAX_UNSENT, MOST_BROKEN, OUTER_PACKET,
    PARTS_IN_FLIGHT, SHORTEST_ROUND, SLOWEST, UNSENT,
};
use std::time::Duration;

/// What the connection tells of its path, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSeen {
    /// Bytes that left.
    pub sent: u64,
    /// Bytes of them that were lost.
    pub lost: u64,
    /// Round trip.
    pub rtt: Duration,
    /// Pace, bytes a second; `None`: unlimited.
    pub pace: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Path {
    at: Duration,
    seen: PathSeen,
    /// Datagrams handed to the connection since.
    datagrams: u64,
    /// Part of the packets outside that is lost.
    loss: f64,
    /// Bytes a second.
    rate: f64,
    longest: usize,
    unsent: u64,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            at: Duration::ZERO,
            seen: PathSeen::default(),
            datagrams: 0,
            loss: 0.0,
            rate: 0.0,
            longest: LONGEST_DATAGRAM,
            unsent: MAX_UNSENT,
        }
    }
}

impl Path {
    /// Longest datagram, bytes.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Bytes handed to the connection that may wait in it.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// A datagram is handed to the connection.
    pub(crate) fn on_datagram(&mut self) {
        self.datagrams += 1;
    }

    /// Takes what the connection tells of the path.
    pub(crate) fn note(&mut self, now: Duration, seen: PathSeen) {
        self.estimate(now, seen);
        let pace = seen.pace.map_or(f64::INFINITY, |pace| pace as f64);
        let mut longest = pace * SLOWEST.as_secs_f64();
        if self.loss > 0.0 {
            let in_flight = self.rate * seen.rtt.max(SHORTEST_ROUND).as_secs_f64();
            let broken = MOST_BROKEN / self.loss * OUTER_PACKET as f64;
            longest = longest.min(in_flight / PARTS_IN_FLIGHT).min(broken);
        }
        self.longest = (longest as usize).clamp(OUTER_PACKET, LONGEST_DATAGRAM);
        let unsent = (pace * UNSENT.as_secs_f64()) as u64;
        self.unsent = unsent.clamp(2 * OUTER_PACKET as u64, MAX_UNSENT);
    }

    /// Estimates rate and loss, once enough has been sent to tell.
    fn estimate(&mut self, now: Duration, seen: PathSeen) {
        let since = now.saturating_sub(self.at).as_secs_f64();
        let sent = seen.sent.checked_sub(self.seen.sent);
        let lost = seen.lost.checked_sub(self.seen.lost);
        let (sent, lost) = match (sent, lost) {
            (Some(sent), Some(lost)) if sent >= FEWEST_BYTES && since > 0.0 => {
                (sent as f64, lost as f64)
            }
            (Some(_), Some(_)) => return,
            // A new connection begins at 0.
            _ => (0.0, 0.0),
        };
        (self.at, self.seen) = (now, seen);
        let datagrams = std::mem::take(&mut self.datagrams).max(1) as f64;
        if sent > 0.0 {
            // A long datagram counts as lost with all its packets, of which one was.
            let packets = (sent / datagrams / OUTER_PACKET as f64).max(1.0);
            let loss = lost / sent / packets;
            self.loss = LOSSES_KEPT * self.loss + (1.0 - LOSSES_KEPT) * loss;
            self.rate = sent / since;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    /// The path after five seconds with `rate` bytes a second, in datagrams of `length`, a part `loss` of which is lost.
    fn after(rate: u64, rtt_ms: u64, loss: f64, length: u64, pace: Option<u64>) -> Path {
        let mut path = Path::default();
        for look in 1..=50 {
            let sent = rate * look / 10;
            for _ in 0..rate / 10 / length {
                path.on_datagram();
            }
            let seen = PathSeen {
                sent,
                lost: (sent as f64 * loss) as u64,
                rtt: Duration::from_millis(rtt_ms),
                pace,
            };
            path.note(Duration::from_millis(100 * look), seen);
        }
        path
    }

    #[test]
    fn longest__as_long_as_may_be_where_nothing_is_lost() {
        assert_eq!(Path::default().longest(), LONGEST_DATAGRAM);
        assert_eq!(
            after(500_000_000, 1, 0.0, 60_000, None).longest(),
            LONGEST_DATAGRAM
        );
        let fast = after(100_000_000, 20, 0.0, 60_000, Some(125_000_000));
        assert_eq!(
            (fast.longest(), fast.unsent()),
            (LONGEST_DATAGRAM, MAX_UNSENT)
        );
    }

    #[test]
    fn longest__a_slow_path_takes_no_long_time_over_one() {
        let slow = after(12_000_000, 20, 0.0, 20_000, Some(12_500_000));
        assert_eq!(slow.longest(), 12_500);
        assert!(slow.unsent() < MAX_UNSENT);
        assert_eq!(
            after(100_000, 20, 0.0, 1000, Some(125_000)).longest(),
            OUTER_PACKET
        );
    }

    #[test]
    fn longest__a_small_part_of_what_a_lossy_path_has_in_flight() {
        // 5 MB/s and 20 ms: 100 KB.
        let lossy = after(5_000_000, 20, 0.001, 1400, None);
        assert!(
            (2 * OUTER_PACKET..9000).contains(&lossy.longest()),
            "{}",
            lossy.longest()
        );
        assert_eq!(
            after(1_000_000, 20, 0.01, 1400, None).longest(),
            OUTER_PACKET
        );
    }

    #[test]
    fn longest__few_do_not_arrive_whole() {
        let near = after(200_000_000, 1, 0.01, 1400, None);
        assert!(near.longest() <= 6 * OUTER_PACKET, "{}", near.longest());
        // Of long ones a fiftieth is lost, where a queue overflows.
        assert_eq!(
            after(200_000_000, 1, 0.02, 60_000, None).longest(),
            LONGEST_DATAGRAM
        );
    }

    #[test]
    fn note__a_new_connection_and_a_pause_change_nothing() {
        let mut path = after(5_000_000, 20, 0.001, 1400, None);
        let before = path.longest();
        for (at, bytes) in [(9, 0), (10, 1)] {
            let seen = PathSeen {
                sent: bytes,
                lost: bytes,
                rtt: Duration::from_millis(20),
                pace: None,
            };
            path.note(Duration::from_secs(at), seen);
        }
        assert_eq!(path.longest(), before);
    }
}
