//! Receives a connection's datagrams that arrive at the port's unconnected socket, from other addresses than its
//! peer's.

use crate::socket::{MAX_KEPT, PacketAddresses, PortSlot, Received};
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
    /// Those that no caller has wanted yet, at most [`MAX_KEPT`].
    waiting: VecDeque<Received>,
}

impl NewAddresses {
    /// For the connection that has `slot`.
    pub(crate) fn of(slot: PortSlot) -> NewAddresses {
        NewAddresses {
            slot,
            socket: None,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn slot(&self) -> &PortSlot {
        &self.slot
    }

    /// Takes the arrived datagrams that are `wanted`. The others wait: questions for a new path and datagrams of a peer
    /// that moved come the same way, and either is looked for apart.
    ///
    /// # Errors
    /// The unconnected socket cannot be opened: another process has the port, or there is no descriptor left.
    pub(crate) fn take(
        &mut self,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<VecDeque<Received>> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.slot.port().listen()?,
        };
        self.waiting
            .extend(self.slot.port().of(self.slot.key(), &socket));
        self.socket = Some(socket);
        let all = std::mem::take(&mut self.waiting);
        let surplus = all.len().saturating_sub(MAX_KEPT);
        let taken;
        (taken, self.waiting) = all
            .into_iter()
            .skip(surplus)
            .partition(|it: &Received| wanted(&it.0));
        Ok(taken)
    }

    /// Stops listening: no such datagrams are expected for now.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.waiting.clear();
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

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use crate::socket::SharedPort;
    use std::net::{SocketAddr, UdpSocket};
    use std::time::{Duration, Instant};

    /// Who looks for one kind of datagram takes none of the other.
    #[test]
    fn take__leaves_the_others_to_their_taker() {
        let port = Arc::new(SharedPort::unattended(([127, 0, 0, 1], 0).into()));
        let peer: SocketAddr = ([127, 0, 0, 1], 9).into();
        let mut it = NewAddresses::of(port.register(0x0707_0707, peer));
        let socket = port.listen().expect("a port");
        let to = socket.local_addr().expect("bound").as_socket();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let first = |wanted: u8| move |bytes: &[u8]| bytes[0] == wanted;
        for n in 0..2 * MAX_KEPT {
            let mut datagram = [7; 40];
            datagram[0] = (n % 2) as u8;
            sender.send_to(&datagram, to.expect("IP")).expect("sent");
            assert!(it.take(first(2)).expect("open").is_empty());
        }
        let mut come = 0;
        let end = Instant::now() + Duration::from_secs(60);
        while come < MAX_KEPT / 2 && Instant::now() < end {
            come += it.take(first(1)).expect("open").len();
        }
        assert_eq!(come, MAX_KEPT / 2, "the oldest were dropped");
        assert_eq!(it.take(first(0)).expect("open").len(), MAX_KEPT / 2);
        it.close();
        assert!(it.take(|_| true).expect("open").is_empty());
    }
}
