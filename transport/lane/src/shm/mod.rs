//! Carries connections between two processes of one host and one user through shared memory.
//!
//! ```text
//!   Initiator                                   Responder
//!   +-----------+   socket: meeting, wake-ups, end of the process     +-----------+
//!   |           | <-------------------------------------------------> |           |
//!   |           |   memfd: ring of records, and back                  |           |
//!   |           | --- datagram: header, payload --------------------> |           |
//!   | [payload] | --- reference: header, address, length -----------> | [payload] |
//!   +-----------+ ======= process_vm_readv, one copy ================> +-----------+
//! ```
//!
//! Short payload travels in the ring, long payload by reference: the receiver shows the header to the core, copies from
//! the sender's memory into the final place by one system call, and reports the payload to the core. Memory that a
//! record names may return to its owner before the receiver has taken the record. The sender retires the record first
//! ([`ring::Producer::retire`]), and the receiver checks for that after each copy, before it reports any of the bytes.
//!
//! Nothing is encrypted: a user who can read this memory can read the processes as well. Identities are proven as on
//! every lane.

mod access;
mod entry;
mod lease;
mod lend;
mod link;
mod mapping;
mod peer;
mod probe;
mod receive;
mod rendezvous;
mod ring;
mod send;
mod visitors;

pub use probe::{Reach, probe_shared_memory};
pub(crate) use rendezvous::without_rendezvous;
pub(crate) use visitors::{Arrived, Visitor, Visitors};

use crate::account::{Account, LaneKind};
use crate::error::LaneError;
use crate::lane::{Lane, RemoteAccess, Turn};
use crate::memory::Exporting;
use crate::options::Options;
use crate::socket::PortSlot;
use crate::unavailable::{NoSharedMemory, RingFault};
use crate::wait::{Waker, poll};
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

/// Payload granted at a time, in bytes: more would exceed the caches.
const WINDOW: u32 = 4 << 20;
/// How often an idle end checks whether the peer's process lives. A sleeping end learns of that by the socket.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Longest sleep on the socket alone, because a child of the peer may have a copy of the socket.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// One connection over memory shared with the peer.
#[derive(Debug)]
pub struct ShmLane {
    link: Link,
    outgoing: Outgoing,
    /// This end's memory that the peer maps, and the peer's memory that this end maps.
    lending: Box<Lending>,
    reached: Reached,
    /// This end's part of the key exchange, if there is one.
    exchange: Option<Exchange>,
    /// The key exchange is in progress: nothing else is received or sent.
    waiting: bool,
    peer_key: Option<PublicKey>,
    peer: SocketAddr,
    local: SocketAddr,
    key: u32,
    /// Its place among the connections of a listener.
    port_slot: Option<PortSlot>,
    fault: Option<RingFault>,
    /// When something was last sent.
    sent: Option<Instant>,
    /// When to check next whether the peer's process lives.
    next_look: Instant,
    strict: bool,
    process: crate::threads::Process,
}

/// The addresses of the two ends, as far as memory has any: the address called, and for an Initiator port 0.
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
            port_slot: None,
            fault: None,
            sent: None,
            next_look: Instant::ZERO,
            strict: options.strict,
            process: crate::threads::Process::current(),
        }
    }

    /// A lane for a visitor that a listener admits and that has a slot of the port.
    pub(crate) fn accepted(
        visitor: Visitor,
        ends: Ends,
        port_slot: PortSlot,
        options: &Options,
    ) -> ShmLane {
        let mut link = visitor.into_link();
        link.set_strict(options.strict);
        let mut lane = ShmLane::new(link, ends, port_slot.key(), options);
        lane.port_slot = Some(port_slot);
        lane
    }

    /// Turns the lane back into a visitor that was not admitted after all.
    pub(crate) fn into_visitor(self) -> Visitor {
        Visitor::of(self.link)
    }

    /// Takes this end's part of the key exchange: nothing else is received or sent until that is done.
    pub(crate) fn begin(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
        self.waiting = true;
    }

    /// Takes the result of the key exchange: the peer's identity.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: &Session) {
        self.exchange = Some(exchange);
        self.peer_key = Some(session.peer);
    }

    /// The identity that the peer proved: `None` in plain mode, and before the proof.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The descriptor to wait on together with others, after a call to [`Lane::longest_sleep`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.link.socket()
    }

    /// Readable once the peer's process has ended, even while a child of that process has its end of the socket: wait
    /// on it besides the socket. `None` if the kernel has no such descriptor (before 5.3), none was left, or the peer
    /// is this very process.
    pub fn peer_process(&self) -> Option<BorrowedFd<'_>> {
        self.link.process.handle()
    }

    /// This end's address: for a Responder its listening address, for an Initiator the host's.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address: for an Initiator the host's, with port 0.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Whether there is something to receive, or the room that this end waited for. Makes no system call.
    pub fn has_arrived(&self) -> bool {
        self.link.has_more() || self.outgoing.is_full() && self.link.has_made_room()
    }

    /// Leaves the listener. False if the listener has admitted this Initiator, which must then wait for it.
    pub(crate) fn leave(&self) -> bool {
        self.link.shared().entry().leave()
    }

    /// Whether the socket reports arrivals: [`Lane::longest_sleep`] was called, and no turn came since.
    pub fn is_armed(&self) -> bool {
        self.link.is_armed()
    }

    /// Records how the peer violated the protocol.
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

    /// The socket reports room in the ring as it reports arrivals.
    fn wants_write(&self) -> bool {
        false
    }

    /// Makes the peer report its writes by the socket from now on. Call it before a sleep.
    fn longest_sleep(&self) -> Option<Duration> {
        let quiet = self.link.arm(self.outgoing.is_full());
        Some(if quiet { LONGEST_SLEEP } else { Duration::ZERO })
    }

    /// Memory that a record names returns at once: see [`Lane::recall`].
    fn holds(&self, _: RegionId) -> bool {
        false
    }

    fn recall(&mut self, region: RegionId) {
        // In a child of fork the memory is a copy, and the ring belongs to the parent.
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

/// A lane to the listener at `peer`, with this end's key from `entropy`.
///
/// # Errors
/// As [`link_to`].
pub(crate) fn to(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
) -> Result<ShmLane, NoSharedMemory> {
    let link = link_to(peer, options)?;
    // On this host as well: the same address, with its interface.
    let mut local = peer;
    local.set_port(0);
    Ok(ShmLane::new(
        link,
        Ends { local, peer },
        entropy.key,
        options,
    ))
}

/// Connects to the listener at `peer`, if it belongs to this host and this user, and shares memory with it.
///
/// # Errors
/// Why not.
fn link_to(peer: SocketAddr, options: &Options) -> Result<Link, NoSharedMemory> {
    if options.security.cipher.is_some() {
        return Err(NoSharedMemory::Cipher);
    }
    if options.most_paths() > 1 {
        return Err(NoSharedMemory::Paths);
    }
    let (socket, credentials) = rendezvous::connect(peer, options.lane.rendezvous.as_ref())?;
    let share = || {
        let (shared, memory) = Shared::create()?;
        let process = PeerProcess::of(&credentials);
        let link = Link::new(socket, shared, process, mark()?, options.strict);
        link.await_peer();
        rendezvous::pass_shared(link.raw_socket(), &memory)?;
        io::Result::Ok(link)
    };
    share().map_err(|_| NoSharedMemory::System)
}

/// A number that another process's memory does not contain by chance.
fn mark() -> io::Result<u64> {
    let random = crate::seal::random()?;
    let [a, b, c, d, e, f, g, h, ..] = random;
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}

/// The core's configuration: nothing is lost here, there is no path to share or probe, and nothing is sealed.
pub(crate) fn config(options: &Options) -> Config {
    Config {
        profiles: options.profiles,
        slots: options.flow.slots,
        window: WINDOW.min(options.flow.max_in_flight).max(4096),
        max_window: options.flow.max_in_flight,
        control: Control::Lan,
        max_rate: options.rate.max,
        block: options.flow.block,
        max_stu: MAX_MEMORY_STU as u32,
        eager_limit: options.flow.eager_limit,
        eager_credit: options.eager_credit(),
        checksum: false,
        burst_segments: send::MAX_STUS,
        seal: 0,
        encapsulation: Encapsulation::Memory,
        path_datagram: link::MAX_RECORD,
        connect_timeout: options.times.connect,
        idle_timeout: options.times.idle,
        keep_alive: options.times.keep_alive,
        private_data: options.private_data,
        asks: options.listen.asks,
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
