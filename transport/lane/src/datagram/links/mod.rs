//! Carries one connection over several paths: opens, serves and closes a socket for each besides the first.
//!
//! The Initiator opens the paths, each from an address of its own, and asks on each whether the peer is there. That
//! question matches no connected socket at the peer and arrives at the port's unconnected one, where the connection
//! looks for it. Once the question is opened with the path's keys, the path gets a socket of its own there:
//!
//! ```text
//!  path 1, question --> unconnected socket --> SharedPort: by the key in the header
//!                                                |
//!                      a connected socket  <-- opened with the keys of path 1
//! ```
//!
//! A path may have a thread of its own (`path_thread`).
//!
//! A path over raw Ethernet has a packet socket, and its question arrives at an [`Ear`]. Packet sockets at one
//! interface all see each frame there: each leaves to the others the frames of their peers.
//!
//! Each path has its own keys. So numbers are counted and duplicates detected path by path, and a datagram that comes
//! by another path than it was sealed for is dropped. Keys outlive the socket, because numbers must not start again.

mod ends;
mod link;
mod secrets;

pub(crate) use ends::FirstPeer;

use crate::account::Account;
use crate::address::{PathAddresses, Station};
use crate::datagram::new_addresses::NewAddresses;
use crate::datagram::path_thread::PathThread;
use crate::datagram::protect::protect;
use crate::datagram::receive::{Envelope, Receiver};
use crate::datagram::send::Sender;
use crate::error::LaneError;
use crate::ethernet::{Ear, leave_to};
use crate::lane::Turn;
use crate::memory::Registry;
use crate::options::{Options, PathThreads};
use crate::unavailable::NoPath;
use ends::{Asker, PathSocket};
use link::Link;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use secrets::PathSecrets;
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Connection, Instant, Life, PathLife};
use zerolane_handshake::Session;
use zerolane_wire::{HEADER_LEN, Header, Op};

/// Time between two checks for paths that the peer adds.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Most frames taken in one check: an endless sender of questions must not keep the connection from its turn.
const MAX_QUESTIONS: usize = 64;

/// The parts of the first path that the others need.
pub(crate) struct FirstPath<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) peer: FirstPeer,
    /// This end's key of the connection.
    pub(crate) key: u32,
    /// Where questions for paths over UDP arrive, if the peer may ask.
    pub(crate) new_addresses: Option<&'a mut NewAddresses>,
}

/// The paths of a connection that may have several.
#[derive(Debug)]
pub(crate) struct Links {
    list: Vec<Link>,
    /// All sockets of the connection, in one descriptor to wait on.
    watched: Epoll,
    secrets: Option<PathSecrets>,
    options: Options,
    /// Paths to add once the connection is open.
    wanted: VecDeque<PathAddresses>,
    next_look: Instant,
    /// Whether the peer may add paths over raw Ethernet.
    takes_frames: bool,
    /// Receives the questions for these, while one may come.
    ear: Option<Ear>,
}

fn interest(full: bool) -> EpollEvent {
    let flags = match full {
        true => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        false => EpollFlags::EPOLLIN,
    };
    EpollEvent::new(flags, 0)
}

impl Links {
    /// The paths besides that of `first`; `None` unless `options` ask for several. `takes_frames`: the peer may add
    /// paths over raw Ethernet.
    pub(crate) fn new(
        first: &Socket,
        options: &Options,
        takes_frames: bool,
    ) -> io::Result<Option<Box<Links>>> {
        if options.most_paths() < 2 {
            return Ok(None);
        }
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        watched.add(first, interest(false))?;
        Ok(Some(Box::new(Links {
            list: Vec::new(),
            watched,
            secrets: None,
            // Lent memory would belong to one socket, and outlive it.
            options: options.clone().with(|it| it.datagrams.zerocopy = false),
            wanted: options.paths.links.iter().copied().collect(),
            next_look: Instant::ZERO,
            takes_frames,
            ear: None,
        })))
    }

    /// The threads of paths in use.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> impl Iterator<Item = &PathThread> {
        self.list.iter().filter_map(|it| it.thread.as_ref())
    }

    /// Readable when a datagram arrived on any path, or a path has the room that it waits for.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.watched.0.as_fd()
    }

    /// Takes the keys of the connection, from which the paths' keys are derived.
    pub(crate) fn protect(&mut self, session: &Session) {
        self.secrets = Some(PathSecrets::of(session));
    }

    /// Adds a path later.
    pub(crate) fn want(&mut self, addresses: PathAddresses) {
        self.wanted.push_back(addresses);
    }

    /// Makes the next check for paths that the peer adds happen at once.
    pub(crate) fn look_now(&mut self) {
        self.next_look = Instant::ZERO;
    }

    /// Whether there is any path besides the first.
    pub(crate) fn is_any(&self, core: &Connection) -> bool {
        (1..core.max_paths()).any(|path| core.path_life(path) != PathLife::Absent)
    }

    /// The index of `path` in the list, to which it is added if necessary, with keys of its own. `like`: a socket of
    /// the connection. `None` if the cryptography refuses the keys.
    fn place(&mut self, path: usize, like: &Socket, peer: SocketAddr) -> Option<usize> {
        if let Some(at) = self.list.iter().position(|it| it.path == path) {
            return Some(at);
        }
        let mut link = Link {
            path,
            socket: None,
            peer,
            station: None,
            sender: Sender::new(like, None, &self.options),
            // The peer has not proved its question yet, so no socket is changed for it.
            receiver: Receiver::unbound(&self.options),
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

    /// Closes paths that are over, adds wanted ones, and checks for paths that the peer adds.
    pub(crate) fn tend(&mut self, mut first: FirstPath<'_>, turn: &mut Turn<'_>) {
        if turn.core.life() != Life::Established {
            return;
        }
        self.close_absent(&first, turn);
        while let Some(addresses) = self.wanted.pop_front() {
            if let Err(why) = self.add(addresses, &first, turn) {
                refuse(turn.account, why);
            }
        }
        if turn.core.max_paths() > 1 && turn.now >= self.next_look {
            self.next_look = turn.now + LOOK_INTERVAL;
            self.look(&mut first, turn);
        }
    }

    fn close_absent(&mut self, first: &FirstPath<'_>, turn: &Turn<'_>) {
        let mut left = Vec::new();
        for link in &mut self.list {
            if link.socket.is_some() && turn.core.path_life(link.path) == PathLife::Absent {
                left.extend(link.station.map(|it| it.interface));
                link.detach(turn.memory);
            }
        }
        for interface in left {
            self.part(interface, first);
        }
    }

    /// The peer's stations by path, for the paths over raw Ethernet.
    fn stations(&self, first: &FirstPath<'_>) -> Vec<(usize, Station)> {
        let of_first = match first.peer {
            FirstPeer::Ethernet(station) => Some((0, station)),
            FirstPeer::Udp(_) => None,
        };
        let others = self
            .list
            .iter()
            .filter_map(|it| Some((it.path, it.station?)));
        of_first.into_iter().chain(others).collect()
    }

    /// The peer's stations of all of these paths except `path`.
    fn others(&self, path: usize, first: &FirstPath<'_>) -> Vec<Station> {
        let all = self.stations(first).into_iter();
        all.filter(|it| it.0 != path).map(|it| it.1).collect()
    }

    /// Updates the sockets of the paths over raw Ethernet at `interface` after a change: each leaves to the others the
    /// frames of their peers.
    fn part(&self, interface: u32, first: &FirstPath<'_>) {
        for (path, station) in self.stations(first) {
            if station.interface != interface {
                continue;
            }
            let link = self.list.iter().find(|it| it.path == path);
            let socket = match path {
                0 => Some(first.socket),
                _ => link.and_then(|it| it.socket.as_deref()),
            };
            if let Some(socket) = socket {
                // If that fails, this socket receives the others' frames and drops them as foreign.
                let others = self.others(path, first);
                let _ = leave_to(&others, (socket, interface), first.key);
            }
        }
    }

    /// Opens a path of this end.
    fn add(
        &mut self,
        addresses: PathAddresses,
        first: &FirstPath<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NoPath> {
        let receive_buffer = self.options.flow.receive_buffer;
        // Paths that are over are gone from the list.
        let others = self.others(usize::MAX, first);
        let made = PathSocket::open(addresses, first, &others, receive_buffer)?;
        let path = turn.core.add_path(turn.now, made.size);
        let path = path.ok_or(NoPath::Full)?;
        let at = self
            .place(path, first.socket, made.peer)
            .ok_or(NoPath::Full)?;
        Ok(self.attach(at, made, first, turn.memory)?)
    }

    /// Gives the path at `at` this socket.
    fn attach(
        &mut self,
        at: usize,
        made: PathSocket,
        first: &FirstPath<'_>,
        memory: &Registry,
    ) -> io::Result<()> {
        let PathSocket {
            socket,
            peer,
            station,
            envelope,
            frames,
            ..
        } = made;
        let link = &mut self.list[at];
        link.detach(memory);
        let threads = match envelope {
            Envelope::Udp => self.options.paths.threads,
            // A path's thread works only with sockets that merge and segment.
            _ => PathThreads::OneForAll,
        };
        link.receiver.begin_at(&socket, envelope, &self.options);
        link.sender.begin_at(&socket, frames, &self.options);
        let socket = Arc::new(socket);
        match threads {
            PathThreads::OneForAll => self.watched.add(&socket, interest(false))?,
            PathThreads::OnePerPath => {
                let spin = self.options.times.spin;
                let thread = PathThread::spawn(link.path, Arc::clone(&socket), spin)?;
                self.watched
                    .add(thread.channel().watched(), interest(false))?;
                link.sender.begin_thread(Some(Arc::clone(thread.channel())));
                let channel = Some(Arc::clone(thread.channel()));
                link.receiver.begin_thread(channel, memory);
                link.thread = Some(thread);
            }
        }
        link.watches_room = false;
        (link.socket, link.peer) = (Some(socket), peer);
        link.station = station;
        if let Some(station) = station {
            self.part(station.interface, first);
        }
        Ok(())
    }

    /// Checks for questions of the peer on paths that it adds.
    fn look(&mut self, first: &mut FirstPath<'_>, turn: &mut Turn<'_>) {
        if !turn.core.awaits_paths() {
            self.ear = None;
            return;
        }
        let by_udp = first
            .new_addresses
            .as_mut()
            .map(|it| it.take(|bytes| asked_path(bytes, turn.core).is_some()));
        for (bytes, addresses) in by_udp.and_then(Result::ok).unwrap_or_default() {
            self.on_question(bytes, Asker::Packet(addresses), first, turn);
        }
        if self.takes_frames {
            for (bytes, from) in self.framed_questions(first.key, turn.account) {
                self.on_question(bytes, Asker::Frame(from), first, turn);
            }
        }
    }

    /// The questions in frames for the connection with this end's key `key`.
    fn framed_questions(&mut self, key: u32, account: &mut Account) -> Vec<(Vec<u8>, Station)> {
        let ear = match self.ear.take() {
            Some(ear) => Ok(ear),
            None => Ear::of(key).and_then(|ear| {
                self.watched.add(&ear, interest(false))?;
                Ok(ear)
            }),
        };
        let ear = match ear {
            Ok(ear) => self.ear.insert(ear),
            // No question can come this way.
            Err(error) => {
                self.takes_frames = false;
                refuse(account, error.into());
                return Vec::new();
            }
        };
        let mut questions = Vec::new();
        for _ in 0..MAX_QUESTIONS {
            match ear.next() {
                Ok(Some(Some(question))) => questions.push(question),
                Ok(Some(None)) => account.dropped_foreign += 1,
                Ok(None) => break,
                // The error of an interface that went down, which is reported once.
                Err(_) => {}
            }
        }
        questions
    }

    /// Takes a datagram that came on no path and may be a question of the peer for a new one.
    fn on_question(
        &mut self,
        mut bytes: Vec<u8>,
        from: Asker,
        first: &FirstPath<'_>,
        turn: &mut Turn<'_>,
    ) {
        let Some(path) = asked_path(&bytes, turn.core) else {
            return;
        };
        if matches!(from, Asker::Frame(_)) && self.hears(path, from.address(), turn) {
            return;
        }
        // Without the keys, a question costs nothing from here on.
        let Some(at) = self.place(path, first.socket, from.address()) else {
            return;
        };
        let Some(opened) = self.list[at].receiver.unsealer.unseal(&mut bytes, turn) else {
            return;
        };
        if turn.core.joins(opened) != Some(path) {
            return;
        }
        let others = self.others(path, first);
        let made = from.answer(first, &others, self.options.flow.receive_buffer);
        let attached = made.and_then(|made| {
            let size = made.size;
            let mut nonce = [0; 4];
            getrandom::fill(&mut nonce).map_err(|_| NoPath::Refused(0))?;
            self.attach(at, made, first, turn.memory)?;
            Ok((size, u32::from_ne_bytes(nonce)))
        });
        match attached {
            Ok((size, nonce)) => {
                turn.core.accept_path(turn.now, path, size, nonce);
                turn.core.select_path(path);
                turn.core.on_control(turn.now, opened, opened.len());
                turn.core.select_path(0);
            }
            Err(why) => refuse(turn.account, why),
        }
    }

    /// Whether to ignore frames from `peer` for `path`, which every listener to frames receives: the path's own socket
    /// receives them, or the path must not get another.
    fn hears(&self, path: usize, peer: SocketAddr, turn: &Turn<'_>) -> bool {
        let mut links = self.list.iter();
        let own = |it: &Link| it.path == path && it.socket.is_some() && it.peer == peer;
        match turn.core.path_life(path) {
            PathLife::Absent => false,
            PathLife::Suspect => links.any(own),
            _ => true,
        }
    }

    /// Receives from all paths except the first, which is selected again afterwards.
    pub(crate) fn receive(&mut self, turn: &mut Turn<'_>, strict: bool) -> Result<bool, LaneError> {
        let received = self.receive_each(turn, strict);
        turn.core.select_path(0);
        received
    }

    fn receive_each(&mut self, turn: &mut Turn<'_>, strict: bool) -> Result<bool, LaneError> {
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
                // The path is broken, and the connection is not.
                Err(LaneError::Io(_)) => turn.core.remove_path(turn.now, link.path),
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }

    /// Sends on all paths except the first, which is selected again afterwards. `first`: its socket, and whether that
    /// is full.
    pub(crate) fn transmit(
        &mut self,
        (first, is_full): (&Socket, bool),
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let _ = self.watched.modify(first, &mut interest(is_full));
        let sent = self.transmit_each(turn);
        turn.core.select_path(0);
        sent
    }

    fn transmit_each(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let mut sent = false;
        for link in &mut self.list {
            let Some(socket) = &link.socket else { continue };
            turn.core.select_path(link.path);
            match link.sender.transmit(socket, link.peer, None, None, turn) {
                Ok(any) => sent |= any,
                Err(LaneError::Io(_)) => turn.core.remove_path(turn.now, link.path),
                Err(error) => return Err(error),
            }
            // A path's thread itself reports room for bursts that wait for it.
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

    /// Whether the kernel holds memory of `region` for any of them.
    pub(crate) fn holds(&self, region: zerolane_core::RegionId) -> bool {
        let mut open = self
            .list
            .iter()
            .filter_map(|it| Some((it, it.socket.as_ref()?)));
        open.any(|(it, socket)| it.sender.holds(socket, region))
    }
}

/// The path for which a datagram is a question of the peer that adds it, if this end awaits any.
pub(super) fn asked_path(bytes: &[u8], core: &Connection) -> Option<usize> {
    let head: &[u8; HEADER_LEN] = bytes.first_chunk()?;
    let header = Header::parse(head).ok()?;
    let path = usize::from(header.param);
    let asks = header.op == Op::Nop && (1..core.max_paths()).contains(&path);
    (asks && core.awaits_paths()).then_some(path)
}

/// Counts a path that could not be added.
fn refuse(account: &mut Account, why: NoPath) {
    account.paths_refused += 1;
    account.no_path = Some(why);
}
