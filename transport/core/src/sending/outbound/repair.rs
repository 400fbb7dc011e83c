//! Queues payload for retransmission when the receiver reports it missing or a path dies.

use super::{Outbound, Outbox};
use crate::limits::{BLACK_HOLE_REPAIRS, MAX_REPAIRS};
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::AddAssign;
use core::time::Duration;
use zerolane_wire::{MAX_PATHS, Range, State};

/// Detects repairs without effect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    /// Newest burst that the receiver had seen at the last repair.
    seen: u32,
    /// When that repair was made.
    at: Instant,
    /// Consecutive repairs, a flight time apart, after which nothing new was seen.
    repairs: u32,
    /// Consecutive repairs of more than half a datagram, after which at most short bursts were seen.
    in_vain: u32,
}

impl Stuck {
    /// Notes a repair. Returns true, each [`BLACK_HOLE_REPAIRS`] repairs, if large datagrams seem to vanish.
    fn repaired(&mut self, now: Instant, seen: u32, flight_time: Duration) -> bool {
        if seen == self.seen && now - self.at < flight_time {
            return false;
        }
        let before = if seen == self.seen { self.repairs } else { 0 };
        *self = Stuck {
            seen,
            at: now,
            repairs: before.saturating_add(1),
            ..*self
        };
        self.repairs.is_multiple_of(BLACK_HOLE_REPAIRS)
    }
}

/// Loss on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Payload to retransmit, bytes.
    pub(crate) bytes: u64,
    /// Payload of the fewest datagrams whose loss explains it, bytes: one datagram of each train. Reported to the
    /// congestion controller, because paths drop datagrams.
    pub(crate) dropped: u64,
}

impl Lost {
    /// `bytes` of payload that left in datagrams of their own.
    pub(crate) fn datagrams(bytes: u64) -> Lost {
        Lost {
            bytes,
            dropped: bytes,
        }
    }

    /// A missing range of `bytes` of a Block that left as trains of at most `longest` bytes, or without trains if that
    /// is 0. A train is missing as a whole if one datagram was dropped, with `stu` bytes of payload.
    fn of(bytes: u32, longest: u32, stu: u32) -> Lost {
        let all = Lost::datagrams(bytes.into());
        if longest == 0 {
            return all;
        }
        let one_each = u64::from(bytes.div_ceil(longest)) * u64::from(stu);
        Lost {
            dropped: all.dropped.min(one_each),
            ..all
        }
    }
}

impl AddAssign for Lost {
    fn add_assign(&mut self, other: Lost) {
        self.bytes += other.bytes;
        self.dropped += other.dropped;
    }
}

/// Result of a report of missing payload, or of a repeated grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossReport {
    /// Payload to retransmit, by the paths that lost it.
    pub(crate) lost: [Lost; MAX_PATHS as usize],
    /// Ranges beyond [`MAX_REPAIRS`], which the receiver asks for again.
    pub(crate) beyond: u64,
    /// The same bytes were reported repeatedly: perhaps the path drops large datagrams.
    pub(crate) black_hole: bool,
    /// The same, and short datagrams may have arrived meanwhile.
    pub(crate) in_vain: bool,
}

/// A range to retransmit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    pub(super) id: TransferId,
    pub(super) b_num: u32,
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Outbox {
    /// A burst of more than half a datagram arrived by the first path.
    pub(crate) fn on_long_seen(&mut self) {
        self.stuck.in_vain = 0;
    }

    /// Whether payload of more than half a datagram of `room` bytes was sent repeatedly, and nothing of it arrived.
    pub(crate) fn is_stuck(&self, room: u32) -> bool {
        let is_long = |it: &Outbound| it.span.len > u64::from(room / 2);
        let repaired =
            self.stuck.in_vain >= BLACK_HOLE_REPAIRS && self.transfers.values().any(is_long);
        let mut held = self.transfers.values().flat_map(|it| it.held.values());
        repaired || held.any(|it| it.regrants >= BLACK_HOLE_REPAIRS)
    }

    /// Takes a report about a Block; `None` if it concerns nothing of this end. Bursts younger than their path's
    /// `flight_time` may still be in flight, unless the receiver has seen a later one of that path.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        state: &State,
        ranges: &[Range],
        stu: u32,
        flight_time: impl Fn(usize) -> Duration,
    ) -> Option<LossReport> {
        let transfer = self.transfers.get_mut(&state.d_id)?;
        self.held -= transfer.forget_below(state.blocks_complete);
        let mut missing = LossReport::default();
        let Some(held) = transfer.block(state.b_num) else {
            return Some(missing);
        };
        let (id, b_num, sent, train) = (state.d_id, state.b_num, held.sent, held.longest_train);
        let logs = self.sent_logs.iter().enumerate();
        let under_way = logs.flat_map(|(path, it)| it.in_flight(id, b_num, now, flight_time(path)));
        let mut excepted: Vec<(u32, u32)> = under_way.collect();
        let queued = self
            .repairs
            .iter()
            .filter(|r| (r.id, r.b_num) == (id, b_num));
        excepted.extend(queued.map(|r| (r.start, r.start + r.len)));
        excepted.sort_unstable();
        for range in ranges {
            // Unsent bytes cannot have been lost; they are still to come.
            let end = range.start.saturating_add(range.len).min(sent);
            for (start, end) in without(range.start, end, &excepted) {
                match self.queue_repair(id, b_num, start, end - start) {
                    true => {
                        let path = self.carrier(id, b_num, (start, end));
                        missing.lost[path] += Lost::of(end - start, train, stu);
                    }
                    false => missing.beyond += 1,
                }
            }
        }
        if !ranges.is_empty() {
            // The receiver waits for payload that may never have left, because lost payload fills the congestion
            // window.
            for (path, it) in self.sent_logs.iter_mut().enumerate() {
                it.settle(now, flight_time(path));
            }
        }
        if missing.lost[0].bytes > 0 {
            let seen = self.sent_logs[0].seen();
            missing.black_hole = self.stuck.repaired(now, seen, flight_time(0));
        }
        // The loss of short datagrams, like their arrival, tells nothing about longer ones.
        if missing.lost[0].bytes > u64::from(stu / 2) {
            self.stuck.in_vain = self.stuck.in_vain.saturating_add(1);
            missing.in_vain = self.stuck.in_vain.is_multiple_of(BLACK_HOLE_REPAIRS);
        }
        Some(missing)
    }

    /// The path that carried these bytes last.
    pub(crate) fn carrier(&self, id: TransferId, b_num: u32, range: (u32, u32)) -> usize {
        if self.sent_logs.len() == 1 {
            return 0;
        }
        let logs = self.sent_logs.iter().enumerate();
        let carried = logs.filter_map(|(path, it)| Some((it.carried(id, b_num, range)?, path)));
        carried.max().map_or(0, |(_, path)| path)
    }

    /// Retransmits everything in flight on `path`, which no longer carries payload.
    pub(crate) fn abandon(&mut self, path: usize) {
        let Some(log) = self.sent_logs.get_mut(path) else {
            return;
        };
        for it in log.abandon() {
            let block = |outbound: &Outbound| outbound.block(it.b_num).is_some();
            if self.transfers.get(&it.id).is_some_and(block) {
                self.queue_repair(it.id, it.b_num, it.start, it.len);
            }
        }
    }

    /// `false` if the queue is full.
    fn queue_repair(&mut self, id: TransferId, b_num: u32, start: u32, len: u32) -> bool {
        if self.repairs.len() >= MAX_REPAIRS {
            return false;
        }
        self.repairs.push_back(Repair {
            id,
            b_num,
            start,
            len,
        });
        true
    }
}

/// The parts of `start..end` that no range of `excepted`, sorted by start, covers; in order. A report meets thousands
/// of exceptions, and the receiver controls their number: each is examined once.
pub(crate) fn without(start: u32, end: u32, excepted: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut parts = vec![];
    let mut at = start;
    for &(from, to) in excepted {
        if from >= end {
            break;
        }
        if from > at {
            parts.push((at, from));
        }
        at = at.max(to);
    }
    if at < end {
        parts.push((at, end));
    }
    parts
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
