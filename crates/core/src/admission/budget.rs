//! How much all streams together may have granted and not arrived.
//!
//! `budget = rate x (base delay + margin)`: rate is the highest at which payload arrived lately, base
//! delay the shortest time from a grant to its first byte, and margin the time that packets may wait
//! in the switch. Counting the margin in time makes it grow with the link, as switch buffers do: at
//! 1 Gb/s half a millisecond is 43 packets, of the 64 that a shallow queue holds.
//!
//! Losses shrink the margin; quiet seconds let it grow again. So that the base delay is not that of a
//! queue of our own making, the budget falls below what fills the link for a moment every few seconds.

use crate::Instant;
use crate::limits::{INITIAL_BUDGET, MAX_QUEUE_MARGIN, MIN_BUDGET_INTERVAL, MIN_QUEUE_MARGIN};
use std::time::Duration;

/// Age at which rate and base delay begin to be forgotten; they are gone after twice that.
const MEMORY: Duration = Duration::from_secs(5);

/// Without loss for this long, the margin grows.
const QUIET: Duration = Duration::from_secs(1);

/// Losses count from this part of what arrived, and if this part of the streams has any.
const LOSS_PART: u64 = 1024;
const LOSERS_PART: u64 = 4;

/// Rounds without growth of the rate after which the link counts as full.
const FULL_AFTER_ROUNDS: u32 = 3;

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
    shortest: Option<Duration>,
}

impl Interval {
    fn new(since: Instant) -> Interval {
        Interval {
            since,
            arrived: 0,
            missing: 0,
            losers: 0,
            streams: 0,
            shortest: None,
        }
    }

    fn is_contended(&self) -> bool {
        self.streams > 1
    }

    /// Whether the queue overflowed. That hits many: what only few miss they may have lost anywhere,
    /// or not sent.
    fn is_lossy(&self) -> bool {
        self.is_contended()
            && self.missing * LOSS_PART > self.arrived
            && self.losers * LOSERS_PART >= self.streams
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
    /// While the link is being filled for the first time: the highest rate, and rounds without more.
    filling: Option<(u64, u32)>,
    /// Until then the queue is to run empty.
    drain_until: Instant,
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
            filling: Some((0, 0)),
            drain_until: Instant::ZERO,
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
        let (rate, Some(base)) = (self.rate(), self.base()) else {
            return INITIAL_BUDGET;
        };
        if rate == 0 {
            return INITIAL_BUDGET;
        }
        let time = if now < self.drain_until {
            base * 3 / 4
        } else if self.filling.is_some() {
            (base + self.margin).max(base * 3 / 2 + self.margin / 2)
        } else {
            base + self.margin
        };
        carried(rate, time).max(self.floor())
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
        interval.shortest = [interval.shortest, news.delay].into_iter().flatten().min();
        self.base[0] = [self.base[0], news.delay].into_iter().flatten().min();
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
        let lossy = interval.is_lossy();
        self.note_fill(rate, interval, lossy);
        self.rate[0] = self.rate[0].max(rate);
        if lossy {
            // The queue is shorter than thought.
            self.quiet_since = now;
            self.margin = (self.margin * 3 / 4).max(MIN_QUEUE_MARGIN);
        } else if now - self.quiet_since >= QUIET {
            self.quiet_since = now;
            self.margin = (self.margin + MAX_QUEUE_MARGIN / 16).min(MAX_QUEUE_MARGIN);
        }
        if interval.is_contended() && now - self.remembered >= MEMORY {
            self.forget(now);
        }
    }

    /// The link is full when more outstanding bytes bring loss or delay, but no more payload.
    fn note_fill(&mut self, rate: u64, interval: &Interval, lossy: bool) {
        let Some((best, rounds)) = self.filling else {
            return;
        };
        let queues = match (self.base(), interval.shortest) {
            (Some(base), Some(shortest)) => shortest > base + self.margin / 2,
            _ => false,
        };
        let grew = rate > best + best / 4;
        let rounds = if grew || !interval.is_contended() {
            0
        } else {
            rounds + 1
        };
        self.filling = if lossy || queues || rounds >= FULL_AFTER_ROUNDS {
            None
        } else {
            Some((best.max(rate), rounds))
        };
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
