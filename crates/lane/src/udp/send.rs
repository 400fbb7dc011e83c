//! Sending: one sendmsg for up to 64 KiB of STUs, headers and payload gathered where they lie.

use super::stage::{AROUND, Stage, Unstaged};
use super::zerocopy::{Headers, Lender};
use super::{socket, system};
use crate::seal::Sealer;
use crate::{Account, LaneError, Mode, Options, Registry, Turn, Zerocopy};
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use zerolane_core::{
    BurstLimit, Cipher, ControlDatagram, DataBurst, Instant, RegionId, Span, Transmit,
};
use zerolane_wire::HEADER_LEN;
use zerolane_wire::checksum::Sum;

/// Segments of one GSO send. The kernel has taken 64 since 4.18, and 128 since 6.9.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Bursts sent before the receive side gets a look.
const BURSTS_PER_TURN: usize = 8;
/// Segments of the first burst after an idle time: the receiver starts while we go on (P0.3).
const FIRST_BURST: u32 = 8;
/// Silence after which the next burst is a first one again.
const IDLE: std::time::Duration = std::time::Duration::from_millis(1);
/// Room for one UDP_SEGMENT control message.
const CONTROL_LEN: usize = 32;

/// Zeros behind a path probe.
static PADDING: Padding = Padding([0; 65_536]);

/// On pages of its own, so that a probe of any size has few enough fragments.
#[repr(C, align(4096))]
struct Padding([u8; 65_536]);

/// What became of a send.
enum Sent {
    /// The kernel has it.
    Done,
    /// The socket buffer is full.
    Full,
    /// It will not be sent: as if lost on the wire.
    Lost,
}

#[derive(Debug)]
pub(super) struct Sender {
    pub(super) gso: bool,
    lender: Lender,
    /// The last burst was of memory that may be lent.
    lendable: bool,
    headers: Box<[[u8; HEADER_LEN]; MAX_SEGMENTS]>,
    pub(super) iovs: Vec<libc::iovec>,
    /// Headers and short payloads of small operations.
    pub(super) small: Vec<u8>,
    messages: Vec<libc::mmsghdr>,
    /// Datagrams leave ECN-capable.
    capable: bool,
    /// A transmission that met a full socket buffer.
    held: Option<Transmit>,
    pub(super) burst: u32,
    pub(super) last: Instant,
    pub(super) protection: Protection,
}

/// What is done to datagrams before they leave.
#[derive(Debug)]
pub(super) enum Protection {
    /// Nothing.
    Plain,
    /// They are to be sealed, and the keys are not there yet: none may leave.
    Waiting,
    /// They are sealed.
    Sealed(Box<Stage>),
}

// SAFETY: the raw pointers in iovs and messages are made anew before every syscall and mean nothing
// between two.
unsafe impl Send for Sender {}

impl Sender {
    pub(super) fn new(socket: &Socket, options: &Options) -> Sender {
        let mode = options.security.mode;
        Sender {
            gso: options.gso && socket::has_gso(socket),
            // What is sealed is the lane's own already, and written again for the next burst.
            lender: Lender::new(socket, options.zerocopy && mode == Mode::Plain),
            lendable: false,
            headers: Box::new([[0; HEADER_LEN]; MAX_SEGMENTS]),
            small: Vec::new(),
            iovs: Vec::with_capacity(2 * MAX_SEGMENTS),
            messages: Vec::with_capacity(MAX_SEGMENTS),
            capable: false,
            held: None,
            burst: FIRST_BURST,
            last: Instant::ZERO,
            protection: match mode {
                Mode::Plain => Protection::Plain,
                Mode::Encrypted | Mode::Authenticated => Protection::Waiting,
            },
        }
    }

    /// Seals everything from here on.
    pub(super) fn protect(&mut self, sealer: Sealer) {
        self.protection = Protection::Sealed(Box::new(Stage::new(sealer)));
    }

    /// What seals, if anything does by now.
    pub(super) fn cipher(&self) -> Option<Cipher> {
        match &self.protection {
            Protection::Sealed(stage) => Some(stage.sealer().cipher()),
            Protection::Plain | Protection::Waiting => None,
        }
    }

    /// Whether something waits for room in the socket buffer.
    pub(super) fn is_full(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the kernel still has memory of `region`.
    pub(super) fn holds(&self, region: RegionId) -> bool {
        self.lender.holds(region)
    }

    pub(super) fn zerocopy(&self) -> Zerocopy {
        self.lender.state()
    }

    /// Sends what the core owes, for one turn. True if anything was sent.
    pub(super) fn transmit(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        if let Protection::Sealed(stage) = &mut self.protection {
            stage.lend();
        }
        let sent = self.transmit_bursts(socket, peer, turn);
        if let Protection::Sealed(stage) = &mut self.protection {
            stage.give_back();
        }
        sent
    }

    fn transmit_bursts(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let mut sent = self.lender.is_lending() && self.lender.settle(socket);
        if turn.core.wants_marks() != self.capable {
            self.capable = !self.capable;
            socket::send_capable(socket, peer, self.capable);
        }
        for burst in 0..BURSTS_PER_TURN {
            if burst > 0 {
                turn.refresh();
            }
            let Some(transmit) = self.held.take().or_else(|| {
                turn.core
                    .poll_transmit(turn.now, self.limit(turn.now, turn.core.stu()))
            }) else {
                break;
            };
            let outcome = match &transmit {
                Transmit::Handshake(it) => self.handshake(socket, it.bytes(), turn.account),
                Transmit::Control(it) => self.control(socket, it, turn.account),
                Transmit::Data(it) => self.data(socket, it, turn)?,
                Transmit::Operations(it) => self.operations(socket, it, turn)?,
            };
            match self.judge(outcome, socket, peer, turn)? {
                Sent::Full => {
                    self.held = Some(transmit);
                    break;
                }
                Sent::Done | Sent::Lost => sent = true,
            }
        }
        Ok(sent)
    }

    /// Small bursts while idle, for latency; full ones under load, for bandwidth.
    fn limit(&mut self, now: Instant, stu: u32) -> BurstLimit {
        if now - self.last > IDLE {
            self.burst = FIRST_BURST;
        }
        let lent = match self.lendable && self.gso {
            true => self.lender.datagrams(stu as usize),
            false => 0,
        };
        BurstLimit {
            segments: if lent > 0 { lent as u32 } else { self.burst },
            ..BurstLimit::default()
        }
    }

    fn handshake(
        &mut self,
        socket: &Socket,
        message: &[u8],
        account: &mut Account,
    ) -> io::Result<()> {
        self.iovs.clear();
        self.iovs.push(iovec(message.as_ptr(), message.len()));
        self.send_alone(socket, account)
    }

    fn control(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        self.iovs.clear();
        match &mut self.protection {
            Protection::Plain => return self.bare_control(socket, datagram, account),
            Protection::Waiting => return Ok(()),
            Protection::Sealed(stage) => match stage.control(datagram) {
                Ok(bytes) => self.iovs.push(iovec(bytes.as_ptr(), bytes.len())),
                Err(_) => return Ok(()),
            },
        }
        self.send_alone(socket, account)
    }

    /// Sends a control datagram to another address than the peer's.
    pub(super) fn send_elsewhere(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        to: SocketAddr,
    ) {
        let to = SockAddr::from(to);
        // As good as lost if it cannot be sent.
        let _ = match &mut self.protection {
            Protection::Plain => socket.send_to(datagram.bytes(), &to),
            Protection::Waiting => return,
            Protection::Sealed(stage) => {
                stage.lend();
                let sealed = stage.control(datagram);
                let sent = sealed.map(|bytes| socket.send_to(bytes, &to));
                stage.give_back();
                sent.unwrap_or(Ok(0))
            }
        };
    }

    /// A control datagram as it is, with its padding.
    fn bare_control(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        let bytes = datagram.bytes();
        let padding = datagram.pad_to.saturating_sub(bytes.len());
        self.iovs.push(iovec(bytes.as_ptr(), bytes.len()));
        if padding > 0 {
            let padding = padding.min(PADDING.0.len());
            self.iovs.push(iovec(PADDING.0.as_ptr(), padding));
            if let Some(outcome) = self.lend_probe(socket, bytes, account) {
                return outcome;
            }
        }
        self.send_alone(socket, account)
    }

    /// Sends the probe that is gathered, with `bytes` in front, without the kernel's copy. `None` if
    /// it is to be sent with it.
    fn lend_probe(
        &mut self,
        socket: &Socket,
        bytes: &[u8],
        account: &mut Account,
    ) -> Option<io::Result<()>> {
        let own = self.lender.probe(bytes)?;
        account.tx_control_syscalls += 1;
        self.iovs[0] = iovec(own.0.as_ptr().cast(), bytes.len());
        let outcome = self.lend(socket, 0, own, None);
        match outcome {
            Some(_) => account.datagrams_sent += 1,
            None => self.iovs[0] = iovec(bytes.as_ptr(), bytes.len()),
        }
        outcome
    }

    /// Sends what is gathered as one datagram that carries no Data.
    fn send_alone(&mut self, socket: &Socket, account: &mut Account) -> io::Result<()> {
        account.tx_control_syscalls += 1;
        account.datagrams_sent += 1;
        self.send_gathered(socket, 0, 0)
    }

    fn data(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        turn: &mut Turn<'_>,
    ) -> Result<io::Result<()>, LaneError> {
        let gone = LaneError::Fault(burst.span.region);
        let Some(payload) = turn.memory.source(burst.span) else {
            return Err(gone);
        };
        self.headers(burst, turn.core.uses_checksums(), turn.memory)?;
        match &mut self.protection {
            Protection::Plain => self.gather(burst, payload),
            Protection::Waiting => return Ok(Ok(())),
            Protection::Sealed(stage) => match stage.data(burst, &self.headers[..], turn.memory) {
                Ok(bytes) => {
                    let (start, len) = (bytes.as_ptr(), bytes.len());
                    self.iovs.clear();
                    self.iovs.push(iovec(start, len));
                }
                Err(Unstaged::Gone) => return Err(gone),
                Err(Unstaged::Refused) => return Ok(Ok(())),
            },
        }
        self.burst = (self.burst * 2).min(MAX_SEGMENTS as u32);
        self.last = turn.now;
        turn.account.datagrams_sent += u64::from(burst.segments);
        turn.account.bytes_sent += burst.span.len;
        turn.account.tx_data_syscalls += 1;
        self.lendable = turn.memory.is_lendable(burst.span.region);
        if let Some(outcome) = self.lend_burst(socket, burst, turn.account) {
            return Ok(outcome);
        }
        match self.send_burst(socket, burst, turn.account) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(gone),
            outcome => Ok(outcome),
        }
    }

    /// Sends what is gathered without the kernel's copy. `None` if it is to be sent with it.
    fn lend_burst(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        account: &mut Account,
    ) -> Option<io::Result<()>> {
        let count = burst.segments as usize;
        if !self.lendable || !self.gso || !self.lender.pays(burst) {
            return None;
        }
        // The kernel will still read the headers when the next burst overwrites ours.
        let mut own = self.lender.headers();
        for (index, slot) in own.0.iter_mut().enumerate().take(count) {
            slot[..HEADER_LEN].copy_from_slice(&self.headers[index]);
            self.iovs[2 * index] = iovec(slot.as_ptr(), HEADER_LEN);
        }
        let segment = burst.stu as usize + HEADER_LEN;
        let outcome = self.lend(socket, segment, own, Some(burst.span.region));
        match outcome {
            Some(Ok(())) => account.tx_zerocopy_syscalls += 1,
            _ => {
                account.tx_data_syscalls += 1;
                for (index, header) in self.headers.iter().enumerate().take(count) {
                    self.iovs[2 * index] = iovec(header.as_ptr(), HEADER_LEN);
                }
            }
        }
        outcome
    }

    /// Lends what is gathered, with headers in `own`, to the kernel. `None` if that was refused for a
    /// reason of its own.
    fn lend(
        &mut self,
        socket: &Socket,
        segment: usize,
        own: Box<Headers>,
        region: Option<RegionId>,
    ) -> Option<io::Result<()>> {
        match self.send_gathered(socket, segment, libc::MSG_ZEROCOPY) {
            Ok(()) => {
                self.lender.lent(own, region);
                Some(Ok(()))
            }
            Err(error) if self.lender.refused(own, &error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Sends what is gathered, as one if the kernel cuts it, and one by one from when it does not.
    fn send_burst(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        account: &mut Account,
    ) -> io::Result<()> {
        if burst.segments == 1 {
            return self.send_gathered(socket, 0, 0);
        }
        let around = match self.protection {
            Protection::Sealed(_) => AROUND,
            Protection::Plain | Protection::Waiting => HEADER_LEN,
        };
        let segment = burst.stu as usize + around;
        if !self.gso {
            return self.send_separately(socket, segment);
        }
        match self.send_gathered(socket, segment, 0) {
            Err(error) if is_lost_offload(&error, segment, socket::path_datagram_now(socket)) => {
                self.gso = false;
                account.tx_data_syscalls += 1;
                self.send_separately(socket, segment)
            }
            outcome => outcome,
        }
    }

    /// Fills the headers.
    fn headers(
        &mut self,
        burst: &DataBurst,
        checksums: bool,
        memory: &Registry,
    ) -> Result<(), LaneError> {
        burst.emit_headers(&mut self.headers[..]);
        if !checksums {
            return Ok(());
        }
        let mut at = 0;
        for (index, place) in (0..burst.segments).zip(self.headers.iter_mut()) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            let sum = sum(memory, burst.span.part(at, len))?;
            burst.header(index).sealed(sum).emit_into(place);
            at += len;
        }
        Ok(())
    }

    /// Fills the iovecs: header, payload, header, payload.
    fn gather(&mut self, burst: &DataBurst, payload: *const u8) {
        self.iovs.clear();
        let mut at = 0;
        for place in self.headers.iter().take(burst.segments as usize) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            self.iovs.push(iovec(place.as_ptr(), HEADER_LEN));
            // SAFETY: at + len <= span.len, and all of span is readable at `payload`.
            self.iovs
                .push(iovec(unsafe { payload.add(at as usize) }, len as usize));
            at += len;
        }
    }

    /// One sendmsg of all iovecs, in segments of `segment` bytes (0: one datagram).
    pub(super) fn send_gathered(
        &mut self,
        socket: &Socket,
        segment: usize,
        flags: i32,
    ) -> io::Result<()> {
        let mut control = [0u64; CONTROL_LEN / 8];
        let mut message = empty_message();
        message.msg_iov = self.iovs.as_mut_ptr();
        message.msg_iovlen = self.iovs.len();
        if segment > 0 {
            message.msg_control = control.as_mut_ptr().cast();
            // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the control buffer is aligned and larger
            // than the one message put into it.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_UDP;
                (*header).cmsg_type = libc::UDP_SEGMENT;
                (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
                libc::CMSG_DATA(header)
                    .cast::<u16>()
                    .write_unaligned(segment as u16);
            }
        }
        // SAFETY: message points to iovecs over memory that is mapped for the length of the call:
        // headers and padding are ours, payload is posted and open in the registry. What is lent is
        // kept until the kernel lets go: `Lender` keeps the headers, `Driver` the payload.
        twice_on_fault(|| unsafe { system::sendmsg(socket.as_raw_fd(), &message, flags) })?;
        Ok(())
    }

    /// One datagram for every `segment` bytes, by sendmmsg: for kernels and interfaces without GSO.
    fn send_separately(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
        self.messages.clear();
        let datagram = match self.protection {
            Protection::Sealed(_) => {
                cut(&mut self.iovs, segment);
                1
            }
            Protection::Plain | Protection::Waiting => 2,
        };
        for pieces in self.iovs.chunks_mut(datagram) {
            let mut message = empty_message();
            message.msg_iov = pieces.as_mut_ptr();
            message.msg_iovlen = pieces.len();
            self.messages.push(libc::mmsghdr {
                msg_hdr: message,
                msg_len: 0,
            });
        }
        let mut done = 0;
        while done < self.messages.len() {
            let rest = &mut self.messages[done..];
            // SAFETY: as in send_gathered, for every message of the list.
            let sent = twice_on_fault(|| unsafe { system::sendmmsg(socket.as_raw_fd(), rest) });
            match sent {
                Ok(sent) => done += sent,
                // Part of the burst is out; what is not counts as lost and is asked for again.
                Err(error) if done > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What a refused send means.
    fn judge(
        &mut self,
        outcome: io::Result<()>,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Result<Sent, LaneError> {
        let Err(error) = outcome else {
            return Ok(Sent::Done);
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => return Ok(Sent::Full),
            Some(libc::ECONNREFUSED) => turn.core.unreachable(turn.now),
            Some(libc::EMSGSIZE | libc::EINVAL) => {
                if let Some(datagram) = socket::path_datagram(socket, peer) {
                    turn.core.set_path_datagram(turn.now, datagram);
                }
            }
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EPERM
                | libc::EADDRNOTAVAIL
                | libc::EDESTADDRREQ
                | libc::ENODEV
                | libc::EIO,
            ) => {}
            _ => return Err(LaneError::Io(error)),
        }
        turn.account.dropped_on_send += 1;
        Ok(Sent::Lost)
    }
}

/// Makes a call again that failed with EFAULT: recvmmsg leaves that error of a later message in the
/// socket, for the next call to find, whatever that is. An EFAULT of its own comes again.
fn twice_on_fault(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    match call() {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => call(),
        outcome => outcome,
    }
}

/// Whether a GSO send failed because the offload is gone, not because datagrams of `segment` bytes
/// are too large for the path: older kernels say EINVAL to either.
pub(super) fn is_lost_offload(
    error: &io::Error,
    segment: usize,
    path_datagram: Option<usize>,
) -> bool {
    match error.raw_os_error() {
        Some(libc::EIO | libc::EOPNOTSUPP) => true,
        // Without a path there is no source address, or no route: no fault of the offload either.
        Some(libc::EINVAL) => path_datagram.is_some_and(|largest| segment <= largest),
        _ => false,
    }
}

/// Cuts the one piece into pieces of `segment` bytes.
fn cut(iovs: &mut Vec<libc::iovec>, segment: usize) {
    let Some(whole) = iovs.pop() else {
        return;
    };
    for at in (0..whole.iov_len).step_by(segment) {
        let start = whole.iov_base.cast::<u8>().wrapping_add(at);
        iovs.push(iovec(start, segment.min(whole.iov_len - at)));
    }
}

/// The one's-complement sum over the bytes of `span`.
pub(super) fn sum(memory: &Registry, span: Span) -> Result<Sum, LaneError> {
    let fault = LaneError::Fault(span.region);
    // Shared memory may change meanwhile: then the sum is wrong, the bytes are dropped and asked for
    // again.
    if memory.is_file(span.region) || memory.bounds(span.region).is_some() {
        let mut copy = vec![0; span.len as usize];
        return match memory.read(span, &mut copy) {
            true => Ok(Sum::of(&copy)),
            false => Err(fault),
        };
    }
    let start = memory.source(span).ok_or(fault)?;
    // SAFETY: the registry has the span open for reading, and nobody writes it meanwhile.
    Ok(Sum::of(unsafe {
        std::slice::from_raw_parts(start, span.len as usize)
    }))
}

pub(super) fn iovec(start: *const u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast_mut().cast(),
        iov_len: len,
    }
}

pub(super) fn empty_message() -> libc::msghdr {
    // SAFETY: all fields of msghdr are integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
