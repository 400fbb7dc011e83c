//! Moves packets between the interface and the connections, in one thread.

use crate::config::{Config, PeerConfig, Prefix, Table};
use crate::engine::Engine;
use crate::limits::{
    FIRST_RETRY, LAST_RETRY, LOOK_AT_PATH, MAX_PACKET, MAX_QUEUED_BYTES, PACKETS_PER_PASS,
    PASSES_UNWATCHED,
};
use crate::network::{Network, NetworkError};
use crate::packet::VNET_HEADER_LEN;
use crate::path::PathSeen;
use crate::rules::{self, Rules};
use crate::status::{CallerCounters, PeerStatus, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane::Options;
use zerolane::options::{LaneChoice, PrivateData};
use zerolane::security::{Identity, PublicKey};
use zerolane::tun::{TunDevice, TunOffload};
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};

/// What both ends tell each other when they connect: another version, or another program, is not taken for a peer.
const HELLO: &[u8] = b"zerolane-tunnel 2";

/// Connections of a peer that are kept: when both ends call at once, each may send by another.
const MAX_CONNECTIONS: usize = 2;

/// How often in its idle timeout the transport asks a silent peer for an answer.
const KEEPALIVES: u32 = 10;

/// Longest sleep: names of hosts are looked up again, and peers called.
const LOOK: Duration = Duration::from_millis(500);

/// Why a tunnel could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The interface could not be made.
    #[error("cannot make the interface {name}: {}", in_words(.error))]
    Device {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// The kernel refused an address or a route.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] zerolane::Error),
    /// The system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn in_words(error: &io::Error) -> String {
    let closed = rustix::io::Errno::ACCESS.raw_os_error();
    match error.kind() {
        _ if error.raw_os_error() == Some(closed) => {
            "this user may not open /dev/net/tun".to_owned()
        }
        io::ErrorKind::PermissionDenied => "it needs CAP_NET_ADMIN: run as root".to_owned(),
        io::ErrorKind::ResourceBusy => "an interface has this name: is it up already?".to_owned(),
        io::ErrorKind::NotFound => "there is no /dev/net/tun: modprobe tun".to_owned(),
        _ => error.to_string(),
    }
}

/// Has the allocator keep what it gets back. glibc returns the end of its heap to the kernel beyond twice the largest
/// block it mapped and got back (mallopt(3)), 128 KiB at first: two long packets, which would be faulted in again.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(
        MAX_QUEUED_BYTES,
    )));
}

/// A peer, as the driver sees it.
#[derive(Debug)]
struct Peer {
    config: PeerConfig,
    /// Open connections, the newest last. Packets leave by that.
    open: Vec<(ConnectionId, Instant)>,
    /// The call in progress.
    calling: Option<ConnectionId>,
    call_at: Instant,
    retry: Duration,
}

/// A tunnel: it exists, with its routes, as long as this value.
#[derive(Debug)]
pub struct Tunnel {
    /// Of a default route. Dropped before the interface: what it routes goes outside again at once.
    rules: Option<Rules>,
    device: TunDevice,
    worker: Worker,
    engine: Engine,
    peers: Vec<Peer>,
    of_connection: HashMap<ConnectionId, usize>,
    of_key: HashMap<PublicKey, usize>,
    identity: Arc<Identity>,
    /// Where it listens.
    endpoint: Option<EndpointId>,
    started: Instant,
    /// When the paths are looked at again.
    look_at: Duration,
    dropped_by_host: u64,
    buffer: Vec<u8>,
}

impl Tunnel {
    /// Makes interface `name` with its addresses and routes, and begins to listen and to call.
    ///
    /// # Errors
    /// See [`Error`]. What was made by then is gone.
    pub fn open(
        name: &str,
        config: &Config,
        identity: Arc<Identity>,
        offload: TunOffload,
    ) -> Result<Tunnel, Error> {
        let device = TunDevice::open(name, offload).map_err(|error| Error::Device {
            name: name.to_owned(),
            error,
        })?;
        let mut tunnel = Tunnel::adopt(device, config, identity)?;
        tunnel.configure(config)?;
        Ok(tunnel)
    }

    /// Begins to listen and to call for an interface that another program made, and gave addresses and routes.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn adopt(
        device: TunDevice,
        config: &Config,
        identity: Arc<Identity>,
    ) -> Result<Tunnel, Error> {
        keep_freed_memory();
        let interface = &config.interface;
        let networks: Vec<Vec<Prefix>> = config.peers.iter().map(|it| it.allowed.clone()).collect();
        let now = Instant::now();
        let peers: Vec<Peer> = config
            .peers
            .iter()
            .map(|it| Peer {
                config: it.clone(),
                open: vec![],
                calling: None,
                call_at: now,
                retry: FIRST_RETRY,
            })
            .collect();
        let of_key = (0..).zip(&peers).map(|(index, it)| (it.config.key, index));
        let mut engine = Engine::new(&networks, interface.mtu);
        engine.set_offload(device.offload());
        if interface.copies_dscp {
            engine.copy_dscp();
        }
        let mut tunnel = Tunnel {
            rules: None,
            device,
            worker: Worker::new()?,
            engine,
            of_key: of_key.collect(),
            peers,
            of_connection: HashMap::new(),
            identity,
            endpoint: None,
            started: now,
            look_at: Duration::ZERO,
            dropped_by_host: 0,
            buffer: vec![0; VNET_HEADER_LEN + (1 << 16)],
        };
        if !interface.listen.is_empty() {
            let trusted: HashSet<_> = config.peers.iter().map(|it| it.key).collect();
            let waiting = config.peers.iter().filter(|it| it.endpoints.is_empty());
            let every = waiting.filter_map(|it| it.keepalive).min();
            let options = tunnel.options(Arc::new(trusted), every);
            let endpoint = tunnel.worker.listen(&interface.listen[..], options)?;
            tunnel.endpoint = Some(endpoint);
        }
        Ok(tunnel)
    }

    /// Gives the interface addresses and routes.
    fn configure(&mut self, config: &Config) -> Result<(), Error> {
        let interface = &config.interface;
        let network = Network::of(self.device.name())?;
        for &address in &interface.addresses {
            network.add_address(address)?;
        }
        network.set_up(interface.mtu)?;
        let networks = config.peers.iter().flat_map(|it| &it.allowed);
        let (whole, parts): (Vec<&Prefix>, Vec<&Prefix>) = networks.partition(|it| it.len == 0);
        for &&prefix in &parts {
            network.add_route(prefix, interface.table)?;
        }
        self.route_all(network, &whole, interface.table)
    }

    /// Makes the default routes, and keeps the tunnel's own datagrams out of them.
    fn route_all(
        &mut self,
        network: Network,
        routes: &[&Prefix],
        table: Table,
    ) -> Result<(), Error> {
        if routes.is_empty() || table != Table::Main {
            for &&prefix in routes {
                network.add_route(prefix, table)?;
            }
            return Ok(());
        }
        let port = self.address().map(|it| it.port());
        let rules = self
            .rules
            .insert(Rules::new(Network::of(self.device.name())?)?);
        for &&prefix in routes {
            network.add_route(prefix, Table::Number(rules.table()))?;
            rules.add_default(prefix.address, port)?;
        }
        Ok(())
    }

    /// Idle connections are used at least `every` so often.
    fn options(
        &self,
        trust: Arc<dyn zerolane::security::Trust>,
        every: Option<Duration>,
    ) -> Options {
        Options::default().with(|it| {
            if let Some(every) = every {
                it.times.idle = it.times.idle.min(every * KEEPALIVES);
            }
            it.security.identity = Some(Arc::clone(&self.identity));
            it.security.trust = trust;
            it.lane.choice = LaneChoice::Udp;
            it.times.keep_alive = true;
            it.private_data = PrivateData::new(HELLO).ok();
        })
    }

    /// Where it is called; `None`: it only calls.
    pub fn address(&self) -> Option<SocketAddr> {
        let listener = self.worker.endpoint(self.endpoint?);
        listener.map(|it| it.local_addr())
    }

    /// Counts who called.
    fn callers(&self) -> Option<CallerCounters> {
        let listener = self.worker.endpoint(self.endpoint?)?;
        let (all, gate) = (listener.counters(), listener.gate_counters()?);
        Some(CallerCounters {
            begun: gate.hellos,
            cookies: gate.retried,
            completed: gate.admitted,
            refused: all.refused + gate.refused,
            unread: all.unread,
        })
    }

    /// The time since it was made: the clock of the engine.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Moves packets until `other` becomes readable, for longer than a pass if there is nothing to do.
    ///
    /// # Errors
    /// The interface or the worker failed.
    pub fn run_until(&mut self, other: BorrowedFd<'_>) -> Result<(), Error> {
        for pass in 0_u64.. {
            let mut busy = self.worker.progress()?;
            while let Some(event) = self.worker.next_event() {
                busy = true;
                self.on_event(event);
            }
            busy |= self.read_host()?;
            self.send()?;
            self.look_at_paths();
            self.call()?;
            // A pass finds by itself what the device and the worker have.
            if (!busy || pass % PASSES_UNWATCHED == 0) && self.sleep(busy, other)? {
                break;
            }
        }
        Ok(())
    }

    fn sleep(&mut self, busy: bool, other: BorrowedFd<'_>) -> Result<bool, Error> {
        let sleeps = !busy && self.worker.arm()?;
        let longest = if sleeps { LOOK } else { Duration::ZERO };
        let longest = Timespec::try_from(longest).map_err(io::Error::other)?;
        let mut watched = [
            PollFd::new(&other, PollFlags::IN),
            PollFd::new(&self.device, PollFlags::IN),
            PollFd::new(&self.worker, PollFlags::IN),
        ];
        match poll(&mut watched, Some(&longest)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        Ok(!watched[0].revents().is_empty())
    }

    /// Takes packets of the host. True if there may be more.
    fn read_host(&mut self) -> Result<bool, Error> {
        let now = self.now();
        for _ in 0..PACKETS_PER_PASS {
            let Some(len) = self.device.read(&mut self.buffer)? else {
                return Ok(false);
            };
            if len > VNET_HEADER_LEN + MAX_PACKET {
                self.dropped_by_host += 1;
                continue;
            }
            self.engine.from_host(now, &mut self.buffer[..len]);
        }
        Ok(true)
    }

    /// Hands queued packets to the connections, as far as these send them.
    fn send(&mut self) -> Result<(), Error> {
        let now = self.now();
        for (index, peer) in self.peers.iter().enumerate() {
            if !self.engine.has_next(index) {
                continue;
            }
            let Some(&(id, _)) = peer.open.last() else {
                // A peer that is being called gets what waits.
                if peer.calling.is_none() {
                    self.engine.clear(index);
                }
                continue;
            };
            if self.worker.datagram_bytes(id) >= self.engine.unsent(index) {
                continue;
            }
            let Some(connection) = self.worker.connection(id) else {
                continue;
            };
            while connection.datagram_bytes() < self.engine.unsent(index)
                && let Some((datagram, dscp)) = self.engine.next(now, index)
            {
                let sent = connection.set_dscp(dscp);
                // The end of a connection is an event.
                if sent
                    .and_then(|()| connection.send_datagram(datagram))
                    .is_err()
                {
                    break;
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Accepted { connection, .. } => self.on_open(connection),
            Event::Connected { connection } => self.on_open(connection),
            Event::Datagrams { connection } => self.take(connection),
            Event::Closed { connection, .. } => self.on_closed(connection),
            _ => {}
        }
    }

    fn on_open(&mut self, id: ConnectionId) {
        let Some(connection) = self.worker.connection(id) else {
            return;
        };
        let key = connection.peer_key();
        let known = connection.peer_data() == HELLO;
        let peer = key.and_then(|key| self.of_key.get(&key).copied());
        let Some(index) = peer.filter(|_| known) else {
            self.worker.close(id);
            return;
        };
        let peer = &mut self.peers[index];
        if peer.calling == Some(id) {
            peer.calling = None;
        }
        peer.retry = FIRST_RETRY;
        peer.open.push((id, Instant::now()));
        self.of_connection.insert(id, index);
        if peer.open.len() > MAX_CONNECTIONS {
            let (old, _) = peer.open.remove(0);
            self.of_connection.remove(&old);
            self.worker.close(old);
        }
    }

    fn on_closed(&mut self, id: ConnectionId) {
        self.of_connection.remove(&id);
        for peer in &mut self.peers {
            peer.open.retain(|it| it.0 != id);
            if peer.calling == Some(id) {
                peer.calling = None;
                peer.call_at = Instant::now() + peer.retry;
                peer.retry = (peer.retry * 2).min(LAST_RETRY);
            }
        }
    }

    /// Hands the packets of a peer to the host.
    fn take(&mut self, id: ConnectionId) {
        let index = self.of_connection.get(&id).copied();
        let Some(connection) = self.worker.connection(id) else {
            return;
        };
        for _ in 0..PACKETS_PER_PASS {
            let Some(mut datagram) = connection.next_datagram() else {
                return;
            };
            let Some(index) = index else { continue };
            self.engine.from_peer(index, &mut datagram, |frame| {
                if self.device.write(frame).is_err() {
                    self.dropped_by_host += 1;
                }
            });
        }
    }

    /// Tells the engine what the paths of the peers do.
    fn look_at_paths(&mut self) {
        let now = self.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_AT_PATH;
        for (index, peer) in self.peers.iter().enumerate() {
            let newest = peer.open.last();
            let Some(connection) = newest.and_then(|it| self.worker.connection(it.0)) else {
                continue;
            };
            let mut seen = PathSeen::default();
            for (_, path) in connection.paths() {
                seen.sent += path.bytes_sent;
                seen.lost += path.bytes_lost;
                seen.rtt = seen.rtt.max(path.rtt.unwrap_or_default());
                seen.pace = path.pace.map(|it| it + seen.pace.unwrap_or(0));
            }
            self.engine.note_path(now, index, seen);
        }
    }

    /// Calls the peers that have an address and no connection.
    fn call(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            let hosts = &peer.config.endpoints;
            if hosts.is_empty()
                || !peer.open.is_empty()
                || peer.calling.is_some()
                || peer.call_at > now
            {
                continue;
            }
            let trusted = HashSet::from([peer.config.key]);
            let addresses: Vec<SocketAddr> =
                hosts.iter().flat_map(|it| rules::addresses(it)).collect();
            if let Some(rules) = &mut self.rules {
                for &address in &addresses {
                    // Without the right, a route that is not a default one may still lead there.
                    let _ = rules.add_peer(address);
                }
            }
            let every = peer.config.keepalive;
            let options = self.options(Arc::new(trusted), every);
            let called = self.worker.connect(&addresses[..], &options);
            let peer = &mut self.peers[index];
            match called {
                Ok(id) => peer.calling = Some(id),
                // No route, or no such host, at present.
                Err(_) => {
                    peer.call_at = now + peer.retry;
                    peer.retry = (peer.retry * 2).min(LAST_RETRY);
                }
            }
        }
        Ok(())
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        self.peers.iter().any(|it| !it.open.is_empty())
    }

    /// The present state.
    pub fn status(&mut self) -> Status {
        let mut peers = vec![];
        for (index, peer) in self.peers.iter().enumerate() {
            let open = peer.open.last().copied();
            let connection = open.and_then(|(id, _)| self.worker.connection(id));
            let account = connection.as_ref().map(|it| it.account());
            let lost_ppm = account.as_ref().map_or(0, |it| {
                it.path.bytes_lost * 1_000_000 / it.path.bytes_sent.max(1)
            });
            let endpoint = connection.map(|it| it.peer_addr().to_string());
            let rtt = account.as_ref().and_then(|it| it.path.rtt);
            peers.push(PeerStatus {
                public_key: peer.config.key.to_string(),
                allowed: peer
                    .config
                    .allowed
                    .iter()
                    .map(|it| format!("{}/{}", it.address, it.len))
                    .collect(),
                endpoint: endpoint.or_else(|| peer.config.endpoints.first().cloned()),
                connected_s: open.map(|(_, since)| since.elapsed().as_secs()),
                rtt_us: rtt.map(|it| it.as_micros() as u64),
                lost_ppm,
                cipher: account
                    .and_then(|it| it.cipher)
                    .map(|it| it.name().to_owned()),
                counters: self.engine.counters(index),
            });
        }
        Status {
            interface: self.device.name().to_owned(),
            public_key: self.identity.public().to_string(),
            port: self.address().map(|it| it.port()),
            callers: self.callers(),
            offload: match self.device.offload() {
                TunOffload::None => "none",
                TunOffload::Tcp => "tcp",
                TunOffload::TcpAndUdp => "tcp_and_udp",
            }
            .to_owned(),
            dropped_by_host: self.dropped_by_host,
            host: self.engine.host_counters(),
            peers,
        }
    }
}

impl AsFd for Tunnel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
