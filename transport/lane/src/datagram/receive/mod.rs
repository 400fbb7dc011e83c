//! Receives datagrams, their payload in its final place if it can be predicted (row P2.1).
//!
//! A [`Receiver`] has four parts. The `Predictor` turns the core's forecast into a batch of messages of [header][final
//! place] pairs, which the kernel fills. The `TrainAssembler` collects sealed trains, the bulk of the default mode, and
//! has plain ones land in place (`landing`). The `Unsealer` opens datagrams and trains. The `Dispatcher` shows them to
//! the core, and moves payload that is not in its place. Besides, a path's thread hands over messages that it received
//! (`handed`), and AF_XDP shows frames (`shown`).
//!
//! Each message ends with a spill, which takes bytes beyond the prediction. So nothing is truncated, and a wrong
//! prediction costs a copy, never data.

mod batch;
mod cmsg;
mod deliver;
mod dispatch;
mod envelope;
mod handed;
mod landing;
mod layout;
mod predict;
mod shown;
mod trains;
mod unseal;

use crate::error::LaneError;
use crate::lane::Turn;
use crate::memory::{Registry, fault};
use crate::options::Options;
use crate::socket::icmp;
use crate::socket::icmp::IcmpReport;
use batch::Batch;
use cmsg::Reports;
use dispatch::Dispatcher;
pub(crate) use envelope::Envelope;
use handed::Handed;
use layout::Message;
use predict::Predictor;
use socket2::Socket;
use std::cell::Cell;
use std::io;
use std::time::Duration;
use trains::{Expected, TrainAssembler};
use unseal::Unsealer;
use zerolane_core::{Connection, RegionId};

/// Bytes of one message, a super-packet, after which more are likely.
const MANY_BYTES: u32 = 8 << 10;

thread_local! {
    /// The buffers of all connections that this thread drives: a thousand of them share one set.
    static SPARE: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Buffers whose content no batch leaves behind. A connection that receives little touches no memory of its own.
#[derive(Debug, Default)]
struct Buffers {
    batch: Batch,
    dispatcher: Dispatcher,
    /// Assembles trains, once one is expected.
    train: Box<[u8]>,
}

impl Buffers {
    fn allocate() -> Box<Buffers> {
        Box::new(Buffers {
            batch: Batch::allocate(),
            dispatcher: Dispatcher::allocate(),
            train: Box::default(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    predictor: Predictor,
    trains: TrainAssembler,
    pub(crate) unsealer: Unsealer,
    /// Lent by the thread for the length of a call: their content is delivered before the call ends.
    buffers: Box<Buffers>,
    reports: Reports,
    /// Messages from the path's own thread, if it has one.
    inbox: Option<Box<Handed>>,
}

// SAFETY: the raw pointers in the buffers are made anew for each system call, and are not used between two calls.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(crate) fn new(socket: &Socket, envelope: Envelope, options: &Options) -> Receiver {
        let mut receiver = Receiver::unbound(options);
        receiver.begin_at(socket, envelope, options);
        receiver
    }

    /// A receiver without a socket: [`Receiver::begin_at`] sets it.
    pub(crate) fn unbound(options: &Options) -> Receiver {
        Receiver {
            predictor: Predictor::default(),
            trains: TrainAssembler::default(),
            unsealer: Unsealer::new(options),
            buffers: Box::default(),
            reports: Reports::default(),
            inbox: None,
        }
    }

    /// Receives from another socket from now on, in such envelopes.
    pub(crate) fn begin_at(&mut self, socket: &Socket, envelope: Envelope, options: &Options) {
        self.predictor.begin_at(socket, envelope, options);
        self.reports = Reports::default();
    }

    /// Whether the kernel was asked to merge datagrams.
    pub(crate) fn has_gro(&self) -> bool {
        self.predictor.gro
    }

    /// Whether the kernel was asked to report when datagrams arrived.
    #[cfg(test)]
    pub(super) fn is_timed(&self) -> bool {
        self.reports.timed
    }

    /// Receives from the socket, with at most one system call. True if there was anything.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        self.reports.ask_for_times(socket, turn);
        self.with_buffers(turn, |it, turn| {
            let count = it.predict(turn, strict);
            let received = match it.buffers.batch.fill(socket, count) {
                Ok(received) => received,
                Err(error) => return it.refused(error, socket, turn),
            };
            // A limit was reached: the number of messages, or the size of one.
            let is_large = it.buffers.batch.messages[0].msg_len >= MANY_BYTES;
            turn.more = received == count && (count > 1 || is_large);
            // Before the turn's time is read. Otherwise a preemption in between would count as a wait.
            it.reports.note_taken();
            turn.refresh();
            for index in 0..received {
                if let Some(message) = it.note(index, turn) {
                    it.deliver(message, turn);
                }
            }
            // Datagrams received in other ways carry no arrival time.
            turn.core.on_waited(Duration::ZERO);
            it.predictor.offer_trains(&it.unsealer, strict, turn.core);
            let dispatcher = &mut it.buffers.dispatcher;
            dispatcher.count_call(turn.account);
            dispatcher.finish(strict).map(|()| true)
        })
    }

    /// Runs `work` with the buffers that all connections of a thread share.
    fn with_buffers<T>(
        &mut self,
        turn: &mut Turn<'_>,
        work: impl FnOnce(&mut Receiver, &mut Turn<'_>) -> T,
    ) -> T {
        let mut lent = SPARE.take().unwrap_or_else(Buffers::allocate);
        std::mem::swap(&mut self.buffers, &mut lent);
        let trains = self.predictor.expects_trains(turn.core);
        self.trains.begin(trains, &mut self.buffers.train);
        let done = work(self, turn);
        self.trains.end(&mut self.buffers.train);
        std::mem::swap(&mut self.buffers, &mut lent);
        SPARE.set(Some(lent));
        done
    }

    /// Predicts the next batch. Returns the number of messages.
    fn predict(&mut self, turn: &Turn<'_>, strict: bool) -> usize {
        let (batch, unsealer) = (&mut self.buffers.batch, &self.unsealer);
        batch.clear();
        let count = match self.trains.has_buffer() {
            true => {
                let lands = self.predictor.speculates && unsealer.lands_trains();
                self.trains.predict(batch, unsealer, turn, lands);
                1
            }
            false => self.predictor.predict(batch, unsealer, turn, strict),
        };
        let envelope = &mut self.predictor.envelope;
        batch.point(count, unsealer.sealed, envelope.pieces());
        envelope.ask_names(batch);
        count
    }

    /// Delivers a recorded message, in place if it lies where it was predicted.
    fn deliver(&mut self, message: Message, turn: &mut Turn<'_>) {
        let fits = |it: &Receiver| {
            let layout = &it.buffers.batch.layouts[message.index];
            layout.fits(message.total, message.segment, it.unsealer.around())
        };
        if !self.trains.has_buffer() {
            match fits(self) {
                true => self.deliver_in_place(message, turn),
                false => self.deliver_linear(message, turn),
            }
            return;
        }
        match self.trains.expected {
            Expected::Collected => self.deliver_collected(message, turn),
            Expected::Landing => self.deliver_landed(message, turn),
            Expected::Headers if fits(self) && self.has_headers(message, turn) => {
                self.deliver_in_place(message, turn);
            }
            Expected::Headers => self.collect(message, turn),
        }
    }

    #[inline]
    pub(crate) fn refused(
        &mut self,
        error: io::Error,
        socket: &Socket,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        if error.raw_os_error() == Some(libc::EAGAIN) {
            turn.account.rx_empty_polls += 1;
            return Ok(false);
        }
        self.failed(error, socket, turn)
    }

    #[cold]
    fn failed(
        &mut self,
        error: io::Error,
        socket: &Socket,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        match (icmp::report(&error), error.raw_os_error()) {
            (_, Some(libc::EINTR)) => Ok(true),
            (Some(IcmpReport::Refused), _) => {
                turn.core.unreachable(turn.now);
                Ok(true)
            }
            // A late error of a datagram sent earlier, treated as lost; or the interface is down.
            (Some(IcmpReport::Undelivered | IcmpReport::TooLong), _)
            | (None, Some(libc::ENETDOWN)) => match self.predictor.envelope.gone(socket) {
                Some(gone) => Err(LaneError::Io(gone.into())),
                None => Ok(true),
            },
            // A place could not be written: a mapped file shrank.
            (None, Some(libc::EFAULT)) => match find_fault(turn.core, turn.memory) {
                Some(region) => Err(LaneError::Fault(region)),
                None => Ok(true),
            },
            (None, _) => Err(LaneError::Io(error)),
        }
    }
}

/// The region that made the kernel's copy fail. `None` if all forecast memory can be written: the error was that of an
/// earlier datagram, whose Transfer will meet the next one.
fn find_fault(core: &Connection, memory: &Registry) -> Option<RegionId> {
    predict::forecast(core).runs().find_map(|run| {
        let writable = memory.target(run.span).and_then(|start| {
            // SAFETY: the registry has these bytes open, so they are mapped.
            unsafe { fault::is_writable(start, run.span.len as usize) }
        });
        // If the kernel cannot tell, the first region is suspected.
        (writable != Some(true)).then_some(run.span.region)
    })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::batch::SPILL;
    use super::*;

    /// docs/reference/security.md states the amount for a thread, not for each of its connections.
    #[test]
    fn memory__of_a_thread_that_receives() {
        let mut buffers = Buffers::allocate();
        let linear = &mut buffers.dispatcher.linear;
        for linear in linear.iter_mut() {
            // The longest possible message.
            linear.resize(SPILL, 0);
        }
        let linear: usize = linear.iter().map(Vec::capacity).sum();
        let text = include_str!("../../../../../docs/reference/security.md");
        let (_, rest) = text
            .split_once("A thread's receive buffers take ")
            .expect("told");
        let (mib, _) = rest.split_once(" MiB").expect("a unit");
        let documented = mib.parse::<usize>().expect("a number") << 20;
        assert_eq!(buffers.batch.spill.len() + linear, documented);
    }
}
