//! Passes bytes between a socket and its stream.

use crate::engine::{Engine, Fill};
use crate::message::StreamId;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Reads and writes in one turn, so that one busy socket does not keep others waiting.
const STEPS: usize = 4;

/// A socket that does not block, and how far each of its directions is.
#[derive(Debug)]
pub(crate) struct Passing {
    socket: OwnedFd,
    pub(crate) may_read: bool,
    may_write: bool,
    /// The kernel reported an error.
    broken: bool,
    /// The directions that have ended: from the socket, to the socket.
    read_over: bool,
    write_over: bool,
    /// Bytes read from the socket, and written to it.
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// What becomes of a socket after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing to do until the socket or the stream changes.
    Sleeps,
    /// There is more to do.
    GoesOn,
    /// Both directions have ended.
    Over,
    /// The socket failed: both directions end at once.
    Failed(String),
}

impl Passing {
    /// Until [`Passing::close`], the system closes the socket with a reset, also if this process is killed: its user
    /// must not take that for the end of the data.
    pub(crate) fn new(socket: OwnedFd) -> Passing {
        // A UNIX socket has no resets.
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        Passing {
            socket,
            may_read: true,
            may_write: true,
            broken: false,
            read_over: false,
            write_over: false,
            read: 0,
            written: 0,
        }
    }

    /// The kernel reported a change of the socket.
    pub(crate) fn wake(&mut self, readable: bool, writable: bool, broken: bool) {
        self.may_read |= readable;
        self.may_write |= writable;
        self.broken |= broken;
    }

    /// Passes bytes on in both directions.
    pub(crate) fn pass(&mut self, engine: &mut Engine, stream: StreamId) -> After {
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
            match engine.fill(stream, |place| Ok(rustix::io::read(&self.socket, place)?)) {
                Fill::Asked(Ok(0)) => {
                    self.read_over = true;
                    engine.finish(stream);
                }
                Fill::Asked(Ok(len)) => self.read += len as u64,
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
                Ok(len) => {
                    self.written += len as u64;
                    engine.consume(stream, len);
                }
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

    /// Reads what the stream must not carry.
    pub(crate) fn read_into(&self, place: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.socket, place)?)
    }

    /// Closes the socket in order: what was written arrives.
    pub(crate) fn close(self) {
        let _ = sockopt::set_socket_linger(&self.socket, None);
    }
}

impl AsFd for Passing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
