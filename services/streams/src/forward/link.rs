//! Joins a forwarded socket with its stream.

use super::request::Target;
use super::socks::{Negotiation, Step};
use crate::engine::Engine;
use crate::message::{ResetCode, StreamId};
use crate::passing::{After, Passing};
use rustix::net::{SendFlags, send, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zerolane::worker::ConnectionId;

/// A socket and its stream.
#[derive(Debug)]
pub(super) struct Link {
    socket: Passing,
    pub(super) peer: ConnectionId,
    pub(super) stage: Stage,
    /// It waits for its turn.
    waits: bool,
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

impl Link {
    /// Until [`Link::close`], the system closes the socket with a reset.
    pub(super) fn new(socket: OwnedFd, peer: ConnectionId, stage: Stage) -> Link {
        Link {
            socket: Passing::new(socket),
            peer,
            stage,
            waits: false,
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
        self.socket.wake(readable, writable, broken);
    }

    /// Goes on with a SOCKS client.
    pub(super) fn negotiate(&mut self) -> Negotiated {
        let mut out = Vec::new();
        let step = loop {
            let Stage::Negotiates(negotiation, _) = &mut self.stage else {
                return Negotiated::Waits;
            };
            if !self.socket.may_read {
                break Step::More;
            }
            let mut bytes = vec![0; negotiation.room()];
            match self.socket.read_into(&mut bytes) {
                Ok(0) => break Step::Close,
                Ok(len) => match negotiation.take(&bytes[..len], &mut out) {
                    Step::More => {}
                    step => break step,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.may_read = false
                }
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
        match self.stage {
            Stage::Open(stream) => self.socket.pass(engine, stream),
            _ => After::Sleeps,
        }
    }

    /// Closes the socket in order: what was written arrives.
    pub(super) fn close(self) {
        self.socket.close();
    }

    /// Ends the stream, if there is one, because the socket failed.
    pub(super) fn fail(&self, engine: &mut Engine, why: &str) {
        if let Some(stream) = self.stream() {
            engine.abort(stream, ResetCode::Aborted, why);
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
