//! A model of the path: how much it carries a second, and how long it takes when it holds no queue.
//!
//! In the manner of BBR (version 3's gains and its limit for what is under way, draft-ietf-ccwg-bbr),
//! with another idea of loss. Loss alone says nothing here: a path may lose one packet in twenty by
//! itself. Loss *with a queue*, or a mark, says that the queue is full: then what is under way is
//! limited to a part of what it was, for a while that leaves room to those who came back from it
//! more slowly, before more is tried again. Heavy loss without a queue is answered in the same way,
//! unless it turns out not to depend on what is sent (`loss.rs`).

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
use crate::Instant;
use core::time::Duration;

/// Bytes under way before anything is known: 64 packets, paced over a round trip.
const INITIAL_WINDOW: u64 = 92_000;
/// Fewest bytes under way: four packets, as in BBR, so that an answer is always on its way.
const MIN_WINDOW: u64 = 6_000;
/// Round trip taken for granted before one was measured: that of a long path, so that the first window floods none.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Gains as 256ths: BBR version 3's pace (2.77, 0.35, 1.25 and 0.9), and a window that doubles what is under way each
/// round trip, with room for what that estimate lags. Cruising, a little less than what was seen, so that no queue grows.
const STARTUP_GAIN: u64 = 709;
const STARTUP_WINDOW_GAIN: u64 = 600;
const DRAIN_GAIN: u64 = 90;
const PROBE_UP_GAIN: u64 = 320;
const PROBE_DOWN_GAIN: u64 = 230;
const CRUISE_GAIN: u64 = 255;
/// Half of what was delivered: the less of the load is left, the more does loss tell whose it is.
const TRIAL_GAIN: u64 = 128;
const UNIT: u64 = 256;

/// Rounds without a pause after which a sender counts as one that always has something to send.
const BUSY_ROUNDS: u64 = 4;

/// The part of the peak rate below which congestion does not push.
const LEAST_PART: u64 = 4;

/// What a round trip takes that wakes two busy ends, however short the path: less under way than
/// leaves in this time would be limited by them.
const ENDS_RTT: Duration = Duration::from_micros(500);
/// What leaves in this time may be under way beyond what fills the path, where that is more than half of
/// it, but not more than all of it.
const SPARE: Duration = Duration::from_millis(1);

/// Shortest and longest burst, and its part of the round trip.
const MIN_QUANTUM_TIME: Duration = Duration::from_micros(125);
const MAX_QUANTUM_TIME: Duration = Duration::from_micros(500);
const QUANTA_PER_RTT: u32 = 8;
const MIN_QUANTUM: u64 = 3_000;
/// What may leave at once of little that there is to send: TCP's ten packets (RFC 6928). It waits for
/// the grants that this brings already.
const LIMITED_QUANTUM: u64 = 14_600;
/// Bytes of one send with segmentation offload.
const MAX_QUANTUM: u64 = 64 << 10;
/// Questions in one window: what was lost is known within a part of a round trip, for little on the way back.
const QUESTIONS_PER_WINDOW: u64 = 16;

/// Sums over one round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    received: u64,
    lost: u64,
    marked: u64,
    samples: u32,
    rtt_sum: Duration,
    /// At times there was nothing to send.
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

    /// Parts per thousand that were lost; any loss is at least one.
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
pub struct Model {
    mode: Mode,
    since: Instant,
    mode_round: u64,
    rounds: u64,
    round: Round,
    rates: Rates,
    delay: Delay,
    losses: Losses,
    /// Beside others that fill the queue.
    competition: Competition,
    /// Startup: best rate, and rounds since it grew. Up: the rate at its begin.
    best: u64,
    flat_rounds: u32,
    /// The start was left for heavy loss.
    interrupted: bool,
    /// Most that may be under way, after congestion.
    ceiling: Option<u64>,
    held_until: (u64, Instant),
    /// There was less to send than might have left, lately.
    limited: bool,
    /// The last round in which that was so.
    busy_since: u64,
    /// The round in which the last congestion was answered: what was lost until the answer took
    /// effect says no more.
    answered: u64,
}

impl Model {
    /// Bytes per second that the path carries, as far as was seen: what it loses by itself included.
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
            // In competition the window rules.
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
            // Nothing spoke against it.
            _ if self.mode == Mode::Up => self.ceiling = self.ceiling.map(|it| it + it / 4),
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

    /// What may be under way on top of what fills the path: a short one needs as much as leaves while
    /// the answer to a question is lost, a long one would fill its queue with it.
    fn spare(&self, pipe: u64) -> u64 {
        let short = in_time(self.rate().unwrap_or(0), SPARE);
        (pipe / 2).max(short.min(pipe))
    }

    /// Bytes that may be under way in any case: part of what the path carried lately. A queue that
    /// does not go away when we hold back is not ours, or it is none.
    fn least(&self) -> u64 {
        let rate = self.rates.peak() / LEAST_PART;
        in_time(rate, self.delay.min_rtt.unwrap_or_default()).max(MIN_WINDOW)
    }

    /// Bytes that leave while a busy end is late to answer: what is under way must cover that, or the
    /// path runs dry. The pace bounds them all the same.
    fn unsteady(&self) -> u64 {
        let unsteady = in_time(self.rate().unwrap_or(0), self.delay.unsteadiness());
        unsteady.max(self.unanswered())
    }

    /// Bytes that leave while both ends are off their cores, as they were lately.
    fn unanswered(&self) -> u64 {
        in_time(self.rate().unwrap_or(0), self.delay.lateness().sum())
    }

    /// Bytes that may be under way.
    fn allowed(&self) -> u64 {
        let Some(pipe) = self.pipe() else {
            return INITIAL_WINDOW;
        };
        let wanted = match self.mode {
            Mode::Compete => return self.competition.share.max(MIN_WINDOW),
            Mode::ProbeRtt => pipe / 2,
            // A queue begins, if it is one: what fills the pipe and a queue as long is enough.
            Mode::Startup if self.delay.is_late() => 2 * pipe,
            // The rate lags by a round trip, in which it doubles.
            Mode::Startup => (pipe * STARTUP_WINDOW_GAIN / UNIT).max(INITIAL_WINDOW),
            Mode::Drain | Mode::Up | Mode::Down | Mode::Cruise => pipe + self.spare(pipe),
        };
        let window = wanted + 3 * self.quantum() + self.unsteady();
        window.min(self.ceiling.unwrap_or(u64::MAX)).max(MIN_WINDOW)
    }

    /// The pace at which what may be under way before anything is known leaves in a round trip.
    fn initial_pace(&self) -> u64 {
        let rtt = self.delay.min_rtt.unwrap_or(INITIAL_RTT);
        pace_of(INITIAL_WINDOW, rtt)
    }

    /// The pace at which the fewest bytes under way leave in a round trip, as it is at present. No rate
    /// that was seen makes it less: where what is sent was there already, or all of it is lost, none is
    /// seen, and at a pace made of that nothing would ever be seen again.
    fn least_pace(&self) -> u64 {
        let rtt = self.delay.mean().unwrap_or(INITIAL_RTT);
        pace_of(MIN_WINDOW, rtt)
    }
}

/// Bytes per second that make `window` bytes in a round trip.
fn pace_of(window: u64, rtt: Duration) -> u64 {
    let nanos = rtt.max(Duration::from_micros(1)).as_nanos();
    let rate = u128::from(window) * 1_000_000_000 / nanos;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// How long a burst takes on a path with that round trip.
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
        // A late end has fewer turns, with more to do in each.
        let time = quantum_time(rtt.max(self.delay.lateness().sum()));
        let least = if self.limited {
            LIMITED_QUANTUM
        } else {
            MIN_QUANTUM
        };
        in_time(rate, time).clamp(least, MAX_QUANTUM)
    }

    fn catch_up(&self) -> Duration {
        // As much as the path carries meanwhile: a probe for more is none that is made good for.
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
        // Whatever the path was, it may be much less by now.
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
