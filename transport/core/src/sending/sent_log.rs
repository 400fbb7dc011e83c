//! Logs every burst in flight under its number, to which the receiver's reports refer.
//!
//! Reported bytes count as lost only if a burst later than the one that last carried them has arrived, or that one is
//! older than a round trip (the idea of RFC 8985, with bursts for packets). Reports that are late, repeated or forged
//! cause no repeated retransmission.

use crate::congestion::{Lateness, Sample};
use crate::counters::DropReason;
use crate::limits::MAX_FLIGHT;
use crate::time::Instant;
use crate::transfer::TransferId;
use alloc::collections::VecDeque;
use core::fmt;
use core::time::Duration;
use zerolane_wire::Progress;

/// A burst that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentBurst {
    /// Its number, in Sync of its Data. Never 0.
    pub(crate) number: u32,
    pub(crate) at: Instant,
    pub(crate) id: TransferId,
    pub(crate) b_num: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
    /// Bytes sent since the connection began, including these.
    pub(crate) total: u64,
    /// The receiver's report of some time before.
    base: ReportedState,
    /// There was nothing more to send.
    limited: bool,
}

/// The receiver's last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    /// When the report came. Its delay counts from the first STU of a burst, and its byte count ends with the last. If
    /// that delay were subtracted, the answers to a repair and to a burst would be a burst apart, and the rate that
    /// much too high.
    at: Instant,
    received: u64,
    marked: u32,
}

/// A report of the receiver, and the departure of the last burst that it had seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReportedState {
    known: Reported,
    seen_sent: Instant,
    arrival: Option<Arrival>,
    /// Bytes sent up to the newest burst that was seen by then, or must be gone.
    settled: u64,
}

/// Arrival of a burst, plus the time of the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    at: Instant,
    /// Bytes sent before it.
    before: u64,
    /// An end was late to report it.
    late: bool,
}

impl Arrival {
    /// The arrival rate of the bytes sent from `earlier` to this one. Ignores late ends: datagrams found in a socket
    /// may have arrived at any rate. `None` if there is no such rate.
    fn rate_since(&self, earlier: &Arrival) -> Option<u64> {
        let bytes = self.before.checked_sub(earlier.before)?;
        let late = self.late || earlier.late;
        late.then(|| per_second(bytes, self.at - earlier.at))
    }
}

/// The parts of a round trip that belong to the path and to the ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) rtt: Duration,
    pub(crate) min_rtt: Duration,
    /// How long the answer has been here.
    pub(crate) waited: Duration,
    pub(crate) lateness: Lateness,
}

/// Shortest time over which a rate is computed. Busy ends are late by a fraction of it, and distort the rate by as
/// much.
const RATE_SPAN: Duration = Duration::from_millis(1);

/// Answers remembered in that time.
const REPORTS_IN_SPAN: u32 = 8;

/// Bursts of a path remembered after they were seen, to tell which path lost a range.
const MAX_PASSED: usize = 256;

/// The bursts in flight, oldest first.
#[derive(Clone)]
pub(crate) struct SentLog {
    log: VecDeque<SentBurst>,
    next: u32,
    /// Newest number that the receiver has seen, when that burst left, and when its arrival was reported.
    seen: u32,
    seen_sent: Instant,
    seen_at: Instant,
    /// Bytes sent, and of those, bytes up to the newest burst that was seen or must be gone.
    total: u64,
    settled: u64,
    known: Reported,
    /// Arrival of the newest reported burst.
    arrival: Option<Arrival>,
    /// Earlier reports, oldest first. The first is as old as a rate's span, or none is.
    reports: VecDeque<ReportedState>,
    /// Bytes sent when the present round began.
    round: u64,
    /// Bytes sent when the receiver was last asked for its progress.
    asked: u64,
    /// Bursts dropped for lack of room, and not yet counted.
    forgotten: u64,
    /// Highest bits of the numbers, which identify the path and stay fixed.
    path_bits: u32,
    /// On one of several paths: bursts recently seen or passed over, and their departures.
    passed: VecDeque<SentBurst>,
}

impl fmt::Debug for SentLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentLog")
            .field("bursts", &self.log.len())
            .field("next", &self.next)
            .field("seen", &self.seen)
            .field("under_way", &self.bytes_in_flight())
            .finish_non_exhaustive()
    }
}

impl SentLog {
    pub(crate) fn new() -> SentLog {
        SentLog {
            log: VecDeque::new(),
            next: 1,
            seen: 0,
            seen_sent: Instant::ZERO,
            seen_at: Instant::ZERO,
            total: 0,
            settled: 0,
            known: Reported::default(),
            arrival: None,
            reports: VecDeque::new(),
            round: 0,
            asked: 0,
            forgotten: 0,
            path_bits: 0,
            passed: VecDeque::new(),
        }
    }

    /// An empty log of path `path`, which the highest `path_bits` bits of its numbers identify.
    pub(crate) fn of_path(path: usize, path_bits: u32) -> SentLog {
        let none = (path as u32)
            .checked_shl(u32::BITS - path_bits)
            .unwrap_or(0);
        SentLog {
            next: none + 1,
            seen: none,
            path_bits,
            ..SentLog::new()
        }
    }

    fn is_after(&self, number: u32, other: u32) -> bool {
        is_after(number, other, self.path_bits)
    }

    /// Bytes ever sent.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// When a burst with any of these bytes of the Block last left, if recently.
    pub(crate) fn carried(
        &self,
        id: TransferId,
        b_num: u32,
        (start, end): (u32, u32),
    ) -> Option<Instant> {
        let touches = |it: &&SentBurst| {
            it.id == id && it.b_num == b_num && it.start < end && start < it.start + it.len
        };
        let mut newest_first = self.log.iter().rev().chain(self.passed.iter().rev());
        newest_first.find(touches).map(|it| it.at)
    }

    /// Removes and returns all unseen bursts: the path does not carry them.
    pub(crate) fn abandon(&mut self) -> VecDeque<SentBurst> {
        self.give_up();
        core::mem::take(&mut self.log)
    }

    /// The number of the next burst.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Newest number the receiver has seen, 0 before the first.
    pub(crate) fn seen(&self) -> u32 {
        self.seen
    }

    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }

    /// Bursts dropped for lack of room since the last call.
    pub(crate) fn take_forgotten(&mut self) -> u64 {
        core::mem::take(&mut self.forgotten)
    }

    /// The burst [`SentLog::next_number`] leaves, with `len` bytes from `start` of a Block.
    pub(crate) fn on_sent(
        &mut self,
        at: Instant,
        id: TransferId,
        b_num: u32,
        start: u32,
        len: u32,
    ) {
        if self.log.is_empty() && self.known.at < at {
            // Idle time is no sample of the rate.
            self.known.at = at;
            self.seen_sent = at;
            self.arrival = None;
            self.reports.clear();
        }
        let now = self.newest_report();
        self.total += u64::from(len);
        if self.log.len() >= MAX_FLIGHT {
            self.log.pop_front();
            self.forgotten += 1;
        }
        self.log.push_back(SentBurst {
            number: self.next,
            at,
            id,
            b_num,
            start,
            len,
            total: self.total,
            base: self.reports.front().copied().unwrap_or(now),
            limited: false,
        });
        let last = u32::MAX >> self.path_bits;
        // 0 is no valid number.
        self.next = match self.next & last == last {
            true => self.next - last + 1,
            false => self.next + 1,
        };
    }

    fn newest_report(&self) -> ReportedState {
        ReportedState {
            known: self.known,
            seen_sent: self.seen_sent,
            arrival: self.arrival,
            settled: self.settled,
        }
    }

    /// Remembers the newest report.
    fn note_report(&mut self) {
        let newest = self.newest_report();
        let span = RATE_SPAN / REPORTS_IN_SPAN;
        let since = |it: &ReportedState| newest.known.at - it.known.at;
        if self.reports.back().is_none_or(|last| since(last) >= span) {
            self.reports.push_back(newest);
        }
        while self.reports.get(1).is_some_and(|it| since(it) >= RATE_SPAN) {
            self.reports.pop_front();
        }
    }

    /// The receiver has seen burst `number`. Returns that burst if it is newly seen and not dropped.
    ///
    /// # Errors
    /// No such burst was ever sent.
    pub(crate) fn on_seen(
        &mut self,
        now: Instant,
        number: u32,
    ) -> Result<Option<SentBurst>, DropReason> {
        if number == 0 || !self.is_after(number, self.seen) {
            return Ok(None);
        }
        if !self.is_after(self.next, number) {
            return Err(DropReason::Unexpected);
        }
        self.seen = number;
        let mut newest = None;
        let path_bits = self.path_bits;
        let passed = |it: &mut SentBurst| !is_after(it.number, number, path_bits);
        while let Some(sent) = self.log.pop_front_if(passed) {
            newest = Some(sent);
            if path_bits > 0 {
                self.note_passed(sent);
            }
        }
        if let Some(sent) = newest {
            (self.seen_sent, self.seen_at) = (sent.at, now);
            self.settled = self.settled.max(sent.total);
        }
        Ok(newest.filter(|it| it.number == number))
    }

    fn note_passed(&mut self, sent: SentBurst) {
        if self.passed.len() >= MAX_PASSED {
            self.passed.pop_front();
        }
        self.passed.push_back(sent);
    }

    /// Nothing was left to send after the last burst.
    pub(crate) fn on_app_limited(&mut self) {
        if let Some(last) = self.log.back_mut() {
            last.limited = true;
        }
    }

    /// Bytes that left after the newest burst that the receiver has seen, or that must be gone.
    pub(crate) fn bytes_in_flight(&self) -> u64 {
        self.total - self.settled
    }

    /// Time of the last news about sent bursts.
    pub(crate) fn quiet_since(&self) -> Instant {
        let left = self.log.front().map_or(Instant::ZERO, |it| it.at);
        self.seen_at.max(left)
    }

    /// Removes bursts too old to arrive from the bytes in flight.
    pub(crate) fn settle(&mut self, now: Instant, flight_time: Duration) {
        let mut newest_first = self.log.iter().rev();
        let gone = newest_first.find(|it| !self.may_arrive(it, now, flight_time));
        if let Some(total) = gone.map(|it| it.total) {
            self.settled = self.settled.max(total);
        }
    }

    /// Counts everything in flight as lost: nothing new was seen for too long.
    pub(crate) fn give_up(&mut self) {
        self.settled = self.total;
    }

    /// Whether the receiver must be asked again, after `interval` bytes. Notes the question.
    pub(crate) fn asks_progress(&mut self, interval: u64) -> bool {
        let due = self.total - self.asked >= interval;
        if due {
            self.asked = self.total;
        }
        due
    }

    /// The sample for the congestion controller from the receiver's answer to `sent`, received now. The rate is the
    /// lower of delivery rate and sending rate (draft-ietf-ccwg-bbr, 4.1), so that delayed answers that come together
    /// do not raise it. Where the ends are late, it is at most the arrival rate.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        sent: &SentBurst,
        progress: &Progress,
        timing: Timing,
    ) -> Option<Sample> {
        let Timing {
            rtt,
            min_rtt,
            waited,
            lateness,
        } = timing;
        let now = now.before(waited);
        // No claim raises it above the bytes sent.
        let received = progress.received.min(self.total);
        let news = received.checked_sub(self.known.received)?;
        let marked = progress.marked.wrapping_sub(self.known.marked);
        self.known = Reported {
            at: now.max(self.known.at),
            received,
            marked: progress.marked,
        };
        let arrival = Arrival {
            at: now.before(Duration::from_micros(progress.delay_us.into())),
            before: sent.total - u64::from(sent.len),
            late: !lateness.sum().is_zero(),
        };
        self.arrival = Some(arrival);
        self.note_report();
        let at_arrival = sent.base.arrival.and_then(|it| arrival.rate_since(&it));
        // Some answers, to questions about missing ranges, carry no sum: bytes that arrived before them did not arrive
        // since.
        let arrived = received
            .saturating_sub(sent.base.known.received)
            .min(sent.total.saturating_sub(sent.base.settled));
        let elapsed = (self.known.at - sent.base.known.at).max(sent.at - sent.base.seen_sent);
        let round = sent.total > self.round;
        if round {
            self.round = self.total;
        }
        Some(Sample {
            rtt,
            min_rtt,
            rate: per_second(arrived, elapsed.max(min_rtt)).min(at_arrival.unwrap_or(u64::MAX)),
            limited: sent.limited,
            received: news,
            marked,
            under_way: self.bytes_in_flight(),
            round,
            lateness,
        })
    }

    /// Ranges of the Block that the receiver had not seen at its last report and that may still arrive. They left
    /// within the last `flight_time`; or they follow the last seen burst as closely as they left after it, which
    /// happens while a queue grows.
    pub(crate) fn in_flight(
        &self,
        id: TransferId,
        b_num: u32,
        now: Instant,
        flight_time: Duration,
    ) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.log
            .iter()
            .rev()
            .take_while(move |it| self.may_arrive(it, now, flight_time))
            .filter(move |it| it.id == id && it.b_num == b_num)
            .map(|it| (it.start, it.start + it.len))
    }

    /// Ranges of the Block that left after `time`, and that the receiver had not seen at its last report.
    pub(crate) fn left_after(
        &self,
        id: TransferId,
        b_num: u32,
        time: Instant,
    ) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.log
            .iter()
            .rev()
            .take_while(move |it| it.at > time)
            .filter(move |it| it.id == id && it.b_num == b_num)
            .map(|it| (it.start, it.start + it.len))
    }

    fn may_arrive(&self, it: &SentBurst, now: Instant, flight_time: Duration) -> bool {
        let usual = it.at + flight_time;
        let behind_seen = self.seen_at + (it.at - self.seen_sent) + flight_time / 4;
        usual.max(behind_seen) > now
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Whether `number` follows `other` on their path, which the highest `path_bits` of both identify.
pub(crate) fn is_after(number: u32, other: u32, path_bits: u32) -> bool {
    (number << path_bits).wrapping_sub(other << path_bits) as i32 > 0
}

#[cfg(test)]
#[path = "sent_log_tests.rs"]
mod tests;
