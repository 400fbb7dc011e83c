//! Follows peers, and this host's own address, when addresses change during a connection.
//!
//! A connected socket receives from its peer at one address. If the peer moves, or a NAT changes its address, its
//! datagrams match no connected socket and arrive at the unconnected one of the same port:
//!
//! ```text
//!  peer, new address --> unconnected socket --> SharedPort: by the key in the header
//!                                                 |
//!  connected socket  <-- connect() <-- the core asks that address, and believes the answer
//! ```
//!
//! The listener, if there is one, sorts these datagrams. A connection with a silent peer also reads the unconnected
//! socket itself, because the program may not be calling accept, and opens that socket if it is closed. If this end's
//! own address is gone, or the system would now choose another, this end reconnects its socket, unless the user bound
//! it to that address.

use super::lane::Ends;
use super::links::asked_path;
use super::new_addresses::NewAddresses;
use crate::lane::Turn;
use crate::socket;
use crate::socket::{SHOWN, SharedPort};
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Instant, PathValidation};

/// Time between two checks while the peer is silent. It doubles after each check that finds nothing, because a thousand
/// idle connections may be polled all the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(128);
/// The same for checks of this end's own address, which cost more.
const SOURCE_INTERVAL: Duration = Duration::from_millis(250);
/// Longest sleep of an end that may have to look for its peer at other addresses.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Finds a peer that moved, and this end's new address.
#[derive(Debug)]
pub(crate) struct PeerMigration {
    /// The unconnected socket, and the key by which it recognises the peer.
    new_addresses: NewAddresses,
    /// Whether the system chooses this end's address.
    free: bool,
    /// When to check the unconnected socket next, and the interval after that.
    next_look: Instant,
    interval: Duration,
    /// When to check this end's own address next.
    next_source: Instant,
}

impl PeerMigration {
    /// For the connection with key `key` at this end, whose peer is at `peer` and whose socket was bound to `local`. It
    /// counts among [`SharedPort::connections`] until this is dropped.
    pub(crate) fn new(
        port: &Arc<SharedPort>,
        local: SocketAddr,
        key: u32,
        peer: SocketAddr,
    ) -> PeerMigration {
        PeerMigration {
            new_addresses: NewAddresses::of(port.register(key, peer)),
            free: local.ip().is_unspecified(),
            next_look: Instant::ZERO,
            interval: LOOK_INTERVAL,
            next_source: Instant::ZERO,
        }
    }

    pub(crate) fn key(&self) -> u32 {
        self.new_addresses.slot().key()
    }

    /// The datagrams that came from other addresses than the peer's.
    pub(super) fn new_addresses(&mut self) -> &mut NewAddresses {
        &mut self.new_addresses
    }

    /// Makes the next [`PeerMigration::look`] check a silent peer at once.
    pub(super) fn look_now(&mut self) {
        self.next_look = Instant::ZERO;
    }

    /// The same for a connection that has its port, that of `socket`, for itself.
    ///
    /// # Errors
    /// The socket is not bound.
    pub(super) fn of_socket(
        socket: &Socket,
        key: u32,
        peer: SocketAddr,
    ) -> io::Result<PeerMigration> {
        let local = socket::any_address(peer, port_of(socket)?);
        let port = Arc::new(SharedPort::unattended(local));
        Ok(PeerMigration::new(&port, local, key, peer))
    }

    /// Looks for a silent peer. Returns the address to which `socket` is then connected, if the path to the peer
    /// changed.
    #[inline]
    pub(super) fn look(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        ends: Ends<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        if !turn.core.is_peer_silent(turn.now) {
            self.interval = LOOK_INTERVAL;
            if !turn.core.awaits_paths() {
                self.new_addresses.close();
            }
            return None;
        }
        self.look_for_silent(socket, peer, ends, turn)
    }

    #[cold]
    fn look_for_silent(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        ends: Ends<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        let moved = self.look_for_peer(socket, ends, turn);
        moved.or_else(|| self.look_at_source(socket, peer, turn))
    }

    /// The new address of the peer, to which `socket` is then connected.
    fn look_for_peer(
        &mut self,
        socket: &Socket,
        (sender, receiver): Ends<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        if turn.now < self.next_look {
            return None;
        }
        let others = |bytes: &[u8]| asked_path(bytes, turn.core).is_none();
        let received = self.new_addresses.take(others).unwrap_or_default();
        // A datagram found calls for an answer, which comes the same way.
        self.interval = match received.is_empty() {
            true => (self.interval * 2).min(MAX_LOOK_INTERVAL),
            false => LOOK_INTERVAL,
        };
        self.next_look = turn.now + self.interval;
        let from = received.into_iter().find_map(|(mut bytes, addresses)| {
            let ends = (&mut *sender, &mut *receiver);
            is_peers(&mut bytes, addresses.peer, socket, ends, turn).then_some(addresses.peer)
        })?;
        // If there is no route there, there is none to the old address either.
        let _ = socket.connect(&SockAddr::from(from));
        Some(from)
    }

    /// `peer`, if this end's address has changed.
    fn look_at_source(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        if turn.now < self.next_source || !self.free {
            return None;
        }
        self.next_source = turn.now + SOURCE_INTERVAL;
        let renewed = socket::renew_source(socket, peer).unwrap_or(false);
        if !renewed {
            return None;
        }
        if port_of(socket).is_ok_and(|port| port != self.new_addresses.slot().port().local().port())
            && let Ok(roam) = PeerMigration::of_socket(socket, self.key(), peer)
        {
            *self = roam;
        }
        turn.core.on_new_path(turn.now);
        Some(peer)
    }
}

fn port_of(socket: &Socket) -> io::Result<u16> {
    let local = socket.local_addr()?.as_socket();
    local
        .map(|it| it.port())
        .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Whether `bytes` prove that the peer is at `from`. If not, asks for the proof.
fn is_peers(
    bytes: &mut [u8],
    from: SocketAddr,
    socket: &Socket,
    (sender, receiver): Ends<'_>,
    turn: &mut Turn<'_>,
) -> bool {
    if bytes.len() >= SHOWN {
        // The datagram may be truncated, and cannot be opened then.
        return false;
    }
    // A sender without the connection's keys is not asked for proof either.
    let Some(opened) = receiver.unsealer.unseal(bytes, turn) else {
        return false;
    };
    let mut nonce = [0; 4];
    if getrandom::fill(&mut nonce).is_err() {
        return false;
    }
    let nonce = u32::from_ne_bytes(nonce);
    match turn.core.on_new_address(turn.now, from, nonce, opened) {
        PathValidation::Ignored => false,
        PathValidation::Challenge(question) => {
            sender.send_elsewhere(socket, &question, from);
            false
        }
        PathValidation::Validated => true,
    }
}
