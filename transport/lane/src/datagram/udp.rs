//! Carries connections over UDP: on any network, without privileges.

use super::lane::{DatagramLane, DatagramSocket, Ends, Framing};
use super::links::{FirstPath, FirstPeer};
use super::migration::{LONGEST_SLEEP, PeerMigration};
use super::receive::Envelope;
use super::send;
use crate::account::LaneKind;
use crate::lane::Turn;
use crate::options::Options;
use crate::seal::{Sealer, TRAILER_LEN};
use crate::socket;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use zerolane_core::{Config, Entropy};
use zerolane_handshake::Session;
use zerolane_wire::Packet;
use zerolane_wire::encapsulation::Encapsulation;

/// A connected UDP socket: the kernel finds the connection by the peer's address.
#[derive(Debug)]
struct UdpSocket {
    socket: Socket,
    peer: SocketAddr,
    migration: PeerMigration,
}

impl DatagramSocket for UdpSocket {
    fn kind(&self) -> LaneKind {
        LaneKind::Udp
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn key(&self) -> u32 {
        self.migration.key()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn config(&self, options: &Options) -> Config {
        let path_datagram = socket::path_datagram(&self.socket, self.peer);
        let encapsulation = socket::encapsulation(&self.socket, self.peer);
        config(&self.socket, options, encapsulation, path_datagram)
    }

    fn first_path(&mut self) -> Option<FirstPath<'_>> {
        Some(FirstPath {
            socket: &self.socket,
            peer: FirstPeer::Udp(self.peer),
            key: self.migration.key(),
            new_addresses: Some(self.migration.new_addresses()),
        })
    }

    #[inline]
    fn look_for_peer(&mut self, ends: Ends<'_>, turn: &mut Turn<'_>) {
        let Some(peer) = self.migration.look(&self.socket, self.peer, ends, turn) else {
            return;
        };
        self.peer = peer;
        if let Some(datagram) = socket::path_datagram(&self.socket, peer) {
            turn.core.set_path_datagram(turn.now, datagram);
        }
    }

    fn look_now(&mut self) {
        self.migration.look_now();
    }

    fn longest_sleep(&self) -> Option<Duration> {
        Some(LONGEST_SLEEP)
    }
}

/// A lane over `socket`, which it connects to `peer`.
///
/// # Errors
/// There is no route to the peer, or the system has no descriptor left.
pub(crate) fn over(
    socket: Socket,
    peer: SocketAddr,
    migration: PeerMigration,
    options: &Options,
) -> io::Result<DatagramLane> {
    socket.connect(&SockAddr::from(peer))?;
    let socket = UdpSocket {
        socket,
        peer,
        migration,
    };
    let framing = Framing {
        envelope: Envelope::Udp,
        frames: None,
    };
    DatagramLane::new(socket, framing, options.paths.ethernet, options)
}

/// A lane to `peer`, with this end's key from `entropy`.
///
/// # Errors
/// There is no socket, or no route to `peer`.
pub(crate) fn to(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
) -> io::Result<DatagramLane> {
    let socket = socket::bind(
        socket::any_address(peer, 0),
        socket::Share::WithJoining,
        options.flow.receive_buffer,
    )?;
    let migration = PeerMigration::of_socket(&socket, entropy.key, peer)?;
    over(socket, peer, migration, options)
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
        slots: options.flow.slots,
        window: socket::window(socket, options.flow.max_in_flight),
        max_window: options.flow.max_in_flight,
        control: options.rate.control,
        max_rate: options.rate.max,
        block: options.flow.block,
        classic_block_log2: options.flow.classic_block.ilog2() as u8,
        max_stu: options.datagrams.stu,
        eager_limit: options.flow.eager_limit,
        eager_credit: options.eager_credit(),
        checksum: options.datagrams.checksum,
        burst_segments: send::MAX_SEGMENTS as u32,
        seal: options.security.seal_len(),
        encapsulation,
        path_datagram: path_datagram.unwrap_or(Config::default().path_datagram),
        connect_timeout: options.times.connect,
        idle_timeout: options.times.idle,
        keep_alive: options.times.keep_alive,
        private_data: options.private_data,
        asks: options.listen.asks,
        paths: options.most_paths(),
        ..Config::default()
    }
}

/// A datagram for an unauthenticated peer, sealed with the keys of `session`. `None` if the cryptography refuses them.
pub(crate) fn sealed(session: Session, packet: &Packet) -> Option<Vec<u8>> {
    let mut keys = Sealer::new(session.cipher, session.send).map(Box::new);
    let (bytes, len) = packet.emit();
    let mut room = vec![0; len + TRAILER_LEN];
    send::seal_operation(&mut keys, &bytes[..len], 0, &mut room).ok()?;
    Some(room)
}

#[cfg(test)]
mod tests;
