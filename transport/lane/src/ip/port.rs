//! Listening: a raw socket that is shown what strangers ask by one port of the protocol's header.

use super::{NoIp118, filter, socket};
use crate::Options;
use crate::claim::Claim;
use crate::udp::{self, Envelope, IPV4_HEADER, PacketAddresses, SHOWN, SharedPort};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where a port lies in a header that came: its sender's.
const S_PORT: std::ops::Range<usize> = 6..8;

/// A listener's port at `local`, its socket, and what keeps others from it.
///
/// # Errors
/// [`NoIp118`]; the address is not ours; or the system has no more of what a socket needs.
pub(crate) fn attend(
    local: SocketAddr,
    options: &Options,
) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Claim)> {
    let local = socket::canonical(local);
    let family = match local {
        SocketAddr::V4(_) => "ipv4-118",
        SocketAddr::V6(_) => "ipv6-118",
    };
    let claimed = Claim::any(family, local.port());
    let (claim, port) = claimed.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NoIp118::InUse.into(),
        _ => error,
    })?;
    let local = socket::with_port(local, port);
    let socket = socket::bound(local, &filter::of_listener(local))?;
    udp::prepare(&socket, options.receive_buffer);
    udp::show_called(&socket, local);
    let port = SharedPort::unattended(local);
    Ok((Arc::new(port), Arc::new(socket), claim))
}

/// The next datagram of a stranger at `socket`, of which no more is taken than any of theirs has, and where it came
/// from, with the port that it says. `None` when it is empty.
///
/// # Errors
/// The socket's, those of datagrams sent earlier among them.
pub(crate) fn receive(socket: &Socket) -> io::Result<Option<(Vec<u8>, PacketAddresses)>> {
    let mut buffer = [0; SHOWN];
    let Some((len, mut addresses)) = udp::receive_packet(socket, &mut buffer)? else {
        return Ok(None);
    };
    let front = match socket::envelope(addresses.peer) {
        Envelope::Ipv4 => IPV4_HEADER,
        _ => 0,
    };
    // What is too short for it is no message of a stranger.
    let datagram = buffer[..len].get(front..).unwrap_or_default();
    let port = datagram.get(S_PORT).and_then(|it| it.try_into().ok());
    let port = u16::from_be_bytes(port.unwrap_or_default());
    addresses.peer = socket::with_port(addresses.peer, port);
    Ok(Some((datagram.to_vec(), addresses)))
}

/// Sends a stranger something from the address that was called.
pub(crate) fn answer(socket: &Socket, bytes: &[u8], addresses: PacketAddresses) {
    let peer = socket::with_port(addresses.peer, 0);
    udp::answer(socket, bytes, PacketAddresses { peer, ..addresses });
}
