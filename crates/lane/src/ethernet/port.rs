//! Listening: a packet socket that is shown what strangers ask by one port of one interface.

use super::address::Station;
use super::device::Heard;
use super::{NoEthernet, filter, socket};
use crate::Options;
use crate::udp::{self, SharedPort};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where ports that were not asked for begin: the dynamic ones (RFC 6335).
const FIRST_FREE: u16 = 49_152;
/// Of these, how many are tried.
const TRIES: usize = 64;

/// A port of an interface that nobody else on this host listens on, for as long as this is held. The kernel knows no such for
/// packet sockets, so it is a name in its abstract namespace of UNIX sockets, which network namespaces have each their own of.
#[derive(Debug)]
pub(crate) struct Claim {
    #[allow(dead_code, reason = "held")]
    name: Socket,
    /// In the program of the device, if there is one.
    #[allow(dead_code, reason = "held")]
    heard: Option<Heard>,
}

impl Claim {
    fn of(interface: u32, port: u16) -> io::Result<Claim> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        let name = format!("\0zerolane/ethernet/{interface}/{port}");
        let bound = socket.bind(&SockAddr::unix(name)?);
        bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => NoEthernet::InUse.into(),
            _ => error,
        })?;
        Ok(Claim {
            name: socket,
            heard: None,
        })
    }

    /// Of `port`, or of any if that is 0; and which it is.
    fn any(interface: u32, port: u16) -> io::Result<(Claim, u16)> {
        if port != 0 {
            return Ok((Claim::of(interface, port)?, port));
        }
        for _ in 0..TRIES {
            let port = FIRST_FREE | udp::entropy()?.port;
            match Claim::of(interface, port) {
                Ok(claim) => return Ok((claim, port)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(NoEthernet::InUse.into())
    }
}

/// A listener's port at `local`, its socket, and what keeps others from it.
///
/// # Errors
/// [`NoEthernet`], or the system has no more of what a socket needs.
pub(crate) fn attend(
    local: SocketAddr,
    options: &Options,
) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Claim)> {
    let station = Station::of(local).ok_or(NoEthernet::NoAddress)?;
    let (mut claim, port) = Claim::any(station.interface, station.port)?;
    let (socket, own) = socket::open(station.interface, &filter::of_listener(port))?;
    if station.hardware.is_some_and(|it| it != own) {
        return Err(NoEthernet::OtherHost.into());
    }
    if let Some(device) = &options.device {
        claim.heard = device.listen(station.interface, port)?;
    }
    udp::prepare(&socket, options.receive_buffer);
    let station = Station {
        hardware: Some(own),
        port,
        ..station
    };
    let port = SharedPort::unattended(station.address());
    Ok((Arc::new(port), Arc::new(socket), claim))
}
