//! Accepts connections on any lane. Each client that proves its identity (or, in plain mode, merely asks) gets a
//! connected socket of its own, or the memory that it shares.

mod admission;
mod caller;
mod error;
mod ethernet_port;
mod host;
mod ip118_port;
mod remembered;
mod udp_paths;
mod untrusted;

pub use untrusted::Untrusted;

use crate::address::{LaneChoice, Station};
use crate::any::AnyLane;
use crate::driver::Driver;
use crate::ethernet::{self, Answering, Ear, ListenerFrame};
use crate::options::Options;
use crate::seal::security;
use crate::shm::{self, Arrived};
use crate::socket::{Claim, SharedPort};
use crate::threads::Process;
use crate::unavailable::{NoEthernet, NoSharedMemory};
use crate::wait::{Clock, poll};
use caller::Caller;
use error::{is_exhausted, is_peers};
use ethernet_port::Attended;
use host::Host;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use remembered::Remembered;
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use udp_paths::UdpPaths;
use zerolane_handshake::{Gate, GateCounters, PublicKey};

/// The listener's counters, besides those of its gate ([`Listener::gate_counters`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerCounters {
    /// Datagrams other than an accepted Request_Connection; and processes of this host that became no connection: of
    /// another user, without proper memory to share, too slow, or gone.
    pub refused: u64,
    /// Connections refused because of
    /// [`ListenOptions::max_connections`](crate::options::ListenOptions::max_connections).
    pub full: u64,
    /// Connections refused because this process or the system had no descriptor or memory left, and how often processes
    /// of this host had to wait for that reason.
    pub exhausted: u64,
    /// Connections refused because of
    /// [`ListenOptions::max_connections_of_origin`](crate::options::ListenOptions::max_connections_of_origin).
    pub full_of_origin: u64,
    /// Datagrams dropped because too many waited: of connections whose peer moved, or of unauthenticated peers
    /// meanwhile.
    pub unread: u64,
}

/// How datagrams of unauthenticated peers arrive.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a listener has one")]
enum Ingress {
    /// At a UDP port of the kernel.
    Udp,
    /// At a port of raw Ethernet, which no other listener has; and the answers for this host's name.
    Ethernet(#[allow(dead_code, reason = "held")] Attended, Answering),
    /// At a port of IP protocol 118, which no other listener has.
    Ip118(#[allow(dead_code, reason = "held")] Claim),
}

/// A listening port of UDP, raw Ethernet or IP protocol 118, and the rendezvous for processes of this host if
/// [`LaneOptions::choice`](crate::options::LaneOptions::choice) asks for it.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<Socket>,
    /// Readable when there is an event of any kind.
    watched: Epoll,
    host: Option<Host>,
    options: Options,
    /// Receives for existing connections.
    port: Arc<SharedPort>,
    ingress: Ingress,
    /// Where paths over UDP are added to connections over raw Ethernet, if that is permitted.
    udp_paths: Option<UdpPaths>,
    /// Checks unauthenticated peers; `None` in plain mode.
    gate: Option<Gate>,
    key: Option<PublicKey>,
    clock: Clock,
    remembered: Remembered,
    counters: ListenerCounters,
    untrusted: Untrusted,
    /// Why it listens by UDP alone, if shared memory would be best.
    no_shared_memory: Option<NoSharedMemory>,
    /// Serve processes of this host first, the next time.
    visitors_first: bool,
    process: Process,
}

impl Listener {
    /// Listens on `local` (port 0: any), which may be an address that connections of an earlier listener of this
    /// process still have. The connections accepted share a scheduler: that of `options`, or the listener's own.
    ///
    /// # Errors
    /// The address is in use or does not belong to this host. The system gives no random numbers. Paths over raw
    /// Ethernet were requested, and this process may not use them ([`NoEthernet::NotPermitted`]). Paths over UDP
    /// besides raw Ethernet were requested, and the UDP port is in use. Or as [`Options::check`].
    pub fn bind(local: SocketAddr, options: Options) -> io::Result<Listener> {
        Listener::at(options, |options| match options.lane.choice {
            LaneChoice::Ethernet => {
                let (port, socket, attended) = ethernet_port::attend(local, options)?;
                let answering = Answering::new(&options.lane.neighbour, port.local().port());
                Ok((port, socket, Ingress::Ethernet(attended, answering)))
            }
            LaneChoice::Ip118 => {
                let (port, socket, claim) = ip118_port::attend(local, options)?;
                Ok((port, socket, Ingress::Ip118(claim)))
            }
            LaneChoice::Udp | LaneChoice::Best | LaneChoice::SharedMemory => {
                let ports = &options.listen.ports;
                let (port, socket) = SharedPort::attend(local, options.flow.receive_buffer, ports)?;
                Ok((port, socket, Ingress::Udp))
            }
        })
    }

    /// Listens on a UDP socket that another program opened and bound, such as one of
    /// [`passed_sockets`](crate::socket::passed_sockets). The socket may belong to another user. No other holder of it
    /// should use it.
    ///
    /// # Errors
    /// It is not a UDP socket that is bound and unconnected, or connections could not share its address; or the system
    /// gives no random numbers.
    pub fn adopt(socket: OwnedFd, options: Options) -> io::Result<Listener> {
        if let LaneChoice::Ethernet | LaneChoice::Ip118 = options.lane.choice {
            let why = "a UDP socket carries neither raw Ethernet nor IP protocol 118";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Listener::at(options, |options| {
            let (port, socket) =
                SharedPort::adopt(socket, options.flow.receive_buffer, &options.listen.ports)?;
            Ok((port, socket, Ingress::Udp))
        })
    }

    fn at(
        mut options: Options,
        attend: impl FnOnce(&Options) -> io::Result<(Arc<SharedPort>, Arc<Socket>, Ingress)>,
    ) -> io::Result<Listener> {
        options.check()?;
        options.rate.scheduler.get_or_insert_default();
        let clock = Clock::start();
        let credentials = options.security.credentials()?;
        let mut key = None;
        let gate = match credentials {
            Some(credentials) => {
                key = Some(credentials.identity.public());
                Some(security::with_random(|draw| {
                    Gate::new(clock.now(), credentials, draw)
                })?)
            }
            None => None,
        };
        if options.takes_ethernet_paths() {
            Ear::try_one()?;
        }
        let (port, socket, ingress) = attend(&options)?;
        let udp_paths = match options.takes_udp_paths() {
            true => Some(UdpPaths::attend(port.local().port(), &options)?),
            false => None,
        };
        let enciphers = options.security.cipher.is_some();
        let (host, no_shared_memory) = match options.lane.choice {
            LaneChoice::Udp | LaneChoice::Ethernet | LaneChoice::Ip118 => (None, None),
            LaneChoice::Best if enciphers => (None, Some(NoSharedMemory::Cipher)),
            LaneChoice::SharedMemory if enciphers => return Err(NoSharedMemory::Cipher.into()),
            LaneChoice::SharedMemory => {
                let host = Host::listen(port.local(), &options)?;
                (Some(host), None)
            }
            LaneChoice::Best => match Host::listen(port.local(), &options) {
                Ok(host) => (Some(host), None),
                // Processes of this host then come by UDP.
                Err(_) => (None, Some(shm::without_rendezvous())),
            },
        };
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let waits = port.others_wait();
        let sources = [
            Some(socket.as_fd()),
            waits.as_deref().map(AsFd::as_fd),
            host.as_ref().map(AsFd::as_fd),
            udp_paths.as_ref().map(AsFd::as_fd),
        ];
        for source in sources.into_iter().flatten() {
            watched.add(source, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(Listener {
            socket,
            watched,
            host,
            port,
            ingress,
            udp_paths,
            options,
            gate,
            key,
            clock,
            remembered: Remembered::default(),
            counters: ListenerCounters::default(),
            untrusted: Untrusted::default(),
            no_shared_memory,
            visitors_first: true,
            process: Process::current(),
        })
    }

    /// Gives the address to the user `uid`, for a process that is about to become that user: each connection binds a
    /// socket of its own to the address, and the kernel lets only one user's sockets share it. From now on the listener
    /// uses UDP alone: a rendezvous stays with the user who made it.
    ///
    /// # Errors
    /// Only root may give to others. Or the options insist on a lane other than UDP, whose rendezvous belongs to the
    /// old user, or which needs the rights that the process is about to give up.
    pub fn give_to(&mut self, uid: u32) -> io::Result<()> {
        if !matches!(self.options.lane.choice, LaneChoice::Udp | LaneChoice::Best) {
            let why = "only a UDP listener can change to another user";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if self.options.takes_ethernet_paths() {
            let why = "paths over raw Ethernet need rights that another user does not have";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // For fchown it means that the owner stays.
        if uid == u32::MAX {
            let why = format!("{uid} is no user");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        std::os::unix::fs::fchown(&*self.socket, Some(uid), None)?;
        if self.host.take().is_some() {
            self.no_shared_memory = Some(NoSharedMemory::OtherUser);
        }
        Ok(())
    }

    /// Why it listens by UDP alone although [`LaneOptions::choice`](crate::options::LaneOptions::choice) is
    /// [`LaneChoice::Best`].
    pub fn no_shared_memory(&self) -> Option<NoSharedMemory> {
        self.no_shared_memory
    }

    /// The key by which clients identify this end: `None` in plain mode.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// The counters of the gate: `None` in plain mode.
    pub fn gate_counters(&self) -> Option<&GateCounters> {
        self.gate.as_ref().map(Gate::counters)
    }

    /// Whether the required one-time code is used up, so that no client can get in any more.
    pub fn is_spent(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::is_spent)
    }

    /// The listening address.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.local()
    }

    /// The process that owns the listener. A child of fork must not accept: half of a client's messages would go to the
    /// parent, and both would assign the same numbers.
    pub fn process(&self) -> Process {
        self.process
    }

    /// The counters of clients that did not become connections.
    pub fn counters(&self) -> ListenerCounters {
        let visitors = self.host.as_ref().map_or(0, Host::refused);
        ListenerCounters {
            refused: self.counters.refused + visitors,
            unread: self.port.dropped() + self.udp_port().map_or(0, |it| it.dropped()),
            ..self.counters
        }
    }

    /// Takes the clients that were not trusted since the last call.
    pub fn take_untrusted(&mut self) -> Untrusted {
        std::mem::take(&mut self.untrusted)
    }

    /// The next connection, or `None` after `timeout`. Its answer leaves with the driver's first call.
    ///
    /// # Errors
    /// The socket failed.
    pub fn accept(&mut self, timeout: Option<Duration>) -> io::Result<Option<Driver<AnyLane>>> {
        // A timeout beyond the clock's range is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        loop {
            let accepted = self.try_accept()?;
            if let Accept::Connection(driver) = accepted {
                return Ok(Some(*driver));
            }
            // Even if unauthenticated peers never stop sending.
            let left = left();
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if matches!(accepted, Accept::Nothing) {
                poll::wait(Some(self.as_fd()), false, [None; 2], left)?;
            }
        }
    }

    /// Handles the next datagram, if there is one.
    ///
    /// # Errors
    /// The socket failed.
    pub fn try_accept(&mut self) -> io::Result<Accept> {
        // In turn, so that neither starves the other.
        let visitors_first = self.visitors_first;
        self.visitors_first = !visitors_first;
        let found = match visitors_first {
            true => self.next_visitor()?,
            false => self.next_unauthenticated()?,
        };
        match (found, visitors_first) {
            (Accept::Nothing, true) => self.next_unauthenticated(),
            (Accept::Nothing, false) => self.next_visitor(),
            (found, _) => Ok(found),
        }
    }

    /// Handles the next datagram of an unauthenticated peer.
    fn next_unauthenticated(&mut self) -> io::Result<Accept> {
        let Some((datagram, mut caller)) = self.next_datagram()? else {
            return Ok(self.sort_udp());
        };
        if self.options.lane.choice == LaneChoice::SharedMemory {
            self.counters.refused += 1;
            return Ok(Accept::Unauthenticated);
        }
        let driver = self.consider(&datagram, &mut caller)?;
        Ok(driver.map_or(Accept::Unauthenticated, |it| {
            Accept::Connection(Box::new(it))
        }))
    }

    /// Sorts UDP datagrams for paths of connections. No unauthenticated peer is admitted there.
    fn sort_udp(&mut self) -> Accept {
        match self.udp_paths.as_ref().is_some_and(UdpPaths::sort) {
            true => {
                self.counters.refused += 1;
                Accept::Unauthenticated
            }
            false => Accept::Nothing,
        }
    }

    fn udp_port(&self) -> Option<&Arc<SharedPort>> {
        self.udp_paths.as_ref().map(UdpPaths::port)
    }

    /// Handles the next event of processes of this host.
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
            Arrived::Other => return Ok(Accept::Unauthenticated),
            Arrived::Datagram(datagram, visitor) => (datagram, visitor),
        };
        let mut caller = Caller::Visitor(Some(visitor));
        let driver = self.consider(&datagram, &mut caller)?;
        if let (Caller::Visitor(Some(visitor)), Some(host)) = (caller, &mut self.host) {
            host.keep(*visitor);
        }
        Ok(driver.map_or(Accept::Unauthenticated, |it| {
            Accept::Connection(Box::new(it))
        }))
    }

    /// The keys of connections for which datagrams came from other addresses than their peers' since the last call: the
    /// peer may have moved, or adds a path. See [`AnyLane::look_for_peer`].
    pub fn keys_at_new_addresses(&self) -> Vec<u32> {
        let mut keys = self.port.keys_at_new_addresses();
        keys.extend(
            self.udp_port()
                .into_iter()
                .flat_map(|it| it.keys_at_new_addresses()),
        );
        keys
    }

    /// The next datagram of an unauthenticated peer. `None` if the socket is empty, or had another datagram.
    fn next_datagram(&mut self) -> io::Result<Option<(Vec<u8>, Caller)>> {
        let next = match &mut self.ingress {
            Ingress::Ethernet(_, answering) => {
                ethernet::receive(&self.socket).map(|it| match it? {
                    ListenerFrame::Discovery(frame, from) => {
                        if let Some(answer) = answering.answer(&frame, Instant::now()) {
                            // A host that does not get the answer asks again.
                            let _ = ethernet::send(&self.socket, &answer, from);
                        }
                        None
                    }
                    ListenerFrame::Datagram(bytes, from) => Some((bytes, Caller::Frame(from))),
                    ListenerFrame::Foreign => {
                        self.counters.refused += 1;
                        None
                    }
                })
            }
            Ingress::Ip118(_) => ip118_port::receive(&self.socket)
                .map(|it| it.map(|(bytes, addresses)| (bytes, Caller::Raw(addresses)))),
            Ingress::Udp => self
                .port
                .next_other(&self.socket)
                .map(|it| it.map(|(bytes, addresses)| (bytes, Caller::Packet(addresses)))),
        };
        match next {
            Err(error) if self.is_interface_gone(&error) => Err(NoEthernet::Gone.into()),
            // Errors of earlier answers do not concern the listener.
            Err(error) if is_peers(&error) => Ok(None),
            next => next,
        }
    }

    /// Whether `error` may mean that the listening interface is gone.
    fn is_interface_gone(&self, error: &io::Error) -> bool {
        let down = error.raw_os_error() == Some(libc::ENETDOWN);
        let local = Station::of(self.port.local())
            .filter(|_| down && matches!(self.ingress, Ingress::Ethernet(..)));
        local.is_some_and(|it| ethernet::is_gone(&self.socket, it.interface))
    }
}

/// The result of [`Listener::try_accept`].
#[derive(Debug)]
pub enum Accept {
    /// A connection. Its answer leaves with the driver's first call.
    Connection(Box<Driver<AnyLane>>),
    /// A datagram of a peer that is not a connection, or not yet.
    Unauthenticated,
    /// Nothing, or datagrams for connections.
    Nothing,
}

/// The descriptor to watch: [`Listener::try_accept`] has something to do when it is readable.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.0.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // In a child of fork, a lock that another thread held is never released.
        if self.process.is_current() {
            self.port.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn give_to__is_for_udp_alone() {
        let given = |lane| {
            let options = Options::default().with(|it| it.lane.choice = lane);
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
}
