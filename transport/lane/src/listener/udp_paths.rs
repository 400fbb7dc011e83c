//! The UDP port of a listener of raw Ethernet, at which clients add paths over UDP to the connections that they have.

use crate::Options;
use crate::udp::{SharedPort, any_address};
use socket2::Socket;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Bytes of receive buffer: questions come here, and no payload.
const RECEIVE_BUFFER: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct UdpPaths {
    port: Arc<SharedPort>,
    socket: Arc<Socket>,
}

impl UdpPaths {
    /// At any address of the host, at the UDP port of the same `number` as the listener's.
    ///
    /// # Errors
    /// The port is in use, or there are no more descriptors.
    pub(super) fn attend(number: u16, options: &Options) -> io::Result<UdpPaths> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, number));
        let attend = |local| SharedPort::attend(local, RECEIVE_BUFFER, &options.ports);
        let attended = match attend(any) {
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
                let of_ipv4 = ([0, 0, 0, 0], 0).into();
                attend(any_address(of_ipv4, number))
            }
            attended => attended,
        };
        let (port, own) = attended.map_err(|error| {
            let words = format!("UDP port {number}, at which clients may add paths: {error}");
            io::Error::new(error.kind(), words)
        })?;
        Ok(UdpPaths { port, socket: own })
    }

    pub(super) fn port(&self) -> &Arc<SharedPort> {
        &self.port
    }

    /// Keeps what came for connections, and drops what came for none: whether there was such.
    pub(super) fn sort(&self) -> bool {
        // Errors are those of nothing that was sent from here.
        matches!(self.port.next_other(&self.socket), Ok(Some(_)))
    }
}

/// Readable when there is something to look at.
impl AsFd for UdpPaths {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for UdpPaths {
    fn drop(&mut self) {
        self.port.leave();
    }
}
