//! Connects for a program.

use super::process::{Process, Registration};
use super::{Supervisor, Waited, number, wait};
use crate::sockets::call::{Answer, Call};
use crate::sockets::program::{self, Asked, Talk, is_connected_soon, stand_in};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{Shutdown, connect, shutdown, sockopt};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use zerolane::trap::TrappedCall;

/// How long a socket that blocks may block this process: `connect` goes on then, and is waited for.
const BRIEFLY: Duration = Duration::from_millis(10);

/// How far TCP came.
enum Reached {
    /// It is connected, and the call has this result.
    Connected(Result<i64, i32>),
    /// The call has this result.
    Ended(Result<i64, i32>),
    /// The kernel must go on: the thread has a signal.
    Interrupted,
}

impl Supervisor {
    pub(super) fn connect(&self, call: TrappedCall, process: &Process, socket: &OwnedFd) {
        let asked = process.address(&call).and_then(|to| {
            let asked = program::ask(&self.runner, socket, to)?;
            Some((to, asked))
        });
        match asked {
            None => call.execute(),
            Some((_, Asked::Refused)) => call.finish(Err(libc::ECONNREFUSED)),
            Some((to, Asked::Goes(talk))) => {
                self.connect_and_give(call, process, socket, to, &talk);
            }
        }
    }

    /// Connects, and gives the connection to the pump if the other end has one.
    fn connect_and_give(
        &self,
        call: TrappedCall,
        process: &Process,
        socket: &OwnedFd,
        to: SocketAddr,
        talk: &Talk,
    ) {
        let number = number(&call);
        // A program that waits at its sets would use the socket too early, and they would keep it.
        let mut sets = process.registrations(&call, socket);
        let found = sets.len();
        sets.retain(|it: &Registration| it.remove(number, socket));
        if sets.len() < found {
            sets.iter().for_each(|it| it.add(number, socket));
            return self.leave(call);
        }
        let started = Instant::now();
        let mut reached = reach(&call, process, socket, to);
        let mut given = None;
        if let Reached::Connected(result) = reached {
            let micros = u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX);
            match talk.ask(Call::Connected(micros)) {
                Some(Answer::Carried) => given = self.give(&call, process, socket, talk),
                Some(Answer::Refused) => {
                    let _ = shutdown(socket, Shutdown::Both);
                    reached = Reached::Ended(Err(libc::ECONNREFUSED));
                }
                _ => reached = Reached::Ended(result),
            }
        }
        let now = given.as_ref().unwrap_or(socket);
        sets.iter().for_each(|it| it.add(number, now.as_fd()));
        match reached {
            Reached::Connected(result) | Reached::Ended(result) => call.finish(result),
            Reached::Interrupted => call.execute(),
        }
    }

    /// Gives the pump the connection of `socket`, and the program a connection to the pump. `None`: it is unchanged.
    fn give(
        &self,
        call: &TrappedCall,
        process: &Process,
        socket: &OwnedFd,
        talk: &Talk,
    ) -> Option<OwnedFd> {
        let (own, port) = stand_in(&self.runner, socket)?;
        let close_on_exec = process.closes_on_exec(call, socket)?;
        if talk.give(Call::Take(port), socket) != Some(Answer::Go) {
            return None;
        }
        // It cannot fail unless the process has ended.
        let _ = call.replace(number(call), own.as_fd(), close_on_exec);
        Some(own)
    }
}

/// Connects by TCP, as the program would.
fn reach(call: &TrappedCall, process: &Process, socket: &OwnedFd, to: SocketAddr) -> Reached {
    let failed = |error: Errno| Reached::Ended(Err(error.raw_os_error()));
    let blocks = !fcntl_getfl(socket).is_ok_and(|it| it.contains(OFlags::NONBLOCK));
    if !blocks {
        return match connect(socket, &to) {
            Ok(()) => Reached::Connected(Ok(0)),
            Err(Errno::INPROGRESS) if is_connected_soon(socket) => {
                Reached::Connected(Err(libc::EINPROGRESS))
            }
            Err(error) => failed(error),
        };
    }
    let send = sockopt::Timeout::Send;
    let patience = sockopt::socket_timeout(socket, send).ok().flatten();
    let until = patience.map(|it| Instant::now() + it);
    if sockopt::set_socket_timeout(socket, send, Some(BRIEFLY)).is_err() {
        return Reached::Interrupted;
    }
    let connected = connect(socket, &to);
    let _ = sockopt::set_socket_timeout(socket, send, patience);
    match connected {
        Ok(()) => Reached::Connected(Ok(0)),
        Err(Errno::INPROGRESS) => match wait(call, process, socket, PollFlags::OUT, until) {
            // Again, so that the socket knows; it does not block now.
            Waited::Ready => match connect(socket, &to) {
                Ok(()) => Reached::Connected(Ok(0)),
                Err(error) => failed(error),
            },
            Waited::Signalled => Reached::Interrupted,
            Waited::Late | Waited::Gone => failed(Errno::INPROGRESS),
        },
        Err(error) => failed(error),
    }
}
