//! A model of the path: how much it carries a second, and how long it takes when it holds no queue.
//!
//! In the manner of BBR (version 3's gains and its limit for what is under way, draft-ietf-ccwg-bbr),
//! with another idea of loss. Loss alone says nothing here: a path may lose one packet in twenty by
//! itself. Loss *with a queue*, or a mark, says that the queue is full: then what is under way is
//! limited to a part of what it was, for a while that leaves room to those who came back from it
//! more slowly, before more is tried again.

use super::{Congestion, Sample, in_time};
use crate::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes under way before anything is known: 64 packets, paced over a round trip.
const INITIAL_WINDOW: u64 = 92_000;
/// Fewest bytes under way: four packets.
const MIN_WINDOW: u64 = 6_000;
/// Round trip taken for granted before one was measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Gains as 256ths. The pace doubles each round trip, with room for what that estimate lags.
const STARTUP_GAIN: u64 = 709;
const STARTUP_WINDOW_GAIN: u64 = 600;
const DRAIN_GAIN: u64 = 90;
const PROBE_UP_GAIN: u64 = 320;
const PROBE_DOWN_GAIN: u64 = 230;
const CRUISE_GAIN: u64 = 255;
/// Rounds without a pause after which a sender counts as one that always has something to send.
const BUSY_ROUNDS: u64 = 4;
const UNIT: u64 = 256;

/// Round trips of cruising between two probes for more.
const CRUISE_ROUNDS: u64 = 6;
/// Rounds, and time, for which the highest rate counts: one slow moment of an end is no slow path.
const RATE_ROUNDS: u64 = 10;
const RATE_MEMORY: Duration = Duration::from_millis(200);

/// Rounds without growth after which the pipe is full.
const FULL_ROUNDS: u32 = 3;
/// Round trips from which on these are looked at.
const LONG_RTT: Duration = Duration::from_millis(4);
/// An answer is late by this part of the shortest round trip. So many in a row, each as late as the one
/// before or later, tell of a queue that grows: a quarter of a round's.
const LATE_PART: u32 = 8;
const LATE_SAMPLES: u32 = 4;
/// The part by which the rate has to grow in a round for the next one to try for still more.
const GROWTH_PART: u64 = 8;
/// Rounds after congestion, and time, in which nothing more is tried: what a competing Reno or CUBIC
/// flow takes to come back.
const HOLD_ROUNDS: u64 = 63;
const HOLD: Duration = Duration::from_secs(2);

/// Loss in a round, with a queue, that means congestion: parts per thousand, on top of one and a half
/// times what is lost without a queue. And for how many rounds in a row: one may be a slow moment of an end.
const LOSS_PERMILLE: u64 = 10;
const FULL_QUEUE_ROUNDS: u32 = 2;
/// Loss that means congestion without one, and for how many rounds in a row: a queue too short to be
/// felt in the round trip.
const HEAVY_LOSS_PERMILLE: u64 = 125;
const HEAVY_ROUNDS: u32 = 3;
/// What may be under way after congestion, as 256ths of what was.
const BACKOFF: u64 = 218;

/// The part of the highest rate of this time, or twice that, below which congestion does not push.
const LEAST_PART: u64 = 4;
const PEAK_MEMORY: Duration = Duration::from_secs(5);

/// Shortest round trips older than this are looked for anew, with half the pipe empty for as long.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(100);

/// Longest time by which an end is late to answer that is made good for.
const MAX_UNSTEADINESS: Duration = Duration::from_millis(2);
/// Variation of the round trip that is no queue.
const NOISE: Duration = Duration::from_micros(200);

/// What a round trip takes that wakes two busy ends, however short the path: less under way than
/// leaves in this time would be limited by them.
const ENDS_RTT: Duration = Duration::from_micros(500);

/// Rounds in a row with a queue after which it is that of others: ours is gone in each turn of probing, and
/// when a path became slower, soon after its old rate was forgotten.
const CROWDED_ROUNDS: u32 = 24;
/// Beside others that fill the queue: bytes more under way with each round, and what is left of them after
/// a loss, as 256ths. CUBIC grows by about half a packet where Reno would be faster (RFC 9438, 4.3), and by
/// more elsewhere.
const COMPETE_GROWTH: u64 = 1200;
const COMPETE_BACKOFF: u64 = 179;
/// The part of its longest by which a queue that we compete for shrinks when another, who has a tenth of
/// it or more, answers a loss: a paced flow seldom loses what one in bursts does. And for how many rounds
/// nothing is made of it after an answer of ours; it is smoothed over as many.
const RELIEF_PART: u32 = 20;
const RELIEF_ROUNDS: u64 = 8;
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
/// Questions in one window.
const QUESTIONS_PER_WINDOW: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Doubling until the pipe is full.
    Startup,
    /// Letting go the queue that made.
    Drain,
    /// A little more for a round trip, and again while that brings more.
    Up,
    /// Until the queue that made is gone.
    Down,
    /// As much as the path carries.
    Cruise,
    /// Half the pipe, to see the round trip without a queue of ours.
    ProbeRtt,
    /// As those do that fill the queue and leave no room to who keeps to the pipe (as Copa's mode of that
    /// name, Arun and Balakrishnan, NSDI 2018): more until something is lost, then a part of it.
    Compete,
}

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
    /// Parts per thousand that were lost; any loss is at least one.
    fn permille(&self) -> u64 {
        let all = (self.received + self.lost).max(1);
        self.lost.saturating_mul(1000).div_ceil(all)
    }
}

/// The controller. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Model {
    mode: Mode,
    since: Instant,
    mode_round: u64,
    rounds: u64,
    round: Round,
    /// Highest rates: round, time, bytes per second; falling.
    rates: VecDeque<(u64, Instant, u64)>,
    min_rtt: Option<Duration>,
    /// When the round trip was last close to the shortest.
    uncrowded: Instant,
    /// Rounds with a queue, in a row.
    crowded_rounds: u32,
    /// What may be under way in competition, and the longest queue since the last answer to one.
    share: u64,
    crest: Duration,
    /// That queue, smoothed.
    standing: Duration,
    /// Startup: best rate, and rounds since it grew. Up: the rate at its begin.
    best: u64,
    flat_rounds: u32,
    /// Most that may be under way, after congestion.
    ceiling: Option<u64>,
    held_until: (u64, Instant),
    /// Highest rate since when, and in the time before that.
    peak: (u64, Instant),
    old_peak: u64,
    /// There was less to send than might have left, lately.
    limited: bool,
    /// The last round in which that was so.
    busy_since: u64,
    /// Loss in rounds without a queue, in 16ths of a part per thousand.
    usual_loss: u64,
    /// Rounds of loss with a queue, and of heavy loss, in a row.
    full_rounds: u32,
    heavy_rounds: u32,
    /// Answers in a row that a queue held up.
    late_samples: u32,
    latest_rtt: Duration,
    /// Mean of the round trip, and its mean deviation.
    smoothed: (Duration, Duration),
    /// The round in which the last congestion was answered: what was lost until the answer took
    /// effect says no more.
    answered: u64,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            mode: Mode::Startup,
            since: Instant::ZERO,
            mode_round: 0,
            rounds: 0,
            round: Round::default(),
            rates: VecDeque::new(),
            min_rtt: None,
            uncrowded: Instant::ZERO,
            crowded_rounds: 0,
            share: 0,
            crest: Duration::ZERO,
            standing: Duration::ZERO,
            best: 0,
            flat_rounds: 0,
            ceiling: None,
            held_until: (0, Instant::ZERO),
            peak: (0, Instant::ZERO),
            old_peak: 0,
            limited: false,
            busy_since: 0,
            usual_loss: 0,
            full_rounds: 0,
            heavy_rounds: 0,
            late_samples: 0,
            latest_rtt: Duration::ZERO,
            smoothed: (Duration::ZERO, Duration::ZERO),
            answered: 0,
        }
    }
}

impl Model {
    /// Bytes per second that the path carries, as far as was seen.
    fn rate(&self) -> Option<u64> {
        self.rates.front().map(|&(_, _, rate)| rate)
    }

    /// Bytes that fill the path without a queue, and keep both ends busy.
    fn pipe(&self) -> Option<u64> {
        Some(in_time(self.rate()?, self.min_rtt?.max(ENDS_RTT)))
    }

    fn gain(&self) -> u64 {
        match self.mode {
            Mode::Startup => STARTUP_GAIN,
            Mode::Drain => DRAIN_GAIN,
            // In competition the window rules.
            Mode::Up | Mode::Compete => PROBE_UP_GAIN,
            Mode::Down => PROBE_DOWN_GAIN,
            Mode::Cruise | Mode::ProbeRtt => CRUISE_GAIN,
        }
    }

    fn enter(&mut self, now: Instant, mode: Mode) {
        (self.mode, self.since, self.mode_round) = (mode, now, self.rounds);
        if mode == Mode::Up {
            self.best = self.rate().unwrap_or(0);
        }
    }

    fn note_rate(&mut self, now: Instant, sample: &Sample) {
        if sample.limited && self.rate().is_some_and(|rate| sample.rate < rate) {
            return;
        }
        let entry = (self.rounds, now, sample.rate);
        while self.rates.back().is_some_and(|last| last.2 <= sample.rate) {
            self.rates.pop_back();
        }
        self.rates.push_back(entry);
        let old = |&mut (round, at, _): &mut (u64, Instant, u64)| {
            round + RATE_ROUNDS < self.rounds && now - at > RATE_MEMORY
        };
        while self.rates.len() > 1 && self.rates.pop_front_if(old).is_some() {}
    }

    fn end_round(&mut self, now: Instant, sample: &Sample) {
        let round = core::mem::take(&mut self.round);
        self.rounds += 1;
        if self.mode == Mode::Compete {
            self.compete(&round);
        } else if self.is_congested(&round) && self.rounds > self.answered + 2 {
            self.back_off(now, sample.under_way + round.lost);
        } else if self.mode == Mode::Up {
            // Nothing spoke against it.
            self.ceiling = self.ceiling.map(|it| it + it / 4);
        }
        if round.limited {
            self.busy_since = self.rounds;
        }
        self.limited = self.busy_since > 0 && self.rounds < self.busy_since + BUSY_ROUNDS;
        if self.mode == Mode::Startup && !self.limited {
            self.note_growth();
        }
    }

    /// Whether the round trip was much longer than the shortest.
    fn is_queued(&self, round: &Round) -> bool {
        let (Some(min_rtt), true) = (self.min_rtt, round.samples > 0) else {
            return false;
        };
        // Our own bursts take their time as well.
        let slack = quantum_time(min_rtt) + NOISE;
        round.rtt_sum / round.samples > min_rtt + min_rtt / 4 + slack
    }

    /// One round of competition: more, or a part of it if the queue is full. It was if something is lost
    /// that is not always, or if it became shorter: another has answered that.
    fn compete(&mut self, round: &Round) {
        if round.samples == 0 {
            return;
        }
        let mean = round.rtt_sum / round.samples;
        let queue = mean.saturating_sub(self.min_rtt.unwrap_or_default());
        self.standing = match self.rounds <= self.answered + 2 {
            true => queue,
            false => (self.standing * 7 + queue) / 8,
        };
        let usual = self.usual_loss / 16;
        let is_full = round.marked > 0 || round.permille() > usual + usual / 2;
        if self.rounds <= self.answered + RELIEF_ROUNDS {
            self.crest = self.standing;
        }
        self.crest = self.crest.max(self.standing);
        let is_relieved = self.standing + (self.crest / RELIEF_PART).max(NOISE) < self.crest;
        if is_relieved || is_full && self.rounds > self.answered + 2 {
            let least = self.least();
            self.share = (self.share * COMPETE_BACKOFF / UNIT).max(least);
            self.answered = self.rounds;
        } else {
            self.share += COMPETE_GROWTH;
        }
    }

    fn is_congested(&mut self, round: &Round) -> bool {
        if round.samples == 0 {
            return false;
        }
        let (queued, permille) = (self.is_queued(round), round.permille());
        let long = self.min_rtt.is_some_and(|it| it >= LONG_RTT);
        self.crowded_rounds = match queued && long {
            true => self.crowded_rounds + 1,
            false => 0,
        };
        if !queued {
            // In 16ths, over some sixteen rounds.
            self.usual_loss = self.usual_loss - self.usual_loss / 16 + permille;
        }
        let usual = self.usual_loss / 16;
        let full = queued && permille > LOSS_PERMILLE + usual + usual / 2;
        let count = |rounds: u32, it: bool| if it { rounds + 1 } else { 0 };
        self.full_rounds = count(self.full_rounds, full);
        self.heavy_rounds = count(self.heavy_rounds, permille > HEAVY_LOSS_PERMILLE);
        // Doubling fills a queue fast.
        let enough = match self.mode {
            Mode::Startup => 1,
            _ => FULL_QUEUE_ROUNDS,
        };
        round.marked > 0 || self.full_rounds >= enough || self.heavy_rounds >= HEAVY_ROUNDS
    }

    /// Whether several answers in a row came late: a queue grows that more would only fill.
    fn is_queuing(&self) -> bool {
        self.late_samples >= LATE_SAMPLES
    }

    /// Whether the last answer came late.
    fn is_late(&self) -> bool {
        self.late_samples > 0
    }

    /// Whether the rate is clearly more than it was when this was begun.
    fn has_grown(&self) -> bool {
        self.rate().unwrap_or(0) >= self.best + self.best / GROWTH_PART
    }

    fn note_lateness(&mut self, sample: &Sample) {
        let slack = sample.min_rtt / LATE_PART + quantum_time(sample.min_rtt) + NOISE;
        // On shorter paths an end that is late looks the same.
        let late = sample.min_rtt >= LONG_RTT && sample.rtt > sample.min_rtt + slack;
        // What an end that was off its core answers, it answers all at once: what left later, sooner.
        let grows = sample.rtt + NOISE >= self.latest_rtt;
        self.latest_rtt = sample.rtt;
        self.late_samples = if late && grows {
            self.late_samples + 1
        } else {
            0
        };
    }

    /// What may be under way on top of what fills the path: a short one needs as much as leaves while
    /// the answer to a question is lost, a long one would fill its queue with it.
    fn spare(&self, pipe: u64) -> u64 {
        let short = in_time(self.rate().unwrap_or(0), SPARE);
        (pipe / 2).max(short.min(pipe))
    }

    fn back_off(&mut self, now: Instant, under_way: u64) {
        let had = self.ceiling.unwrap_or(u64::MAX).min(under_way);
        let most = (had * BACKOFF / UNIT).max(self.pipe().unwrap_or(0) * BACKOFF / UNIT);
        self.ceiling = Some(most.max(self.least()));
        self.held_until = (self.rounds + HOLD_ROUNDS, now + HOLD);
        self.answered = self.rounds;
        match self.mode {
            Mode::Startup => self.enter(now, Mode::Drain),
            Mode::Up => self.enter(now, Mode::Down),
            Mode::Drain | Mode::Down | Mode::Cruise | Mode::ProbeRtt | Mode::Compete => {}
        }
    }

    /// Bytes that may be under way in any case: part of what the path carried lately. A queue that
    /// does not go away when we hold back is not ours, or it is none.
    fn least(&self) -> u64 {
        let rate = self.peak.0.max(self.old_peak) / LEAST_PART;
        in_time(rate, self.min_rtt.unwrap_or_default()).max(MIN_WINDOW)
    }

    /// Bytes that leave while a busy end is late to answer: what is under way must cover that, or the
    /// path runs dry. The pace bounds them all the same.
    fn unsteady(&self) -> u64 {
        let most = (self.min_rtt.unwrap_or_default() / 2).min(MAX_UNSTEADINESS);
        let late = (self.smoothed.1 * 2).min(most);
        in_time(self.rate().unwrap_or(0), late)
    }

    fn smooth(&mut self, rtt: Duration) {
        let (mean, deviation) = self.smoothed;
        self.smoothed = match mean.is_zero() {
            true => (rtt, Duration::ZERO),
            false => (
                (mean * 7 + rtt) / 8,
                (deviation * 3 + mean.abs_diff(rtt)) / 4,
            ),
        };
    }

    fn note_peak(&mut self, now: Instant, rate: u64) {
        if now - self.peak.1 > PEAK_MEMORY {
            self.old_peak = self.peak.0;
            self.peak = (0, now);
        }
        self.peak.0 = self.peak.0.max(rate);
    }

    fn note_growth(&mut self) {
        let rate = self.rate().unwrap_or(0);
        if rate >= self.best + self.best / 4 {
            (self.best, self.flat_rounds) = (rate, 0);
        } else {
            self.flat_rounds += 1;
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.ceiling.is_some() && self.rounds < self.held_until.0 && now < self.held_until.1
    }

    fn change_mode(&mut self, now: Instant, sample: &Sample) {
        let pipe = self.pipe().unwrap_or(INITIAL_WINDOW);
        let rounds = self.rounds - self.mode_round;
        match self.mode {
            Mode::Startup if self.is_queuing() => {
                self.ceiling = Some(sample.under_way.max(pipe));
                self.enter(now, Mode::Drain);
            }
            Mode::Startup if self.flat_rounds >= FULL_ROUNDS => self.enter(now, Mode::Drain),
            Mode::Startup => {}
            Mode::Drain | Mode::Down if sample.under_way <= pipe || rounds >= 4 => {
                self.enter(now, Mode::Cruise);
            }
            Mode::Drain | Mode::Down => {}
            Mode::Up if rounds >= 1 && self.has_grown() && !self.is_late() => {
                self.enter(now, Mode::Up);
            }
            Mode::Up if rounds >= 1 => {
                // What is not needed any more limits nothing.
                self.ceiling = self.ceiling.filter(|&it| it < 2 * pipe);
                self.enter(now, Mode::Down);
            }
            Mode::Up => {}
            Mode::Compete if has_no_queue(sample) => {
                self.crowded_rounds = 0;
                self.enter(now, Mode::Cruise);
            }
            Mode::Cruise | Mode::Compete if now - self.uncrowded > PROBE_RTT_INTERVAL => {
                self.enter(now, Mode::ProbeRtt);
            }
            Mode::Compete => {}
            Mode::Cruise if self.crowded_rounds >= CROWDED_ROUNDS => {
                // Whoever fills the queue comes first.
                self.share = self.window() * COMPETE_BACKOFF / UNIT;
                (self.ceiling, self.answered) = (None, self.rounds);
                self.enter(now, Mode::Compete);
            }
            Mode::Cruise if rounds >= CRUISE_ROUNDS && !self.is_held(now) => {
                self.enter(now, Mode::Up);
            }
            Mode::Cruise => {}
            Mode::ProbeRtt if now - self.since > PROBE_RTT_TIME && rounds >= 2 => {
                self.uncrowded = now;
                // Who competed goes on: that the queue is there says that others are, too.
                let next = match self.crowded_rounds >= CROWDED_ROUNDS {
                    true => Mode::Compete,
                    false => Mode::Up,
                };
                self.answered = self.rounds;
                self.enter(now, next);
            }
            Mode::ProbeRtt => {}
        }
    }
}

/// Whether the round trip was close to the shortest.
fn has_no_queue(sample: &Sample) -> bool {
    sample.rtt <= sample.min_rtt + sample.min_rtt / 8
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
        let Some(pipe) = self.pipe() else {
            return INITIAL_WINDOW;
        };
        let wanted = match self.mode {
            Mode::Compete => return self.share.max(MIN_WINDOW),
            Mode::ProbeRtt => pipe / 2,
            // A queue begins, if it is one: what fills the pipe and a queue as long is enough.
            Mode::Startup if self.is_late() => 2 * pipe,
            // The rate lags by a round trip, in which it doubles.
            Mode::Startup => (pipe * STARTUP_WINDOW_GAIN / UNIT).max(INITIAL_WINDOW),
            Mode::Drain | Mode::Up | Mode::Down | Mode::Cruise => pipe + self.spare(pipe),
        };
        let window = wanted + 3 * self.quantum() + self.unsteady();
        window.min(self.ceiling.unwrap_or(u64::MAX)).max(MIN_WINDOW)
    }

    fn pace(&self) -> Option<u64> {
        let least = || {
            let rtt = self
                .min_rtt
                .unwrap_or(INITIAL_RTT)
                .max(Duration::from_micros(1));
            let rate = u128::from(INITIAL_WINDOW) * 1_000_000_000 / rtt.as_nanos();
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let rate = match (self.rate(), self.mode) {
            (Some(rate), Mode::Startup) => rate.max(least()),
            (Some(rate), _) => rate,
            (None, _) => least(),
        };
        Some((rate.saturating_mul(self.gain()) / UNIT).max(MIN_QUANTUM))
    }

    fn quantum(&self) -> u64 {
        let (Some(rate), Some(rtt)) = (self.rate(), self.min_rtt) else {
            return INITIAL_WINDOW / 4;
        };
        let time = quantum_time(rtt);
        let least = if self.limited {
            LIMITED_QUANTUM
        } else {
            MIN_QUANTUM
        };
        in_time(rate, time).clamp(least, MAX_QUANTUM)
    }

    fn question_interval(&self) -> u64 {
        self.window() / QUESTIONS_PER_WINDOW
    }

    fn wants_marks(&self) -> bool {
        true
    }

    fn on_progress(&mut self, now: Instant, sample: &Sample) {
        self.min_rtt = Some(sample.min_rtt);
        self.round.limited |= sample.limited;
        self.limited |= sample.limited;
        if has_no_queue(sample) {
            self.uncrowded = now;
        }
        self.round.received += sample.received;
        self.round.marked += u64::from(sample.marked);
        self.round.samples += 1;
        self.round.rtt_sum += sample.rtt;
        self.note_lateness(sample);
        self.note_rate(now, sample);
        self.note_peak(now, sample.rate);
        self.smooth(sample.rtt);
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
            min_rtt: self.min_rtt,
            uncrowded: now,
            ..Model::default()
        };
    }

    fn on_new_path(&mut self, rtt: Option<Duration>) {
        *self = Model {
            min_rtt: rtt,
            ..Model::default()
        };
    }
}
