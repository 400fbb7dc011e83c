//! Sends up to 64 KiB of STUs with one sendmsg, which gathers headers and payload where they lie.

mod control;
mod data;
mod framed;
mod gathered;
mod give;
mod hand_over;
mod method;
mod sealing;
mod small;
mod trains;

pub(super) use sealing::seal_operation;

use super::zerocopy::ZerocopyTracker;
use crate::account::Zerocopy;
use crate::datagram::message::is_full;
use crate::error::LaneError;
use crate::ethernet::{OutgoingFrames, Queues};
use crate::lane::Turn;
use crate::options::Options;
use crate::seal::{Mode, Sealer};
use crate::socket::icmp;
use crate::socket::icmp::IcmpReport;
use crate::socket::{self, TrafficClass};
use give::Giver;
use hand_over::Outbox;
use method::Chooser;
use sealing::{Keys, STAGE};
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
/// Bursts sent before the receive side gets a turn.
const BURSTS_PER_TURN: usize = 8;
/// Segments of the first burst after an idle time: the receiver starts while the sender continues (P0.3).
const FIRST_BURST: u32 = 8;
/// Idle time after which the next burst is a first one again.
const IDLE: std::time::Duration = std::time::Duration::from_millis(1);
/// The result of a send.
enum SendOutcome {
    /// The kernel took it.
    Done,
    /// The socket buffer is full.
    Full,
    /// It will not be sent, and counts as lost on the wire.
    Lost,
}

thread_local! {
    /// The buffers of all connections that this thread drives: a thousand of them share one set.
    static SPARE: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Buffers whose content no turn leaves behind. A connection that sends little touches no memory of its own.
#[derive(Debug, Default)]
struct Buffers {
    headers: Box<[[u8; HEADER_LEN]]>,
    iovs: Vec<libc::iovec>,
    /// A burst of more pieces than one call takes.
    linear: Vec<u8>,
    /// Headers and short payloads of small operations.
    small: Vec<u8>,
    /// A burst of sealed datagrams.
    stage: Box<[u8]>,
    messages: Vec<libc::mmsghdr>,
    /// Control datagrams that leave together.
    controls: Vec<ControlDatagram>,
}

impl Buffers {
    fn allocate() -> Box<Buffers> {
        Box::new(Buffers {
            headers: vec![[0; HEADER_LEN]; MAX_SEGMENTS].into(),
            iovs: Vec::with_capacity(2 * MAX_SEGMENTS),
            linear: Vec::new(),
            small: Vec::new(),
            stage: vec![0; STAGE].into(),
            messages: Vec::with_capacity(MAX_SEGMENTS),
            controls: Vec::new(),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) gso: bool,
    /// The present datagrams are longer than the path's MTU: routers may fragment them.
    fragments: bool,
    output: Output,
    zerocopy_tracker: ZerocopyTracker,
    giver: Giver,
    /// Chooses whether trains are given.
    chooser: Chooser,
    /// The last burst was of memory that may be lent.
    lendable: bool,
    /// Neighbours are swapped, so that each prediction of the receiver is wrong.
    swap: bool,
    /// Lent by the thread for the length of a call: their content has left when the call ends.
    buffers: Box<Buffers>,
    /// The class of datagrams that leave by the socket.
    class: TrafficClass,
    /// The last transmission found a full socket buffer.
    full: bool,
    /// That transmission, unless the core took it back, and later ones of the core.
    held: VecDeque<Transmit>,
    burst: u32,
    last: Instant,
    protection: Protection,
}

/// What datagrams leave by: fixed when the path opens.
#[derive(Debug)]
enum Output {
    /// The socket, to which trains are given or copied, whichever costs less.
    Socket,
    /// The socket, in frames, one in each. Boxed, because most connections have none.
    Frames(Box<OutgoingFrames>),
    /// The path's own thread, and the socket for what the thread does not take.
    Thread(Outbox),
}

impl Output {
    fn of(frames: Option<OutgoingFrames>) -> Output {
        frames.map_or(Output::Socket, |it| Output::Frames(Box::new(it)))
    }

    fn frames(&mut self) -> Option<&mut OutgoingFrames> {
        match self {
            Output::Frames(frames) => Some(frames),
            Output::Socket | Output::Thread(_) => None,
        }
    }
}

/// How datagrams are protected before they leave: fixed when the connection opens. The trains of a plain one have
/// digests.
#[derive(Debug)]
enum Protection {
    /// They are not sealed.
    Plain,
    /// They are sealed. None leaves before the keys are there.
    Sealed(Keys),
}

// SAFETY: the raw pointers in iovs and messages are made anew before each system call, and are not used between two
// calls.
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
            gso: frames.is_none() && options.datagrams.gso && socket::has_gso(socket),
            fragments: false,
            output: Output::of(frames),
            // A sealed burst lies in the lane's own memory, which the next burst overwrites.
            zerocopy_tracker: ZerocopyTracker::new(
                socket,
                options.datagrams.zerocopy && !copies && !options.datagrams.swap,
            ),
            giver: Giver::default(),
            chooser: Chooser::default(),
            lendable: false,
            swap: options.datagrams.swap,
            buffers: Box::default(),
            class: TrafficClass::default(),
            full: false,
            held: VecDeque::new(),
            burst: FIRST_BURST,
            last: Instant::ZERO,
            protection: match mode {
                Mode::Plain => Protection::Plain,
                Mode::Encrypted | Mode::Authenticated => Protection::Sealed(None),
            },
        }
    }

    /// Seals all datagrams from now on.
    pub(crate) fn protect(&mut self, sealer: Sealer) {
        self.protection = Protection::Sealed(Some(Box::new(sealer)));
    }

    /// Sends by another socket from now on, in frames or not. Datagrams that waited for room in the old one are lost.
    pub(crate) fn begin_at(
        &mut self,
        socket: &Socket,
        frames: Option<OutgoingFrames>,
        options: &Options,
    ) {
        self.gso = frames.is_none() && options.datagrams.gso && socket::has_gso(socket);
        self.output = Output::of(frames);
        self.held.clear();
        (self.full, self.class) = (false, TrafficClass::default());
    }

    /// The cipher that seals datagrams, if there is one by now.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        match &self.protection {
            Protection::Sealed(keys) => keys.as_ref().map(|it| it.cipher()),
            Protection::Plain => None,
        }
    }

    /// Whether a datagram waits for room in the socket buffer.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the kernel still uses memory of `region`.
    pub(crate) fn holds(&self, socket: &Socket, region: RegionId) -> bool {
        self.zerocopy_tracker.holds(region) || self.giver.holds(socket, region)
    }

    pub(crate) fn zerocopy(&self) -> Zerocopy {
        self.zerocopy_tracker.state()
    }

    /// Sends what the core owes, for one turn, by `queues` if they are given. True if anything was sent.
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

    /// Does the work of [`Sender::transmit`] if there may be something to send, which is rare at an end that waits.
    #[inline(never)]
    fn transmit_owed(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        queues: Option<&mut Queues>,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let Some(first) = self.next(turn) else {
            return Ok(false);
        };
        let mut lent = SPARE.take().unwrap_or_else(Buffers::allocate);
        std::mem::swap(&mut self.buffers, &mut lent);
        let sent = self.transmit_bursts(first, (socket, peer, queues), exchange, turn);
        std::mem::swap(&mut self.buffers, &mut lent);
        SPARE.set(Some(lent));
        sent
    }

    /// The next transmission.
    fn next(&mut self, turn: &mut Turn<'_>) -> Option<Transmit> {
        // Almost never, unless the path has a thread.
        if !self.held.is_empty() {
            if turn.core.life() != Life::Established {
                // An operation that ends the connection does not wait behind payload, which no longer makes progress.
                self.held.retain(|it| !matches!(it, Transmit::Data(_)));
            }
            if let Some(held) = self.held.pop_front() {
                return Some(held);
            }
        }
        let limit = self.limit(turn.now, turn.core.stu());
        let transmit = turn.core.poll_transmit(turn.now, limit)?;
        if let Some(frames) = self.output.frames() {
            frames.note(&transmit, turn.core);
        }
        Some(transmit)
    }

    /// Sends `first` and the transmissions after it.
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
            let classed = match queues {
                Some(_) => Ok(()),
                None => self.set_class(socket, peer, &transmit, turn),
            };
            let outcome = match &transmit {
                _ if classed.is_err() => classed,
                it if let Some(queues) = queues.as_deref_mut() => {
                    self.framed(queues, it, exchange.as_deref_mut(), turn)?
                }
                Transmit::Handshake => {
                    let message = exchange
                        .as_deref_mut()
                        .and_then(|it| it.message(turn.now, || crate::seal::random().ok()));
                    match message {
                        Some(it) => self.handshake(socket, it.bytes(), turn.account),
                        None => Ok(()),
                    }
                }
                Transmit::Control(it) => {
                    self.controls(socket, (it, burst == BURSTS_PER_TURN), turn)
                }
                Transmit::Data(it) => {
                    self.permit_fragments(socket, turn.core.datagram_of(it), turn);
                    let outcome = self.data(socket, it, turn);
                    self.forbid_fragments(socket);
                    outcome?
                }
                Transmit::Operations(it) => {
                    self.permit_fragments(socket, it.segment, turn);
                    let outcome = self.operations(socket, it, turn);
                    self.forbid_fragments(socket);
                    outcome?
                }
            };
            match self.classify(outcome, socket, peer, turn)? {
                SendOutcome::Full => {
                    self.full = true;
                    match transmit {
                        // Operations that are over by the next turn need not leave.
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

    /// Gives the datagrams that leave next their class.
    ///
    /// # Errors
    /// The path's thread still sends datagrams of another class by this socket.
    fn set_class(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        transmit: &Transmit,
        turn: &Turn<'_>,
    ) -> io::Result<()> {
        let class = TrafficClass {
            ect: turn.core.wants_marks(),
            dscp: match transmit {
                Transmit::Data(it) => it.dscp,
                Transmit::Handshake | Transmit::Control(_) | Transmit::Operations(_) => 0,
            },
        };
        // Frames have no such field: no marks come back, and the core detects that.
        if class == self.class || self.output.frames().is_some() {
            return Ok(());
        }
        if class.dscp != self.class.dscp && self.waits_for_thread() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        socket::send_class(socket, peer, class);
        self.class = class;
        Ok(())
    }

    /// Permits routers to fragment the next datagrams if they are longer than the path's MTU: they were numbered, or
    /// requested, in one piece when the MTU was larger.
    fn permit_fragments(&mut self, socket: &Socket, longest: u32, turn: &Turn<'_>) {
        self.fragments = self.output.frames().is_none() && turn.core.exceeds_path(longest);
        if self.fragments {
            socket::permit_fragmentation(socket, true);
        }
    }

    fn forbid_fragments(&mut self, socket: &Socket) {
        if std::mem::take(&mut self.fragments) {
            socket::permit_fragmentation(socket, false);
        }
    }

    /// Whether the kernel should segment the next burst. It refuses segments longer than the path's MTU.
    fn segments(&self) -> bool {
        self.gso && !self.fragments
    }

    /// Allows larger bursts after one that left.
    fn grow(&mut self, now: Instant) {
        self.burst = (self.burst * 2).min(MAX_SEGMENTS as u32);
        self.last = now;
    }

    /// Limits bursts: small ones after an idle time, for latency; full ones under load, for bandwidth.
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

    /// Classifies a refused send.
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
                let datagram = match self.output.frames() {
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
                let gone = self.output.frames().and_then(|it| it.gone(socket));
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
