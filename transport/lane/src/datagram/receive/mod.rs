//! Receives by forecast: recvmsg or recvmmsg scatters [header][final place] pairs, the checks follow, and misplaced
//! payload is moved (row P2.1). Sealed trains, the bulk of the default mode, are collected instead (`trains`); plain
//! ones land in place (`landing`). A path's thread hands over messages that it received (`handed`).
//!
//! The iovec of each message ends with a spill, which takes bytes beyond the prediction. So nothing is truncated, and a
//! wrong prediction costs a copy, never data.

mod cmsg;
mod deliver;
mod envelope;
mod handed;
mod landing;
mod layout;
mod predict;
mod shown;
mod train_buffer;
mod trains;
mod unseal;

use crate::datagram::message::iovec;
use crate::error::LaneError;
use crate::ip118::IPV4_HEADER;
use crate::lane::Turn;
use crate::memory::cleanup::Move;
use crate::memory::{Registry, cleanup, fault};
use crate::options::Options;
use crate::seal::{Mode, Opener, TRAILER_LEN};
use crate::socket::icmp::IcmpReport;
use crate::socket::{self, MAX_MESSAGES, icmp};
pub(crate) use envelope::Envelope;
use handed::Inbox;
use layout::Layout;
use socket2::Socket;
use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};
use train_buffer::TrainBuffer;
use unseal::Incoming;
use zerolane_core::{Connection, RegionId, limits};
use zerolane_handshake::{Exchange, Session};
use zerolane_wire::HEADER_LEN;

/// Segments in one GRO super-packet: the kernel merges at most 64.
const MAX_SEGMENTS: usize = 64;
/// Target bytes of payload for one recvmmsg. [`MAX_MESSAGES`] gives the reason. Large datagrams come one per call.
const BATCH: u32 = 96 << 10;
/// Consecutive single datagrams after which no super-packet is expected: the interface merges nothing. Each stream has
/// a few, at the ends of Blocks and as repairs.
const SINGLES: u32 = 16;
/// Bytes of a datagram that is as good as several merged ones.
const LARGE_DATAGRAM: usize = limits::LARGE_TRAIN as usize;
/// Bytes of one message, a super-packet, after which more are likely.
const MANY_BYTES: u32 = 8 << 10;
/// Bytes of spill per message: the largest datagram or super-packet.
const SPILL: usize = 65_536;
/// Bytes of control messages per message: UDP_GRO, SO_RXQ_OVFL, the ECN field, and SCM_TIMESTAMPNS.
const CONTROL: usize = 128;

/// The bytes between two payloads: the trailer of the datagram before, if datagrams have one, and the header of the
/// next. They are contiguous, so that one iovec takes both.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Slot {
    trailer: [u8; TRAILER_LEN],
    header: [u8; HEADER_LEN],
}

const _: () = assert!(size_of::<Slot>() == TRAILER_LEN + HEADER_LEN);

impl Slot {
    const EMPTY: Slot = Slot {
        trailer: [0; TRAILER_LEN],
        header: [0; HEADER_LEN],
    };

    /// The place for a trailer alone, after the last payload.
    fn iovec_of_trailer(&mut self) -> libc::iovec {
        iovec(self.trailer.as_mut_ptr(), TRAILER_LEN)
    }

    /// The place for a header, and for the trailer before it if there is one.
    fn iovec(&mut self, trailer: bool) -> libc::iovec {
        match trailer {
            true => iovec(std::ptr::from_mut(self).cast(), size_of::<Slot>()),
            false => iovec(self.header.as_mut_ptr(), HEADER_LEN),
        }
    }
}

thread_local! {
    /// The buffers of all connections that this thread drives: a thousand of them share one set.
    static SPARE: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Buffers whose content no batch leaves behind. A connection that receives little touches no memory of its own.
#[derive(Debug, Default)]
struct Buffers {
    layouts: Vec<Layout>,
    slots: Box<[Slot]>,
    /// Takes bytes beyond the prediction, [`SPILL`] bytes for each message.
    spill: Box<[u8]>,
    /// Linear copies of messages that did not fit the prediction, at most [`SPILL`] bytes each, allocated when needed.
    /// Sources of moves stay here until the end of the batch.
    linear: Vec<Vec<u8>>,
    controls: Box<[[u64; CONTROL / 8]]>,
    iovs: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// Takes the headers of raw sockets' packets. Nothing reads it.
    ip_header: [u8; IPV4_HEADER],
    moves: Vec<Move>,
    /// A put or a control operation that landed where other bytes were predicted.
    copy: Vec<u8>,
    /// Assembles trains, once one is expected.
    train: Box<[u8]>,
}

impl Buffers {
    fn allocate() -> Box<Buffers> {
        Box::new(Buffers {
            layouts: (0..MAX_MESSAGES).map(|_| Layout::default()).collect(),
            slots: vec![Slot::EMPTY; MAX_MESSAGES.max(MAX_SEGMENTS) + 1].into(),
            spill: vec![0; MAX_MESSAGES * SPILL].into(),
            linear: vec![Vec::new(); MAX_MESSAGES],
            controls: vec![[0; CONTROL / 8]; MAX_MESSAGES].into(),
            iovs: Vec::with_capacity(3 * MAX_MESSAGES),
            messages: Vec::with_capacity(MAX_MESSAGES),
            ip_header: [0; IPV4_HEADER],
            moves: Vec::new(),
            copy: Vec::new(),
            train: Box::default(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) gro: bool,
    envelope: Envelope,
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
    trains: TrainBuffer,
    incoming: Incoming,
    /// This end's part of the key exchange, if there is one.
    exchange: Option<Exchange>,
    /// The result of the key exchange.
    session: Option<Box<Session>>,
    /// Lent by the thread for the length of a call: their content is delivered before the call ends.
    buffers: Box<Buffers>,
    /// Bytes moved that were granted, so a forecast could have placed them.
    missed: usize,
    /// A region whose memory was found to be gone.
    fault: Option<RegionId>,
    overflow: u32,
    /// The kernel reports when datagrams arrived.
    timed: bool,
    /// When the batch was taken, by the clock of those reports.
    taken: Option<SystemTime>,
    /// Messages from the path's own thread, if it has one.
    inbox: Option<Box<Inbox>>,
}

// SAFETY: the raw pointers in iovs, messages and moves are made anew for each system call, and are not used between two
// calls.
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
            gro: false,
            envelope: Envelope::Udp,
            singles: 0,
            small_singles: 0,
            merges: false,
            wants_trains: false,
            takes_trains: false,
            trains: TrainBuffer::default(),
            incoming: match options.security.mode {
                Mode::Plain => Incoming::Plain,
                Mode::Encrypted | Mode::Authenticated => Incoming::Sealed {
                    opener: None,
                    outside: 0,
                },
            },
            exchange: None,
            session: None,
            buffers: Box::default(),
            missed: 0,
            fault: None,
            overflow: 0,
            timed: false,
            taken: None,
            inbox: None,
        }
    }

    /// Whether the kernel was asked to report when datagrams arrived.
    #[cfg(test)]
    pub(super) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Receives from another socket from now on, in such envelopes.
    pub(crate) fn begin_at(&mut self, socket: &Socket, envelope: Envelope, options: &Options) {
        let merges = envelope.merges();
        if envelope.has_marks() {
            socket::show_ecn(socket);
        }
        self.gro = merges && options.gro && socket::enable_gro(socket);
        self.wants_trains = merges && options.trains;
        // The other paths decide whether they have trains merged.
        self.takes_trains &= merges;
        self.merges &= merges;
        self.envelope = envelope;
        (self.overflow, self.timed) = (0, false);
    }

    /// Passes handshake messages to `exchange`.
    pub(crate) fn begin(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
    }

    /// The key exchange, if there is one.
    pub(crate) fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_mut()
    }

    /// Takes the result of the key exchange, once.
    pub(crate) fn take_session(&mut self) -> Option<Box<Session>> {
        self.session.take()
    }

    /// Opens all datagrams from now on.
    pub(crate) fn protect(&mut self, opener: Opener) {
        self.incoming = Incoming::Sealed {
            opener: Some(Box::new(opener)),
            outside: 0,
        };
    }

    /// Receives from the socket, with at most one system call. True if there was anything.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        self.with_buffers(|it| {
            // The peer sends no trains over a path that does not merge them, even if another path of the connection
            // does.
            let trains = it.envelope.merges() && turn.core.expects_trains();
            it.trains.begin(trains, &mut it.buffers.train);
            let received = it.receive_batch(socket, turn, strict);
            it.trains.end(&mut it.buffers.train);
            received
        })
    }

    /// Runs `work` with the buffers that all connections of a thread share.
    fn with_buffers<T>(&mut self, work: impl FnOnce(&mut Receiver) -> T) -> T {
        let mut lent = SPARE.take().unwrap_or_else(Buffers::allocate);
        std::mem::swap(&mut self.buffers, &mut lent);
        let done = work(self);
        std::mem::swap(&mut self.buffers, &mut lent);
        SPARE.set(Some(lent));
        done
    }

    fn receive_batch(
        &mut self,
        socket: &Socket,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        self.ask_for_times(socket, turn);
        let count = self.predict(turn.core, turn.memory, strict);
        let received = match self.fill(socket, count) {
            Ok(received) => received,
            Err(error) => return self.refused(error, socket, turn),
        };
        // A limit was reached: the number of messages, or the size of one.
        turn.more =
            received == count && (count > 1 || self.buffers.messages[0].msg_len >= MANY_BYTES);
        // Before the turn's time is read. Otherwise a preemption in between would count as a wait.
        self.taken = self.timed.then(SystemTime::now);
        turn.refresh();
        let before = self.payload_taken(turn.core);
        for index in 0..received {
            self.deliver(index, turn);
        }
        // Datagrams received in other ways carry no arrival time.
        turn.core.on_waited(Duration::ZERO);
        self.offer_trains(strict, turn);
        match self.payload_taken(turn.core) == before {
            true => turn.account.rx_control_syscalls += 1,
            false => turn.account.rx_data_syscalls += 1,
        }
        self.clean_up(strict)?;
        Ok(true)
    }

    /// Changes when payload is taken.
    fn payload_taken(&self, core: &Connection) -> (u64, [usize; 2]) {
        (core.counters().stus_received, self.trains.started())
    }

    /// Asks the kernel to report arrival times, once the core wants them.
    fn ask_for_times(&mut self, socket: &Socket, turn: &Turn<'_>) {
        // The reports are by the system's clock.
        #[cfg(test)]
        if turn.clock.is_of_thread() {
            return;
        }
        if !self.timed && turn.core.wants_arrival_times() {
            self.timed = true;
            socket::show_arrival_times(socket);
        }
    }

    /// Lets the kernel fill the first `count` messages. Returns how many it filled.
    fn fill(&mut self, socket: &Socket, count: usize) -> io::Result<usize> {
        let fd = socket.as_raw_fd();
        let received = if count == 1 {
            let message = &mut self.buffers.messages[0];
            // SAFETY: the message's iovecs name header slots, spill and control space of ours, and places that the
            // registry has open for writing and that the core granted, for the length of the call.
            let len = unsafe { libc::recvmsg(fd, &raw mut message.msg_hdr, libc::MSG_DONTWAIT) };
            message.msg_len = u32::try_from(len).unwrap_or(0);
            // An empty datagram counts as one.
            if len < 0 { -1 } else { 1 }
        } else {
            // SAFETY: as above, for all of them.
            unsafe {
                libc::recvmmsg(
                    fd,
                    self.buffers.messages.as_mut_ptr(),
                    count as u32,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            }
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
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
            | (None, Some(libc::ENETDOWN)) => match self.envelope.gone(socket) {
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

    /// Moves misplaced payload. In strict mode this is the last step if any of it was granted: bytes reported complete
    /// by then are right, and the connection ends.
    fn clean_up(&mut self, strict: bool) -> Result<(), LaneError> {
        let bytes = std::mem::take(&mut self.missed);
        // SAFETY: sources are places, or linear buffers that live to the end of the batch. Targets are spans that the
        // core accepted once each, so they are disjoint, and open for writing.
        let moved = unsafe { cleanup::perform(&mut self.buffers.moves) };
        let fault = self.fault.take().or(moved.err());
        match fault {
            _ if strict && bytes > 0 => Err(LaneError::Strict { bytes }),
            Some(region) => Err(LaneError::Fault(region)),
            None => Ok(()),
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
    use super::*;

    /// docs/reference/security.md states the amount for a thread, not for each of its connections.
    #[test]
    fn memory__of_a_thread_that_receives() {
        let mut buffers = Buffers::allocate();
        for linear in &mut buffers.linear {
            // The longest possible message.
            linear.resize(SPILL, 0);
        }
        let linear: usize = buffers.linear.iter().map(Vec::capacity).sum();
        let text = include_str!("../../../../../docs/reference/security.md");
        let (_, rest) = text
            .split_once("A thread's receive buffers take ")
            .expect("told");
        let (mib, _) = rest.split_once(" MiB").expect("a unit");
        let documented = mib.parse::<usize>().expect("a number") << 20;
        assert_eq!(buffers.spill.len() + linear, documented);
    }
}
