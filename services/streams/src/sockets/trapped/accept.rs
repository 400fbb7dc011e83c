//! Accepts for a program.

use super::process::Process;
use super::{Supervisor, Waited, tell, wait};
use crate::sockets::call::{Answer, Call};
use crate::sockets::program::{self, Accepted, stand_in};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use zerolane::trap::{SocketCall, TrappedCall};

const NO_TIME: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

impl Supervisor {
    pub(super) fn accept(&self, call: TrappedCall, process: &Process, listener: &OwnedFd) {
        let flags = match call.call() {
            SocketCall::Accept4 => SocketFlags::from_bits_retain(call.argument(3) as u32),
            _ => SocketFlags::empty(),
        };
        let (true, Ok(inode)) = (
            (SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).contains(flags),
            fstat(listener).map(|it| it.st_ino),
        ) else {
            return call.execute();
        };
        let blocks = !fcntl_getfl(listener).is_ok_and(|it| it.contains(OFlags::NONBLOCK));
        let patience = sockopt::socket_timeout(listener, sockopt::Timeout::Recv);
        let until = patience.ok().flatten().map(|it| Instant::now() + it);
        let gate = self.gate(inode);
        let (socket, peer) = loop {
            match take(&gate, listener, flags) {
                Ok(it) => break it,
                Err(Errno::AGAIN) if blocks => {}
                Err(error) => return call.finish(Err(error.raw_os_error())),
            }
            match wait(&call, process, listener, PollFlags::IN, until) {
                Waited::Ready => {}
                Waited::Signalled => return call.execute(),
                Waited::Late => return call.finish(Err(libc::EAGAIN)),
                Waited::Gone => return,
            }
        };
        let given = match program::accepted(&self.runner, &socket) {
            Accepted::Plain => None,
            Accepted::Refused => return call.finish(Err(libc::ECONNABORTED)),
            Accepted::Carried(talk) => stand_in(&self.runner, &socket).and_then(|(own, port)| {
                (talk.give(Call::Take(port), &socket) == Some(Answer::Go)).then_some(own)
            }),
        };
        let peer = peer.and_then(|it| SocketAddr::try_from(it).ok());
        if call.argument(1) != 0
            && let Some(peer) = peer
            && let Err(error) = tell(&call, process, peer, program::is_v6(&socket))
        {
            return call.finish(Err(error));
        }
        let close_on_exec = flags.contains(SocketFlags::CLOEXEC);
        call.finish_with(given.as_ref().unwrap_or(&socket).as_fd(), close_on_exec);
    }
}

/// Takes a connection that waits.
fn take(
    gate: &Mutex<()>,
    listener: &OwnedFd,
    flags: SocketFlags,
) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
    // No other thread may take the connection between `poll` and `accept`: `accept` would block.
    let _alone = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let mut look = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut look, Some(&NO_TIME)) {
        Ok(0) => Err(Errno::AGAIN),
        _ => acceptfrom_with(listener, flags | SocketFlags::CLOEXEC),
    }
}
