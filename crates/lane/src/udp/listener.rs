//! The listening socket: takes Request_Connections of strangers and makes a connected socket of
//! each that it accepts.

use super::roam::{Roam, Strays};
use super::{UdpLane, config, entropy, socket};
use crate::{Driver, Options};
use socket2::{SockAddr, Socket};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane_wire::{Operation, Packet};

/// Initiators remembered, so that a repeated request does not become a second connection.
const MAX_REMEMBERED: usize = 1024;
/// How long: longer than an Initiator tries.
const REMEMBER: Duration = Duration::from_secs(30);

/// A listening UDP port.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    local: SocketAddr,
    options: Options,
    /// What comes for connections that exist.
    strays: Arc<Strays>,
    remembered: VecDeque<(Instant, SocketAddr, u32)>,
    /// Datagrams that were no Request_Connection, or one that was refused.
    refused: u64,
}

impl Listener {
    /// Listens on `local` (port 0: any). The connections accepted share a scheduler, that of
    /// `options` or one of their own.
    ///
    /// # Errors
    /// The address is in use or not ours.
    pub fn bind(local: SocketAddr, mut options: Options) -> io::Result<Listener> {
        options.scheduler.get_or_insert_default();
        let socket = socket::bind(local, true, &options)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(local);
        let strays = Arc::new(Strays::new(&socket)?);
        Ok(Listener {
            socket,
            strays,
            local,
            options,
            remembered: VecDeque::new(),
            refused: 0,
        })
    }

    /// The address listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Datagrams refused or ignored so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The next connection, or `None` when `timeout` ran out. Its answer leaves with the driver's
    /// first call.
    ///
    /// # Errors
    /// The socket failed.
    pub fn accept(&mut self, timeout: Option<Duration>) -> io::Result<Option<Driver<UdpLane>>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            while let Some((packet, peer)) = self.next_packet()? {
                if let Some(driver) = self.consider(&packet, peer)? {
                    return Ok(Some(driver));
                }
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            socket::wait(&self.socket, false, None, left)?;
        }
    }

    /// The next datagram that is an operation. `None` when the socket is empty.
    fn next_packet(&mut self) -> io::Result<Option<(Packet, SocketAddr)>> {
        loop {
            let (bytes, peer) = match self.strays.next_other() {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(None),
                // Errors of answers sent earlier are not the listener's.
                Err(error) if is_peers(&error) => continue,
                Err(error) => return Err(error),
            };
            match Packet::parse(&bytes) {
                Ok(packet) => return Ok(Some((packet, peer))),
                Err(_) => self.refused += 1,
            }
        }
    }

    fn consider(
        &mut self,
        packet: &Packet,
        peer: SocketAddr,
    ) -> io::Result<Option<Driver<UdpLane>>> {
        let Operation::RequestConnection(request) = packet.operation else {
            self.refused += 1;
            return Ok(None);
        };
        if self.is_known(peer, request.s_key) {
            return Ok(None);
        }
        let socket = socket::bind(self.local, true, &self.options)?;
        let mut lane = match UdpLane::new(socket, peer, &self.options) {
            Ok(lane) => lane,
            Err(error) if is_peers(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let config = config(&lane.socket, peer, &self.options);
        let entropy = entropy()?;
        lane.roam = Roam::responder(&self.strays, entropy.key);
        let made = Driver::try_new(lane, &self.options, |now| {
            zerolane_core::listen(now, config, entropy, packet)
        });
        match made {
            Ok(driver) => {
                self.remembered
                    .push_back((Instant::now(), peer, request.s_key));
                Ok(Some(driver))
            }
            Err(rejection) => {
                self.refused += 1;
                if let Some(rejection) = rejection {
                    let (bytes, len) = rejection.emit();
                    // As good as lost if it cannot be sent.
                    let _ = self.socket.send_to(&bytes[..len], &SockAddr::from(peer));
                }
                Ok(None)
            }
        }
    }

    fn is_known(&mut self, peer: SocketAddr, key: u32) -> bool {
        let now = Instant::now();
        while self.remembered.len() >= MAX_REMEMBERED
            || self
                .remembered
                .front()
                .is_some_and(|(at, ..)| now - *at > REMEMBER)
        {
            self.remembered.pop_front();
        }
        self.remembered
            .iter()
            .any(|&(_, other, its)| other == peer && its == key)
    }
}

fn is_peers(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::EPERM
                | libc::EINTR
                | libc::EMSGSIZE
        )
    )
}
