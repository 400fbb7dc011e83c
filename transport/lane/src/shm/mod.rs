//! The lane of two processes of one host and one user: memory that they share.
//!
//! ```text
//!   Initiator                                   Responder
//!   +-----------+   socket: met by, wakes by, ends with the process   +-----------+
//!   |           | <-------------------------------------------------> |           |
//!   |           |   memfd: ring of records, and back                  |           |
//!   |           | --- datagram: header, payload --------------------> |           |
//!   | [payload] | --- reference: header, address, length -----------> | [payload] |
//!   +-----------+ ======= process_vm_readv, one copy ================> +-----------+
//! ```
//!
//! Short payload travels in the ring, long payload by reference: the receiver shows the header to the core, copies from
//! the sender's memory into the final place by one system call, and tells the core that it is there. Memory that a record
//! names may go back to its owner before the record was taken: the sender says so first
//! ([`ring::Producer::void`]), and the receiver looks after each copy, before anything of it is told.
//!
//! Nothing is encrypted: who may read this memory may read the processes as well. Identities are proven as on every lane.

mod access;
mod entry;
mod lease;
mod lend;
mod link;
mod look;
mod mapping;
mod peer;
mod receive;
mod rendezvous;
mod ring;
mod send;
mod visitors;

pub use look::{Reach, look};
pub use rendezvous::{BadRendezvousName, NoSharedMemory, RendezvousName};
pub use ring::RingFault;
pub(crate) use visitors::{Arrived, Visitor, Visitors};

use crate::initiate::initiate;
use crate::sync;
use crate::udp::Seat;
use crate::{
    Account, Driver, Exporting, Lane, LaneError, LaneKind, Options, RemoteAccess, Turn, Waker, poll,
};
use access::Reached;
use lend::Lending;
use link::Link;
use mapping::Shared;
use peer::PeerProcess;
use send::Outgoing;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use zerolane_core::{Config, Control, Entropy, Instant, RegionId, RemotePlace, limits};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::encapsulation::{Encapsulation, MAX_MEMORY_STU};
use zerolane_wire::{Reason, Rights};

/// Payload granted at a time, bytes: more leaves the caches.
const WINDOW: u32 = 4 << 20;
/// How often an end that finds nothing looks whether the peer's process lives, which a sleeping one is told of.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Longest sleep on the socket alone, for the same reason: a child of the peer's may have a copy of it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// One connection over memory that is shared with the peer.
#[derive(Debug)]
pub struct ShmLane {
    link: Link,
    outgoing: Outgoing,
    /// This end's memory that the peer maps, and the peer's that is mapped here.
    lending: Box<Lending>,
    reached: Reached,
    /// This end's part in the key exchange, where there is one.
    exchange: Option<Exchange>,
    /// The key exchange is not done: nothing else is taken, or sent.
    waiting: bool,
    peer_key: Option<PublicKey>,
    peer: SocketAddr,
    local: SocketAddr,
    key: u32,
    /// Its place among the connections of a listener.
    seat: Option<Seat>,
    fault: Option<RingFault>,
    /// When something was sent last.
    sent: Option<Instant>,
    /// When it is looked next whether the peer's process lives.
    next_look: Instant,
    strict: bool,
    process: crate::Process,
}

/// The two ends of a connection, as far as addresses have a meaning in memory: what was called, and for an Initiator port 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl ShmLane {
    fn new(link: Link, ends: Ends, key: u32, options: &Options) -> ShmLane {
        ShmLane {
            link,
            outgoing: Outgoing::default(),
            lending: Box::default(),
            reached: Reached::default(),
            exchange: None,
            waiting: false,
            peer_key: None,
            peer: ends.peer,
            local: ends.local,
            key,
            seat: None,
            fault: None,
            sent: None,
            next_look: Instant::ZERO,
            strict: options.strict,
            process: crate::Process::current(),
        }
    }

    /// Of a stranger that a listener lets in, who is one of those that have a seat.
    pub(crate) fn accepted(visitor: Visitor, ends: Ends, seat: Seat, options: &Options) -> ShmLane {
        let mut link = visitor.into_link();
        link.set_strict(options.strict);
        let mut lane = ShmLane::new(link, ends, seat.key(), options);
        lane.seat = Some(seat);
        lane
    }

    /// Of one that is not let in after all.
    pub(crate) fn into_visitor(self) -> Visitor {
        Visitor::of(self.link)
    }

    /// This end's part in the key exchange: nothing else is taken or sent until it is done.
    fn begin(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
        self.waiting = true;
    }

    /// What the key exchange gave: who the peer is.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: &Session) {
        self.exchange = Some(exchange);
        self.peer_key = Some(session.peer);
    }

    /// Who the peer proved to be: `None` in plain mode, and before it did.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The socket, to be waited on together with others once [`Lane::longest_sleep`] was asked for.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// Readable once the peer's process ended, also while a child of it has its end of the socket: to be waited on besides
    /// that. `None` where the kernel has no such thing (before 5.3), or no descriptor was left for it, and for a peer in this
    /// very process.
    pub fn peer_process(&self) -> Option<BorrowedFd<'_>> {
        self.link.process.handle()
    }

    /// Our address: of a Responder what it listens on, of an Initiator that of the host.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address: of an Initiator that of the host, with port 0.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Whether something has arrived, or there is room that was waited for. Costs no system call.
    pub fn has_arrived(&self) -> bool {
        self.link.has_more() || self.outgoing.is_full() && self.link.has_made_room()
    }

    /// Gives the listener up. False if it has let this Initiator in: then it is to be waited for.
    pub(crate) fn leave(&self) -> bool {
        self.link.shared().entry().leave()
    }

    /// Whether the socket tells of what arrives: it was asked for [`Lane::longest_sleep`], and not turned since.
    pub fn is_armed(&self) -> bool {
        self.link.is_armed()
    }

    /// The peer broke what is shared.
    fn broken(&mut self, fault: RingFault) -> LaneError {
        self.fault = Some(fault);
        LaneError::Broken
    }
}

impl Lane for ShmLane {
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        self.take_arrived(turn)
    }

    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        self.send_owed(turn)
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        if self.longest_sleep() == Some(Duration::ZERO) {
            return Ok(true);
        }
        let timeout = timeout.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        let (socket, process) = (self.link.socket(), self.link.process.handle());
        waker.sleep(|wake| poll::wait(Some(socket), false, [wake, process], Some(timeout)))
    }

    /// Room in the ring is told of as what arrives is.
    fn wants_write(&self) -> bool {
        false
    }

    /// From here on the peer tells by the socket of what it writes: to be asked for before a sleep.
    fn longest_sleep(&self) -> Option<Duration> {
        let quiet = self.link.arm(self.outgoing.is_full());
        Some(if quiet { LONGEST_SLEEP } else { Duration::ZERO })
    }

    /// What a record names goes back at once: see [`Lane::recall`].
    fn holds(&self, _: RegionId) -> bool {
        false
    }

    fn recall(&mut self, region: RegionId) {
        // A child of fork gives back copies of its own.
        if self.process.is_current() {
            self.outgoing.recall(region, &mut self.link);
        }
    }

    fn lend(&mut self, memory: &Exporting, place: RemotePlace, rights: Rights) {
        self.lending.offer(memory, place, rights);
    }

    fn take_back(&mut self, handle: u32) {
        self.lending.take_back(handle);
    }

    fn reaches_memory(&self) -> bool {
        self.reaches()
    }

    fn access(
        &mut self,
        at: RemotePlace,
        access: &mut RemoteAccess<'_>,
    ) -> Option<Result<u64, Reason>> {
        self.access_at_once(at, access)
    }

    fn describe(&self, account: &mut Account) {
        account.lane = LaneKind::SharedMemory;
        account.ring_fault = self.fault;
    }
}

/// What an Initiator needs of a peer of its host.
pub(crate) struct Met {
    link: Link,
    ends: Ends,
}

/// Meets what listens at `peer`, if that is of this host and this user, and shares memory with it.
///
/// # Errors
/// Why not.
pub(crate) fn meet(peer: SocketAddr, options: &Options) -> Result<Met, NoSharedMemory> {
    if options.security.cipher.is_some() {
        return Err(NoSharedMemory::Cipher);
    }
    if options.most_paths() > 1 {
        return Err(NoSharedMemory::Paths);
    }
    let (socket, credentials) = rendezvous::meet(peer, options.rendezvous.as_ref())?;
    let share = || {
        let (shared, memory) = Shared::create()?;
        let process = PeerProcess::of(&credentials);
        let link = Link::new(socket, shared, process, mark()?, options.strict);
        link.await_peer();
        rendezvous::pass_shared(link.raw_socket(), &memory)?;
        io::Result::Ok(link)
    };
    let link = share().map_err(|_| NoSharedMemory::System)?;
    // Of this host, too: the same address, with its interface.
    let mut local = peer;
    local.set_port(0);
    let ends = Ends { local, peer };
    Ok(Met { link, ends })
}

/// A number that does not lie in the memory of another process by chance.
fn mark() -> io::Result<u64> {
    let random = crate::random()?;
    let [a, b, c, d, e, f, g, h, ..] = random;
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}

/// Opens a connection over what was met. The handshake runs inside the driver's calls.
///
/// # Errors
/// The system gives no random numbers, or the cryptography refuses this end's key.
pub(crate) fn connect<L: Lane>(
    met: Met,
    options: &Options,
    entropy: Entropy,
    wrap: impl FnOnce(ShmLane) -> L,
) -> io::Result<Driver<L>> {
    let lane = ShmLane::new(met.link, met.ends, entropy.key, options);
    let config = config(options);
    initiate(lane, config, options, entropy, ShmLane::begin, wrap)
}

/// What the core is to know: nothing is lost here, there is no path to be shared or probed, and nothing is sealed.
pub(crate) fn config(options: &Options) -> Config {
    Config {
        profiles: options.profiles,
        slots: options.slots,
        window: WINDOW.min(options.max_in_flight).max(4096),
        max_window: options.max_in_flight,
        control: Control::Lan,
        max_rate: options.max_rate,
        block: options.block,
        max_stu: MAX_MEMORY_STU as u32,
        eager_limit: options.eager_limit,
        eager_credit: options.eager_credit(),
        checksum: false,
        burst_segments: send::MAX_STUS,
        seal: 0,
        encapsulation: Encapsulation::Memory,
        path_datagram: link::MAX_RECORD,
        connect_timeout: options.connect_timeout,
        idle_timeout: options.idle_timeout,
        ..Config::default()
    }
}

#[cfg(test)]
mod immediate_tests;
#[cfg(test)]
mod lease_tests;
#[cfg(test)]
mod ring_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod undecided_tests;

const _: () = assert!(limits::MAX_EAGER as usize <= MAX_MEMORY_STU);
