//! Opens the socket of a path, over UDP or raw Ethernet, at either end.

use super::FirstPath;
use crate::address::{PathAddresses, Station};
use crate::datagram::receive::Envelope;
use crate::ethernet::{EthernetPath, OutgoingFrames};
use crate::socket::{PacketAddresses, Share, any_address, bind, encapsulation, path_datagram};
use crate::unavailable::NoPath;
use socket2::{SockAddr, Socket};
use std::net::SocketAddr;
use zerolane_core::Config;
use zerolane_wire::encapsulation::Encapsulation;

/// The peer of the first path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FirstPeer {
    Udp(SocketAddr),
    Ethernet(Station),
}

impl FirstPeer {
    /// The peer's address of a path over UDP to `peer`, completed from the first path.
    ///
    /// # Errors
    /// [`NoPath::NoAddress`]
    fn udp_peer(self, peer: Option<SocketAddr>) -> Result<SocketAddr, NoPath> {
        let port = match self {
            FirstPeer::Udp(first) => first.port(),
            FirstPeer::Ethernet(first) => first.port,
        };
        match (peer, self) {
            (Some(mut peer), _) => {
                if peer.port() == 0 {
                    peer.set_port(port);
                }
                Ok(peer)
            }
            (None, FirstPeer::Udp(first)) => Ok(first),
            (None, FirstPeer::Ethernet(_)) => Err(NoPath::NoAddress),
        }
    }
}

/// The socket of a path, and how its datagrams are framed.
pub(super) struct PathSocket {
    pub(super) socket: Socket,
    pub(super) peer: SocketAddr,
    /// The peer's station, if the path is over raw Ethernet.
    pub(super) station: Option<Station>,
    pub(super) envelope: Envelope,
    /// The frames in which its datagrams leave, if they do.
    pub(super) frames: Option<OutgoingFrames>,
    /// The encapsulation of its datagrams, and the longest datagram.
    pub(super) size: (Encapsulation, usize),
}

impl PathSocket {
    /// Opens a path from this end to `addresses`. `others`: the peers of other paths over raw Ethernet.
    ///
    /// # Errors
    /// The address or interface does not exist, no route leads there, or this process may not use it.
    pub(super) fn open(
        addresses: PathAddresses,
        first: &FirstPath<'_>,
        others: &[Station],
        receive_buffer: usize,
    ) -> Result<PathSocket, NoPath> {
        match addresses {
            PathAddresses::Udp { local, peer } => {
                let peer = first.peer.udp_peer(peer)?;
                let local = local.unwrap_or_else(|| any_address(peer, 0));
                let socket = bind(local, Share::WithJoining, receive_buffer)?;
                socket.connect(&SockAddr::from(peer))?;
                Ok(PathSocket::of_udp(socket, peer))
            }
            PathAddresses::Ethernet { interface, peer } => {
                let peer = Station {
                    interface,
                    hardware: Some(peer),
                    port: 0,
                };
                PathSocket::of_ethernet(peer, first.key, others, receive_buffer)
            }
        }
    }

    /// The path of `socket`, which is connected to `peer`.
    fn of_udp(socket: Socket, peer: SocketAddr) -> PathSocket {
        let datagram = path_datagram(&socket, peer);
        let encapsulation = encapsulation(&socket, peer);
        PathSocket {
            socket,
            peer,
            station: None,
            envelope: Envelope::Udp,
            frames: None,
            size: (encapsulation, datagram.unwrap_or_else(any_datagram)),
        }
    }

    fn of_ethernet(
        peer: Station,
        key: u32,
        others: &[Station],
        receive_buffer: usize,
    ) -> Result<PathSocket, NoPath> {
        let ends = |it: &Station| (it.interface, it.hardware);
        if others.iter().any(|it| ends(it) == ends(&peer)) {
            return Err(NoPath::Taken);
        }
        let path = EthernetPath::open(peer, key, others, receive_buffer)?;
        let datagram = path.datagram.unwrap_or_else(any_datagram);
        Ok(PathSocket {
            socket: path.socket,
            peer: peer.address(),
            station: Some(peer),
            envelope: Envelope::Frame(Box::new(path.incoming)),
            frames: Some(path.outgoing),
            size: (Encapsulation::Ethernet, datagram),
        })
    }
}

/// The longest datagram of a path for which it is not known.
fn any_datagram() -> usize {
    Config::default().path_datagram
}

/// Where a question for a path came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    Packet(PacketAddresses),
    Frame(Station),
}

impl Asker {
    /// Its address, as that of a path's peer.
    pub(super) fn address(&self) -> SocketAddr {
        match *self {
            Asker::Packet(addresses) => addresses.peer,
            // A path has no port: frames find the connection by its key.
            Asker::Frame(station) => Station { port: 0, ..station }.address(),
        }
    }

    /// A socket for the path, to the origin of the question. `others`: the peers of other paths over raw Ethernet.
    ///
    /// # Errors
    /// The system gives none, or there is no route back.
    pub(super) fn answer(
        &self,
        first: &FirstPath<'_>,
        others: &[Station],
        receive_buffer: usize,
    ) -> Result<PathSocket, NoPath> {
        match *self {
            Asker::Packet(addresses) => {
                let new_addresses = first.new_addresses.as_ref().ok_or(NoPath::Refused(0))?;
                let socket = new_addresses.join(addresses, receive_buffer)?;
                Ok(PathSocket::of_udp(socket, addresses.peer))
            }
            Asker::Frame(station) => {
                let peer = Station { port: 0, ..station };
                PathSocket::of_ethernet(peer, first.key, others, receive_buffer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn udp_peer(first: FirstPeer, text: &str) -> Result<SocketAddr, NoPath> {
        let Ok(PathAddresses::Udp { peer, .. }) = text.parse() else {
            panic!("{text} is over UDP");
        };
        first.udp_peer(peer)
    }

    #[test]
    fn udp_peer__what_is_left_out_is_that_of_the_first_path_if_it_has_such() {
        let by_udp = FirstPeer::Udp("192.0.2.9:9181".parse().expect("an address"));
        let by_ethernet = FirstPeer::Ethernet(Station {
            interface: 1,
            hardware: Some([2, 0, 0, 0, 0, 1]),
            port: 9181,
        });
        for (text, to) in [
            ("=", "192.0.2.9:9181"),
            ("=192.0.2.2", "192.0.2.2:9181"),
            ("=192.0.2.2:5", "192.0.2.2:5"),
        ] {
            let to = Ok(to.parse().expect("an address"));
            assert_eq!(udp_peer(by_udp, text), to, "{text}");
            let named = if text == "=" {
                Err(NoPath::NoAddress)
            } else {
                to
            };
            assert_eq!(udp_peer(by_ethernet, text), named, "{text}");
        }
        // The interface of a link-local address is kept.
        let of_link = "[fe80::2%7]:9181".parse().expect("an address");
        assert_eq!(udp_peer(by_udp, "=[fe80::2%7]"), Ok(of_link));
    }
}
