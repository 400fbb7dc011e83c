//! The receiver's watch over payload that later payload has overtaken: when it counts as lost, and
//! when to ask for it again.
//!
//! A gap is not a loss. It becomes one when it is older than the path's reordering, which starts at a
//! quarter of a round trip (RFC 8985, 6.2) and grows to what late arrivals turn out to need. Each gap
//! is asked for by itself, so that one loss costs one short report, and again when a later request was
//! answered: then this one was lost, or its repair. If none is, it is asked for at growing intervals.

use crate::Instant;
use crate::limits::{MAX_ASK_BACKOFF, MAX_OVERTAKEN, REORDERING_MEMORY};
use alloc::collections::VecDeque;
use core::time::Duration;

/// How many of the ranges asked for, of each wait, are looked at to tell a late original from its repair:
/// of those that were to be answered next, and of the oldest.
const LATE_SEARCH: usize = 128;
/// Ranges a list keeps room for, however few it has.
const KEPT_ROOM: usize = 64;
/// Waits for a repair, each twice the one before.
const WAITS: usize = MAX_ASK_BACKOFF as usize + 1;

/// Bytes of a granted Block that were overtaken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OvertakenRange {
    /// Number of the grant.
    pub(crate) sequence: u32,
    /// First byte, from the start of the Block.
    pub(crate) start: u32,
    /// One past the last.
    pub(crate) end: u32,
    noticed: Instant,
    /// Nothing of its Block had come: perhaps the sender did not know of it.
    untouched: bool,
    /// When it was last asked for, and when a repair is overdue. Meaningless before.
    asked: Instant,
    due: Instant,
    /// How often it was asked for, as it is, and how often the wait for it ran out since something was
    /// answered.
    asks: u32,
    waits: usize,
    /// It was asked for before, as part of more: what comes may answer that.
    again: bool,
}

impl OvertakenRange {
    /// Whether it was never asked for.
    pub(crate) fn is_fresh(&self) -> bool {
        self.asks == 0
    }

    /// Whether what comes of it tells about that one request: Karn's rule, and parts of its Block had
    /// come, so the sender knew of it.
    fn was_asked_once(&self) -> bool {
        self.asks == 1 && !self.again && !self.untouched
    }
}

/// What payload behind the furthest turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateArrival {
    /// It had not been asked for: reordered on the way.
    Reordered,
    /// It had been asked for, but came before a repair can have come: the request was spurious.
    SpuriousRequest,
    /// The repair of what had been asked for once, and the time that took.
    Repaired(Duration),
    /// The repair of what was asked for several times, or nothing that was watched.
    Unknown,
}

/// All overtaken ranges of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossDetector {
    /// Not asked for yet, in the order of the stream, which is that of time.
    fresh: VecDeque<OvertakenRange>,
    /// Asked for: by how often the wait ran out, in the order of the requests, which is that in which they
    /// are overdue.
    asked: [VecDeque<OvertakenRange>; WAITS],
    /// How late payload came, and when that was learned.
    reordering: Duration,
    learned: Instant,
    /// When the latest of the requests that were answered was made: earlier ones were lost, or their
    /// repairs were.
    answered: Instant,
}

impl LossDetector {
    /// Bytes `start..end` of Block `sequence` were overtaken, of which nothing had come if it is
    /// `untouched`. `false`: there is no room to watch them, and they are left to the wait for payload.
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

    /// Bytes `start..end` of Block `sequence` came after later ones. `min_rtt` is what a repair takes
    /// at least.
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
            // Not by a hair: round trips are not measured that exactly.
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

    /// The range asked for that `touches`. Repairs come in the order of the requests.
    fn find_asked(&self, touches: impl Fn(&OvertakenRange) -> bool) -> Option<OvertakenRange> {
        let find = |queue: &VecDeque<OvertakenRange>| {
            let next = queue.partition_point(|it| it.asked < self.answered);
            let expected = queue.range(next..).take(LATE_SEARCH);
            let oldest = queue.range(..next).take(LATE_SEARCH);
            expected.chain(oldest).find(|it| touches(it)).copied()
        };
        self.asked.iter().find_map(find)
    }

    /// Payload may be this late on this path. Half as much again: the next may be later. A peer
    /// cannot make us wait longer than a few round trips.
    fn learn(&mut self, now: Instant, late: Duration, min_rtt: Duration) {
        let most = (min_rtt * 4).max(Duration::from_millis(20));
        let extent = (late + late / 2).min(most);
        if extent >= self.reordering(now) {
            (self.reordering, self.learned) = (extent, now);
        }
    }

    /// How late payload may be without being lost, as far as was seen; zero if never.
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

    /// When a repair is overdue first, and after how many waits.
    fn first_overdue(&self, patience: Duration) -> Option<(Instant, usize)> {
        let fronts = self.asked.iter().enumerate();
        let overdue = fronts.filter_map(|(waits, queue)| Some((queue.front()?, waits)));
        overdue
            .map(|(it, waits)| (self.overdue(it, patience), waits))
            .min()
    }

    /// When the repair of `it` is overdue: after its time, or when a later request was answered.
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

    /// The next range that is to be asked for, taken out.
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

    /// What is missing of `it` from `start` on was not asked for yet: it is due next. `false` as in
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

    /// What is missing of `it`, from `start` to `end`, was asked for; its repair is overdue after
    /// `wait`, and longer each time that nothing was answered, but not before those that were asked for
    /// earlier. Part of a range is a new matter: the rest came. `false` as in [`LossDetector::overtaken`].
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

/// Ranges wander from list to list, and each list would keep room for as many as it ever had: for
/// [`MAX_OVERTAKEN`] in each of them. So a list has room for at most twice what it holds. It shrinks to
/// half as much again, so that each range is moved a few times at most.
fn give_back_room(list: &mut VecDeque<OvertakenRange>) {
    if list.len() < list.capacity() / 2 {
        list.shrink_to((list.len() * 3 / 2).max(KEPT_ROOM));
    }
}

#[cfg(test)]
#[path = "loss_detector_tests.rs"]
mod tests;
