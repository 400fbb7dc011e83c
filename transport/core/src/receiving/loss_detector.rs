//! Detects loss of payload that later payload has overtaken, and schedules its repair.
//!
//! A gap is not yet a loss. It becomes one when it is older than the path's reordering, which starts at a quarter of a
//! round trip (RFC 8985, 6.2) and grows with late arrivals. Each gap is requested separately, so that one loss costs
//! one short report. It is requested again when a later request was answered, because then this request or its repair
//! was lost, and otherwise at growing intervals.

use crate::limits::{MAX_ASK_BACKOFF, MAX_OVERTAKEN, REORDERING_MEMORY};
use crate::time::Instant;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Most ranges searched, per wait, to tell a late original from its repair: among those due to be answered next, and
/// among the oldest.
const LATE_SEARCH: usize = 128;
/// Ranges for which a list keeps room even if it holds fewer.
const KEPT_ROOM: usize = 64;
/// Number of waits for a repair, each twice the previous one.
const WAITS: usize = MAX_ASK_BACKOFF as usize + 1;

/// A range of a granted Block that was overtaken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OvertakenRange {
    /// Number of the grant.
    pub(crate) sequence: u32,
    /// First byte, from the start of the Block.
    pub(crate) start: u32,
    /// One past the last byte.
    pub(crate) end: u32,
    noticed: Instant,
    /// Nothing of its Block had come: the sender may not know of the Block.
    untouched: bool,
    /// Time of the last request, and when its repair is overdue. Meaningless before the first request.
    asked: Instant,
    due: Instant,
    /// Number of requests for exactly this range, and of expired waits since the last answered request.
    asks: u32,
    waits: usize,
    /// It was requested before, as part of a larger range: payload may answer that request.
    again: bool,
}

impl OvertakenRange {
    /// Whether it was never requested.
    pub(crate) fn is_fresh(&self) -> bool {
        self.asks == 0
    }

    /// Whether its arrival identifies that one request: it was requested once (Karn's algorithm), and parts of its
    /// Block had come, so the sender knew of the Block.
    fn was_asked_once(&self) -> bool {
        self.asks == 1 && !self.again && !self.untouched
    }
}

/// Classification of payload behind the furthest arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateArrival {
    /// It had not been requested: reordered by the path.
    Reordered,
    /// It had been requested, but came too early to be the repair: the request was spurious.
    SpuriousRequest,
    /// The repair of a range requested once, and the time that took.
    Repaired(Duration),
    /// The repair of a range requested several times, or of no watched range.
    Unknown,
}

/// All overtaken ranges of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossDetector {
    /// Not yet requested, in the order of the stream, which is the order of time.
    fresh: VecDeque<OvertakenRange>,
    /// Requested, by the number of expired waits; in the order of the requests, and so of the deadlines.
    asked: [VecDeque<OvertakenRange>; WAITS],
    /// Observed lateness of payload, and when it was learned.
    reordering: Duration,
    learned: Instant,
    /// When the latest answered request was made: earlier requests, or their repairs, were lost.
    answered: Instant,
}

impl LossDetector {
    /// Bytes `start..end` of Block `sequence` were overtaken; `untouched` if nothing of the Block had come. `false` if
    /// there is no room to watch them: the payload timer finds them.
    pub(crate) fn overtaken(
        &mut self,
        now: Instant,
        (sequence, start, end): (u32, u32, u32),
        untouched: bool,
    ) -> bool {
        let room = self.len() < MAX_OVERTAKEN;
        if room {
            self.fresh.push_back(OvertakenRange {
                sequence,
                start,
                end,
                noticed: now,
                untouched,
                asked: now,
                due: now,
                asks: 0,
                waits: 0,
                again: false,
            });
        }
        room
    }

    pub(crate) fn len(&self) -> usize {
        self.fresh.len() + self.asked.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Bytes `start..end` of Block `sequence` came after later ones. `min_rtt` is the least time for a repair.
    pub(crate) fn filled(
        &mut self,
        now: Instant,
        (sequence, start, end): (u32, u32, u32),
        min_rtt: Duration,
    ) -> LateArrival {
        let touches =
            |it: &OvertakenRange| it.sequence == sequence && it.start < end && start < it.end;
        if let Some(it) = self.find_fresh(sequence, start).filter(|it| touches(it)) {
            if it.untouched {
                return LateArrival::Unknown;
            }
            self.learn(now, now - it.noticed, min_rtt);
            return LateArrival::Reordered;
        }
        match self.find_asked(touches) {
            // With a margin: round trips are not measured exactly.
            Some(it) if it.was_asked_once() && now - it.asked < min_rtt * 3 / 4 => {
                self.learn(now, now - it.noticed, min_rtt);
                LateArrival::SpuriousRequest
            }
            Some(it) => {
                self.answered = self.answered.max(it.asked);
                match it.was_asked_once() {
                    true => LateArrival::Repaired(now - it.asked),
                    false => LateArrival::Unknown,
                }
            }
            None => LateArrival::Unknown,
        }
    }

    /// The first fresh range that does not end before `start` of Block `sequence`.
    fn find_fresh(&self, sequence: u32, start: u32) -> Option<OvertakenRange> {
        let first = self.fresh.front()?.sequence;
        let place = |sequence: u32, at: u32| (sequence.wrapping_sub(first), at);
        let index = self
            .fresh
            .partition_point(|it| place(it.sequence, it.end) <= place(sequence, start));
        self.fresh.get(index).copied()
    }

    /// The requested range that `touches`. Repairs come in the order of the requests.
    fn find_asked(&self, touches: impl Fn(&OvertakenRange) -> bool) -> Option<OvertakenRange> {
        let find = |queue: &VecDeque<OvertakenRange>| {
            let next = queue.partition_point(|it| it.asked < self.answered);
            let expected = queue.range(next..).take(LATE_SEARCH);
            let oldest = queue.range(..next).take(LATE_SEARCH);
            expected.chain(oldest).find(|it| touches(it)).copied()
        };
        self.asked.iter().find_map(find)
    }

    /// Payload may be this late on this path. Adds half as much again for the next. The bound keeps a peer from making
    /// us wait longer than a few round trips.
    fn learn(&mut self, now: Instant, late: Duration, min_rtt: Duration) {
        let most = (min_rtt * 4).max(Duration::from_millis(20));
        let extent = (late + late / 2).min(most);
        if extent >= self.reordering(now) {
            (self.reordering, self.learned) = (extent, now);
        }
    }

    /// Observed lateness of payload that was not lost; zero if there was none.
    pub(crate) fn reordering(&self, now: Instant) -> Duration {
        if now - self.learned < REORDERING_MEMORY {
            self.reordering
        } else {
            Duration::ZERO
        }
    }

    /// How long after it was overtaken payload counts as lost.
    pub(crate) fn patience(&self, now: Instant, rtt: Duration) -> Duration {
        self.reordering(now).max(rtt / 4)
    }

    /// When something is due next.
    pub(crate) fn next_due(&self, now: Instant, rtt: Duration) -> Option<Instant> {
        let fresh = self.fresh.front();
        let lost = fresh.map(|it| it.noticed + self.patience(now, rtt));
        let patience = self.patience(now, rtt);
        let overdue = self.first_overdue(patience).map(|(at, _)| at);
        lost.into_iter().chain(overdue).min()
    }

    /// The earliest deadline of a repair, and the number of expired waits before it.
    fn first_overdue(&self, patience: Duration) -> Option<(Instant, usize)> {
        let fronts = self.asked.iter().enumerate();
        let overdue = fronts.filter_map(|(waits, queue)| Some((queue.front()?, waits)));
        overdue
            .map(|(it, waits)| (self.overdue(it, patience), waits))
            .min()
    }

    /// When the repair of `it` is overdue: at its deadline, or once a later request was answered.
    fn overdue(&self, it: &OvertakenRange, patience: Duration) -> Instant {
        match self.is_overtaken(it, patience) {
            true => self.answered,
            false => it.due,
        }
    }

    /// Whether a later request was answered.
    fn is_overtaken(&self, it: &OvertakenRange, patience: Duration) -> bool {
        it.asked + patience <= self.answered
    }

    /// Removes and returns the next range to request.
    pub(crate) fn take_due(&mut self, now: Instant, rtt: Duration) -> Option<OvertakenRange> {
        let patience = self.patience(now, rtt);
        let lost = |it: &mut OvertakenRange| it.noticed + patience <= now;
        let fresh = self.fresh.pop_front_if(lost);
        if fresh.is_some() {
            give_back_room(&mut self.fresh);
            return fresh;
        }
        let (at, waits) = self.first_overdue(patience)?;
        if at > now {
            return None;
        }
        let it = self.asked[waits].pop_front()?;
        give_back_room(&mut self.asked[waits]);
        let waits = match self.is_overtaken(&it, patience) {
            true => 0,
            false => (waits + 1).min(WAITS - 1),
        };
        Some(OvertakenRange { waits, ..it })
    }

    /// The missing part of `it` from `start` on was not yet requested: it is due next. `false` as in
    /// [`LossDetector::overtaken`].
    pub(crate) fn put_back(&mut self, it: OvertakenRange, start: u32) -> bool {
        if self.len() >= MAX_OVERTAKEN {
            return false;
        }
        let queue = match it.is_fresh() {
            true => &mut self.fresh,
            false => &mut self.asked[it.waits],
        };
        queue.push_front(OvertakenRange { start, ..it });
        true
    }

    /// The missing part of `it`, from `start` to `end`, was requested. Its repair is overdue after `wait`, and longer
    /// after each expired wait, but not before earlier requests. Part of a range starts anew, because the rest came.
    /// `false` as in [`LossDetector::overtaken`].
    pub(crate) fn asked(
        &mut self,
        now: Instant,
        it: OvertakenRange,
        (start, end): (u32, u32),
        wait: Duration,
    ) -> bool {
        if self.len() >= MAX_OVERTAKEN {
            return false;
        }
        let whole = (start, end) == (it.start, it.end);
        let (before, waits) = if whole { (it.asks, it.waits) } else { (0, 0) };
        let queue = &mut self.asked[waits];
        let due = now + wait * (1 << waits);
        queue.push_back(OvertakenRange {
            start,
            end,
            asked: now,
            due: queue.back().map_or(due, |last| last.due.max(due)),
            asks: before + 1,
            waits,
            again: it.again || it.asks > 0,
            ..it
        });
        true
    }
}

/// Ranges move from list to list, and each list would keep capacity for [`MAX_OVERTAKEN`] ranges. So a list has
/// capacity for at most twice its length. It shrinks to half as much again, so that each range is moved only a few
/// times.
fn give_back_room(list: &mut VecDeque<OvertakenRange>) {
    if list.len() < list.capacity() / 2 {
        list.shrink_to((list.len() * 3 / 2).max(KEPT_ROOM));
    }
}

#[cfg(test)]
#[path = "loss_detector_tests.rs"]
mod tests;
