//! Chooses the lane of a connection when the connection is made.

mod fallback;

use crate::account::Account;
use crate::address::{LaneChoice, PathAddresses};
use crate::datagram::{DatagramLane, ethernet, ip118, udp};
use crate::driver::Driver;
use crate::entropy;
use crate::error::LaneError;
use crate::lane::{Lane, RemoteAccess, Turn};
use crate::memory::Exporting;
use crate::options::Options;
use crate::seal::security;
use crate::shm::{self, ShmLane};
use crate::unavailable::NoSharedMemory;
use crate::wait::Waker;
use fallback::Fallback;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use zerolane_core::{Config, Connection, Entropy, Life, RegionId, RemotePlace};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::{Reason, Rights};

/// A lane of any kind.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a driver, which is boxed where there are many"
)]
pub enum AnyLane {
    /// UDP, IP protocol 118 or raw Ethernet, and why not shared memory if that was requested.
    Datagram(DatagramLane, Option<NoSharedMemory>),
    /// Memory shared with a process of this host and user. The fallback is present until the peer answers, unless this
    /// Initiator insists on shared memory.
    SharedMemory(ShmLane, Option<Box<Fallback>>),
}

/// Opens a connection to `peer` over the lane that `options` choose. The handshake runs inside the driver's calls.
///
/// # Errors
/// There is no socket or no route to `peer`; or the options insist on shared memory, raw Ethernet or IP protocol 118,
/// and the error says why it is not available; or the system gives no random numbers. Or as [`Options::check`].
pub fn connect(peer: SocketAddr, options: &Options) -> io::Result<Driver<AnyLane>> {
    options.check()?;
    let device = options.lane.device.as_ref();
    let taken = |key| device.is_some_and(|it| it.is_taken(key));
    let entropy = entropy::distinct(entropy::draw, taken)?;
    let (mut lane, config) = lane_to(peer, options, entropy)?;
    let start = match exchange(&config, options, entropy)? {
        None => Connection::connect,
        Some(exchange) => {
            lane.begin(exchange);
            Connection::connect_protected
        }
    };
    Ok(Driver::new(lane, options, |now| {
        start(now, config, entropy)
    }))
}

/// The lane to `peer`, and the core's configuration.
fn lane_to(peer: SocketAddr, options: &Options, entropy: Entropy) -> io::Result<(AnyLane, Config)> {
    let over = |(lane, config)| (AnyLane::Datagram(lane, None), config);
    let no_shared_memory = match options.lane.choice {
        LaneChoice::Ethernet => return ethernet::to(peer, options, entropy).map(over),
        LaneChoice::Ip118 => return ip118::to(peer, options, entropy).map(over),
        LaneChoice::Udp => None,
        LaneChoice::Best | LaneChoice::SharedMemory => match shm::to(peer, options, entropy) {
            Ok(lane) => {
                let best = options.lane.choice == LaneChoice::Best;
                let fallback = best.then(|| Box::new(Fallback::new(options)));
                return Ok((AnyLane::SharedMemory(lane, fallback), shm::config(options)));
            }
            Err(why) if options.lane.choice == LaneChoice::Best => Some(why),
            Err(why) => return Err(why.into()),
        },
    };
    let lane = udp::to(peer, options, entropy)?;
    let config = lane.config(options);
    Ok((AnyLane::Datagram(lane, no_shared_memory), config))
}

/// This end's part of the key exchange; `None` in plain mode.
///
/// # Errors
/// This end has no key, the system gives no random numbers, or the cryptography refuses the key.
fn exchange(config: &Config, options: &Options, entropy: Entropy) -> io::Result<Option<Exchange>> {
    let Some(credentials) = options.security.credentials()? else {
        return Ok(None);
    };
    let ephemeral = security::random()?;
    Exchange::initiate(credentials, ephemeral, config.service_port, entropy)
        .ok_or_else(|| io::Error::other("the cryptography refuses this end's key"))
        .map(Some)
}

/// Evaluates the same expression for each kind of lane.
macro_rules! of_each {
    ($lane:expr, $it:ident => $do:expr) => {
        match $lane {
            AnyLane::Datagram($it, _) => $do,
            AnyLane::SharedMemory($it, _) => $do,
        }
    };
}

impl AnyLane {
    /// The identity that the peer proved: `None` in plain mode, and before the proof.
    pub fn peer_key(&self) -> Option<PublicKey> {
        of_each!(self, it => it.peer_key())
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        of_each!(self, it => it.key())
    }

    /// The descriptor to watch, after a call to [`Driver::next_timeout`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        of_each!(self, it => it.socket())
    }

    /// A second descriptor to watch: readable once the peer's process has ended. See [`ShmLane::peer_process`].
    pub fn peer_process(&self) -> Option<BorrowedFd<'_>> {
        match self {
            AnyLane::Datagram(..) => None,
            AnyLane::SharedMemory(it, _) => it.peer_process(),
        }
    }

    /// This end's address at present, if there is a route to the peer.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            AnyLane::Datagram(it, _) => it.local_addr(),
            AnyLane::SharedMemory(it, _) => Some(it.local_addr()),
        }
    }

    /// The peer's address at present. In shared memory an Initiator has only the host's address, with port 0.
    pub fn peer_addr(&self) -> SocketAddr {
        of_each!(self, it => it.peer_addr())
    }

    /// Makes the next turn that receives nothing check whether a silent peer moved (over UDP only), and whether the
    /// peer adds paths over UDP.
    pub fn look_for_peer(&mut self) {
        match self {
            AnyLane::Datagram(it, _) => it.look_for_peer(),
            AnyLane::SharedMemory(..) => {}
        }
    }

    /// Whether [`AnyLane::socket`] does not report arrivals, because this end told its peer that it is awake. The
    /// caller must then poll [`has_arrived`](AnyLane::has_arrived).
    pub fn is_polled(&self) -> bool {
        match self {
            AnyLane::Datagram(..) => false,
            AnyLane::SharedMemory(it, _) => !it.is_armed(),
        }
    }

    /// Whether there is something to receive in memory, or the room that this end waited for. Makes no system call.
    pub fn has_arrived(&self) -> bool {
        match self {
            AnyLane::Datagram(..) => false,
            AnyLane::SharedMemory(it, _) => it.has_arrived(),
        }
    }

    /// Whether the next turn may change to another lane with other descriptors: this end opened the connection, the
    /// peer has not answered, and the connection may fall back to UDP.
    pub fn is_undecided(&self) -> bool {
        matches!(self, AnyLane::SharedMemory(_, Some(_)))
    }

    /// Handles the result of a receive. If this Initiator is refused or not admitted in time, it continues by UDP.
    fn decide(
        &mut self,
        received: Result<bool, LaneError>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let AnyLane::SharedMemory(lane, undecided) = self else {
            return received;
        };
        let Some(fallback) = undecided else {
            return received;
        };
        let why = match &received {
            _ if turn.core.life() != Life::Connecting => {
                *undecided = None;
                return received;
            }
            Err(LaneError::Gone) => NoSharedMemory::Rejected,
            Ok(_) if fallback.is_late(turn.now) && lane.leave() => NoSharedMemory::NotAdmitted,
            _ => return received,
        };
        let lane = fallback.go(lane.peer_addr(), turn);
        *self = AnyLane::Datagram(lane.map_err(LaneError::Io)?, Some(why));
        Ok(true)
    }

    /// Adds a path as soon as the connection is open. False if the lane has only one path, or [`Options`] did not ask
    /// for several.
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        match self {
            AnyLane::Datagram(it, _) => it.add_path(addresses),
            AnyLane::SharedMemory(..) => false,
        }
    }

    pub(crate) fn config(&self, options: &Options) -> Config {
        match self {
            AnyLane::Datagram(it, _) => it.config(options),
            AnyLane::SharedMemory(..) => shm::config(options),
        }
    }

    /// Takes this end's part of the key exchange.
    fn begin(&mut self, exchange: Exchange) {
        of_each!(self, it => it.begin(exchange));
    }

    /// The peer finished its key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        match self {
            AnyLane::Datagram(it, _) => it.admit(exchange, session),
            AnyLane::SharedMemory(it, _) => {
                it.admit(exchange, &session);
                true
            }
        }
    }
}

impl Lane for AnyLane {
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let received = of_each!(self, it => it.receive(turn));
        self.decide(received, turn)
    }

    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        of_each!(self, it => it.transmit(turn))
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        of_each!(self, it => it.wait(waker, timeout))
    }

    fn wants_write(&self) -> bool {
        of_each!(self, it => it.wants_write())
    }

    fn longest_sleep(&self) -> Option<Duration> {
        of_each!(self, it => it.longest_sleep())
    }

    fn holds(&self, region: RegionId) -> bool {
        of_each!(self, it => it.holds(region))
    }

    fn recall(&mut self, region: RegionId) {
        of_each!(self, it => it.recall(region));
    }

    fn lend(&mut self, memory: &Exporting, place: RemotePlace, rights: Rights) {
        of_each!(self, it => it.lend(memory, place, rights));
    }

    fn take_back(&mut self, handle: u32) {
        of_each!(self, it => it.take_back(handle));
    }

    fn reaches_memory(&self) -> bool {
        of_each!(self, it => it.reaches_memory())
    }

    fn access(
        &mut self,
        at: RemotePlace,
        access: &mut RemoteAccess<'_>,
    ) -> Option<Result<u64, Reason>> {
        of_each!(self, it => it.access(at, access))
    }

    fn describe(&self, account: &mut Account) {
        of_each!(self, it => it.describe(account));
        if let AnyLane::Datagram(_, why) = self {
            account.no_shared_memory = *why;
        }
    }
}
