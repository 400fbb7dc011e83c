//! Talks with a pump, over a local socket for each call.

use crate::sockets::call::{ANSWER_BYTES, Answer, Call, Runner};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, send, sendmsg, socket_with, sockopt,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long the pump may take to answer. It waits for other hosts for milliseconds; a stopped one must not block the
/// program forever.
const PUMP_WITHIN: Duration = Duration::from_secs(10);

/// A conversation with a pump.
#[derive(Debug)]
pub struct Talk {
    socket: OwnedFd,
    runner: Runner,
}

impl Talk {
    /// Calls the pump. `None`: it is gone, or this process has no descriptor left.
    pub fn begin(runner: &Runner) -> Option<Talk> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
        for what in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, what, Some(PUMP_WITHIN)).ok()?;
        }
        let name = SocketAddrUnix::new_abstract_name(&runner.name()).ok()?;
        connect(&socket, &name).ok()?;
        let runner = *runner;
        Some(Talk { socket, runner })
    }

    /// Says `call`, and returns the answer.
    pub fn ask(&self, call: Call) -> Option<Answer> {
        let packet = call.write(&self.runner.secret);
        let sent = retry_on_intr(|| send(&self.socket, &packet, SendFlags::NOSIGNAL));
        (sent == Ok(packet.len())).then_some(())?;
        self.answer()
    }

    /// Says `call` and gives a copy of `descriptor`.
    pub fn give(&self, call: Call, descriptor: impl AsFd) -> Option<Answer> {
        let packet = call.write(&self.runner.secret);
        let given = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&given)) {
            return None;
        }
        let pieces = [IoSlice::new(&packet)];
        let flags = SendFlags::NOSIGNAL;
        let sent = retry_on_intr(|| sendmsg(&self.socket, &pieces, &mut control, flags));
        (sent == Ok(packet.len())).then_some(())?;
        self.answer()
    }

    fn answer(&self) -> Option<Answer> {
        let mut packet = [0_u8; ANSWER_BYTES];
        let received = retry_on_intr(|| recv(&self.socket, &mut packet, RecvFlags::empty()));
        let (len, _) = received.ok()?;
        Answer::read(&packet[..len])
    }
}
