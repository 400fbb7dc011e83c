//! Forwards TCP connections and UNIX sockets over streams, as `ssh -L`, `-R` and `-D` do.
//!
//! A [`Forwarder`] is one loop in one thread: it drives the connections of a [`Worker`], and sleeps on their descriptor
//! and on those of all sockets. A socket is read into the memory that is sent, and written from the memory that
//! arrived. A socket is only read while its stream has credit, and a stream's credit only grows as its socket is
//! written, so either side's TCP holds the writer up when the reader is slow. Half-close is passed on, a reset as a
//! reset, and the end of the connection as a reset of every socket: a reader never takes it for the end of its data.

mod dial;
mod link;
mod listener;
mod peer;
mod request;
mod serve;
mod socks;

pub use listener::Listen;
pub use request::{Request, Target};
pub use socks::{Negotiation, Reply, Step, answer};

use crate::engine::{Event, Role};
use crate::message::{Reset, ResetCode, StreamId};
use crate::passing::After;
use dial::Dials;
use link::{Link, Negotiated, Stage, abort};
use listener::Listener;
use peer::{Peer, Use};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, Event as Happened, Worker};
use zerolane::{Connection, Options};

/// How often the loop asks whether it should stop, and tries again what failed for lack of descriptors.
const LOOK: Duration = Duration::from_millis(200);
/// The wait before a broken connection is made again, and the longest such wait.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// Descriptors looked at in one turn.
const EVENTS: usize = 256;
/// Links advanced in one turn.
const LINKS: usize = 64;
/// Connections accepted from one listener in one turn.
const ACCEPTS: usize = 16;
/// Listeners that the peers of one connection may have.
const MAX_LEASES: usize = 64;

/// The worker's descriptor among those of links and listeners.
const WORKER: u64 = 0;

/// What the owner of a key may do.
pub trait Rules {
    /// Whether it may have this end connect to `target`.
    fn may_connect(&self, key: Option<PublicKey>, target: &Target) -> bool;
    /// Whether it may have this end listen on `target`.
    fn may_listen(&self, key: Option<PublicKey>, target: &Target) -> bool;
}

/// Rules that allow everything: for a peer that may do as much without a forwarder.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

/// Rules that allow nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Rules for Everything {
    fn may_connect(&self, _: Option<PublicKey>, _: &Target) -> bool {
        true
    }

    fn may_listen(&self, _: Option<PublicKey>, _: &Target) -> bool {
        true
    }
}

impl Rules for Nothing {
    fn may_connect(&self, _: Option<PublicKey>, _: &Target) -> bool {
        false
    }

    fn may_listen(&self, _: Option<PublicKey>, _: &Target) -> bool {
        false
    }
}

/// One forward, as the connecting end asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Listen here; the peer connects.
    There {
        /// Where to listen.
        listen: Listen,
        /// Where the peer connects; `None`: where each SOCKS5 client says.
        target: Option<Target>,
        /// From 0, which goes first, to 7; `None`: 3.
        priority: Option<u8>,
    },
    /// The peer listens; connect here.
    Back {
        /// Where the peer listens.
        listen: Target,
        /// Where to connect.
        target: Target,
        /// As for [`Forward::There`].
        priority: Option<u8>,
    },
}

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A forward works: where it listens, and where it leads.
    Listening {
        /// Where connections are accepted: here, or at the peer.
        on: String,
        /// Where they lead.
        to: String,
    },
    /// A peer connected.
    Came(String),
    /// A peer's connection is over.
    Left(String, String),
    /// One connection could not be forwarded, or was refused to a peer.
    Refused(String),
    /// The connection broke, and is made again.
    Broken(String),
    /// The connection is there again.
    Again,
}

/// Makes the connection to the peer. It may block.
pub type Dial = Arc<dyn Fn() -> zerolane::Result<Connection> + Send + Sync>;

/// Why a forwarder ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot listen here.
    #[error("cannot listen on {on}: {}", in_words(.error))]
    Listen {
        /// Where.
        on: String,
        /// Why.
        error: io::Error,
    },
    /// The peer does not listen for this end.
    #[error("the other end does not listen on {on}: {why}")]
    Refused {
        /// Where.
        on: String,
        /// Why.
        why: String,
        /// Whether it was for lack of rights.
        denied: bool,
    },
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The worker or its endpoint failed.
    #[error(transparent)]
    Transport(#[from] zerolane::Error),
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there".into(),
        io::ErrorKind::PermissionDenied => format!("{error}; ports below 1024 need root"),
        _ => error.to_string(),
    }
}

/// See the [module](self).
pub struct Forwarder {
    worker: Worker,
    epoll: OwnedFd,
    peers: HashMap<ConnectionId, Peer>,
    links: HashMap<u64, Link>,
    listeners: HashMap<u64, (Listener, Owner)>,
    next: u64,
    /// Links that have something to do, and peers whose streams changed.
    busy: VecDeque<u64>,
    changed: HashSet<ConnectionId>,
    dials: Dials<(ConnectionId, StreamId)>,
    rules: Box<dyn Rules>,
    notify: Box<dyn FnMut(Notice)>,
    uplink: Option<Uplink>,
    /// Listeners that could not accept, for lack of descriptors.
    starved: bool,
}

/// For whom a listener accepts.
#[derive(Clone, Debug)]
enum Owner {
    /// A forward of this end, to a target, or to what SOCKS5 clients say, with a priority.
    Here(Option<Target>, Option<u8>),
    /// A peer, which asked by this stream, whose priority its connections have.
    Peer(ConnectionId, StreamId),
}

/// The connection that this end makes, and makes again.
struct Uplink {
    dial: Dial,
    forwards: Vec<Forward>,
    connection: Option<ConnectionId>,
    made: (
        Sender<zerolane::Result<Connection>>,
        Receiver<zerolane::Result<Connection>>,
    ),
    dialing: bool,
    at: Instant,
    wait: Duration,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder")
            .field("peers", &self.peers.len())
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

impl Forwarder {
    /// A forwarder without peers. `rules` say what they may ask for; `notify` is told what happens.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(
        rules: impl Rules + 'static,
        notify: impl FnMut(Notice) + 'static,
    ) -> Result<Forwarder, Error> {
        let worker = Worker::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let data = EventData::new_u64(WORKER);
        epoll::add(&epoll, &worker, data, EventFlags::IN).map_err(io::Error::from)?;
        Ok(Forwarder {
            dials: Dials::new(worker.waker()),
            worker,
            epoll,
            peers: HashMap::new(),
            links: HashMap::new(),
            listeners: HashMap::new(),
            next: WORKER + 1,
            busy: VecDeque::new(),
            changed: HashSet::new(),
            rules: Box::new(rules),
            notify: Box::new(notify),
            uplink: None,
            starved: false,
        })
    }

    /// Serves peers that connect to the first free address of `on`. Returns that address and this end's key.
    ///
    /// # Errors
    /// As for [`Worker::listen`].
    pub fn serve(
        &mut self,
        on: &[std::net::SocketAddr],
        options: Options,
    ) -> Result<(std::net::SocketAddr, Option<PublicKey>), Error> {
        let endpoint = self.worker.listen(on, options)?;
        let listener = self.worker.endpoint(endpoint);
        let listener = listener.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok((listener.local_addr(), listener.public_key()))
    }

    /// Uses `connection` for `forwards`, and makes it again with `dial` when it breaks.
    ///
    /// # Errors
    /// It cannot listen on one of the addresses.
    pub fn forward(
        &mut self,
        connection: Connection,
        dial: Dial,
        forwards: Vec<Forward>,
    ) -> Result<(), Error> {
        for forward in &forwards {
            let Forward::There {
                listen,
                target,
                priority,
            } = forward
            else {
                continue;
            };
            let bound = Listener::bind(listen);
            let listener = bound.map_err(|error| {
                let on = listen.to_string();
                Error::Listen { on, error }
            })?;
            let to = target
                .as_ref()
                .map_or_else(|| "where SOCKS5 clients say".to_owned(), Target::to_string);
            (self.notify)(Notice::Listening {
                on: listener.shown.clone(),
                to,
            });
            self.watch_listener(listener, Owner::Here(target.clone(), *priority))?;
        }
        self.uplink = Some(Uplink {
            dial,
            forwards,
            connection: None,
            made: channel(),
            dialing: false,
            at: Instant::now(),
            wait: AGAIN,
        });
        self.attach(connection)
    }

    fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn watch_listener(&mut self, listener: Listener, owner: Owner) -> io::Result<u64> {
        let number = self.next_number();
        epoll::add(
            &self.epoll,
            &listener,
            EventData::new_u64(number),
            EventFlags::IN | EventFlags::ET,
        )?;
        self.listeners.insert(number, (listener, owner));
        Ok(number)
    }

    fn watch_link(&mut self, link: Link) -> io::Result<u64> {
        let number = self.next_number();
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &link, EventData::new_u64(number), flags)?;
        self.links.insert(number, link);
        self.wants_turn(number);
        Ok(number)
    }

    /// Gives a link a turn, once.
    fn wants_turn(&mut self, number: u64) {
        if self.links.get_mut(&number).is_some_and(Link::wants_turn) {
            self.busy.push_back(number);
        }
    }

    /// Uses a connection that this end made.
    fn attach(&mut self, connection: Connection) -> Result<(), Error> {
        let (key, name) = (connection.peer_key(), connection.peer_addr().to_string());
        let id = self.worker.adopt(connection)?;
        let mut peer = Peer::new(id, Role::Connector, key, name);
        let Some(uplink) = &mut self.uplink else {
            return Ok(());
        };
        uplink.connection = Some(id);
        for (index, forward) in uplink.forwards.iter().enumerate() {
            if let Forward::Back {
                listen, priority, ..
            } = forward
            {
                let purpose = Request::Listen(listen.clone()).to_string();
                let opened = peer.session.engine.open(purpose.as_bytes(), *priority);
                let stream = opened.map_err(io::Error::other)?;
                peer.uses.insert(stream, Use::Asked(index));
            }
        }
        self.peers.insert(id, peer);
        self.changed.insert(id);
        // Those that waited while there was no connection.
        let listeners: Vec<u64> = self.listeners.keys().copied().collect();
        listeners.into_iter().for_each(|it| self.accept(it));
        Ok(())
    }

    /// Runs until `stop` says so.
    ///
    /// # Errors
    /// The system refused something without which nothing works, or the peer does not listen as asked.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let mut looked = Instant::now();
        while !stop() {
            self.take_happened()?;
            self.take_dialed();
            self.pass();
            self.settle()?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.redial()?;
                if std::mem::take(&mut self.starved) {
                    let all: Vec<u64> = self.listeners.keys().copied().collect();
                    all.into_iter().for_each(|it| self.accept(it));
                }
            }
            let more = self.worker.progress()?;
            let at_once =
                more || !self.busy.is_empty() || !self.changed.is_empty() || !self.worker.arm()?;
            self.sleep(if at_once { Duration::ZERO } else { LOOK })?;
        }
        Ok(())
    }

    /// Delivers what was handed to the transport, and ends.
    ///
    /// # Errors
    /// The worker failed.
    pub fn close(mut self) -> Result<(), Error> {
        let connections: Vec<_> = self.worker.connection_ids().collect();
        for id in connections {
            self.worker.close(id);
        }
        let until = Instant::now() + Duration::from_secs(2);
        while self.worker.connections() > 0 && Instant::now() < until {
            self.worker.wait_asleep(Some(LOOK))?;
            while self.worker.next_event().is_some() {}
        }
        Ok(())
    }

    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let (events, _) = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(it) => it,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            if let Some(link) = self.links.get_mut(&number) {
                let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                let readable = broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                link.wake(readable, broken || flags.contains(EventFlags::OUT), broken);
                self.wants_turn(number);
            } else if number != WORKER {
                self.accept(number);
            }
        }
        Ok(())
    }

    /// Accepts the connections that wait at a listener.
    fn accept(&mut self, number: u64) {
        for _ in 0..ACCEPTS {
            let Some((listener, owner)) = self.listeners.get(&number) else {
                return;
            };
            let peer = match owner {
                Owner::Here(..) => self.uplink.as_ref().and_then(|it| it.connection),
                Owner::Peer(id, _) => Some(*id),
            };
            // Without a connection they wait in the backlog.
            let Some(peer) = peer else { return };
            let owner = owner.clone();
            let socket = match listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => {
                    self.starved = true;
                    return;
                }
            };
            let (purpose, priority) = match owner {
                Owner::Here(target, priority) => (target.map(Request::Connect), priority),
                Owner::Peer(_, stream) => {
                    let engine = self.peers.get(&peer).map(|it| &it.session.engine);
                    let priority = engine.and_then(|it| it.priority(stream));
                    (Some(Request::From(stream.0)), priority)
                }
            };
            self.begin(socket, peer, purpose, priority);
        }
        // There may be more.
        self.starved = true;
    }

    /// Forwards a socket that was accepted.
    fn begin(
        &mut self,
        socket: OwnedFd,
        peer: ConnectionId,
        purpose: Option<Request>,
        priority: Option<u8>,
    ) {
        let Some(purpose) = purpose else {
            let stage = Stage::Negotiates(Negotiation::default(), priority);
            let _ = self.watch_link(Link::new(socket, peer, stage));
            return;
        };
        match self.open(peer, &purpose, priority) {
            Some(stream) => self.join(socket, peer, stream),
            None => abort(socket),
        }
    }

    /// Opens a stream to `peer`.
    fn open(
        &mut self,
        peer: ConnectionId,
        purpose: &Request,
        priority: Option<u8>,
    ) -> Option<StreamId> {
        let engine = &mut self.peers.get_mut(&peer)?.session.engine;
        self.changed.insert(peer);
        match engine.open(purpose.to_string().as_bytes(), priority) {
            Ok(stream) => Some(stream),
            Err(error) => {
                (self.notify)(Notice::Refused(format!(
                    "a connection was not forwarded: {error}"
                )));
                None
            }
        }
    }

    /// Connects a socket and a stream.
    fn join(&mut self, socket: OwnedFd, peer: ConnectionId, stream: StreamId) {
        let joined = self.watch_link(Link::new(socket, peer, Stage::Open(stream)));
        let Some(it) = self.peers.get_mut(&peer) else {
            return;
        };
        match joined {
            Ok(number) => {
                it.uses.insert(stream, Use::Link(number));
            }
            Err(error) => {
                it.uses.remove(&stream);
                it.session
                    .engine
                    .reset(stream, ResetCode::Aborted, &error.to_string());
                it.session.engine.release(stream);
            }
        }
        self.changed.insert(peer);
    }

    /// Takes what happened to connections.
    fn take_happened(&mut self) -> Result<(), Error> {
        while let Some(happened) = self.worker.next_event() {
            match happened {
                Happened::Accepted { connection, .. } => {
                    let Some(it) = self.worker.connection(connection) else {
                        continue;
                    };
                    let (key, name) = (it.peer_key(), it.peer_addr().to_string());
                    (self.notify)(Notice::Came(name.clone()));
                    let peer = Peer::new(connection, Role::Acceptor, key, name);
                    self.peers.insert(connection, peer);
                    self.changed.insert(connection);
                }
                Happened::Completed {
                    connection,
                    completion,
                } => {
                    let Some(peer) = self.peers.get_mut(&connection) else {
                        continue;
                    };
                    match peer.session.on_completed(completion, Instant::now()) {
                        Ok(()) => {
                            self.changed.insert(connection);
                        }
                        Err(why) => self.lose(connection, &why.to_string()),
                    }
                }
                Happened::Closed { connection, reason } => {
                    self.lose(connection, &reason.to_string())
                }
                Happened::EndpointFailed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends everything of a connection that is over, or must be.
    fn lose(&mut self, id: ConnectionId, why: &str) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        self.changed.remove(&id);
        // Not by `close`, which would deliver more first.
        drop(self.worker.release(id));
        let links: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, it)| it.peer == id)
            .map(|(it, _)| *it)
            .collect();
        for number in links {
            self.links.remove(&number);
        }
        self.listeners
            .retain(|_, (_, owner)| !matches!(owner, Owner::Peer(it, _) if *it == id));
        match &mut self.uplink {
            Some(uplink) if uplink.connection == Some(id) => {
                uplink.connection = None;
                uplink.at = Instant::now() + uplink.wait;
                (self.notify)(Notice::Broken(why.to_owned()));
            }
            _ => (self.notify)(Notice::Left(peer.name, why.to_owned())),
        }
    }

    /// Makes the connection again, if it is broken and the time has come.
    fn redial(&mut self) -> Result<(), Error> {
        let Some(uplink) = self.uplink.as_mut().filter(|it| it.connection.is_none()) else {
            return Ok(());
        };
        match uplink.made.1.try_recv() {
            Ok(Ok(connection)) => {
                (uplink.dialing, uplink.wait) = (false, AGAIN);
                self.attach(connection)?;
                (self.notify)(Notice::Again);
                return Ok(());
            }
            Ok(Err(_)) => {
                uplink.dialing = false;
                uplink.wait = (uplink.wait * 2).min(AGAIN_AT_MOST);
                uplink.at = Instant::now() + uplink.wait;
            }
            Err(_) => {}
        }
        if !uplink.dialing && Instant::now() >= uplink.at {
            let (dial, tell, waker) = (
                Arc::clone(&uplink.dial),
                uplink.made.0.clone(),
                self.worker.waker(),
            );
            let run = move || {
                let _ = tell.send(dial());
                waker.wake();
            };
            uplink.dialing = thread::Builder::new()
                .name("connect".into())
                .spawn(run)
                .is_ok();
        }
        Ok(())
    }

    /// Advances the links that have something to do.
    fn pass(&mut self) {
        for _ in 0..LINKS.min(self.busy.len()) {
            if let Some(number) = self.busy.pop_front() {
                self.pass_one(number);
            }
        }
    }

    fn pass_one(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        link.has_turn();
        let Some(peer) = self.peers.get_mut(&link.peer) else {
            return;
        };
        if matches!(link.stage, Stage::Negotiates(..)) {
            return self.negotiate(number);
        }
        self.changed.insert(link.peer);
        match link.pass(&mut peer.session.engine) {
            After::Sleeps => {}
            After::GoesOn => self.wants_turn(number),
            After::Over => {
                if let Some(stream) = link.stream() {
                    peer.uses.remove(&stream);
                    peer.session.engine.release(stream);
                }
                if let Some(link) = self.links.remove(&number) {
                    link.close();
                }
            }
            After::Failed(why) => {
                if let Some(stream) = link.stream() {
                    peer.uses.remove(&stream);
                }
                link.fail(&mut peer.session.engine, &why);
                self.links.remove(&number);
            }
        }
    }

    /// Answers a SOCKS5 client.
    fn negotiate(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let (peer, step) = (link.peer, link.negotiate());
        let (target, priority, rest) = match step {
            Negotiated::Waits => return,
            Negotiated::Over => {
                if let Some(link) = self.links.remove(&number) {
                    link.close();
                }
                return;
            }
            Negotiated::Wants(target, priority, rest) => (target, priority, rest),
        };
        let Some(stream) = self.open(peer, &Request::Connect(target), priority) else {
            self.links.remove(&number);
            return;
        };
        if let Some(link) = self.links.get_mut(&number) {
            link.stage = Stage::Connects(stream, rest);
        }
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.uses.insert(stream, Use::Link(number));
        }
    }

    /// Posts what streams have to send, and processes their events, until there is nothing.
    fn settle(&mut self) -> Result<(), Error> {
        for id in std::mem::take(&mut self.changed) {
            while let Some(peer) = self.peers.get_mut(&id) {
                if let Err(why) = peer.session.post(&mut self.worker, Instant::now()) {
                    self.lose(id, &why.to_string());
                    break;
                }
                let Some(event) = peer.session.engine.next_event() else {
                    break;
                };
                self.on_event(id, event)?;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, id: ConnectionId, event: Event) -> Result<(), Error> {
        let Some(peer) = self.peers.get_mut(&id) else {
            return Ok(());
        };
        match event {
            Event::Opened(stream) => self.on_opened(id, stream),
            Event::Accepted(stream) => match peer.uses.get(&stream) {
                Some(&Use::Link(number)) => self.connected(number),
                Some(&Use::Asked(index)) => self.listens(index),
                _ => {}
            },
            Event::Readable(stream) | Event::Writable(stream) => match peer.uses.get(&stream) {
                Some(&Use::Link(number)) => self.wants_turn(number),
                Some(&Use::Lease(number)) if peer.session.engine.is_over(stream) => {
                    self.listeners.remove(&number);
                    peer.uses.remove(&stream);
                    peer.session.engine.release(stream);
                }
                _ => {}
            },
            Event::Reset(stream) => {
                let reset = peer.session.engine.reset_reason(stream).cloned();
                let used = peer.uses.remove(&stream);
                peer.session.engine.release(stream);
                if used == Some(Use::Dials) {
                    self.dials.cancel(|it| *it == (id, stream));
                }
                if let (Some(reset), Some(used)) = (reset, used) {
                    self.on_reset(used, reset)?;
                }
            }
        }
        Ok(())
    }

    fn on_reset(&mut self, used: Use, reset: Reset) -> Result<(), Error> {
        match used {
            Use::Link(number) => {
                if let Some(link) = self.links.remove(&number)
                    && let Stage::Connects(..) = link.stage
                {
                    let mut out = Vec::new();
                    let reply = match reset.code {
                        ResetCode::Denied => Reply::NotAllowed,
                        ResetCode::Unreachable => Reply::Unreachable,
                        _ => Reply::Failed,
                    };
                    answer(reply, &mut out);
                    let _ = link.answer(&out);
                    link.close();
                }
                if reset.code != ResetCode::Aborted {
                    (self.notify)(Notice::Refused(reset.words));
                }
                Ok(())
            }
            Use::Lease(number) => {
                self.listeners.remove(&number);
                Ok(())
            }
            Use::Dials => Ok(()),
            Use::Asked(index) => {
                let forward = self.uplink.as_ref().and_then(|it| it.forwards.get(index));
                let on = match forward {
                    Some(Forward::Back { listen, .. }) => listen.to_string(),
                    _ => String::new(),
                };
                let denied = reset.code == ResetCode::Denied;
                Err(Error::Refused {
                    on,
                    why: reset.words,
                    denied,
                })
            }
        }
    }

    /// The peer has connected for a link.
    fn connected(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let Stage::Connects(stream, rest) = &mut link.stage else {
            return;
        };
        let (stream, rest) = (*stream, std::mem::take(rest));
        let mut out = Vec::new();
        answer(Reply::Succeeded, &mut out);
        // If the client has left, the next turn notices.
        let _ = link.answer(&out);
        link.stage = Stage::Open(stream);
        if let Some(peer) = self.peers.get_mut(&link.peer)
            && !rest.is_empty()
        {
            // A new stream has room for it.
            peer.session.engine.fill(stream, |place| {
                place[..rest.len()].copy_from_slice(&rest);
                Ok(rest.len())
            });
        }
        self.wants_turn(number);
    }

    /// The peer listens, as forward `index` asked.
    fn listens(&mut self, index: usize) {
        let forward = self.uplink.as_ref().and_then(|it| it.forwards.get(index));
        if let Some(Forward::Back { listen, target, .. }) = forward {
            (self.notify)(Notice::Listening {
                on: format!("the other end's {listen}"),
                to: target.to_string(),
            });
        }
    }
}
