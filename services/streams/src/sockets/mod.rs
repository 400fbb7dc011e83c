//! Carries the TCP connections of unchanged programs over streams.
//!
//! A small library, loaded into the program by the linker, asks a [`Pump`] in another process about each connection
//! that the program makes or accepts ([`call`], [`program`]). For programs that load none, a trap does ([`trapped`]).
//!
//! Connections are the kernel's TCP first. Where the other host has a pump,
//! too, the library gives its end of the TCP connection to the pump, and the program gets in its place a TCP socket
//! that is connected to the pump over loopback. So readiness, options, half-close, resets, `dup`, `fork` and `exec` are
//! the kernel's, and nothing of the program's data path is touched.
//!
//! # How two ends agree
//!
//! ```text
//! client's pump                                        server's pump
//!   question (port from, port to)          -- UDP -->  expects a client from there
//!                                         <-- UDP --   yes: key, port, token
//! the program's TCP connects                           the program accepts: it was expected, so the pump takes it
//!   connects to the key, opens a stream    ---------->
//!   with the token                        <----------  accepts the stream
//!   first byte: from now on, the stream    ---------->
//! ```
//!
//! Nothing but the program's own bytes ever goes over TCP, so a host that says yes and cannot keep it does no harm:
//! until the first byte of the stream both ends can go on by TCP, which the pumps then copy. The client decides. From
//! that byte on, the idle TCP connection only tells whether the other end lives: its reset is a reset.
//!
//! A host without a pump has no socket at the UDP port. Its system says so at once, or says nothing; then the client
//! waits for two round trips, at least 20 ms, and asks that address no more for a minute. The connection is the
//! program's own TCP then, untouched.

mod answering;
mod asking;
pub mod call;
mod copying;
mod link;
pub mod program;
pub mod question;
pub mod rules;
mod shown;
pub mod trapped;

pub use shown::connections;

use crate::engine::{Event, Fill, OpenError, Role};
use crate::message::{ResetCode, StreamId};
use crate::passing::{After, Passing};
use crate::session::Session;
use answering::Caller;
use asking::{Expected, Listening};
use call::Runner;
use link::{Link, State};
use question::NONCE_BYTES;
use rules::Rule;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane::counters::LaneKind;
use zerolane::keys::HostTrust;
use zerolane::security::{Identity, PublicKey, Trust, random};
use zerolane::worker::{ConnectionId, EndpointId, Event as Happened, Worker};
use zerolane::{Options, Security};

/// How often the loop asks whether it should stop, and looks for what waits too long.
const LOOK: Duration = Duration::from_millis(200);
/// Descriptors looked at in one turn.
const EVENTS: usize = 256;
/// Links advanced in one turn.
const LINKS: usize = 64;
/// The least that a client waits for the other end to agree, before it uses TCP: some round trips of a long path, and a
/// repeated packet of the handshake.
const AGREE_WITHIN: Duration = Duration::from_secs(3);
/// How much longer a server waits for a client's stream, so that the client is the one that decides.
const COME_LATER: Duration = Duration::from_secs(2);
/// How long a program's end may take to reach the pump over loopback.
const MEET_WITHIN: Duration = Duration::from_secs(10);
/// The least that a client waits for an answer; it waits for two round trips if they are longer.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(20);
/// Calls at a time; further programs go on by TCP.
const MAX_CALLERS: usize = 1024;
/// Programs' ends that the pump accepted before it knew for what.
const MAX_PARKED: usize = 1024;
/// Connections that clients of all hosts together have announced and not made.
const MAX_EXPECTED: usize = 4096;
/// The byte by which a client says that it uses the stream.
const GO: u8 = b'g';
/// What the purpose of a stream begins with; the token follows.
const PURPOSE: &[u8] = b"socket ";

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Zerolane carries a connection: the own address, the peer's, the lane.
    Carried(SocketAddr, SocketAddr, &'static str),
    /// TCP carries a connection with this peer, and why.
    Plain(SocketAddr, String),
    /// A connection was reset, and why.
    Reset(SocketAddr, String),
    /// Clients of this address cannot ask for Zerolane, and why.
    Deaf(SocketAddr, String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Carried(local, peer, lane) => write!(f, "{local} {peer}: Zerolane over {lane}"),
            Notice::Plain(peer, why) => write!(f, "{peer}: TCP: {why}"),
            Notice::Reset(peer, why) => write!(f, "{peer}: reset: {why}"),
            Notice::Deaf(on, why) => {
                write!(f, "clients of {on} will use TCP: {why}")
            }
        }
    }
}

/// What a pump does for whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The connections that are tried by Zerolane; none: all.
    pub only: Vec<Rule>,
    /// Connections that Zerolane cannot carry fail.
    pub strict: bool,
    /// The least that a client waits for an answer, from its question on: [`ANSWER_WITHIN`], or more where hosts are busy.
    /// More than three seconds are also the time that it has to connect.
    pub answer_within: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            only: Vec::new(),
            strict: false,
            answer_within: ANSWER_WITHIN,
        }
    }
}

/// What a watched descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Calls arrive.
    Door,
    /// Programs' ends arrive.
    Inner,
    /// A call of this number.
    Caller(u64),
    /// The answer to the question of this caller.
    Asked(u64),
    /// Questions arrive at this listener.
    Listening(u64),
    /// The program's end of a link.
    Program(u64),
    /// The TCP connection of a link.
    Tcp(u64),
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Link(u64),
    /// The client came before the program accepted.
    Early([u8; NONCE_BYTES]),
}

/// The connection to another pump.
struct Peer {
    /// `None`: it is being made.
    session: Option<Session>,
    uses: HashMap<StreamId, Use>,
    /// It is over; what arrived before is still delivered.
    over: bool,
    /// Links that wait until it is made.
    waiting: Vec<u64>,
}

/// What becomes of a token that a client was given.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// The program has not accepted.
    Expected(asking::Way),
    /// The program has accepted.
    Link(u64),
}

/// See the [module](self). One loop in one thread.
pub struct Pump {
    worker: Worker,
    epoll: OwnedFd,
    runner: Runner,
    settings: Settings,
    identity: Arc<Identity>,
    door: OwnedFd,
    inner: TcpListener,
    sources: HashMap<u64, Source>,
    next: u64,
    callers: HashMap<u64, Caller>,
    listening: HashMap<u64, Listening>,
    endpoints: HashMap<IpAddr, (EndpointId, u16)>,
    peers: HashMap<ConnectionId, Peer>,
    /// The connections that this end made, by address and key.
    ways: HashMap<(SocketAddr, [u8; 32]), ConnectionId>,
    links: HashMap<u64, Link>,
    /// Which link the program's end on a port belongs to, and ends whose link is not known yet.
    ports: HashMap<u16, u64>,
    parked: HashMap<u16, (OwnedFd, Instant)>,
    expected: HashMap<asking::Way, Expected>,
    claims: HashMap<[u8; NONCE_BYTES], Claim>,
    /// Connections accepted as TCP a moment ago, so that a question that comes late gets no yes.
    missed: VecDeque<(asking::Way, Instant)>,
    /// Addresses without Zerolane, and until when they are not asked.
    without: HashMap<SocketAddr, Instant>,
    busy: VecDeque<u64>,
    changed: HashSet<ConnectionId>,
    loaded: u64,
    notify: Box<dyn FnMut(Notice)>,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

impl Pump {
    /// A pump that programs reach by [`Pump::runner`].
    ///
    /// # Errors
    /// The system has no descriptor left, or no loopback interface.
    pub fn new(settings: Settings, notify: impl FnMut(Notice) + 'static) -> io::Result<Pump> {
        let worker = Worker::new()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &worker, EventData::new_u64(0), EventFlags::IN)?;
        let inner = TcpListener::bind("127.0.0.1:0")?;
        // As many as the system allows: a program may make thousands of connections at once.
        listen(&inner, 4096)?;
        inner.set_nonblocking(true)?;
        // Pacing, as of BBR, only holds up what never leaves the machine.
        let _ = sockopt::set_tcp_congestion(&inner, "reno");
        let runner = Runner::new(random()?, inner.local_addr()?.port(), settings.strict);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let door = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&door, &SocketAddrUnix::new_abstract_name(&runner.name())?)?;
        listen(&door, 4096)?;
        let mut pump = Pump {
            worker,
            epoll,
            runner,
            settings,
            identity: Arc::new(Identity::from_secret(random()?)),
            door,
            inner,
            sources: HashMap::new(),
            next: 1,
            callers: HashMap::new(),
            listening: HashMap::new(),
            endpoints: HashMap::new(),
            peers: HashMap::new(),
            ways: HashMap::new(),
            links: HashMap::new(),
            ports: HashMap::new(),
            parked: HashMap::new(),
            expected: HashMap::new(),
            claims: HashMap::new(),
            missed: VecDeque::new(),
            without: HashMap::new(),
            busy: VecDeque::new(),
            changed: HashSet::new(),
            loaded: 0,
            notify: Box::new(notify),
        };
        let door = pump.number(Source::Door);
        epoll::add(
            &pump.epoll,
            &pump.door,
            EventData::new_u64(door),
            EventFlags::IN,
        )?;
        let inner = pump.number(Source::Inner);
        epoll::add(
            &pump.epoll,
            &pump.inner,
            EventData::new_u64(inner),
            EventFlags::IN,
        )?;
        Ok(pump)
    }

    /// How programs reach it: the content of [`call::VARIABLE`].
    pub fn runner(&self) -> Runner {
        self.runner
    }

    /// How many programs have loaded the library.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Whether no connection is left, and everything that programs wrote is at the other end.
    pub fn is_idle(&self) -> bool {
        let flushed = |it: &Peer| it.session.as_ref().is_none_or(|it| it.engine.is_flushed());
        self.links.is_empty() && self.peers.values().all(flushed)
    }

    /// Runs until `stop` says so, which it may after each turn.
    ///
    /// # Errors
    /// The system refused something without which nothing works.
    pub fn run(&mut self, mut stop: impl FnMut(&Pump) -> bool) -> io::Result<()> {
        let mut looked = Instant::now();
        while !stop(self) {
            self.take_happened();
            self.pass();
            self.settle();
            self.tell_late();
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(looked);
            }
            let more = self.worker.progress()?;
            let at_once =
                more || !self.busy.is_empty() || !self.changed.is_empty() || !self.worker.arm()?;
            let due = self.next_deadline().map_or(LOOK, |it| {
                it.saturating_duration_since(Instant::now()).min(LOOK)
            });
            self.sleep(if at_once { Duration::ZERO } else { due })?;
        }
        Ok(())
    }

    /// Disconnects from the other pumps, after they have all that was written, if that is soon.
    ///
    /// # Errors
    /// The worker failed.
    pub fn close(mut self) -> io::Result<()> {
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

    /// A new number for a descriptor to watch.
    fn number(&mut self, source: Source) -> u64 {
        let number = self.next;
        self.next += 1;
        self.sources.insert(number, source);
        number
    }

    fn options(&self, trust: Arc<dyn Trust>) -> Options {
        let security = Security {
            identity: Some(Arc::clone(&self.identity)),
            trust,
            ..Security::default()
        };
        Options::default().with(|it| {
            it.security = security;
            it.times.keep_alive = true;
        })
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
            match self.sources.get(&number) {
                Some(Source::Door) => self.take_callers(),
                Some(Source::Inner) => self.take_programs(),
                Some(&Source::Caller(caller)) => self.hear(caller),
                Some(&Source::Asked(caller)) => self.take_answer(caller),
                Some(&Source::Listening(listening)) => self.take_questions(listening),
                Some(&Source::Program(link)) => {
                    let program = self.links.get_mut(&link).and_then(|it| it.program.as_mut());
                    if let Some(program) = program {
                        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                        let readable =
                            broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                        program.wake(readable, broken || flags.contains(EventFlags::OUT), broken);
                        self.wants_turn(link);
                    }
                }
                Some(&Source::Tcp(link)) => self.tcp_changed(link, flags),
                None => {}
            }
        }
        Ok(())
    }

    /// Gives a link a turn, once.
    fn wants_turn(&mut self, number: u64) {
        if let Some(link) = self.links.get_mut(&number)
            && !std::mem::replace(&mut link.waits, true)
        {
            self.busy.push_back(number);
        }
    }

    fn watch(&mut self, link: u64, source: Source) {
        let number = self.number(source);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let Some(it) = self.links.get_mut(&link) else {
            return;
        };
        let socket = match source {
            Source::Tcp(_) => it.tcp.as_fd(),
            _ => match &it.program {
                Some(program) => program.as_fd(),
                None => return,
            },
        };
        it.watched.push(number);
        if let Err(error) = epoll::add(&self.epoll, socket, EventData::new_u64(number), flags) {
            self.abort(link, &error.to_string());
        }
    }

    /// Keeps a new link. Its program's end is there already, or comes.
    fn add(&mut self, link: Link) -> u64 {
        let number = self.next;
        self.next += 1;
        let port = link.port;
        // A port is used again only after its last connection is over.
        if let Some(old) = self.ports.insert(port, number) {
            self.abort(old, "its program is gone");
            self.ports.insert(port, number);
        }
        self.links.insert(number, link);
        self.watch(number, Source::Tcp(number));
        if let Some((socket, _)) = self.parked.remove(&port) {
            self.meet(number, socket);
        }
        number
    }

    /// The program's end of a link has come.
    fn meet(&mut self, number: u64, socket: OwnedFd) {
        if let Some(link) = self.links.get_mut(&number)
            && link.program.is_none()
        {
            link.program = Some(Passing::new(socket));
            self.watch(number, Source::Program(number));
            self.wants_turn(number);
        }
    }

    /// Accepts the ends of programs.
    fn take_programs(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = accept_with(&self.inner, flags) {
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let peer = rustix::net::getpeername(&socket).ok().flatten();
            let peer = peer.and_then(|it| SocketAddr::try_from(it).ok());
            // Another address could have the port of a program's end.
            let own = peer.filter(|it| it.ip() == Ipv4Addr::LOCALHOST);
            let Some(port) = own.map(|it| it.port()) else {
                continue;
            };
            match self.ports.get(&port) {
                Some(&link) => self.meet(link, socket),
                None if self.parked.len() < MAX_PARKED => {
                    self.parked.insert(port, (socket, Instant::now()));
                }
                None => {}
            }
        }
    }

    /// Removes a link from everywhere but its stream.
    fn remove(&mut self, number: u64) -> Option<Link> {
        let link = self.links.remove(&number)?;
        for watched in &link.watched {
            self.sources.remove(watched);
        }
        if self.ports.get(&link.port) == Some(&number) {
            self.ports.remove(&link.port);
        }
        if let State::Expects(token) | State::Dials(token) = link.state {
            self.claims.remove(&token);
        }
        if let Some((peer, stream)) = link.stream()
            && let Some(it) = self.peers.get_mut(&peer)
        {
            it.uses.remove(&stream);
            self.changed.insert(peer);
        }
        Some(link)
    }

    /// Ends a link at once: the program and the other end see a reset.
    fn abort(&mut self, number: u64, why: &str) {
        let Some(link) = self.remove(number) else {
            return;
        };
        if let Some((id, stream)) = link.stream()
            && let Some(peer) = self.peers.get_mut(&id)
            && let Some(session) = peer.session.as_mut()
        {
            let is_over = peer.over;
            session.engine.abort(stream, ResetCode::Aborted, why);
            if matches!(link.state, State::Open(..)) && !is_over {
                // The stream's reset comes behind what was written; that of TCP would not.
                let _ = sockopt::set_socket_linger(&link.tcp, None);
            }
        }
        (self.notify)(Notice::Reset(link.peer, why.to_owned()));
    }

    /// Goes on by TCP, if that is allowed.
    fn fall_back(&mut self, number: u64, why: &str) {
        if self.settings.strict {
            return self.abort(number, why);
        }
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let (stream, peer, is_client) = (link.stream(), link.peer, link.is_client);
        if let State::Expects(token) = link.state {
            self.claims.remove(&token);
        }
        link.state = State::Plain(Box::default());
        if let Some((id, stream)) = stream
            && let Some(it) = self.peers.get_mut(&id)
        {
            it.uses.remove(&stream);
            if let Some(session) = &mut it.session {
                session.engine.reset(stream, ResetCode::Aborted, why);
                session.engine.release(stream);
            }
            self.changed.insert(id);
        }
        if is_client {
            self.is_without(peer);
        }
        (self.notify)(Notice::Plain(peer, why.to_owned()));
        self.wants_turn(number);
    }

    /// The kernel reported a change of a link's TCP connection.
    fn tcp_changed(&mut self, number: u64, flags: EventFlags) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        match link.state {
            State::Plain(_) => self.wants_turn(number),
            State::Open(peer, stream) if broken => {
                // The other end may have ended in order meanwhile: then everything has arrived, or is on its way.
                let failed = sockopt::socket_error(&link.tcp).is_ok_and(|it| it.is_err());
                let session = self.peers.get(&peer).and_then(|it| it.session.as_ref());
                let complete = session.is_some_and(|it| it.engine.is_complete(stream));
                if failed && !complete {
                    self.abort(number, "the other end reset its TCP connection");
                }
            }
            State::Open(..) => {}
            _ if broken => self.abort(number, "the TCP connection was reset"),
            // Bytes by TCP: the client has decided.
            State::Expects(_) | State::Offers(..) if flags.contains(EventFlags::IN) => {
                self.fall_back(number, "the client uses TCP");
            }
            _ => {}
        }
    }

    /// Takes what happened to connections.
    fn take_happened(&mut self) {
        while let Some(happened) = self.worker.next_event() {
            match happened {
                Happened::Accepted { connection, .. } => {
                    self.begin(connection, Role::Acceptor, Vec::new());
                }
                Happened::Connected { connection } => {
                    let waiting = match self.peers.get_mut(&connection) {
                        Some(peer) => std::mem::take(&mut peer.waiting),
                        None => continue,
                    };
                    self.begin(connection, Role::Connector, waiting);
                }
                Happened::Completed {
                    connection,
                    completion,
                } => {
                    let peer = self.peers.get_mut(&connection);
                    let Some(session) = peer.and_then(|it| it.session.as_mut()) else {
                        continue;
                    };
                    match session.on_completed(completion, Instant::now()) {
                        Ok(()) => {
                            self.changed.insert(connection);
                        }
                        Err(why) => self.lose(connection, &why.to_string()),
                    }
                }
                Happened::Closed { connection, reason } => {
                    self.lose(connection, &reason.to_string());
                }
                Happened::EndpointFailed { endpoint, .. } => {
                    self.endpoints.retain(|_, it| it.0 != endpoint);
                }
                _ => {}
            }
        }
    }

    /// A connection is established.
    fn begin(&mut self, id: ConnectionId, role: Role, waiting: Vec<u64>) {
        let peer = Peer {
            session: Some(Session::new(id, role)),
            uses: HashMap::new(),
            over: false,
            waiting: Vec::new(),
        };
        self.peers.insert(id, peer);
        self.changed.insert(id);
        for link in waiting {
            self.ask(link, id);
        }
    }

    /// Opens the stream of a client's link.
    fn ask(&mut self, number: u64, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let (State::Dials(token), Some(peer)) = (&link.state, self.peers.get_mut(&id)) else {
            return;
        };
        let Some(session) = peer.session.as_mut() else {
            return peer.waiting.push(number);
        };
        let purpose = [PURPOSE, &token[..]].concat();
        match session.engine.open(&purpose, None) {
            Ok(stream) => {
                peer.uses.insert(stream, Use::Link(number));
                link.state = State::Asks(id, stream);
                self.changed.insert(id);
            }
            Err(OpenError::TooMany) => {
                let way = self.ways.iter().find(|(_, it)| **it == id);
                let Some((to, key)) = way.map(|(way, _)| *way) else {
                    return self.fall_back(number, "too many connections");
                };
                // One more connection; this one keeps its streams.
                self.ways.remove(&(to, key));
                match self.dial(to, key) {
                    Ok(other) => self.ask(number, other),
                    Err(error) => self.fall_back(number, &error.to_string()),
                }
            }
            Err(error) => self.fall_back(number, &error.to_string()),
        }
    }

    /// Begins to connect a client's link to the pump of its server.
    fn dial(&mut self, to: SocketAddr, key: [u8; 32]) -> io::Result<ConnectionId> {
        if let Some(&id) = self.ways.get(&(to, key)) {
            return Ok(id);
        }
        let options = self.options(Arc::new(HostTrust::only(PublicKey(key))));
        let id = self.worker.connect(to, &options)?;
        self.ways.insert((to, key), id);
        let peer = Peer {
            session: None,
            uses: HashMap::new(),
            over: false,
            waiting: Vec::new(),
        };
        self.peers.insert(id, peer);
        Ok(id)
    }

    /// Ends what a connection that is over carried, except what has arrived and is not delivered.
    fn lose(&mut self, id: ConnectionId, why: &str) {
        self.ways.retain(|_, it| *it != id);
        drop(self.worker.release(id));
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.over = true;
        let waiting = std::mem::take(&mut peer.waiting);
        let uses: Vec<_> = peer.uses.iter().map(|(it, what)| (*it, *what)).collect();
        for (stream, what) in uses {
            let link = match what {
                Use::Link(link) => link,
                Use::Early(token) => {
                    self.forget(token);
                    continue;
                }
            };
            let session = self.peers.get(&id).and_then(|it| it.session.as_ref());
            let complete = session.is_some_and(|it| it.engine.is_complete(stream));
            match self.links.get(&link).map(|it| it.is_undecided()) {
                Some(true) => self.fall_back(link, why),
                Some(false) if !complete => self.abort(link, why),
                Some(false) => self.wants_turn(link),
                None => {}
            }
        }
        for link in waiting {
            self.fall_back(link, why);
        }
        self.drop_if_over(id);
    }

    fn drop_if_over(&mut self, id: ConnectionId) {
        if self
            .peers
            .get(&id)
            .is_some_and(|it| it.over && it.uses.is_empty())
        {
            self.peers.remove(&id);
            self.changed.remove(&id);
        }
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
        link.waits = false;
        let Some(program) = link.program.as_mut() else {
            return;
        };
        let after = match &mut link.state {
            State::Open(peer, stream) => {
                let it = self.peers.get_mut(peer);
                let Some(session) = it.and_then(|it| it.session.as_mut()) else {
                    return self.abort(number, "the connection to the other end is over");
                };
                self.changed.insert(*peer);
                program.pass(&mut session.engine, *stream)
            }
            State::Plain(copying) => copying.pass(program.as_fd(), link.tcp.as_fd()),
            _ => return,
        };
        match after {
            After::Sleeps => {}
            After::GoesOn => self.wants_turn(number),
            After::Over => {
                if let Some(link) = self.remove(number) {
                    if let Some((peer, stream)) = link.stream() {
                        let session = self.peers.get_mut(&peer).and_then(|it| it.session.as_mut());
                        if let Some(session) = session {
                            session.engine.release(stream);
                        }
                        self.drop_if_over(peer);
                    }
                    link.close();
                }
            }
            After::Failed(why) => self.abort(number, &why),
        }
    }

    /// Posts what streams have to send, and processes their events, until there is nothing.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.changed) {
            while let Some(peer) = self.peers.get_mut(&id).filter(|it| !it.over) {
                let Some(session) = peer.session.as_mut() else {
                    break;
                };
                if let Err(why) = session.post(&mut self.worker, Instant::now()) {
                    self.lose(id, &why.to_string());
                    break;
                }
                let Some(event) = session.engine.next_event() else {
                    break;
                };
                self.on_event(id, event);
            }
            self.drop_if_over(id);
        }
    }

    fn on_event(&mut self, id: ConnectionId, event: Event) {
        let stream = match event {
            Event::Opened(stream) => return self.on_opened(id, stream),
            Event::Accepted(it) | Event::Readable(it) | Event::Writable(it) | Event::Reset(it) => {
                it
            }
        };
        let used = self.peers.get(&id).and_then(|it| it.uses.get(&stream));
        let number = match used {
            Some(&Use::Link(number)) => number,
            Some(&Use::Early(token)) => {
                if matches!(event, Event::Reset(_)) {
                    self.forget(token);
                }
                return;
            }
            None => return,
        };
        match (event, self.links.get(&number).map(|it| &it.state)) {
            (Event::Accepted(_), Some(State::Asks(..))) => {
                self.set(number, State::Agrees(id, stream));
                self.go(number, id, stream);
            }
            (Event::Writable(_), Some(State::Agrees(..))) => self.go(number, id, stream),
            (Event::Readable(_), Some(State::Offers(..))) => self.hear_go(number, id, stream),
            (Event::Reset(_), Some(State::Open(..))) => {
                self.abort(number, "the other end reset the connection");
            }
            (Event::Reset(_), Some(State::Asks(..) | State::Agrees(..) | State::Offers(..))) => {
                self.fall_back(number, "the other end prefers TCP");
            }
            (Event::Readable(_) | Event::Writable(_), Some(State::Open(..))) => {
                self.wants_turn(number);
            }
            _ => {}
        }
    }

    fn set(&mut self, number: u64, state: State) {
        if let Some(link) = self.links.get_mut(&number) {
            link.state = state;
        }
    }

    /// Tells the peer that the stream is used from now on.
    fn go(&mut self, number: u64, id: ConnectionId, stream: StreamId) {
        let Some(session) = self.peers.get_mut(&id).and_then(|it| it.session.as_mut()) else {
            return;
        };
        let filled = session.engine.fill(stream, |place| {
            place[0] = GO;
            Ok(1)
        });
        match filled {
            Fill::Asked(Ok(_)) => self.open(number, id, stream),
            Fill::Full => {}
            Fill::Ended | Fill::Asked(Err(_)) => {
                self.fall_back(number, "the other end prefers TCP");
            }
        }
    }

    /// The client may have said that it uses the stream.
    fn hear_go(&mut self, number: u64, id: ConnectionId, stream: StreamId) {
        let Some(session) = self.peers.get_mut(&id).and_then(|it| it.session.as_mut()) else {
            return;
        };
        match session.engine.readable(stream).first() {
            None => {}
            Some(&GO) => {
                session.engine.consume(stream, 1);
                self.open(number, id, stream);
            }
            Some(_) => self.abort(number, "the other end broke the rules"),
        }
    }

    /// Both ends have agreed on the stream.
    fn open(&mut self, number: u64, id: ConnectionId, stream: StreamId) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        link.state = State::Open(id, stream);
        let (local, peer) = (link.local, link.peer);
        let lane = self.worker.connection(id).map(|it| it.account().lane);
        let lane = match lane {
            Some(LaneKind::SharedMemory) => "shared memory",
            Some(LaneKind::Ethernet) => "raw Ethernet",
            Some(LaneKind::Ip118) => "IP protocol 118",
            _ => "UDP",
        };
        (self.notify)(Notice::Carried(local, peer, lane));
        self.changed.insert(id);
        self.wants_turn(number);
    }

    /// Gives up what waits too long, and forgets what is old.
    fn look(&mut self, now: Instant) {
        let agree_within = self.settings.answer_within.max(AGREE_WITHIN);
        let mut late = Vec::new();
        for (&number, link) in &self.links {
            let waited = now.duration_since(link.since);
            if link.program.is_none() && waited > MEET_WITHIN {
                late.push((number, true));
            }
            let patience = match link.state {
                State::Dials(_) | State::Asks(..) => agree_within,
                State::Expects(_) => agree_within.saturating_add(COME_LATER),
                _ => continue,
            };
            if waited > patience {
                late.push((number, false));
            }
        }
        for (number, is_lost) in late {
            match is_lost {
                true => self.abort(number, "its program is gone"),
                false => self.fall_back(number, "the other end does not come by Zerolane"),
            }
        }
        self.parked
            .retain(|_, (_, since)| now.duration_since(*since) < MEET_WITHIN);
        self.look_at_questions(now);
        self.look_at_callers(now);
    }
}
