//! Where strangers arrive, over any lane. Each client that proves its identity (or, in plain mode, merely asks) gets a
//! connected socket of its own, or the memory that it shares.

use crate::claim::Claim;
use crate::clock::Clock;
use crate::ethernet::{self, Answering, Attended, Ear, EthernetLane, NoEthernet, Station, Strange};
use crate::ip::{self, IpLane};
use crate::shm::{Arrived, Ends, NoSharedMemory, ShmLane, Visitor, Visitors};
use crate::udp::{self, PacketAddresses, PeerMigration, SharedPort, UdpLane};
use crate::{AnyLane, Driver, LaneChoice, Options, poll, security};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane_handshake::{
    Admitted, Exchange, Gate, GateCounters, Origin, PublicKey, Reply, Session, refuse_hello,
};
use zerolane_wire::handshake::HandshakeMessage;
use zerolane_wire::{Operation, Packet, Reason};

/// Initiators remembered, so that a repeated request does not become a second connection.
const MAX_REMEMBERED: usize = 1024;
/// How long: longer than an Initiator tries.
const REMEMBER: Duration = Duration::from_secs(30);

/// What a listening end counted besides what its gate did ([`Listener::gate_counters`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Datagrams that were no Request_Connection, or one that was refused; and processes of this host that became no
    /// connection: of another user, without proper memory to share, too slow, or gone.
    pub refused: u64,
    /// Connections refused because there were [`Options::max_connections`].
    pub full: u64,
    /// Connections refused because this process or the system had no descriptor or memory left; and how often processes
    /// of this host were left waiting for that reason.
    pub exhausted: u64,
    /// Connections refused because their origin had [`Options::max_connections_of_origin`].
    pub full_of_origin: u64,
    /// Datagrams of connections whose peer moved, or of strangers meanwhile, that were dropped because
    /// too many waited to be looked at.
    pub unread: u64,
}

/// Most clients with a key that is not trusted that are kept until somebody asks for them. A proof of a key takes some
/// 100 us: a flood of strangers makes more than are worth naming.
const UNTRUSTED_CLIENTS: usize = 64;

/// Clients that proved a key which is not trusted, and got no connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untrusted {
    /// Their keys, and where they came from.
    pub clients: Vec<(PublicKey, SocketAddr)>,
    /// How many there were besides.
    pub more: u64,
}

impl Untrusted {
    fn note(&mut self, key: PublicKey, from: SocketAddr) {
        match self.clients.len() < UNTRUSTED_CLIENTS {
            true => self.clients.push((key, from)),
            false => self.more += 1,
        }
    }
}

/// Where a stranger is.
enum Caller {
    /// Where its packets come from.
    Packet(PacketAddresses),
    /// Where its frames come from.
    Frame(Station),
    /// Where its packets of IP protocol 118 come from.
    Raw(PacketAddresses),
    /// In memory that it shares. `None` once it is a connection's.
    Visitor(Option<Box<Visitor>>),
}

/// Whether a stranger becomes a connection.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Admittance {
    /// By this lane.
    By(AnyLane),
    /// There are as many as may be, or the system has no more of what one needs.
    Busy,
    /// It cannot be reached.
    Unreachable,
}

/// How strangers' datagrams are heard.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a listener has one")]
enum Door {
    /// At a UDP port, which is the kernel's.
    Udp,
    /// At a port of raw Ethernet, on which nobody else listens; and what is said of this host's name.
    Ethernet(#[allow(dead_code, reason = "held")] Attended, Answering),
    /// At a port of IP protocol 118, on which nobody else listens.
    Ip118(#[allow(dead_code, reason = "held")] Claim),
}

/// The rendezvous of processes of this host, and one descriptor to watch for it and the port.
#[derive(Debug)]
struct Host {
    visitors: Visitors,
    watched: Epoll,
    /// Has the listener look again after [`PAUSE`].
    timer: TimerFd,
    timed: bool,
    /// There were no descriptors.
    paused: bool,
    /// The rendezvous is watched.
    watches: bool,
}

/// How long a listener without descriptors, or with as many visitors as it may have, lets processes of this host wait before
/// it looks at them again. A visitor that becomes a connection, or leaves, ends the wait for a place at once.
const PAUSE: Duration = Duration::from_millis(50);

/// An event for what is to be watched; none for what is not at present.
fn event(watch: bool) -> EpollEvent {
    let flags = match watch {
        true => EpollFlags::EPOLLIN,
        false => EpollFlags::empty(),
    };
    EpollEvent::new(flags, 0)
}

impl Host {
    fn listen(local: SocketAddr, options: &Options, socket: &Socket) -> io::Result<Host> {
        let visitors = Visitors::listen(local, options.rendezvous.as_ref())?;
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        watched.add(socket, event(true))?;
        watched.add(visitors.rendezvous(), event(true))?;
        watched.add(&timer, event(true))?;
        Ok(Host {
            visitors,
            watched,
            timer,
            timed: false,
            paused: false,
            watches: true,
        })
    }

    fn next(&mut self) -> io::Result<Arrived> {
        if self.timed && self.timer.wait().is_ok() {
            (self.timed, self.paused) = (false, false);
        }
        let has_place = self.visitors.has_place();
        if !has_place {
            // One that says nothing is told by nothing else.
            self.look_again()?;
        }
        let accepts = has_place && !self.paused;
        self.watch_rendezvous(accepts)?;
        let watched = &self.watched;
        let watch = |socket: BorrowedFd<'_>| Ok(watched.add(socket, event(true))?);
        self.visitors.next(accepts, watch)
    }

    /// Those who wait at the rendezvous keep it readable, so it is watched only where they are let in.
    fn watch_rendezvous(&mut self, watch: bool) -> io::Result<()> {
        if watch != self.watches {
            let rendezvous = self.visitors.rendezvous();
            self.watched.modify(rendezvous, &mut event(watch))?;
            self.watches = watch;
        }
        Ok(())
    }

    fn look_again(&mut self) -> io::Result<()> {
        if !self.timed {
            let after = Expiration::OneShot(PAUSE.into());
            self.timer.set(after, TimerSetTimeFlags::empty())?;
            self.timed = true;
        }
        Ok(())
    }

    /// None can be let in for now.
    fn pause(&mut self) -> io::Result<()> {
        self.paused = true;
        self.look_again()?;
        self.watch_rendezvous(false)
    }
}

/// A listening UDP port, or one of raw Ethernet or IP protocol 118, and the rendezvous of processes of this host if
/// [`Options::lane`] asks for it.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<Socket>,
    host: Option<Host>,
    options: Options,
    /// What comes for connections that exist.
    port: Arc<SharedPort>,
    door: Door,
    /// What strangers meet; `None` in plain mode.
    gate: Option<Gate>,
    key: Option<PublicKey>,
    clock: Clock,
    remembered: VecDeque<(Instant, SocketAddr, u32)>,
    counters: ListenerCounters,
    untrusted: Untrusted,
    /// Why it listens by UDP alone, where shared memory would be best.
    no_shared_memory: Option<NoSharedMemory>,
    /// Processes of this host are looked at first, the next time.
    visitors_first: bool,
}

impl Listener {
    /// Listens on `local` (port 0: any), which may be an address that connections of an earlier listener of
    /// this process still have. The connections accepted share a scheduler, that of
    /// `options` or one of their own.
    ///
    /// # Errors
    /// The address is in use or not ours, or the system gives no random numbers; or paths over raw Ethernet were to be taken, and
    /// may not be ([`NoEthernet::NotPermitted`]).
    pub fn bind(local: SocketAddr, options: Options) -> io::Result<Listener> {
        Listener::at(options, |options| match options.lane {
            LaneChoice::Ethernet => {
                let (port, socket, attended) = ethernet::attend(local, options)?;
                let answering = Answering::new(&options.neighbour, port.local().port());
                Ok((port, socket, Door::Ethernet(attended, answering)))
            }
            LaneChoice::Ip118 => {
                let (port, socket, claim) = ip::attend(local, options)?;
                Ok((port, socket, Door::Ip118(claim)))
            }
            LaneChoice::Udp | LaneChoice::Best | LaneChoice::SharedMemory => {
                let ports = &options.ports;
                let (port, socket) = SharedPort::attend(local, options.receive_buffer, ports)?;
                Ok((port, socket, Door::Udp))
            }
        })
    }

    /// Listens on a UDP socket that another program opened and bound, such as one of [`passed_sockets`](udp::passed_sockets). It may be
    /// another user's. What else has it should leave it alone.
    ///
    /// # Errors
    /// It is no UDP socket that is bound and not connected, or connections could not share its address; or the
    /// system gives no random numbers.
    pub fn adopt(socket: OwnedFd, options: Options) -> io::Result<Listener> {
        if let LaneChoice::Ethernet | LaneChoice::Ip118 = options.lane {
            let why = "a UDP socket carries neither raw Ethernet nor IP protocol 118";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Listener::at(options, |options| {
            let (port, socket) = SharedPort::adopt(socket, options.receive_buffer, &options.ports)?;
            Ok((port, socket, Door::Udp))
        })
    }

    fn at(
        mut options: Options,
        attend: impl FnOnce(&Options) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Door)>,
    ) -> io::Result<Listener> {
        options.scheduler.get_or_insert_default();
        let clock = Clock::start();
        let credentials = options.security.credentials()?;
        let mut key = None;
        let gate = match credentials {
            Some(credentials) => {
                key = Some(credentials.identity.public());
                Some(with_random(|draw| {
                    Gate::new(clock.now(), credentials, draw)
                })?)
            }
            None => None,
        };
        if options.takes_ethernet_paths() {
            Ear::try_one()?;
        }
        let (port, socket, door) = attend(&options)?;
        let enciphers = options.security.cipher.is_some();
        let (host, no_shared_memory) = match options.lane {
            LaneChoice::Udp | LaneChoice::Ethernet | LaneChoice::Ip118 => (None, None),
            LaneChoice::Best if enciphers => (None, Some(NoSharedMemory::Cipher)),
            LaneChoice::SharedMemory if enciphers => return Err(NoSharedMemory::Cipher.into()),
            LaneChoice::SharedMemory => {
                let host = Host::listen(port.local(), &options, &socket)?;
                (Some(host), None)
            }
            LaneChoice::Best => match Host::listen(port.local(), &options, &socket) {
                Ok(host) => (Some(host), None),
                // Processes of this host come by UDP.
                Err(_) => (None, Some(NoSharedMemory::without_rendezvous())),
            },
        };
        Ok(Listener {
            socket,
            host,
            port,
            door,
            options,
            gate,
            key,
            clock,
            remembered: VecDeque::new(),
            counters: ListenerCounters::default(),
            untrusted: Untrusted::default(),
            no_shared_memory,
            visitors_first: true,
        })
    }

    /// Makes the address one of the user `uid`, for a process that is about to become that user: every
    /// connection binds a socket of its own to it, and the kernel lets only one user's sockets share
    /// an address. It listens by UDP alone from here on: a rendezvous stays its maker's.
    ///
    /// # Errors
    /// Only root may give to others; and the options insist on something else than UDP, which is another user's, or needs
    /// the rights that are about to go.
    pub fn give_to(&mut self, uid: u32) -> io::Result<()> {
        if !matches!(self.options.lane, LaneChoice::Udp | LaneChoice::Best) {
            let why = "only a listener by UDP can become another user's";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.options.takes_ethernet_paths() {
            let why = "paths over raw Ethernet need the rights that are about to go";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        std::os::unix::fs::fchown(&*self.socket, Some(uid), None)?;
        if self.host.take().is_some() {
            self.no_shared_memory = Some(NoSharedMemory::OtherUser);
        }
        Ok(())
    }

    /// Why it listens by UDP alone although [`Options::lane`] is [`LaneChoice::Best`].
    pub fn no_shared_memory(&self) -> Option<NoSharedMemory> {
        self.no_shared_memory
    }

    /// The key by which clients know this end: `None` in plain mode.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// What the gate counted: `None` in plain mode.
    pub fn gate_counters(&self) -> Option<&GateCounters> {
        self.gate.as_ref().map(Gate::counters)
    }

    /// Whether no stranger gets in any more by the one-time code that is asked for.
    pub fn is_spent(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::is_spent)
    }

    /// The address listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.local()
    }

    /// What was counted of those that did not become connections.
    pub fn counters(&self) -> ListenerCounters {
        let visitors = self.host.as_ref().map_or(0, |it| it.visitors.refused);
        ListenerCounters {
            refused: self.counters.refused + visitors,
            unread: self.port.dropped(),
            ..self.counters
        }
    }

    /// The clients that were not trusted since this was asked the last time.
    pub fn take_untrusted(&mut self) -> Untrusted {
        std::mem::take(&mut self.untrusted)
    }

    /// The next connection, or `None` when `timeout` ran out. Its answer leaves with the driver's
    /// first call.
    ///
    /// # Errors
    /// The socket failed.
    pub fn accept(&mut self, timeout: Option<Duration>) -> io::Result<Option<Driver<AnyLane>>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        loop {
            let accepted = self.try_accept()?;
            if let Accept::Connection(driver) = accepted {
                return Ok(Some(*driver));
            }
            // Also when strangers never stop talking.
            let left = left();
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if matches!(accepted, Accept::Nothing) {
                poll::wait(self.as_fd(), false, [None; 2], left)?;
            }
        }
    }

    /// Looks at the next datagram, without waiting for one.
    ///
    /// # Errors
    /// The socket failed.
    pub fn try_accept(&mut self) -> io::Result<Accept> {
        // By turns, so that neither keeps the other from being looked at.
        let visitors_first = self.visitors_first;
        self.visitors_first = !visitors_first;
        let found = match visitors_first {
            true => self.next_visitor()?,
            false => self.next_stranger()?,
        };
        match (found, visitors_first) {
            (Accept::Nothing, true) => self.next_stranger(),
            (Accept::Nothing, false) => self.next_visitor(),
            (found, _) => Ok(found),
        }
    }

    /// Looks at the next datagram of a stranger.
    fn next_stranger(&mut self) -> io::Result<Accept> {
        let Some((datagram, mut caller)) = self.next_datagram()? else {
            return Ok(Accept::Nothing);
        };
        if self.options.lane == LaneChoice::SharedMemory {
            self.counters.refused += 1;
            return Ok(Accept::Stranger);
        }
        let driver = self.consider(&datagram, &mut caller)?;
        Ok(driver.map_or(Accept::Stranger, |it| Accept::Connection(Box::new(it))))
    }

    /// Looks at the next thing that processes of this host want.
    fn next_visitor(&mut self) -> io::Result<Accept> {
        let Some(host) = &mut self.host else {
            return Ok(Accept::Nothing);
        };
        let arrived = match host.next() {
            Ok(arrived) => arrived,
            Err(error) if is_exhausted(&error) => {
                self.counters.exhausted += 1;
                host.pause()?;
                return Ok(Accept::Nothing);
            }
            Err(error) => return Err(error),
        };
        let (datagram, visitor) = match arrived {
            Arrived::Nothing => return Ok(Accept::Nothing),
            Arrived::Other => return Ok(Accept::Stranger),
            Arrived::Datagram(datagram, visitor) => (datagram, visitor),
        };
        let mut caller = Caller::Visitor(Some(visitor));
        let driver = self.consider(&datagram, &mut caller)?;
        if let (Caller::Visitor(Some(visitor)), Some(host)) = (caller, &mut self.host) {
            host.visitors.keep(*visitor);
        }
        Ok(driver.map_or(Accept::Stranger, |it| Accept::Connection(Box::new(it))))
    }

    /// The keys of connections for which something came from elsewhere than their peer's address, since this was asked
    /// last: the peer may have moved. See [`UdpLane::look_for_peer`].
    pub fn unmatched(&self) -> Vec<u32> {
        self.port.unmatched()
    }

    /// Whether [`Listener::try_accept`] has something to look at although the socket may be empty.
    pub fn has_other(&self) -> bool {
        self.port.has_other()
    }

    /// The next datagram. `None` when the socket is empty, or when there was something else than a stranger's.
    fn next_datagram(&mut self) -> io::Result<Option<(Vec<u8>, Caller)>> {
        let next = match &mut self.door {
            Door::Ethernet(_, answering) => ethernet::receive(&self.socket).map(|it| match it? {
                Strange::Discovery(frame, from) => {
                    if let Some(answer) = answering.answer(&frame, Instant::now()) {
                        // Who does not get it asks again.
                        let _ = ethernet::send(&self.socket, &answer, from);
                    }
                    None
                }
                Strange::Datagram(bytes, from) => Some((bytes, Caller::Frame(from))),
                Strange::Foreign => {
                    self.counters.refused += 1;
                    None
                }
            }),
            Door::Ip118(_) => ip::receive(&self.socket)
                .map(|it| it.map(|(bytes, addresses)| (bytes, Caller::Raw(addresses)))),
            Door::Udp => self
                .port
                .next_other(&self.socket)
                .map(|it| it.map(|(bytes, addresses)| (bytes, Caller::Packet(addresses)))),
        };
        match next {
            Err(error) if self.is_interface_gone(&error) => Err(NoEthernet::Gone.into()),
            // Errors of answers sent earlier are not the listener's.
            Err(error) if is_peers(&error) => Ok(None),
            next => next,
        }
    }

    /// Whether the interface listened on is no more, as `error` may say.
    fn is_interface_gone(&self, error: &io::Error) -> bool {
        let down = error.raw_os_error() == Some(libc::ENETDOWN);
        let local = Station::of(self.port.local())
            .filter(|_| down && matches!(self.door, Door::Ethernet(..)));
        local.is_some_and(|it| ethernet::is_gone(&self.socket, it.interface))
    }

    fn consider(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        match (&mut self.gate, HandshakeMessage::is(datagram)) {
            (Some(_), true) => self.knock(datagram, caller),
            (None, false) => self.request(datagram, caller),
            (Some(_), false) => {
                self.counters.refused += 1;
                let packet = Packet::parse(datagram).ok();
                let reject = |packet| zerolane_core::reject(&packet, Reason::ProtectionRequired);
                if let Some(rejection) = packet.and_then(reject) {
                    let (bytes, len) = rejection.emit();
                    self.answer(&bytes[..len], caller);
                }
                Ok(None)
            }
            (None, true) => {
                self.counters.refused += 1;
                if let Some(refusal) = refuse_hello(datagram, Reason::PlainOnly) {
                    self.answer(refusal.bytes(), caller);
                }
                Ok(None)
            }
        }
    }

    /// Sends something to a stranger.
    fn answer(&self, bytes: &[u8], caller: &mut Caller) {
        match caller {
            Caller::Packet(addresses) => udp::answer(&self.socket, bytes, *addresses),
            Caller::Raw(addresses) => ip::answer(&self.socket, bytes, *addresses),
            // As good as lost if it cannot be sent.
            Caller::Frame(from) => drop(ethernet::send(&self.socket, bytes, *from)),
            Caller::Visitor(Some(visitor)) => visitor.answer(bytes),
            Caller::Visitor(None) => {}
        }
    }

    /// The address by which a stranger is counted. In memory it has none but the host's.
    fn address_of(&self, caller: &Caller) -> SocketAddr {
        match (caller, self.port.local().ip()) {
            (Caller::Packet(addresses) | Caller::Raw(addresses), _) => addresses.peer,
            (Caller::Frame(from), _) => from.address(),
            (Caller::Visitor(_), ip) if !ip.is_unspecified() => (ip, 0).into(),
            (Caller::Visitor(_), IpAddr::V4(_)) => (Ipv4Addr::LOCALHOST, 0).into(),
            (Caller::Visitor(_), IpAddr::V6(_)) => (Ipv6Addr::LOCALHOST, 0).into(),
        }
    }

    /// A message of the key exchange.
    fn knock(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let peer = self.address_of(caller);
        let Some(gate) = &mut self.gate else {
            return Ok(None);
        };
        let now = self.clock.now();
        match with_random(|draw| gate.take(now, peer, datagram, draw))? {
            Reply::Nothing => {
                self.counters.refused += 1;
                Ok(None)
            }
            Reply::Send(reply) => {
                self.answer(reply.bytes(), caller);
                Ok(None)
            }
            Reply::Admit(admitted) => self.admit(*admitted, caller),
        }
    }

    /// A stranger whose key is proven becomes a connection, or is told why not.
    fn admit(
        &mut self,
        admitted: Admitted,
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let Admitted {
            session,
            request,
            trusted,
            finish,
        } = admitted;
        let peer = self.address_of(caller);
        if !trusted {
            self.untrusted.note(session.peer, peer);
            let rejection = zerolane_core::reject(&request, Reason::Denied);
            self.refuse(rejection, Some(session), caller);
            return Ok(None);
        }
        let entropy = udp::entropy()?;
        let lane = match self.let_in(caller, entropy.key)? {
            Admittance::By(lane) => lane,
            Admittance::Unreachable => return Ok(None),
            Admittance::Busy => {
                let rejection = zerolane_core::reject(&request, Reason::Busy);
                self.refuse(rejection, Some(session), caller);
                return Ok(None);
            }
        };
        let config = lane.config(&self.options);
        let made = Driver::try_new(lane, &self.options, |now| {
            zerolane_core::Connection::admit(now, config, entropy, &request)
        });
        match made {
            Ok(mut driver) => {
                let exchange = Exchange::admitted(finish);
                Ok(driver.lane_mut().admit(exchange, session).then_some(driver))
            }
            Err((rejection, lane)) => {
                give_back(lane, caller);
                self.refuse(rejection, Some(session), caller);
                Ok(None)
            }
        }
    }

    /// A Request_Connection without protection.
    fn request(
        &mut self,
        datagram: &[u8],
        caller: &mut Caller,
    ) -> io::Result<Option<Driver<AnyLane>>> {
        let packet = Packet::parse(datagram);
        let Ok(packet @ Packet { operation, .. }) = &packet else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let Operation::RequestConnection(request) = operation else {
            self.counters.refused += 1;
            return Ok(None);
        };
        let peer = self.address_of(caller);
        if self.is_known(peer, request.s_key) {
            return Ok(None);
        }
        let entropy = udp::entropy()?;
        let lane = match self.let_in(caller, entropy.key)? {
            Admittance::By(lane) => lane,
            Admittance::Unreachable => return Ok(None),
            Admittance::Busy => {
                self.refuse(zerolane_core::reject(packet, Reason::Busy), None, caller);
                return Ok(None);
            }
        };
        let config = lane.config(&self.options);
        let made = Driver::try_new(lane, &self.options, |now| {
            zerolane_core::listen(now, config, entropy, packet)
        });
        match made {
            Ok(driver) => {
                self.remembered
                    .push_back((Instant::now(), peer, request.s_key));
                Ok(Some(driver))
            }
            Err((rejection, lane)) => {
                give_back(lane, caller);
                self.refuse(rejection, None, caller);
                Ok(None)
            }
        }
    }

    /// A lane to a stranger, to which our key is `key`, if there may be one more.
    fn let_in(&mut self, caller: &mut Caller, key: u32) -> io::Result<Admittance> {
        if self.is_full(self.address_of(caller)) {
            return Ok(Admittance::Busy);
        }
        match self.lane(caller, key) {
            Ok(lane) => Ok(lane.map_or(Admittance::Unreachable, Admittance::By)),
            Err(error) if is_exhausted(&error) => {
                self.counters.exhausted += 1;
                Ok(Admittance::Busy)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether there may not be one more connection with `peer`, which is counted.
    fn is_full(&mut self, peer: SocketAddr) -> bool {
        let (all, of_origin) = self.port.connections(Origin::of(peer.ip()));
        let full = all >= self.options.max_connections;
        let full_of_origin = of_origin >= self.options.max_connections_of_origin;
        self.counters.full += u64::from(full);
        self.counters.full_of_origin += u64::from(full_of_origin && !full);
        full || full_of_origin
    }

    /// A lane to a stranger, to which our key is `key`; `None` if it cannot be reached.
    fn lane(&self, caller: &mut Caller, key: u32) -> io::Result<Option<AnyLane>> {
        let peer = self.address_of(caller);
        match caller {
            Caller::Packet(addresses) => {
                let lane = self.udp_lane(*addresses, key)?;
                Ok(lane.map(|it| AnyLane::Udp(it, None)))
            }
            Caller::Frame(from) => {
                let lane = EthernetLane::accepted(&self.port, *from, key, &self.options)?;
                Ok(Some(AnyLane::Ethernet(lane)))
            }
            Caller::Raw(addresses) => {
                let lane = IpLane::accepted(&self.port, *addresses, key, &self.options);
                reachable(lane.map(AnyLane::Ip118))
            }
            Caller::Visitor(visitor) => Ok(visitor.take().map(|visitor| {
                if let Some(host) = &self.host {
                    // From here on the connection's alone.
                    let _ = host.watched.delete(visitor.socket());
                }
                let local = (peer.ip(), self.port.local().port()).into();
                let seat = self.port.seat(key, peer);
                let ends = Ends { local, peer };
                let lane = ShmLane::accepted(*visitor, ends, seat, &self.options);
                AnyLane::SharedMemory(lane, None)
            })),
        }
    }

    /// A socket of its own for a peer, to which our key is `key`; `None` if the peer cannot be reached. It
    /// speaks from the address that was called, and is bound to that if the system would choose another.
    fn udp_lane(&self, addresses: PacketAddresses, key: u32) -> io::Result<Option<UdpLane>> {
        let local = self.port.local();
        let lane = self.lane_at(local, addresses.peer, key)?;
        let here = lane.as_ref().and_then(UdpLane::local_addr);
        match addresses.called(local) {
            Some(called) if here.is_some_and(|it| it.ip() != called.ip()) => {
                drop(lane);
                self.lane_at(called, addresses.peer, key)
            }
            _ => Ok(lane),
        }
    }

    fn lane_at(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        key: u32,
    ) -> io::Result<Option<UdpLane>> {
        let socket = self.port.join(local, self.options.receive_buffer)?;
        let roam = PeerMigration::new(&self.port, local, key, peer);
        reachable(UdpLane::new(socket, peer, roam, &self.options))
    }

    /// Tells a stranger why not, with the keys of `session` if there is one.
    fn refuse(&mut self, rejection: Option<Packet>, session: Option<Session>, caller: &mut Caller) {
        self.counters.refused += 1;
        let Some(rejection) = rejection else {
            return;
        };
        match (session, &caller) {
            // In memory nothing is sealed.
            (Some(session), Caller::Packet(_) | Caller::Frame(_) | Caller::Raw(_)) => {
                if let Some(bytes) = udp::sealed(session, &rejection) {
                    self.answer(&bytes, caller);
                }
            }
            _ => {
                let (bytes, len) = rejection.emit();
                self.answer(&bytes[..len], caller);
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

/// What [`Listener::try_accept`] found.
#[derive(Debug)]
pub enum Accept {
    /// A connection. Its answer leaves with the driver's first call.
    Connection(Box<Driver<AnyLane>>),
    /// A datagram of a stranger who is not, or not yet, a connection.
    Stranger,
    /// Nothing, or what came for connections.
    Nothing,
}

/// What to watch: [`Listener::try_accept`] has something to look at when it is readable.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.host {
            Some(host) => host.watched.0.as_fd(),
            None => self.socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.port.leave();
    }
}

/// Calls `act` with a source of random numbers.
///
/// # Errors
/// The system gave none; what `act` made is thrown away.
fn with_random<T>(act: impl FnOnce(&mut dyn FnMut() -> [u8; 32]) -> T) -> io::Result<T> {
    let mut failed = None;
    let made = act(&mut || {
        security::random().unwrap_or_else(|error| {
            failed = Some(error);
            [0; 32]
        })
    });
    match failed {
        None => Ok(made),
        Some(error) => Err(error),
    }
}

/// The lane of a connection that was refused, to be told so by it.
fn give_back(lane: AnyLane, caller: &mut Caller) {
    if let AnyLane::SharedMemory(lane, _) = lane {
        *caller = Caller::Visitor(Some(Box::new(lane.into_visitor())));
    }
}

/// Whether the process, the system or the device has no more of what a connection needs.
fn is_exhausted(error: &io::Error) -> bool {
    let why = error.get_ref().and_then(|it| it.downcast_ref());
    if let Some(NoEthernet::Full | NoEthernet::Refused { .. }) = why {
        return true;
    }
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC)
    )
}

/// A lane to a peer; `None` if that cannot be reached.
fn reachable<L>(lane: io::Result<L>) -> io::Result<Option<L>> {
    match lane {
        Ok(lane) => Ok(Some(lane)),
        Err(error) if is_peers(&error) => Ok(None),
        Err(error) => Err(error),
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

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn Untrusted__keeps_a_bounded_number_and_counts_the_rest() {
        let key = crate::Identity::from_secret([1; 32]).public();
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut untrusted = Untrusted::default();
        for _ in 0..UNTRUSTED_CLIENTS + 3 {
            untrusted.note(key, from);
        }
        assert_eq!(untrusted.clients.len(), UNTRUSTED_CLIENTS);
        assert_eq!((untrusted.clients[0], untrusted.more), ((key, from), 3));
    }

    #[test]
    fn give_to__is_for_udp_alone() {
        let given = |lane| {
            let options = Options {
                lane,
                ..Options::default()
            };
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut listener = Listener::bind(any, options).expect("bound");
            assert_eq!(listener.no_shared_memory(), None);
            listener.give_to(nix::unistd::geteuid().as_raw())?;
            Ok((listener.host.is_some(), listener.no_shared_memory()))
        };
        let by_udp: io::Result<_> = given(LaneChoice::Udp);
        assert_eq!(by_udp.expect("to itself"), (false, None));
        let left = Some(NoSharedMemory::OtherUser);
        let gave_up = given(LaneChoice::Best).expect("UDP is left");
        assert_eq!(gave_up, (false, left), "the rendezvous stays its maker's");
        let refused = given(LaneChoice::SharedMemory).expect_err("nothing is left");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn is_known__forgets_the_oldest_beyond_the_limit() {
        let options = Options {
            security: crate::Security::plain(),
            ..Options::default()
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = Listener::bind(any, options).expect("bound");
        let peer = |n: u32| SocketAddr::from(([127, 0, 0, 1], 1 + n as u16));
        let count = MAX_REMEMBERED as u32 + 7;
        for n in 0..count {
            assert!(!listener.is_known(peer(n), n));
            // As when it is accepted.
            listener.remembered.push_back((Instant::now(), peer(n), n));
            assert!(listener.remembered.len() <= MAX_REMEMBERED);
        }
        assert!(listener.is_known(peer(count - 1), count - 1));
        assert!(!listener.is_known(peer(0), 0));
    }
}
