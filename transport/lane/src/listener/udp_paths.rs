//! Opens the UDP port of a raw Ethernet listener, at which clients add paths over UDP to their connections.

use crate::options::Options;
use crate::socket::{SharedPort, any_address};
use socket2::Socket;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Bytes of receive buffer: only questions come here, and no payload.
const RECEIVE_BUFFER: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct UdpPaths {
    port: Arc<SharedPort>,
    socket: Arc<Socket>,
}

impl UdpPaths {
    /// Listens on all addresses of the host, at the UDP port with the listener's `number`.
    ///
    /// # Errors
    /// The port is in use, or there is no descriptor left.
    pub(super) fn attend(number: u16, options: &Options) -> io::Result<UdpPaths> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, number));
        let attend = |local| SharedPort::attend(local, RECEIVE_BUFFER, &options.listen.ports);
        let attended = match attend(any) {
            // The kernel has no IPv6.
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

    /// Keeps datagrams for connections, and drops one for none. True if it dropped one.
    pub(super) fn sort(&self) -> bool {
        // Errors are ignored: nothing is sent from this socket.
        matches!(self.port.next_other(&self.socket), Ok(Some(_)))
    }
}

/// Readable when there is a datagram.
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
