//! What the receiver misses, and what of that is sent again.

use super::{Outbound, Outbox};
use crate::limits::{BLACK_HOLE_REPAIRS, MAX_REPAIRS};
use crate::{Instant, TransferId};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::AddAssign;
use core::time::Duration;
use zerolane_wire::{MAX_PATHS, Range, State};

/// Whether repairs do any good.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stuck {
    /// Newest burst the receiver had seen at the last repair.
    seen: u32,
    /// When that repair was made.
    at: Instant,
    /// Repairs in a row that brought nothing to light.
    repairs: u32,
}

impl Stuck {
    /// Notes a repair; true if large datagrams seem to vanish.
    fn repaired(&mut self, now: Instant, seen: u32, flight_time: Duration) -> bool {
        if seen != self.seen {
            *self = Stuck {
                seen,
                at: now,
                repairs: 1,
            };
        } else if now - self.at >= flight_time {
            self.at = now;
            self.repairs += 1;
        }
        if self.repairs < BLACK_HOLE_REPAIRS {
            return false;
        }
        self.repairs = 0;
        true
    }
}

/// What a path lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Payload to be sent again, bytes.
    pub(crate) bytes: u64,
    /// Payload of the fewest datagrams whose loss explains it, bytes: one of each train. It is what a congestion controller
    /// is told, for what the path drops are datagrams.
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

    /// `bytes` in a row of a Block of which trains of at most `longest` bytes left, or none if that is 0. A train is
    /// missing as a whole where one datagram was dropped, of `stu` bytes of payload.
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

/// What a report of missing payload, or a grant made anew, amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossReport {
    /// What is to be sent again, by the paths that lost it.
    pub(crate) lost: [Lost; MAX_PATHS as usize],
    /// Ranges beyond [`MAX_REPAIRS`], to be asked for again.
    pub(crate) beyond: u64,
    /// The same bytes were reported again and again: perhaps the path swallows large datagrams.
    pub(crate) black_hole: bool,
}

/// A range to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    pub(super) id: TransferId,
    pub(super) b_num: u32,
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Outbox {
    /// Takes a report about a Block; `None` if it is about nothing of ours. Bursts younger than what `flight_time` says of
    /// their path may still be in flight, unless the receiver has seen a later one of that path.
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
            // Only what has been sent can have been lost; the rest is still to come anyway.
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
            // The receiver waits for payload that may never have left, because the congestion window is full
            // of what was lost.
            for (path, it) in self.sent_logs.iter_mut().enumerate() {
                it.settle(now, flight_time(path));
            }
        }
        if missing.lost[0].bytes > 0 {
            let seen = self.sent_logs[0].seen();
            missing.black_hole = self.stuck.repaired(now, seen, flight_time(0));
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

    /// What was in flight on `path` is to be sent again: it carries no more.
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

    /// `false` if there are too many already.
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

/// The parts of `start..end` that none of `excepted`, in order of their starts, covers; in order. A report
/// meets thousands of exceptions, as many as the receiver makes them: each is looked at once.
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
