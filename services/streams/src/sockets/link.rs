//! Keeps one connection of a program: its own end, the TCP connection, and what carries its bytes.

use super::copying::Copying;
use crate::message::StreamId;
use crate::passing::Passing;
use rustix::net::sockopt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use zerolane::worker::ConnectionId;

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    /// What the program holds is connected with this. `None`: it has not been accepted yet.
    pub(super) program: Option<Passing>,
    /// The port of the program's end.
    pub(super) port: u16,
    pub(super) tcp: OwnedFd,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// The program connected, rather than accepted.
    pub(super) is_client: bool,
    pub(super) state: State,
    pub(super) since: Instant,
    /// It waits for its turn.
    pub(super) waits: bool,
    /// The numbers under which its sockets are watched.
    pub(super) watched: Vec<u64>,
}

/// What carries the bytes. TCP carries nothing unless it is [`State::Plain`], which both ends agree on: the client
/// decides, and says so by the first byte of the stream.
#[derive(Debug)]
pub(super) enum State {
    /// The connection to the peer's runner is being made; then the stream shows this token.
    Dials([u8; 16]),
    /// The peer was asked by this stream.
    Asks(ConnectionId, StreamId),
    /// The peer agrees, and must be told that the stream is used.
    Agrees(ConnectionId, StreamId),
    /// The client will come by a stream with this token.
    Expects([u8; 16]),
    /// It came; it may still prefer TCP.
    Offers(ConnectionId, StreamId),
    /// The stream.
    Open(ConnectionId, StreamId),
    /// TCP, copied.
    Plain(Box<Copying>),
}

impl Link {
    /// A connection whose TCP socket is closed with a reset, also if this process is killed, unless
    /// [`Link::close`] ends it.
    pub(super) fn new(
        tcp: OwnedFd,
        port: u16,
        (local, peer): (SocketAddr, SocketAddr),
        is_client: bool,
        state: State,
    ) -> Link {
        let _ = sockopt::set_socket_linger(&tcp, Some(Duration::ZERO));
        let _ = rustix::io::ioctl_fionbio(&tcp, true);
        Link {
            program: None,
            port,
            tcp,
            local,
            peer,
            is_client,
            state,
            since: Instant::now(),
            waits: false,
            watched: Vec::new(),
        }
    }

    /// Its stream.
    pub(super) fn stream(&self) -> Option<(ConnectionId, StreamId)> {
        match self.state {
            State::Asks(peer, stream)
            | State::Agrees(peer, stream)
            | State::Offers(peer, stream)
            | State::Open(peer, stream) => Some((peer, stream)),
            State::Dials(_) | State::Expects(_) | State::Plain(_) => None,
        }
    }

    /// It is not decided what carries the bytes.
    pub(super) fn is_undecided(&self) -> bool {
        !matches!(self.state, State::Open(..) | State::Plain(_))
    }

    /// A line for people: what carries it, the addresses, the bytes from the program and to it.
    pub(super) fn shown(&self) -> String {
        let program = self.program.as_ref();
        let (how, (out, back)) = match &self.state {
            State::Open(..) => (
                "zerolane",
                program.map_or((0, 0), |it| (it.read, it.written)),
            ),
            State::Plain(copying) => ("tcp", copying.bytes()),
            _ => ("undecided", (0, 0)),
        };
        format!("{how} {} {} {out} {back}", self.local, self.peer)
    }

    /// Both directions have ended: closes the sockets in order.
    pub(super) fn close(self) {
        let _ = sockopt::set_socket_linger(&self.tcp, None);
        if let Some(program) = self.program {
            program.close();
        }
    }
}
