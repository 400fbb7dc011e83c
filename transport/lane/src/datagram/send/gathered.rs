//! Sends gathered pieces by system calls, with GSO or without.

use super::{Protection, Sender};
use crate::account::Account;
use crate::datagram::message::{
    AROUND, CONTROL_LEN, cut_after, empty_message, iovec, twice_on_fault,
};
use crate::ethernet::OutgoingFrames;
use crate::socket::{self, system};
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;
use zerolane_core::DataBurst;
use zerolane_wire::HEADER_LEN;

impl Sender {
    /// Sends the gathered pieces in one call if the kernel segments them, and one by one once it does not.
    pub(super) fn send_burst(
        &mut self,
        socket: &Socket,
        burst: &DataBurst,
        account: &mut Account,
    ) -> io::Result<()> {
        if burst.segments == 1 {
            return self.send_gathered(socket, 0, 0);
        }
        let around = match self.protection {
            _ if burst.train.is_some() => 0,
            Protection::Sealed(_) => AROUND,
            Protection::Plain => HEADER_LEN,
        };
        self.send_cut(socket, burst.stu as usize + around, account)
    }

    /// Sends the gathered pieces, segmented every `segment` bytes.
    pub(super) fn send_cut(
        &mut self,
        socket: &Socket,
        segment: usize,
        account: &mut Account,
    ) -> io::Result<()> {
        if !self.segments() {
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

    /// One sendmsg of all iovecs, in segments of `segment` bytes (0: one datagram).
    pub(super) fn send_gathered(
        &mut self,
        socket: &Socket,
        segment: usize,
        flags: i32,
    ) -> io::Result<()> {
        if segment == 0 {
            self.giver.leave_whole(socket, &self.buffers.iovs);
            if let ([piece], 0, None) = (&self.buffers.iovs[..], flags, self.output.frames()) {
                // SAFETY: as below.
                twice_on_fault(|| unsafe { system::send(socket.as_raw_fd(), piece) })?;
                return Ok(());
            }
        }
        let mut control = [0u64; CONTROL_LEN / 8];
        let mut message = message_of(&mut self.buffers.iovs, self.output.frames());
        if segment > 0 {
            cut_after(segment, &mut message, &mut control);
        }
        // SAFETY: message points to iovecs over memory that is mapped for the length of the call: headers and padding
        // are the lane's, payload is posted and open in the registry. Lent memory is kept until the kernel releases it:
        // `ZerocopyTracker` keeps the headers, `Driver` the payload.
        twice_on_fault(|| unsafe { system::sendmsg(socket.as_raw_fd(), &message, flags) })?;
        Ok(())
    }

    /// Sends one datagram for each `segment` bytes, by sendmmsg: for kernels and interfaces without GSO.
    fn send_separately(&mut self, socket: &Socket, segment: usize) -> io::Result<()> {
        self.giver.leave_whole(socket, &self.buffers.iovs);
        self.buffers.messages.clear();
        cut(&mut self.buffers.iovs, segment);
        let mut rest = &mut self.buffers.iovs[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |iov: &&libc::iovec| {
                let first_of_next = bytes == segment;
                bytes += iov.iov_len;
                !first_of_next
            };
            let count = rest.iter().take_while(fits).count();
            let (pieces, behind) = rest.split_at_mut(count);
            self.buffers.messages.push(libc::mmsghdr {
                msg_hdr: message_of(pieces, self.output.frames()),
                msg_len: 0,
            });
            rest = behind;
        }
        let mut done = 0;
        while done < self.buffers.messages.len() {
            let rest = &mut self.buffers.messages[done..];
            // SAFETY: as in send_gathered, for every message of the list.
            let sent = twice_on_fault(|| unsafe { system::sendmmsg(socket.as_raw_fd(), rest) });
            match sent {
                Ok(sent) => done += sent,
                // Part of the burst has left; the rest counts as lost and will be requested again.
                Err(error) if done > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The kernel's message for `pieces`, which begin with a header in the lane's own memory. Among the messages of one
/// call, only the last may be shorter than a frame.
fn message_of(pieces: &mut [libc::iovec], mut frames: Option<&mut OutgoingFrames>) -> libc::msghdr {
    let mut message = empty_message();
    if let Some(frames) = &mut frames {
        frames.address(&mut message);
    }
    // SAFETY: headers are emitted into buffers of the lane, together with the bytes after them.
    let padded = frames.and_then(|it| unsafe { it.pad(pieces) });
    let pieces = padded.unwrap_or(pieces);
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message
}

/// Whether a GSO send failed because the offload is gone, not because datagrams of `segment` bytes are too large for
/// the path: older kernels report EINVAL for both.
pub(super) fn is_lost_offload(
    error: &io::Error,
    segment: usize,
    path_datagram: Option<usize>,
) -> bool {
    match error.raw_os_error() {
        Some(libc::EIO | libc::EOPNOTSUPP) => true,
        // Without a path there is no source address, or no route, and the offload is not at fault either.
        Some(libc::EINVAL) => path_datagram.is_some_and(|largest| segment <= largest),
        _ => false,
    }
}

/// Splits pieces where a datagram of `segment` bytes ends.
fn cut(iovs: &mut Vec<libc::iovec>, segment: usize) {
    let mut room = segment;
    for piece in std::mem::take(iovs) {
        let mut at = 0;
        while at < piece.iov_len {
            let len = room.min(piece.iov_len - at);
            let start = piece.iov_base.cast::<u8>().wrapping_add(at);
            iovs.push(iovec(start, len));
            at += len;
            room = if room == len { segment } else { room - len };
        }
    }
}

#[cfg(test)]
#[path = "gathered_tests.rs"]
mod tests;
