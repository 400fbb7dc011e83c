//! Sending: one sendmsg for up to 64 KiB of STUs, headers and payload gathered where they lie.

use super::socket;
use crate::{Account, LaneError, Options, Registry, Turn};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use zerolane_core::{BurstLimit, ControlDatagram, DataBurst, Instant, Span, Transmit};
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
    pub(super) iovs: Vec<libc::iovec>,
    /// Headers and short payloads of small operations.
    pub(super) small: Vec<u8>,
    messages: Vec<libc::mmsghdr>,
    /// A transmission that met a full socket buffer.
    held: Option<Transmit>,
    pub(super) burst: u32,
    pub(super) last: Instant,
}

// SAFETY: the raw pointers in iovs and messages are made anew before every syscall and mean nothing
// between two.
unsafe impl Send for Sender {}

impl Sender {
    pub(super) fn new(socket: &Socket, options: &Options) -> Sender {
        Sender {
            gso: options.gso && socket::has_gso(socket),
            headers: Box::new([[0; HEADER_LEN]; MAX_SEGMENTS]),
            small: Vec::new(),
            iovs: Vec::with_capacity(2 * MAX_SEGMENTS),
            messages: Vec::with_capacity(MAX_SEGMENTS),
            held: None,
            burst: FIRST_BURST,
            last: Instant::ZERO,
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
            turn.refresh();
            let Some(transmit) = self
                .held
                .take()
                .or_else(|| turn.core.poll_transmit(turn.now, self.limit(turn.now)))
            else {
                break;
            };
            let outcome = match &transmit {
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
    fn limit(&mut self, now: Instant) -> BurstLimit {
        if now - self.last > IDLE {
            self.burst = FIRST_BURST;
        }
        BurstLimit {
            segments: self.burst,
            ..BurstLimit::default()
        }
    }

    fn control(
        &mut self,
        socket: &Socket,
        datagram: &ControlDatagram,
        account: &mut Account,
    ) -> io::Result<()> {
        let bytes = datagram.bytes();
        let padding = datagram
            .pad_to
            .saturating_sub(bytes.len())
            .min(PADDING.len());
        self.iovs.clear();
        self.iovs.push(iovec(bytes.as_ptr(), bytes.len()));
        if padding > 0 {
            self.iovs.push(iovec(PADDING.as_ptr(), padding));
        }
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
        let Some(payload) = turn.memory.source(burst.span) else {
            return Err(LaneError::Fault(burst.span.region));
        };
        self.gather(burst, payload, turn.core.uses_checksums(), turn.memory)?;
        self.burst = (self.burst * 2).min(MAX_SEGMENTS as u32);
        self.last = turn.now;
        turn.account.datagrams_sent += u64::from(burst.segments);
        turn.account.bytes_sent += burst.span.len;
        turn.account.tx_data_syscalls += 1;
        match self.send_burst(socket, burst, turn.account) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                Err(LaneError::Fault(burst.span.region))
            }
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
        if !self.gso {
            return self.send_separately(socket);
        }
        let segment = burst.stu as usize + HEADER_LEN;
        match self.send_gathered(socket, segment) {
            Err(error) if is_lost_offload(&error, segment, socket::path_datagram_now(socket)) => {
                self.gso = false;
                account.tx_data_syscalls += 1;
                self.send_separately(socket)
            }
            outcome => outcome,
        }
    }

    /// Fills headers and iovecs: header, payload, header, payload.
    fn gather(
        &mut self,
        burst: &DataBurst,
        payload: *const u8,
        checksums: bool,
        memory: &Registry,
    ) -> Result<(), LaneError> {
        self.iovs.clear();
        let mut at = 0;
        burst.emit_headers(&mut self.headers[..]);
        for (index, place) in (0..burst.segments).zip(self.headers.iter_mut()) {
            let len = u64::from(burst.stu).min(burst.span.len - at);
            if checksums {
                let sum = sum(memory, burst.span.part(at, len))?;
                burst.header(index).sealed(sum).emit_into(place);
            }
            self.iovs.push(iovec(place.as_ptr(), HEADER_LEN));
            // SAFETY: at + len <= span.len, and all of span is readable at `payload`.
            self.iovs
                .push(iovec(unsafe { payload.add(at as usize) }, len as usize));
            at += len;
        }
        Ok(())
    }

    /// One sendmsg of all iovecs, in segments of `segment` bytes (0: one datagram).
    pub(super) fn send_gathered(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
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

    /// One datagram for every pair of iovecs, by sendmmsg: for kernels and interfaces without GSO.
    fn send_separately(&mut self, socket: &Socket) -> io::Result<()> {
        self.messages.clear();
        for pair in self.iovs.chunks_mut(2) {
            let mut message = empty_message();
            message.msg_iov = pair.as_mut_ptr();
            message.msg_iovlen = pair.len();
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
pub(super) fn is_lost_offload(
    error: &io::Error,
    segment: usize,
    path_datagram: Option<usize>,
) -> bool {
    match error.raw_os_error() {
        Some(libc::EIO | libc::EOPNOTSUPP) => true,
        Some(libc::EINVAL) => path_datagram.is_none_or(|largest| segment <= largest),
        _ => false,
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
