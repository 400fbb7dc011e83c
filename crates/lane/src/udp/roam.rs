//! Addresses that change while connections last.
//!
//! A connected socket hears its peer at one address. When a NAT gives the Initiator another one, or it
//! moves, what it sends finds no connected socket at the Responder and goes to the listening one:
//!
//! ```text
//!  Initiator, new address --> listening socket --> Strays: by the key in the header
//!                                                    |
//!  connected socket  <-- connect() <-- the core asks that address, and believes the answer
//! ```
//!
//! The listener sorts what it reads; a connection whose peer is silent reads the listening socket
//! itself, for nobody may be accepting. An Initiator whose own address is gone, or is not the one that
//! the system would choose now, connects its socket anew.

use super::receive::Receiver;
use super::send::Sender;
use super::socket;
use crate::Turn;
use socket2::{SockAddr, Socket};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use zerolane_core::{Instant, Origin, Stray};

/// Bytes of a datagram that are looked at: more than any that is not payload has.
const SHOWN: usize = 2048;
/// Datagrams kept for one connection, and for the listener. Who sent them repeats what was dropped.
const MAX_KEPT: usize = 64;
/// Datagrams read in one go: what a sender has under way when its address changes.
const MAX_READ: usize = 4096;
/// Time between two looks of a Responder whose peer is silent: doubled for each that found nothing, for
/// a thousand idle connections may be polled all the time.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
const MAX_LOOK_INTERVAL: Duration = Duration::from_millis(128);
/// The same of an Initiator at its own address, which costs more.
const SOURCE_INTERVAL: Duration = Duration::from_millis(250);
/// Where a D_Key lies in a header.
const KEY: std::ops::Range<usize> = 8..12;

/// What seals and opens.
type Ends<'a> = (&'a mut Sender, &'a mut Receiver);

/// A datagram and where it came from.
type Received = (Vec<u8>, SocketAddr);

/// What arrives at a listening socket for connections that exist.
#[derive(Debug)]
pub(super) struct Strays {
    socket: Socket,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The connections that exist, by their keys.
    known: HashMap<u32, Known>,
    /// What a connection read that is the listener's.
    others: VecDeque<Received>,
    /// Datagrams dropped because of [`MAX_KEPT`].
    dropped: u64,
}

#[derive(Debug)]
struct Known {
    /// Where its peer was at first.
    origin: Origin,
    strays: VecDeque<Received>,
}

impl Strays {
    pub(super) fn new(socket: &Socket) -> io::Result<Strays> {
        Ok(Strays {
            socket: socket.try_clone()?,
            kept: Mutex::default(),
        })
    }

    /// Nobody leaves it half changed.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that exist: all, and those of `origin`.
    pub(super) fn connections(&self, origin: Origin) -> (usize, usize) {
        let known = &self.kept().known;
        let of_origin = known.values().filter(|it| it.origin == origin);
        (known.len(), of_origin.count())
    }

    /// Datagrams dropped because too many waited to be looked at.
    pub(super) fn dropped(&self) -> u64 {
        self.kept().dropped
    }

    /// The next datagram that is no connection's. `None` when the socket is empty.
    ///
    /// # Errors
    /// The socket's, those of datagrams sent earlier among them.
    pub(super) fn next_other(&self) -> io::Result<Option<Received>> {
        let mut kept = self.kept();
        loop {
            let next = match kept.others.pop_front() {
                Some(other) => Some(other),
                None => receive(&self.socket)?,
            };
            match next {
                Some(received) => match kept.sort(received) {
                    Some(other) => return Ok(Some(other)),
                    None => continue,
                },
                None => return Ok(None),
            }
        }
    }

    /// What came for `key`, the listening socket's contents included.
    fn of(&self, key: u32) -> VecDeque<Received> {
        let mut kept = self.kept();
        for _ in 0..MAX_READ {
            match receive(&self.socket) {
                Ok(Some(received)) => {
                    if let Some(other) = kept.sort(received) {
                        match kept.others.len() < MAX_KEPT {
                            true => kept.others.push_back(other),
                            false => kept.dropped += 1,
                        }
                    }
                }
                Ok(None) => break,
                // Of something sent earlier, and taken by this.
                Err(_) => {}
            }
        }
        kept.known
            .get_mut(&key)
            .map(|it| std::mem::take(&mut it.strays))
            .unwrap_or_default()
    }
}

impl Kept {
    /// Keeps what is a connection's, and gives back what is not.
    fn sort(&mut self, received: Received) -> Option<Received> {
        let key = received.0.get(KEY).and_then(|key| key.try_into().ok());
        let known = key.and_then(|key| self.known.get_mut(&u32::from_be_bytes(key)));
        let Some(Known { strays, .. }) = known else {
            return Some(received);
        };
        if strays.len() >= MAX_KEPT {
            strays.pop_front();
            self.dropped += 1;
        }
        strays.push_back(received);
        None
    }
}

fn receive(socket: &Socket) -> io::Result<Option<Received>> {
    let mut buffer = [MaybeUninit::uninit(); SHOWN];
    let (len, from) = match socket.recv_from(&mut buffer) {
        Ok(received) => received,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    let received = buffer[..len].iter();
    // SAFETY: recv_from initialised the first `len` bytes.
    let bytes = received.map(|byte| unsafe { byte.assume_init() });
    Ok(from.as_socket().map(|from| (bytes.collect(), from)))
}

/// How a lane finds its peer again.
#[derive(Debug)]
pub(super) struct Roam {
    /// Of an accepted connection: where its peer may be heard. Gone with the listener.
    strays: Option<(Weak<Strays>, u32)>,
    /// When to look again, and how long after that.
    next_look: Instant,
    interval: Duration,
}

impl Roam {
    pub(super) fn initiator() -> Roam {
        Roam {
            strays: None,
            next_look: Instant::ZERO,
            interval: LOOK_INTERVAL,
        }
    }

    /// Of the connection with that key, whose peer is at `peer`. It is one of
    /// [`Strays::connections`] until this is dropped.
    pub(super) fn responder(strays: &Arc<Strays>, key: u32, peer: SocketAddr) -> Roam {
        let known = Known {
            origin: Origin::of(peer.ip()),
            strays: VecDeque::new(),
        };
        strays.kept().known.insert(key, known);
        Roam {
            strays: Some((Arc::downgrade(strays), key)),
            next_look: Instant::ZERO,
            interval: LOOK_INTERVAL,
        }
    }

    /// Longest sleep of a lane that has to look elsewhere for its peer.
    pub(super) fn longest_sleep(&self) -> Option<Duration> {
        let (strays, _) = self.strays.as_ref()?;
        (strays.strong_count() > 0).then_some(Duration::from_secs(1))
    }

    /// Looks for a peer that is silent. Returns its new address, to which `socket` is connected then.
    pub(super) fn look(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        ends: Ends<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<SocketAddr> {
        if !turn.core.is_peer_silent(turn.now) {
            self.interval = LOOK_INTERVAL;
            return None;
        }
        if turn.now < self.next_look {
            return None;
        }
        match &self.strays {
            Some((strays, key)) => {
                let received = strays.upgrade()?.of(*key);
                // What was found calls for an answer, which comes the same way.
                self.interval = match received.is_empty() {
                    true => (self.interval * 2).min(MAX_LOOK_INTERVAL),
                    false => LOOK_INTERVAL,
                };
                self.next_look = turn.now + self.interval;
                let (sender, receiver) = ends;
                let moved = received.into_iter().find_map(|(mut bytes, from)| {
                    let ends = (&mut *sender, &mut *receiver);
                    is_peers(&mut bytes, from, socket, ends, turn).then_some(from)
                });
                let from = moved?;
                // If there is no way, there is none to the old address either.
                let _ = socket.connect(&SockAddr::from(from));
                Some(from)
            }
            None => {
                self.next_look = turn.now + SOURCE_INTERVAL;
                let renewed = socket::renew_source(socket, peer).unwrap_or(false);
                if renewed {
                    turn.core.on_new_path(turn.now);
                }
                renewed.then_some(peer)
            }
        }
    }
}

impl Drop for Roam {
    fn drop(&mut self) {
        if let Some((strays, key)) = &self.strays
            && let Some(strays) = strays.upgrade()
        {
            strays.kept().known.remove(key);
        }
    }
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
    // Who has not the connection's keys is not asked either.
    let Some(opened) = receiver.unseal(bytes, turn) else {
        return false;
    };
    let mut nonce = [0; 4];
    if getrandom::fill(&mut nonce).is_err() {
        return false;
    }
    let nonce = u32::from_ne_bytes(nonce);
    match turn.core.on_stray(turn.now, from, nonce, opened) {
        Stray::Nothing => false,
        Stray::Ask(question) => {
            sender.send_elsewhere(socket, &question, from);
            false
        }
        Stray::Moved => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn datagram(key: u32) -> Received {
        let mut bytes = vec![0; 40];
        bytes[KEY].copy_from_slice(&key.to_be_bytes());
        (bytes, SocketAddr::from(([192, 0, 2, 1], 4000)))
    }

    #[test]
    fn sort__keeps_no_more_for_one_connection_than_the_limit() {
        let mut kept = Kept::default();
        let known = Known {
            origin: Origin::of([192, 0, 2, 1].into()),
            strays: VecDeque::new(),
        };
        kept.known.insert(7, known);
        assert!(kept.sort(datagram(8)).is_some(), "somebody else's");
        for _ in 0..MAX_KEPT + 3 {
            assert!(kept.sort(datagram(7)).is_none());
        }
        assert_eq!((kept.known[&7].strays.len(), kept.dropped), (MAX_KEPT, 3));
    }
}
