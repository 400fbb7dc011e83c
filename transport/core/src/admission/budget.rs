//! How much all streams together may have granted and not arrived.
//!
//! `budget = rate x (base delay + margin) x stretch`: rate is the highest at which payload arrived
//! lately, base delay the shortest time from a grant to its first byte, and margin the time that
//! packets may wait in the switch. Counting the margin in time makes it grow with the link, as switch
//! buffers do: at 1 Gb/s half a millisecond is 43 packets, of the 64 that a shallow queue holds.
//!
//! The stretch is 1 where hosts answer at once. Where they do not, much of what is granted is in no
//! queue but waits for a sender that has not looked yet, or for us, and the link runs empty now and
//! then. That shows: less arrives than did at best, or a grant is answered within little more than the
//! base delay. Then the stretch grows until the link is full or payload is lost, and shrinks when the
//! queue is longer than meant. Losses shrink it too, and the margin when there is no stretch; a quiet
//! second lets the margin grow again.
//!
//! A path may lose by itself, whatever is granted. What is lost with the least stretch and margin, while
//! nothing waits, is taken for that, and no more than half as much again is needed to tell of an overflow then: else the
//! budget would fall to its floor, and with it the rate of which it is made.
//!
//! So that the base delay is not that of a queue of our own making, the budget falls below what fills
//! the link for a moment every few seconds.

use crate::Instant;
use crate::limits::{INITIAL_BUDGET, MAX_QUEUE_MARGIN, MIN_BUDGET_INTERVAL, MIN_QUEUE_MARGIN};
use core::time::Duration;

/// Age at which rate and base delay begin to be forgotten; they are gone after twice that.
const MEMORY: Duration = Duration::from_secs(5);

/// Without loss for this long, the margin grows.
const QUIET: Duration = Duration::from_secs(1);

/// Losses count from this part of what arrived, and if this part of the streams, or so many of them,
/// have any.
const LOSS_PART: u64 = 1024;
const LOSERS_PART: u64 = 4;
const MANY_LOSERS: u64 = 3;

/// Bytes over which the path's own loss is measured, at least; from four times as many on, what was
/// before fades. With own loss, an overflow has to cost so many bytes besides: as many as one does.
const OWN_MEASURED: u64 = 256 << 10;
const OVERFLOW: u64 = 15_000;

/// After a loss the stretch stays as it is for this long. An overflow costs some ten packets: once
/// in this time is a hundredth of a percent at 1 Gb/s.
const CAUTION: Duration = Duration::from_millis(250);

/// A queue this many times as long as meant is not made longer, whatever arrives.
const MUCH_TOO_LONG: u32 = 4;

/// The stretch is counted in these.
const ONE: u64 = 256;

/// Most stretch: hosts that answer sixteen times as late as they could.
const MAX_STRETCH: u64 = 16 * ONE;

/// What happened since the interval began.
#[derive(Clone, Copy, Debug)]
struct Interval {
    since: Instant,
    arrived: u64,
    missing: u64,
    /// Streams that miss something.
    losers: u64,
    /// Most streams that wanted something at a time.
    streams: u64,
    /// The two shortest delays. The first may be too short: when we lose our core between looking at
    /// the clock and at the socket, what arrives meanwhile counts as arrived before.
    shortest: [Option<Duration>; 2],
    /// More was wanted than the budget allowed.
    short: bool,
}

impl Interval {
    fn new(since: Instant) -> Interval {
        Interval {
            since,
            arrived: 0,
            missing: 0,
            losers: 0,
            streams: 0,
            shortest: [None; 2],
            short: false,
        }
    }

    fn note_delay(&mut self, delay: Option<Duration>) {
        let Some(delay) = delay else {
            return;
        };
        match self.shortest {
            [Some(first), _] if delay >= first => {
                let second = self.shortest[1].map_or(delay, |second| second.min(delay));
                self.shortest[1] = Some(second);
            }
            [first, _] => self.shortest = [Some(delay), first],
        }
    }

    /// The shortest delay that is to be believed, if there is one.
    fn shortest(&self) -> Option<Duration> {
        self.shortest[1]
    }

    fn is_contended(&self) -> bool {
        self.streams > 1
    }

    /// Whether the queue overflowed, on a path that loses `own` by itself. That hits many: what only few
    /// miss they may have lost anywhere, or not sent.
    fn is_lossy(&self, own: Part) -> bool {
        let unsuspicious = match own.of(self.arrived) {
            0 => self.arrived / LOSS_PART,
            own => own + own / 2 + OVERFLOW,
        };
        self.is_contended()
            && self.missing > unsuspicious
            && (self.losers * LOSERS_PART >= self.streams || self.losers >= MANY_LOSERS)
    }
}

/// A part of what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part(u64);

impl Part {
    const WHOLE: u64 = 1 << 16;

    fn of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.0) / u128::from(Part::WHOLE)) as u64
    }
}

/// What was missing of what arrived, lately.
#[derive(Clone, Copy, Debug, Default)]
struct Shortfall {
    missing: u64,
    arrived: u64,
}

impl Shortfall {
    fn note(&mut self, interval: &Interval) {
        self.missing += interval.missing;
        self.arrived += interval.arrived;
        if self.arrived >= 4 * OWN_MEASURED {
            (self.missing, self.arrived) = (self.missing / 2, self.arrived / 2);
        }
    }

    fn part(&self) -> Part {
        match self.arrived {
            0..OWN_MEASURED => Part(0),
            arrived => Part((self.missing.min(arrived) * Part::WHOLE).div_ceil(arrived)),
        }
    }
}

/// News of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    pub(super) arrived: u64,
    pub(super) missing: u64,
    pub(super) delay: Option<Duration>,
    /// The stream missed nothing before in this interval.
    pub(super) first_loss: bool,
    /// Streams that want something.
    pub(super) streams: u64,
    /// They want more than the budget allows.
    pub(super) short: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    interval: Option<Interval>,
    /// Highest rate of this and of the last [`MEMORY`], bytes per second.
    rate: [u64; 2],
    /// Shortest delay of this and of the last [`MEMORY`].
    base: [Option<Duration>; 2],
    margin: Duration,
    remembered: Instant,
    /// Since when nothing was lost.
    quiet_since: Instant,
    /// In parts of [`ONE`].
    stretch: u64,
    /// The stretch at the last loss.
    ceiling: u64,
    /// No stretching until then.
    careful_until: Instant,
    /// Until then the queue is to run empty.
    drain_until: Instant,
    /// What was missing with the least stretch and margin and nothing waiting, and at any time.
    unprovoked: Shortfall,
    usual: Shortfall,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget {
            interval: None,
            rate: [0; 2],
            base: [None; 2],
            margin: MAX_QUEUE_MARGIN,
            remembered: Instant::ZERO,
            quiet_since: Instant::ZERO,
            stretch: ONE,
            ceiling: MAX_STRETCH,
            careful_until: Instant::ZERO,
            drain_until: Instant::ZERO,
            unprovoked: Shortfall::default(),
            usual: Shortfall::default(),
        }
    }

    /// Highest rate of late, bytes per second; 0 before the first measurement.
    fn rate(&self) -> u64 {
        self.rate[0].max(self.rate[1])
    }

    fn base(&self) -> Option<Duration> {
        self.base.into_iter().flatten().min()
    }

    /// Whether anything was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.rate() > 0 && self.base().is_some()
    }

    /// Time in which an allowance that is used comes round: base delay and margin.
    pub(super) fn round(&self) -> Duration {
        self.base().unwrap_or_default() + self.margin
    }

    /// Bytes that all streams may have granted and not arrived.
    pub(super) fn bytes(&self, now: Instant) -> u64 {
        let (rate, base) = (self.rate(), self.base().unwrap_or_default());
        if now < self.drain_until {
            return carried(rate, base * 3 / 4);
        }
        let bytes = carried(rate, base + self.margin).max(self.floor());
        bytes.saturating_mul(self.stretch) / ONE
    }

    /// What a queue surely holds, unless losses said otherwise. A rate that is low because little was
    /// granted must not keep the grants low.
    fn floor(&self) -> u64 {
        let part = self.margin.as_nanos() * 1024 / MAX_QUEUE_MARGIN.as_nanos();
        INITIAL_BUDGET * part as u64 / 1024
    }

    /// Takes news of a stream. True when an interval ended, so that shares are to be dealt anew.
    pub(super) fn hear(&mut self, now: Instant, news: News) -> bool {
        let interval = self.interval.get_or_insert_with(|| Interval::new(now));
        interval.arrived += news.arrived;
        interval.missing += news.missing;
        interval.losers += u64::from(news.first_loss);
        interval.streams = interval.streams.max(news.streams);
        interval.short |= news.short;
        interval.note_delay(news.delay);
        let (ended, elapsed) = (*interval, now - interval.since);
        if elapsed
            < self
                .base()
                .unwrap_or_default()
                .saturating_mul(2)
                .max(MIN_BUDGET_INTERVAL)
        {
            return false;
        }
        self.interval = Some(Interval::new(now));
        self.learn(now, &ended, elapsed);
        true
    }

    /// No stream wants anything: what passes until one does is no measurement.
    pub(super) fn rest(&mut self) {
        self.interval = None;
    }

    fn learn(&mut self, now: Instant, interval: &Interval, elapsed: Duration) {
        let nanos = elapsed.as_nanos().max(1);
        let rate = u128::from(interval.arrived) * 1_000_000_000 / nanos;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // Then the budget grows by that alone.
        let rises = rate > self.rate() / 16 * 17;
        self.rate[0] = self.rate[0].max(rate);
        self.base[0] = [self.base[0], interval.shortest()]
            .into_iter()
            .flatten()
            .min();
        if interval.is_contended() {
            self.learn_own_loss(interval);
        }
        if interval.is_lossy(self.own_loss()) {
            self.note_loss(now);
        } else {
            self.note_queue(now, rate, rises, interval);
        }
        if interval.is_contended() && now - self.remembered >= MEMORY {
            self.forget(now);
        }
    }

    /// What the path loses by itself: never twice as much as is lost at present, for it may have healed,
    /// and nothing if that is hardly any.
    fn own_loss(&self) -> Part {
        let Part(usual) = self.usual.part();
        let own = self.unprovoked.part().min(Part(2 * usual));
        match own > Part(Part::WHOLE / LOSS_PART) {
            true => own,
            false => Part(0),
        }
    }

    fn learn_own_loss(&mut self, interval: &Interval) {
        self.usual.note(interval);
        let known = self.base().zip(interval.shortest());
        let waits = known.is_none_or(|(base, shortest)| shortest > base + self.margin);
        let least = self.stretch == ONE && self.margin == MIN_QUEUE_MARGIN;
        if least && !waits {
            self.unprovoked.note(interval);
            if self.own_loss() > Part(0) {
                // At what was lost before there was no end.
                self.ceiling = MAX_STRETCH;
            }
        }
    }

    /// The queue overflowed.
    fn note_loss(&mut self, now: Instant) {
        self.ceiling = self.stretch;
        self.careful_until = now + CAUTION;
        self.quiet_since = now;
        if self.stretch > ONE {
            self.stretch = (self.stretch * 3 / 4).max(ONE);
        } else {
            self.margin = (self.margin * 3 / 4).max(MIN_QUEUE_MARGIN);
        }
    }

    /// Nothing overflowed: stretches the budget while the link runs empty, and lets go of that when the
    /// queue is longer than meant.
    fn note_queue(&mut self, now: Instant, rate: u64, rises: bool, interval: &Interval) {
        if now - self.quiet_since >= QUIET {
            self.quiet_since = now;
            self.margin = (self.margin + MAX_QUEUE_MARGIN / 16).min(MAX_QUEUE_MARGIN);
        }
        let (Some(base), Some(shortest)) = (self.base(), interval.shortest()) else {
            return;
        };
        let full = rate >= self.rate() / 16 * 15;
        let waits = shortest.saturating_sub(base);
        if waits > self.margin * MUCH_TOO_LONG || full && waits > self.margin {
            self.stretch = (self.stretch - self.stretch / 16).max(ONE);
        } else if (!full || waits < self.margin / 2)
            && !rises
            && interval.short
            && interval.is_contended()
            && now >= self.careful_until
        {
            let below = self.stretch < self.ceiling / 8 * 7;
            let step = match (below, full) {
                (true, false) => 16,
                // As far as is known: what is granted on top may be what the queue has no place for.
                (true, true) => 64,
                (false, _) => 128,
            };
            self.stretch = (self.stretch + (self.stretch / step).max(1)).min(MAX_STRETCH);
        }
    }

    fn forget(&mut self, now: Instant) {
        self.remembered = now;
        self.rate = [0, self.rate[0]];
        self.base = [None, self.base[0].or(self.base[1])];
        self.drain_until = now + self.round() * 2;
    }
}

/// Bytes at `rate` bytes per second in `time`.
fn carried(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
