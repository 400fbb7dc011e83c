//! Carries connections in packets of IP protocol 118, the Scheduled Transfer's own, without UDP, on any network that
//! routes them.
//!
//! ```text
//!  +--------------------------+--------------------+---------+
//!  | IPv4 or IPv6 header, 118 | header, 40 bytes   | payload |
//!  +--------------------------+--------------------+---------+
//!    the kernel's, by a raw     D_Port: which listener;  D_Key: which connection
//!    socket
//! ```
//!
//! Each connection has a raw socket of its own. The socket is connected, so the kernel passes it only packets from its
//! peer's address to its own, and a filter passes only those with its key: all arrivals belong to the connection and
//! the forecast holds. The rest is the UDP lane's code without offloads, because the kernel neither segments nor merges
//! a protocol that it does not know. An end whose address changes is another host to the peer.

use super::protect::protect;
use super::receive::{Envelope, Receiver};
use super::send::Sender;
use super::udp;
use crate::account::{Account, LaneKind};
use crate::driver::{Driver, initiate};
use crate::error::LaneError;
use crate::ip118;
use crate::lane::{Lane, Turn};
use crate::options::Options;
use crate::socket::{self, PacketAddresses, PortSlot, SharedPort};
use crate::wait::{Waker, poll};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Entropy, RegionId};
use zerolane_handshake::{Exchange, PublicKey, Session};

/// One raw socket, connected to one peer.
#[derive(Debug)]
pub struct IpLane {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
    sender: Sender,
    receiver: Receiver,
    port_slot: PortSlot,
    strict: bool,
    /// The identity that the peer proved.
    peer_key: Option<PublicKey>,
}

impl IpLane {
    /// A lane of `socket`, which is connected from `local` to `peer` and receives datagrams with the key of
    /// `port_slot`.
    fn new(
        socket: Socket,
        local: SocketAddr,
        peer: SocketAddr,
        port_slot: PortSlot,
        options: &Options,
    ) -> IpLane {
        socket::prepare(&socket, options.receive_buffer);
        IpLane {
            sender: Sender::new(&socket, None, options),
            receiver: Receiver::new(&socket, envelope(peer), options),
            socket,
            local,
            peer,
            port_slot,
            strict: options.strict,
            peer_key: None,
        }
    }

    /// A lane to a peer that asked the listener at `port`, from the address that it called, with this end's key `key`.
    ///
    /// # Errors
    /// There is no route to the peer; [`NoIp118`]; or the system has no resources for a socket.
    pub(crate) fn accepted(
        port: &Arc<SharedPort>,
        addresses: PacketAddresses,
        key: u32,
        options: &Options,
    ) -> io::Result<IpLane> {
        let (service, peer) = (port.local().port(), addresses.peer);
        let local = addresses.called(port.local()).unwrap_or(port.local());
        let asked = Some((service, peer.port()));
        let filter = ip118::filter::of_connection(peer, key, asked);
        let socket = ip118::socket::connected(Some(local), peer, &filter)?;
        let local = ip118::socket::local(&socket, service)?;
        let port_slot = port.register(key, peer);
        Ok(IpLane::new(socket, local, peer, port_slot, options))
    }

    /// The core's configuration for the socket.
    pub(crate) fn config(&self, options: &Options) -> Config {
        let path_datagram = socket::path_datagram(&self.socket, self.peer);
        let encapsulation = socket::encapsulation(&self.socket, self.peer);
        Config {
            service_port: self.local.port(),
            ..udp::config(&self.socket, options, encapsulation, path_datagram)
        }
    }

    /// Takes this end's part of the key exchange.
    fn begin(&mut self, exchange: Exchange) {
        self.receiver.begin(exchange);
    }

    /// Completes the peer's key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        self.begin(exchange);
        self.protect(session)
    }

    fn protect(&mut self, session: Session) -> bool {
        self.peer_key = Some(session.peer);
        protect(&mut self.sender, &mut self.receiver, session)
    }

    /// The identity that the peer proved: `None` in plain mode, and before the proof.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.port_slot.key()
    }

    /// The socket, to wait on together with others.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// This end's address when the connection was made, with the port of the protocol's header.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address, with the port of the protocol's header.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl Lane for IpLane {
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let received = self.receiver.receive(&self.socket, turn, self.strict);
        if let Some(session) = self.receiver.take_session() {
            self.protect(*session);
        }
        received
    }

    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let exchange = self.receiver.exchange();
        self.sender
            .transmit(&self.socket, self.peer, None, exchange, turn)
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        let full = self.wants_write();
        waker.sleep(|wake| poll::wait(Some(self.socket()), full, [wake, None], timeout))
    }

    fn wants_write(&self) -> bool {
        self.sender.is_full()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    fn holds(&self, region: RegionId) -> bool {
        self.sender.holds(&self.socket, region)
    }

    fn describe(&self, account: &mut Account) {
        account.lane = LaneKind::Ip118;
        account.receive_buffer = socket::receive_buffer(&self.socket);
        account.cipher = self.sender.cipher();
    }
}

/// The envelope of datagrams at sockets of `like`'s family.
fn envelope(like: SocketAddr) -> Envelope {
    match like {
        SocketAddr::V4(_) => Envelope::Ipv4,
        SocketAddr::V6(_) => Envelope::Ipv6,
    }
}

/// Opens a connection to `peer` with a lane that `wrap` makes of this one.
///
/// # Errors
/// [`NoIp118`]; there is no route to `peer`; or the system gives no random numbers or no socket, or the cryptography
/// refuses this end's key.
pub(crate) fn connect_as<L: Lane>(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
    wrap: impl FnOnce(IpLane) -> L,
) -> io::Result<Driver<L>> {
    let peer = ip118::socket::canonical(peer);
    let filter = ip118::filter::of_connection(peer, entropy.key, None);
    let socket = ip118::socket::connected(None, peer, &filter)?;
    let local = ip118::socket::local(&socket, entropy.port)?;
    let port = Arc::new(SharedPort::unattended(local));
    let port_slot = port.register(entropy.key, peer);
    let lane = IpLane::new(socket, local, peer, port_slot, options);
    let config = Config {
        service_port: peer.port(),
        ..lane.config(options)
    };
    initiate(lane, config, options, entropy, IpLane::begin, wrap)
}

/// Finds out, without a packet, the longest datagram of IP protocol 118 to `peer`, in bytes.
///
/// # Errors
/// [`NoIp118`]: why this process may not use it; or there is no route.
pub fn look_ip118(peer: SocketAddr) -> io::Result<usize> {
    let peer = ip118::socket::canonical(peer);
    let socket = ip118::socket::connected(None, peer, &ip118::filter::of_nobody())?;
    let datagram = socket::path_datagram(&socket, peer);
    datagram.ok_or(io::ErrorKind::NetworkUnreachable.into())
}

#[cfg(test)]
mod tests;
