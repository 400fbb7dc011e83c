//! Relays real datagrams on loopback through two emulated links.
//!
//! ```text
//!  client 1 --\                 /-- socket 1 --\
//!              relay.addr() ====                 server
//!  client 2 --/    links A->B    \-- socket 2 --/
//!                  links B->A
//! ```
//!
//! Side A is all clients together, side B the server. All clients share one [`Link`] in each direction, with its rate and
//! queue. Each client address gets its own connected socket towards the server, as behind a NAT: the server tells clients
//! apart by address, and must answer from the address to which the request was sent.
//!
//! Sizes for [`LinkConfig::mtu`] and [`LinkConfig::rate_bits_per_s`] are those of whole IP packets: the datagram and 28
//! bytes of headers, or 48 with IPv6.
//!
//! Time is real, so delays come out slightly longer than configured, and losses depend on the order in which datagrams reach
//! the relay.

mod forwarder;
#[cfg(test)]
mod tests;

use crate::worker::Worker;
use forwarder::{Datagram, Forwarder};
use netsim::Side;
use netsim::link::{Link, LinkConfig, LinkStats};
use netsim::pair::direction_seeds;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Most client addresses of one relay; datagrams from others are dropped and
/// counted. Bounds the sockets that stray datagrams can make it open.
pub const MAX_CLIENTS: usize = 64;

/// Most datagrams in flight in one direction; more are dropped and counted.
/// Bounds the memory to 256 MiB with the biggest datagrams, and leaves room for
/// more than the relay can pass on in 20 ms.
pub const MAX_IN_FLIGHT_PACKETS: usize = 4096;

/// A running relay. Dropping it ends it; datagrams still in flight are gone.
///
/// ```
/// use netlab::udp::Relay;
/// use netsim::link::LinkConfig;
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let slow = LinkConfig { delay: Duration::from_millis(2), ..LinkConfig::default() };
/// let relay = Relay::start(server.local_addr()?, slow, slow, 1)?;
///
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.send_to(b"hello", relay.addr())?;
/// let mut buffer = [0; 16];
/// let (length, _from_relay) = server.recv_from(&mut buffer)?;
/// assert_eq!(&buffer[..length], b"hello");
///
/// let stats = relay.stop()?;
/// assert_eq!(stats.a_to_b.delivered, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    worker: Worker<State>,
}

/// What a relay did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// From the clients to the server.
    pub a_to_b: LinkStats,
    /// From the server to the clients.
    pub b_to_a: LinkStats,
    /// Client addresses seen and served.
    pub clients: usize,
    /// Datagrams dropped because their sender was one client too many.
    pub refused: u64,
    /// Datagrams dropped because [`MAX_IN_FLIGHT_PACKETS`] were in flight.
    pub overflowed: u64,
    /// Datagrams that came through a link but that the kernel did not take,
    /// for example because nothing listens at the server's address.
    pub unsent: u64,
}

impl Relay {
    /// Starts relaying between a new port on loopback, of `server`'s address
    /// family, and `server`.
    ///
    /// # Errors
    /// The system's error if a socket or the thread cannot be made.
    pub fn start(
        server: SocketAddr,
        a_to_b: LinkConfig,
        b_to_a: LinkConfig,
        seed: u64,
    ) -> io::Result<Self> {
        let front = UdpSocket::bind((loopback_like(server), 0))?;
        let addr = front.local_addr()?;
        let state = State::new(a_to_b, b_to_a, seed);
        let worker = Worker::start("netlab-relay", state, |shared| {
            let forwarder = Forwarder::new(front, server, shared)?;
            Ok(move || forwarder.run())
        })?;
        Ok(Self { addr, worker })
    }

    /// Where clients send to instead of to the server.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The counters as they are now.
    #[must_use]
    pub fn stats(&self) -> RelayStats {
        self.worker.state().stats()
    }

    /// Changes the link that carries what `from` sends (A: the clients, B: the
    /// server), as [`Link::set_config`] does.
    pub fn set_config(&self, from: Side, config: LinkConfig) {
        self.worker.state().links[from.index()].set_config(config);
    }

    /// Changes the relay's addresses that `side` sees, as a NAT does that forgot the old ones: all clients'
    /// towards the server (B), or the server's towards the clients (A, [`Relay::addr`] no more). From
    /// the next datagram on what comes from the relay has another source, and what is sent to the old one
    /// vanishes.
    pub fn rebind(&self, side: Side) {
        self.worker.state().rebinding[side.index()] = Some(Old::Vanishes);
    }

    /// The same, but what is sent to the old addresses is refused: ICMP says that there is no such port.
    pub fn rebind_and_refuse(&self, side: Side) {
        self.worker.state().rebinding[side.index()] = Some(Old::Refused);
    }

    /// Takes both links down or up again, as [`Link::set_up`] does.
    pub fn set_up(&self, up: bool) {
        for link in &mut self.worker.state().links {
            link.set_up(up);
        }
    }

    /// Ends the relay; returns its last counters.
    ///
    /// # Errors
    /// The system's error if one had ended it before.
    pub fn stop(mut self) -> io::Result<RelayStats> {
        self.worker.end()?;
        Ok(self.stats())
    }
}

#[derive(Debug)]
struct State {
    /// Indexed by the side that sends.
    links: [Link<Datagram>; 2],
    clients: usize,
    refused: u64,
    overflowed: u64,
    unsent: u64,
    /// A request to change the addresses that a side sees.
    rebinding: [Option<Old>; 2],
}

/// What becomes of what is sent to an address that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    Vanishes,
    Refused,
}

impl State {
    fn new(a_to_b: LinkConfig, b_to_a: LinkConfig, seed: u64) -> Self {
        let [seed_a, seed_b] = direction_seeds(seed);
        Self {
            links: [Link::new(a_to_b, seed_a), Link::new(b_to_a, seed_b)],
            clients: 0,
            refused: 0,
            overflowed: 0,
            unsent: 0,
            rebinding: [None; 2],
        }
    }

    fn stats(&self) -> RelayStats {
        let [a_to_b, b_to_a] = [self.links[0].stats(), self.links[1].stats()];
        RelayStats {
            a_to_b,
            b_to_a,
            clients: self.clients,
            refused: self.refused,
            overflowed: self.overflowed,
            unsent: self.unsent,
        }
    }
}

fn loopback_like(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}
