//! Sending: one sendmsg for up to 64 KiB of STUs, headers and payload gathered where they lie.

use super::socket;
use super::stage::{AROUND, Stage, Unstaged};
use crate::seal::Sealer;
use crate::{Account, LaneError, Mode, Options, Registry, Turn};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use zerolane_core::{BurstLimit, Cipher, ControlDatagram, DataBurst, Instant, Span, Transmit};
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
static PADDING: [u8; 65_536] = [0; 65_536];

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
    headers: Box<[[u8; HEADER_LEN]; MAX_SEGMENTS]>,
    iovs: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// A transmission that met a full socket buffer.
    held: Option<Transmit>,
    burst: u32,
    last: Instant,
    outgoing: Outgoing,
}

/// What is done to datagrams before they leave.
#[derive(Debug)]
enum Outgoing {
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
        Sender {
            gso: options.gso && socket::has_gso(socket),
            headers: Box::new([[0; HEADER_LEN]; MAX_SEGMENTS]),
            iovs: Vec::with_capacity(2 * MAX_SEGMENTS),
            messages: Vec::with_capacity(MAX_SEGMENTS),
            held: None,
            burst: FIRST_BURST,
            last: Instant::ZERO,
            outgoing: match options.security.mode {
                Mode::Plain => Outgoing::Plain,
                Mode::Encrypted => Outgoing::Waiting,
            },
        }
    }

    /// Seals everything from here on.
    pub(super) fn protect(&mut self, sealer: Sealer) {
        self.outgoing = Outgoing::Sealed(Box::new(Stage::new(sealer)));
    }

    /// What seals, if anything does by now.
    pub(super) fn cipher(&self) -> Option<Cipher> {
        match &self.outgoing {
            Outgoing::Sealed(stage) => Some(stage.sealer().cipher()),
            Outgoing::Plain | Outgoing::Waiting => None,
        }
    }

    /// Whether something waits for room in the socket buffer.
    pub(super) fn is_full(&self) -> bool {
        self.held.is_some()
    }

    /// Sends what the core owes, for one turn. True if anything was sent.
    pub(super) fn transmit(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let mut sent = false;
        for _ in 0..BURSTS_PER_TURN {
            let Some(transmit) = self
                .held
                .take()
                .or_else(|| turn.core.poll_transmit(turn.now, self.limit(turn.now)))
            else {
                break;
            };
            let outcome = match &transmit {
                Transmit::Handshake(it) => self.handshake(socket, it.bytes(), turn.account),
                Transmit::Control(it) => self.control(socket, it, turn.account),
                Transmit::Data(it) => self.data(socket, it, turn)?,
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
    fn limit(&mut self, now: Instant) -> BurstLimit {
        if now - self.last > IDLE {
            self.burst = FIRST_BURST;
        }
        BurstLimit {
            segments: self.burst,
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
        match &mut self.outgoing {
            Outgoing::Plain => {
                let bytes = datagram.bytes();
                self.iovs.push(iovec(bytes.as_ptr(), bytes.len()));
                let padding = datagram.pad_to.saturating_sub(bytes.len());
                if padding > 0 {
                    let padding = padding.min(PADDING.len());
                    self.iovs.push(iovec(PADDING.as_ptr(), padding));
                }
            }
            Outgoing::Waiting => return Ok(()),
            Outgoing::Sealed(stage) => match stage.control(datagram) {
                Ok(bytes) => self.iovs.push(iovec(bytes.as_ptr(), bytes.len())),
                Err(_) => return Ok(()),
            },
        }
        self.send_alone(socket, account)
    }

    /// Sends what is gathered as one datagram that carries no Data.
    fn send_alone(&mut self, socket: &Socket, account: &mut Account) -> io::Result<()> {
        account.tx_control_syscalls += 1;
        account.datagrams_sent += 1;
        self.send_gathered(socket, 0)
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
        match &mut self.outgoing {
            Outgoing::Plain => self.gather(burst, payload),
            Outgoing::Waiting => return Ok(Ok(())),
            Outgoing::Sealed(stage) => match stage.data(burst, &self.headers[..], turn.memory) {
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
        match self.send_burst(socket, burst, turn.account) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(gone),
            outcome => Ok(outcome),
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
            return self.send_gathered(socket, 0);
        }
        let around = match self.outgoing {
            Outgoing::Sealed(_) => AROUND,
            Outgoing::Plain | Outgoing::Waiting => HEADER_LEN,
        };
        let segment = burst.stu as usize + around;
        if !self.gso {
            return self.send_separately(socket, segment);
        }
        match self.send_gathered(socket, segment) {
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
    fn send_gathered(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
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
        // headers and padding are ours, payload is posted and open in the registry.
        twice_on_fault(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) })?;
        Ok(())
    }

    /// One datagram for every `segment` bytes, by sendmmsg: for kernels and interfaces without GSO.
    fn send_separately(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
        self.messages.clear();
        let datagram = match self.outgoing {
            Outgoing::Sealed(_) => {
                cut(&mut self.iovs, segment);
                1
            }
            Outgoing::Plain | Outgoing::Waiting => 2,
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
            let sent = twice_on_fault(|| unsafe {
                let (start, count) = (rest.as_mut_ptr(), rest.len() as u32);
                libc::sendmmsg(socket.as_raw_fd(), start, count, 0) as isize
            });
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
fn twice_on_fault(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    let mut once = || usize::try_from(call()).map_err(|_| io::Error::last_os_error());
    match once() {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => once(),
        outcome => outcome,
    }
}

/// Whether a GSO send failed because the offload is gone, not because datagrams of `segment` bytes
/// are too large for the path: older kernels say EINVAL to either.
fn is_lost_offload(error: &io::Error, segment: usize, path_datagram: Option<usize>) -> bool {
    match error.raw_os_error() {
        Some(libc::EIO | libc::EOPNOTSUPP) => true,
        Some(libc::EINVAL) => path_datagram.is_none_or(|largest| segment <= largest),
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
    if memory.is_file(span.region) {
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
