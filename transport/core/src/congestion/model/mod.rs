//! Models the path's rate and its round trip without a queue, and derives window and pace from them.
//!
//! Follows BBR (version 3's gains and its limit for bytes in flight, draft-ietf-ccwg-bbr), but treats loss differently.
//! Loss alone means nothing here: a path may lose one packet in twenty by itself. Loss *with a queue*, or a mark, means
//! that the queue is full. Then bytes in flight are limited to a part of what they were, for long enough to leave room
//! to flows that recover more slowly, before the model probes for more. Heavy loss without a queue has the same
//! consequence, unless it proves independent of the sending rate (`loss.rs`).

mod compete;
mod delay;
mod loss;
mod modes;
mod rate;

use self::compete::Competition;
use self::delay::Delay;
use self::loss::{Finding, Losses, Stage};
use self::modes::Mode;
use self::rate::Rates;
use super::{Congestion, Lateness, Sample, in_time};
use crate::time::Instant;
use core::time::Duration;

/// Bytes in flight before the first measurement: 64 packets, paced over a round trip.
const INITIAL_WINDOW: u64 = 92_000;
/// Fewest bytes in flight: four packets, as in BBR, so that an answer is always on its way.
const MIN_WINDOW: u64 = 6_000;
/// Round trip assumed before the first measurement: that of a long path, so that the first window floods no path.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Gains as 256ths: BBR version 3's pace (2.77, 0.35, 1.25 and 0.9), and a window that doubles the bytes in flight each
/// round trip, with room for the estimate's lag. Cruising uses slightly less than the measured rate, so that no queue
/// grows.
const STARTUP_GAIN: u64 = 709;
const STARTUP_WINDOW_GAIN: u64 = 600;
const DRAIN_GAIN: u64 = 90;
const PROBE_UP_GAIN: u64 = 320;
const PROBE_DOWN_GAIN: u64 = 230;
const CRUISE_GAIN: u64 = 255;
/// Half of the delivered rate: the larger the reduction, the better loss shows its cause.
const TRIAL_GAIN: u64 = 128;
const UNIT: u64 = 256;

/// Rounds without a pause after which a sender counts as busy all the time.
const BUSY_ROUNDS: u64 = 4;

/// Congestion does not push the rate below this part of the peak.
const LEAST_PART: u64 = 4;

/// Round trip of waking two busy ends, however short the path: a window below the bytes of this time would be limited
/// by the ends.
const ENDS_RTT: Duration = Duration::from_micros(500);
/// Bytes of this time may be in flight beyond the pipe, where that is more than half of the pipe, but at most the pipe
/// again.
const SPARE: Duration = Duration::from_millis(1);

/// Shortest and longest burst in time, and its part of the round trip.
const MIN_QUANTUM_TIME: Duration = Duration::from_micros(125);
const MAX_QUANTUM_TIME: Duration = Duration::from_micros(500);
const QUANTA_PER_RTT: u32 = 8;
const MIN_QUANTUM: u64 = 3_000;
/// Bytes that may leave at once where there is little to send: TCP's ten packets (RFC 6928). They bring the next grants
/// sooner.
const LIMITED_QUANTUM: u64 = 14_600;
/// Bytes of one send with segmentation offload.
const MAX_QUANTUM: u64 = 64 << 10;
/// Questions in one window: loss is known within a part of a round trip, at little cost on the way back.
const QUESTIONS_PER_WINDOW: u64 = 16;

/// Sums over one round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    received: u64,
    lost: u64,
    marked: u64,
    samples: u32,
    rtt_sum: Duration,
    /// The sender ran out of payload at times.
    limited: bool,
}

impl Round {
    fn note(&mut self, sample: &Sample) {
        self.received += sample.received;
        self.marked += u64::from(sample.marked);
        self.samples += 1;
        self.rtt_sum += sample.rtt;
        self.limited |= sample.limited;
    }

    /// Payload lost, parts per thousand; any loss is at least one.
    fn permille(&self) -> u64 {
        loss::permille(self.received, self.lost)
    }

    /// Mean round trip, if any was measured.
    fn rtt(&self) -> Option<Duration> {
        (self.samples > 0).then(|| self.rtt_sum / self.samples)
    }
}

/// The controller. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    mode: Mode,
    since: Instant,
    mode_round: u64,
    rounds: u64,
    round: Round,
    rates: Rates,
    delay: Delay,
    losses: Losses,
    /// State of competing with others that fill the queue.
    competition: Competition,
    /// Startup: best rate, and rounds since it grew. Up: the rate at its start.
    best: u64,
    flat_rounds: u32,
    /// Startup was left because of heavy loss.
    interrupted: bool,
    /// Limit of bytes in flight after congestion.
    ceiling: Option<u64>,
    held_until: (u64, Instant),
    /// The sender recently ran out of payload.
    limited: bool,
    /// The last round in which it did.
    busy_since: u64,
    /// The round of the last reaction to congestion: losses before that reaction took effect tell nothing more.
    answered: u64,
}

impl Model {
    /// Bytes per second that the path carries, as far as measured, its own loss included.
    fn rate(&self) -> Option<u64> {
        let arriving = self.rates.highest()?;
        Some(arriving.saturating_mul(1000) / (1000 - self.losses.own()))
    }

    /// Bytes that fill the path without a queue, and keep both ends busy.
    fn pipe(&self) -> Option<u64> {
        Some(in_time(self.rate()?, self.delay.min_rtt?.max(ENDS_RTT)))
    }

    fn gain(&self) -> u64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            // In competition the window limits.
            Mode::Up | Mode::Compete => PROBE_UP_GAIN,
            Mode::Down => PROBE_DOWN_GAIN,
            Mode::Cruise if self.losses.is_trying() => TRIAL_GAIN,
            Mode::Cruise | Mode::ProbeRtt => CRUISE_GAIN,
        }
    }

    fn end_round(&mut self, now: Instant, sample: &Sample) {
        let round = core::mem::take(&mut self.round);
        self.rounds += 1;
        match self.mode {
            Mode::Compete => self.compete(&round),
            _ => self.answer(now, &round, sample.under_way),
        }
        if round.limited {
            self.busy_since = self.rounds;
        }
        self.limited = self.busy_since > 0 && self.rounds < self.busy_since + BUSY_ROUNDS;
        if self.mode == Mode::Startup && !self.limited {
            self.note_growth();
        }
    }

    fn compete(&mut self, round: &Round) {
        let Some(mean) = round.rtt() else {
            return;
        };
        let queue = self.delay.queue(mean);
        let is_full = round.marked > 0 || self.losses.is_unusual(round);
        let (rounds, least) = (self.rounds - self.answered, self.least());
        if self.competition.round(queue, is_full, rounds, least) {
            self.answered = self.rounds;
        }
    }

    fn answer(&mut self, now: Instant, round: &Round, under_way: u64) {
        match self.find(now, round) {
            Finding::Full | Finding::Trial if self.rounds > self.answered + 2 => {
                self.back_off(now, under_way + round.lost);
            }
            Finding::Own => self.resume(now),
            // The last probe met no congestion.
            _ if self.mode == Mode::Up => {
                self.ceiling = self.ceiling.map(|it| it.saturating_add(it / 4))
            }
            Finding::Usual | Finding::Full | Finding::Trial => {}
        }
    }

    fn find(&mut self, now: Instant, round: &Round) -> Finding {
        if round.samples == 0 {
            return Finding::Usual;
        }
        let queued = self.delay.note_round(round);
        let stage = match self.mode {
            Mode::Startup => Stage::Doubling,
            Mode::Cruise => Stage::Steady,
            _ => Stage::Other,
        };
        self.losses.note_round(now, round, queued, stage)
    }

    /// Bytes in flight beyond the pipe. A short path needs the bytes that leave while a lost answer is repeated; on a
    /// long path they would fill its queue.
    fn spare(&self, pipe: u64) -> u64 {
        let short = in_time(self.rate().unwrap_or(0), SPARE);
        (pipe / 2).max(short.min(pipe))
    }

    /// Bytes that may be in flight in any case: a part of the recent rate. A queue that stays although this flow backs
    /// off is not its own, or is none.
    fn least(&self) -> u64 {
        let rate = self.rates.peak() / LEAST_PART;
        in_time(rate, self.delay.min_rtt.unwrap_or_default()).max(MIN_WINDOW)
    }

    /// Bytes that leave while a busy end is late to answer. The window must cover them, or the path runs dry; the pace
    /// still limits them.
    fn unsteady(&self) -> u64 {
        let unsteady = in_time(self.rate().unwrap_or(0), self.delay.unsteadiness());
        unsteady.max(self.unanswered())
    }

    /// Bytes that leave while both ends are descheduled, by recent experience.
    fn unanswered(&self) -> u64 {
        in_time(self.rate().unwrap_or(0), self.delay.lateness().sum())
    }

    /// Bytes that may be in flight.
    fn allowed(&self) -> u64 {
        let Some(pipe) = self.pipe() else {
            return INITIAL_WINDOW;
        };
        let wanted = match self.mode {
            Mode::Compete => return self.competition.share.max(MIN_WINDOW),
            Mode::ProbeRtt => pipe / 2,
            // A queue may be starting: the pipe and a queue as long are enough.
            Mode::Startup if self.delay.is_late() => 2 * pipe,
            // The rate lags by a round trip, in which it doubles.
            Mode::Startup => (pipe * STARTUP_WINDOW_GAIN / UNIT).max(INITIAL_WINDOW),
            Mode::Drain | Mode::Up | Mode::Down | Mode::Cruise => pipe + self.spare(pipe),
        };
        let window = wanted + 3 * self.quantum() + self.unsteady();
        window.min(self.ceiling.unwrap_or(u64::MAX)).max(MIN_WINDOW)
    }

    /// The pace that sends the initial window in one round trip.
    fn initial_pace(&self) -> u64 {
        let rtt = self.delay.min_rtt.unwrap_or(INITIAL_RTT);
        pace_of(INITIAL_WINDOW, rtt)
    }

    /// The pace that sends the smallest window in a present round trip, whatever the measured rate. Where the receiver
    /// already had the payload, or all of it is lost, no rate is measured, and a pace derived from that would never
    /// send enough to measure one.
    fn least_pace(&self) -> u64 {
        let rtt = self.delay.mean().unwrap_or(INITIAL_RTT);
        pace_of(MIN_WINDOW, rtt)
    }
}

/// Bytes per second that send `window` bytes in a round trip.
fn pace_of(window: u64, rtt: Duration) -> u64 {
    let nanos = rtt.max(Duration::from_micros(1)).as_nanos();
    let rate = u128::from(window) * 1_000_000_000 / nanos;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Time of a burst on a path with this round trip.
fn quantum_time(rtt: Duration) -> Duration {
    (rtt / QUANTA_PER_RTT).clamp(MIN_QUANTUM_TIME, MAX_QUANTUM_TIME)
}

impl Congestion for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn window(&self) -> u64 {
        self.allowed()
    }

    fn pace(&self) -> Option<u64> {
        let rate = match (self.rate(), self.mode) {
            (Some(rate), Mode::Startup) => rate.max(self.initial_pace()),
            (Some(rate), _) => rate,
            (None, _) => self.initial_pace(),
        };
        Some((rate.saturating_mul(self.gain()) / UNIT).max(self.least_pace()))
    }

    fn quantum(&self) -> u64 {
        let (Some(rate), Some(rtt)) = (self.rate(), self.delay.min_rtt) else {
            return INITIAL_WINDOW / 4;
        };
        // A late end has fewer turns, and more to send in each.
        let time = quantum_time(rtt.max(self.delay.lateness().sum()));
        let least = if self.limited {
            LIMITED_QUANTUM
        } else {
            MIN_QUANTUM
        };
        in_time(rate, time).clamp(least, MAX_QUANTUM)
    }

    fn catch_up(&self) -> Duration {
        // As much as the path carries meanwhile: the extra rate of a probe is not caught up.
        self.delay.lateness().own * UNIT as u32 / self.gain().max(UNIT) as u32
    }

    fn ack_request_interval(&self) -> u64 {
        self.window() / QUESTIONS_PER_WINDOW
    }

    fn wants_marks(&self) -> bool {
        true
    }

    fn on_progress(&mut self, now: Instant, sample: &Sample) {
        self.limited |= sample.limited;
        self.round.note(sample);
        self.delay.note(now, sample);
        self.rates.note(now, self.rounds, sample);
        if sample.round {
            self.end_round(now, sample);
        }
        self.change_mode(now, sample);
    }

    fn on_lost(&mut self, _: Instant, bytes: u64) {
        self.round.lost += bytes;
    }

    fn on_silence(&mut self, now: Instant) {
        // The new path may be much slower.
        *self = Model {
            delay: Delay::new(now, self.delay.min_rtt),
            ..Model::default()
        };
    }

    fn on_new_path(&mut self, rtt: Option<Duration>) {
        *self = Model {
            delay: Delay::new(Instant::ZERO, rtt),
            ..Model::default()
        };
    }
}
