//! Carries a connection over one socket of any kind, and over the paths beside it.

use super::links::{FirstPath, Links};
use super::protect::protect;
use super::receive::{Envelope, Receiver};
use super::send::Sender;
use crate::account::{Account, LaneKind};
use crate::address::PathAddresses;
use crate::error::LaneError;
use crate::ethernet::OutgoingFrames;
use crate::lane::{Lane, Turn};
use crate::options::Options;
use crate::socket;
use crate::wait::{Waker, poll};
use socket2::Socket;
use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use zerolane_core::{Config, RegionId};
use zerolane_handshake::{Exchange, PublicKey, Session};

/// The two halves of the engine.
pub(crate) type Ends<'a> = (&'a mut Sender, &'a mut Receiver);

/// The socket of a connection's first path: what UDP, IP protocol 118 and raw Ethernet do differently.
pub(crate) trait DatagramSocket: Debug + Send {
    fn kind(&self) -> LaneKind;

    fn socket(&self) -> &Socket;

    /// The key by which the peer addresses this end.
    fn key(&self) -> u32;

    /// This end's address at present, if there is a route to the peer.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The peer's address at present.
    fn peer_addr(&self) -> SocketAddr;

    /// The core's configuration for the socket.
    fn config(&self, options: &Options) -> Config;

    /// What the other paths need of this one. `None`: there are no others beside such a socket.
    fn first_path(&mut self) -> Option<FirstPath<'_>>;

    /// Takes one batch of arrivals. True if there were any. `strict` is [`Options::strict`].
    fn receive(
        &mut self,
        receiver: &mut Receiver,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        receiver.receive(self.socket(), turn, strict)
    }

    /// Sends what the core owes. True if it sent anything.
    fn transmit(
        &mut self,
        sender: &mut Sender,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        sender.transmit(self.socket(), self.peer_addr(), None, exchange, turn)
    }

    /// Checks, after a turn without arrivals, whether the peer is at another address.
    fn look_for_peer(&mut self, _ends: Ends<'_>, _turn: &mut Turn<'_>) {}

    /// Makes the next such check happen immediately.
    fn look_now(&mut self) {}

    /// Whether `error` only means that this path is gone, and others may carry the connection.
    fn is_path_gone(&self, _error: &LaneError) -> bool {
        false
    }

    /// The descriptor that is readable on arrivals.
    fn watched(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }

    /// Whether [`DatagramSocket::watched`] also reports room to send.
    fn reports_room(&self) -> bool {
        true
    }

    /// Longest sleep of an end that also has to look elsewhere for arrivals.
    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    /// Adds what only this kind of socket knows.
    fn describe(&self, _account: &mut Account) {}

    /// Whether a frame that arrived in pieces was put together in one buffer.
    #[cfg(test)]
    fn has_put_together(&self) -> bool {
        false
    }
}

/// The framing of a socket's datagrams, in both directions.
pub(crate) struct Framing {
    pub(crate) envelope: Envelope,
    pub(crate) frames: Option<OutgoingFrames>,
}

/// A connection over datagrams. The socket is connected or filtered, so all arrivals belong to the connection and the
/// forecast holds.
#[derive(Debug)]
pub struct DatagramLane {
    socket: Box<dyn DatagramSocket>,
    sender: Sender,
    receiver: Receiver,
    strict: bool,
    /// The paths besides this one, if there may be any.
    links: Option<Box<Links>>,
    /// The identity that the peer proved.
    peer_key: Option<PublicKey>,
}

impl DatagramLane {
    /// A lane over `socket`. `takes_frames`: the peer may add paths over raw Ethernet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(
        mut socket: impl DatagramSocket + 'static,
        framing: Framing,
        takes_frames: bool,
        options: &Options,
    ) -> io::Result<DatagramLane> {
        let links = match socket.first_path() {
            Some(first) => Links::new(first.socket, options, takes_frames)?,
            None => None,
        };
        Ok(DatagramLane {
            sender: Sender::new(socket.socket(), framing.frames, options),
            receiver: Receiver::new(socket.socket(), framing.envelope, options),
            socket: Box::new(socket),
            strict: options.strict,
            links,
            peer_key: None,
        })
    }

    pub(crate) fn config(&self, options: &Options) -> Config {
        self.socket.config(options)
    }

    /// Takes this end's part of the key exchange.
    pub(crate) fn begin(&mut self, exchange: Exchange) {
        self.receiver.unsealer.exchange = Some(exchange);
    }

    /// Completes the peer's key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        self.begin(exchange);
        self.protect(session)
    }

    /// Seals and opens with the keys of `session` from now on. False if the cryptography refuses them: then nothing is
    /// sent or received.
    fn protect(&mut self, session: Session) -> bool {
        self.peer_key = Some(session.peer);
        if let Some(links) = &mut self.links {
            links.protect(&session);
        }
        protect(&mut self.sender, &mut self.receiver, session)
    }

    pub(crate) fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    pub(crate) fn key(&self) -> u32 {
        self.socket.key()
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.socket.peer_addr()
    }

    /// Makes the next turn that receives nothing check whether a silent peer moved, and whether it adds paths.
    pub(crate) fn look_for_peer(&mut self) {
        self.socket.look_now();
        if let Some(links) = &mut self.links {
            links.look_now();
        }
    }

    /// Adds a path as soon as the connection is open. False if [`Options`] did not ask for several.
    pub(crate) fn add_path(&mut self, addresses: PathAddresses) -> bool {
        let links = self.links.as_mut();
        links.map(|it| it.want(addresses)).is_some()
    }

    /// The descriptor to wait on together with others. With several paths, it is readable when one of their sockets is.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match &self.links {
            Some(links) => links.watched(),
            None => self.socket.watched(),
        }
    }

    #[cfg(test)]
    pub(super) fn links(&self) -> Option<&Links> {
        self.links.as_deref()
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> (&Receiver, &Socket) {
        (&self.receiver, self.socket.socket())
    }

    #[cfg(test)]
    pub(crate) fn has_put_together(&self) -> bool {
        self.socket.has_put_together()
    }

    /// Evaluates `outcome` of the first path: if that is gone and there are others, it counts as nothing received and
    /// nothing sent.
    fn without_first(
        &self,
        outcome: Result<bool, LaneError>,
        turn: &Turn<'_>,
    ) -> Result<bool, LaneError> {
        let others = || self.links.as_ref().is_some_and(|it| it.is_any(turn.core));
        match outcome {
            Err(error) if self.socket.is_path_gone(&error) && others() => Ok(false),
            outcome => outcome,
        }
    }
}

impl Lane for DatagramLane {
    #[inline]
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let received = self.socket.receive(&mut self.receiver, turn, self.strict);
        let received = self.without_first(received, turn);
        if let Some(session) = self.receiver.unsealer.session.take() {
            self.protect(*session);
        }
        let received = received?;
        if !received {
            let ends = (&mut self.sender, &mut self.receiver);
            self.socket.look_for_peer(ends, turn);
        }
        let Some(links) = &mut self.links else {
            return Ok(received);
        };
        let others = links.receive(turn, self.strict);
        if let Some(first) = self.socket.first_path() {
            links.tend(first, turn);
        }
        Ok(others? || received)
    }

    #[inline]
    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let exchange = self.receiver.unsealer.exchange.as_mut();
        let sent = self.socket.transmit(&mut self.sender, exchange, turn);
        let sent = self.without_first(sent, turn)?;
        let Some(links) = &mut self.links else {
            return Ok(sent);
        };
        let others = links.transmit((self.socket.socket(), self.sender.is_full()), turn);
        Ok(others? || sent)
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        let full = self.wants_write();
        let timeout = timeout.into_iter().chain(self.longest_sleep()).min();
        waker.sleep(|wake| poll::wait(Some(self.socket()), full, [wake, None], timeout))
    }

    fn wants_write(&self) -> bool {
        // With several paths, the watched descriptor reports room.
        self.links.is_none() && self.socket.reports_room() && self.sender.is_full()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        self.socket.longest_sleep()
    }

    fn holds(&self, region: RegionId) -> bool {
        let others = self.links.as_ref().is_some_and(|it| it.holds(region));
        others || self.sender.holds(self.socket.socket(), region)
    }

    fn describe(&self, account: &mut Account) {
        account.lane = self.socket.kind();
        account.receive_buffer = socket::receive_buffer(self.socket.socket());
        account.gso = self.sender.gso;
        account.gro = self.receiver.has_gro();
        account.cipher = self.sender.cipher();
        account.zerocopy = self.sender.zerocopy();
        self.socket.describe(account);
    }
}
