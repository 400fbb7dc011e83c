//! Carries connections over UDP: on any network, without privileges.

use super::links::{FirstPath, FirstPeer, Links};
use super::migration::{LONGEST_SLEEP, PeerMigration};
use super::protect::protect;
use super::receive::{Envelope, Receiver};
use super::send::{self, Sender};
use crate::account::Account;
use crate::address::PathAddresses;
use crate::driver::{Driver, initiate};
use crate::error::LaneError;
use crate::lane::{Lane, Turn};
use crate::options::Options;
use crate::seal::Sealer;
use crate::socket;
use crate::wait::{Waker, poll};
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane_core::{Config, Entropy, RegionId};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::Packet;
use zerolane_wire::encapsulation::Encapsulation;

/// One connected UDP socket. The kernel finds the connection by the peer's address, so that all arrivals belong to the
/// connection and the forecast holds.
#[derive(Debug)]
pub struct UdpLane {
    socket: Socket,
    peer: SocketAddr,
    sender: Sender,
    receiver: Receiver,
    migration: PeerMigration,
    strict: bool,
    /// The paths besides this one, if there may be any.
    links: Option<Box<Links>>,
    /// The identity that the peer proved.
    peer_key: Option<PublicKey>,
}

impl UdpLane {
    pub(crate) fn new(
        socket: Socket,
        peer: SocketAddr,
        migration: PeerMigration,
        options: &Options,
    ) -> io::Result<UdpLane> {
        socket.connect(&SockAddr::from(peer))?;
        let sender = Sender::new(&socket, None, options);
        let receiver = Receiver::new(&socket, Envelope::Udp, options);
        let links = Links::new(&socket, options, options.ethernet_paths)?;
        Ok(UdpLane {
            socket,
            peer,
            sender,
            receiver,
            migration,
            strict: options.strict,
            links,
            peer_key: None,
        })
    }

    /// Seals and opens with the keys of `session` from now on. False if the cryptography refuses them: then nothing is
    /// sent or received.
    pub(crate) fn protect(&mut self, session: Session) -> bool {
        self.peer_key = Some(session.peer);
        if let Some(links) = &mut self.links {
            links.protect(&session);
        }
        protect(&mut self.sender, &mut self.receiver, session)
    }

    /// Takes this end's part of the key exchange.
    pub(crate) fn begin(&mut self, exchange: Exchange) {
        self.receiver.begin(exchange);
    }

    /// The core's configuration for the socket.
    pub(crate) fn config(&self, options: &Options) -> Config {
        let path_datagram = socket::path_datagram(&self.socket, self.peer);
        let encapsulation = socket::encapsulation(&self.socket, self.peer);
        config(&self.socket, options, encapsulation, path_datagram)
    }

    /// The identity that the peer proved: `None` in plain mode, and before the proof.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.migration.key()
    }

    /// Makes the next turn that receives nothing check whether a silent peer moved.
    pub fn look_for_peer(&mut self) {
        self.migration.look_now();
        if let Some(links) = &mut self.links {
            links.look_now();
        }
    }

    /// Adds a path as soon as the connection is open. False if [`Options`] did not ask for several.
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        let links = self.links.as_mut();
        links.map(|it| it.want(addresses)).is_some()
    }

    /// The descriptor to wait on together with others. With several paths, it is readable when one of their sockets is.
    pub fn socket(&self) -> std::os::fd::BorrowedFd<'_> {
        match &self.links {
            Some(links) => links.watched(),
            None => std::os::fd::AsFd::as_fd(&self.socket),
        }
    }

    /// This end's address at present, if there is a route to the peer.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// The peer's address at present.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl Lane for UdpLane {
    #[inline]
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let received = self.receiver.receive(&self.socket, turn, self.strict);
        if let Some(session) = self.receiver.take_session() {
            self.protect(*session);
        }
        let received = received?;
        let ends = (&mut self.sender, &mut self.receiver);
        if !received && let Some(peer) = self.migration.look(&self.socket, self.peer, ends, turn) {
            self.peer = peer;
            if let Some(datagram) = socket::path_datagram(&self.socket, peer) {
                turn.core.set_path_datagram(turn.now, datagram);
            }
        }
        match &mut self.links {
            Some(links) => {
                let others = links.receive(turn, self.strict);
                let first = FirstPath {
                    socket: &self.socket,
                    peer: FirstPeer::Udp(self.peer),
                    key: self.migration.key(),
                    new_addresses: Some(self.migration.new_addresses()),
                };
                links.tend(first, turn);
                Ok(others? || received)
            }
            None => Ok(received),
        }
    }

    #[inline]
    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let exchange = self.receiver.exchange();
        let sent = self
            .sender
            .transmit(&self.socket, self.peer, None, exchange, turn)?;
        match &mut self.links {
            Some(links) => {
                let others = links.transmit((&self.socket, self.sender.is_full()), turn);
                Ok(others? || sent)
            }
            None => Ok(sent),
        }
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        let full = self.wants_write();
        let timeout = timeout.into_iter().chain(self.longest_sleep()).min();
        waker.sleep(|wake| poll::wait(Some(self.socket()), full, [wake, None], timeout))
    }

    fn wants_write(&self) -> bool {
        // With several paths, the watched descriptor reports room.
        self.links.is_none() && self.sender.is_full()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        Some(LONGEST_SLEEP)
    }

    fn holds(&self, region: RegionId) -> bool {
        let others = self.links.as_ref().is_some_and(|it| it.holds(region));
        others || self.sender.holds(&self.socket, region)
    }

    fn describe(&self, account: &mut Account) {
        account.receive_buffer = socket::receive_buffer(&self.socket);
        account.gso = self.sender.gso;
        account.gro = self.receiver.gro;
        account.cipher = self.sender.cipher();
        account.zerocopy = self.sender.zerocopy();
    }
}

/// Opens a connection to `peer` over the lane that `wrap` makes of this one. The handshake runs inside the driver's calls.
///
/// # Errors
/// There is no socket, or no route to `peer`.
pub(crate) fn connect_as<L: Lane>(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
    wrap: impl FnOnce(UdpLane) -> L,
) -> io::Result<Driver<L>> {
    let lane = to(peer, options, entropy)?;
    let config = lane.config(options);
    initiate(lane, config, options, entropy, UdpLane::begin, wrap)
}

/// A lane to `peer`, with this end's key from `entropy`.
///
/// # Errors
/// As [`connect_as`].
pub(crate) fn to(peer: SocketAddr, options: &Options, entropy: Entropy) -> io::Result<UdpLane> {
    let socket = socket::bind(
        socket::any_address(peer, 0),
        socket::Share::WithJoining,
        options.receive_buffer,
    )?;
    let migration = PeerMigration::of_socket(&socket, entropy.key, peer)?;
    UdpLane::new(socket, peer, migration, options)
}

/// The core's configuration for this socket and its encapsulation, with the longest datagram if it is known.
pub(crate) fn config(
    socket: &Socket,
    options: &Options,
    encapsulation: Encapsulation,
    path_datagram: Option<usize>,
) -> Config {
    Config {
        profiles: options.profiles,
        slots: options.slots,
        window: socket::window(socket, options.max_in_flight),
        max_window: options.max_in_flight,
        control: options.control,
        max_rate: options.max_rate,
        block: options.block,
        eager_limit: options.eager_limit,
        eager_credit: options.eager_credit(),
        checksum: options.checksum,
        burst_segments: send::MAX_SEGMENTS as u32,
        seal: options.security.seal_len(),
        encapsulation,
        path_datagram: path_datagram.unwrap_or(Config::default().path_datagram),
        connect_timeout: options.connect_timeout,
        idle_timeout: options.idle_timeout,
        paths: options.most_paths(),
        ..Config::default()
    }
}

/// A datagram for an unauthenticated peer, sealed with the keys of `session`. `None` if the cryptography refuses them.
pub(crate) fn sealed(session: Session, packet: &Packet) -> Option<Vec<u8>> {
    let sealer = Sealer::new(session.cipher, session.send)?;
    let mut stage = send::SealBuffer::new(sealer);
    stage.lend();
    let bytes = stage.packet(packet).map(<[u8]>::to_vec).ok();
    stage.give_back();
    bytes
}

#[cfg(test)]
mod tests;
