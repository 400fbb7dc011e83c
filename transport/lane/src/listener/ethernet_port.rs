//! Listens on a port of an interface: opens a packet socket for the requests of unauthenticated peers.

use crate::address::ethernet::Station;
use crate::ethernet::device::Heard;
use crate::ethernet::{self, filter};
use crate::options::Options;
use crate::socket::{self, Claim, SharedPort};
use crate::unavailable::NoEthernet;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A claimed port of an interface, and its part of the device's program, as long as this is held.
#[derive(Debug)]
pub(crate) struct Attended {
    #[allow(dead_code, reason = "held")]
    claim: Claim,
    /// Its part of the device's program, if there is one.
    #[allow(dead_code, reason = "held")]
    heard: Option<Heard>,
}

/// A listener's port at `local`, its socket, and the claim that keeps others from it.
///
/// # Errors
/// [`NoEthernet`], or the system has no resources for a socket.
pub(crate) fn attend(
    local: SocketAddr,
    options: &Options,
) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Attended)> {
    let station = Station::of(local).ok_or(NoEthernet::NoAddress)?;
    let claimed = Claim::any(&format!("ethernet/{}", station.interface), station.port);
    let (claim, port) = claimed.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => NoEthernet::InUse.into(),
        _ => error,
    })?;
    let (socket, own) = ethernet::socket::open(station.interface, &filter::of_listener(port))?;
    if station.hardware.is_some_and(|it| it != own) {
        return Err(NoEthernet::OtherHost.into());
    }
    let device = options.lane.device.as_ref();
    device.map_or(Ok(()), |it| it.permit(options.most_paths()))?;
    let heard = device.map(|it| it.listen(station.interface, port));
    let heard = heard.transpose()?.flatten();
    socket::prepare(&socket, options.flow.receive_buffer);
    let station = Station {
        hardware: Some(own),
        port,
        ..station
    };
    let port = SharedPort::unattended(station.address());
    let attended = Attended { claim, heard };
    Ok((Arc::new(port), Arc::new(socket), attended))
}
