//! Listens on a port of the protocol's header: opens a raw socket for the requests of unauthenticated peers.

use crate::ip118::socket::{bound, canonical, with_port};
use crate::ip118::{IPV4_HEADER, filter};
use crate::options::Options;
use crate::socket::{self, Claim, PacketAddresses, SHOWN, SharedPort};
use crate::unavailable::NoIp118;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Position of the sender's port in a received header.
const S_PORT: std::ops::Range<usize> = 6..8;

/// A listener's port at `local`, its socket, and the claim that keeps others from it.
///
/// # Errors
/// [`NoIp118`]; the address does not belong to this host; or the system has no resources for a socket.
pub(crate) fn attend(
    local: SocketAddr,
    options: &Options,
) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Claim)> {
    let local = canonical(local);
    let family = match local {
        SocketAddr::V4(_) => "ipv4-118",
        SocketAddr::V6(_) => "ipv6-118",
    };
    let claimed = Claim::any(family, local.port());
    let (claim, port) = claimed.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NoIp118::InUse.into(),
        _ => error,
    })?;
    let local = with_port(local, port);
    let socket = bound(local, &filter::of_listener(local))?;
    socket::prepare(&socket, options.flow.receive_buffer);
    socket::show_called(&socket, local);
    let port = SharedPort::unattended(local);
    Ok((Arc::new(port), Arc::new(socket), claim))
}

/// The next datagram of an unauthenticated peer at `socket`, read up to the longest that such peers send, and its
/// sender, with the port in its header. `None` if there is none.
///
/// # Errors
/// Errors of the socket, including those of datagrams sent earlier.
pub(crate) fn receive(socket: &Socket) -> io::Result<Option<(Vec<u8>, PacketAddresses)>> {
    let mut buffer = [0; SHOWN];
    let Some((len, mut addresses)) = socket::receive_packet(socket, &mut buffer)? else {
        return Ok(None);
    };
    let front = match addresses.peer {
        SocketAddr::V4(_) => IPV4_HEADER,
        SocketAddr::V6(_) => 0,
    };
    // A shorter packet is no message of an unauthenticated peer.
    let datagram = buffer[..len].get(front..).unwrap_or_default();
    let port = datagram.get(S_PORT).and_then(|it| it.try_into().ok());
    let port = u16::from_be_bytes(port.unwrap_or_default());
    addresses.peer = with_port(addresses.peer, port);
    Ok(Some((datagram.to_vec(), addresses)))
}

/// Answers an unauthenticated peer from the address that it called.
pub(crate) fn answer(socket: &Socket, bytes: &[u8], addresses: PacketAddresses) {
    let peer = with_port(addresses.peer, 0);
    socket::answer(socket, bytes, PacketAddresses { peer, ..addresses });
}
