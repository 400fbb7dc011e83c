//! One of the lanes that there are: what carries a connection is chosen when it is made.

use crate::ethernet::{self, EthernetLane};
use crate::fallback::Fallback;
use crate::ip::{self, IpLane};
use crate::shm::{self, NoSharedMemory, ShmLane};
use crate::udp::{self, UdpLane};
use crate::{
    Account, Driver, Exporting, Lane, LaneChoice, LaneError, Options, PathAddresses, RemoteAccess,
    Turn, Waker,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use zerolane_core::{Config, Life, RegionId, RemotePlace};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::{Reason, Rights};

/// A lane of any kind.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a driver, which is boxed where there are many"
)]
pub enum AnyLane {
    /// UDP; and why not shared memory, where that was asked for.
    Udp(UdpLane, Option<NoSharedMemory>),
    /// Memory shared with a process of this host and user; and the other way, as long as an Initiator that does not insist
    /// on this one is not answered.
    SharedMemory(ShmLane, Option<Box<Fallback>>),
    /// Frames of raw Ethernet.
    Ethernet(EthernetLane),
    /// Packets of IP protocol 118.
    Ip118(IpLane),
}

/// Opens a connection to `peer` over the lane that `options` choose. The handshake runs inside the driver's calls.
///
/// # Errors
/// No socket, or no route to `peer`; or shared memory, raw Ethernet or IP protocol 118 was insisted on, and cannot be:
/// why. Or as of [`Options::check`].
pub fn connect(peer: SocketAddr, options: &Options) -> io::Result<Driver<AnyLane>> {
    options.check()?;
    let met = match options.lane {
        LaneChoice::Udp => None,
        LaneChoice::Best => Some(shm::meet(peer, options)),
        LaneChoice::SharedMemory => Some(Ok(shm::meet(peer, options)?)),
        LaneChoice::Ethernet => {
            let device = options.device.as_ref();
            let taken = |key| device.is_some_and(|it| it.is_taken(key));
            let entropy = udp::distinct(udp::entropy, taken)?;
            return ethernet::connect_as(peer, options, entropy, AnyLane::Ethernet);
        }
        LaneChoice::Ip118 => {
            return ip::connect_as(peer, options, udp::entropy()?, AnyLane::Ip118);
        }
    };
    let entropy = udp::entropy()?;
    match met {
        Some(Ok(met)) => {
            let best = options.lane == LaneChoice::Best;
            let fallback = best.then(|| Box::new(Fallback::new(options)));
            let wrap = |it| AnyLane::SharedMemory(it, fallback);
            shm::connect(met, options, entropy, wrap)
        }
        Some(Err(why)) => udp::connect_as(peer, options, entropy, |it| AnyLane::Udp(it, Some(why))),
        None => udp::connect_as(peer, options, entropy, |it| AnyLane::Udp(it, None)),
    }
}

/// Does the same with whichever it is.
macro_rules! of_each {
    ($lane:expr, $it:ident => $do:expr) => {
        match $lane {
            AnyLane::Udp($it, _) => $do,
            AnyLane::SharedMemory($it, _) => $do,
            AnyLane::Ethernet($it) => $do,
            AnyLane::Ip118($it) => $do,
        }
    };
}

impl AnyLane {
    /// Who the peer proved to be: `None` in plain mode, and before it did.
    pub fn peer_key(&self) -> Option<PublicKey> {
        of_each!(self, it => it.peer_key())
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        of_each!(self, it => it.key())
    }

    /// What is to be watched, once [`Driver::next_timeout`] was asked for.
    pub fn socket(&self) -> BorrowedFd<'_> {
        of_each!(self, it => it.socket())
    }

    /// What is to be watched besides the socket: readable once the peer's process ended. See [`ShmLane::peer_process`].
    pub fn peer_process(&self) -> Option<BorrowedFd<'_>> {
        match self {
            AnyLane::Udp(..) | AnyLane::Ethernet(_) | AnyLane::Ip118(_) => None,
            AnyLane::SharedMemory(it, _) => it.peer_process(),
        }
    }

    /// Our address at present, if there is a way to the peer.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            AnyLane::Udp(it, _) => it.local_addr(),
            AnyLane::SharedMemory(it, _) => Some(it.local_addr()),
            AnyLane::Ethernet(it) => Some(it.local_addr()),
            AnyLane::Ip118(it) => Some(it.local_addr()),
        }
    }

    /// The peer's address at present. In shared memory an Initiator has none but the host's, with port 0.
    pub fn peer_addr(&self) -> SocketAddr {
        of_each!(self, it => it.peer_addr())
    }

    /// The next turn that receives nothing looks whether the peer moved, if it is silent: over UDP alone; and for paths over UDP
    /// that the peer adds.
    pub fn look_for_peer(&mut self) {
        match self {
            AnyLane::Udp(it, _) => it.look_for_peer(),
            AnyLane::Ethernet(it) => it.look_for_paths(),
            AnyLane::SharedMemory(..) | AnyLane::Ip118(_) => {}
        }
    }

    /// Whether [`AnyLane::socket`] says nothing of what arrives, as this end told its peer that it is awake: it is to be asked
    /// whether something [has arrived](AnyLane::has_arrived).
    pub fn is_awake(&self) -> bool {
        match self {
            AnyLane::Udp(..) | AnyLane::Ethernet(_) | AnyLane::Ip118(_) => false,
            AnyLane::SharedMemory(it, _) => !it.is_armed(),
        }
    }

    /// Whether something lies in memory to be taken, or there is room that was waited for. Costs no system call.
    pub fn has_arrived(&self) -> bool {
        match self {
            AnyLane::Udp(..) | AnyLane::Ethernet(_) | AnyLane::Ip118(_) => false,
            AnyLane::SharedMemory(it, _) => it.has_arrived(),
        }
    }

    /// Whether the next turn may find that another lane is to carry the connection, with other descriptors: it is opened from
    /// here, not answered, and may go by UDP.
    pub fn is_undecided(&self) -> bool {
        matches!(self, AnyLane::SharedMemory(_, Some(_)))
    }

    /// What came of a look for what has arrived: where this Initiator is not let in, or turned away, it goes by UDP from here
    /// on.
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
            Err(LaneError::Gone) => NoSharedMemory::TurnedAway,
            Ok(_) if fallback.is_late(turn.now) && lane.leave() => NoSharedMemory::NotLetIn,
            _ => return received,
        };
        let lane = fallback.go(lane.peer_addr(), turn);
        *self = AnyLane::Udp(lane.map_err(LaneError::Io)?, Some(why));
        Ok(true)
    }

    /// Adds a path as soon as the connection is open. False if what carries it has none, or [`Options`] did not ask
    /// for several.
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        match self {
            AnyLane::Udp(it, _) => it.add_path(addresses),
            AnyLane::Ethernet(it) => it.add_path(addresses),
            AnyLane::SharedMemory(..) | AnyLane::Ip118(_) => false,
        }
    }

    pub(crate) fn config(&self, options: &Options) -> Config {
        match self {
            AnyLane::Udp(it, _) => it.config(options),
            AnyLane::SharedMemory(..) => shm::config(options),
            AnyLane::Ethernet(it) => it.config(options),
            AnyLane::Ip118(it) => it.config(options),
        }
    }

    /// The peer finished its key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        match self {
            AnyLane::Udp(it, _) => {
                it.begin(exchange);
                it.protect(session)
            }
            AnyLane::SharedMemory(it, _) => {
                it.admit(exchange, &session);
                true
            }
            AnyLane::Ethernet(it) => it.admit(exchange, session),
            AnyLane::Ip118(it) => it.admit(exchange, session),
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
        if let AnyLane::Udp(_, why) = self {
            account.no_shared_memory = *why;
        }
    }
}
