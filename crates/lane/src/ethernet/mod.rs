//! The Ethernet lane: frames of EtherType 0x8181 to hosts of the same segment, without IP and UDP.
//!
//! ```text
//!  +-------------+-----------+------+--------------------+---------+
//!  | destination | source    | 8181 | header, 40 bytes   | payload |
//!  +-------------+-----------+------+--------------------+---------+
//!    the kernel's, by a packet socket   D_Port: which listener;  D_Key: which connection
//! ```
//!
//! Each connection has a packet socket of its own, which a filter in the kernel shows only what has its key, so that all that
//! arrives is the connection's and the forecast holds, as with a connected UDP socket. Gathering and scattering are the UDP
//! lane's; each datagram is a frame, for no kernel cuts or merges these. What a connection hears that its peer did not send from
//! its hardware address, or that is for another host or of a VLAN, is dropped and counted.

mod address;
mod device;
mod error;
mod filter;
mod frames;
mod port;
mod socket;
mod xdp;

pub use address::EthernetAddress;
pub(crate) use address::Station;
pub use device::{DeviceOptions, EthernetDevice};
pub use error::NoEthernet;
pub(crate) use frames::{IncomingFrames, OutgoingFrames};
pub(crate) use port::{Claim, attend};
pub(crate) use socket::{Strange, is_gone, receive, send};
pub use xdp::{NoXdp, XdpCounters};

use crate::initiate::initiate;
use crate::udp::{self, MAX_MESSAGES, Receiver, Seat, Sender, SharedPort};
use crate::{Account, Driver, Lane, LaneError, LaneKind, Options, Turn, Waker, poll};
use address::Hardware;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Entropy, RegionId};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::encapsulation::Encapsulation;

/// One packet socket, at one interface, for one peer.
#[derive(Debug)]
pub struct EthernetLane {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
    interface: u32,
    sender: Sender,
    receiver: Receiver,
    seat: Seat,
    strict: bool,
    /// Who the peer proved to be.
    peer_key: Option<PublicKey>,
}

impl EthernetLane {
    /// Of `socket`, which is shown what has the key of `seat`. `local` and `peer` are the two ends.
    fn new(
        socket: Socket,
        local: Station,
        (peer, hardware): (Station, Hardware),
        seat: Seat,
        options: &Options,
    ) -> io::Result<EthernetLane> {
        udp::prepare(&socket, options.receive_buffer);
        let interface = peer.interface;
        let device = options.device.as_ref();
        let grants = device.map(|it| it.direct(seat.key(), local, hardware, options));
        let outgoing = OutgoingFrames::new(interface, hardware, grants.transpose()?);
        let incoming = IncomingFrames::new(interface, hardware, MAX_MESSAGES);
        Ok(EthernetLane {
            sender: Sender::new(&socket, Some(outgoing), options),
            receiver: Receiver::new(&socket, Some(incoming), options),
            socket,
            local: local.address(),
            peer: peer.address(),
            interface,
            seat,
            strict: options.strict,
            peer_key: None,
        })
    }

    /// To `peer`, which asked the listener at `port`, and to which our key is `key`.
    ///
    /// # Errors
    /// [`NoEthernet`], or the system has no more of what a socket needs.
    pub(crate) fn accepted(
        port: &Arc<SharedPort>,
        peer: Station,
        key: u32,
        options: &Options,
    ) -> io::Result<EthernetLane> {
        let hardware = peer.hardware.ok_or(NoEthernet::NoAddress)?;
        let service = port.local().port();
        let filter = filter::of_connection(key, Some((service, hardware, peer.port)));
        let (socket, own) = socket::open(peer.interface, &filter)?;
        let local = Station {
            hardware: Some(own),
            port: service,
            ..peer
        };
        let seat = port.seat(key, peer.address());
        EthernetLane::new(socket, local, (peer, hardware), seat, options)
    }

    /// What the core is to know of the socket.
    pub(crate) fn config(&self, options: &Options) -> Config {
        let path_datagram = socket::path_datagram(&self.socket, self.interface).ok();
        let config = udp::config(
            &self.socket,
            options,
            Encapsulation::Ethernet,
            path_datagram,
        );
        Config {
            service_port: self.local.port(),
            ..config
        }
    }

    /// This end's part in the key exchange.
    fn begin(&mut self, exchange: Exchange) {
        self.receiver.begin(exchange);
    }

    /// The peer finished its key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        self.begin(exchange);
        self.protect(session)
    }

    fn protect(&mut self, session: Session) -> bool {
        self.peer_key = Some(session.peer);
        udp::protect(&mut self.sender, &mut self.receiver, session)
    }

    /// Who the peer proved to be: `None` in plain mode, and before it did.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.seat.key()
    }

    /// The socket, to be waited on together with others.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Our address when the connection was made: see [`EthernetAddress`].
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address: see [`EthernetAddress`].
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl Lane for EthernetLane {
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
            .transmit(&self.socket, self.peer, exchange, turn)
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        let full = self.wants_write();
        waker
            .sleep(|wake| poll::wait(self.socket(), full, [wake, None], timeout))
            .unwrap_or(Ok(false))
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
        account.lane = LaneKind::Ethernet;
        account.receive_buffer = udp::receive_buffer(&self.socket);
        account.cipher = self.sender.cipher();
    }
}

/// Opens a connection to `peer` with a lane that `wrap` makes of this one.
///
/// # Errors
/// [`NoEthernet`]; or the system gives no random numbers or no socket, or the cryptography refuses this end's key.
pub(crate) fn connect_as<L: Lane>(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
    wrap: impl FnOnce(EthernetLane) -> L,
) -> io::Result<Driver<L>> {
    let peer = Station::of(peer).filter(|it| it.port != 0);
    let peer = peer.ok_or(NoEthernet::NoAddress)?;
    let hardware = peer.hardware.ok_or(NoEthernet::NoAddress)?;
    let filter = filter::of_connection(entropy.key, None);
    let (socket, own) = socket::open(peer.interface, &filter)?;
    let local = Station {
        hardware: Some(own),
        port: entropy.port,
        ..peer
    };
    let port = Arc::new(SharedPort::unattended(local.address()));
    let seat = port.seat(entropy.key, peer.address());
    let lane = EthernetLane::new(socket, local, (peer, hardware), seat, options)?;
    let config = Config {
        service_port: peer.port,
        ..lane.config(options)
    };
    initiate(lane, config, options, entropy, EthernetLane::begin, wrap)
}

#[cfg(test)]
mod tests;
