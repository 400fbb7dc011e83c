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
//! A path may have a thread of its own (`udp::path_thread`).
//!
//! A path may go by raw Ethernet: its socket is a packet socket then, and the question for it comes to an [`Ear`]. Packet sockets at
//! one interface all see what comes there: each leaves to the others what their peers sent.
//!
//! Keys are of a path: so numbers are counted, and what is repeated is told, path by path, and whatever comes by
//! another path than it was sealed for is dropped. They outlive the socket, for numbers must not begin again.

mod ends;
mod link;
mod secrets;

pub(crate) use ends::FirstPeer;

use crate::ethernet::{Ear, Station, leave_to};
use crate::udp::{Envelope, PathThread, Receiver, Sender, Unmatched, protect};
use crate::{Account, LaneError, NoPath, Options, PathAddresses, PathThreads, Registry, Turn};
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

/// Time between two looks for paths that the peer adds.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Frames taken in one look: a sender of questions without end must not keep the connection from its turn.
const MAX_QUESTIONS: usize = 64;

/// What the others need of the first path.
pub(crate) struct FirstPath<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) peer: FirstPeer,
    /// The connection's key to us.
    pub(crate) key: u32,
    /// Where questions for paths over UDP arrive, if there may be such.
    pub(crate) unmatched: Option<&'a mut Unmatched>,
}

/// The paths of a connection that may have several.
#[derive(Debug)]
pub(crate) struct Links {
    list: Vec<Link>,
    /// All sockets of the connection: one descriptor to wait for.
    watched: Epoll,
    secrets: Option<PathSecrets>,
    options: Options,
    /// To be added once the connection is open.
    wanted: VecDeque<PathAddresses>,
    next_look: Instant,
    /// The peer may add paths over raw Ethernet.
    takes_frames: bool,
    /// What is shown the questions for these, while one may come.
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
    /// Beside the path of `first`; `None` unless `options` ask for several. `takes_frames`: the peer may add such over raw Ethernet.
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
            // What is lent to the kernel would be one socket's, and outlive it.
            options: Options {
                zerocopy: false,
                ..options.clone()
            },
            wanted: options.links.iter().copied().collect(),
            next_look: Instant::ZERO,
            takes_frames,
            ear: None,
        })))
    }

    /// What is readable when anything came by any path, or has room that was waited for.
    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.watched.0.as_fd()
    }

    /// The keys of the connection, of which those of its paths are made.
    pub(crate) fn protect(&mut self, session: &Session) {
        self.secrets = Some(PathSecrets::of(session));
    }

    /// A path more is wanted.
    pub(crate) fn want(&mut self, addresses: PathAddresses) {
        self.wanted.push_back(addresses);
    }

    /// The next look for paths that the peer adds does not wait for its time.
    pub(crate) fn look_now(&mut self) {
        self.next_look = Instant::ZERO;
    }

    /// Whether there is any beside the first.
    pub(crate) fn is_any(&self, core: &Connection) -> bool {
        (1..core.max_paths()).any(|path| core.path_life(path) != PathLife::Absent)
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
            station: None,
            sender: Sender::new(like, None, &self.options),
            // The peer has not proven its question yet: no socket is changed for it.
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

    /// Closes what is over, adds what is wanted, and looks for what the peer adds.
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

    /// Where the peer is, by path, on the segments of those that are over raw Ethernet.
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

    /// Where it is by those but `path`.
    fn others(&self, path: usize, first: &FirstPath<'_>) -> Vec<Station> {
        let all = self.stations(first).into_iter();
        all.filter(|it| it.0 != path).map(|it| it.1).collect()
    }

    /// The paths over raw Ethernet at `interface` are others than they were: each socket there leaves to the others what is theirs.
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
                // Else what is others' is dropped here as foreign.
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
        let receive_buffer = self.options.receive_buffer;
        // None of those that are over is left.
        let others = self.others(usize::MAX, first);
        let made = PathSocket::open(addresses, first, &others, receive_buffer)?;
        let path = turn.core.add_path(turn.now, made.size);
        let path = path.ok_or(NoPath::Full)?;
        let at = self
            .place(path, first.socket, made.peer)
            .ok_or(NoPath::Full)?;
        Ok(self.attach(at, made, first, turn.memory)?)
    }

    /// From here on the path at `at` has this socket.
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
            Envelope::Udp => self.options.path_threads,
            // What a path's thread does is for sockets that merge and cut.
            _ => PathThreads::OneForAll,
        };
        link.receiver.begin_at(&socket, envelope, &self.options);
        link.sender.begin_at(&socket, frames, &self.options);
        let socket = Arc::new(socket);
        match threads {
            PathThreads::OneForAll => self.watched.add(&socket, interest(false))?,
            PathThreads::OnePerPath => {
                let spin = self.options.spin;
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

    /// Looks for questions of the peer by paths that it adds.
    fn look(&mut self, first: &mut FirstPath<'_>, turn: &mut Turn<'_>) {
        if !turn.core.awaits_paths() {
            self.ear = None;
            return;
        }
        let by_udp = first.unmatched.as_mut().map(|it| it.take());
        for (bytes, addresses) in by_udp.and_then(Result::ok).unwrap_or_default() {
            self.on_question(bytes, Asker::Packet(addresses), first, turn);
        }
        if self.takes_frames {
            for (bytes, from) in self.framed_questions(first.key, turn.account) {
                self.on_question(bytes, Asker::Frame(from), first, turn);
            }
        }
    }

    /// What came in frames for the connection with that key to us.
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
            // None comes this way.
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
                // An interface went down, which is told once.
                Err(_) => {}
            }
        }
        questions
    }

    /// What came by none of the paths may be a question of the peer by one that it adds.
    fn on_question(
        &mut self,
        mut bytes: Vec<u8>,
        from: Asker,
        first: &FirstPath<'_>,
        turn: &mut Turn<'_>,
    ) {
        let head: Option<&[u8; HEADER_LEN]> = bytes.first_chunk();
        let header = head.and_then(|it| Header::parse(it).ok());
        let asks =
            |it: &Header| it.op == Op::Nop && (1..turn.core.max_paths()).contains(&it.param.into());
        let Some(path) = header.filter(asks).map(|it| usize::from(it.param)) else {
            return;
        };
        if matches!(from, Asker::Frame(_)) && self.hears(path, from.address(), turn) {
            return;
        }
        // The rest costs nobody anything without the keys.
        let Some(at) = self.place(path, first.socket, from.address()) else {
            return;
        };
        let Some(opened) = self.list[at].receiver.unseal(&mut bytes, turn) else {
            return;
        };
        if turn.core.joins(opened) != Some(path) {
            return;
        }
        let others = self.others(path, first);
        let made = from.answer(first, &others, self.options.receive_buffer);
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

    /// Whether what comes in frames from `peer` by `path`, which all that listens to frames hears, is heard by the path's own
    /// socket, or the path is not to have another.
    fn hears(&self, path: usize, peer: SocketAddr, turn: &Turn<'_>) -> bool {
        let mut links = self.list.iter();
        let own = |it: &Link| it.path == path && it.socket.is_some() && it.peer == peer;
        match turn.core.path_life(path) {
            PathLife::Absent => false,
            PathLife::Suspect => links.any(own),
            _ => true,
        }
    }

    /// Takes what came by all paths but the first, which is selected again then.
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
                // The path is broken, and not the connection.
                Err(LaneError::Io(_)) => turn.core.remove_path(turn.now, link.path),
                Err(error) => return Err(error),
            }
        }
        Ok(received)
    }

    /// Sends what is to leave by all paths but the first, which is selected again then. `first`: its socket, and whether that
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

    /// Whether the kernel has memory of `region` for any of them.
    pub(crate) fn holds(&self, region: zerolane_core::RegionId) -> bool {
        let mut open = self
            .list
            .iter()
            .filter_map(|it| Some((it, it.socket.as_ref()?)));
        open.any(|(it, socket)| it.sender.holds(socket, region))
    }
}

/// A path was to be added, and could not be.
fn refuse(account: &mut Account, why: NoPath) {
    account.paths_refused += 1;
    account.no_path = Some(why);
}
