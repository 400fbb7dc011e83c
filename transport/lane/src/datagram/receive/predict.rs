//! Predicts where the next datagrams belong: turns the core's forecast into the pieces of a batch.

use super::batch::{Batch, MAX_SEGMENTS};
use super::envelope::Envelope;
use super::layout::Message;
use super::unseal::Unsealer;
use crate::lane::Turn;
use crate::memory::Registry;
use crate::options::Options;
use crate::socket::{self, MAX_MESSAGES};
use socket2::Socket;
use std::ops::Range;
use zerolane_core::{Connection, Forecast, Run, limits};

/// Target bytes of payload for one recvmmsg. [`MAX_MESSAGES`] gives the reason. Large datagrams come one per call.
const BATCH: u32 = 96 << 10;
/// Consecutive single datagrams after which no super-packet is expected: the interface merges nothing. Each stream has
/// a few, at the ends of Blocks and as repairs.
const SINGLES: u32 = 16;
/// Bytes of a datagram that is as good as several merged ones.
const LARGE_DATAGRAM: usize = limits::LARGE_TRAIN as usize;

/// Predicts by what a socket can do, and by how its datagrams came so far.
#[derive(Debug, Default)]
pub(super) struct Predictor {
    pub(super) envelope: Envelope,
    /// The kernel was asked to merge datagrams.
    pub(super) gro: bool,
    /// The forecast is used.
    pub(super) speculates: bool,
    /// Single datagrams since the last super-packet.
    singles: u32,
    /// Small single datagrams since the last large one.
    small_singles: u32,
    /// The kernel merges datagrams, or they are large.
    merges: bool,
    /// Whether trains may be accepted at all.
    wants_trains: bool,
    /// Whether the core was told that trains are accepted.
    takes_trains: bool,
    /// Whether the core was told that they may be tried.
    tries_trains: bool,
}

impl Predictor {
    /// Predicts for another socket from now on, in such envelopes.
    pub(super) fn begin_at(&mut self, socket: &Socket, envelope: Envelope, options: &Options) {
        let merges = envelope.merges();
        if envelope.has_marks() {
            socket::show_ecn(socket);
        }
        self.gro = merges && options.datagrams.gro && socket::enable_gro(socket);
        self.speculates = options.datagrams.forecast;
        self.wants_trains = merges && options.datagrams.trains;
        // The other paths decide whether they have trains merged.
        self.takes_trains &= merges;
        self.merges &= merges;
        self.envelope = envelope;
    }

    /// Whether the peer may send trains here: it sends none over a path that does not merge them, even if another path
    /// of the connection does.
    pub(super) fn expects_trains(&self, core: &Connection) -> bool {
        self.envelope.merges() && core.expects_trains()
    }

    /// Predicts a batch by the forecast. Returns the number of messages.
    pub(super) fn predict(
        &self,
        batch: &mut Batch,
        unsealer: &Unsealer,
        turn: &Turn<'_>,
        strict: bool,
    ) -> usize {
        let core = &*turn.core;
        let one_by_one = !self.gro || self.singles >= SINGLES;
        // A control operation among several messages would shift all that follow, which `strict` does not permit.
        let messages = if one_by_one && !strict {
            ((BATCH / core.expected_stu()) as usize).clamp(1, MAX_MESSAGES)
        } else {
            1
        };
        if core.expected_payload() == 0 || !self.speculates {
            // The common case between small operations, whose completion waits for this step.
            self.leave_unpredicted(batch, 0..messages);
        } else if one_by_one {
            self.predict_datagrams(batch, messages, unsealer, turn);
        } else {
            predict_super_packet(batch, &forecast(core), unsealer, turn.memory);
        }
        messages
    }

    /// Predicts one pair for each of `messages`.
    fn predict_datagrams(
        &self,
        batch: &mut Batch,
        messages: usize,
        unsealer: &Unsealer,
        turn: &Turn<'_>,
    ) {
        let mut message = 0;
        'runs: for run in forecast(turn.core).runs() {
            if unsealer.opens_out_of_place(turn.memory, run.span.region) {
                break;
            }
            let mut at = 0;
            while at < run.span.len && message < messages {
                let len = u64::from(run.stu).min(run.span.len - at);
                let span = run.span.part(at, len);
                let Some(place) = turn.memory.prediction(span) else {
                    break 'runs;
                };
                let layout = &mut batch.layouts[message];
                layout.runs.clear();
                layout.runs.push(Run { span, ..run });
                layout.pairs = 1;
                layout.slot = message;
                self.envelope.push_front(batch);
                batch.push_slot(message, false);
                batch.push(place, len as usize);
                if unsealer.sealed {
                    batch.push_trailer(message + 1);
                }
                batch.push_spill(message);
                at += len;
                message += 1;
            }
        }
        self.leave_unpredicted(batch, message..messages);
    }

    /// Leaves these messages without a prediction.
    #[inline]
    fn leave_unpredicted(&self, batch: &mut Batch, messages: Range<usize>) {
        for message in messages {
            batch.layouts[message].clear();
            self.envelope.push_front(batch);
            batch.push_spill(message);
        }
    }

    /// Records whether the datagrams of a message, of which those of a burst have `full` bytes, were merged.
    pub(super) fn note(&mut self, message: Message, predicted: bool, full: usize) {
        if message.segments() > 1 {
            (self.singles, self.small_singles, self.merges) = (0, 0, true);
        } else if predicted && message.total >= full {
            // A shorter one, or an unpredicted one, says nothing: the rest of a burst and small messages come singly.
            self.singles = self.singles.saturating_add(1);
            if message.total >= LARGE_DATAGRAM {
                (self.small_singles, self.merges) = (0, true);
            } else {
                self.small_singles = self.small_singles.saturating_add(1);
                self.merges &= self.small_singles < SINGLES;
            }
        }
    }

    /// Tells the core whether trains are accepted, when that has changed.
    pub(super) fn offer_trains(
        &mut self,
        unsealer: &Unsealer,
        strict: bool,
        core: &mut Connection,
    ) {
        // A broken train is copied, which strict mode forbids.
        let lands = unsealer.lands_trains() && !strict;
        let able = self.wants_trains && (lands || unsealer.opens_trains());
        let takes = able && self.merges;
        let tries = takes || able && self.gro && self.singles < SINGLES;
        if tries != self.tries_trains {
            self.tries_trains = tries;
            core.set_tries_trains(tries);
        }
        if takes != self.takes_trains {
            self.takes_trains = takes;
            core.set_takes_trains(takes);
        }
    }
}

/// Predicts all pairs in one message, up to the first short STU, after which the kernel merges nothing.
pub(super) fn predict_super_packet(
    batch: &mut Batch,
    forecast: &Forecast,
    unsealer: &Unsealer,
    memory: &Registry,
) {
    let sealed = unsealer.sealed;
    let mut pairs = 0;
    'runs: for run in forecast.runs() {
        if unsealer.opens_out_of_place(memory, run.span.region) {
            break;
        }
        let Some(start) = memory.prediction(run.span) else {
            break;
        };
        let mut at = 0;
        while at < run.span.len {
            if pairs == MAX_SEGMENTS {
                break 'runs;
            }
            let len = u64::from(run.stu).min(run.span.len - at);
            batch.push_slot(pairs, sealed && pairs > 0);
            // SAFETY: at + len <= span.len, and all of span is writable at `start`.
            batch.push(unsafe { start.add(at as usize) }, len as usize);
            pairs += 1;
            at += len;
        }
        batch.layouts[0].runs.push(run);
        if !run.span.len.is_multiple_of(u64::from(run.stu)) {
            break;
        }
    }
    (batch.layouts[0].pairs, batch.layouts[0].slot) = (pairs, 0);
    if sealed && pairs > 0 {
        batch.push_trailer(pairs);
    }
    batch.push_spill(0);
}

/// The next STUs, as many as fit in a message.
pub(super) fn forecast(core: &Connection) -> Forecast {
    let mut forecast = Forecast::default();
    core.forecast(MAX_SEGMENTS as u32, &mut forecast);
    forecast
}
