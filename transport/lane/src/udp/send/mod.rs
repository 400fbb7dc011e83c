//! Sending: one sendmsg for up to 64 KiB of STUs, headers and payload gathered where they lie.

mod control;
mod data;
mod framed;
mod gathered;
mod give;
mod hand_over;
mod method;
mod seal_buffer;
mod small;
mod trains;

pub(super) use gathered::{empty_message, iovec, send_bytes};
pub(super) use seal_buffer::{AROUND, SealBuffer};

use super::socket;
use super::zerocopy::ZerocopyTracker;
use crate::ethernet::{OutgoingFrames, Queues};
use crate::icmp::{self, IcmpReport};
use crate::seal::Sealer;
use crate::{LaneError, Mode, Options, Turn, Zerocopy};
use give::Giver;
use hand_over::Outbox;
use method::Chooser;
use socket2::Socket;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use zerolane_core::{BurstLimit, ControlDatagram, Instant, Life, RegionId, Transmit};
use zerolane_handshake::{Cipher, Exchange};
use zerolane_wire::HEADER_LEN;

/// Segments of one GSO send. The kernel has taken 64 since 4.18, and 128 since 6.9.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Bursts sent before the receive side gets a look.
const BURSTS_PER_TURN: usize = 8;
/// Segments of the first burst after an idle time: the receiver starts while we go on (P0.3).
const FIRST_BURST: u32 = 8;
/// Silence after which the next burst is a first one again.
const IDLE: std::time::Duration = std::time::Duration::from_millis(1);
/// What became of a send.
enum SendOutcome {
    /// The kernel has it.
    Done,
    /// The socket buffer is full.
    Full,
    /// It will not be sent: as if lost on the wire.
    Lost,
}

thread_local! {
    /// The buffers of all connections that this thread drives: a thousand of them need one.
    static SPARE: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// What nothing outlives a turn in: a connection that sends little touches none of its own.
#[derive(Debug, Default)]
struct Buffers {
    headers: Box<[[u8; HEADER_LEN]]>,
    iovs: Vec<libc::iovec>,
    /// A burst of more pieces than one call takes.
    linear: Vec<u8>,
    /// Headers and short payloads of small operations.
    small: Vec<u8>,
    messages: Vec<libc::mmsghdr>,
    /// Control that leaves together.
    controls: Vec<ControlDatagram>,
}

impl Buffers {
    fn allocate() -> Box<Buffers> {
        Box::new(Buffers {
            headers: vec![[0; HEADER_LEN]; MAX_SEGMENTS].into(),
            iovs: Vec::with_capacity(2 * MAX_SEGMENTS),
            linear: Vec::new(),
            small: Vec::new(),
            messages: Vec::with_capacity(MAX_SEGMENTS),
            controls: Vec::new(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) gso: bool,
    /// What is being sent is longer than the path carries: routers may take it apart.
    apart: bool,
    /// Datagrams leave in frames, each on its own. Apart, for most connections have none.
    frames: Option<Box<OutgoingFrames>>,
    zerocopy_tracker: ZerocopyTracker,
    giver: Giver,
    /// Whether trains are given.
    chooser: Chooser,
    /// The last burst was of memory that may be lent.
    lendable: bool,
    /// Lent by the thread for the length of a call: what they hold has left when that ends.
    buffers: Box<Buffers>,
    /// Datagrams leave ECN-capable.
    ect: bool,
    /// The last transmission met a full socket buffer.
    full: bool,
    /// That transmission, unless the core has it back, and what the core said behind it.
    held: VecDeque<Transmit>,
    burst: u32,
    last: Instant,
    protection: Protection,
    /// To the thread of the path, where it has one of its own.
    outbox: Option<Outbox>,
}

/// What is done to datagrams before they leave.
#[derive(Debug)]
enum Protection {
    /// Nothing.
    Plain,
    /// They are to be sealed, and the keys are not there yet: none may leave.
    Waiting,
    /// They are sealed.
    Sealed(Box<SealBuffer>),
}

// SAFETY: the raw pointers in iovs and messages are made anew before every syscall and mean nothing
// between two.
unsafe impl Send for Sender {}

impl Sender {
    pub(crate) fn new(
        socket: &Socket,
        frames: Option<OutgoingFrames>,
        options: &Options,
    ) -> Sender {
        let mode = options.security.mode;
        let copies = frames.is_some() || mode != Mode::Plain;
        Sender {
            gso: frames.is_none() && options.gso && socket::has_gso(socket),
            apart: false,
            frames: frames.map(Box::new),
            // What is sealed is the lane's own already, and written again for the next burst.
            zerocopy_tracker: ZerocopyTracker::new(socket, options.zerocopy && !copies),
            giver: Giver::default(),
            chooser: Chooser::default(),
            lendable: false,
            buffers: Box::default(),
            ect: false,
            full: false,
            held: VecDeque::new(),
            burst: FIRST_BURST,
            last: Instant::ZERO,
            protection: match mode {
                Mode::Plain => Protection::Plain,
                Mode::Encrypted | Mode::Authenticated => Protection::Waiting,
            },
            outbox: None,
        }
    }

    /// Seals everything from here on.
    pub(crate) fn protect(&mut self, sealer: Sealer) {
        self.protection = Protection::Sealed(Box::new(SealBuffer::new(sealer)));
    }

    /// What follows leaves by another socket, in frames or not: what waited for room in the one before is lost.
    pub(crate) fn begin_at(
        &mut self,
        socket: &Socket,
        frames: Option<OutgoingFrames>,
        options: &Options,
    ) {
        self.gso = frames.is_none() && options.gso && socket::has_gso(socket);
        self.frames = frames.map(Box::new);
        self.held.clear();
        (self.full, self.ect) = (false, false);
    }

    /// What seals, if anything does by now.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        match &self.protection {
            Protection::Sealed(stage) => Some(stage.sealer().cipher()),
            Protection::Plain | Protection::Waiting => None,
        }
    }

    /// Whether something waits for room in the socket buffer.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the kernel still has memory of `region`.
    pub(crate) fn holds(&self, socket: &Socket, region: RegionId) -> bool {
        self.zerocopy_tracker.holds(region) || self.giver.holds(socket, region)
    }

    pub(crate) fn zerocopy(&self) -> Zerocopy {
        self.zerocopy_tracker.state()
    }

    /// Sends what the core owes, for one turn, by `queues` if there are such. True if anything was sent.
    pub(crate) fn transmit(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        queues: Option<&mut Queues>,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        self.giver
            .settle(turn.core.seen_burst(), turn.core.path_bits());
        let settled = self.zerocopy_tracker.is_lending() && self.zerocopy_tracker.settle(socket);
        self.full = false;
        if self.held.is_empty() && turn.core.is_quiet() {
            return Ok(settled);
        }
        Ok(self.transmit_owed(socket, peer, queues, exchange, turn)? || settled)
    }

    /// As [`Sender::transmit`], where there may be something. Most turns of an end that waits do not come here.
    #[inline(never)]
    fn transmit_owed(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        queues: Option<&mut Queues>,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        if turn.core.wants_marks() != self.ect {
            self.ect = !self.ect;
            // A frame has no place for it: no marks come back, and the core finds out.
            if self.frames.is_none() {
                socket::send_ect(socket, peer, self.ect);
            }
        }
        let Some(first) = self.next(turn) else {
            return Ok(false);
        };
        let mut lent = SPARE.take().unwrap_or_else(Buffers::allocate);
        std::mem::swap(&mut self.buffers, &mut lent);
        if let Protection::Sealed(stage) = &mut self.protection {
            stage.lend();
        }
        let sent = self.transmit_bursts(first, (socket, peer, queues), exchange, turn);
        if let Protection::Sealed(stage) = &mut self.protection {
            stage.give_back();
        }
        std::mem::swap(&mut self.buffers, &mut lent);
        SPARE.set(Some(lent));
        sent
    }

    /// What leaves next.
    fn next(&mut self, turn: &mut Turn<'_>) -> Option<Transmit> {
        // Hardly ever, where the path has no thread.
        if !self.held.is_empty() {
            if turn.core.life() != Life::Established {
                // What says that it ends does not wait behind payload, of which nothing comes any more.
                self.held.retain(|it| !matches!(it, Transmit::Data(_)));
            }
            if let Some(held) = self.held.pop_front() {
                return Some(held);
            }
        }
        let limit = self.limit(turn.now, turn.core.stu());
        let transmit = turn.core.poll_transmit(turn.now, limit)?;
        if let Some(frames) = &mut self.frames {
            frames.note(&transmit, turn.core);
        }
        Some(transmit)
    }

    /// Sends `first` and what follows it.
    fn transmit_bursts(
        &mut self,
        first: Transmit,
        (socket, peer, mut queues): (&Socket, SocketAddr, Option<&mut Queues>),
        mut exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let mut sent = false;
        let mut transmit = first;
        for burst in 1..=BURSTS_PER_TURN {
            let outcome = match &transmit {
                it if let Some(queues) = queues.as_deref_mut() => {
                    self.framed(queues, it, exchange.as_deref_mut(), turn)?
                }
                Transmit::Handshake => {
                    let message = exchange
                        .as_deref_mut()
                        .and_then(|it| it.message(turn.now, || crate::random().ok()));
                    match message {
                        Some(it) => self.handshake(socket, it.bytes(), turn.account),
                        None => Ok(()),
                    }
                }
                Transmit::Control(it) => {
                    self.controls(socket, (it, burst == BURSTS_PER_TURN), turn)
                }
                Transmit::Data(it) => {
                    self.permit_apart(socket, turn.core.datagram_of(it), turn);
                    let outcome = self.data(socket, it, turn);
                    self.forbid_apart(socket);
                    outcome?
                }
                Transmit::Operations(it) => {
                    self.permit_apart(socket, it.segment, turn);
                    let outcome = self.operations(socket, it, turn);
                    self.forbid_apart(socket);
                    outcome?
                }
            };
            match self.classify(outcome, socket, peer, turn)? {
                SendOutcome::Full => {
                    self.full = true;
                    match transmit {
                        // What of it is over by the next turn need not leave.
                        Transmit::Operations(it) => turn.core.take_back(&it),
                        transmit => self.held.push_front(transmit),
                    }
                    break;
                }
                SendOutcome::Done | SendOutcome::Lost => sent = true,
            }
            turn.more = burst == BURSTS_PER_TURN;
            if turn.more {
                break;
            }
            turn.refresh();
            match self.next(turn) {
                Some(next) => transmit = next,
                None => break,
            }
        }
        Ok(sent)
    }

    /// What follows may be taken apart by routers if its datagrams are longer than the path carries: it was numbered, or asked for,
    /// in one piece when more was thought to pass.
    fn permit_apart(&mut self, socket: &Socket, longest: u32, turn: &Turn<'_>) {
        self.apart = self.frames.is_none() && turn.core.exceeds_path(longest);
        if self.apart {
            socket::permit_fragmentation(socket, true);
        }
    }

    fn forbid_apart(&mut self, socket: &Socket) {
        if std::mem::take(&mut self.apart) {
            socket::permit_fragmentation(socket, false);
        }
    }

    /// Whether the kernel is to cut what leaves into segments. It refuses segments that are longer than the path carries.
    fn segments(&self) -> bool {
        self.gso && !self.apart
    }

    /// A burst left.
    fn grow(&mut self, now: Instant) {
        self.burst = (self.burst * 2).min(MAX_SEGMENTS as u32);
        self.last = now;
    }

    /// Small bursts while idle, for latency; full ones under load, for bandwidth.
    fn limit(&mut self, now: Instant, stu: u32) -> BurstLimit {
        if now - self.last > IDLE {
            self.burst = FIRST_BURST;
        }
        let lent = match self.lendable && self.gso {
            true => self.zerocopy_tracker.datagrams(stu as usize),
            false => 0,
        };
        BurstLimit {
            segments: if lent > 0 { lent as u32 } else { self.burst },
            train: self.longest_train(),
            ..BurstLimit::default()
        }
    }

    /// What a refused send means.
    fn classify(
        &mut self,
        outcome: io::Result<()>,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Result<SendOutcome, LaneError> {
        let Err(error) = outcome else {
            return Ok(SendOutcome::Done);
        };
        if is_full(&error) {
            return Ok(SendOutcome::Full);
        }
        match (icmp::report(&error), error.raw_os_error()) {
            (Some(IcmpReport::Refused), _) => turn.core.unreachable(turn.now),
            (Some(IcmpReport::TooLong), _) | (None, Some(libc::EINVAL)) => {
                let datagram = match &self.frames {
                    None => socket::path_datagram(socket, peer),
                    Some(frames) => frames.path_datagram(socket),
                };
                if let Some(datagram) = datagram {
                    turn.core.set_path_datagram(turn.now, datagram);
                }
            }
            (Some(IcmpReport::Undelivered), _)
            | (
                None,
                Some(
                    libc::ENETDOWN
                    | libc::EPERM
                    | libc::EADDRNOTAVAIL
                    | libc::EDESTADDRREQ
                    | libc::ENODEV
                    | libc::ENXIO
                    | libc::EIO,
                ),
            ) => {
                let gone = self.frames.as_ref().and_then(|it| it.gone(socket));
                if let Some(gone) = gone {
                    return Err(LaneError::Io(gone.into()));
                }
            }
            (None, _) => return Err(LaneError::Io(error)),
        }
        turn.account.dropped_on_send += 1;
        Ok(SendOutcome::Lost)
    }
}

/// Whether the socket buffer has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}
