//! What comes for a connection to the unconnected socket of a port, from elsewhere than its peers' addresses.

use super::packet_info::PacketAddresses;
use super::port::{Received, Seat};
use socket2::{SockAddr, Socket};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Where a connection hears it, and by what key.
#[derive(Debug)]
pub(crate) struct Unmatched {
    seat: Seat,
    /// Held while something may come there.
    socket: Option<Arc<Socket>>,
}

impl Unmatched {
    /// Of the connection that has `seat`.
    pub(crate) fn of(seat: Seat) -> Unmatched {
        Unmatched { seat, socket: None }
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// What came since this was asked last.
    ///
    /// # Errors
    /// The port cannot be listened on: others have it, or there are no more descriptors.
    pub(crate) fn take(&mut self) -> io::Result<VecDeque<Received>> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.seat.port().listen()?,
        };
        let received = self.seat.port().of(self.seat.key(), &socket);
        self.socket = Some(socket);
        Ok(received)
    }

    /// Nothing is expected there for now.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    /// A socket of this port for a path by which something came: it speaks from the address that was called.
    ///
    /// # Errors
    /// The system gives none, or there is no way back.
    pub(crate) fn join(
        &self,
        addresses: PacketAddresses,
        receive_buffer: usize,
    ) -> io::Result<Socket> {
        let port = self.seat.port();
        let local = addresses.called(port.local()).unwrap_or(port.local());
        let socket = port.join(local, receive_buffer)?;
        socket.connect(&SockAddr::from(addresses.peer))?;
        Ok(socket)
    }
}
