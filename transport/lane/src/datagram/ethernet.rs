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

use super::lane::{DatagramLane, DatagramSocket, Ends, Framing};
use super::links::{FirstPath, FirstPeer};
use super::migration::LONGEST_SLEEP;
use super::new_addresses::NewAddresses;
use super::receive::{Envelope, Receiver};
use super::send::Sender;
use super::udp;
use crate::account::{Account, LaneKind};
use crate::address::{Hardware, Station};
use crate::error::LaneError;
use crate::ethernet::{self, IncomingFrames, Line, OutgoingFrames, Queues};
use crate::lane::Turn;
use crate::options::Options;
use crate::socket::{self, MAX_MESSAGES, PortSlot, SharedPort};
use crate::unavailable::{NoBypass, NoEthernet};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use socket2::Socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use zerolane_core::{Config, Entropy, Instant};
use zerolane_handshake::Exchange;
use zerolane_wire::encapsulation::Encapsulation;

/// Interval at which a connection with queues polls its packet socket while that brings nothing.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// A packet socket, at one interface, for one peer; and the connection's part of a device.
#[derive(Debug)]
struct EthernetSocket {
    socket: Socket,
    bypass: Option<Bypass>,
    /// Why there is no bypass, although one was requested.
    no_bypass: Option<NoBypass>,
    local: SocketAddr,
    peer: SocketAddr,
    /// The peer, as a station.
    station: Station,
    port_slot: PortSlot,
    /// Where questions for paths over UDP arrive, if the peer may ask.
    new_addresses: Option<NewAddresses>,
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

impl DatagramSocket for EthernetSocket {
    fn kind(&self) -> LaneKind {
        LaneKind::Ethernet
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn key(&self) -> u32 {
        self.port_slot.key()
    }

    /// The address when the connection was made: see [`EthernetAddress`](crate::address::EthernetAddress).
    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    /// See [`EthernetAddress`](crate::address::EthernetAddress).
    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn config(&self, options: &Options) -> Config {
        let interface = self.station.interface;
        let path_datagram = ethernet::socket::path_datagram(&self.socket, interface).ok();
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

    fn first_path(&mut self) -> Option<FirstPath<'_>> {
        Some(FirstPath {
            socket: &self.socket,
            peer: FirstPeer::Ethernet(self.station),
            key: self.port_slot.key(),
            new_addresses: self.new_addresses.as_mut(),
        })
    }

    /// Receives by the queues. If they bring nothing, polls the packet socket now and then.
    fn receive(
        &mut self,
        receiver: &mut Receiver,
        turn: &mut Turn<'_>,
        strict: bool,
    ) -> Result<bool, LaneError> {
        let Some(bypass) = &mut self.bypass else {
            return receiver.receive(&self.socket, turn, strict);
        };
        if bypass.queues.has_more() {
            return receiver.receive_frames(&mut bypass.queues, turn, strict);
        }
        bypass.queues.look();
        if turn.now < bypass.next_look {
            turn.account.rx_empty_polls += 1;
            return Ok(false);
        }
        let received = receiver.receive(&self.socket, turn, strict)?;
        // After an arrival, another one is likely.
        bypass.next_look = match received {
            true => Instant::ZERO,
            false => turn.now + LOOK_INTERVAL,
        };
        Ok(received)
    }

    fn transmit(
        &mut self,
        sender: &mut Sender,
        exchange: Option<&mut Exchange>,
        turn: &mut Turn<'_>,
    ) -> Result<bool, LaneError> {
        let Some(bypass) = &mut self.bypass else {
            return sender.transmit(&self.socket, self.peer, None, exchange, turn);
        };
        let queues = &mut *bypass.queues;
        if queues.has_unsent() {
            // An interface with an error reports it again at the next send.
            let _ = queues.flush(&mut turn.account.tx_data_syscalls);
        }
        let way = Some(&mut *queues);
        let sent = sender.transmit(&self.socket, self.peer, way, exchange, turn);
        // No event announces the return of transmit frames.
        turn.more |= queues.has_unsent() || sender.is_full();
        sent
    }

    /// The peer's address is fixed: only closes what no path needs any more.
    fn look_for_peer(&mut self, _ends: Ends<'_>, turn: &mut Turn<'_>) {
        if let Some(new_addresses) = &mut self.new_addresses
            && !turn.core.awaits_paths()
        {
            new_addresses.close();
        }
    }

    fn is_path_gone(&self, error: &LaneError) -> bool {
        let LaneError::Io(error) = error else {
            return false;
        };
        let why = error.get_ref().and_then(|it| it.downcast_ref());
        why == Some(&NoEthernet::Gone)
    }

    fn watched(&self) -> BorrowedFd<'_> {
        match &self.bypass {
            Some(bypass) => bypass.both.0.as_fd(),
            None => self.socket.as_fd(),
        }
    }

    fn reports_room(&self) -> bool {
        self.bypass.is_none()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        // Other connections read the UDP port, too.
        self.new_addresses.is_some().then_some(LONGEST_SLEEP)
    }

    fn describe(&self, account: &mut Account) {
        account.bypass = self.bypass.is_some();
        account.no_bypass = self.no_bypass;
    }

    #[cfg(test)]
    fn has_put_together(&self) -> bool {
        let bypass = self.bypass.as_ref();
        bypass.is_some_and(|it| it.queues.has_put_together())
    }
}

/// A lane of `socket`, which receives frames with the key of `port_slot`, from `local` to `peer`.
fn over(
    socket: Socket,
    (local, own): (Station, Hardware),
    (peer, hardware): (Station, Hardware),
    port_slot: PortSlot,
    new_addresses: Option<NewAddresses>,
    options: &Options,
) -> io::Result<DatagramLane> {
    socket::prepare(&socket, options.flow.receive_buffer);
    let interface = peer.interface;
    let device = options.lane.device.as_ref();
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
    let incoming = IncomingFrames::new(interface, (own, hardware), MAX_MESSAGES);
    let framing = Framing {
        envelope: Envelope::Frame(Box::new(incoming)),
        frames: Some(OutgoingFrames::new(interface, hardware, grants)),
    };
    let socket = EthernetSocket {
        socket,
        bypass,
        no_bypass,
        local: local.address(),
        peer: peer.address(),
        station: peer,
        port_slot,
        new_addresses,
    };
    DatagramLane::new(socket, framing, true, options)
}

/// A lane to `peer`, which asked the listener at `port`, with this end's key `key`. The peer may add paths over UDP to
/// `udp_port`.
///
/// # Errors
/// [`NoEthernet`], or the system has no resources for a socket.
pub(crate) fn accepted(
    port: &Arc<SharedPort>,
    peer: Station,
    key: u32,
    udp_port: Option<&Arc<SharedPort>>,
    options: &Options,
) -> io::Result<DatagramLane> {
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
    let new_addresses = udp_port.map(|it| NewAddresses::of(register(it)));
    let ends = ((local, own), (peer, hardware));
    over(
        socket,
        ends.0,
        ends.1,
        register(port),
        new_addresses,
        options,
    )
}

/// A lane to `peer`, with this end's key from `entropy`, and the core's configuration.
///
/// # Errors
/// [`NoEthernet`], or the system has no resources for a socket.
pub(crate) fn to(
    peer: SocketAddr,
    options: &Options,
    entropy: Entropy,
) -> io::Result<(DatagramLane, Config)> {
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
    let lane = over(
        socket,
        (local, own),
        (peer, hardware),
        port_slot,
        None,
        options,
    )?;
    let config = Config {
        service_port: peer.port,
        ..lane.config(options)
    };
    Ok((lane, config))
}

/// Finds out, without a frame, the longest datagram of raw Ethernet to `peer`, in bytes.
///
/// # Errors
/// [`NoEthernet`]: why there is none.
pub fn max_ethernet_datagram(peer: SocketAddr) -> io::Result<usize> {
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
