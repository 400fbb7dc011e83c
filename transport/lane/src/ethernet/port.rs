//! Listening: a packet socket that is shown what strangers ask by one port of one interface.

use super::address::Station;
use super::device::Heard;
use super::{NoEthernet, filter, socket};
use crate::Options;
use crate::claim::Claim;
use crate::udp::{self, SharedPort};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A port of an interface that is claimed, and its part in the program of the device, for as long as this is held.
#[derive(Debug)]
pub(crate) struct Attended {
    #[allow(dead_code, reason = "held")]
    claim: Claim,
    /// In the program of the device, if there is one.
    #[allow(dead_code, reason = "held")]
    heard: Option<Heard>,
}

/// A listener's port at `local`, its socket, and what keeps others from it.
///
/// # Errors
/// [`NoEthernet`], or the system has no more of what a socket needs.
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
    let (socket, own) = socket::open(station.interface, &filter::of_listener(port))?;
    if station.hardware.is_some_and(|it| it != own) {
        return Err(NoEthernet::OtherHost.into());
    }
    let device = options.device.as_ref();
    device.map_or(Ok(()), |it| it.permit(options.most_paths()))?;
    let heard = device.map(|it| it.listen(station.interface, port));
    let heard = heard.transpose()?.flatten();
    udp::prepare(&socket, options.receive_buffer);
    let station = Station {
        hardware: Some(own),
        port,
        ..station
    };
    let port = SharedPort::unattended(station.address());
    let attended = Attended { claim, heard };
    Ok((Arc::new(port), Arc::new(socket), attended))
}
