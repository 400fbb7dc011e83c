//! Receives a message into a buffer of a path's thread, with the kernel's control messages.

use crate::datagram::message::{empty_message, iovec};
use socket2::Socket;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes of a message: the largest datagram or super-packet.
const BYTES: usize = 65_536;
/// Bytes of control messages: as many as the receiver reads.
pub(crate) const CONTROL: usize = 128;

/// A buffer, and the message in it.
pub(crate) struct Arrived {
    bytes: Box<[u8]>,
    len: usize,
    control: [u64; CONTROL / 8],
    control_len: usize,
    flags: i32,
}

impl Arrived {
    /// A buffer without a message.
    pub(super) fn empty() -> Box<Arrived> {
        Box::new(Arrived {
            bytes: vec![0; BYTES].into(),
            len: 0,
            control: [0; CONTROL / 8],
            control_len: 0,
            flags: 0,
        })
    }

    /// Receives the next message. False if there is none.
    ///
    /// # Errors
    /// Those of the socket.
    pub(super) fn receive(&mut self, socket: &Socket) -> io::Result<bool> {
        let mut piece = iovec(self.bytes.as_mut_ptr(), self.bytes.len());
        let mut message = empty_message();
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = self.control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        // SAFETY: the message names a piece and control space of ours, with their lengths.
        let len =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(len) = usize::try_from(len) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(false),
                _ => Err(error),
            };
        };
        (self.len, self.flags) = (len, message.msg_flags);
        self.control_len = message.msg_controllen;
        Ok(true)
    }

    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Its control messages, their length in bytes, and its flags.
    pub(crate) fn control_and_flags(&self) -> (&[u64; CONTROL / 8], usize, i32) {
        (&self.control, self.control_len, self.flags)
    }
}
