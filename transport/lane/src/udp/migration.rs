//! Addresses that change while connections last.
//!
//! A connected socket hears its peer at one address. When a NAT gives the peer another one, or it moves,
//! what it sends finds no connected socket of ours and goes to the unconnected one of the same port:
//!
//! ```text
//!  peer, new address --> unconnected socket --> SharedPort: by the key in the header
//!                                                 |
//!  connected socket  <-- connect() <-- the core asks that address, and believes the answer
//! ```
//!
//! The listener, if there is one, sorts what it reads; a connection whose peer is silent reads there
//! itself, for there may be no call to accept, and opens the unconnected socket if it is not open. An end whose own
//! address is gone, or is not the one that the system would choose now, connects its socket anew, unless
//! it was bound to that address on purpose.

use super::port::{SHOWN, SharedPort};
use super::receive::Receiver;
use super::send::Sender;
use super::socket;
use super::unmatched::Unmatched;
use crate::Turn;
use socket2::{SockAddr, Socket};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Instant, PathValidation};

/// Time between two looks of an end whose peer is silent: doubled for each that found nothing, for
/// a thousand idle connections may be polled all the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(128);
/// The same at its own address, which costs more.
const SOURCE_INTERVAL: Duration = Duration::from_millis(250);
/// Longest sleep of an end that may have to look elsewhere for its peer.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// What seals and opens.
type Ends<'a> = (&'a mut Sender, &'a mut Receiver);

/// How a lane finds its peer again, and is found by it.
#[derive(Debug)]
pub(crate) struct PeerMigration {
    /// Where the peer may be heard, and by what key.
    unmatched: Unmatched,
    /// Whether the system chooses our address.
    free: bool,
    /// When to look there again, and how long after that.
    next_look: Instant,
    interval: Duration,
    /// When to look at our own address again.
    next_source: Instant,
}

impl PeerMigration {
    /// Of the connection with that key to us, whose peer is at `peer`, and whose socket was bound to
    /// `local`. It is one of [`SharedPort::connections`] until this is dropped.
    pub(crate) fn new(
        port: &Arc<SharedPort>,
        local: SocketAddr,
        key: u32,
        peer: SocketAddr,
    ) -> PeerMigration {
        PeerMigration {
            unmatched: Unmatched::of(port.seat(key, peer)),
            free: local.ip().is_unspecified(),
            next_look: Instant::ZERO,
            interval: LOOK_INTERVAL,
            next_source: Instant::ZERO,
        }
    }

    pub(crate) fn key(&self) -> u32 {
        self.unmatched.seat().key()
    }

    /// What came from others than the peer.
    pub(super) fn unmatched(&mut self) -> &mut Unmatched {
        &mut self.unmatched
    }

    /// The next [`PeerMigration::look`] at a silent peer does not wait for its time.
    pub(super) fn look_now(&mut self) {
        self.next_look = Instant::ZERO;
    }

    /// The same of a connection that has its port for itself, that of `socket`.
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

    /// Looks for a peer that is silent. Returns where `socket` is connected to then, if the way to the peer
    /// is another now.
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
                self.unmatched.close();
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

    /// The new address of the peer, to which `socket` is connected then.
    fn look_for_peer(
        &mut self,
        socket: &Socket,
        (sender, receiver): Ends<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        if turn.now < self.next_look {
            return None;
        }
        let received = self.unmatched.take().unwrap_or_default();
        // What was found calls for an answer, which comes the same way.
        self.interval = match received.is_empty() {
            true => (self.interval * 2).min(MAX_LOOK_INTERVAL),
            false => LOOK_INTERVAL,
        };
        self.next_look = turn.now + self.interval;
        let from = received.into_iter().find_map(|(mut bytes, addresses)| {
            let ends = (&mut *sender, &mut *receiver);
            is_peers(&mut bytes, addresses.peer, socket, ends, turn).then_some(addresses.peer)
        })?;
        // If there is no way there, there is none to the old address either.
        let _ = socket.connect(&SockAddr::from(from));
        Some(from)
    }

    /// `peer`, if our own address is another now.
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
        if port_of(socket).is_ok_and(|port| port != self.unmatched.seat().port().local().port())
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

/// Whether `bytes` prove that the peer is at `from`. Asks for the proof if they do not.
fn is_peers(
    bytes: &mut [u8],
    from: SocketAddr,
    socket: &Socket,
    (sender, receiver): Ends<'_>,
    turn: &mut Turn<'_>,
) -> bool {
    if bytes.len() >= SHOWN {
        // Perhaps not all of it: there is no opening that.
        return false;
    }
    // A sender without the connection's keys is not asked either.
    let Some(opened) = receiver.unseal(bytes, turn) else {
        return false;
    };
    let mut nonce = [0; 4];
    if getrandom::fill(&mut nonce).is_err() {
        return false;
    }
    let nonce = u32::from_ne_bytes(nonce);
    match turn.core.on_unmatched(turn.now, from, nonce, opened) {
        PathValidation::Ignored => false,
        PathValidation::Challenge(question) => {
            sender.send_elsewhere(socket, &question, from);
            false
        }
        PathValidation::Validated => true,
    }
}
