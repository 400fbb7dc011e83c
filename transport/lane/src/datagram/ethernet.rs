//! Carries connections in raw Ethernet frames of EtherType 0x8181 to hosts of the same segment, without IP and UDP.
//!
//! ```text
//!  +-------------+-----------+------+--------------------+---------+
//!  | destination | source    | 8181 | header, 40 bytes   | payload |
//!  +-------------+-----------+------+--------------------+---------+
//!    the kernel's, by a packet socket   D_Port: which listener;  D_Key: which connection
//! ```
//!
//! Each connection has a packet socket of its own. A filter in the kernel passes only frames with the connection's key,
//! so that all arrivals belong to the connection and the forecast holds, as with a connected UDP socket. The UDP lane's
//! code gathers and scatters; each datagram is a frame, because the kernel neither segments nor merges these. Frames
//! that the peer did not send from its hardware address, and frames for another host or in a VLAN, are dropped and
//! counted.
//!
//! Paths besides this one have sockets of their own (`links`).
//!
//! With an [`EthernetDevice`], frames lie in memory shared with the kernel ([`afxdp`]). The packet socket remains for
//! frames that the program in the driver passes on: all of them once the program is detached.

use super::links::{FirstPath, FirstPeer, Links};
use super::migration::LONGEST_SLEEP;
use super::new_addresses::NewAddresses;
use super::protect::protect;
use super::receive::{Envelope, Receiver};
use super::send::Sender;
use super::udp;
use crate::account::{Account, LaneKind};
use crate::address::{Hardware, PathAddresses, Station};
use crate::driver::{Driver, initiate};
use crate::error::LaneError;
use crate::ethernet::{self, IncomingFrames, Line, OutgoingFrames, Queues};
use crate::lane::{Lane, Turn};
use crate::options::Options;
use crate::socket::{self, MAX_MESSAGES, PortSlot, SharedPort};
use crate::unavailable::{NoBypass, NoEthernet};
use crate::wait::{Waker, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Entropy, Instant, RegionId};
use zerolane_handshake::{Exchange, PublicKey, Session};
use zerolane_wire::encapsulation::Encapsulation;

/// Interval at which a connection with queues polls its packet socket while that brings nothing.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// One packet socket, at one interface, for one peer; and the connection's part of a device.
#[derive(Debug)]
pub struct EthernetLane {
    socket: Socket,
    bypass: Option<Bypass>,
    /// Why there is no bypass, although one was requested.
    no_bypass: Option<NoBypass>,
    local: SocketAddr,
    peer: SocketAddr,
    /// The peer, as a station.
    station: Station,
    sender: Sender,
    receiver: Receiver,
    port_slot: PortSlot,
    strict: bool,
    /// The paths besides this one, if there may be any.
    links: Option<Box<Links>>,
    /// Where questions for paths over UDP arrive, if the peer may ask.
    new_addresses: Option<NewAddresses>,
    /// The identity that the peer proved.
    peer_key: Option<PublicKey>,
}

/// The way past the packet socket.
#[derive(Debug)]
struct Bypass {
    queues: Box<Queues>,
    /// Readable when one of the two sockets is.
    both: Epoll,
    /// When to poll the packet socket next.
    next_look: Instant,
}

impl Bypass {
    fn new(queues: Box<Queues>, socket: &Socket) -> io::Result<Bypass> {
        let both = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        both.add(queues.socket(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        both.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        Ok(Bypass {
            queues,
            both,
            next_look: Instant::ZERO,
        })
    }
}

impl EthernetLane {
    /// A lane of `socket`, which receives frames with the key of `port_slot`, from `local` to `peer`.
    fn new(
        socket: Socket,
        (local, own): (Station, Hardware),
        (peer, hardware): (Station, Hardware),
        port_slot: PortSlot,
        options: &Options,
    ) -> io::Result<EthernetLane> {
        socket::prepare(&socket, options.receive_buffer);
        let interface = peer.interface;
        let device = options.device.as_ref();
        device.map_or(Ok(()), |it| it.permit(options.most_paths()))?;
        let line = device.map(|it| it.line(interface, (own, hardware)));
        let (queues, no_bypass) = match line.transpose()? {
            Some(Line::Queues(queues)) => (Some(queues), None),
            Some(Line::None(why)) => (None, why),
            None => (None, None),
        };
        let slot = queues.as_ref().map(|it| it.slot());
        let bypass = queues.map(|it| Bypass::new(it, &socket)).transpose()?;
        let seal = options.security.seal_len();
        let grants = device.map(|it| it.direct(port_slot.key(), (local, hardware), slot, seal));
        let grants = grants.transpose()?.flatten();
        let outgoing = OutgoingFrames::new(interface, hardware, grants);
        let incoming = IncomingFrames::new(interface, (own, hardware), MAX_MESSAGES);
        Ok(EthernetLane {
            links: Links::new(&socket, options, true)?,
            new_addresses: None,
            sender: Sender::new(&socket, Some(outgoing), options),
            receiver: Receiver::new(&socket, Envelope::Frame(Box::new(incoming)), options),
            socket,
            bypass,
            no_bypass,
            local: local.address(),
            peer: peer.address(),
            station: peer,
            port_slot,
            strict: options.strict,
            peer_key: None,
        })
    }

    /// A lane to `peer`, which asked the listener at `port`, with this end's key `key`. The peer may add paths over UDP
    /// to `udp_port`.
    ///
    /// # Errors
    /// [`NoEthernet`], or the system has no resources for a socket.
    pub(crate) fn accepted(
        port: &Arc<SharedPort>,
        peer: Station,
        key: u32,
        udp_port: Option<&Arc<SharedPort>>,
        options: &Options,
    ) -> io::Result<EthernetLane> {
        let hardware = peer.hardware.ok_or(NoEthernet::NoAddress)?;
        let service = port.local().port();
        let filter = ethernet::filter::of_connection(key, Some((service, hardware, peer.port)));
        let (socket, own) = ethernet::socket::open(peer.interface, &filter)?;
        let local = Station {
            hardware: Some(own),
            port: service,
            ..peer
        };
        let register = |port: &Arc<SharedPort>| port.register(key, peer.address());
        let lane = EthernetLane::new(
            socket,
            (local, own),
            (peer, hardware),
            register(port),
            options,
        )?;
        Ok(EthernetLane {
            new_addresses: udp_port.map(|it| NewAddresses::of(register(it))),
            ..lane
        })
    }

    /// The core's configuration for the socket.
    pub(crate) fn config(&self, options: &Options) -> Config {
        let path_datagram =
            ethernet::socket::path_datagram(&self.socket, self.station.interface).ok();
        let queues = self.bypass.as_ref().map(|it| &it.queues);
        let longest = queues.map(|it| it.longest());
        let config = udp::config(
            &self.socket,
            options,
            Encapsulation::Ethernet,
            path_datagram.into_iter().chain(longest).min(),
        );
        let fits = queues.map_or(u32::MAX, |it| it.window(config.path_datagram));
        Config {
            service_port: self.local.port(),
            window: config.window.min(fits),
            max_window: config.max_window.min(fits),
            ..config
        }
    }

    /// Takes this end's part of the key exchange.
    fn begin(&mut self, exchange: Exchange) {
        self.receiver.begin(exchange);
    }

    /// Completes the peer's key exchange. False if the cryptography refuses the keys.
    pub(crate) fn admit(&mut self, exchange: Exchange, session: Session) -> bool {
        self.begin(exchange);
        self.protect(session)
    }

    /// Receives by the queues. If they bring nothing, polls the packet socket now and then.
    fn receive_any(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let Some(bypass) = &mut self.bypass else {
            return self.receiver.receive(&self.socket, turn, self.strict);
        };
        if bypass.queues.has_more() {
            return self
                .receiver
                .receive_frames(&mut bypass.queues, turn, self.strict);
        }
        bypass.queues.look();
        if turn.now < bypass.next_look {
            turn.account.rx_empty_polls += 1;
            return Ok(false);
        }
        let received = self.receiver.receive(&self.socket, turn, self.strict)?;
        // After an arrival, another one is likely.
        bypass.next_look = match received {
            true => Instant::ZERO,
            false => turn.now + LOOK_INTERVAL,
        };
        Ok(received)
    }

    /// Evaluates `outcome` of the first path, whose interface may be gone: as long as there are other paths, that
    /// counts as nothing received and nothing sent.
    fn without_first(
        &self,
        outcome: Result<bool, LaneError>,
        turn: &Turn<'_>,
    ) -> Result<bool, LaneError> {
        let links = self.links.as_ref();
        match outcome {
            Err(error) if is_gone_error(&error) && links.is_some_and(|it| it.is_any(turn.core)) => {
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// Sends on the first path.
    fn transmit_first(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let exchange = self.receiver.exchange();
        let Some(bypass) = &mut self.bypass else {
            let sent = self
                .sender
                .transmit(&self.socket, self.peer, None, exchange, turn);
            return self.without_first(sent, turn);
        };
        let queues = &mut *bypass.queues;
        if queues.has_unsent() {
            // An interface with an error reports it again at the next send.
            let _ = queues.flush(&mut turn.account.tx_data_syscalls);
        }
        let way = Some(&mut *queues);
        let sent = self
            .sender
            .transmit(&self.socket, self.peer, way, exchange, turn);
        // No event announces the return of transmit frames.
        turn.more |= queues.has_unsent() || self.sender.is_full();
        sent
    }

    fn protect(&mut self, session: Session) -> bool {
        self.peer_key = Some(session.peer);
        if let Some(links) = &mut self.links {
            links.protect(&session);
        }
        protect(&mut self.sender, &mut self.receiver, session)
    }

    /// The identity that the peer proved: `None` in plain mode, and before the proof.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }

    /// The key by which the peer addresses this end.
    pub fn key(&self) -> u32 {
        self.port_slot.key()
    }

    /// Adds a path as soon as the connection is open. False if [`Options`] did not ask for several.
    pub fn add_path(&mut self, addresses: PathAddresses) -> bool {
        let links = self.links.as_mut();
        links.map(|it| it.want(addresses)).is_some()
    }

    /// Makes the next turn check for paths that the peer adds.
    pub(crate) fn look_for_paths(&mut self) {
        if let Some(links) = &mut self.links {
            links.look_now();
        }
    }

    /// The descriptor to wait on together with others. With several paths or with queues, it is readable when one of
    /// their sockets is.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match (&self.links, &self.bypass) {
            (Some(links), _) => links.watched(),
            (None, Some(bypass)) => bypass.both.0.as_fd(),
            (None, None) => self.socket.as_fd(),
        }
    }

    /// This end's address when the connection was made: see [`EthernetAddress`].
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address: see [`EthernetAddress`].
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

impl Lane for EthernetLane {
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let received = self.receive_any(turn);
        let received = self.without_first(received, turn);
        if let Some(session) = self.receiver.take_session() {
            self.protect(*session);
        }
        let received = received?;
        let Some(links) = &mut self.links else {
            return Ok(received);
        };
        let others = links.receive(turn, self.strict);
        let first = FirstPath {
            socket: &self.socket,
            peer: FirstPeer::Ethernet(self.station),
            key: self.port_slot.key(),
            new_addresses: self.new_addresses.as_mut(),
        };
        links.tend(first, turn);
        if let Some(new_addresses) = &mut self.new_addresses
            && !turn.core.awaits_paths()
        {
            new_addresses.close();
        }
        Ok(others? || received)
    }

    fn transmit(&mut self, turn: &mut Turn<'_>) -> Result<bool, LaneError> {
        let sent = self.transmit_first(turn)?;
        let Some(links) = &mut self.links else {
            return Ok(sent);
        };
        let others = links.transmit((&self.socket, self.sender.is_full()), turn);
        Ok(others? || sent)
    }

    fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) -> io::Result<bool> {
        let full = self.wants_write();
        let timeout = timeout.into_iter().chain(self.longest_sleep()).min();
        waker.sleep(|wake| poll::wait(Some(self.socket()), full, [wake, None], timeout))
    }

    fn wants_write(&self) -> bool {
        // With several paths, the watched descriptor reports room.
        self.bypass.is_none() && self.links.is_none() && self.sender.is_full()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        // Other connections read the UDP port, too.
        self.new_addresses.is_some().then_some(LONGEST_SLEEP)
    }

    fn holds(&self, region: RegionId) -> bool {
        let others = self.links.as_ref().is_some_and(|it| it.holds(region));
        others || self.sender.holds(&self.socket, region)
    }

    fn describe(&self, account: &mut Account) {
        account.lane = LaneKind::Ethernet;
        account.bypass = self.bypass.is_some();
        account.no_bypass = self.no_bypass;
        account.receive_buffer = socket::receive_buffer(&self.socket);
        account.cipher = self.sender.cipher();
    }
}

/// Whether the error means that the interface is gone.
fn is_gone_error(error: &LaneError) -> bool {
    let LaneError::Io(error) = error else {
        return false;
    };
    let why = error.get_ref().and_then(|it| it.downcast_ref());
    why == Some(&NoEthernet::Gone)
}

/// Opens a connection to `peer` with a lane that `wrap` makes of this one.
///
/// # Errors
/// [`NoEthernet`]; or the system gives no random numbers or no socket, or the cryptography refuses this end's key.
pub(crate) fn connect_as<L: Lane>(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
    wrap: impl FnOnce(EthernetLane) -> L,
) -> io::Result<Driver<L>> {
    let peer = Station::of(peer).filter(|it| it.port != 0);
    let peer = peer.ok_or(NoEthernet::NoAddress)?;
    let hardware = peer.hardware.ok_or(NoEthernet::NoAddress)?;
    let filter = ethernet::filter::of_connection(entropy.key, None);
    let (socket, own) = ethernet::socket::open(peer.interface, &filter)?;
    let local = Station {
        hardware: Some(own),
        port: entropy.port,
        ..peer
    };
    let port = Arc::new(SharedPort::unattended(local.address()));
    let port_slot = port.register(entropy.key, peer.address());
    let lane = EthernetLane::new(socket, (local, own), (peer, hardware), port_slot, options)?;
    let config = Config {
        service_port: peer.port,
        ..lane.config(options)
    };
    initiate(lane, config, options, entropy, EthernetLane::begin, wrap)
}

/// Finds out, without a frame, the longest datagram of raw Ethernet to `peer`, in bytes.
///
/// # Errors
/// [`NoEthernet`]: why there is none.
pub fn look_ethernet(peer: SocketAddr) -> io::Result<usize> {
    let peer = Station::of(peer).ok_or(NoEthernet::NoAddress)?;
    peer.hardware.ok_or(NoEthernet::NoAddress)?;
    let (socket, _) =
        ethernet::socket::open(peer.interface, &ethernet::filter::of_listener(peer.port))?;
    ethernet::socket::path_datagram(&socket, peer.interface)
}

#[cfg(test)]
mod device_faults;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
pub(crate) mod tests;
