//! Computes how much all streams together may have granted and not arrived, from their reports.
//!
//! `budget = rate x (base delay + margin) x stretch`: rate is the highest recent arrival rate of payload, base delay
//! the shortest time from a grant to its first byte, and margin the time that packets may wait in the switch. A margin
//! in units of time grows with the link, as switch buffers do: at 1 Gb/s half a millisecond is 43 packets, of the 64
//! that a shallow queue holds.
//!
//! The stretch is 1 where hosts answer at once. Where they do not, much of the granted payload is in no queue but waits
//! for a busy sender, or for this end, and the link runs empty now and then. Two signs show that: less arrives than the
//! best rate, or a grant is answered within little more than the base delay. Then the stretch grows until the link is
//! full or payload is lost, and shrinks when the queue is longer than intended. Losses shrink the stretch, or without a
//! stretch the margin; a second without loss lets the margin grow again.
//!
//! A path may lose by itself, whatever is granted. Loss with the least stretch and margin, while nothing waits, counts
//! as the path's own. An overflow then takes half as much loss again. Otherwise the budget would fall to its floor, and
//! with it the rate from which it is computed.
//!
//! Every few seconds the budget falls below what fills the link for a moment, so that the base delay is not that of a
//! queue of our own making.

use crate::limits::{INITIAL_BUDGET, MAX_QUEUE_MARGIN, MIN_BUDGET_INTERVAL, MIN_QUEUE_MARGIN};
use crate::time::Instant;
use core::time::Duration;

/// Age at which rate and base delay begin to fade; they are gone after twice that.
const MEMORY: Duration = Duration::from_secs(5);

/// Time without loss after which the margin grows.
const QUIET: Duration = Duration::from_secs(1);

/// Loss counts from this part of the arrivals on, and if this part of the streams, or this number of them, have any.
const LOSS_PART: u64 = 1024;
const LOSERS_PART: u64 = 4;
const MANY_LOSERS: u64 = 3;

/// Fewest bytes over which the path's own loss is measured; from four times as many on, older measurements fade. With
/// own loss, an overflow must also cost at least this many bytes.
const OWN_MEASURED: u64 = 256 << 10;
const OVERFLOW: u64 = 15_000;

/// How long the stretch is frozen after a loss. An overflow costs some ten packets: once in this time is a hundredth of
/// a percent at 1 Gb/s.
const CAUTION: Duration = Duration::from_millis(250);

/// A queue this many times as long as intended is not made longer, whatever arrives.
const MUCH_TOO_LONG: u32 = 4;

/// Unit of the stretch.
const ONE: u64 = 256;

/// Largest stretch: hosts that answer sixteen times as late as they could.
const MAX_STRETCH: u64 = 16 * ONE;

/// Sums since the interval began.
#[derive(Clone, Copy, Debug)]
struct Interval {
    since: Instant,
    arrived: u64,
    missing: u64,
    /// Streams with losses.
    losers: u64,
    /// Most streams with demand at a time.
    streams: u64,
    /// The two shortest delays. The first may be too short: if this end is descheduled between reading the clock and
    /// reading the socket, payload that arrives meanwhile counts as having arrived before.
    shortest: [Option<Duration>; 2],
    /// The streams wanted more than the budget allowed.
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

    /// The shortest credible delay, if there is one.
    fn shortest(&self) -> Option<Duration> {
        self.shortest[1]
    }

    fn is_contended(&self) -> bool {
        self.streams > 1
    }

    /// Whether the queue overflowed, on a path that loses `own` by itself. An overflow hits many streams: losses of a
    /// few may have happened anywhere, or their payload was never sent.
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

/// A fraction of the arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Part(u64);

impl Part {
    const WHOLE: u64 = 1 << 16;

    fn of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.0) / u128::from(Part::WHOLE)) as u64
    }
}

/// Recently missing bytes, and the arrivals they belong to.
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

/// Report of one stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    pub(super) arrived: u64,
    pub(super) missing: u64,
    pub(super) delay: Option<Duration>,
    /// The stream's first loss in this interval.
    pub(super) first_loss: bool,
    /// Streams with demand.
    pub(super) streams: u64,
    /// They want more than the budget allows.
    pub(super) short: bool,
}

/// The budget; see the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    interval: Option<Interval>,
    /// Highest rate of this [`MEMORY`] and of the previous one, bytes per second.
    rate: [u64; 2],
    /// Shortest delay of this [`MEMORY`] and of the previous one.
    base: [Option<Duration>; 2],
    margin: Duration,
    remembered: Instant,
    /// Time of the last loss.
    quiet_since: Instant,
    /// In units of [`ONE`].
    stretch: u64,
    /// The stretch at the last loss.
    ceiling: u64,
    /// The stretch does not grow before this.
    careful_until: Instant,
    /// The queue should run empty until this.
    drain_until: Instant,
    /// Missing bytes with the least stretch and margin and nothing waiting, and in general.
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

    /// Highest recent rate, bytes per second; 0 before the first measurement.
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

    /// Time in which a used allowance returns: base delay and margin.
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

    /// Bytes that a queue surely holds, unless losses showed otherwise. A rate that is low because little was granted
    /// must not keep the grants low.
    fn floor(&self) -> u64 {
        let part = self.margin.as_nanos() * 1024 / MAX_QUEUE_MARGIN.as_nanos();
        INITIAL_BUDGET * part as u64 / 1024
    }

    /// Takes a stream's report. Returns true when an interval ended, so that shares must be dealt anew.
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

    /// No stream has demand: the time until one does is not measured.
    pub(super) fn stop_interval(&mut self) {
        self.interval = None;
    }

    fn learn(&mut self, now: Instant, interval: &Interval, elapsed: Duration) {
        let nanos = elapsed.as_nanos().max(1);
        let rate = u128::from(interval.arrived) * 1_000_000_000 / nanos;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // Then the rate alone makes the budget grow.
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

    /// The path's own loss: at most twice the present loss, because the path may have healed, and zero if there is
    /// hardly any.
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
                // Earlier losses were the path's own, so they set no ceiling.
                self.ceiling = MAX_STRETCH;
            }
        }
    }

    /// Reacts to an overflow of the queue.
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

    /// Reacts to an interval without overflow: stretches the budget while the link runs empty, and reduces the stretch
    /// when the queue is longer than intended.
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
                // As far as is known: the queue may have no room for additional grants.
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

/// Bytes carried at `rate` bytes per second in `time`.
fn carried(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
