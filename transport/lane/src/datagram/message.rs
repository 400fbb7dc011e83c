//! Describes a message to the kernel: its pieces, where to segment it, and what an error of the call means.

use crate::seal::TRAILER_LEN;
use crate::socket::system;
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;
use zerolane_wire::{HEADER_LEN, Train};

/// Bytes around the payload of a sealed datagram.
pub(super) const AROUND: usize = HEADER_LEN + TRAILER_LEN;
/// Room for one UDP_SEGMENT control message.
pub(super) const CONTROL_LEN: usize = 32;

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

/// Makes the kernel segment `message` every `segment` bytes.
pub(super) fn cut_after(
    segment: usize,
    message: &mut libc::msghdr,
    control: &mut [u64; CONTROL_LEN / 8],
) {
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the control buffer is aligned and larger
    // than the one message put into it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const *message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        libc::CMSG_DATA(header)
            .cast::<u16>()
            .write_unaligned(segment as u16);
    }
}

/// Writes the end of a train after its payload: padding, header, and the `check` of both, which is the seal's trailer or
/// a digest. Returns its length.
pub(super) fn emit_train_end(
    place: &mut [u8],
    train: Train,
    head: &[u8; HEADER_LEN],
    check: &[u8],
) -> usize {
    let padding = usize::from(train.padding);
    let (behind, end) = (padding + HEADER_LEN, padding + HEADER_LEN + check.len());
    place[..padding].fill(0);
    place[padding..behind].copy_from_slice(head);
    place[behind..end].copy_from_slice(check);
    end
}

/// Sends `bytes`. The kernel segments them every `segment` bytes, if that is not 0.
///
/// # Errors
/// The socket's.
pub(super) fn send_bytes(socket: &Socket, bytes: &[u8], segment: usize) -> io::Result<()> {
    let mut control = [0u64; CONTROL_LEN / 8];
    let mut message = empty_message();
    let mut piece = iovec(bytes.as_ptr(), bytes.len());
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    if segment > 0 {
        cut_after(segment, &mut message, &mut control);
    }
    // SAFETY: the message names a slice and control space of ours, both of which live through the call.
    twice_on_fault(|| unsafe { system::sendmsg(socket.as_raw_fd(), &message, 0) })?;
    Ok(())
}

/// Repeats a call that failed with EFAULT: recvmmsg leaves such an error of a later message in the socket, and the next
/// call of any kind reports it. An EFAULT of the call itself comes again.
pub(super) fn twice_on_fault(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    match call() {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => call(),
        outcome => outcome,
    }
}

/// Whether the socket buffer has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}
