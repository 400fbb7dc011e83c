//! Receives a connection's datagrams that arrive at the port's unconnected socket, from other addresses than its
//! peer's.

use crate::socket::{PacketAddresses, PortSlot, Received};
use socket2::{SockAddr, Socket};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Where a connection receives such datagrams, and the key that identifies them.
#[derive(Debug)]
pub(crate) struct NewAddresses {
    slot: PortSlot,
    /// Held while such datagrams may arrive.
    socket: Option<Arc<Socket>>,
}

impl NewAddresses {
    /// For the connection that has `slot`.
    pub(crate) fn of(slot: PortSlot) -> NewAddresses {
        NewAddresses { slot, socket: None }
    }

    pub(super) fn slot(&self) -> &PortSlot {
        &self.slot
    }

    /// Takes the datagrams that arrived since the last call.
    ///
    /// # Errors
    /// The unconnected socket cannot be opened: another process has the port, or there is no descriptor left.
    pub(crate) fn take(&mut self) -> io::Result<VecDeque<Received>> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.slot.port().listen()?,
        };
        let received = self.slot.port().of(self.slot.key(), &socket);
        self.socket = Some(socket);
        Ok(received)
    }

    /// Stops listening: no such datagrams are expected for now.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    /// A socket of this port for a path on which a datagram came: it sends from the address that the peer called.
    ///
    /// # Errors
    /// The system gives none, or there is no route back.
    pub(crate) fn join(
        &self,
        addresses: PacketAddresses,
        receive_buffer: usize,
    ) -> io::Result<Socket> {
        let port = self.slot.port();
        let local = addresses.called(port.local()).unwrap_or(port.local());
        let socket = port.join(local, receive_buffer)?;
        socket.connect(&SockAddr::from(addresses.peer))?;
        Ok(socket)
    }
}
