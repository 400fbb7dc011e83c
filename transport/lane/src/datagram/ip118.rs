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

use super::lane::{DatagramLane, DatagramSocket, Framing};
use super::links::FirstPath;
use super::receive::Envelope;
use super::udp;
use crate::account::LaneKind;
use crate::ip118;
use crate::options::Options;
use crate::socket::{self, PacketAddresses, PortSlot, SharedPort};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use zerolane_core::{Config, Entropy};

/// A raw socket, connected to one peer.
#[derive(Debug)]
struct Ip118Socket {
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
    port_slot: PortSlot,
}

impl DatagramSocket for Ip118Socket {
    fn kind(&self) -> LaneKind {
        LaneKind::Ip118
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn key(&self) -> u32 {
        self.port_slot.key()
    }

    /// The address when the connection was made, with the port of the protocol's header.
    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn config(&self, options: &Options) -> Config {
        let path_datagram = socket::path_datagram(&self.socket, self.peer);
        let encapsulation = socket::encapsulation(&self.socket, self.peer);
        Config {
            service_port: self.local.port(),
            ..udp::config(&self.socket, options, encapsulation, path_datagram)
        }
    }

    fn first_path(&mut self) -> Option<FirstPath<'_>> {
        None
    }
}

/// A lane of `socket`, which is connected from `local` to `peer` and receives datagrams with the key of `port_slot`.
fn over(
    socket: Socket,
    local: SocketAddr,
    peer: SocketAddr,
    port_slot: PortSlot,
    options: &Options,
) -> io::Result<DatagramLane> {
    socket::prepare(&socket, options.flow.receive_buffer);
    let framing = Framing {
        envelope: match peer {
            SocketAddr::V4(_) => Envelope::Ipv4,
            SocketAddr::V6(_) => Envelope::Ipv6,
        },
        frames: None,
    };
    let socket = Ip118Socket {
        socket,
        local,
        peer,
        port_slot,
    };
    DatagramLane::new(socket, framing, false, options)
}

/// A lane to a peer that asked the listener at `port`, from the address that it called, with this end's key `key`.
///
/// # Errors
/// There is no route to the peer; [`NoIp118`](crate::unavailable::NoIp118); or the system has no resources for a socket.
pub(crate) fn accepted(
    port: &Arc<SharedPort>,
    addresses: PacketAddresses,
    key: u32,
    options: &Options,
) -> io::Result<DatagramLane> {
    let (service, peer) = (port.local().port(), addresses.peer);
    let local = addresses.called(port.local()).unwrap_or(port.local());
    let asked = Some((service, peer.port()));
    let filter = ip118::filter::of_connection(peer, key, asked);
    let socket = ip118::socket::connected(Some(local), peer, &filter)?;
    let local = ip118::socket::local(&socket, service)?;
    let port_slot = port.register(key, peer);
    over(socket, local, peer, port_slot, options)
}

/// A lane to `peer`, with this end's key from `entropy`, and the core's configuration.
///
/// # Errors
/// [`NoIp118`](crate::unavailable::NoIp118); there is no route to `peer`; or the system has no resources for a socket.
pub(crate) fn to(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
) -> io::Result<(DatagramLane, Config)> {
    let peer = ip118::socket::canonical(peer);
    let filter = ip118::filter::of_connection(peer, entropy.key, None);
    let socket = ip118::socket::connected(None, peer, &filter)?;
    let local = ip118::socket::local(&socket, entropy.port)?;
    let port = Arc::new(SharedPort::unattended(local));
    let port_slot = port.register(entropy.key, peer);
    let lane = over(socket, local, peer, port_slot, options)?;
    let config = Config {
        service_port: peer.port(),
        ..lane.config(options)
    };
    Ok((lane, config))
}

/// Finds out, without a packet, the longest datagram of IP protocol 118 to `peer`, in bytes.
///
/// # Errors
/// [`NoIp118`](crate::unavailable::NoIp118): why this process may not use it; or there is no route.
pub fn max_ip118_datagram(peer: SocketAddr) -> io::Result<usize> {
    let peer = ip118::socket::canonical(peer);
    let socket = ip118::socket::connected(None, peer, &ip118::filter::of_nobody())?;
    let datagram = socket::path_datagram(&socket, peer);
    datagram.ok_or(io::ErrorKind::NetworkUnreachable.into())
}

#[cfg(test)]
mod tests;
