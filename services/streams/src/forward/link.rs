//! Passes bytes between a socket and its stream.

use super::request::Target;
use super::socks::{Negotiation, Step};
use crate::engine::{Engine, Fill};
use crate::message::{ResetCode, StreamId};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerolane::worker::ConnectionId;

/// Reads and writes in one turn, so that one busy socket does not keep others waiting.
const STEPS: usize = 4;

/// A socket and its stream.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    pub(super) peer: ConnectionId,
    pub(super) stage: Stage,
    may_read: bool,
    may_write: bool,
    /// The kernel reported an error.
    broken: bool,
    /// It waits for its turn.
    waits: bool,
    /// The directions that have ended: from the socket, to the socket.
    read_over: bool,
    write_over: bool,
}

/// How far a link is.
#[derive(Debug)]
pub(super) enum Stage {
    /// A SOCKS client says where it wants to go; then its stream gets this priority.
    Negotiates(Negotiation, Option<u8>),
    /// The other end connects for a SOCKS client, which waits for the answer.
    Connects(StreamId, Vec<u8>),
    /// Bytes pass.
    Open(StreamId),
}

/// How far a SOCKS client is.
#[derive(Debug)]
pub(super) enum Negotiated {
    /// It has more to say.
    Waits,
    /// It wants to go there, with this priority, and has sent this already.
    Wants(Target, Option<u8>, Vec<u8>),
    /// It has left, or is none.
    Over,
}

/// What becomes of a link after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing to do until the socket or the stream changes.
    Sleeps,
    /// There is more to do.
    GoesOn,
    /// Both directions have ended.
    Over,
    /// The socket failed: both directions end at once.
    Failed(String),
}

impl Link {
    /// Until [`Link::close`], the system closes the socket with a reset, also if this process is killed: its user must
    /// not take that for the end of the data.
    pub(super) fn new(socket: OwnedFd, peer: ConnectionId, stage: Stage) -> Link {
        // A UNIX socket has no resets.
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        Link {
            socket,
            peer,
            stage,
            may_read: true,
            may_write: true,
            broken: false,
            waits: false,
            read_over: false,
            write_over: false,
        }
    }

    pub(super) fn stream(&self) -> Option<StreamId> {
        match self.stage {
            Stage::Negotiates(..) => None,
            Stage::Connects(stream, _) | Stage::Open(stream) => Some(stream),
        }
    }

    /// It waits for its turn from now on. False if it did before.
    pub(super) fn wants_turn(&mut self) -> bool {
        !std::mem::replace(&mut self.waits, true)
    }

    /// Its turn has come.
    pub(super) fn has_turn(&mut self) {
        self.waits = false;
    }

    /// The kernel reported a change of the socket.
    pub(super) fn wake(&mut self, readable: bool, writable: bool, broken: bool) {
        self.may_read |= readable;
        self.may_write |= writable;
        self.broken |= broken;
    }

    /// Goes on with a SOCKS client.
    pub(super) fn negotiate(&mut self) -> Negotiated {
        let mut out = Vec::new();
        let step = loop {
            let Stage::Negotiates(negotiation, _) = &mut self.stage else {
                return Negotiated::Waits;
            };
            if !self.may_read {
                break Step::More;
            }
            let mut bytes = vec![0; negotiation.room()];
            match read(&self.socket, &mut bytes) {
                Ok(0) => break Step::Close,
                Ok(len) => match negotiation.take(&bytes[..len], &mut out) {
                    Step::More => {}
                    step => break step,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.may_read = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break Step::Close,
            }
        };
        if !out.is_empty() && self.answer(&out).is_err() {
            return Negotiated::Over;
        }
        match (step, &self.stage) {
            (Step::More, _) => Negotiated::Waits,
            (Step::Connect(target), Stage::Negotiates(negotiation, priority)) => {
                Negotiated::Wants(target, *priority, negotiation.rest().to_vec())
            }
            _ => Negotiated::Over,
        }
    }

    /// Writes an answer to a SOCKS client, which is short enough for the empty socket buffer.
    pub(super) fn answer(&self, bytes: &[u8]) -> io::Result<()> {
        match send(&self.socket, bytes, SendFlags::NOSIGNAL)? == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Passes bytes on in both directions.
    pub(super) fn pass(&mut self, engine: &mut Engine) -> After {
        let Stage::Open(stream) = self.stage else {
            return After::Sleeps;
        };
        let read = self.pass_in(engine, stream);
        let wrote = self.pass_out(engine, stream);
        match (read, wrote) {
            (Err(error), _) | (_, Err(error)) => After::Failed(error.to_string()),
            _ if self.read_over && self.write_over => After::Over,
            (Ok(false), Ok(false)) => match self.has_failed() {
                Some(error) => After::Failed(error.to_string()),
                None => After::Sleeps,
            },
            _ => After::GoesOn,
        }
    }

    /// From the socket into the stream. True if there may be more.
    fn pass_in(&mut self, engine: &mut Engine, stream: StreamId) -> io::Result<bool> {
        for _ in 0..STEPS {
            if self.read_over || !self.may_read {
                return Ok(false);
            }
            match engine.fill(stream, |place| read(&self.socket, place)) {
                Fill::Asked(Ok(0)) => {
                    self.read_over = true;
                    engine.finish(stream);
                }
                Fill::Asked(Ok(_)) => {}
                Fill::Asked(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_read = false
                }
                Fill::Asked(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Fill::Asked(Err(error)) => return Err(error),
                Fill::Full | Fill::Ended => return Ok(false),
            }
        }
        Ok(true)
    }

    /// From the stream to the socket. True if there may be more.
    fn pass_out(&mut self, engine: &mut Engine, stream: StreamId) -> io::Result<bool> {
        for _ in 0..STEPS {
            if self.write_over || !self.may_write {
                return Ok(false);
            }
            let bytes = engine.readable(stream);
            if bytes.is_empty() {
                if engine.is_over(stream) {
                    self.write_over = true;
                    // A socket that has failed says so at the next read.
                    let _ = shutdown(&self.socket, Shutdown::Write);
                }
                return Ok(false);
            }
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(len) => engine.consume(stream, len),
                Err(Errno::AGAIN) => self.may_write = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// The socket's pending error: a reset that neither direction would notice, because one is over and the other idle.
    fn has_failed(&mut self) -> Option<io::Error> {
        if !std::mem::take(&mut self.broken) {
            return None;
        }
        let error = sockopt::socket_error(&self.socket);
        error.ok()?.err().map(io::Error::from)
    }

    /// Closes the socket in order: what was written arrives.
    pub(super) fn close(self) {
        let _ = sockopt::set_socket_linger(&self.socket, None);
    }

    /// Ends the stream, if there is one, because the socket failed.
    pub(super) fn fail(&self, engine: &mut Engine, why: &str) {
        if let Some(stream) = self.stream() {
            engine.reset(stream, ResetCode::Aborted, why);
            engine.release(stream);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Closes a socket with a reset.
pub(super) fn abort(socket: OwnedFd) {
    let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
}

fn read(socket: &OwnedFd, place: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(socket, place)?)
}
