//! Several paths of one connection: a socket for each, beside the first one's.
//!
//! The Initiator opens them, each from an address of its own, and asks by each whether the peer is there. That question
//! finds no connected socket at the peer and goes to the unconnected one of the port, where the connection looks
//! for it; it gets a socket of its own there, once it was opened with that path's keys:
//!
//! ```text
//!  path 1, question --> unconnected socket --> SharedPort: by the key in the header
//!                                                |
//!                      a connected socket  <-- opened with the keys of path 1
//! ```
//!
//! A path may have a thread of its own ([`super::path_thread`]).
//!
//! Keys are of a path: so numbers are counted, and what is repeated is told, path by path, and whatever comes by
//! another path than it was sealed for is dropped. They outlive the socket, for numbers must not begin again.

use super::migration::PeerMigration;
use super::path_thread::{Order, PathThread, Report};
use super::receive::{Envelope, Receiver};
use super::send::Sender;
use super::{protect, socket};
use crate::{LaneError, Options, PathAddresses, PathThreads, Turn};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket2::{SockAddr, Socket};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;
use zerolane_core::{Config, Instant, Life, PathLife};
use zerolane_handshake::{Cipher, PublicKey, Session};
use zerolane_wire::{HEADER_LEN, Header, Op};

/// Time between two looks for paths that the peer adds.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A path beyond the first. Without a socket it is none at present, and what sealed and opened stays.
#[derive(Debug)]
struct Link {
    path: usize,
    socket: Option<Arc<Socket>>,
    peer: SocketAddr,
    sender: Sender,
    receiver: Receiver,
    /// The one that receives and sends here, if the path has one of its own.
    thread: Option<PathThread>,
    /// Room in the socket is waited for, which its thread does not tell of.
    watches_room: bool,
}

impl Link {
    /// The path is none any more: its thread ends, and what it had is lost.
    fn detach(&mut self) {
        self.thread = None;
        self.sender.begin_thread(None);
        self.receiver.begin_thread(None);
        self.socket = None;
    }

    /// Takes what the path's thread reports. True if there was anything.
    fn take_reports(&mut self, turn: &mut Turn<'_>, strict: bool) -> Result<bool, LaneError> {
        let (Some(thread), Some(socket)) = (&self.thread, &self.socket) else {
            return Ok(false);
        };
        let reports = thread.channel().reports();
        if reports.is_empty() {
            return Ok(false);
        }
        turn.refresh();
        let mut outcome = Ok(());
        for report in reports {
            let done = match report {
                Report::Sent(sent) => self.sender.on_sent(sent, (socket, self.peer), turn),
                Report::Opened(opened) => {
                    self.receiver.on_opened(opened);
                    Ok(())
                }
                Report::Arrived(message) => {
                    self.receiver.on_arrived(message);
                    Ok(())
                }
                Report::Refused(buffer, error) => {
                    thread.channel().order(Order::Free(buffer));
                    self.receiver.refused(error, socket, turn).map(drop)
                }
            };
            outcome = outcome.and(done);
        }
        let delivered = self.receiver.deliver_arrived(socket, turn, strict);
        outcome.and(delivered).map(|()| true)
    }
}

/// What keys of paths are made of.
#[derive(Debug)]
struct PathSecrets {
    send: Zeroizing<[u8; 32]>,
    receive: Zeroizing<[u8; 32]>,
    cipher: Cipher,
    peer: PublicKey,
}

/// The paths of a connection that may have several.
#[derive(Debug)]
pub(super) struct Links {
    list: Vec<Link>,
    /// All sockets of the connection: one descriptor to wait for.
    watched: Epoll,
    secrets: Option<PathSecrets>,
    options: Options,
    /// To be added once the connection is open.
    wanted: VecDeque<PathAddresses>,
    next_look: Instant,
}

fn interest(full: bool) -> EpollEvent {
    let flags = match full {
        true => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        false => EpollFlags::EPOLLIN,
    };
    EpollEvent::new(flags, 0)
}

impl Links {
    /// Beside the path of `first`; `None` unless `options` ask for several.
    pub(super) fn new(first: &Socket, options: &Options) -> io::Result<Option<Box<Links>>> {
        if options.most_paths() < 2 {
            return Ok(None);
        }
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        watched.add(first, interest(false))?;
        Ok(Some(Box::new(Links {
            list: Vec::new(),
            watched,
            secrets: None,
            // What is lent to the kernel would be one socket's, and outlive it.
            options: Options {
                zerocopy: false,
                ..options.clone()
            },
            wanted: options.links.iter().copied().collect(),
            next_look: Instant::ZERO,
        })))
    }

    /// What is readable when anything came by any path, or has room that was waited for.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.watched.0.as_fd()
    }

    /// The keys of the connection, of which those of its paths are made.
    pub(super) fn protect(&mut self, session: &Session) {
        let root = |secret: &[u8; 32]| {
            Zeroizing::new(blake3::derive_key("Zerolane 1, secret of paths", secret))
        };
        self.secrets = Some(PathSecrets {
            send: root(&session.send),
            receive: root(&session.receive),
            cipher: session.cipher,
            peer: session.peer,
        });
    }

    /// A path more is wanted.
    pub(super) fn want(&mut self, addresses: PathAddresses) {
        self.wanted.push_back(addresses);
    }

    /// The next look for paths that the peer adds does not wait for its time.
    pub(super) fn look_now(&mut self) {
        self.next_look = Instant::ZERO;
    }

    /// The place of `path` in the list, which has it from here on, with keys of its own. `like`: a socket of the
    /// connection. `None` if the cryptography refuses the keys.
    fn place(&mut self, path: usize, like: &Socket, peer: SocketAddr) -> Option<usize> {
        if let Some(at) = self.list.iter().position(|it| it.path == path) {
            return Some(at);
        }
        let mut link = Link {
            path,
            socket: None,
            peer,
            sender: Sender::new(like, None, &self.options),
            receiver: Receiver::new(like, Envelope::Udp, &self.options),
            thread: None,
            watches_room: false,
        };
        if let Some(secrets) = &self.secrets {
            let session = secrets.of_path(path);
            if !protect(&mut link.sender, &mut link.receiver, session) {
                return None;
            }
        }
        self.list.push(link);
        Some(self.list.len() - 1)
    }

    /// Adds what is wanted, looks for what the peer adds, and closes what is over.
    pub(super) fn tend(
        &mut self,
        first: (&Socket, SocketAddr),
        migration: &mut PeerMigration,
        turn: &mut Turn<'_>,
    ) {
        if turn.core.life() != Life::Established {
            return;
        }
        while let Some(addresses) = self.wanted.pop_front() {
            if self.add(addresses, first, turn).is_err() {
                turn.account.paths_refused += 1;
            }
        }
        if turn.core.max_paths() > 1 && turn.now >= self.next_look {
            self.next_look = turn.now + LOOK_INTERVAL;
            self.look(first.0, migration, turn);
        }
        for link in &mut self.list {
            if turn.core.path_life(link.path) == PathLife::Absent {
                link.detach();
            }
        }
    }

    /// Opens a path of this end.
    fn add(
        &mut self,
        addresses: PathAddresses,
        (first, peer): (&Socket, SocketAddr),
        turn: &mut Turn<'_>,
    ) -> io::Result<()> {
        let peer = addresses.to(peer);
        let any = || socket::any_address(peer, 0);
        let local = addresses.local.unwrap_or_else(any);
        let buffer = self.options.receive_buffer;
        let socket = socket::bind(local, socket::Share::WithJoining, buffer)?;
        socket.connect(&SockAddr::from(peer))?;
        let datagram =
            socket::path_datagram(&socket, peer).unwrap_or(Config::default().path_datagram);
        let refused = || io::Error::other("the peer takes no more paths");
        let path = turn.core.add_path(turn.now, datagram).ok_or_else(refused)?;
        let at = self.place(path, first, peer).ok_or_else(refused)?;
        self.attach(at, socket, peer)
    }

    /// From here on the path at `at` has this socket.
    fn attach(&mut self, at: usize, socket: Socket, peer: SocketAddr) -> io::Result<()> {
        let link = &mut self.list[at];
        link.detach();
        link.receiver.begin_at(&socket, &self.options);
        link.sender.begin_at();
        let socket = Arc::new(socket);
        match self.options.path_threads {
            PathThreads::OneForAll => self.watched.add(&socket, interest(false))?,
            PathThreads::OnePerPath => {
                let spin = self.options.spin;
                let thread = PathThread::spawn(link.path, Arc::clone(&socket), spin)?;
                self.watched
                    .add(thread.channel().watched(), interest(false))?;
                link.sender.begin_thread(Some(Arc::clone(thread.channel())));
                link.receiver
                    .begin_thread(Some(Arc::clone(thread.channel())));
                link.thread = Some(thread);
            }
        }
        link.watches_room = false;
        (link.socket, link.peer) = (Some(socket), peer);
        Ok(())
    }

    /// Looks for questions of the peer by paths that it adds.
    fn look(&mut self, first: &Socket, migration: &mut PeerMigration, turn: &mut Turn<'_>) {
        if !turn.core.awaits_paths() {
            return;
        }
        for (mut bytes, addresses) in migration.listen().unwrap_or_default() {
            let head: Option<&[u8; HEADER_LEN]> = bytes.first_chunk();
            let header = head.and_then(|it| Header::parse(it).ok());
            let asks = |it: &Header| {
                it.op == Op::Nop && (1..turn.core.max_paths()).contains(&it.param.into())
            };
            let Some(path) = header.filter(asks).map(|it| usize::from(it.param)) else {
                continue;
            };
            // The rest costs nobody anything without the keys.
            let Some(at) = self.place(path, first, addresses.peer) else {
                continue;
            };
            let Some(opened) = self.list[at].receiver.unseal(&mut bytes, turn) else {
                continue;
            };
            if turn.core.joins(opened) != Some(path) {
                continue;
            }
            let Ok(socket) = migration.join(addresses, self.options.receive_buffer) else {
                turn.account.paths_refused += 1;
                continue;
            };
            let mut nonce = [0; 4];
            let datagram = socket::path_datagram(&socket, addresses.peer);
            if getrandom::fill(&mut nonce).is_err()
                || self.attach(at, socket, addresses.peer).is_err()
            {
                turn.account.paths_refused += 1;
                continue;
            }
            let nonce = u32::from_ne_bytes(nonce);
            let datagram = datagram.unwrap_or(Config::default().path_datagram);
            turn.core.accept_path(turn.now, path, datagram, nonce);
            turn.core.select_path(path);
            turn.core.on_control(turn.now, opened, opened.len());
            turn.core.select_path(0);
        }
    }

    /// Takes what came by all paths but the first.
    pub(super) fn receive(&mut self, turn: &mut Turn<'_>, strict: bool) -> Result<bool, LaneError> {
        let mut received = false;
        for link in &mut self.list {
            let Some(socket) = &link.socket else { continue };
            turn.core.select_path(link.path);
            let taken = match link.thread {
                None => link.receiver.receive(socket, turn, strict),
                Some(_) => link.take_reports(turn, strict),
            };
            match taken {
                Ok(any) => received |= any,
                // The path is broken, and not the connection.
                Err(LaneError::Io(_)) => turn.core.remove_path(turn.now, link.path),
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }

    /// Sends what is to leave by all paths but the first.
    pub(super) fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let mut sent = false;
        for link in &mut self.list {
            let Some(socket) = &link.socket else { continue };
            turn.core.select_path(link.path);
            match link.sender.transmit(socket, link.peer, None, None, turn) {
                Ok(any) => sent |= any,
                Err(LaneError::Io(_)) => turn.core.remove_path(turn.now, link.path),
                Err(error) => return Err(error),
            }
            // What waits for its thread, the thread tells of.
            let watches_room = link.sender.is_full() && !link.sender.waits_for_thread();
            if watches_room != link.watches_room {
                link.watches_room = watches_room;
                let _ = match link.thread {
                    None => self.watched.modify(socket, &mut interest(watches_room)),
                    Some(_) if watches_room => {
                        let room = EpollEvent::new(EpollFlags::EPOLLOUT, 0);
                        self.watched.add(socket, room)
                    }
                    Some(_) => self.watched.delete(socket),
                };
            }
        }
        Ok(sent)
    }

    /// The first path has no room, or has it again.
    pub(super) fn watch_first(&self, first: &Socket, full: bool) {
        let _ = self.watched.modify(first, &mut interest(full));
    }

    /// Whether the kernel has memory of `region` for any of them.
    pub(super) fn holds(&self, region: zerolane_core::RegionId) -> bool {
        let mut open = self
            .list
            .iter()
            .filter_map(|it| Some((it, it.socket.as_ref()?)));
        open.any(|(it, socket)| it.sender.holds(socket, region))
    }
}

impl PathSecrets {
    fn of_path(&self, path: usize) -> Session {
        let of = |root: &[u8; 32]| {
            let mut hasher = blake3::Hasher::new_derive_key("Zerolane 1, secret of a path");
            hasher.update(root).update(&[path as u8]);
            Zeroizing::new(*hasher.finalize().as_bytes())
        };
        Session {
            send: of(&self.send),
            receive: of(&self.receive),
            cipher: self.cipher,
            peer: self.peer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn of_path__other_keys_for_each_and_none_of_the_connection() {
        let secrets = PathSecrets {
            send: Zeroizing::new([1; 32]),
            receive: Zeroizing::new([2; 32]),
            cipher: Cipher::Aes128Gcm,
            peer: PublicKey([3; 32]),
        };
        let mut seen = vec![[1; 32], [2; 32]];
        for path in 1..8 {
            let session = secrets.of_path(path);
            for secret in [session.send, session.receive] {
                assert!(!seen.contains(&secret), "path {path}");
                seen.push(*secret);
            }
        }
    }
}
